"""``nestopt validate``."""

from __future__ import annotations

from typing import Annotated

import typer

from nestopt.cli.parameters import JsonOption
from nestopt.errors import unknown_name

__all__ = ["validate"]

SCHEMA = "nestopt.validation/1"


def validate(
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAME",
            help="Print this table only; may be given several times. Default: all.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare predictions with measured training runs of the literature.

    For every published figure: measured, predicted, relative error, and whether the
    calibration saw it. For every table: mean absolute relative error (MAPE), Spearman
    rank correlation, and regret (what choosing by prediction would have cost).

    \b
    Examples:
      nestopt validate
      nestopt validate --table narayanan2021_table1 --json
    """
    from nestopt.cli.output import console, print_json
    from nestopt.fourd.validate import describe
    from nestopt.fourd.validate import validate as compare

    reports = compare()
    for name in table or ():
        if name not in (report.table for report in reports):
            raise unknown_name("table", name, [report.table for report in reports])
    if table:
        reports = [report for report in reports if report.table in table]
    if json:
        print_json({"schema": SCHEMA, "tables": [report.to_json() for report in reports]})
    else:
        describe(reports, console())
