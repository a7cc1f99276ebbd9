"""The dynamic program over decompositions (Gx, Gy, Gz) with overlap: enumeration, bounds, laws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from plan_cases import random_case, with_overlap
from random_instances import TinyInstance, tiny_instance
from sampling import slow
from truth import check_outcome, general_optimum, search, structured_optimum

from nestopt.core.options import SolveOptions
from nestopt.placement.bounds.general import bounds
from nestopt.placement.pricing.evaluate import evaluate

CLOSE = 1 + 1e-9


def draw(seed: int, **size: int) -> TinyInstance:
    size = {"devices": 4, "operators": 3, "modes": 1} | size
    return tiny_instance(np.random.default_rng(seed), decomposed=True, **size)


def with_options(tiny: TinyInstance, **changes: str) -> TinyInstance:
    return replace(tiny, options=tiny.options | changes)


@pytest.mark.parametrize(("low", "count"), [(20, 8), *slow((low, 20) for low in range(0, 200, 20))])
def test_dp_finds_the_enumerated_optimum(low, count):
    tensors = set()
    for seed in range(low, low + count):
        tiny = draw(seed)
        found = search(tiny)
        try:
            check_outcome(tiny, found, structured_optimum(tiny))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        tensors |= {stage.config.tensor for stage in found.plan.stages} if found.plan else set()
    assert any(x > 1 or z > 1 for x, _, z in tensors)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_dp_finds_the_enumerated_optimum_a_thousand_times(block):
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        tiny = draw(seed, modes=1 + seed % 2)
        check_outcome(tiny, search(tiny), structured_optimum(tiny))


def test_the_enumerated_optima_take_every_axis_and_overlap():
    tensors, overlaps = set(), set()
    axes = {(2, 1, 1), (1, 2, 1), (1, 1, 2)}
    for seed in range(200):
        if axes <= tensors and overlaps == {False, True}:
            return
        plan = search(draw(seed)).plan
        for stage in plan.stages if plan else ():
            tensors.add(stage.config.tensor)
            overlaps.add(stage.config.overlap)
    pytest.fail(f"only {tensors}, {overlaps}")


def bounds_hold(seed: int, **size: int) -> bool:
    tiny = draw(seed, **size)
    truth, found = general_optimum(tiny), search(tiny)
    assert found.general_bound <= truth * CLOSE, f"seed {seed}"
    assert truth <= found.objective * CLOSE, f"seed {seed}"
    options = SolveOptions()
    for row in bounds(tiny.instance, options):
        assert row["value"] <= truth * CLOSE, f"seed {seed}: {row['name']}"
    return math.isfinite(truth)


@pytest.mark.parametrize(("low", "count"), [(1, 6), *slow((low, 12) for low in range(0, 72, 12))])
def test_bounds_are_below_the_enumerated_general_optimum(low, count):
    held = [
        bounds_hold(seed, devices=4 if seed % 6 == 0 else 3, operators=2)
        for seed in range(low, low + count)
    ]
    assert any(held)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_bounds_are_below_the_enumerated_general_optimum_on_four_devices(block):
    for seed in range(1000 + 12 * block, 1012 + 12 * block):
        bounds_hold(seed)


@pytest.mark.parametrize("count", [12, *slow([40])])
def test_the_general_bound_is_often_close(count):
    """Not a law, but a bound far below everything would satisfy the others."""
    found = [search(draw(seed, devices=5, operators=4)) for seed in range(count)]
    assert np.median([f.general_bound / f.objective for f in found if f.plan is not None]) > 0.9


@pytest.mark.parametrize("count", [5, *slow([60])])
def test_more_decompositions_never_cost_more(count):
    gained = 0
    for seed in range(count):
        tiny = draw(seed, devices=6, operators=4)
        every = search(tiny).objective
        one = search(with_options(tiny, decomposition="megatron")).objective
        assert every <= one * CLOSE, f"seed {seed}"
        gained += every < one / CLOSE
    assert gained > 0


@pytest.mark.parametrize("count", [4, *slow([60])])
def test_overlap_never_costs_more(count):
    gained = 0
    for seed in range(count):
        tiny = draw(seed, devices=6, operators=4)
        off, on, both = (
            search(with_options(tiny, overlap=value)).objective for value in ("0", "1", "0,1")
        )
        assert on <= off * CLOSE, f"seed {seed}"
        assert both == pytest.approx(on, rel=1e-9), f"seed {seed}"
        gained += on < off / CLOSE
    assert gained > 0


@pytest.mark.parametrize("block", [0, *slow(range(1, 4))])
def test_overlap_of_a_plan_is_never_slower_and_takes_no_memory(block):
    hidden = 0
    for seed in range(50 * block, 50 * block + 50):
        rng = np.random.default_rng(seed)
        workload, cluster, plan = random_case(rng, ("1f1b",), decomposed=True)
        off, on = (evaluate(workload, cluster, with_overlap(plan, o)) for o in (False, True))
        assert (on.seconds <= off.seconds * (1 + 1e-12)).all(), f"seed {seed}"
        assert (on.need == off.need).all()
        assert (on.sync == off.sync).all()
        hidden += bool((on.seconds < off.seconds).any())
    assert hidden > 0
