"""Time against size: the panels and the tables of `scale.py` and `time_growth.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from figure_tools import Paths, percent

from nestopt.study.comparison import TICK, seconds_counted, timed_out
from nestopt.study.drawing import log_scale, plain
from nestopt.study.statistics import fit_power_law

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

    from nestopt.study.statistics import PowerLaw

Row = dict[str, Any]


def cut(row: Row) -> bool:
    """Whether a limit or an error ended the run before it was through."""
    ended = row["termination"]
    return ended["reason"] == "error" or ended["limit"] in ("time", "memory", "interrupted")


def size_of(row: Row, parameter: str = "size") -> int:
    """The size of a record's instance: NPUs or devices before failures, or layers."""
    return int(row["parameters"][parameter])


def exponent(rows: Sequence[Row], parameter: str = "size") -> PowerLaw | None:
    """Growth of the time of runs that were not cut; None where the points do not allow it.

    They do with four sizes or more, the largest eight times the smallest, and an exponent known to
    half a unit either way at 95 %. Times that are at a tick of the clock say nothing and are left
    out.
    """
    through = [row for row in rows if not cut(row) and seconds_counted(row) > TICK]
    sizes = [size_of(row, parameter) for row in through]
    if len(set(sizes)) < 4 or max(sizes) < 8 * min(sizes):
        return None
    found = fit_power_law(sizes, [seconds_counted(row) for row in through])
    ends = found.exponent
    return found if ends.high - ends.low <= 1 else None


def written(found: PowerLaw | None) -> str:
    """``1.20 [1.11, 1.29]``, or a dash."""
    if found is None:
        return "–"
    ends = found.exponent
    return f"{ends.estimate:.2f} [{ends.low:.2f}, {ends.high:.2f}]"


def draw(
    axes: Axes,
    groups: Mapping[str, Sequence[Row]],
    looks: Mapping[str, Mapping[str, Any]],
    parameter: str = "size",
    *,
    exponents: bool = True,
) -> None:
    """Draw the time of every run, open if it was cut; medians joined; exponents in the labels."""
    for name, rows in groups.items():
        look = looks[name]
        for late in (False, True):
            marks = [row for row in rows if cut(row) is late]
            axes.plot(
                [size_of(row, parameter) for row in marks],
                [seconds_counted(row) for row in marks],
                linestyle="none",
                marker=look["marker"],
                markersize=3,
                alpha=0.5,
                color=look["color"],
                markerfacecolor="none" if late else look["color"],
            )
        times: dict[int, list[float]] = {}
        for row in rows:
            times.setdefault(size_of(row, parameter), []).append(seconds_counted(row))
        sizes = sorted(times)
        middle = [float(np.median(times[size])) for size in sizes]
        axes.plot(sizes, middle, color=look["color"], linestyle=look["linestyle"])
        found = exponent(rows, parameter) if exponents else None
        axes.plot([], [], label=plain(f"{name}: {written(found)}" if found else name), **look)
    log_scale(axes, "x")
    log_scale(axes, "y")


HEAD = (
    "runs", "threads", "sizes", "largest done", "timeouts", "other failures", "exponent [95 %]",
    "longest, s", "n", "gap: median %", "gap: max %",
)  # fmt: skip


def line(
    rows: Sequence[Row], gap: Callable[[Row], float | None], parameter: str = "size"
) -> list[Any]:
    """The cells of `HEAD` for the runs of one series."""
    sizes = sorted({size_of(row, parameter) for row in rows})
    through = [row for row in rows if not cut(row)]
    done = [size_of(row, parameter) for row in through]
    gaps = [g for g in map(gap, rows) if g is not None and math.isfinite(g)]
    longest = max((seconds_counted(row) for row in through), default=None)
    late = sum(map(timed_out, rows))
    return [
        len(rows),
        ", ".join(str(count) for count in sorted({row["threads"] for row in rows})),
        f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,}–{sizes[-1]:,}",
        f"{max(done):,}" if done else "–",
        late,
        sum(map(cut, rows)) - late,
        written(exponent(rows, parameter)),
        "–" if longest is None else f"{longest:.3g}",
        len(gaps),
        percent(float(np.median(gaps))) if gaps else "–",
        percent(max(gaps)) if gaps else "–",
    ]


NOTE = """Exponent: of the method's CPU time over size, least squares of logarithms over the runs
    that neither a limit nor an error cut; a dash where the points do not allow one (fewer than four
    sizes, less than a factor of eight, or an interval of more than one unit). Longest: CPU seconds
    of the longest among these."""


def table(paths: Paths, name: str, head: tuple[str, ...], rows: list[Any], gap: str) -> None:
    """Write a table whose lines are `head`'s texts and `HEAD`; `gap` says which gap it is."""
    paths.table(name, (*head, *HEAD), rows, f"{NOTE} Gap: {gap}, over n runs.", texts=len(head))
