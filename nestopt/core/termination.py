"""Why a run ended: a reason and, where nothing was proved, the limit that ended it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from nestopt.core.errors import NestoptError

__all__ = ["Limit", "Reason", "Termination", "relative_gap"]


class Reason(StrEnum):
    """Why a run ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    FEASIBLE = "feasible"
    NO_SOLUTION = "no-solution"
    ERROR = "error"


class Limit(StrEnum):
    """Which limit ended a run; set exactly when the reason is feasible or no-solution."""

    TIME = "time"
    ITERATIONS = "iterations"
    MEMORY = "memory"
    INTERRUPTED = "interrupted"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Termination:
    """Reason and limit of a run's end.

    A heuristic that simply finished without a proof ends as ``feasible`` with limit
    ``iterations``.
    """

    reason: Reason
    limit: Limit = Limit.NONE

    def __post_init__(self) -> None:
        limited = self.reason in (Reason.FEASIBLE, Reason.NO_SOLUTION)
        if limited != (self.limit is not Limit.NONE):
            raise NestoptError(
                f"termination {self.reason.value} with limit {self.limit.value}: a limit is set "
                "exactly when the reason is feasible or no-solution"
            )


def relative_gap(objective: float | None, bound: float) -> float | None:
    """(objective - bound) / objective for minimization; 0 when both are 0, None if unknown."""
    if objective is None:
        return None
    if objective == bound:
        return 0.0
    if not math.isfinite(bound) or objective == 0:
        return math.inf
    return (objective - bound) / abs(objective)
