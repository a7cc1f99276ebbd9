"""The last recorded run of every method on every entry: how it ended, and after how long.

``runs.csv`` lies beside ``bks.json``. Every run had one thread and stayed within the limit of its
entry's class in CPU seconds, which tell what a run costs; by the clock it may have taken longer
where other work kept the processors busy.
"""

from __future__ import annotations

import csv
import io
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from nestopt.core.errors import InputError
from nestopt.core.io import validate_model, write_text
from nestopt.core.result import Limit, Reason, relative_gap

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.core.result import Result
    from nestopt.instances.library.records import Archive

__all__ = ["MethodRun", "read_runs", "run_of", "runs_path", "write_runs"]


class MethodRun(BaseModel):
    """One run; a row of the file.

    Attributes
    ----------
    entry, method : str
    instance : str
        First digits of the instance's hash.
    reason, limit : str
        How it ended (`nestopt.core.result.Termination`).
    objective, bound : int, float or None
        Seconds (placement) or picoseconds (collectives); None without a solution or bound.
    seconds, cpu_seconds : float
    date, version : str
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    entry: str
    method: str
    instance: str = Field(pattern=r"^[0-9a-f]{12}$")
    reason: Reason
    limit: Limit
    objective: int | float | None
    bound: int | float | None
    seconds: float = Field(ge=0)
    cpu_seconds: float = Field(ge=0)
    date: str
    version: str

    @property
    def gap(self) -> float | None:
        """Gap of the run's objective to its own bound."""
        return relative_gap(self.objective, -math.inf if self.bound is None else self.bound)


def runs_path(archive: Archive) -> Path:
    """Where the runs of an archive are kept."""
    return archive.path.parent / "runs.csv"


def read_runs(path: Path) -> dict[tuple[str, str], MethodRun]:
    """The runs in a file by (entry, method); a missing file holds none.

    Raises
    ------
    InputError
        If a row is malformed, with its line.
    """
    if not path.exists():
        return {}
    found = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for line, row in enumerate(csv.DictReader(stream), start=2):
            data: dict[str, Any] = {key: value or None for key, value in row.items()}
            for key in ("objective", "bound"):
                data[key] = _number(data.get(key), f"{path}, line {line}", key)
            run = validate_model(MethodRun, data, file=f"{path}, line {line}")
            found[run.entry, run.method] = run
    return found


def _number(text: str | None, file: str, field: str) -> int | float | None:
    if text is None:
        return None
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError as error:
        raise InputError(f"{text!r} is no number", file=file, field=field) from error


def write_runs(runs: dict[tuple[str, str], MethodRun], path: Path) -> None:
    """Write the runs, sorted by entry and method."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(MethodRun.model_fields), lineterminator="\n")
    writer.writeheader()
    for key in sorted(runs):
        writer.writerow(runs[key].model_dump(mode="json"))
    write_text(path, stream.getvalue())


def run_of(entry: str, result: Result) -> MethodRun:
    """The record of a result of an entry, made by `nestopt.instances.library.solve_entry`."""
    return MethodRun(
        entry=entry,
        method=result.method,
        instance=result.instance["sha256"][:12],
        reason=result.termination.reason,
        limit=result.termination.limit,
        objective=result.objective,
        bound=result.bound if math.isfinite(result.bound) else None,
        seconds=round(result.seconds, 3),
        cpu_seconds=result.stats["cpu_seconds"],
        date=datetime.now(UTC).date().isoformat(),
        version=result.versions.get("nestopt", "unknown"),
    )
