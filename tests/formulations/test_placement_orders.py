"""Exact models over orders of the axes: the dp's optimum, and enumeration's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from placement_runs import CLOSE, SOLVERS, check, over, run, value
from random_instances import TinyInstance, tree_instance

from nestopt.formulations.face import formulation
from nestopt.placement.model.plan import Plan
from nestopt.placement.model.structure import structured_layouts


def small(seed: int) -> TinyInstance:
    """An instance on a tree whose exact models take about a second."""
    tiny = tree_instance(np.random.default_rng(seed), operators=2)
    return replace(tiny, options=tiny.options | {"microbatch": "1", "replicas": "2"})


def hold(seed: int) -> bool:
    """All three methods find the same over the structured space; whether orders pay."""
    tiny = small(seed)
    best = value(run("dp", tiny, "structured"))
    for method in SOLVERS:
        result = run(method, tiny, "structured")
        assert value(result) == pytest.approx(best, rel=CLOSE), (seed, method)
        check(tiny, result)
        if result.solution_json is not None:
            plan = Plan.from_json(result.solution_json)
            assert structured_layouts(tiny.cluster, plan)
    return best < value(run("dp", tiny, "contiguous")) * (1 - 1e-6)


def test_exact_models_choose_the_order_of_the_axes():
    assert sum(hold(seed) for seed in (1, 7, 8)) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_exact_models_choose_the_order_of_the_axes_a_hundred_times(block):
    assert sum(hold(seed) for seed in range(200 + 11 * block, 211 + 11 * block)) > 0


@pytest.mark.parametrize("method", SOLVERS)
def test_a_model_admits_the_orders_of_its_structure_alone(method):
    tiny = small(7)
    wide, narrow = (value(run("dp", tiny, s)) for s in ("structured", "contiguous"))
    assert wide < 0.99 * narrow
    for structure, accepted in (("structured", True), ("contiguous", False)):
        model = formulation(over(tiny, structure).instance, method)
        plan = Plan.from_json(run("dp", tiny, "structured").solution_json)
        assert bool(model.admits(plan)) is accepted
