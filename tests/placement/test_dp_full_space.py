"""The dynamic program over every degree, schedule and number of chunks: the best of all plans."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from enumerate_plans import best_plan, structured_plans
from random_instances import TinyInstance, tiny_instance
from sampling import slow
from truth import check_outcome, search

from nestopt.placement.judge.check import price
from nestopt.placement.model.space import PlanSpace


@dataclass(frozen=True, eq=False)
class Whole(TinyInstance):
    """A tiny instance over a space stated in words."""

    words: str = "full"

    @property
    def space(self) -> PlanSpace:
        """The plan space."""
        return PlanSpace.parse(self.words)


def whole_instance(seed: int, **size: int) -> Whole:
    rng = np.random.default_rng(seed)
    tiny = tiny_instance(rng, modes=1, **size)
    batch = int(rng.choice([2, 4, 6]))
    # Alike operators, so that interleaving has something to cut.
    operators = tiny.workload.operators
    if rng.random() < 0.6:
        first = operators[0]
        operators = tuple(replace(first, name=o.name) for o in operators)
    if rng.random() < 0.2:
        operators = tuple(replace(o, kind=o.name) for o in operators)
    workload = replace(tiny.workload, operators=operators, global_batch=batch, tied=None)
    schedules = ["all", "interleaved", "gpipe", "gpipe,interleaved", "1f1b,interleaved"]
    words = [
        f"zero={rng.integers(4)}",
        f"recompute={rng.choice(['none', 'selective', 'full'])}",
        f"schedule={rng.choice(schedules, p=[0.6, 0.1, 0.1, 0.1, 0.1])}",
        *(["context=1"] if rng.random() < 0.5 else []),
        f"uniform={'true' if rng.random() < 0.15 else 'false'}",
    ]
    return Whole(workload, tiny.cluster, tiny.objective, {}, " ".join(words))


def truth_of(tiny: Whole) -> tuple[float, str]:
    """The least objective of all plans, and the schedule that reaches it."""

    def value(plan):
        priced = price(tiny.workload, tiny.cluster, plan)
        fits = all(s.memory <= s.usable for s in priced.stages)
        return priced.objective(tiny.objective) if fits else math.inf

    best, plan, _ = best_plan(structured_plans(tiny.workload, tiny.cluster, tiny.space), value)
    return best, "" if plan is None else plan.schedule


def compare(seeds: range, **size: int) -> set[str]:
    """Hold the search to the enumeration; the schedules of the best plans."""
    used = set()
    for seed in seeds:
        tiny = whole_instance(seed, **size)
        best, _ = truth_of(tiny)
        found = search(tiny)
        check_outcome(tiny, found, best)
        used.add(found.plan.schedule if found.plan is not None else "")
    return used


@pytest.mark.parametrize(("low", "count"), [(0, 6), *slow((low, 12) for low in range(0, 48, 12))])
def test_the_best_of_all_plans_is_found(low, count):
    assert compare(range(low, low + count), devices=3, operators=4)


def test_interleaving_wins_where_it_should():
    used = set()
    for seed in range(60):
        found = search(whole_instance(seed, devices=3, operators=4))
        if found.plan is not None:
            used.add((found.plan.schedule, found.plan.chunks))
        if {schedule for schedule, _ in used} == {"1f1b", "gpipe", "interleaved"}:
            break
    assert {schedule for schedule, _ in used} == {"1f1b", "gpipe", "interleaved"}
    assert {chunks for _, chunks in used} >= {1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_the_best_of_all_plans_is_found_more_often(block):
    compare(range(1000 + 50 * block, 1050 + 50 * block), devices=3, operators=4)
