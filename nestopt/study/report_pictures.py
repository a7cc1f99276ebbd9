"""The pictures of a study's report, each a figure or None where the records do not allow it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.study.comparison import (
    gap_to_bound,
    grouped,
    instance_key,
    number,
    problem_key,
    proved,
    seconds_counted,
    solved,
    timed_out,
)
from nestopt.study.drawing import PAGE, draw_profile, line_styles, log_scale, plain
from nestopt.study.statistics import ecdf, performance_profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from nestopt.study.comparison import Record

__all__ = ["gap_figure", "profile_figure", "size_parameter", "time_figure"]

_SIZES = ("size", "npus", "devices", "layers")


def _methods(records: Sequence[Record]) -> dict[str, list[Record]]:
    return {str(k): rows for k, rows in grouped(records, lambda r: r["method"]).items()}


def _axes(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(PAGE * 0.8, 2.9))
    axes = figure.subplots()
    axes.set_title(title, loc="left")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    return figure, axes


def _legend(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def _feasible(records: Sequence[Record]) -> tuple[list[Record], str]:
    """Without the instances that are infeasible to all who decided; a note that says how many."""
    groups = grouped(records, instance_key)
    gone = {
        key for key, rows in groups.items() if not any(map(solved, rows)) and any(map(proved, rows))
    }
    kept = [row for row in records if instance_key(row) not in gone]
    return kept, f" ({len(gone)} infeasible instances left out)" if gone else ""


def gap_figure(records: Sequence[Record]) -> Figure | None:
    """Distribution of the gap to bound by method; runs without a gap count in the shares."""
    rows, note = _feasible(records)
    tables = _methods(rows)
    looks = line_styles(list(tables))
    figure, axes = _axes(
        f"Gap to the run's own bound{note}", "(objective - bound) / objective, %", "share of runs"
    )
    drawn = False
    for method, rows in tables.items():
        gaps = [gap_to_bound(row) for row in rows]
        x, shares = ecdf([math.inf if gap is None else 100 * gap for gap in gaps])
        found = sum(gap is not None and math.isfinite(gap) for gap in gaps)
        drawn |= found > 0
        axes.step(
            np.concatenate([[0], x, [100]]),
            np.concatenate([[0], shares, shares[-1:] if shares.size else [0]]),
            where="post",
            label=plain(f"{method} ({found} of {len(rows)})"),
            color=looks[method]["color"],
            linestyle=looks[method]["linestyle"],
        )
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlim(0, 100)
    axes.set_xticks([0, 0.1, 1, 10, 100], ["0", "0.1", "1", "10", "100"])
    axes.set_ylim(0, 1.03)
    _legend(axes)
    return figure if drawn else None


def profile_figure(records: Sequence[Record], what: str) -> Figure | None:
    """Performance profile of objectives or of CPU seconds; None with fewer than two methods.

    Problems are the pairs of instance and kind of objective that every method ran; of several
    seeds the median counts.

    Parameters
    ----------
    records : sequence of mapping
    what : str
        ``"objective"`` (infinite without a solution) or ``"time"`` (infinite for a run that a time
        limit, a memory limit or an error ended).
    """
    chosen, note = _feasible(records) if what == "objective" else (list(records), "")
    tables = {
        method: {
            key: float(np.median([_cost(row, what) for row in runs]))
            for key, runs in grouped(rows, lambda r: (instance_key(r), problem_key(r)[1])).items()
        }
        for method, rows in _methods(chosen).items()
    }
    if len(tables) < 2:
        return None
    first, *others = tables.values()
    shared = [key for key in first if all(key in table for table in others)]
    costs = np.array([[table[key] for table in tables.values()] for key in shared])
    if not shared or np.isnan(costs).any() or (costs <= 0).any() or not np.isfinite(costs).any():
        return None
    profile = performance_profile(costs)
    every = len(set().union(*tables.values()))
    names = {"objective": "objective", "time": "CPU time"}
    figure, axes = _axes(
        f"Performance profile of the {names[what]}: {len(shared)} of {every} instances, "
        f"those that all methods ran{note}",
        f"{names[what]} / best method's",
        "share of instances",
    )
    draw_profile(axes, profile, line_styles(list(tables)))
    _legend(axes)
    return figure


def _cost(record: Record, what: str) -> float:
    if what == "objective":
        return float(record["objective"]) if solved(record) else math.inf
    ended = record["termination"]
    if ended["reason"] == "error" or ended.get("limit") in ("time", "memory"):
        return math.inf
    return seconds_counted(record)


def size_parameter(records: Sequence[Record], hint: str | None = None) -> str | None:
    """The parameter that measures size: `hint`, or the first usual one with two numeric values."""
    for name in (hint, *_SIZES):
        values = {
            (record.get("parameters") or {}).get(name) for record in records if name is not None
        }
        numeric = {v for v in values if isinstance(v, int | float) and v > 0}
        if len(numeric) > 1:
            return name
    return None


def time_figure(records: Sequence[Record], size: str) -> Figure | None:
    """CPU seconds against a size: every run, medians joined; open marks ended at the limit."""
    figure, axes = _axes(
        "Time of every run; lines join medians, open marks ended at the time limit",
        plain(size),
        "CPU time, s (timeouts at the limit)",
    )
    tables = _methods(records)
    looks = line_styles(list(tables))
    drawn = False
    for method, rows in tables.items():
        points = []
        for row in rows:
            value = _positive((row.get("parameters") or {}).get(size))
            known = any(number(row.get(clock)) is not None for clock in ("method_cpu", "cpu"))
            if value is not None and known:
                points.append((value, seconds_counted(row), timed_out(row)))
        if not points:
            continue
        drawn = True
        look: dict[str, Any] = looks[method]
        for late in (False, True):
            chosen = [(x, y) for x, y, cut in points if cut is late]
            axes.plot(
                [x for x, _ in chosen],
                [y for _, y in chosen],
                linestyle="none",
                marker=look["marker"],
                markersize=3,
                alpha=0.6,
                color=look["color"],
                markerfacecolor="none" if late else look["color"],
            )
        sizes = sorted({x for x, _, _ in points})
        middle = [float(np.median([y for x, y, _ in points if x == place])) for place in sizes]
        axes.plot(sizes, middle, color=look["color"], linestyle=look["linestyle"])
        axes.plot([], [], label=plain(method), **look)
    log_scale(axes, "x")
    log_scale(axes, "y")
    _legend(axes)
    return figure if drawn else None


def _positive(value: Any) -> float | None:
    """A positive number, or None for anything else."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
    return float(value) if good else None
