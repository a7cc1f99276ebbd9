"""What the tests of the exact placement models share: runs, comparisons, plans fixed in a model."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "placement"))

from enumerate_plans import best_plan, general_plans, structured_plans
from maxload_cases import least_load, random_problem
from plan_cases import random_cluster, random_workload
from random_instances import TinyInstance
from truth import _judge, general_optimum, structured_optimum

from nestopt.core.options import SolveOptions
from nestopt.core.result import Reason
from nestopt.formulations.placement.admission import fixed_choices
from nestopt.formulations.placement.cpsat import PlacementCpsat
from nestopt.formulations.placement.cpsat import solve as solve_cpsat
from nestopt.formulations.placement.data import PlacementData
from nestopt.formulations.placement.milp import PlacementMilp
from nestopt.formulations.placement.milp import solve as solve_milp
from nestopt.formulations.placement.scenario import Scenario, ScenarioData
from nestopt.placement.dp.solve import solve as solve_dp
from nestopt.placement.judge.check import check_plan
from nestopt.placement.model.plan import Plan
from nestopt.placement.pricing.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nestopt.core.result import Result

__all__ = ["least_load", "random_problem"]

SOLVERS = {"milp": solve_milp, "cpsat": solve_cpsat}
OPTIMUM = {
    "contiguous": structured_optimum,
    "structured": structured_optimum,
    "general": general_optimum,
}
CLOSE = 1e-6
# HiGHS keeps constraints to 1e-6 of a thousand units, CP-SAT counts rounded times
MODELS = [(PlacementMilp, 5e-9), (PlacementCpsat, 5e-7)]


def over(tiny: TinyInstance, space: str) -> TinyInstance:
    """The instance over another structure."""
    return replace(tiny, options=tiny.options | {"structure": space})


def run(method: str, tiny: TinyInstance, space: str, **options: Any) -> Result:
    """Solve a tiny instance; unless told otherwise without any help of the dynamic program."""
    chosen = SolveOptions(set=options.pop("set", {"start": "none"}), **options)
    instance = over(tiny, space).instance
    if method == "dp":
        return solve_dp(instance, replace(chosen, set={}))
    return SOLVERS[method](instance, chosen)


def value(result: Result) -> float:
    """The optimum; inf if there is none. Anything but a proof fails."""
    if result.termination.reason is Reason.INFEASIBLE:
        assert result.infeasible_because
        assert result.bound == math.inf
        return math.inf
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective is not None
    assert result.objective * (1 - CLOSE) <= result.bound <= result.objective
    return float(result.objective)


def check(tiny: TinyInstance, result: Result) -> None:
    """The independent checker accepts the plan and its price."""
    if result.solution_json is not None:
        plan = Plan.from_json(result.solution_json)
        check_plan(tiny.workload, tiny.cluster, plan, result.objective, tiny.objective)


def best_of(tiny: TinyInstance, space: str, wanted: Callable[[Plan], bool]) -> float:
    """The price of the best plan that is wanted, by enumeration of all plans; inf if none fits."""
    every = general_plans if space == "general" else structured_plans
    plans = filter(wanted, every(tiny.workload, tiny.cluster, over(tiny, space).space))
    return best_plan(plans, _judge(tiny))[0]


def compare_with_enumeration(tiny: TinyInstance, space: str) -> list[Result]:
    """Both models find the best of all plans."""
    best = OPTIMUM[space](over(tiny, space))
    results = [run(method, tiny, space) for method in SOLVERS]
    for result in results:
        assert value(result) == pytest.approx(best, rel=CLOSE)
    return results


def compare_with_dp(tiny: TinyInstance) -> float:
    """dp == milp == cpsat when structured; the models agree when general. Price of structure."""
    structured = value(run("dp", tiny, "structured"))
    for method in SOLVERS:
        result = run(method, tiny, "structured")
        assert value(result) == pytest.approx(structured, rel=CLOSE)
        check(tiny, result)
    general = [run(method, tiny, "general") for method in SOLVERS]
    for result in general:
        check(tiny, result)
    assert value(general[0]) == pytest.approx(value(general[1]), rel=CLOSE)
    assert value(general[0]) <= structured * (1 + CLOSE)
    return value(general[0]) / structured if structured < math.inf else 1.0


def fix(model: PlacementMilp | PlacementCpsat, values: Iterable[tuple[Any, int]]) -> None:
    """Give variables of a model their values."""
    for variable, wanted in values:
        model.fix(variable, wanted)


def random_plans(
    rng: np.random.Generator, tiny: TinyInstance, tries: int
) -> list[tuple[Plan, float]]:
    """Random plans of the general space that fit, with their prices."""
    found = []
    everything = [
        plan
        for plan in structured_plans(tiny.workload, tiny.cluster, tiny.space)
        if rng.random() < 0.2
    ]
    for index in rng.integers(len(everything), size=tries) if everything else []:
        plan = everything[index]
        devices = rng.permutation(tiny.cluster.alive)
        stages, at = [], 0
        for stage in plan.stages:
            size = stage.devices.size
            rows = devices[at : at + size].reshape(stage.devices.shape)
            stages.append(replace(stage, devices=rows.astype(np.int64)))
            at += size
        shuffled = replace(plan, stages=tuple(stages))
        priced = evaluate(tiny.workload, tiny.cluster, shuffled)
        if priced.fits:
            found.append((shuffled, priced.objective(tiny.objective)))
    return found


def compare_prices(
    model_class: type[PlacementMilp | PlacementCpsat],
    tolerance: float,
    seed: int,
    *,
    decomposed: bool = False,
) -> int:
    """Fix random plans of a random instance in the model: the objective is the evaluator's."""
    rng = np.random.default_rng(seed)
    cluster = random_cluster(rng, int(rng.integers(3, 9)))
    if not 2 <= len(cluster.alive) <= 8:
        return 0
    cluster = cluster.with_types([replace(t, memory=1e13) for t in cluster.types])
    names = [t.name for t in cluster.types]
    workload = random_workload(rng, int(rng.integers(1, 5)), names, decomposed=decomposed)
    options = {
        "tensor": "1,2,4", "context": "1,2", "expert": "1,2", "replicas": "1,2,4",
        "microbatch": "1,2", "zero": str(rng.integers(4)), "sequence": str(rng.integers(2)),
        "recompute": str(rng.choice(["none", "selective", "full"])),
    }  # fmt: skip
    if decomposed:
        options |= {"decomposition": "4d", "overlap": "1", "microbatch": "2,4"}
    objective = "bottleneck" if seed % 5 == 0 else "iteration-time"
    tiny = TinyInstance(workload, cluster, objective, options)
    data = PlacementData(tiny.instance)
    plans = random_plans(rng, tiny, 2)
    for plan, cost in plans:
        scenario = ScenarioData(data, Scenario(plan.replicas, plan.microbatch))
        # the cutoff makes CP-SAT's unit small enough, and its capacities must admit the plan
        model = model_class(scenario, cost, 1.01 * cost, symmetry=False)
        values = fixed_choices(model, plan)
        assert values is not None
        fix(model, values)
        outcome = model.solve(SolveOptions(), 60.0)
        assert outcome.objective is not None, plan.to_json()
        assert outcome.objective * model.unit == pytest.approx(cost, rel=tolerance)
    return len(plans)
