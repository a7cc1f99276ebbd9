"""The optimum of a tiny instance by pricing every plan with the checker, and what to compare."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from enumerate_plans import best_plan, general_plans, structured_plans

from nestopt.core.options import SolveOptions
from nestopt.placement.dp.solve import search_structured
from nestopt.placement.judge.check import check_plan, price, structured_layout

if TYPE_CHECKING:
    from collections.abc import Callable

    from random_instances import TinyInstance

    from nestopt.placement.dp.solve import Outcome
    from nestopt.placement.model.plan import Plan

__all__ = ["check_outcome", "general_optimum", "search", "structured_optimum"]


def _judge(tiny: TinyInstance) -> Callable[[Plan], float]:
    def value(plan: Plan) -> float:
        priced = price(tiny.workload, tiny.cluster, plan)
        fits = all(s.memory <= s.usable for s in priced.stages)
        return priced.objective(tiny.objective) if fits else math.inf

    return value


def structured_optimum(tiny: TinyInstance) -> float:
    """The least objective over all plans of the structured space; inf if none fits."""
    plans = structured_plans(tiny.workload, tiny.cluster, tiny.space)
    return best_plan(plans, _judge(tiny))[0]


def general_optimum(tiny: TinyInstance) -> float:
    """The least objective over all plans of the general space; inf if none fits."""
    plans = general_plans(tiny.workload, tiny.cluster, tiny.space)
    return best_plan(plans, _judge(tiny))[0]


def search(tiny: TinyInstance, **options: object) -> Outcome:
    """What the dynamic program finds."""
    chosen = SolveOptions(**options)  # type: ignore[arg-type]
    return search_structured(tiny.instance, chosen)


def check_outcome(tiny: TinyInstance, found: Outcome, truth: float) -> None:
    """The outcome is the truth, its plan is of the space and its bounds are in order."""
    assert found.limit is None
    if math.isinf(truth):
        assert found.plan is None
        # the general space may well have a plan, so its bound may be finite
        assert found.objective == found.bound == math.inf
        return
    assert found.plan is not None
    assert found.objective == pytest.approx(truth, rel=1e-9)
    assert found.bound == pytest.approx(found.objective, rel=1e-11)
    assert found.general_bound <= found.bound <= found.objective
    check_plan(tiny.workload, tiny.cluster, found.plan, found.objective, tiny.objective)
    assert structured_layout(tiny.cluster, found.plan) is not None
    assert tiny.space.admits(found.plan, tiny.cluster) is None
