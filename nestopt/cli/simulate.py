"""``nestopt simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nestopt.cli.parameters import JsonOption, ResultArgument
from nestopt.errors import InputError

__all__ = ["simulate"]

SCHEMA = "nestopt.simulation/1"


def simulate(result: ResultArgument, json: JsonOption = False) -> None:
    """Play a plan or schedule event by event, beside the closed form.

    A plan's micro-batches, transfers and synchronisations run task by task; of a
    schedule only the order of sends on each link is taken. The simulator shares no
    code with the methods or with the closed form.

    \b
    Examples:
      nestopt simulate plan.json
      nestopt simulate ag.json --json

    \b
    Exit status:
      0  simulated
      1  the file cannot be read, is no result or holds no solution
    """
    from nestopt.cli.inputs import read_result
    from nestopt.cli.output import print_json, quantity
    from nestopt.problem import get_problem

    loaded = read_result(result)
    if loaded.solution is None:
        raise InputError("is null; nothing to simulate", file=result, field="solution")
    played = get_problem(loaded.problem).simulate(loaded, directory=Path(result).parent)
    if json:
        print_json({"schema": SCHEMA, "file": result, "problem": loaded.problem} | played)
        return
    rows: list[tuple[str, Any]] = [
        ("closed form", quantity(loaded.problem, played["closed_form"])),
        ("simulated", quantity(loaded.problem, played["simulated"])),
        ("relative difference", f"{played['relative_difference']:+.3%}"),
    ]
    first = ("closed_form", "simulated", "relative_difference")
    rows += [(key.replace("_", " "), value) for key, value in played.items() if key not in first]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
