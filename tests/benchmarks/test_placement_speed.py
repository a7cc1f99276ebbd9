"""Speed of placement: ``pytest tests/benchmarks -m benchmark``.

One round that does not count compiles the kernels. CPU seconds, so that other
programs disturb less.
"""

from __future__ import annotations

import time
from functools import cache

import pytest

from nestopt.core.options import SolveOptions
from nestopt.core.registry import named
from nestopt.placement.baselines.uniform import solve_grid
from nestopt.placement.dp.solve import search_structured, solve
from nestopt.placement.judge.check import price
from nestopt.placement.judge.simulate import simulate
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Plan
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.pricing.evaluate import evaluate

pytestmark = pytest.mark.benchmark(timer=time.process_time)

CLUSTERS = ("fattree-tpuv4", "h100-spineleaf")


def instance(workload: str, cluster: str, space: str = "default-1") -> PlacementInstance:
    return PlacementInstance(
        named("workload", workload), named("cluster", cluster), PlanSpace.named(space)
    )


@cache
def best_plan(cluster: str) -> tuple[PlacementInstance, Plan]:
    chosen = instance("gpt3-175b", cluster)
    result = solve(chosen, SolveOptions())
    assert result.solution_json is not None
    return chosen, Plan.from_json(result.solution_json)


def search(benchmark, chosen: PlacementInstance) -> None:
    arguments = (chosen, SolveOptions())
    found = benchmark.pedantic(search_structured, arguments, rounds=2, warmup_rounds=1)
    assert found.limit is None and found.plan is not None


@pytest.mark.parametrize("space", ["default-1", "full"])
@pytest.mark.parametrize("devices", [64, 256, 1024])
@pytest.mark.parametrize("family", CLUSTERS)
def test_dp_on_gpt3_175b(benchmark, family, devices, space):
    search(benchmark, instance("gpt3-175b", f"{family}-{devices}", space))


@pytest.mark.parametrize("layers", [24, 48, 96, 192])
def test_dp_by_layers(benchmark, layers):
    search(benchmark, instance(f"gpt3-175b,layers={layers}", "fattree-tpuv4-256"))


def test_grid_on_gpt3_175b(benchmark):
    chosen = instance("gpt3-175b", "fattree-tpuv4-256")
    result = benchmark.pedantic(solve_grid, (chosen, SolveOptions()), rounds=2, warmup_rounds=1)
    assert result.objective is not None


@pytest.mark.parametrize("judge", [evaluate, price, simulate], ids=lambda f: f.__name__)
@pytest.mark.parametrize("cluster", ["fattree-tpuv4-64", "fattree-tpuv4-1024"])
def test_pricing_of_a_plan(benchmark, judge, cluster):
    chosen, plan = best_plan(cluster)
    assert benchmark(judge, chosen.workload, chosen.cluster, plan)
