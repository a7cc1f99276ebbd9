"""The records of a study: one JSON object a line, one line a finished cell, only ever appended.

A record (schema ``nestopt.record/1``) has

=================  ================================================================================
``schema``         ``"nestopt.record/1"``
``study``          the study's name
``cell``           16 hex digits, the hash of all that defines the cell
``parameters``     flat: ``family``, ``size``, ``npus`` or ``devices``, ``heterogeneity``,
                   ``fail_npus``, ``instance_seed``, the keys of the grid (see `nestopt.study.spec`)
``instance``       ``name``, ``sha256``, ``problem``; the name and hash are null if it was not built
``method``         the method's label in the study
``solver``         the method's name
``settings``       the method's settings, with ``objective``, ``space``, ``backend``, ``rel_gap``
``seed``           of the method
``threads``        threads that it may use
``time_limit``     seconds, or null
``limit_clock``    ``"cpu"``: the limit is in CPU seconds of the process with its children. Records
                   without it have a limit by the wall clock
``memory_limit``   bytes of the whole process, or null
``termination``    ``reason`` and ``limit`` as in a result
``objective``      of the solution (seconds; collectives: picoseconds), or null
``bound``          a valid lower bound in the same unit; ``"-inf"`` if nothing is known
``gap``            (objective - bound) / objective, ``"inf"`` for an infinite bound, or null
``seconds``        wall-clock time of the method alone, its libraries loaded before
``method_cpu``     CPU seconds of the same, user and system, children included
``wall``           wall-clock time of the process, start and checker included
``cpu``            CPU seconds of the process and its children, user and system
``peak_rss``       bytes, the largest resident set of the process
``trace``          ``[CPU seconds, objective or null, bound]`` whenever either improved
``checked``        number of points that the independent checker verified, or null
``stats``          scalars of the result's ``stats``
``error``          what went wrong, or null
``code``           ``source``, a hash of the package's Python files; ``commit``, where git knows it;
                   ``spec``, a hash of what the specification runs
``versions``       of Python and the libraries
``machine``        ``system``, ``cpu``, ``cores``, ``memory`` (bytes)
``started``        UTC, ISO 8601
=================  ================================================================================

What two runs of a study may disagree in is left out by `canonical`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, NestoptError
from nestopt.core.lines import LineFile, Lines, read_lines

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["SCHEMA", "Appender", "Lock", "canonical", "read_records"]

SCHEMA = "nestopt.record/1"
_VARYING = ("seconds", "method_cpu", "wall", "cpu", "peak_rss", "machine", "started", "trace")
_VARYING_STATS = ("second", "time", "rate", "throughput", "rss")


def read_records(path: str | Path) -> Lines:
    """The records in a file; a missing file holds none.

    Raises
    ------
    InputError
        If a line other than the last is no record, or a cell stands there twice.
    """
    found = read_lines(path)
    seen: set[str] = set()
    for number, row in enumerate(found.rows, start=1):
        field = f"line {number}"
        if not isinstance(row, dict) or row.get("schema") != SCHEMA:
            raise InputError(
                f"is no record; expected schema {SCHEMA!r}", file=str(path), field=field
            )
        if row["cell"] in seen:
            raise InputError(f"cell {row['cell']} is there twice", file=str(path), field=field)
        seen.add(row["cell"])
    return found


class Appender:
    """The file of records of a running study.

    Opening it drops a torn last line; every record is on the disk when `append` returns.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    done : set of str
        The cells that have a record.
    torn : bool
        Whether a torn line was dropped.
    """

    def __init__(self, path: Path) -> None:
        found = read_records(path)
        self.done = {row["cell"] for row in found.rows}
        self.torn = found.torn
        self._file = LineFile(path, found.whole_bytes)

    def append(self, record: dict[str, Any]) -> None:
        """Write a record; one of a cell that has one already is refused."""
        if record["cell"] in self.done:
            raise NestoptError(f"cell {record['cell']} has a record already")
        self._file.append(record)
        self.done.add(record["cell"])

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Lock:
    """Only one runner writes to a directory; the lock of a process that died is free.

    Parameters
    ----------
    path : Path
        The lock file; it holds the process id of its owner and the number of cells at once.
    jobs : int or None
        That number; None only asks whether the lock is free.
    """

    def __init__(self, path: Path, jobs: int | None) -> None:
        self.path, self.jobs = path, jobs
        self._file = -1

    def __enter__(self) -> Lock:
        import fcntl

        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            # of the open file: the kernel frees it when its owner ends, however that happens
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.read(self._file, 64).decode(errors="replace").split()
            os.close(self._file)
            raise NestoptError(
                f"{self.path.parent}: {f'process {owner[0]}' if owner else 'another process'} "
                "runs this study; wait for it or end it"
            ) from None
        if self.jobs is not None:
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, f"{os.getpid()} {self.jobs}\n".encode(), 0)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)


def canonical(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what may differ between two runs of its cell.

    Times, memory and the machine go; of the trace the objectives stay, and of the statistics those
    that are no times or rates.
    """
    kept = {key: value for key, value in record.items() if key not in _VARYING}
    incumbents: list[Any] = []
    for _, objective, _ in record["trace"]:
        if objective is not None and objective not in incumbents[-1:]:
            incumbents.append(objective)
    kept["incumbents"] = incumbents
    kept["stats"] = {
        key: value
        for key, value in record["stats"].items()
        if not any(word in key for word in _VARYING_STATS)
    }
    return kept
