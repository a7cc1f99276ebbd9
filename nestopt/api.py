"""The door: `solve`, `bound`, `check`, `simulate`, `plot`, `load`, `register`.

The command line goes through it. Everything is checked on the way in (`nestopt.asking`), and every
solution passes the independent checker on the way out.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable  # noqa: TC003 - of a dataclass
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nestopt.asking import DEFAULT_METHOD, ask, load
from nestopt.core.charts import for_encoding
from nestopt.core.choices import refuse_contradictions
from nestopt.core.errors import CheckError, InputError, NestoptError, UsageError
from nestopt.core.io import keep_elsewhere, sha256_of, write_json
from nestopt.core.options import SolveOptions
from nestopt.core.problem import get_problem
from nestopt.core.registry import get_method, register
from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.core.stop import Watch
from nestopt.core.verify import verify, verify_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nestopt.asking import Asked
    from nestopt.core.problem import Problem
    from nestopt.core.verdict import Verdict
    from nestopt.placement.model.space import PlanSpace

    Progress = Callable[[float, float | None, float, str], Any]
    Space = PlanSpace | str | Mapping[str, Any]

__all__ = [
    "Bound",
    "bound",
    "check",
    "Prepared",
    "instance",
    "load",
    "plot",
    "prepare",
    "register",
    "simulate",
    "solve",
    "thread_count",
]


class Bound(NamedTuple):
    """A lower bound: no plan or schedule is better.

    Attributes
    ----------
    name : str
    value : float or int
        Seconds (placement) or picoseconds (collectives); ``inf`` if there is no solution.
    witness : dict
        What proves it.
    """

    name: str
    value: float
    witness: dict[str, Any]


def instance(
    job: Any,
    on: Any = None,
    *,
    objective: str | None = None,
    space: Space | None = None,
    problem: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """The instance of a job and what it runs on, as `solve` would build it.

    See `solve` for `job`, `on`, `objective` and `space`; the settings are the instance's and the
    plan space's (``batch=64``, ``latency="pipelined"``, ``tensor=(1, 2)``).
    """
    asked = ask(
        job, on, {**(settings or {}), **more}, problem=problem, objective=objective, space=space
    )
    return asked.instance


def solve(
    job: Any,
    on: Any = None,
    *,
    method: str | None = None,
    objective: str | None = None,
    space: Space | None = None,
    time_limit: float | str = math.inf,
    seed: int = 0,
    threads: int | None = None,
    rel_gap: float = 0.0,
    backend: str | None = None,
    warm_start: Result | str | Path | None = None,
    write_model: str | Path | None = None,
    output: str | Path | None = None,
    check: bool = True,
    progress: Progress | None = None,
    problem: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> Result:
    """Place a training job on a cluster, or synthesize a collective on a network.

    Parameters
    ----------
    job : Workload, Collective, instance, str or Path
        What is to be done: an object, a name of the library (``"llama3-70b"``,
        ``"all-gather:size=1MB"``) or a file. A whole instance needs no `on`.
    on : Cluster, Topology, networkx graph, str or Path, optional
        Where: an object, a name (``"dgx-h100-64"``, ``"mesh2d:8x8"``), a file or a graph.
    method : str, optional
        ``"dp"`` for placement and ``"greedy"`` for collectives by default; `nestopt methods` lists
        them.
    objective : str, optional
        Placement: ``"iteration-time"`` (default) or ``"bottleneck"``.
    space : PlanSpace, str or mapping, optional
        Placement: which plans count, such as ``"megatron-core"``, ``"full general"`` or
        ``{"tensor": (1, 2)}``.
    time_limit : float or str
        Wall-clock seconds, or text with a unit.
    seed, threads, rel_gap, backend, progress
        See `nestopt.core.options.SolveOptions`; by default all threads that the process may use.
    warm_start : Result, str or Path, optional
        A result, or its file, whose solution starts the search.
    write_model, output : str or Path, optional
        Files for the exact model and for the checked result.
    check : bool
        Whether the independent checker must pass the result before it is returned.
    problem : str, optional
        ``"placement"`` or ``"collective"``, where two names alone leave it open.
    settings, **more
        Settings of the instance, the plan space and the method, as a mapping or by name, such as
        ``batch=64``, ``tensor=(1, 2)`` or ``iterations=100``; `nestopt methods` lists them.

    Returns
    -------
    Result
        Its `solution` is a `Plan` or a `Schedule`. Infeasible is a result, not an exception.

    Raises
    ------
    UsageError
        If a name, option or setting is unknown or wrong (with a suggestion).
    InputError
        If a file or a value is wrong, naming file, field and value.
    CheckError
        If the checker refuses the result.
    """
    asked = ask(
        job,
        on,
        {**(settings or {}), **more},
        problem=problem,
        method=method,
        objective=objective,
        space=space,
        solving=True,
    )
    options = SolveOptions(
        time_limit=_positive_limit(time_limit),
        seed=seed,
        threads=thread_count(threads),
        rel_gap=rel_gap,
        backend=backend,
        warm_start=_warm_start(warm_start, asked.problem, asked.instance),
        write_model=_text(write_model),
        output=_text(output),
        set=asked.settings,
        progress=progress,
    )
    ready = _prepared(asked, options)
    # the watch stays: a signal that comes while the answer is checked and written waits for that
    with Watch(options.time_limit) as watch:
        result = ready.watched(watch)
        watch.settle()
        _deliver(result, None if output is None else Path(output), check=check)
    return result


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that is checked and ready: what a study times.

    Attributes
    ----------
    method : str
    instance : Any
    options : SolveOptions
    """

    method: str
    instance: Any
    options: SolveOptions
    function: Callable[[Any, SolveOptions], Result]

    def run(self) -> Result:
        """The method's result, not yet checked (`check` does that) and not written."""
        with Watch(self.options.time_limit) as watch:
            result = self.watched(watch)
            watch.settle()
        return result

    def watched(self, watch: Watch) -> Result:
        """The same inside a watch of the caller's, which ends it at its limit."""
        result = _run(self.function, self.method, self.instance, self.options, watch)
        result.settings = _recorded(self.options) | result.settings
        return result


