"""``nestopt methods``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nestopt.cli.parameters import JsonOption
from nestopt.core.errors import unknown_name

__all__ = ["methods"]

SCHEMA = "nestopt.methods/1"
PROBLEMS = ("placement", "collective")


def methods(
    problem: Annotated[
        str | None,
        typer.Argument(
            metavar="PROBLEM", help="placement or collective. Default: both.", show_default=False
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the methods of `nestopt solve` and the keys of `--set`.

    Methods of other distributions (entry-point group nestopt.solvers, names
    placement.NAME and collective.NAME) are listed too.

    \b
    Examples:
      nestopt methods
      nestopt methods collective --json
    """
    from nestopt.cli.output import definitions, print_json
    from nestopt.core.problem import get_problem
    from nestopt.core.registry import method_names, methods_of

    if problem is not None and problem not in PROBLEMS:
        raise unknown_name("problem", problem, PROBLEMS)
    wanted = PROBLEMS if problem is None else (problem,)
    tables: dict[str, dict[str, Any]] = {}
    for name in wanted:
        rows = methods_of(name)
        tables[name] = {
            "instance_settings": list(get_problem(name).settings),
            "methods": {
                method: {
                    "summary": rows[method].summary if method in rows else "another distribution",
                    "settings": list(rows[method].all_settings) if method in rows else None,
                }
                for method in method_names(name)
            },
        }
    if json:
        print_json({"schema": SCHEMA, "problems": tables})
        return

    for name, table in tables.items():
        print(f"{name}\n")
        entries = []
        for method, row in table["methods"].items():
            text = row["summary"]
            if row["settings"]:
                text += f"\n--set {', '.join(row['settings'])}"
            entries.append((method, text))
        definitions(entries)
        if table["instance_settings"]:
            print("\n  settings of the instance, with every method:")
            definitions([("", f"--set {', '.join(table['instance_settings'])}")])
        print()
