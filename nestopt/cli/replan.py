"""``nestopt replan``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestopt.cli.inputs import parse_limit, read_result, thread_count, writable
from nestopt.cli.output import console, definitions, note, print_json, quantity
from nestopt.cli.parameters import JsonOption, ResultArgument, ThreadsOption, TimeLimitOption
from nestopt.collective.model.of_result import instance_of
from nestopt.collective.model.survivors import survivors
from nestopt.core.errors import InputError, NestoptError, UsageError
from nestopt.core.io import keep_elsewhere, write_json
from nestopt.core.options import SolveOptions
from nestopt.core.problem import get_problem
from nestopt.core.registry import get_method
from nestopt.core.units import format_bytes, format_seconds
from nestopt.core.verify import verify
from nestopt.placement.replan.solve import replan as solve

if TYPE_CHECKING:
    from nestopt.core.result import Result
    from nestopt.placement.replan.solve import Replanned

__all__ = ["replan"]

SCHEMA = "nestopt.replan/1"


def replan(
    result: ResultArgument,
    fail: Annotated[
        str | None,
        typer.Option(
            "--fail",
            metavar="LIST",
            help="Devices (of a plan) or nodes (of a schedule's network) that have failed, by "
            "number: 17,203 or 8-15.",
        ),
    ] = None,
    nodes_gone: Annotated[
        str | None,
        typer.Option(
            "--nodes-gone",
            metavar="LIST",
            help="Whole nodes of a plan's cluster that have failed, by number: 4 or 2,7.",
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            "--horizon",
            metavar="N",
            help="Iterations over which moving state must pay. Default: the shortest iteration, "
            "then the fewest bytes.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="F.json", help="Where the new result goes."),
    ] = None,
    time_limit: TimeLimitOption = None,
    threads: ThreadsOption = None,
    json: JsonOption = False,
) -> None:
    """Make a new plan or schedule after a failure.

    Of a plan: candidates are the dynamic program's plan for what is left (6 s unless
    --time-limit says otherwise), the old plan with idle devices in place of the failed
    ones, and the old plan with fewer replicas. The shortest iteration wins; among equals,
    the plan that makes devices fetch the fewest bytes of parameters and optimizer state.
    Of a schedule: the collective is synthesized anew for the survivors.

    \b
    Examples:
      nestopt replan plan.json --fail 17,203 -o next.json
      nestopt replan plan.json --nodes-gone 4 --horizon 1000
      nestopt replan schedule.json --fail 5 -o next.json

    \b
    Exit status:
      0  a plan or schedule for what is left
      1  nothing fits, or the file holds no solution
      2  wrong command line
    """
    loaded = read_result(result)
    devices = _numbers("--fail", fail)
    nodes = _numbers("--nodes-gone", nodes_gone)
    if not devices and not nodes:
        raise UsageError("say what has failed: --fail or --nodes-gone")
    target = None if output is None else writable("--output", output, (".json",))
    count = thread_count(threads)
    if loaded.problem == "collective":
        if nodes or horizon is not None:
            raise UsageError("--nodes-gone and --horizon belong to plans")
        made = _schedule(loaded, devices, time_limit, count)
        _deliver(made, target, as_json=json)
        return

    found = solve(
        loaded,
        devices,
        nodes,
        horizon=None if horizon is None else _horizon(horizon),
        time_limit=6.0 if time_limit is None else parse_limit(time_limit),
        threads=count,
    )
    if not json:
        _show(found)
    _deliver(found.result, target, as_json=json)


def _numbers(option: str, text: str | None) -> list[int]:
    """The numbers of a list such as ``17,203`` or ``8-15``."""
    found: list[int] = []
    for part in (text or "").split(","):
        if not part and text is None:
            continue
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()) or len(low + high) > 18:
            raise UsageError(f"{option} {text}: expected numbers such as 17,203 or 8-15")
        last = int(high) if dash else int(low)
        if last < int(low) or last - int(low) > 10**6:
            raise UsageError(f"{option} {text}: {part!r} is no range")
        found += range(int(low), last + 1)
    return found


def _horizon(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise UsageError(f"--horizon {text}: expected a positive number of iterations")
    return value


def _schedule(old: Result, nodes: list[int], time_limit: str | None, threads: int) -> Result:
    """The collective of a result, synthesized for what is left."""
    options = SolveOptions(time_limit=parse_limit(time_limit), threads=threads)
    made: Result = get_method("collective", "greedy")(survivors(instance_of(old), nodes), options)
    return made


def _deliver(result: Result, target: Any, *, as_json: bool) -> None:
    verify(result)
    if target is not None:
        data = result.to_json()
        try:
            write_json(target, data)
        except InputError as error:
            raise NestoptError(f"{error}; {keep_elsewhere(data, target.stem)}") from error
    if as_json:
        print_json(result.to_json())
    else:
        get_problem(result.problem).describe(result, console())
    if target is not None:
        note(f"wrote {target}")


def _show(found: Replanned) -> None:
    """Candidates, what moves and what stays."""
    moves = found.chosen.moves
    longer = found.chosen.seconds / found.old_seconds - 1
    rows = [
        ("before", f"{quantity('placement', found.old_seconds)} an iteration"),
        (
            "after",
            f"{quantity('placement', found.chosen.seconds)}, {100 * longer:+.1f} %: "
            f"{found.chosen.name}",
        ),
        (
            "moves",
            f"{format_bytes(moves.bytes)} to {moves.devices} devices, up to "
            f"{format_bytes(moves.most)} to one ({format_seconds(found.chosen.fetch)}); "
            f"{format_bytes(moves.kept)} stay where they are",
        ),
    ]
    if moves.lost:
        rows.append(
            ("checkpoint", f"needed for {len(moves.lost)} operators: no whole copy survives")
        )
    for other in found.candidates[1:]:
        rows.append(
            (
                "instead",
                f"{quantity('placement', other.seconds)}: {other.name}, "
                f"{format_bytes(other.moves.bytes)} moved",
            )
        )
    definitions(rows)
    print()
