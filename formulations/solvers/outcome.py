"""What a solver run established, and what a back-end claims before it is checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from nestopt.core.errors import InputError, NestoptError
from nestopt.core.result import Limit, Reason, Termination

__all__ = ["Outcome", "Raw", "check_time_limit", "termination_of"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a solver run established.

    Attributes
    ----------
    termination : Termination
        ``optimal`` only if objective and bound meet; a stop at the gap limit is ``feasible`` with
        limit ``iterations``. ``error`` if the solver broke down or its solution was rejected.
    objective : float or None
        Objective of the checked incumbent; None without one.
    bound : float
        Valid lower bound; ``-inf`` if nothing is known, ``inf`` if proved infeasible.
    values : dict or sequence or None
        Values of the incumbent: by variable name (PuLP), by variable index (CP-SAT).
    seconds : float
        Wall-clock seconds of the solver.
    note : str
        Why a solution was rejected, what the solver said.
    stats : dict
        Nodes, branches, deterministic time; JSON-ready.
    """

    termination: Termination
    objective: float | None
    bound: float
    values: dict[str, float] | list[int] | None
    seconds: float
    note: str = ""
    stats: dict[str, Any] = field(default_factory=dict)

    def value(self, variable: Any) -> Any:
        """Value of a variable in the incumbent; integer variables give an `int`.

        Raises
        ------
        NestoptError
            If there is no incumbent.
        """
        if self.values is None:
            raise NestoptError("the solver found no solution, so no variable has a value")
        if not isinstance(self.values, dict):
            index = variable.index
            raw = self.values[index if index >= 0 else -index - 1]
            return int(raw) if index >= 0 else 1 - int(raw)
        # a variable that occurs nowhere is in no model; any value within its bounds will do
        free = 0 if variable.lowBound is None else max(0, variable.lowBound)
        return self.values.get(variable.name, free)


@dataclass(slots=True)
class Raw:
    """What a back-end reports, before anything of it is trusted."""

    reason: Reason
    limit: Limit
    has_solution: bool
    bound: float
    stats: dict[str, Any]
    note: str = ""


def termination_of(
    objective: float | None, bound: float, limit: Limit, tolerance: float = 1e-9
) -> Termination:
    """Optimal if incumbent and bound meet, else feasible or no-solution at `limit`."""
    if objective is None:
        return Termination(Reason.NO_SOLUTION, limit)
    if objective - bound <= tolerance * max(1.0, abs(objective)):
        return Termination(Reason.OPTIMAL)
    return Termination(Reason.FEASIBLE, limit)


def check_time_limit(time_limit: float) -> None:
    if math.isnan(time_limit) or time_limit <= 0:
        raise InputError(f"{time_limit} s is no time limit; expected a positive number of seconds")