def prepare(instance: Any, method: str, options: SolveOptions) -> Prepared:
    """The run that `solve` would do, everything checked, not begun.

    Parameters
    ----------
    instance : instance
        A whole one.
    method : str
    options : SolveOptions
        The settings in its ``set`` are the method's.

    Raises
    ------
    UsageError
        If the method or a setting is unknown, or they contradict each other.
    """
    from dataclasses import replace

    asked = ask(instance, None, options.set, method=method, solving=True)
    return _prepared(asked, replace(options, set=asked.settings))


def _prepared(asked: Asked, options: SolveOptions) -> Prepared:
    problem = asked.problem.name
    name = asked.method or DEFAULT_METHOD[problem]
    refuse_contradictions(problem, name, None, None, options.backend, options.write_model)
    return Prepared(name, asked.instance, options, get_method(problem, name))


def _text(path: str | Path | None) -> str | None:
    return None if path is None else str(path)


def _positive_limit(limit: float | str) -> float:
    seconds = SolveOptions(time_limit=limit).time_limit  # type: ignore[arg-type]
    if seconds == 0:
        raise UsageError(f"time_limit {limit!r}: expected a positive time")
    return seconds


def thread_count(threads: int | None) -> int:
    """The number of threads asked for, or all that this process may use."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return threads


def _warm_start(given: Any, problem: Problem, instance: Any) -> Result | None:
    """A result that may start the search of this instance."""
    if given is None:
        return None
    file = str(given) if isinstance(given, (str, Path)) else None
    result = load(given, "result") if file is not None else given
    if not isinstance(result, Result):
        raise UsageError(f"warm_start {given!r}: expected a Result or its file")
    if result.problem != problem.name:
        raise InputError(
            f"{result.problem!r}; expected {problem.name!r}", file=file, field="problem"
        )
    if result.solution_json is None:
        raise InputError("is null; a warm start needs a solution", file=file, field="solution")
    if getattr(instance, "schema", None) is not None:
        # The models of these instances take the solution as it is
        if result.instance.get("sha256") != sha256_of(instance.to_json()):
            raise InputError("the result of another instance", file=file, field="instance.sha256")
        problem.check(result, directory=_directory(result))
    return result


def _directory(result: Result) -> Path | None:
    return None if result.directory is None else Path(result.directory)


def _run(method: Any, name: str, instance: Any, options: SolveOptions, guard: Watch) -> Result:
    """The method's result; what is known when it is interrupted or runs out of memory.

    The watch ends the method at the time limit and at a signal, whatever it is busy with.
    """
    from dataclasses import replace

    best = -math.inf
    tell = options.progress

    def watch(seconds: float, objective: float | None, bound: float, note: str = "") -> None:
        nonlocal best
        best = max(best, bound)
        if tell is not None:
            tell(seconds, objective, bound, note)

    started = time.perf_counter()
    try:
        found: Result = method(instance, replace(options, progress=watch))
    except (KeyboardInterrupt, MemoryError) as stop:
        guard.settle()
        recorded = instance_record(instance)
        limit = Limit(guard.reason or "interrupted")
        if isinstance(stop, MemoryError):
            limit = Limit.MEMORY
        return Result(
            problem=recorded["data"]["problem"],
            instance=recorded,
            method=name,
            termination=Termination(Reason.NO_SOLUTION, limit),
            objective=None,
            bound=best,
            witness=(
                {"kind": "search", "name": name, "value": best} if math.isfinite(best) else None
            ),
            seconds=time.perf_counter() - started,
            seed=options.seed,
            threads=options.threads,
        )
    ended = found.termination
    if guard.reason and ended.limit not in (Limit.NONE, Limit.MEMORY):
        found.termination = Termination(ended.reason, Limit(guard.reason))
    return found


def _recorded(options: SolveOptions) -> dict[str, Any]:
    """The options that a reader needs to repeat the run."""
    recorded: dict[str, Any] = {}
    if math.isfinite(options.time_limit):
        recorded["time_limit"] = options.time_limit
    if options.rel_gap:
        recorded["rel_gap"] = options.rel_gap
    if options.backend is not None:
        recorded["backend"] = options.backend
    return recorded | options.set


def _deliver(result: Result, target: Path | None, *, check: bool) -> None:
    """Check a result, then write it."""
    if target is not None:
        result.directory = str(target.parent)
    if check:
        try:
            result.verified = tuple(verify(result, _directory(result)))
        except CheckError as error:
            raise CheckError(
                f"the checker refuses what {result.method} returned; nothing is written: {error}"
            ) from error
    if target is not None:
        try:
            write_json(target, result.to_json())
        except (OSError, InputError) as error:
            raise _elsewhere(result, target, error) from error


def _elsewhere(result: Result, target: Path, error: OSError | InputError) -> NestoptError:
    """The error of a result that could not be written where it was to be; it is kept elsewhere."""
    cause = error.__cause__ if isinstance(error, InputError) else error
    why = (cause.strerror if isinstance(cause, OSError) else None) or str(error)
    kept = keep_elsewhere(result.to_json(), target.stem)
    return NestoptError(f"{target}: cannot be written: {why}; {kept}")


def bound(
    job: Any,
    on: Any = None,
    *,
    objective: str | None = None,
    space: Space | None = None,
    time_limit: float | str = math.inf,
    threads: int | None = None,
    progress: Progress | None = None,
    problem: str | None = None,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> list[Bound]:
    """Lower bounds of an instance, each with its witness, the best first.

    See `solve` for the arguments. A bound of placement holds for the plans of the space that its
    witness names. `progress` is called with each bound as it is found; those found before the time
    limit or an interrupt are returned.
    """
    asked = ask(
        job, on, {**(settings or {}), **more}, problem=problem, objective=objective, space=space
    )
    options = SolveOptions(
        time_limit=_positive_limit(time_limit), threads=thread_count(threads), progress=progress
    )
    with Watch(options.time_limit):
        rows = asked.problem.bounds(asked.instance, options)
    return [Bound(row["name"], row["value"], row["witness"]) for row in rows]


def _read(result: Result | str | Path) -> Result:
    if isinstance(result, Result):
        return result
    found: Result = load(Path(result), "result")
    return found


def check(result: Result | str | Path) -> Verdict:
    """Check a result, or the file of one, with the independent checker.

    Returns
    -------
    Verdict
        As a sequence, one line for each thing that was verified; ``claimed`` lists what the result
        claims and nothing proves (an optimum by exhausted search, say).

    Raises
    ------
    CheckError
        If anything is wrong, with what and where; also for a claim without any ground.
    InputError
        If the file cannot be read or is no result.
    """
    if isinstance(result, (str, Path)):
        return verify_file(str(result))
    return verify(result, _directory(result))


def simulate(result: Result | str | Path) -> dict[str, Any]:
    """Play a result's plan or schedule event by event, beside the closed form.

    Returns
    -------
    dict
        ``closed_form``, ``simulated``, ``relative_difference`` and more; seconds (placement) or
        picoseconds (collectives).

    Raises
    ------
    NestoptError
        If the result has no solution.
    """
    found = _read(result)
    _needs_solution(found, result, "simulate")
    return get_problem(found.problem).simulate(found, directory=_directory(found))


def plot(result: Result | str | Path, target: str | Path | None = None) -> None:
    """Draw a result's plan or schedule.

    Parameters
    ----------
    result : Result, str or Path
    target : str or Path, optional
        A file: a picture (``.pdf``, ``.png``, ``.svg``; needs matplotlib) or an interactive page
        (``.html``). Without one, a picture of characters is printed.

    Raises
    ------
    NestoptError
        If the result has no solution, or matplotlib is needed and not installed.
    """
    found = _read(result)
    _needs_solution(found, result, "draw")
    problem = get_problem(found.problem)
    if target is None:
        import shutil
        import sys

        width = max(40, min(shutil.get_terminal_size((80, 24)).columns, 160))
        colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        text = problem.chart(found, width, colour=colour, directory=_directory(found))
        print(for_encoding(text, sys.stdout.encoding))
        return
    try:
        problem.plot(found, Path(target), directory=_directory(found))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "matplotlib":
            raise
        raise NestoptError(
            "plot needs matplotlib: pip install 'nestopt[plot]'; without it, name a file that ends "
            "in .html, or none for a picture in the terminal"
        ) from error


def _needs_solution(result: Result, source: Any, verb: str) -> None:
    if result.solution_json is None:
        file = str(source) if isinstance(source, (str, Path)) else None
        raise InputError(f"is null; nothing to {verb}", file=file, field="solution")
