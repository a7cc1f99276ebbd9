"""The directory of a study: its specification, its records and its lock."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, NestoptError
from nestopt.core.io import write_text
from nestopt.study.cells import Plan, plan_study
from nestopt.study.provenance import refuse_mixed
from nestopt.study.records import Lock, read_records

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.study.cells import Cell

__all__ = [
    "LOCK",
    "RECORDS",
    "SPEC",
    "Status",
    "check_records",
    "create",
    "default_directory",
    "install",
    "make_directory",
    "open_study",
    "status",
]

SPEC = "study.toml"
RECORDS = "records.jsonl"
LOCK = "lock"
MORE = "say --mixed: the report then names what was mixed"


def default_directory(spec: Path) -> Path:
    """Where the records of a specification go: a directory beside it, named like it."""
    return spec.with_suffix("") if spec.suffix else spec.with_name(f"{spec.name}-records")


def create(spec: Path, directory: Path, *, mixed: bool = False) -> Plan:
    """Check a specification and make its directory; nothing is written if it is wrong.

    Nothing is written either while another runner has the directory's lock. `run_study` does the
    same under the lock of its run.

    Raises
    ------
    InputError
        If the specification is wrong or the directory holds records of other cells, and, unless
        `mixed`, of another code, specification or build of an instance.
    NestoptError
        If another process runs the study in the directory.
    """
    plan = plan_study(spec)
    make_directory(directory)
    with Lock(directory / LOCK, None):
        install(plan, spec, directory, mixed=mixed)
    return plan


def make_directory(directory: Path) -> None:
    """Make a directory with its parents.

    Raises
    ------
    InputError
        If that is not possible.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(directory)) from error


def install(plan: Plan, spec: Path, directory: Path, *, mixed: bool = False) -> None:
    """Put the specification and its instance files into a directory whose lock is held.

    A directory that has records already is taken if the specification still has all their cells
    and they are of the same code and specification. If it has grown, `mixed` says that this is
    meant.

    Raises
    ------
    InputError
        If the directory holds records of other cells or, unless `mixed`, of another code,
        specification or build of an instance; nothing is written then.
    """
    known = {cell.id for cell in plan.cells}
    rows = read_records(directory / RECORDS).rows
    strange = [row["cell"] for row in rows if row["cell"] not in known]
    if strange:
        raise InputError(
            f"{len(strange)} of its {len(rows)} records are of cells that {spec} does not have; "
            "choose another --output",
            file=str(directory / RECORDS),
        )
    if not mixed:
        refuse_mixed(rows, plan.spec, directory / RECORDS, MORE)
    try:
        for name in plan.files:
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.resolve() != (spec.parent / name).resolve():
                shutil.copyfile(spec.parent / name, target)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(directory)) from error
    write_text(directory / SPEC, spec.read_text(encoding="utf-8"))


def check_records(plan: Plan, directory: Path, *, mixed: bool = False) -> None:
    """Refuse to go on with a directory whose records the specification does not account for.

    Raises
    ------
    InputError
        Unless `mixed`, if records are of other cells (the specification was edited), of another
        code or specification, or of two builds of one instance.
    """
    if mixed:
        return
    rows = read_records(directory / RECORDS).rows
    known = {cell.id for cell in plan.cells}
    strange = sum(row["cell"] not in known for row in rows)
    if strange:
        raise InputError(
            f"{strange} of its {len(rows)} records are of cells that {SPEC} does not have: it was "
            f"edited. Put it back, choose another directory, or {MORE}",
            file=str(directory / RECORDS),
        )
    refuse_mixed(rows, plan.spec, directory / RECORDS, MORE)


def open_study(directory: Path) -> Plan:
    """The study in a directory.

    Raises
    ------
    InputError
        If there is none.
    """
    if not (directory / SPEC).is_file():
        raise InputError(
            f"holds no {SPEC}; expected a directory that `nestopt study run` made",
            file=str(directory),
        )
    return plan_study(directory / SPEC)


@dataclass(frozen=True, slots=True)
class Status:
    """How far a study is.

    Attributes
    ----------
    name : str
    cells, done : int
    strange : int
        Records of cells that the specification does not have; nothing counts them.
    torn : bool
        Whether a line of the records was not written to its end.
    ended : dict
        For each method the number of its cells by how they ended, ``reason`` or ``reason/limit``.
    missing : dict
        For each method the cells without a record.
    remaining : float or None
        Seconds that the missing cells will take one after the other, from the records of their
        methods; None without records.
    jobs : int or None
        Cells at once of the runner that is at work, or None.
    """

    name: str
    cells: int
    done: int
    strange: int
    torn: bool
    ended: dict[str, dict[str, int]]
    missing: dict[str, int]
    remaining: float | None
    jobs: int | None

    def to_json(self) -> dict[str, Any]:
        """The status as JSON."""
        return {
            "schema": "nestopt.study-status/1",
            "study": self.name,
            "cells": self.cells,
            "done": self.done,
            "strange": self.strange,
            "torn": self.torn,
            "ended": self.ended,
            "missing": self.missing,
            "remaining_seconds": self.remaining,
            "jobs": self.jobs,
        }


def status(directory: Path) -> Status:
    """How far the study in a directory is.

    Raises
    ------
    InputError
        If there is none.
    """
    plan = open_study(directory)
    found = read_records(directory / RECORDS)
    labels = {cell.id: cell.label for cell in plan.cells}
    rows = [row for row in found.rows if row["cell"] in labels]
    done = {row["cell"] for row in rows}
    methods = [method.name for method in plan.spec.methods]
    ended: dict[str, Counter[str]] = {name: Counter() for name in methods}
    for row in rows:
        ending = row["termination"]
        limit = "" if ending["limit"] == "none" else f"/{ending['limit']}"
        ended[labels[row["cell"]]][ending["reason"] + limit] += 1
    left = [cell for cell in plan.cells if cell.id not in done]
    missing = Counter(cell.label for cell in left)
    return Status(
        plan.spec.name,
        len(plan.cells),
        len(rows),
        len(found.rows) - len(rows),
        found.torn,
        {name: dict(counts) for name, counts in ended.items()},
        {name: missing[name] for name in methods},
        _remaining(rows, left),
        running_jobs(directory / LOCK),
    )


def _remaining(rows: list[dict[str, Any]], left: list[Cell]) -> float | None:
    if not rows or not left:
        return None if left else 0.0
    overall = sum(row["wall"] for row in rows) / len(rows)
    walls: dict[str, list[float]] = {}
    for row in rows:
        walls.setdefault(row["method"], []).append(row["wall"])
    means = {name: sum(times) / len(times) for name, times in walls.items()}
    return sum(means.get(cell.label, overall) for cell in left)


def running_jobs(lock: Path) -> int | None:
    """Cells at once of the runner that holds the lock, or None if none does."""
    if not lock.exists():
        return None
    try:
        with Lock(lock, None):
            return None
    except NestoptError:
        words = lock.read_text(encoding="utf-8").split()
        return int(words[1]) if len(words) > 1 else 1
