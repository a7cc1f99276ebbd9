"""One model over many clusters and batches: days and device-hours of each, and the Pareto front.

A cell is a cluster and a global batch. What a cell found is kept as a line of a file, so that a
sweep that was stopped goes on where it was; on other terms (tokens, price, failures) nothing is
solved again, since a line keeps the plan's figures. Batches are compared at equal tokens: what a
larger batch does to learning isn't priced.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from nestopt._version import __version__
from nestopt.core.errors import InputError
from nestopt.core.io import sha256_of
from nestopt.core.lines import LineFile, read_lines
from nestopt.placement.economics.report import Figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from nestopt.core.result import Result
    from nestopt.placement.economics.report import CostReport
    from nestopt.placement.economics.terms import Terms

__all__ = ["Cell", "Found", "Point", "points", "run_cells"]

SCHEMA = "nestopt.sweep-cell/1"


@dataclass(frozen=True, slots=True)
class Cell:
    """What is solved: an instance, by methods, each within a time limit.

    Attributes
    ----------
    cluster : str
        As the user named it.
    instance : PlacementInstance
    methods : tuple of str
        Tried in this order; the best plan counts.
    time_limit : float
        Seconds a method; may be infinite.
    seed : int
    """

    cluster: str
    instance: Any
    methods: tuple[str, ...]
    time_limit: float = math.inf
    seed: int = 0

    @property
    def key(self) -> str:
        """A hash of all that the answer depends on."""
        return sha256_of(
            {
                "instance": sha256_of(self.instance.to_json()),
                "methods": list(self.methods),
                "time_limit": None if math.isinf(self.time_limit) else self.time_limit,
                "seed": self.seed,
                "version": __version__,
            }
        )


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for a cell.

    Attributes
    ----------
    key, cluster, workload : str
    batch, devices : int
        Global batch; alive devices of the cluster.
    method : str
        Of the best plan, or the last one tried.
    reason : str
        Of the termination: ``optimal``, ``feasible``, ``infeasible``, ``no-solution``.
    bound : float or None
        Seconds an iteration, where one is known.
    seconds : float
        Of all methods together.
    plan : str
        In short.
    figures : Figures or None
    because : tuple of str
        Why there is no plan.
    """

    key: str
    cluster: str
    workload: str
    batch: int
    devices: int
    method: str
    reason: str
    bound: float | None
    seconds: float
    plan: str = ""
    figures: Figures | None = None
    because: tuple[str, ...] = ()

    @property
    def gap(self) -> float | None:
        """Gap of the iteration time to the bound."""
        if self.figures is None or self.bound is None:
            return None
        return max(0.0, 1 - self.bound / self.figures.iteration_seconds)

    def to_json(self) -> dict[str, Any]:
        """A line of the file."""
        return {"schema": SCHEMA} | asdict(self) | {"because": list(self.because)}

    @classmethod
    def from_json(cls, data: Any, where: str) -> Found:
        """Inverse of `to_json`.

        Raises
        ------
        InputError
            If the line is none of a sweep.
        """
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise InputError(f"is no line of a sweep ({SCHEMA})", file=where)
        try:
            row = {name: data[name] for name in cls.__dataclass_fields__}
            figures = row["figures"]
            row["figures"] = None if figures is None else Figures(**figures)
            row["because"] = tuple(row["because"])
            return cls(**row)
        except (KeyError, TypeError) as error:
            raise InputError(f"is no line of a sweep: {error}", file=where) from error


@dataclass(frozen=True, slots=True)
class Point:
    """A cell on the user's terms.

    Attributes
    ----------
    found : Found
    report : CostReport or None
    front : bool
        Whether no other cell has fewer days and device-hours.
    """

    found: Found
    report: CostReport | None
    front: bool = False

    def to_json(self) -> dict[str, Any]:
        """The point as JSON."""
        data = self.found.to_json()
        del data["schema"], data["figures"]
        report = None if self.report is None else self.report.to_json()
        return data | {"gap": self.found.gap, "report": report, "front": self.front}


def run_cells(
    cells: Iterable[Cell],
    solve: Callable[[Cell, str], Result],
    file: str | Path | None = None,
) -> Iterator[tuple[Found, bool]]:
    """What each cell finds, in order, and whether it stood in the file already.

    Parameters
    ----------
    solve : callable
        Solves a cell by a method, and checks the result.
    file : path, optional
        Lines of earlier runs; each new cell is appended as soon as it is solved.

    Raises
    ------
    InputError
        If the file holds something else.
    """
    known, lines = ({}, None) if file is None else _opened(file)
    try:
        for cell in cells:
            key = cell.key
            if key in known:
                yield known[key], True
                continue
            found = _solve(cell, key, solve)
            if lines is not None:
                lines.append(found.to_json())
            yield found, False
    finally:
        if lines is not None:
            lines.close()


def _solve(cell: Cell, key: str, solve: Callable[[Cell, str], Result]) -> Found:
    instance = cell.instance
    best: Result | None = None
    bound, seconds = -math.inf, 0.0
    for method in cell.methods:
        result = solve(cell, method)
        seconds += result.seconds
        bound = max(bound, result.bound)
        if best is None or _value(result) < _value(best):
            best = result
        if result.termination.reason.value == "infeasible":
            best = result
            break
    assert best is not None
    reason = best.termination.reason.value
    if best.objective is not None and bound >= best.objective * (1 - 1e-9):
        reason = "optimal"
    plan: Any = best.solution
    figures, text = None, ""
    if plan is not None:
        figures = Figures.of(instance.workload, instance.cluster, plan)
        labels = sorted({stage.config.label() for stage in plan.stages})
        text = f"{len(plan.stages)} stages x {plan.replicas} replicas, " + (
            labels[0] if len(labels) == 1 else f"{len(labels)} configurations"
        )
    return Found(
        key,
        cell.cluster,
        instance.workload.name,
        instance.workload.global_batch,
        len(instance.cluster.alive),
        best.method,
        reason,
        bound if math.isfinite(bound) else None,
        seconds,
        text,
        figures,
        tuple(best.infeasible_because),
    )


def _value(result: Result) -> float:
    return math.inf if result.objective is None else float(result.objective)


def _opened(file: str | Path) -> tuple[dict[str, Found], LineFile]:
    """What a file holds by key, and the file for more; a line that was cut off goes."""
    begins = json.dumps({"schema": SCHEMA}, separators=(",", ":"))[:-1]
    lines = read_lines(file, begins.encode())
    rows = [
        Found.from_json(row, f"{file}, line {number}") for number, row in enumerate(lines.rows, 1)
    ]
    return {row.key: row for row in rows}, LineFile(file, lines.whole_bytes)


def points(found: Sequence[Found], terms: Terms) -> list[Point]:
    """The cells on terms, with the Pareto front of days and device-hours marked."""
    made = [Point(row, None if row.figures is None else row.figures.report(terms)) for row in found]
    costs = [None if p.report is None else (p.report.days, p.report.device_hours) for p in made]
    finite = [cost for cost in costs if cost is not None and math.isfinite(cost[0])]
    return [
        replace(point, front=cost in finite and not any(_beats(other, cost) for other in finite))
        for point, cost in zip(made, costs, strict=True)
    ]


def _beats(other: tuple[float, float], cost: tuple[float, float] | None) -> bool:
    if cost is None:
        return False
    return other[0] <= cost[0] and other[1] <= cost[1] and other != cost
