"""The baselines: checked plans, never below the exact method, repeatable, limited."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from random_instances import TinyInstance, tiny_instance
from sampling import slow
from truth import search

from nestopt.core.errors import NestoptError, UsageError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method, named
from nestopt.core.result import Limit, Reason
from nestopt.placement.baselines.blind import flat_clusters
from nestopt.placement.baselines.split import even_split
from nestopt.placement.judge.check import check_result, price
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.workload import Edge, Operator, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.core.result import Result
    from nestopt.placement.dp.solve import Outcome

BASELINES = ("megatron", "grid", "flat-dp", "repair-dp", "mcmc", "random")
CHAINS_ONLY = ("megatron", "grid")
WALKS = ("mcmc", "random")


def run(method: str, instance: PlacementInstance, **options: object) -> Result:
    return get_method("placement", method)(instance, SolveOptions(**options))  # type: ignore[arg-type]


def within(instance: PlacementInstance, space: dict[str, str]) -> PlacementInstance:
    """The instance over its space changed by pairs of text."""
    return instance.over(PlanSpace.parse(space, instance.space))


def run_tiny(method: str, tiny: TinyInstance, **options: str) -> Result:
    options = ({"iterations": "100"} if method in WALKS else {}) | options
    return run(method, tiny.instance, set=options)


@pytest.fixture(scope="module")
def small() -> PlacementInstance:
    return PlacementInstance(
        named("workload", "gpt3-1.7b,batch=32,layers=6"),
        named("cluster", "tree:4x2"),
        PlanSpace.named("default-1"),
    )


@cache
def tiny_and_exact(seed: int) -> tuple[TinyInstance, Outcome]:
    tiny = tiny_instance(np.random.default_rng(seed), devices=5, operators=4, modes=1)
    return tiny, search(tiny)


@pytest.mark.parametrize("count", [8, *slow([40])])
@pytest.mark.parametrize("method", BASELINES)
def test_never_below_the_exact_method_in_the_same_space(method, count):
    found = 0
    for seed in range(count):
        tiny, exact = tiny_and_exact(seed)
        if method in CHAINS_ONLY and not tiny.workload.is_chain:
            continue
        result = run_tiny(method, tiny)
        check_result(result)
        assert result.bound <= exact.objective * (1 + 1e-9)
        if result.objective is None:
            assert result.termination.reason is Reason.NO_SOLUTION
        else:
            found += 1
            assert result.termination.reason is Reason.FEASIBLE
            assert result.objective >= exact.objective * (1 - 1e-9), f"seed {seed}"
    assert found > count // 4


@pytest.fixture(scope="module")
def exact_value() -> Callable[[PlacementInstance], float]:
    """The optimum of an instance, searched for once."""
    known: dict[str, float] = {}

    def value(instance: PlacementInstance) -> float:
        if instance.space.text not in known:
            known[instance.space.text] = run("dp", instance).objective
        return known[instance.space.text]

    return value


@pytest.mark.parametrize("method", BASELINES)
@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "interleaved", "chunks": "3", "tensor": "2", "replicas": "2"},
        {"uniform": "true"},
        {"layout": "outer", "zero": "0", "recompute": "full", "sequence": "0"},
        {"replicas": "2", "microbatch": "2"},
        *slow(
            [
                {"schedule": "interleaved", "chunks": "2"},
                {"schedule": "interleaved", "chunks": "2", "tensor": "1", "replicas": "1"},
                {"schedule": "gpipe"},
            ]
        ),
    ],
    ids=lambda options: ",".join(f"{k}={v}" for k, v in options.items()),
)
def test_every_space_is_kept_to(method, options, small, exact_value):
    instance = within(small, options)
    result = run(method, instance, set={"iterations": "600"} if method in WALKS else {})
    check_result(result)
    assert instance.space.admits(result.solution, instance.cluster) is None
    assert result.objective is not None
    assert result.objective >= exact_value(instance) * (1 - 1e-9)
    plan = result.solution
    if "zero" in options:
        assert {(s.config.zero, s.config.recompute, s.config.sequence_parallel)
                for s in plan.stages} == {(0, "full", False)}  # fmt: skip
    if "microbatch" in options:
        assert (plan.replicas, plan.microbatch) == (2, 2)


@pytest.mark.parametrize("method", ["megatron", "flat-dp", *slow(["grid", "repair-dp", *WALKS])])
def test_experts(method):
    """An expert degree divides the micro-batch and is only for stages that hold experts."""
    instance = PlacementInstance(
        named("workload", "mixtral-8x7b,batch=4,layers=2"),
        named("cluster", "tree:4x4"),
        PlanSpace.named("default-1"),
    )
    options = {"iterations": "300"} if method in WALKS else {}
    for more in (
        {},
        {"expert": "2,4"},
        {"expert": "2,4", "tensor": "1"},
        {"expert": "2,4", "microbatch": "1"},
    ):
        result = run(method, within(instance, more), set=options)
        check_result(result)
        assert result.objective is not None or more
    assert result.objective is None  # no degree divides one sample


def test_grid_contains_the_manual_recipe(small):
    assert run("grid", small).objective <= run("megatron", small).objective


def test_megatron_keeps_to_its_recipe(small):
    plan = run("megatron", small).solution
    assert len({s.config for s in plan.stages}) == 1
    config = plan.stages[0].config
    assert config.zero == 1 and config.sequence_parallel == (config.t > 1)
    assert config.t <= 4  # inside a node
    assert plan.replicas * sum(s.config.width for s in plan.stages) == 8


def test_flat_dp_is_priced_on_the_real_network(small):
    result = run("flat-dp", small)
    plan = result.solution
    real = price(small.workload, small.cluster, plan).iteration_time
    assert result.objective == pytest.approx(real, rel=1e-9)
    fast, slow = flat_clusters(small.cluster)
    assert [len(c.levels) for c in (fast, slow)] == [1, 1]
    assert fast.levels[0].port == small.cluster.levels[0].port > slow.levels[0].port


@pytest.mark.parametrize("method", WALKS)
def test_one_seed_one_answer(method, small):
    options = {"set": {"iterations": "200"}}
    first, again = (run(method, small, seed=5, **options) for _ in range(2))
    assert first.solution_json == again.solution_json and first.objective == again.objective
    assert first.stats == again.stats
    others = {run(method, small, seed=seed, **options).objective for seed in range(6, 11)}
    assert others != {first.objective}


@pytest.mark.parametrize("method", WALKS)
def test_iterations_limit_the_plans_priced(method, small):
    few = run(method, small, set={"iterations": "40"})
    many = run(method, small, set={"iterations": "400"})
    assert few.stats["priced"] <= 40 < many.stats["priced"] <= 400
    assert few.termination.limit is Limit.ITERATIONS
    for wrong in ("0", "-3", "many", "1.5"):
        expected = rf"--set iterations={wrong}: expected a whole number of at least 1"
        with pytest.raises(UsageError, match=expected):
            run(method, small, set={"iterations": wrong})


def test_more_of_the_same_walk_is_never_worse(small):
    values = [run("random", small, set={"iterations": str(n)}).objective for n in (50, 200, 800)]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("method", BASELINES)
def test_a_time_limit_ends_the_run(method, small):
    result = run(method, small, time_limit=0.0)
    assert result.termination.limit is Limit.TIME
    assert result.stats["priced"] <= 1
    check_result(result)


@pytest.mark.parametrize("method", BASELINES)
def test_an_interrupt_keeps_the_incumbent(method, small):
    seen = []

    def stop(seconds: float, objective: float | None, bound: float, note: str) -> None:
        seen.append(objective)
        raise KeyboardInterrupt

    result = run(method, small, progress=stop)
    assert result.termination.limit is Limit.INTERRUPTED
    assert result.objective == seen[0]
    check_result(result)


@pytest.mark.parametrize("method", BASELINES)
def test_nothing_to_run_on(method, small):
    dead = replace(small.cluster, failed=tuple(range(small.cluster.num_devices)))
    result = run(method, replace(small, cluster=dead))
    assert result.termination.reason is Reason.NO_SOLUTION
    check_result(result)
    result = run(method, within(small, {"replicas": "3"}))
    assert result.termination.reason is Reason.NO_SOLUTION


@pytest.mark.parametrize("method", BASELINES)
def test_graphs_that_are_no_chains(method):
    operators = tuple(Operator(n, flops=1e12, params=1e6) for n in "abcd")
    edges = (Edge(0, 1, 1e6), Edge(0, 2, 1e6), Edge(1, 3, 1e6), Edge(2, 3, 1e6))
    diamond = Workload("diamond", operators, edges, 8)
    instance = PlacementInstance(diamond, named("cluster", "tree:4"), PlanSpace.named("default-1"))
    if method in CHAINS_ONLY:
        with pytest.raises(NestoptError, match=r"'diamond' is not a chain.*mcmc and random"):
            run(method, instance)
    else:
        result = run(method, instance)
        check_result(result)
        assert result.objective is not None


@pytest.mark.parametrize("seed", range(20))
def test_even_split_is_the_best(seed):
    """Least maximum, then least sum of squares; whole layers, no empty part."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 8))
    times = rng.integers(1, 6, size=count).astype(float)
    for parts in range(1, count + 1):
        ends = even_split(times, parts)
        assert len(ends) == parts and ends[-1] == count
        assert all(a < b for a, b in zip([0, *ends], ends))
        best = min(
            (max(sums), sum(s * s for s in sums))
            for cut in combinations(range(1, count), parts - 1)
            for sums in [np.add.reduceat(times, [0, *cut]).tolist()]
        )
        sums = np.add.reduceat(times, [0, *ends[:-1]]).tolist()
        assert (max(sums), sum(s * s for s in sums)) == pytest.approx(best)


