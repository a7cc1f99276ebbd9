"""The result of a run: why it ended, what it found, and what it proved.

Follows the convention that a termination is a reason and a limit, and that the bound is always a
valid number (possibly infinite), whatever the reason.
"""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt._version import __version__
from nestopt.core.errors import InputError, NestoptError
from nestopt.core.io import sha256_of, validate_model
from nestopt.core.termination import Limit, Reason, Termination, relative_gap
from nestopt.core.units import format_seconds

if TYPE_CHECKING:
    from nestopt.core.instance import Instance
    from nestopt.core.solution import Solution

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


@dataclass(slots=True, repr=False)
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
    solution_json : dict or None
        The plan or schedule as a file holds it; `solution` is the object.
    witness : dict or None
        What certifies the bound.
    infeasible_because : tuple of str
        The named constraints that make an instance infeasible.
    stats : dict
        Anything else worth recording (nodes, labels, restarts); JSON-ready.
    directory : str or None
        Where the result's file lies, if it has one: large schedules have a file of their own beside
        it. Not part of the file.
    verified : tuple of str
        What the checker found right before `nestopt.solve` returned the result; not in the file.
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
    solution_json: dict[str, Any] | None = None
    witness: dict[str, Any] | None = None
    infeasible_because: tuple[str, ...] = ()
    stats: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=lambda: versions())
    directory: str | None = field(default=None, compare=False)
    verified: tuple[str, ...] = field(default=(), compare=False)
    _read: tuple[dict[str, Any], Solution] | None = field(default=None, init=False, compare=False)

    @property
    def solution(self) -> Solution | None:
        """The solution as an object, `Plan` or `Schedule`; None if there is none.

        It is made of `solution_json` when it is first asked for.

        Raises
        ------
        InputError
            If `solution_json` is no plan or schedule.
        """
        if self.solution_json is None:
            return None
        if self._read is None or self._read[0] is not self.solution_json:
            reader = import_module(f"nestopt.{self.problem}.solution")
            self._read = self.solution_json, reader.read_solution(self)
        return self._read[1]

    def __repr__(self) -> str:
        return f"<Result of {self.method}: {self._line()}>"

    def _line(self) -> str:
        unit = 1e-12 if self.problem == "collective" else 1.0
        ended = self.termination
        words = [ended.reason.value]
        if ended.limit is not Limit.NONE:
            words[0] += f" (limit: {ended.limit.value})"
        if self.objective is not None:
            words.append(format_seconds(self.objective * unit))
        if math.isfinite(self.bound):
            words.append(f"bound {format_seconds(self.bound * unit)}")
        gap = self.gap
        if gap is not None and math.isfinite(gap):
            words.append(f"gap {gap:.2%}")
        return ", ".join(words)

    def summary(self) -> str:
        """The result for people: what was asked, the answer, its bound, and its first parts."""
        from io import StringIO

        from rich.console import Console

        if self.solution_json is None:
            causes = "".join(f"\n- {cause}" for cause in self.infeasible_because)
            return (
                f"{self.instance.get('name', 'instance')}, by {self.method}: {self._line()}{causes}"
            )
        stream = StringIO()
        problem = import_module(f"nestopt.{self.problem}.problem").PROBLEM
        problem.describe(self, Console(file=stream, width=80, highlight=False, no_color=True))
        return stream.getvalue().rstrip()

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.summary())}</pre>"

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
            "solution": self.solution_json,
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
            solution_json=read.solution,
            witness=read.witness,
            infeasible_because=read.infeasible_because,
            stats=read.stats,
            settings=read.settings,
            versions=read.versions,
            directory=None if file is None else str(Path(file).parent),
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
    data = instance.to_json()
    return {"name": instance.name, "sha256": sha256_of(data), "data": data}


def versions() -> dict[str, str]:
    """Versions of Python and of every library that is installed and matters for a result."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"nestopt": __version__, "python": platform.python_version()}
    for package in ("numpy", "numba", "scipy", "networkx", "pulp", "highspy", "ortools"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
