"""The part of ``nestopt sweep`` that is about plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nestopt import api
from nestopt.cli import inputs
from nestopt.cli.compiling import announce_compilation
from nestopt.cli.output import note, print_json, stdout_to_stderr
from nestopt.core.errors import UsageError
from nestopt.core.registry import methods_of
from nestopt.core.units import format_seconds
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.show.plot_sweep import plot_front
from nestopt.placement.sweep import Cell, points, run_cells

if TYPE_CHECKING:
    from nestopt.core.result import Result
    from nestopt.placement.economics.terms import Terms
    from nestopt.placement.sweep import Cell, Point

__all__ = ["PlanSweep", "sweep_plans"]

SCHEMA = "nestopt.placement-sweep/1"


@dataclass(frozen=True, slots=True)
class PlanSweep:
    """What is swept, in the words of the command line; see the options of the same names."""

    workload: str
    clusters: tuple[str, ...]
    sizes: str | None
    factor: int
    batches: str | None
    methods: tuple[str, ...]
    space: str | None
    setting: list[str]
    time_limit: str | None
    seed: int


def sweep_plans(
    asked: PlanSweep, terms: Terms, output: str | None, picture: str | None, *, as_json: bool
) -> None:
    """Solve every cell, print the table, write the picture."""
    endings = (".pdf", ".png", ".svg")
    target = None if picture is None else inputs.writable("--plot", picture, endings)
    file = None if output is None else inputs.writable("--output", output, (".jsonl",))
    cells = _cells(asked)
    announce_compilation(quiet=as_json)
    found = []
    for row, known in run_cells(cells, _solve, file):
        found.append(row)
        if not as_json:
            how = f"from {output}" if known else f"{row.seconds:.1f} s"
            note(f"cell {len(found)} of {len(cells)}: {row.cluster}, batch {row.batch}: "
                 f"{row.reason}, {how}")  # fmt: skip
    made = points(found, terms)
    if as_json:
        rows = [point.to_json() for point in made]
        print_json({"schema": SCHEMA, "terms": terms.to_json(), "rows": rows})
    else:
        _print(made, terms)
    if target is not None:
        plot_front(made, terms, target)
        note(f"wrote {target}")


def _solve(cell: Cell, method: str) -> Result:
    with stdout_to_stderr():
        return api.solve(cell.instance, method=method, time_limit=cell.time_limit, seed=cell.seed)


def _cells(asked: PlanSweep) -> list[Cell]:
    known = methods_of("placement")
    for name in asked.methods:
        if name not in known:
            raise UsageError(f"--methods {name}: expected some of {', '.join(known)}")
    if asked.seed < 0:
        raise UsageError(f"--seed {asked.seed}: expected 0 or more")
    limit = inputs.parse_limit(asked.time_limit)
    settings: dict[str, Any] = inputs.parse_settings(asked.setting)
    if "batch" in settings:
        raise UsageError("--set batch: a sweep has --batches")
    cells = []
    for name in _clusters(asked):
        for batch in _batches(asked.batches):
            more = settings if batch is None else settings | {"batch": str(batch)}
            made = api.instance(
                asked.workload, name, problem="placement", space=asked.space, settings=more
            )
            if not isinstance(made, PlacementInstance):
                raise UsageError("--set model: a sweep is of the pipeline model")
            cells.append(Cell(name, made, asked.methods, limit, asked.seed))
    return cells


def _clusters(asked: PlanSweep) -> list[str]:
    patterns = [name for name in asked.clusters if "{N}" in name]
    if asked.sizes is None:
        if patterns:
            raise UsageError(f"--cluster {patterns[0]}: {{N}} needs --sizes, such as 64..512")
        return list(asked.clusters)
    if not patterns:
        raise UsageError("--sizes: no --cluster has {N} for the number of devices")
    sizes = _counts(asked.sizes, asked.factor)
    return [
        name.replace("{N}", str(size))
        for name in asked.clusters
        for size in (sizes if "{N}" in name else sizes[:1])
    ]


def _counts(text: str, factor: int) -> list[int]:
    """Numbers of devices: a list, or from A to B, each `factor` times the one before."""
    first, dots, last = text.partition("..")
    if not dots:
        return [_whole("--sizes", part) for part in text.split(",")]
    low, high = _whole("--sizes", first), _whole("--sizes", last)
    if low > high:
        raise UsageError(f"--sizes {text}: expected two sizes that grow")
    if factor < 2:
        raise UsageError(f"--factor {factor}: expected at least 2")
    found = [low]
    while found[-1] * factor <= high:
        found.append(found[-1] * factor)
    return found


def _batches(text: str | None) -> list[int | None]:
    return [None] if text is None else [_whole("--batches", part) for part in text.split(",")]


def _whole(option: str, text: str) -> int:
    word = text.strip()
    if not (word.isascii() and word.isdigit() and 0 < int(word) < 2**31):
        raise UsageError(f"{option} {text}: expected a positive whole number")
    return int(word)


_WIDTHS = (7, 6, 9, 6, 9, 8, 10, 8, 7, 1)


def _line(*cells: str) -> str:
    return " ".join(f"{cell:>{w}}" for cell, w in zip(cells, _WIDTHS, strict=True)).rstrip()


def _print(made: list[Point], terms: Terms) -> None:
    cluster = ""
    last = "money" if terms.price is not None else "device-h"
    print(_line("devices", "batch", "iteration", "MFU", "tokens/s", "days", last, "goodput",
                "gap", ""))  # fmt: skip
    print(_line("", "", "", "alive", "a device", "", "", "", "to bound", "")[:79])
    for point in made:
        found, report = point.found, point.report
        if found.cluster != cluster:
            cluster = found.cluster
            print(f"{found.workload.partition(',')[0]} on {cluster}")
        head = str(found.devices), str(found.batch)
        if report is None or found.figures is None:
            why = f": {found.because[0]}" if found.because else ""
            print(f"{head[0]:>7} {head[1]:>6} {found.reason}{why}"[:79])
            continue
        gap = "-" if found.gap is None else f"{100 * found.gap:.1f} %"
        amount = report.device_hours if report.money is None else report.money
        print(_line(
            *head, format_seconds(found.figures.iteration_seconds),
            f"{100 * report.mfu_alive:.1f} %",
            f"{report.tokens_per_second / report.devices_alive:,.0f}",
            f"{report.days:,.4g}", f"{amount:,.0f}" if amount < 1e7 else f"{amount:.4g}",
            f"{100 * report.goodput:.1f} %", "0" if found.gap == 0 else gap,
            "*" if point.front else "",
        ))  # fmt: skip
    print("* no other cell takes fewer days and device-hours (Pareto front)")
