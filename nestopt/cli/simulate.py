"""``nestopt simulate``."""

from __future__ import annotations

from typing import Any

from nestopt.cli.parameters import JsonOption, ResultArgument

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
    from nestopt import api
    from nestopt.cli.inputs import read_result
    from nestopt.cli.output import definitions, print_json, quantity, signed_percent

    loaded = read_result(result)
    played = api.simulate(result)
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


def _text(problem: str, key: str, value: Any) -> str:
    from nestopt.cli.output import quantity

    if not isinstance(value, float):
        return str(value)
    return f"{value:.1%}" if key.endswith("_share") else quantity(problem, value)
