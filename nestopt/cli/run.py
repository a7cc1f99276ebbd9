"""``nestopt run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from nestopt.cli.inputs import parse_limit
from nestopt.cli.output import print_json
from nestopt.cli.parameters import JsonOption
from nestopt.core.errors import UsageError
from nestopt.core.units import format_seconds, parse_bytes
from nestopt.interop.run.data import check_dtype
from nestopt.interop.run.launch import Job, launched, run_here, run_locally
from nestopt.interop.run.runner import BACKENDS

if TYPE_CHECKING:
    from nestopt.interop.run.launch import Report

__all__ = ["run"]

SCHEMA = "nestopt.run/1"
OWN = "own"


def run(
    schedule: Annotated[
        str,
        typer.Argument(
            metavar="SCHEDULE.json",
            help="A schedule that `nestopt solve --output` wrote, its side files beside it.",
        ),
    ],
    backend: Annotated[
        str,
        typer.Option("--backend", metavar="NAME", help="mpi, gloo (torch on CPUs) or nccl (GPUs)."),
    ] = "mpi",
    sizes: Annotated[
        str,
        typer.Option(
            "--sizes",
            metavar="LIST",
            help="Bytes of the whole buffer on a rank, separated by commas; `own` is what the "
            "instance states.",
        ),
    ] = "1KiB,32KiB,1MiB,8MiB,64MiB",
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype", metavar="LIST", help="Elements: int64, int32, float32, float64; by commas."
        ),
    ] = "int64,float32",
    iterations: Annotated[
        int, typer.Option("--iterations", metavar="N", min=1, help="Timed runs of each size.")
    ] = 5,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", metavar="TIME", help="End local ranks after this time."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Execute a schedule on real processes, with real data.

    Each NPU that takes part is a process; a way through switches is one message. All
    elements are compared with the library's own collective: copies and sums of integers
    exactly, sums of floats up to the rounding of their additions. Both are timed.

    Starts the processes on this machine (up to 64), or is one of those that mpiexec or
    torchrun started: there, give every process this same command line. The times of
    local ranks that share cores say little about the network.

    \b
    Examples:
      nestopt run ag.json
      nestopt run ar.json --sizes own,16MiB --dtype float32
      mpiexec -n 16 nestopt run ag.json --json
      torchrun --nproc-per-node 8 --no-python nestopt run ag.json --backend nccl

    \b
    Exit status:
      0  all data are right
      1  the schedule cannot be run here, or a package is missing (said which)
      2  wrong command line
      5  wrong data (rank, chunk and element are named)
    """
    if backend not in BACKENDS:
        raise UsageError(f"--backend {backend}: expected {', '.join(BACKENDS)}")
    types = tuple(dict.fromkeys(word.strip() for word in dtype.split(",")))
    for each in types:
        check_dtype(each)
    job = Job(schedule, backend, _sizes(sizes), types, iterations)
    if launched(backend):
        rank, report = run_here(job)
        if rank:
            return
    else:
        limit = None if timeout is None else parse_limit(timeout)
        report = run_locally(job, timeout=limit)
    if json:
        print_json(
            {"schema": SCHEMA, "file": schedule, "backend": backend, "ranks": report.ranks}
            | {"library": report.library, "right": True, "rows": report.rows}
        )
        return
    _print(schedule, report)


def _sizes(text: str) -> tuple[int | None, ...]:
    found: list[int | None] = []
    for word in (each.strip() for each in text.split(",")):
        value = None if word == OWN else parse_bytes(word, "--sizes")
        if value is not None and (value < 1 or value != int(value)):
            raise UsageError(f"--sizes {word}: expected a positive whole number of bytes, or own")
        found.append(None if value is None else int(value))
    return tuple(found)


def _print(schedule: str, report: Report) -> None:
    print(f"{schedule}: {report.ranks} ranks, {report.library}")
    heads = f"{'bytes':>12} {'type':>8} {'elements':>12} {'error':>9}"
    print(f"{heads} {'schedule':>11} {'library':>11}")
    for row in report.rows:
        print(
            f"{row['nbytes']:>12} {row['dtype']:>8} {row['elements']:>12} {_error(row):>9} "
            f"{_seconds(row['schedule_s']):>11} {_seconds(row['library_s']):>11}"
        )
    print("all data are as the library's own collective has them")


def _error(row: dict[str, Any]) -> str:
    return f"{row['worst_error']:.1e}" if row["allowed_error"] else "exact"


def _seconds(value: float) -> str:
    return format_seconds(value)
