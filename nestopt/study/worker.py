"""One cell in a process of its own: ``python -m nestopt.study.worker``.

The cell comes as one line of JSON on stdin, ``{"cell", "directory", "scratch"}``. On stdout go
lines of JSON: ``{"at": "start", "instance"}`` and ``{"at": "end"}`` around the method,
``{"trace": [seconds, objective, bound]}`` for what it finds on the way, and at last
``{"record": ...}``. What libraries print goes to stderr. When stdin closes, the process and its
children (a MILP solver's) end at once, whatever they are doing: a worker does not survive its
runner.

Limits and traces are in CPU seconds of this process and its children: `count_cpu` gives
``time.perf_counter``, by which all methods count, that clock, so that other work on the machine
changes no result. A back-end in C++ counts its share of the limit by the wall clock, which on a
busy machine ends earlier than the limit, never later.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from nestopt.api import check, prepare
from nestopt.core.errors import CheckError, NestoptError
from nestopt.core.io import sha256_of
from nestopt.core.options import SolveOptions
from nestopt.core.pricing import FIRST_SET
from nestopt.core.registry import methods_of
from nestopt.core.result import as_json_number, instance_record
from nestopt.placement.model.words import Structure
from nestopt.study.outcome import blank_record, fill, peak_memory
from nestopt.study.ranking import METHOD as RANKING
from nestopt.study.ranking import judge
from nestopt.study.recipes import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.api import Prepared
    from nestopt.core.instance import Instance

__all__ = ["Trace", "count_cpu", "cpu_seconds", "main", "solve_cell"]

BOUNDS_EVERY = 0.05
WARM_UP_LIMIT = 1.0
WARM_UP_PASSES = 8
WARM_UP = {
    "placement": {"workload": "random-chain:3", "cluster": "tree:2x2"},
    "collective": {"collective": "all-gather", "topology": "mesh2d:2x3"},
}


class Trace:
    """Incumbents and bounds as they come: ``[seconds, objective or None, bound]``.

    Parameters
    ----------
    tell : callable
        Called with every new row.
    """

    def __init__(self, tell: Callable[[list[Any]], Any]) -> None:
        self.rows: list[list[Any]] = []
        self._tell = tell
        self._began = cpu_seconds()
        self._objective: float | None = None
        self._bound = -math.inf
        self._last = -math.inf

    def start(self) -> None:
        """The method begins now."""
        self._began = cpu_seconds()

    def __call__(
        self, seconds: float, objective: float | None, bound: float, note: str = ""
    ) -> None:
        # the methods' own clocks start at different times; here all count from the method's start
        self.add(cpu_seconds() - self._began, objective, bound)

    def add(
        self, seconds: float, objective: float | None, bound: float, *, last: bool = False
    ) -> None:
        """Take a row if it improves the objective or the bound; bounds alone not too often."""
        improved = objective is not None and (
            self._objective is None or objective < self._objective
        )
        raised = bound > self._bound
        if not (improved or raised) or (
            not improved and not last and seconds - self._last < BOUNDS_EVERY
        ):
            return
        if improved:
            self._objective = objective
        self._bound, self._last = max(self._bound, bound), seconds
        self.rows.append(
            [round(seconds, 4), as_json_number(self._objective), as_json_number(self._bound)]
        )
        self._tell(self.rows[-1])


def main() -> None:
    """Run the cell on stdin."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    text = b""
    while not text.endswith(b"\n"):
        part = os.read(0, 1 << 20)
        if not part:
            return
        text += part
    watchdog = _watch(channel)
    count_cpu()
    try:
        task = json.loads(text)

        def tell(message: dict[str, Any]) -> None:
            channel.write(json.dumps(message, allow_nan=False) + "\n")
            channel.flush()

        tell(
            {
                "record": solve_cell(
                    task["cell"], Path(task["directory"]), Path(task["scratch"]), tell
                )
            }
        )
    finally:
        os.kill(watchdog, signal.SIGKILL)
        os.waitpid(watchdog, 0)


def _watch(channel: TextIO) -> int:
    """A child that ends the whole process group when stdin closes; its process id.

    A thread would not do: a solver may hold the interpreter's lock for as long as it runs.
    """
    if os.getpgrp() != os.getpid():
        os.setpgrp()
    child = os.fork()
    if child:
        return child
    os.close(channel.fileno())
    os.close(1)
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)
    os._exit(0)


