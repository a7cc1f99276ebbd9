"""Bounds stage by stage hold for every plan, and keep all that a better plan needs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from enumerate_plans import structured_plans
from test_dp_full_space import Whole, whole_instance

from nestopt.placement.dp.cases import (
    Outline,
    _counts,
    _stage_counts,
    cases_of,
    expanded,
    outlines,
    raised,
)
from nestopt.placement.dp.solve import new_search
from nestopt.placement.judge.check import price, structured_layout
from nestopt.placement.model.grid import grid_of, mode_of
from nestopt.placement.model.instance import PlacementInstance

if TYPE_CHECKING:
    from nestopt.placement.dp.search import Search
    from nestopt.placement.model.plan import Plan

_ABOVE = 1.3
"""Plans up to so many times the optimum are held to the bounds."""


def _good_plans(tiny: Whole) -> list[tuple[float, Plan]]:
    """The plans that fit and cost little more than the best."""
    found = []
    for plan in structured_plans(tiny.workload, tiny.cluster, tiny.space):
        priced = price(tiny.workload, tiny.cluster, plan)
        if all(s.memory <= s.usable for s in priced.stages):
            found.append((priced.objective(tiny.objective), plan))
    best = min((value for value, _ in found), default=math.inf)
    return [(value, plan) for value, plan in found if value <= _ABOVE * best]


def _column(search: Search, outline: Outline, config: object) -> int:
    pricer, columns = search.pricer, outline.columns
    g = pricer.grids.index(grid_of(config))
    m = pricer.modes[g].index(mode_of(config))
    return int(np.flatnonzero((columns.grid == g) & (columns.mode == m))[0])


def _held(tiny: Whole) -> tuple[int, int]:
    """Hold the bounds to the good plans; how many plans, and how many batches were closed."""
    instance = PlacementInstance(tiny.workload, tiny.cluster, tiny.space, tiny.objective)
    search = new_search(instance, lambda: None)
    known = {(o.batches[0].replicas, o.batches[0].microbatch): o for o in outlines(search)}
    plans = _good_plans(tiny)
    if not plans:
        return 0, 0
    best = min(value for value, _ in plans)
    goal = 1.01 * _ABOVE * best
    seen = 0
    for value, plan in plans:
        outline = known[plan.replicas, plan.microbatch]
        batch = next((b for b in outline.batches if b.schedule == plan.pipeline), None)
        stages = len(plan.stages)
        if batch is None or (plan.pipeline.chunks > 1 and stages not in _counts(search, batch)):
            # the same plan with 1F1B costs no more
            continue
        counts, keep = _stage_counts(search, outline, [batch], goal)
        bounds = dict(counts[batch].stages)
        assert bounds.get(0, bounds.get(stages, math.inf)) <= value * (1 + 1e-9)
        assert all(keep[_column(search, outline, s.config)] for s in plan.stages)
        _hold_raised(search, outline, plan, value, goal)
        seen += 1
    closed = sum(
        not _stage_counts(search, o, list(o.batches), best * (1 - 1e-9))[0] for o in known.values()
    )
    return seen, closed


def _hold_raised(search: Search, outline: Outline, plan: Plan, value: float, goal: float) -> None:
    """What a scenario says of places raises no bound above a plan of it."""
    layout = structured_layout(search.line.cluster, plan) if plan.replicas > 1 else "inner"
    floors = []
    for root in cases_of(search, outline):
        if root.batch.schedule != plan.pipeline:
            continue
        for case in expanded(search, root):
            if case.batch.stages in (0, len(plan.stages)):
                rows = case.scenarios(search.space.layouts, len(search.line.devices))
                none = np.zeros(len(search.line.devices) + 1)
                floors += [
                    s.floor for s in raised(search, case, rows, none, goal) if s.layout == layout
                ]
    assert min(floors) <= value * (1 + 1e-9)


def test_no_plan_is_below_its_bound():
    held = [_held(whole_instance(seed, devices=3, operators=3)) for seed in range(16)]
    assert sum(seen for seen, _ in held) > 50
    assert sum(closed for _, closed in held) > 5


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_no_plan_is_below_its_bound_more_often(block):
    for seed in range(100 + 10 * block, 110 + 10 * block):
        _held(whole_instance(seed, devices=4, operators=4))
