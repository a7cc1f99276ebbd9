"""``nestopt validate``."""

from __future__ import annotations

from typing import Annotated

import typer

from nestopt.cli.output import console, print_json
from nestopt.cli.parameters import CalibrationOption, JsonOption
from nestopt.core.pricing import DEFAULT_SET
from nestopt.fourd.report import describe, totals
from nestopt.placement.pricing.parameters import using_set

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
    calibration: CalibrationOption = None,
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
    from nestopt.fourd.validate import validate as compare

    with using_set(calibration or DEFAULT_SET):
        reports = compare(table or ())
    total = totals(reports)
    if json:
        print_json(
            {
                "schema": SCHEMA,
                "tables": [report.to_json() for report in reports],
                "iteration_times": None if total is None else total.to_json(),
            }
        )
    else:
        describe(reports, console())
        if total is not None:
            console().print(str(total))
