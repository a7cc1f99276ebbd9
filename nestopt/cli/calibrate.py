"""``nestopt calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nestopt.cli import inputs
from nestopt.cli.output import console, note, print_json
from nestopt.cli.parameters import JsonOption
from nestopt.core.io import write_json
from nestopt.core.pricing import DEFAULT_SET
from nestopt.fourd.user_runs import read_runs
from nestopt.placement.pricing.parameters import using_set

__all__ = ["calibrate"]

SCHEMA = "nestopt.calibration/1"


def calibrate(
    runs: Annotated[str, typer.Argument(metavar="RUNS.csv", help="Measured runs, one a row.")],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.json",
            help="Write the fitted parameters here, for --calibration and --set pricing=.",
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option("--base", metavar="SET", help="The set to start from. Default: nestopt-2."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Fit device parameters to your own measured runs.

    Fits efficiency, half_flops and memory fraction of each device type to iteration
    times, and says how well: the error of each run, and the error of predictions by fits
    that have not seen the run. Columns of RUNS.csv: name, model, device, gpus, tensor,
    pipeline, data, batch, microbatch, seconds; optional: cluster, context, chunks,
    recompute, sequence_parallel, zero, gradient_bytes, framework.

    \b
    Examples:
      nestopt calibrate runs.csv -o mine.json
      nestopt solve --workload llama3-8b --cluster dgx-h100-64 \\
          --calibration mine.json

    \b
    Exit status:
      0  fitted
      1  error in the file
      2  wrong command line
    """
    from nestopt.fourd.calibrate import calibrate as fit_all
    from nestopt.fourd.calibrate import to_json

    target = None if output is None else inputs.writable("--output", output, (".json",))
    with using_set(base or DEFAULT_SET):
        found = fit_all(read_runs(runs))
        data = to_json(found, Path(output or runs).stem, f"nestopt calibrate {Path(runs).name}")
    if target is not None:
        write_json(target, data)
        note(f"wrote {target}")
    if json:
        rows = [
            {
                "device": fitted.device,
                "fitted": {key: getattr(fitted.figures, key) for key in fitted.free},
                "mape": fitted.mape,
                "mape_cross_validated": fitted.mape_crossed,
                "runs": [
                    dict(zip(("name", "measured", "predicted", "left_out"), row, strict=True))
                    for row in fitted.rows
                ],
            }
            for fitted in found
        ]
        print_json({"schema": SCHEMA, "devices": rows, "parameters": data})
        return
    from rich.table import Table

    for fitted in found:
        figures = ", ".join(f"{key} {getattr(fitted.figures, key):.4g}" for key in fitted.free)
        console().print(f"{fitted.device}: {figures}", soft_wrap=True)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column("run", overflow="fold")
        for column in ("measured s", "fitted s", "error", "left out"):
            table.add_column(column, justify="right", no_wrap=True)
        for name, seconds, predicted, out in fitted.rows:
            table.add_row(
                name,
                f"{seconds:.4g}",
                f"{predicted:.4g}",
                f"{100 * (predicted / seconds - 1):+.1f} %",
                "" if out is None else f"{100 * (out / seconds - 1):+.1f} %",
            )
        console().print(table)
        crossed = fitted.mape_crossed
        text = f"MAPE {100 * fitted.mape:.1f} % of the fitted runs"
        text += "" if crossed is None else f"; {100 * crossed:.1f} % of runs left out of the fit"
        console().print(text + "\n")
