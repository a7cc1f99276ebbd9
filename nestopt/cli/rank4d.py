"""``nestopt rank4d``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nestopt.cli.output import console, print_json
from nestopt.cli.parameters import CalibrationOption, FailOption, JsonOption
from nestopt.core.errors import UsageError, unknown_name
from nestopt.core.pricing import DEFAULT_SET
from nestopt.fourd.models import dense_model
from nestopt.fourd.overlap import Overlap
from nestopt.placement.pricing.parameters import using_set

if TYPE_CHECKING:
    from nestopt.fourd.overlap import Overlap

__all__ = ["rank4d"]

MODES = ("full", "layers", "corrected", "published")
DEFAULT_OVERLAPS = "all-reduce,reduce-scatter,all-gather,data"


def rank4d(
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            metavar="W",
            help="A dense transformer of the library, such as axonn-80b or gpt3-175b.",
        ),
    ],
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", metavar="C", help="A cluster of the library, such as perlmutter-1024."
        ),
    ],
    fail: FailOption = None,
    batch: Annotated[
        int | None,
        typer.Option(
            "--batch", metavar="N", help="Global batch in sequences. Default: one a device."
        ),
    ] = None,
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            metavar="NAME",
            help="Model: full (the placement model: what solve charges the one-stage plan), "
            "layers (AxoNN's overlaps product by product, on its measured bandwidths), "
            "corrected (AxoNN's communication alone, with the right sizes) or published (as "
            "released).",
        ),
    ] = MODES[0],
    overlap: Annotated[
        str,
        typer.Option(
            "--overlap",
            metavar="LIST",
            help="Modes full and layers: what is hidden behind compute; any of all-reduce, "
            "reduce-scatter, all-gather, data, cache-weights, two-way with commas between, or "
            "none. The mode full has the first three together or not at all.",
        ),
    ] = DEFAULT_OVERLAPS,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", help="How many decompositions to print.")
    ] = 10,
    calibration: CalibrationOption = None,
    json: JsonOption = False,
) -> None:
    """Rank the 4D decompositions (Gx, Gy, Gz, Gdata) of a transformer on a cluster.

    For each: the bytes that a device sends, the time of all communication, what of it
    overlap leaves exposed, the iteration time (in the mode layers by event simulation
    too), and the memory of a device. The best comes first; what does not fit comes last.

    \b
    Examples:
      nestopt rank4d --workload axonn-80b --cluster perlmutter-1024
      nestopt rank4d --workload gpt3-175b --cluster perlmutter-512 --batch 1024
      nestopt rank4d --workload axonn-20b --cluster perlmutter-64 --mode published

    \b
    Exit status:
      0  a ranking was printed
      1  the job divides into no decomposition
      2  wrong command line
    """
    from nestopt.fourd.rank import describe, rank_table

    if mode not in MODES:
        raise unknown_name("mode", mode, MODES)
    if batch is not None and batch < 1:
        raise UsageError(f"--batch {batch}: expected at least 1")
    if rows < 1:
        raise UsageError(f"--rows {rows}: expected at least 1")
    place = cluster if fail is None else f"{cluster}+fail:{fail.replace(' ', '')}"
    hidden = _overlap(overlap)
    with using_set(calibration or DEFAULT_SET):
        model = dense_model(workload)
        table = rank_table(model, place, batch=batch, mode=mode, overlap=hidden, simulate_rows=rows)
    if json:
        print_json(table.to_json())
    else:
        describe(table, console(), rows=rows)


def _overlap(text: str) -> Overlap:
    from dataclasses import fields

    names = [field.name.replace("_", "-") for field in fields(Overlap)]
    wanted = [] if text == "none" else [part.strip() for part in text.split(",")]
    for name in wanted:
        if name not in names:
            raise unknown_name("overlap", name, (*names, "none"))
    return Overlap(**{name.replace("-", "_"): True for name in wanted})
