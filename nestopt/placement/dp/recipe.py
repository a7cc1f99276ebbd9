"""A plan by recipe: an incumbent before the search has priced anything."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from nestopt.placement.baselines.judge import Judge
from nestopt.placement.baselines.uniform import recipe_plans

if TYPE_CHECKING:
    from nestopt.core.options import SolveOptions
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan

__all__ = ["recipe_plan"]

_PLANS = 24
"""Plans priced at most once one fits."""
_OPERATORS = 1000
"""Splitting more operators evenly takes longer than it is worth."""
_SECONDS = 2.0
"""Seconds at most."""


def recipe_plan(instance: PlacementInstance, options: SolveOptions) -> tuple[float, Plan | None]:
    """A plan of the instance's space in the structured form, or (inf, None).

    The manual recipe (`nestopt.placement.baselines.uniform`), of whose plans only a few are priced:
    what the search needs is any plan, in case its time is over before it has one of its own.
    """
    workload = instance.workload
    if not workload.is_chain or workload.num_operators > _OPERATORS:
        return math.inf, None
    limit = min(_SECONDS, options.time_limit)
    judge = Judge(instance, replace(options, progress=None, time_limit=limit), "megatron")
    tried = 0
    for plan in recipe_plans(judge):
        if plan is not None and instance.space.admits(plan, instance.cluster) is None:
            judge.price(plan)
            tried += judge.plan is not None
        if tried >= _PLANS or judge.over:
            break
    return judge.best, judge.plan
