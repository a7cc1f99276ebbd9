"""The independent checker: feasibility, memory and objective from the plan alone.

It shares no code with the modules that find plans, only the data classes of workload, cluster,
plan and result.
"""

from __future__ import annotations

from nestopt.placement.judge.check.network import Family, Tree, boundary_seconds, family_of
from nestopt.placement.judge.check.pricing import Pricing, StagePrice, contended_syncs, cuts, price
from nestopt.placement.judge.check.structure import check_structure
from nestopt.placement.judge.check.verify import (
    BOUND_TOLERANCE,
    TOLERANCE,
    check_claims,
    check_plan,
    check_result,
)
from nestopt.placement.model.structure import structured_layout

__all__ = [
    "BOUND_TOLERANCE",
    "TOLERANCE",
    "Family",
    "Pricing",
    "StagePrice",
    "Tree",
    "boundary_seconds",
    "check_claims",
    "check_plan",
    "check_result",
    "check_structure",
    "contended_syncs",
    "cuts",
    "family_of",
    "price",
    "structured_layout",
]
