"""``nestopt library``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from nestopt.cli.inputs import read_result, thread_count
from nestopt.cli.output import definitions, note, print_json, quantity, stdout_to_stderr
from nestopt.cli.parameters import JsonOption
from nestopt.collective.model.collective import PATTERNS
from nestopt.core.errors import CheckError, UsageError, unknown_name
from nestopt.core.verify import verify_file
from nestopt.instances.jobs import FAMILIES
from nestopt.instances.library import CLASSES, Archive, rows, show, update
from nestopt.instances.topologies import FAMILIES as TOPOLOGIES

__all__ = ["library"]

PROBLEMS = ("placement", "collective")
KINDS = ("workload", "cluster", "collective", "topology")

library = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="""Named instances with the best objective and bound ever reached.

    \b
    Examples:
      nestopt library list placement
      nestopt library show ag-dgx1v
      nestopt library verify --solve ag-dgx1v ag-mesh3x3
      nestopt library update result.json
      nestopt library names topology
    """,
)

_LABELS = {"published_optimum": "published"}

ArchiveOption = Annotated[
    str | None,
    typer.Option(
        "--archive",
        metavar="BKS.json",
        help="The archive of best-known values. Default: the one of this installation.",
    ),
]


@library.command("list", short_help="The instances and what is known of them.")
def list_entries(
    problem: Annotated[
        str | None,
        typer.Argument(
            metavar="PROBLEM", help="placement or collective. Default: both.", show_default=False
        ),
    ] = None,
    archive: ArchiveOption = None,
    json: JsonOption = False,
) -> None:
    """List the instances: best objective and bound, gap, class and method.

    The gap is (best - bound) / best, best-known objective to best-known bound. The class
    is by the CPU time of the proof: toy up to 1 s, easy 10 s, medium 60 s, hard longer;
    open: not proved yet. The method reached the best objective; after a comma, if another one did,
    the method that reached the bound.

    \b
    Examples:
      nestopt library list
      nestopt library list collective --json
    """
    if problem is not None and problem not in PROBLEMS:
        raise unknown_name("problem", problem, PROBLEMS)
    table = rows(Archive.open(archive), problem)
    if json:
        print_json({"schema": "nestopt.library/1", "entries": table})
        return
    widths = (24, 9, 9, 6, 6, 14)
    _row(("name", "best", "bound", "gap", "class", "method"), widths)
    for row in table:
        reached = dict.fromkeys((row["objective_method"], row["bound_method"]))
        _row(
            (
                row["name"],
                quantity(row["problem"], row["objective"]),
                quantity(row["problem"], row["bound"]),
                "-" if row["gap"] is None or math.isinf(row["gap"]) else f"{row['gap']:.2%}",
                row["class"],
                ", ".join(method for method in reached if method) or "-",
            ),
            widths,
        )
    classes = [row["class"] for row in table]
    counts = ", ".join(f"{classes.count(name)} {name}" for name in CLASSES if name in classes)
    print(f"{len(table)} instances: {counts}")


@library.command("show", short_help="Everything about one instance.")
def show_entry(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a library instance.")],
    archive: ArchiveOption = None,
    json: JsonOption = False,
) -> None:
    """Show how an instance is made, where it comes from, its record and its last runs.

    \b
    Examples:
      nestopt library show ag-dgx1v
    """
    data = show(name, Archive.open(archive))
    if json:
        print_json({"schema": "nestopt.library-entry/1"} | data)
        return
    runs = data.pop("runs")
    entries = [(_LABELS.get(key, key.replace("_", " ")), _text(data, key)) for key in data]
    definitions([(key, text) for key, text in entries if text], indent=0)
    if runs:
        print()
        widths = (10, 11, 11, 9, 11)
        _row(("run", "objective", "bound", "CPU s", "ended"), widths)
    for run in runs:
        ended = run["reason"] + (f", {run['limit']}" if run["limit"] != "none" else "")
        values = (quantity(data["problem"], run[key]) for key in ("objective", "bound"))
        _row((run["method"], *values, f"{run['cpu_seconds']:.2f}", ended), widths)


@library.command("verify", short_help="Check instances and their records.")
def verify_entries(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...", help="Library instances. Default: all.", show_default=False
        ),
    ] = None,
    solve: Annotated[
        bool,
        typer.Option(
            "--solve", help="Run each instance's methods too, within the limit of its class."
        ),
    ] = False,
    record: Annotated[
        bool,
        typer.Option(
            "--record",
            help="With --solve: use one thread and keep the runs in runs.csv beside the archive.",
        ),
    ] = False,
    archive: ArchiveOption = None,
    json: JsonOption = False,
) -> None:
    """Check that instances are generated as recorded and that kept solutions hold.

    With --solve every method's result must pass the checker and contradict neither the
    best objective nor the best bound. Best values change through `library update` alone.

    \b
    Examples:
      nestopt library verify
      nestopt library verify --solve ag-dgx1v
      nestopt library verify --solve --record ag-dgx1v

    \b
    Exit status:
      0  everything holds
      5  something does not (named on stderr)
    """
    from nestopt.instances.library import Archive, entries, read_runs, runs_path, verify, write_runs

    if record and not solve:
        raise UsageError("--record keeps the runs of --solve; give both")
    known = Archive.open(archive)
    threads = thread_count(1 if record else None)
    runs = read_runs(runs_path(known))
    lines: list[str] = []
    faults: list[str] = []
    for name in names or list(entries()):
        try:
            with stdout_to_stderr():
                found = verify(name, known, solve=solve, threads=threads, runs=runs)
        except CheckError as error:
            faults.append(str(error))
            note(f"error: {error}")
            continue
        if record:
            write_runs(runs, runs_path(known))
        lines += found
        if not json:
            for line in found:
                print(f"ok  {line}")
    if faults:
        raise CheckError(f"{len(faults)} of the library's checks failed, first: {faults[0]}")
    if json:
        print_json({"schema": "nestopt.library-check/1", "verified": lines})
    else:
        print(f"passed, {len(lines)} points verified")


@library.command("update", short_help="Take a better result into the archive.")
def update_entry(
    result: Annotated[
        str, typer.Argument(metavar="RESULT.json", help="Result of a library instance.")
    ],
    archive: ArchiveOption = None,
    json: JsonOption = False,
) -> None:
    """Take a result into the archive if the checker accepts it and it improves something.

    A bound is taken if a witness in the file proves it; else its method runs again, and what
    that run proves is taken.

    \b
    Examples:
      nestopt library update result.json
      nestopt library update result.json --archive my-bks.json

    \b
    Exit status:
      0  taken, or nothing improves
      2  no library instance has this instance, objective and space
      5  the checker refuses it, or it contradicts the archive
    """
    verify_file(result)
    with Archive.changing(archive) as known:
        lines = update(read_result(result), known, directory=Path(result).parent)
        if lines:
            known.save()
    if json:
        print_json({"schema": "nestopt.library-update/1", "improved": lines})
        return
    for line in lines or [f"{result}: improves nothing"]:
        print(line)


@library.command("names", short_help="Names that solve, generate and bound understand.")
def list_names(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="workload, cluster, collective or topology. Default: all.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the names of workloads, clusters, collectives and topologies.

    A family takes parameters after a colon: torus2d:8x8, all-gather:size=16MiB.

    \b
    Examples:
      nestopt library names
      nestopt library names workload
    """
    if kind is not None and kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    found = {name: _names(name) for name in KINDS if kind in (None, name)}
    if json:
        print_json({"schema": "nestopt.names/1", "names": found})
        return
    definitions([(name, ", ".join(members)) for name, members in found.items()], indent=0)


def _names(kind: str) -> list[str]:
    if kind == "workload":
        from nestopt.instances.workloads import names

        return sorted([*names(), *FAMILIES])
    if kind == "cluster":
        from nestopt.instances.clusters import names

        return sorted([*names(), "tree"])
    if kind == "collective":
        return sorted(PATTERNS)

    return sorted(TOPOLOGIES)


def _row(cells: tuple[str, ...], widths: tuple[int, ...]) -> None:
    text = "  ".join(
        f"{cell:>{width}}" if 1 <= column <= 3 else f"{cell:<{width}}"
        for column, (cell, width) in enumerate(zip(cells, widths))
    )
    print(text.rstrip())


def _text(data: dict[str, Any], key: str) -> str:
    """One value of an entry for people."""
    value = data[key]
    if value is None or value == {} or (key == "space" and data["problem"] == "collective"):
        return ""
    if key in ("best_objective", "best_bound"):
        shown = quantity(data["problem"], value["value"])
        return f"{shown} by {value['method']} in {value['seconds']} s, {value['date']}"
    if key == "published_optimum":
        return quantity(data["problem"], value)
    if key == "gap":
        return f"{value:.2%}"
    if isinstance(value, dict):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
