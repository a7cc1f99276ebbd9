"""``nestopt validate``."""

from __future__ import annotations

from typing import Annotated

import typer

from nestopt.cli.parameters import JsonOption

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

    For every published figure: measured, predicted, relative error, and "fitted" if the
    calibration saw it; all others are only predicted. For every table: mean absolute
    relative error (MAPE), Spearman rank correlation, and regret (what choosing by
    prediction would have cost). For AxoNN's runs: the time as the overlaps are switched
    on one after the other, by formulas and by event simulation.

    \b
    Examples:
      nestopt validate
      nestopt validate --table narayanan2021_table1 --json
    """
    from nestopt.cli.output import console, print_json
    from nestopt.fourd.report import describe
    from nestopt.fourd.validate import validate as compare

    reports = compare(table or ())
    if json:
        print_json({"schema": SCHEMA, "tables": [report.to_json() for report in reports]})
    else:
        describe(reports, console())