def test_even_split_refuses_empty_parts():
    for parts in (0, 4):
        with pytest.raises(ValueError, match=f"{parts} parts of 3 layers"):
            even_split(np.ones(3), parts)


def test_bound_of_a_baseline_is_arithmetic(small):
    result = run("random", small, set={"iterations": "10"})
    assert result.witness["name"] == "compute"
    assert 0 < result.bound <= run("dp", small).objective
    assert math.isfinite(result.bound)


def test_repair_brings_a_plan_that_ignores_memory_into_it():
    """With memory to spare it is the dynamic program; with less it pays for its ignorance."""
    instance = PlacementInstance(
        named("workload", "gpt3-1.7b,batch=32,layers=6"),
        named("cluster", "tree:4x2"),
        PlanSpace.named("default-1"),
    )
    types = instance.cluster.types
    needed = []
    for share in (1.0, 0.2, 0.1):
        memory = tuple(replace(t, memory=share * t.memory, reserve=0.0) for t in types)
        shrunk = replace(instance, cluster=replace(instance.cluster, types=memory))
        repaired, exact = run("repair-dp", shrunk), run("dp", shrunk)
        check_result(repaired)
        needed.append((repaired.objective, exact.objective))
    assert needed[0][0] == pytest.approx(needed[0][1], rel=1e-12)
    assert all(ours >= best * (1 - 1e-12) for ours, best in needed)
    assert needed[-1][0] > needed[0][0]


