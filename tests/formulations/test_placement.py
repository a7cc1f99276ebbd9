"""Exact placement models against enumeration, the dynamic program, the checker and each other."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from placement_runs import (
    CLOSE,
    MODELS,
    OPTIMUM,
    SOLVERS,
    check,
    compare_prices,
    compare_with_dp,
    compare_with_enumeration,
    fix,
    run,
    value,
)
from random_instances import TinyInstance, tiny_instance
from sampling import slow

from nestopt.core.errors import InputError, UsageError
from nestopt.core.options import SolveOptions
from nestopt.core.result import Limit, Reason
from nestopt.formulations.placement.cpsat import PlacementCpsat
from nestopt.formulations.placement.data import PlacementData
from nestopt.formulations.placement.milp import PlacementMilp
from nestopt.formulations.placement.scenario import Scenario, ScenarioData
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.collective_table import CollectiveTable, Figures
from nestopt.placement.model.workload import Operator, Workload

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("seed", [0, 1, *slow(range(2, 6))])
@pytest.mark.parametrize("space", ["structured", "general"])
def test_models_find_the_best_of_all_plans(seed: int, space: str) -> None:
    tiny = tiny_instance(np.random.default_rng(seed), devices=3, operators=3)
    for result in compare_with_enumeration(tiny, space):
        check(tiny, result)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300, 330))
@pytest.mark.parametrize("space", ["structured", "general"])
def test_models_find_the_best_of_all_plans_of_more_instances(seed: int, space: str) -> None:
    compare_with_enumeration(
        tiny_instance(np.random.default_rng(seed), devices=4, operators=3), space
    )


@pytest.mark.parametrize("seed", [500, *slow(range(501, 508))])
def test_models_agree_with_the_dynamic_program(seed: int) -> None:
    compare_with_dp(tiny_instance(np.random.default_rng(seed), devices=4, operators=4))


@pytest.mark.slow
def test_models_agree_with_the_dynamic_program_on_a_hundred_instances() -> None:
    ratios = [
        compare_with_dp(tiny_instance(np.random.default_rng(seed), devices=5, operators=4))
        for seed in range(1000, 1120)
    ]
    assert min(ratios) < 1 - 1e-3


# --- the model's objective is the evaluator's price ----------------------------------------------


@pytest.mark.parametrize(("model_class", "tolerance"), MODELS)
def test_a_plan_has_its_price_in_the_model(
    model_class: type[PlacementMilp | PlacementCpsat], tolerance: float
) -> None:
    assert sum(compare_prices(model_class, tolerance, seed) for seed in range(700, 703)) >= 2


@pytest.mark.slow
@pytest.mark.parametrize(("model_class", "tolerance"), MODELS)
def test_every_plan_has_its_price_in_the_model(
    model_class: type[PlacementMilp | PlacementCpsat], tolerance: float
) -> None:
    assert sum(compare_prices(model_class, tolerance, seed) for seed in range(700, 860)) >= 150


# --- spaces, outcomes, limits --------------------------------------------------------------------


def mixed_pairs() -> TinyInstance:
    """Fast and slow devices alternate in one node; every stage needs two devices."""
    block = {"kind": "block", "flops": 1e12, "params": 1e8, "tensor_divides": (2,)}
    workload = Workload.chain(
        "pairs", [Operator(f"b{i}", **block) for i in range(3)], 1e6, global_batch=8
    )
    cluster = Cluster.regular(
        "mixed",
        (4,),
        (Level("node", 1e-6, 1e12),),
        (DeviceType("fast", 2e14, 1e11, 4e12), DeviceType("slow", 1e14, 1e11, 4e12)),
        type_of=[0, 1, 0, 1],
    )
    options = {"tensor": "2", "replicas": "1", "microbatch": "1"}
    return TinyInstance(workload, cluster, "iteration-time", options)


@pytest.mark.parametrize("method", SOLVERS)
def test_general_plans_can_beat_structured_ones(method: str) -> None:
    tiny = mixed_pairs()
    structured = value(run("dp", tiny, "structured"))
    result = run(method, tiny, "general")
    assert value(result) < 0.75 * structured
    assert result.solution_json is not None
    pairs = [
        sorted(device for row in stage["devices"] for device in row)
        for stage in result.solution_json["stages"]
    ]
    assert sorted(pairs) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(("model_class", "_"), MODELS)
def test_no_two_stages_lie_at_the_start_of_the_line(
    model_class: type[PlacementMilp | PlacementCpsat], _: float
) -> None:
    """Both fitted once: alike devices are counted by cell, and there were enough of them."""
    tiny = mixed_pairs()
    alike = Cluster.regular("alike", (4,), tiny.cluster.levels, tiny.cluster.types[:1])
    data = PlacementData(replace(tiny, cluster=alike).instance)
    for at, feasible in ((0, False), (2, True)):
        model = model_class(ScenarioData(data, Scenario(1, 1, "inner")), 1.0)
        fix(model, [(model.place[0, 0, at], 1), (model.place[1, 0, 0], 1)])
        assert (model.solve(SolveOptions(), 60.0).values is not None) == feasible


@pytest.mark.parametrize("method", SOLVERS)
def test_interleaving_is_exact(method: str) -> None:
    block = {"kind": "block", "flops": 1e12, "params": 1e8, "act_full": 1e8}
    workload = Workload.chain(
        "blocks",
        [Operator("embedding", params=1e8), *(Operator(f"b{i}", **block) for i in range(4))],
        1e6,
        global_batch=4,
    )
    cluster = Cluster.regular(
        "pair", (2,), (Level("node", 1e-6, 1e11),), (DeviceType("gpu", 1e14, 1e11, 4e12),)
    )
    options = {"schedule": "interleaved", "chunks": "2", "zero": "1", "recompute": "none"}
    tiny = TinyInstance(workload, cluster, "iteration-time", options)
    best = OPTIMUM["general"](tiny)
    assert math.isfinite(best)
    result = run(method, tiny, "general")
    assert value(result) == pytest.approx(best, rel=CLOSE)
    check(tiny, result)


@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("start", ["dp", "none"])
def test_infeasibility_is_a_result_with_causes(method: str, start: str) -> None:
    tiny = mixed_pairs()
    small = tiny.cluster.with_types([replace(t, memory=1e6) for t in tiny.cluster.types])
    result = run(method, replace(tiny, cluster=small), "general", set={"start": start})
    assert result.termination.reason is Reason.INFEASIBLE
    assert result.solution_json is None
    assert "memory" in result.infeasible_because[0]
    failed = tiny.cluster.fail(range(4))
    result = run(method, replace(tiny, cluster=failed), "general", set={"start": start})
    assert result.termination.reason is Reason.INFEASIBLE
    assert "failed" in result.infeasible_because[0]


@pytest.mark.parametrize("method", SOLVERS)
def test_a_time_limit_keeps_plan_and_bound(method: str) -> None:
    tiny = tiny_instance(np.random.default_rng(2), devices=4, operators=3)
    best = value(run(method, tiny, "general"))
    warm = run("dp", tiny, "structured")
    result = run(method, tiny, "general", time_limit=1e-3, warm_start=warm)
    assert result.termination.reason is Reason.FEASIBLE
    assert result.termination.limit is Limit.TIME
    assert result.objective == pytest.approx(warm.objective)
    assert 0 < result.bound <= best
    nothing = run(method, tiny, "general", time_limit=1e-3)
    assert nothing.termination.reason is Reason.NO_SOLUTION
    assert nothing.bound <= best


@pytest.mark.parametrize("method", SOLVERS)
def test_too_large_a_model_is_not_written_down(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nestopt.formulations.placement.scenario._MOST_COMBINATIONS", 5)
    result = run(method, mixed_pairs(), "general")
    assert result.termination.reason is Reason.NO_SOLUTION
    assert result.termination.limit is Limit.MEMORY
    assert 0 < result.bound < math.inf
    assert "too many" in result.stats["notes"][0]


@pytest.mark.parametrize("method", SOLVERS)
def test_a_start_by_the_dynamic_program_changes_nothing(method: str) -> None:
    for seed in (2, 12):
        tiny = tiny_instance(np.random.default_rng(seed), devices=4, operators=3)
        helped = run(method, tiny, "general", set={"start": "dp"})
        assert value(helped) == pytest.approx(value(run(method, tiny, "general")), rel=CLOSE)


@pytest.mark.parametrize("method", SOLVERS)
def test_a_warm_start_outside_the_space_is_not_used(method: str) -> None:
    tiny = mixed_pairs()
    general = run(method, tiny, "general")
    narrow = replace(tiny, options=tiny.options | {"zero": "0", "recompute": "full"})
    result = run(method, narrow, "structured", warm_start=general)
    assert value(result) == pytest.approx(value(run("dp", narrow, "structured")), rel=CLOSE)
    assert any("outside the space" in note for note in result.stats["notes"])


def test_models_are_written_before_they_are_solved(tmp_path: Path) -> None:
    tiny = tiny_instance(np.random.default_rng(2), devices=4, operators=3)
    for method, name in (("milp", "model.lp"), ("milp", "model.mps"), ("cpsat", "model.pbtxt")):
        run(method, tiny, "structured", write_model=str(tmp_path / name))
        text = (tmp_path / name).read_text()
        assert "stage_time" in text
        assert "operator_assignment" in text
        assert (tmp_path / name).with_stem("model-2").exists()


@pytest.mark.parametrize("method", SOLVERS)
def test_tables_of_collectives_are_refused(method: str) -> None:
    tiny = mixed_pairs()
    table = CollectiveTable("empty", (Figures(1e-6, 1e12, math.inf),), ())
    with pytest.raises(UsageError, match=f"{method} prices collectives by the formulas alone"):
        run(method, replace(tiny, cluster=tiny.cluster.with_collectives(table)), "general")


@pytest.mark.parametrize("method", SOLVERS)
def test_unknown_settings_are_refused(method: str) -> None:
    tiny = mixed_pairs()
    with pytest.raises(InputError, match="structure"):
        replace(tiny.instance.space, structure="flat")
    with pytest.raises(UsageError, match="start"):
        run(method, tiny, "general", set={"start": "later"})


def test_both_models_have_the_same_families() -> None:
    def families(model_class: type) -> set[str]:
        return {name for name in dir(model_class) if name.startswith("add_")}

    assert families(PlacementCpsat) == families(PlacementMilp)
    assert len(families(PlacementMilp)) > 5


def test_cbc_agrees_with_highs() -> None:
    tiny = tiny_instance(np.random.default_rng(12), devices=3, operators=3)
    highs = run("milp", tiny, "general")
    cbc = run("milp", tiny, "general", backend="cbc")
    assert value(cbc) == pytest.approx(value(highs), rel=CLOSE)
