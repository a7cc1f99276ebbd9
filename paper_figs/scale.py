"""Figure: gap to the bound and time against size, for collectives and for placement.

Every run at its size (NPUs or devices before failures); lines join medians, the legend gives the
exponent that least squares fit to log time over log size with its 95 % interval.

    python paper_figs/scale.py
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import growth
import numpy as np
from figure_tools import NoRecordsError, Paths, by_name, count_of, percent_axis

from nestopt.study.comparison import (
    gap_between,
    gap_to_bound,
    general_bound,
    label,
    solved,
)
from nestopt.study.drawing import PAGE, line_styles, log_scale, plain, style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

STUDIES = ("scale-collective", "scale-placement")
SOLVERS = {"collective": "greedy", "placement": "dp"}
UNITS = {"collective": "NPUs", "placement": "devices"}


def build(paths: Paths) -> None:
    """Draw the figure and write its table."""
    rows, missing = paths.read_some(STUDIES)
    sides = {}
    for problem, solver in SOLVERS.items():
        chosen = [
            row
            for row in rows
            if row["instance"]["problem"] == problem
            and row["solver"] == solver
            and isinstance(row["parameters"].get("size"), int)
        ]
        if chosen:
            sides[problem] = chosen
        else:
            missing.append(f"{problem} by {solver}")
    if not sides:
        raise NoRecordsError("no run of dp or greedy with a size", file=" or ".join(STUDIES))
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE / 2 * len(sides), 4.4))
        panels = figure.subplots(2, len(sides), sharex="col", squeeze=False)
        for column, (problem, chosen) in zip(panels.T, sides.items()):
            _gap_panel(column[0], problem, chosen)
            growth.draw(column[1], chosen, _series)
            column[1].set_xlabel(f"{UNITS[problem]}")
            log_scale(column[1], "x")
            column[0].set_title(f"{SOLVERS[problem]} ({problem})", loc="left")
        panels[0][0].set_ylabel("gap to bound, %")
        panels[1][0].set_ylabel("CPU time, s")
        counts = ", ".join(
            f"{count_of(len(chosen), 'run')} of {SOLVERS[problem]} on {problem}, "
            f"{sum(not solved(row) for row in chosen)} of them without a solution"
            for problem, chosen in sides.items()
        )
        paths.figure(
            "scale",
            figure,
            f"""Above: gap to bound, (objective - bound) / objective; for placement the bound holds
            for the general space. Linear up to 0.1 %, logarithmic above. Below: CPU time of
            the method, one thread; open marks: ended by a limit. Every mark is a run, lines join
            medians. Legend: exponent of time over size, least squares of logarithms over the runs
            that ended before a limit, with its 95 % interval. {counts}. Missing:
            {"; ".join(missing) or "nothing"}.""",
        )
    growth.table(
        paths,
        "scale",
        [(problem, name, [r for r in chosen if _series(r) == name])
         for problem, chosen in sides.items() for name in by_name(map(_series, chosen))],
        _gap,
    )  # fmt: skip


def _series(row: dict[str, Any]) -> str:
    return str(row["parameters"]["family"])


def _gap(row: dict[str, Any]) -> float | None:
    """Gap to the bound over all plans; NaN where a solved run has no bound."""
    if row["instance"]["problem"] == "collective":
        return gap_to_bound(row)
    if not solved(row):
        return None
    bound = general_bound(row)
    return math.inf if bound is None else gap_between(float(row["objective"]), bound, label(row))


def _gap_panel(axes: Axes, problem: str, rows: Sequence[dict[str, Any]]) -> None:
    names = by_name(map(_series, rows))
    looks = line_styles(names)
    every = []
    for name in names:
        points = []
        for row in rows:
            gap = _gap(row) if _series(row) == name else None
            if gap is not None and math.isfinite(gap):
                points.append((row["parameters"]["size"], 100 * gap))
        if not points:
            continue
        look = looks[name]
        every += [gap for _, gap in points]
        axes.plot(
            *zip(*points), linestyle="none", marker=look["marker"], markersize=3, alpha=0.5,
            color=look["color"], markeredgewidth=0,
        )  # fmt: skip
        sizes = sorted({size for size, _ in points})
        middle = [np.median([gap for at, gap in points if at == size]) for size in sizes]
        axes.plot(sizes, middle, color=look["color"], linestyle=look["linestyle"])
        axes.plot([], [], label=f"{plain(name)} (n = {len(points)})", **look)
    percent_axis(axes, every, 0.1)
    axes.legend(loc="best", fontsize=6)


if __name__ == "__main__":
    build(Paths())
