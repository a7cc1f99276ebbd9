"""Taking results into the archive, and verifying what is in it."""

from __future__ import annotations

import math
import os
import platform
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nestopt.core.errors import CheckError, UsageError
from nestopt.core.io import canonical_json, read_json, sha256_of, write_text
from nestopt.core.options import SolveOptions
from nestopt.core.problem import get_problem
from nestopt.core.registry import get_method, method_names
from nestopt.core.result import Result
from nestopt.instances.library.entries import entries, entry, load
from nestopt.instances.library.records import (
    CLASSES,
    CLOSED,
    TOLERANCE,
    Archive,
    Record,
    Score,
    difficulty,
)
from nestopt.instances.library.runs import run_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from nestopt.instances.library.entries import Entry
    from nestopt.instances.library.runs import MethodRun

__all__ = ["check_stored", "entry_of", "solve_entry", "update", "verify"]

KEEP_BYTES = 50_000


def entry_of(result: Result, archive: Archive) -> Entry:
    """The entry that a result belongs to: the same instance, space and objective included.

    Raises
    ------
    UsageError
        If there is none, with what differs from the nearest.
    """
    digest = result.instance.get("sha256")
    same = [
        found
        for name, found in entries().items()
        if found.problem == result.problem and digest == _digest(name, archive)
    ]
    if not same:
        raise UsageError(f"no library instance is {result.instance.get('name')!r}{_near(result)}")
    return same[0]


def _near(result: Result) -> str:
    """Which entries have the same job and cluster, and how their problem differs."""
    if result.problem != "placement":
        return ""
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.of_result import instance_of

    try:
        given = instance_of(result)
    except CheckError:
        return ""
    for name, found in entries().items():
        if found.problem == "placement" and found.instance.partition("@")[0] in given.name:
            known = load(name)
            assert isinstance(known, PlacementInstance)
            if (known.workload, known.cluster) == (given.workload, given.cluster):
                return (
                    f" over the plan space {given.space.text} with the objective {given.objective};"
                    f" {name} is over {known.space.text} with {known.objective}"
                )
    return ""


def _digest(name: str, archive: Archive) -> str:
    record = archive.records.get(name)
    return record.sha256 if record else sha256_of(load(name).to_json())


def _cpu_seconds() -> float:
    """CPU time of this process and of those that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def _score(result: Result, value: float | int) -> Score:
    return Score(
        value,
        result.method,
        round(result.seconds, 3),
        datetime.now(UTC).date().isoformat(),
        _machine(),
        result.versions.get("nestopt", "unknown"),
        result.seed,
        result.stats.get("cpu_seconds"),
    )


def update(
    result: Result,
    archive: Archive,
    *,
    directory: Path | None = None,
    name: str | None = None,
    keep: bool = True,
    trusted: bool = False,
) -> list[str]:
    """Take a result into the archive if the checker accepts it and it improves something.

    A bound counts if its witness is verified. A bound that the file merely claims is proved by
    running its method again within the limit of the entry's class, and is taken as far as that
    run confirms it.

    Parameters
    ----------
    result : Result
    archive : Archive
        Changed in place; not written.
    directory : Path, optional
        Where the result's side files lie.
    name : str, optional
        The entry; found by the instance's hash otherwise.
    keep : bool
        Whether to keep a small solution beside the archive.
    trusted : bool
        Whether the result was made by this process, so that its search need not run again.

    Returns
    -------
    list of str
        What improved, one line each; empty if nothing did.

    Raises
    ------
    CheckError
        If the checker refuses the result, or it contradicts the archive: an objective below the
        best bound, or a bound above the best objective.
    UsageError
        If no library instance matches the result.
    """
    found = entry(name) if name is not None else entry_of(result, archive)
    digest = sha256_of(load(found.name).to_json())
    if result.instance.get("sha256") != digest:
        raise UsageError(f"the result is not of {found.name}: its instance's hash differs")
    verdict = get_problem(found.problem).check(result, directory=directory)
    old = archive.records.get(found.name, Record(digest))
    if old.sha256 != digest:
        raise CheckError(
            f"{found.name}: the archive's record is of another instance ({old.sha256[:12]})"
        )
    best, bound, lines = old.objective, old.bound, []
    if result.objective is not None and (best is None or _below(result.objective, best.value)):
        lines.append(f"{found.name}: objective {_was(best)}{result.objective!r}")
        best = _score(result, result.objective)
    value = result.bound
    if _improves(value, bound) and verdict.claimed and not trusted:
        value = _confirmed(result, found.name, CLASSES[difficulty(old)][1])
    if _improves(value, bound):
        lines.append(f"{found.name}: bound {_was(bound)}{value!r}")
        bound = _score(result, value)
    if best is not None and bound is not None and _contradict(best.value, bound.value):
        raise CheckError(
            f"{found.name}: objective {best.value!r} ({best.method}) is below the bound "
            f"{bound.value!r} ({bound.method}); one of them is wrong"
        )
    if lines:
        archive.records[found.name] = Record(digest, best, bound)
        if keep and best is not old.objective:
            _keep(result, archive.solution_path(found.name))
    return lines


def _improves(value: float | int, bound: Score | None) -> bool:
    return math.isfinite(value) and (bound is None or _below(bound.value, value))


def _confirmed(result: Result, name: str, time_limit: float) -> float | int:
    """What another run of the result's method proves of its bound; -inf if it cannot run."""
    again = solve_entry(name, time_limit, methods=[result.method])
    return min(result.bound, max((run.bound for run in again), default=-math.inf))


