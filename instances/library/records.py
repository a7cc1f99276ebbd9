"""The archive of best-known objectives and bounds: who reached what, when, where and how fast."""

from __future__ import annotations

import math
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from nestopt.core.errors import InputError
from nestopt.core.io import read_json, validate_model, write_json
from nestopt.core.result import relative_gap
from nestopt.instances.library.entries import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CLASSES", "CLOSED", "SCHEMA", "TOLERANCE", "Archive", "Record", "Score", "difficulty"]

SCHEMA = "nestopt.bks/1"
TOLERANCE = 1e-9
"""Values that are no integers and differ by less than this fraction are the same."""
CLOSED = 1e-6
"""A gap up to this closes an instance whose values are no integers: exact solvers work on scaled
integers or with tolerances of this size."""

CLASSES: dict[str, tuple[float, float]] = {
    "toy": (1.0, 30.0),
    "easy": (10.0, 60.0),
    "medium": (60.0, 300.0),
    "hard": (math.inf, 900.0),
    "open": (math.inf, 60.0),
}
"""Difficulty classes: proved within so many CPU seconds, and the time limit that `verify` gives."""


@dataclass(frozen=True, slots=True)
class Score:
    """One value of the archive and who reached it.

    `cpu_seconds` is known of the runs that the library made itself; `seconds`, by the clock, also
    holds what other work on the machine took.
    """

    value: float | int
    method: str
    seconds: float
    date: str
    machine: str
    version: str
    seed: int = 0
    cpu_seconds: float | None = None

    @property
    def effort(self) -> float:
        """CPU seconds, or seconds by the clock where those are not known."""
        return self.seconds if self.cpu_seconds is None else self.cpu_seconds

    def to_json(self) -> dict[str, Any]:
        """As JSON; what is not known is left out."""
        data = {key: getattr(self, key) for key in self.__slots__}
        return {key: value for key, value in data.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of an entry."""

    sha256: str
    objective: Score | None = None
    bound: Score | None = None

    @property
    def gap(self) -> float | None:
        """Gap of the best objective to the best bound; 0 when they meet."""
        if self.objective is None or self.bound is None:
            return None
        gap = relative_gap(self.objective.value, self.bound.value)
        whole = isinstance(self.objective.value, int) and isinstance(self.bound.value, int)
        return 0.0 if gap is not None and not whole and abs(gap) <= TOLERANCE else gap

    @property
    def closed(self) -> bool:
        """Whether the objective is proved optimal: gap 0 between integers, else up to `CLOSED`."""
        if self.objective is None or self.bound is None or self.gap is None:
            return False
        if isinstance(self.objective.value, int) and isinstance(self.bound.value, int):
            return self.gap == 0
        return abs(self.gap) <= CLOSED


def _lock(handle: int) -> None:
    """Wait for the lock of a file that is open; it ends when the file is closed."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    fcntl.flock(handle, fcntl.LOCK_EX)


@dataclass(slots=True)
class Archive:
    """The records by entry name, read from and written to a file.

    Attributes
    ----------
    path : Path
        ``bks.json``; solutions lie in ``solutions/`` beside it.
    records : dict
    """

    path: Path = LIBRARY / "bks.json"
    records: dict[str, Record] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | Path | None = None) -> Archive:
        """The archive in a file; a missing file is an empty archive.

        Raises
        ------
        InputError
            If the file is malformed.
        """
        target = Path(path) if path is not None else LIBRARY / "bks.json"
        if not target.exists():
            return cls(target)
        model = validate_model(_ArchiveFile, read_json(target), file=str(target))
        records = {
            name: Record(
                row.sha256,
                None if row.objective is None else Score(**row.objective.model_dump()),
                None if row.bound is None else Score(**row.bound.model_dump()),
            )
            for name, row in model.instances.items()
        }
        return cls(target, records)

    @classmethod
    @contextmanager
    def changing(cls, path: str | Path | None = None) -> Iterator[Archive]:
        """The archive in a file, for nobody else to change meanwhile.

        A lock file beside it is held, and the archive is read once it is: of several processes
        that change it at once, each sees what those before it wrote.
        """
        target = Path(path) if path is not None else LIBRARY / "bks.json"
        lock = target.with_name(f".{target.name}.lock")
        try:
            handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
        except OSError as error:
            raise InputError(f"cannot be locked: {error.strerror}", file=str(target)) from error
        try:
            _lock(handle)
            yield cls.open(target)
        finally:
            os.close(handle)

    def save(self) -> None:
        """Write the archive, sorted by name."""
        instances = {
            name: {
                "sha256": record.sha256,
                "objective": record.objective and record.objective.to_json(),
                "bound": record.bound and record.bound.to_json(),
            }
            for name, record in sorted(self.records.items())
        }
        write_json(self.path, {"schema": SCHEMA, "instances": instances})

    def solution_path(self, name: str) -> Path:
        """Where the solution of an entry is kept, if it is."""
        return self.path.parent / "solutions" / f"{name}.json"


class _ScoreFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    value: int | float
    method: str
    seconds: float = Field(ge=0, allow_inf_nan=False)
    date: str
    machine: str
    version: str
    seed: int = 0
    cpu_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class _RecordFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sha256: str
    objective: _ScoreFile | None = None
    bound: _ScoreFile | None = None


class _ArchiveFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_: str = Field(alias="schema", pattern=f"^{SCHEMA}$")
    instances: dict[str, _RecordFile]


def difficulty(record: Record | None) -> str:
    """The class of an entry by the effort of its proof; ``open`` if there is none."""
    if record is None or not record.closed or record.bound is None:
        return "open"
    return next(name for name, (limit, _) in CLASSES.items() if record.bound.effort <= limit)
