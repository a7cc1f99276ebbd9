"""A short limit on a large broken cluster ends with a plan: the manual recipe's, at least."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method, named
from nestopt.placement.dp.recipe import recipe_plan
from nestopt.placement.judge.check import check_result
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.space import PlanSpace


def broken(space: str = "full") -> PlacementInstance:
    """gpt3-175b on 1,024 devices of which 20 have failed."""
    cluster = named("cluster", "h100-spineleaf-1024")
    failed = np.random.default_rng(0).choice(1024, 20, replace=False)
    cluster = replace(cluster, failed=tuple(sorted(int(i) for i in failed)))
    return PlacementInstance(named("workload", "gpt3-175b"), cluster, PlanSpace.parse(space))


def test_the_recipe_gives_a_plan_of_the_space():
    instance = broken("default-1")
    began = time.process_time()
    value, plan = recipe_plan(instance, SolveOptions(time_limit=10.0))
    assert time.process_time() - began < 10.0
    assert plan is not None and np.isfinite(value)
    assert instance.space.admits(plan, instance.cluster) is None


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dp", "milp", "cpsat"])
def test_a_limit_of_ten_seconds_has_a_plan(method):
    instance = broken()
    get_method("placement", "dp")(instance, SolveOptions(time_limit=1.0))  # kernels loaded
    result = get_method("placement", method)(instance, SolveOptions(time_limit=10.0))
    check_result(result)
    assert result.objective is not None
    assert result.bound <= result.objective
