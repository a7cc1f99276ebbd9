"""``nestopt simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestopt import api
from nestopt.cli.inputs import read_result
from nestopt.cli.output import definitions, print_json, quantity, signed_percent
from nestopt.cli.parameters import JsonOption, ResultArgument
from nestopt.core.errors import unknown_name
from nestopt.interop.loading import plan_in, schedule_in
from nestopt.interop.simgrid_clock import MOST_SENDS, play_plan, play_schedule

if TYPE_CHECKING:
    from nestopt.core.result import Result

__all__ = ["simulate"]

SCHEMA = "nestopt.simulation/1"


def simulate(
    result: ResultArgument,
    program: Annotated[
        str | None,
        typer.Option(
            "--with", metavar="NAME", help="Another program's clock beside ours: simgrid."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Play a plan or schedule event by event, beside the closed form.

    A plan's micro-batches, transfers and synchronisations run task by task; of a
    schedule only the order of sends on each link is taken. The simulator shares no
    code with the methods or with the closed form.

    With simgrid, SimGrid times the same orders by its own network model and event queue
    (of a plan: asynchronous transfers). Needs Debian's python3-simgrid or the extra.

    \b
    Examples:
      nestopt simulate plan.json
      nestopt simulate ag.json --json
      nestopt simulate ag.json --with simgrid

    \b
    Exit status:
      0  simulated
      1  the file cannot be read, is no result or no solution, or no SimGrid
    """
    loaded = read_result(result)
    played = api.simulate(result)
    if program is not None:
        played |= _foreign(program, loaded, result)
    if json:
        print_json({"schema": SCHEMA, "file": result, "problem": loaded.problem} | played)
        return
    shown = dict(played)
    rows = [
        ("closed form", quantity(loaded.problem, shown.pop("closed_form"))),
        ("simulated", quantity(loaded.problem, shown.pop("simulated"))),
        ("relative difference", signed_percent(shown.pop("relative_difference"))),
    ]
    rows += [
        (key.replace("_", " "), _text(loaded.problem, key, value))
        for key, value in shown.items()
        if not isinstance(value, dict | list)
    ]
    definitions(rows, indent=0)


def _foreign(program: str, loaded: Result, file: str) -> dict[str, float]:
    """What another program's clock says: ``foreign``, and its difference from ours."""
    if program != "simgrid":
        raise unknown_name("program", program, ("simgrid",))
    if loaded.problem == "placement":
        return play_plan(plan_in(loaded, Path(file)))
    found = schedule_in(loaded, Path(file), at_most=MOST_SENDS)
    return play_schedule(found.instance, found.schedule)


def _text(problem: str, key: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if key.endswith("_difference"):
        return f"{value:+.2e}"
    return f"{value:.1%}" if key.endswith("_share") else quantity(problem, value)
