"""``nestopt plot``."""

from __future__ import annotations

from typing import Annotated

import typer

from nestopt.cli.parameters import ResultArgument

__all__ = ["plot"]


def plot(
    result: ResultArgument,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Picture to write: .pdf, .png or .svg."
        ),
    ],
) -> None:
    """Draw a plan or a schedule.

    A plan: its stages on the cluster's tree, and the pipeline's timeline. A schedule:
    the links over time, and the topology coloured by link load. Needs matplotlib
    (pip install 'nestopt[plot]').

    \b
    Examples:
      nestopt plot plan.json -o plan.pdf
      nestopt plot ag.json -o ag.png

    \b
    Exit status:
      0  the picture was written
      1  the file cannot be read, holds no solution, or matplotlib is missing
      2  wrong command line
    """
    from nestopt import api
    from nestopt.cli.inputs import writable
    from nestopt.cli.output import note

    target = writable("--output", output, (".pdf", ".png", ".svg"))
    api.plot(result, target)
    note(f"wrote {target}")
