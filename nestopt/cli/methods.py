"""``nestopt methods``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nestopt.asking import PARTS
from nestopt.cli.output import definitions, print_json
from nestopt.cli.parameters import JsonOption
from nestopt.cli.setting_help import rows_text
from nestopt.core.errors import unknown_name
from nestopt.core.problem import get_problem
from nestopt.core.registry import method_names, methods_of
from nestopt.core.settings import setting_of
from nestopt.instances.recipe_keys import RECIPE_KEYS

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
    from importlib import import_module

    if problem is not None and problem not in PROBLEMS:
        raise unknown_name("problem", problem, PROBLEMS)
    wanted = PROBLEMS if problem is None else (problem,)
    tables: dict[str, dict[str, Any]] = {}
    for name in wanted:
        rows = methods_of(name)
        adapter = get_problem(name)
        tables[name] = {
            "instance_settings": list(adapter.settings),
            "space_settings": list(getattr(adapter, "space_settings", ())),
            "methods": {
                method: {
                    "summary": rows[method].summary if method in rows else "another distribution",
                    "settings": list(rows[method].all_settings) if method in rows else None,
                }
                for method in method_names(name)
            },
            "settings": {
                key: row.to_json()
                for key, row in import_module(f"nestopt.{name}.settings").SETTINGS.items()
            },
            "names": {
                part: {row.key: row.to_json() for row in RECIPE_KEYS[part]} for part in PARTS[name]
            },
        }
    if json:
        print_json({"schema": SCHEMA, "problems": tables})
        return
    for name, table in tables.items():
        _print(name, table)


def _print(name: str, table: dict[str, Any]) -> None:
    """One problem's methods, with the settings of each, and what names may carry."""

    def rows(keys: list[str], method: str | None = None) -> str:
        found = {key: setting_of(name, key, method) for key in keys}
        unknown = [f"    {key}" for key, row in found.items() if row is None]
        known = rows_text((row for row in found.values() if row is not None), indent=4)
        return "\n".join([*known, *unknown])

    print(f"{name}\n")
    for method, row in table["methods"].items():
        definitions([(method, row["summary"])])
        if row["settings"]:
            print(rows(row["settings"], method))
    for title, keys in (("instance", "instance_settings"), ("plan space", "space_settings")):
        if table[keys]:
            print(f"\n  settings of the {title}, with every method:")
            print(rows(table[keys]))
    for part in table["names"]:
        print(f"\n  keys of --{part} names:")
        print("\n".join(rows_text(RECIPE_KEYS[part], indent=4)))
    print()
