"""``nestopt plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nestopt.cli.parameters import ResultArgument
from nestopt.core.errors import InputError, NestoptError

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
    from nestopt.cli.inputs import read_result, writable
    from nestopt.cli.output import note
    from nestopt.core.problem import get_problem

    target = writable("--output", output, (".pdf", ".png", ".svg"))
    loaded = read_result(result)
    if loaded.solution_json is None:
        raise InputError("is null; nothing to draw", file=result, field="solution")
    try:
        get_problem(loaded.problem).plot(loaded, target, directory=Path(result).parent)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "matplotlib":
            raise
        raise NestoptError("plot needs matplotlib: pip install 'nestopt[plot]'") from error
    note(f"wrote {target}")
