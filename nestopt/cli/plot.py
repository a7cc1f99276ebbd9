"""``nestopt plot``."""

from __future__ import annotations

from typing import Annotated

import typer

from nestopt import api
from nestopt.cli.inputs import writable
from nestopt.cli.output import note
from nestopt.cli.parameters import ResultArgument

__all__ = ["plot"]


def plot(
    result: ResultArgument,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write: .pdf, .png or .svg (a picture), .html (an interactive page). "
            "Without it the picture is printed here.",
        ),
    ] = None,
) -> None:
    """Draw a plan or a schedule: a picture, an interactive page, or text in the terminal.

    A plan: its stages on the cluster's tree, and the pipeline's timeline. A schedule:
    the links over time by kind, and the network coloured by link load. Pictures need
    matplotlib (pip install 'nestopt[plot]'); the page and the terminal do not.

    \b
    Examples:
      nestopt plot plan.json
      nestopt plot plan.json -o plan.pdf
      nestopt plot ag.json -o ag.html

    \b
    Exit status:
      0  the picture was printed or written
      1  the file cannot be read, holds no solution, or matplotlib is missing
      2  wrong command line
    """
    if output is None:
        api.plot(result)
        return
    target = writable("--output", output, (".pdf", ".png", ".svg", ".html"))
    api.plot(result, target)
    note(f"wrote {target}")
