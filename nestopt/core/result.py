"""The result of a run: why it ended, what it found, and what it proved.

Follows the convention that a termination is a reason and a limit, and that the bound is always a
valid number (possibly infinite), whatever the reason.
"""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, NestoptError

if TYPE_CHECKING:
    from nestopt.core.problem import Instance

__all__ = [
    "as_json_number",
    "SCHEMA",
    "Limit",
    "Reason",
    "Result",
    "Termination",
    "instance_record",
    "relative_gap",
    "versions",
]

SCHEMA = "nestopt.result/1"


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


@dataclass(slots=True)
class Result:
    """What a method returns.

    Attributes
    ----------
    problem : str
        ``"placement"`` or ``"collective"``.
    instance : dict
        ``name``, ``sha256`` and, so that the file stands alone, ``data`` (the whole instance).
    method : str
        The method's name, ``"dp"``, ``"greedy"``, ...
    termination : Termination
    objective : float or int or None
        Objective of the solution (seconds for placement, integer picoseconds for collectives);
        None without a solution.
    bound : float or int
        A valid lower bound, in the same unit; ``-inf`` if nothing is known, ``inf`` if proved
        infeasible.
    seconds : float
        Wall-clock time of the method.
    solution : dict or None
        JSON-ready plan or schedule.
    witness : dict or None
        What certifies the bound.
    infeasible_because : tuple of str
        The named constraints that make an instance infeasible.
    stats : dict
        Anything else worth recording (nodes, labels, restarts); JSON-ready.
    """

    problem: str
    instance: dict[str, Any]
    method: str
    termination: Termination
    objective: float | int | None
    bound: float | int
    seconds: float
    seed: int = 0
    threads: int = 1
    solution: dict[str, Any] | None = None
    witness: dict[str, Any] | None = None
    infeasible_because: tuple[str, ...] = ()
    stats: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=lambda: versions())

    @property
    def gap(self) -> float | None:
        """Gap to the bound, (objective - bound) / objective."""
        return relative_gap(self.objective, self.bound)

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON object of this result; infinities are written as strings."""
        return {
            "schema": SCHEMA,
            "problem": self.problem,
            "instance": self.instance,
            "method": self.method,
            "settings": self.settings,
            "termination": {
                "reason": self.termination.reason.value,
                "limit": self.termination.limit.value,
            },
            "objective": as_json_number(self.objective),
            "bound": as_json_number(self.bound),
            "gap": as_json_number(self.gap),
            "seconds": self.seconds,
            "seed": self.seed,
            "threads": self.threads,
            "solution": self.solution,
            "witness": self.witness,
            "infeasible_because": list(self.infeasible_because),
            "stats": self.stats,
            "versions": self.versions,
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> Result:
        """Inverse of `to_json`.

        Raises
        ------
        InputError
            Naming the file, the field, the value found and what was expected.
        """
        from nestopt.core.io import validate_model
        from nestopt.core.result_file import ResultFile

        read = validate_model(ResultFile, data, file=file)
        try:
            termination = Termination(read.termination.reason, read.termination.limit)
        except NestoptError as error:
            raise InputError(str(error), file=file) from error
        bound = _unfinite(read.bound)
        return cls(
            problem=read.problem,
            instance=read.instance.model_dump(exclude_unset=True),
            method=read.method,
            termination=termination,
            objective=_unfinite(read.objective),
            bound=-math.inf if bound is None else bound,
            seconds=read.seconds,
            seed=read.seed,
            threads=read.threads,
            solution=read.solution,
            witness=read.witness,
            infeasible_because=read.infeasible_because,
            stats=read.stats,
            settings=read.settings,
            versions=read.versions,
        )


def as_json_number(value: float | int | None) -> float | int | str | None:
    """A number as JSON can hold it: infinities as text."""
    if value is None or math.isfinite(value):
        return value
    return "inf" if value > 0 else "-inf"


def _unfinite(value: float | int | str | None) -> float | int | None:
    return float(value) if isinstance(value, str) else value


def instance_record(instance: Instance) -> dict[str, Any]:
    """What a result keeps of its instance: name, sha256 of the data, and the data."""
    from nestopt.core.io import sha256_of

    data = instance.to_json()
    return {"name": instance.name, "sha256": sha256_of(data), "data": data}


def versions() -> dict[str, str]:
    """Versions of Python and of every library that is installed and matters for a result."""
    from importlib.metadata import PackageNotFoundError, version

    from nestopt._version import __version__

    found = {"nestopt": __version__, "python": platform.python_version()}
    for package in ("numpy", "numba", "scipy", "networkx", "pulp", "highspy", "ortools"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