def test_repair_keeps_to_the_overlap_of_the_space(small):
    """The modes that save memory are those of the space, where overlap is not optional too."""
    instance = within(small, {"tensor": "2", "overlap": "1", "replicas": "1"})
    blind = run("repair-dp", instance)
    types = tuple(replace(t, memory=0.2 * t.memory, reserve=0.0) for t in small.cluster.types)
    shrunk = replace(instance, cluster=replace(instance.cluster, types=types))
    repaired = run("repair-dp", shrunk)
    check_result(repaired)
    assert all(stage.config.overlap for stage in repaired.solution.stages)
    assert repaired.objective >= blind.objective  # something had to be repaired
    assert repaired.objective >= run("dp", shrunk).objective * (1 - 1e-12)


@pytest.mark.parametrize("method", CHAINS_ONLY)
def test_uniform_plans_may_drain_incomplete_groups(method):
    """Never worse than on the whole nodes alone, and better than ranks that straddle the hole."""
    workload = named("workload", "gpt3-18.4b,batch=64,layers=4")
    cluster = named("cluster", "dgx-h100-40")
    text = {"tensor": "8", "microbatch": "1,2", "structure": "general"}
    space = PlanSpace.parse(text, PlanSpace.named("default-1"))
    holes = PlacementInstance(workload, cluster.fail([13]), space)
    whole = PlacementInstance(workload, cluster.fail(range(8, 16)), space)
    found, drained = run(method, holes), run(method, whole)
    check_result(found)
    assert found.objective <= drained.objective
    devices = np.concatenate([s.devices.ravel() for s in found.solution.stages])
    assert not set(devices.tolist()) & set(range(8, 16))


def test_uniform_methods_look_at_the_clock_without_a_plan():
    """A space in which nothing fits is searched for ever without a plan to price."""
    instance = PlacementInstance(
        named("workload", "llama3-405b"), named("cluster", "dgx-h100-16"), PlanSpace.named("full")
    )
    began = time.process_time()
    result = run("grid", instance, time_limit=0.2)
    assert result.termination.limit.value in ("time", "iterations")
    assert time.process_time() - began < 10