def solve_cell(
    cell: dict[str, Any],
    directory: Path,
    scratch: Path,
    tell: Callable[[dict[str, Any]], Any],
) -> dict[str, Any]:
    """The record of a cell, whatever happens to it.

    Parameters
    ----------
    cell : dict
        `nestopt.study.cells.Cell.to_json`, with the study's name as ``study``.
    directory : Path
        Of the study.
    scratch : Path
        A directory for schedules that are too large to keep in memory.
    tell : callable
        Called with the messages described in the module.
    """
    import traceback

    record = blank_record(cell)
    trace = Trace(lambda row: tell({"trace": row}))
    try:
        if cell["definition"]["method"] == RANKING:
            _rank(cell["definition"], record, tell)
        else:
            _solve(cell["definition"], directory, scratch, record, trace, tell)
    except MemoryError:
        record["termination"] = {"reason": "no-solution", "limit": "memory"}
    except NestoptError as error:
        record["error"] = str(error)
    except Exception as error:
        record["error"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    record["trace"] = trace.rows
    record["cpu"] = round(cpu_seconds(), 3)
    record["peak_rss"] = peak_memory()
    return record


def _rank(
    definition: dict[str, Any], record: dict[str, Any], tell: Callable[[dict[str, Any]], Any]
) -> None:
    from nestopt.placement.pricing.parameters import using_set

    names = definition["instance"]["names"]
    name = f"{names['workload']} on {names['cluster']}"
    record["instance"] = {"name": name, "sha256": None, "problem": "ranking"}
    tell({"at": "start", "instance": record["instance"]})
    began, cpu = time.monotonic(), cpu_seconds()
    with using_set(definition["instance"].get("pricing", FIRST_SET)):
        found = judge(names, definition["settings"])
    record["seconds"] = time.monotonic() - began
    record["method_cpu"] = round(cpu_seconds() - cpu, 4)
    tell({"at": "end"})
    objective, bound = found["objective"], found["bound"]
    record["stats"] = found["stats"]
    if objective is None:
        record["termination"] = {"reason": "infeasible", "limit": "none"}
        record["bound"] = "inf"
        return
    best = objective == bound
    record["termination"] = (
        {"reason": "optimal", "limit": "none"}
        if best
        else {"reason": "feasible", "limit": "iterations"}
    )
    record["objective"], record["bound"] = objective, bound
    record["gap"] = (objective - bound) / objective


def _solve(
    definition: dict[str, Any],
    directory: Path,
    scratch: Path,
    record: dict[str, Any],
    trace: Trace,
    tell: Callable[[dict[str, Any]], Any],
) -> None:
    """Build, solve, check, and fill the record in."""
    recipe = Recipe(**definition["instance"])
    instance: Instance = _stated(recipe.build(directory), definition)
    recorded = instance_record(instance)
    record["instance"] |= {"name": recorded["name"], "sha256": recorded["sha256"]}
    if "plans" in definition:
        parts = {key: recorded["data"][key] for key in ("workload", "cluster")}
        record["instance"]["job"] = sha256_of(parts)
    prepared = prepare(instance, definition["method"], _options(definition, scratch, trace))
    built_in = definition["method"] in methods_of(recipe.problem)
    if built_in and getattr(instance, "schema", None) is None:
        _warm_up(recipe, definition, prepared)
    tell({"at": "start", "instance": record["instance"]})
    began, cpu = time.monotonic(), cpu_seconds()
    trace.start()
    result = prepared.run()
    record["seconds"] = time.monotonic() - began
    spent = cpu_seconds() - cpu
    record["method_cpu"] = round(spent, 4)
    tell({"at": "end"})
    trace.add(spent, result.objective, result.bound, last=True)
    result.directory = str(scratch)
    try:
        record["checked"] = len(check(result))
    except CheckError as error:
        raise CheckError(f"the checker refuses the result: {error}") from error
    fill(record, result)


def _stated(instance: Any, definition: dict[str, Any]) -> Any:
    """The instance over the cell's plan space, with its objective."""
    if "plans" not in definition:
        return instance
    from nestopt.placement.model.space import PlanSpace

    structure = Structure.of_record(definition["space"], definition.get("orders", ""))
    space = PlanSpace.parse(f"{definition['plans']} {structure}")
    return instance.over(space, definition["objective"])


def _warm_up(recipe: Recipe, definition: dict[str, Any], prepared: Prepared) -> None:
    """Import what the method needs and compile its kernels, outside the clock.

    A tiny instance of the same pattern, space and settings takes the ways of the real one. A pass
    that had to compile is cut by its limit before it saw all kernels; passes go on until one is
    short.
    """
    from dataclasses import replace

    names = dict(WARM_UP[recipe.problem])
    if recipe.problem == "collective" and not recipe.files:
        names["collective"] = recipe.names.get("collective", names["collective"])
    own = {} if recipe.files or "library" in recipe.names else recipe.settings
    options = replace(prepared.options, time_limit=WARM_UP_LIMIT, output=None, progress=None)
    for settings, chosen in ((own, options.set), ({}, {})):
        with contextlib.suppress(NestoptError):
            tiny = _stated(Recipe(recipe.problem, names, settings, {}).build(Path()), definition)
            for _ in range(WARM_UP_PASSES):
                began = cpu_seconds()
                replace(prepared, instance=tiny, options=replace(options, set=chosen)).run()
                if cpu_seconds() - began < 1.5 * WARM_UP_LIMIT:
                    return
            return


def count_cpu() -> None:
    """Let ``time.perf_counter`` of this process count CPU seconds from now on."""
    time.perf_counter = cpu_seconds


def cpu_seconds() -> float:
    """User and system time of this process and its ended children."""
    import resource

    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _options(definition: dict[str, Any], scratch: Path, trace: Trace) -> SolveOptions:
    limit = definition["time_limit"]
    return SolveOptions(
        time_limit=math.inf if limit is None else limit,
        seed=definition["seed"],
        threads=definition["threads"],
        rel_gap=definition["rel_gap"],
        backend=definition["backend"],
        output=str(scratch / "result.json"),
        set=dict(definition["settings"]),
        progress=trace,
    )


if __name__ == "__main__":
    main()