def _was(score: Score | None) -> str:
    return "" if score is None else f"{score.value!r} -> "


def _below(a: float | int, b: float | int) -> bool:
    """Whether a is below b; integers exactly, others by more than rounding."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    return a < b - TOLERANCE * max(abs(a), abs(b))


def _contradict(objective: float | int, bound: float | int) -> bool:
    if isinstance(objective, int) and isinstance(bound, int):
        return objective < bound
    return objective < bound - CLOSED * abs(bound)


def _keep(result: Result, path: Path) -> None:
    """Keep a small solution beside the archive; an older one is replaced or removed."""
    data = result.to_json()
    data["instance"] = {key: data["instance"][key] for key in ("name", "sha256")}
    for key in ("stats", "versions"):
        data[key] = {}
    text = canonical_json(data)
    if len(text) <= KEEP_BYTES and "store" not in (result.solution_json or {}):
        path.parent.mkdir(exist_ok=True)
        write_text(path, text + "\n")
    else:
        path.unlink(missing_ok=True)


def check_stored(name: str, archive: Archive) -> list[str]:
    """Check the solution that is kept for an entry; empty if none is.

    Raises
    ------
    CheckError
        If the checker refuses it, or its objective is not the archive's.
    """
    path = archive.solution_path(name)
    if not path.exists():
        return []
    result = Result.from_json(read_json(path))
    data = load(name).to_json()
    result.instance = {"name": data["name"], "sha256": result.instance["sha256"], "data": data}
    lines = list(get_problem(entry(name).problem).check(result))
    record = archive.records.get(name)
    if record is None or record.objective is None or record.objective.value != result.objective:
        raise CheckError(f"{name}: the kept solution's objective is not the archive's")
    return lines


def verify(
    name: str,
    archive: Archive,
    *,
    solve: bool = False,
    threads: int = 1,
    runs: dict[tuple[str, str], MethodRun] | None = None,
) -> list[str]:
    """Verify an entry and its record; one line for each thing verified.

    The instance is generated and its hash compared, the kept solution checked, the bound compared
    with the objective. With `solve` the entry's methods run within the limit of its class, and
    every result must pass the checker and contradict neither value; the runs are added to `runs`.

    Raises
    ------
    CheckError
        If anything is wrong.
    """
    record = archive.records.get(name)
    digest = sha256_of(load(name).to_json())
    lines = []
    if record is None:
        lines.append(f"{name}: generated, no record")
    else:
        if record.sha256 != digest:
            raise CheckError(
                f"{name}: generated instance {digest[:12]}, archive {record.sha256[:12]}"
            )
        lines.append(f"{name}: instance {digest[:12]}")
        if record.gap is not None and record.gap < -CLOSED:
            raise CheckError(f"{name}: the objective is below the bound")
        found = entry(name).known
        best = record.objective
        if found is not None and best is not None and _below(best.value, found):
            raise CheckError(f"{name}: objective {best.value!r} is below the optimum {found!r}")
        if check_stored(name, archive):
            lines.append(f"{name}: kept solution passes the checker")
    if solve:
        for result in solve_entry(name, CLASSES[difficulty(record)][1], threads=threads):
            update(
                result,
                Archive(archive.path, dict(archive.records)),
                name=name,
                keep=False,
                trusted=True,
            )
            lines.append(f"{name}: {result.method} {result.objective!r}, bound {result.bound!r}")
            if runs is not None:
                runs[name, result.method] = run_of(name, result)
    return lines


def solve_entry(
    name: str, time_limit: float, *, threads: int = 1, methods: Iterable[str] | None = None
) -> list[Result]:
    """Run an entry's methods; a method that no distribution provides is skipped.

    The CPU seconds of each run are in its ``stats``.
    """
    found = entry(name)
    instance = load(name)
    results = []
    for method in methods or found.methods:
        if method not in method_names(found.problem):
            continue
        options = SolveOptions(time_limit=time_limit, threads=threads)
        began = _cpu_seconds()
        result = get_method(found.problem, method)(instance, options)
        result.stats["cpu_seconds"] = round(_cpu_seconds() - began, 3)
        results.append(result)
    return results
