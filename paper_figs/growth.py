"""Time against size: the panels and the tables of `scale.py` and `time_growth.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from figure_tools import Paths, by_name, percent

from nestopt.study.comparison import seconds_counted, timed_out
from nestopt.study.drawing import line_styles, log_scale, plain
from nestopt.study.statistics import fit_power_law

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes

    from nestopt.study.statistics import PowerLaw


def cut(row: dict[str, Any]) -> bool:
    """Whether a limit or an error ended the run before it was through."""
    return row["termination"]["reason"] == "error" or row["termination"]["limit"] in (
        "time",
        "memory",
        "interrupted",
    )


def exponent(rows: Sequence[dict[str, Any]]) -> PowerLaw | None:
    """Growth of the time of runs that were not cut; None with fewer than three sizes."""
    through = [row for row in rows if not cut(row)]
    sizes = [row["parameters"]["size"] for row in through]
    return (
        fit_power_law(sizes, list(map(seconds_counted, through))) if len(set(sizes)) > 2 else None
    )


def draw(
    axes: Axes,
    rows: Sequence[dict[str, Any]],
    series: Callable[[dict[str, Any]], str],
    *,
    beside: bool = False,
) -> None:
    """Draw every run; medians joined; exponents in the legend (beside the axes if asked)."""
    names = by_name(map(series, rows))
    looks = line_styles(names)
    for name in names:
        chosen, look = [row for row in rows if series(row) == name], looks[name]
        for late in (False, True):
            marks = [row for row in chosen if cut(row) is late]
            axes.plot(
                [row["parameters"]["size"] for row in marks],
                [seconds_counted(row) for row in marks],
                linestyle="none",
                marker=look["marker"],
                markersize=3,
                alpha=0.5,
                color=look["color"],
                markerfacecolor="none" if late else look["color"],
            )
        sizes = sorted({row["parameters"]["size"] for row in chosen})
        middle = [
            float(
                np.median([seconds_counted(r) for r in chosen if r["parameters"]["size"] == size])
            )
            for size in sizes
        ]
        axes.plot(sizes, middle, color=look["color"], linestyle=look["linestyle"])
        found = exponent(chosen)
        growth = "" if found is None else f": {_growth(found)}"
        axes.plot([], [], label=plain(f"{name}{growth}"), **look)
    log_scale(axes, "x")
    log_scale(axes, "y")
    where = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)} if beside else {"loc": "best"}
    axes.legend(fontsize=6, **where)


def _growth(found: PowerLaw) -> str:
    ends = found.exponent
    return f"{ends.estimate:.2f} [{ends.low:.2f}, {ends.high:.2f}]"


def table(
    paths: Paths,
    name: str,
    groups: Sequence[tuple[str, str, list[dict[str, Any]]]],
    gap: Callable[[dict[str, Any]], float | None],
) -> None:
    """Write a row for each (problem, series, runs)."""
    lines = []
    for problem, series, rows in groups:
        sizes = sorted({row["parameters"]["size"] for row in rows})
        through = [row for row in rows if not cut(row)]
        done = [row["parameters"]["size"] for row in through]
        found = exponent(rows)
        gaps = [g for g in map(gap, rows) if g is not None and math.isfinite(g)]
        longest = max((seconds_counted(row) for row in through), default=None)
        lines.append(
            [
                problem,
                series,
                len(rows),
                f"{sizes[0]:,}–{sizes[-1]:,}",
                f"{max(done):,}" if done else "–",
                sum(map(timed_out, rows)),
                sum(map(cut, rows)) - sum(map(timed_out, rows)),
                "–" if found is None else _growth(found),
                "–" if longest is None else f"{longest:.3g}",
                len(gaps),
                percent(float(np.median(gaps))) if gaps else "–",
                percent(max(gaps)) if gaps else "–",
            ]
        )
    paths.table(
        name,
        ("problem", "series", "runs", "sizes", "largest done", "timeouts", "other failures",
         "exponent [95 %]", "longest, s", "n", "gap: median %", "gap: max %"),
        lines,
        """Sizes: NPUs or devices before failures. Exponent: of time over size, least squares of
        logarithms over the runs that no limit cut. Longest: among these, seconds. Gap:
        (objective - bound) / objective over the n runs with a solution and a bound.""",
        texts=2,
    )  # fmt: skip
