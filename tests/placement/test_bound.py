"""Lower bounds: below every optimum, and valid whenever a run is cut short."""

from __future__ import annotations

import math

import numpy as np
import pytest
from random_instances import TinyInstance, tiny_instance
from sampling import slow
from truth import general_optimum, search, structured_optimum

from nestopt.core.options import SolveOptions
from nestopt.core.registry import named
from nestopt.core.result import Limit, Reason
from nestopt.placement.bounds.general import bounds, compute_bound, relaxed_bound
from nestopt.placement.dp.solve import solve
from nestopt.placement.judge.check import check_result
from nestopt.placement.model.clock import Clock
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.workload import Operator, Workload
from nestopt.placement.problem import PROBLEM

CLOSE = 1 + 1e-9


def instance_of(tiny: TinyInstance) -> PlacementInstance:
    return tiny.instance


def general_of(tiny: TinyInstance) -> PlacementInstance:
    return tiny.instance.over(PlanSpace.parse("general", tiny.space))


def options_of(tiny: TinyInstance, **options: object) -> SolveOptions:
    return SolveOptions(**options)  # type: ignore[arg-type]


# --- bound <= general optimum <= structured optimum ---------------------------------------------


def bounds_hold(seed: int, **size: int) -> tuple[float, float]:
    """Hold all bounds to the enumerated general optimum; (bound, optimum)."""
    tiny = tiny_instance(np.random.default_rng(seed), **size)
    truth = general_optimum(tiny)
    found = search(tiny)
    assert found.general_bound <= truth * CLOSE, f"seed {seed}"
    assert truth <= found.objective * CLOSE, f"seed {seed}"
    for row in bounds(instance_of(tiny), options_of(tiny)):
        assert row["value"] <= truth * CLOSE, f"seed {seed}: {row['name']}"
    return found.general_bound, truth


