"""What a solver run established, and what a back-end claims before it is checked."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, NestoptError
from nestopt.core.result import Limit, Reason, Termination

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Outcome", "Raw", "Settings", "check_time_limit", "termination_of"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run a solver.

    Attributes
    ----------
    time_limit : float
        Wall-clock seconds.
    threads, seed : int
    rel_gap : float
        Stop when (objective - bound) / objective is at most this.
    warm_start : mapping of str to float, or sequence of (variable, int), optional
        MILP: values by variable name; variables left out are completed by the solver (HiGHS) or
        start at 0 (CBC). CP-SAT: hints, which replace those that the model has.
    write_model : str, optional
        Path written before the solve: ``.lp`` or ``.mps`` (MILP), ``.pb`` or ``.pbtxt`` (CP-SAT).
    progress : callable, optional
        ``progress(seconds, objective, bound, note)`` at every incumbent (HiGHS and CP-SAT).
    backend : str, optional
        MILP: ``highs`` (default), ``cbc``, ``scip``, or any name that PuLP knows, in any case.
    presolve : bool
        MILP: whether HiGHS and CBC may transform the model first.
    deterministic_time : float
        CP-SAT's own measure of work; unlike `time_limit` a limit on it makes a run repeatable.
    parameters : mapping, optional
        CP-SAT: further fields of ``SatParameters``.
    """

    time_limit: float = math.inf
    threads: int = 1
    seed: int = 0
    rel_gap: float = 0.0
    warm_start: Any = None
    write_model: str | None = None
    progress: Callable[[float, float | None, float, str], Any] | None = None
    backend: str | None = None
    presolve: bool = True
    deterministic_time: float = math.inf
    parameters: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_time_limit(self.time_limit)
        check_time_limit(self.deterministic_time)


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