@pytest.mark.parametrize("block", [0, 1, *slow(range(2, 10))])
def test_bounds_are_below_the_enumerated_general_optimum(block):
    pairs = [
        bounds_hold(seed, devices=3, operators=2 + block % 2, modes=1)
        for seed in range(12 * block, 12 * block + 12)
    ]
    assert any(math.isfinite(truth) for _, truth in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_bounds_are_below_the_enumerated_general_optimum_on_four_devices(block):
    for seed in range(1000 + 15 * block, 1015 + 15 * block):
        bounds_hold(seed, devices=4, operators=3, modes=1)


@pytest.mark.parametrize("count", [15, *slow([60])])
def test_the_general_bound_is_often_close(count):
    """Not a law, but a bound far below everything would satisfy the others."""
    ratios = []
    for seed in range(count):
        found = search(tiny_instance(np.random.default_rng(seed), devices=5, operators=4, modes=1))
        if found.plan is not None:
            ratios.append(found.general_bound / found.objective)
    assert np.median(ratios) > 0.9


def test_the_best_bound_comes_first_with_its_witness():
    instance = PlacementInstance(
        named("workload", "gpt3-1.7b,batch=32,layers=6"), named("cluster", "tree:4x2")
    )
    rows = PROBLEM.bounds(instance, SolveOptions())
    assert [row["name"] for row in rows] == ["relaxed", "compute"]
    assert rows[0]["value"] >= rows[1]["value"] > 0
    for row in rows:
        assert row["witness"]["relaxes"]
    stages = rows[0]["witness"]["stages"]
    assert sum(stage["operators"] for stage in stages) == instance.workload.num_operators
    found = search_value(instance)
    assert rows[0]["value"] == pytest.approx(found, rel=1e-9)


def search_value(instance: PlacementInstance) -> float:
    return float(solve(instance, SolveOptions()).stats["general_bound"])


# --- the arithmetic bound -----------------------------------------------------------------------


def test_compute_bound_by_hand():
    """Two devices of 100 and 50 FLOP/s at half efficiency; 3 x 40 FLOP a sample, 6 samples."""
    types = (
        DeviceType("fast", 100.0, 1e9, 1e9, efficiency=0.5),
        DeviceType("slow", 50.0, 1e9, 1e9, efficiency=0.5),
        DeviceType("dead", 1e9, 1e9, 1e9),
    )
    cluster = Cluster.regular(
        "c", (3,), (Level("n", 0.0, 1e9),), types, type_of=(0, 1, 2), failed=(2,)
    )
    operators = [
        Operator("a", flops=30.0),
        Operator("b", flops=0.0, flops_attn=10.0),
        Operator("measured", flops=1e9, time_fwd={"fast": 0.0}, time_bwd={"fast": 0.0}),
    ]
    workload = Workload.chain("w", operators, 0.0, 6)
    assert compute_bound(workload, cluster, "iteration-time")["value"] == pytest.approx(720 / 75)
    assert compute_bound(workload, cluster, "bottleneck")["value"] == pytest.approx(120 / 75)
    assert (
        "720 FLOP / 75 FLOP/s"
        in (compute_bound(workload, cluster, "iteration-time")["witness"]["arithmetic"])
    )


def test_compute_bound_is_reached_by_devices_that_only_compute():
    cluster = Cluster.regular(
        "c", (1,), (Level("n", 0.0, 1e9),), (DeviceType("gpu", 1e12, 1e12, 1e12),)
    )
    workload = Workload.chain("w", [Operator("a", flops=1e12), Operator("b", flops=2e12)], 0.0, 4)
    result = solve(PlacementInstance(workload, cluster), SolveOptions())
    value = compute_bound(workload, cluster, "iteration-time")["value"]
    assert result.objective == pytest.approx(value, rel=1e-12) == 36.0


def test_no_device_no_bound_but_infinity():
    cluster = Cluster.regular(
        "c", (2,), (Level("n", 0.0, 1e9),), (DeviceType("gpu", 1.0, 1.0, 1.0),), failed=(0, 1)
    )
    workload = Workload.chain("w", [Operator("a", flops=1.0)], 0.0, 1)
    for row in bounds(PlacementInstance(workload, cluster), SolveOptions()):
        assert row["value"] == math.inf


# --- limits -------------------------------------------------------------------------------------


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that advances by a second whenever it is read, so that limits are repeatable."""

    def seconds(clock: Clock) -> float:
        clock.reads = getattr(clock, "reads", 0) + 1  # type: ignore[attr-defined]
        return float(clock.reads)  # type: ignore[attr-defined]

    monkeypatch.setattr(Clock, "seconds", property(seconds))


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("seed", [*range(4), *slow(range(4, 12))])
def test_a_time_limit_anywhere_keeps_a_valid_bound(seed):
    tiny = tiny_instance(np.random.default_rng(seed), devices=5, operators=4, modes=1)
    exact = search(tiny)
    assert exact.limit is None
    reasons = set()
    for limit in (0, 1, 2, 3, 5, 8, 13, 21, 34, 55, 1e6):
        found = search(tiny, time_limit=float(limit))
        assert found.general_bound <= found.bound <= exact.objective * CLOSE
        assert found.objective >= exact.objective * (1 - 1e-9)
        assert found.bound <= found.objective
        reasons.add(found.limit)
        cut = relaxed_bound(tiny.instance, options_of(tiny, time_limit=float(limit)))
        assert cut["value"] <= exact.objective * CLOSE
    assert reasons == {None, "time"}


@pytest.mark.usefixtures("ticking")
def test_a_time_limit_ends_with_what_there_is():
    seen = set()
    for seed in range(12):
        tiny = tiny_instance(np.random.default_rng(seed), devices=5, operators=4, modes=1)
        for limit in (1, 5, 13, 34, 100):
            result = solve(instance_of(tiny), options_of(tiny, time_limit=float(limit)))
            check_result(result)
            seen.add((result.termination.reason, result.termination.limit))
            if result.objective is not None:
                assert result.bound <= result.objective
    assert (Reason.FEASIBLE, Limit.TIME) in seen
    assert (Reason.NO_SOLUTION, Limit.TIME) in seen
    assert (Reason.OPTIMAL, Limit.NONE) in seen


def test_a_time_limit_of_the_method():
    instance = PlacementInstance(
        named("workload", "gpt3-1.7b"), named("cluster", "h100-spineleaf-64")
    )
    result = solve(instance, SolveOptions(time_limit=1e-6))
    assert result.termination.reason is Reason.NO_SOLUTION
    assert result.termination.limit is Limit.TIME
    check_result(result)


class _Stop:
    """Ctrl-C at the n-th incumbent."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.last: float | None = None

    def __call__(self, seconds: float, objective: float | None, bound: float, note: str) -> None:
        self.last = objective
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("count", [8, *slow([30])])
@pytest.mark.parametrize("after", [1, 2])
def test_ctrl_c_keeps_the_incumbent(after, count):
    interrupted = 0
    for seed in range(count):
        tiny = tiny_instance(np.random.default_rng(seed), devices=5, operators=4, modes=1)
        stop = _Stop(after)
        result = solve(instance_of(tiny), options_of(tiny, progress=stop))
        if stop.left > 0:
            continue
        interrupted += 1
        assert result.objective == pytest.approx(stop.last, rel=1e-9)
        assert result.bound <= search(tiny).objective * CLOSE
        if result.termination.reason is Reason.FEASIBLE:
            assert result.termination.limit is Limit.INTERRUPTED
        else:  # the bound had met the incumbent already
            assert result.termination.reason is Reason.OPTIMAL
            assert result.objective == pytest.approx(search(tiny).objective, rel=1e-9)
        check_result(result)
    assert interrupted > 0


# --- the general space --------------------------------------------------------------------------


def test_without_a_structured_plan_the_general_space_stays_open():
    """Infeasible in the structured space only: the devices that suffice do not lie in a row."""
    types = (DeviceType("big", 1e14, 1e11, 1e12), DeviceType("small", 1e14, 1e6, 1e12))
    cluster = Cluster.regular("c", (3,), (Level("n", 1e-6, 1e11),), types, type_of=(0, 1, 0))
    block = Operator("block", flops=1e12, params=1e9, tensor_divides=(2,))
    tiny = TinyInstance(
        Workload.chain("w", [block], 0.0, 1), cluster, "iteration-time",
        {"tensor": "2", "zero": "0", "recompute": "none"},
    )  # fmt: skip
    assert structured_optimum(tiny) == math.inf > general_optimum(tiny)
    structured = solve(instance_of(tiny), options_of(tiny))
    assert structured.termination.reason is Reason.INFEASIBLE
    assert structured.bound == math.inf
    (why,) = structured.infeasible_because
    assert why.startswith("places: a pipeline would fit if devices were only counted")
    general = solve(general_of(tiny), options_of(tiny))
    assert general.termination.reason is Reason.NO_SOLUTION
    assert general.bound <= general_optimum(tiny)
    for result in (structured, general):
        check_result(result)


def test_the_price_of_structure():
    """The general optimum is strictly below the structured one: the good devices lie apart."""
    types = (DeviceType("fast", 2e14, 1e12, 1e12), DeviceType("slow", 1e14, 1e12, 1e12))
    cluster = Cluster.regular("c", (3,), (Level("n", 1e-6, 1e11),), types, type_of=(0, 1, 0))
    block = Operator("block", flops=1e12, tensor_divides=(2,))
    tiny = TinyInstance(
        Workload.chain("w", [block], 0.0, 1), cluster, "iteration-time",
        {"tensor": "2", "zero": "0", "recompute": "none"},
    )  # fmt: skip
    assert general_optimum(tiny) == pytest.approx(0.5 * structured_optimum(tiny), rel=1e-3)


@pytest.mark.parametrize("count", [10, *slow([30])])
def test_a_general_run_claims_optimality_only_where_its_bound_meets(count):
    met = missed = 0
    for seed in range(count):
        tiny = tiny_instance(np.random.default_rng(seed), devices=5, operators=4, modes=1)
        result = solve(general_of(tiny), options_of(tiny))
        check_result(result)
        if result.objective is None:
            continue
        if result.termination.reason is Reason.OPTIMAL:
            met += 1
            assert result.stats["general_bound"] == pytest.approx(result.objective, rel=1e-8)
        else:
            missed += 1
            assert result.termination.limit is Limit.ITERATIONS
            assert result.bound < result.objective
    assert met and missed
