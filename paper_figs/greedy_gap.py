"""Figure: how far the greedy schedules and the baselines are from the proved optimum.

Gap to optimum, (objective - optimum) / objective, on the instances whose optimum some exact method
proved. The others are counted, and their gap to the best bound stands in the table.

    python paper_figs/greedy_gap.py
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from figure_tools import (
    NoRecordsError,
    Paths,
    between,
    by_name,
    count_of,
    in_order,
    mean_interval,
    percent,
    percent_axis,
    strips,
    uneven,
)

from nestopt.study.comparison import (
    best_bounds,
    gap_between,
    gap_to_optimum,
    grouped,
    label,
    optima,
    problem_key,
    solved,
)
from nestopt.study.drawing import PAGE, line_styles, plain, style
from nestopt.study.statistics import ecdf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

STUDY = "greedy-gap"
EXACT = ("milp", "cpsat")


def build(paths: Paths) -> None:
    """Draw the figure and write its table."""
    rows = paths.read(STUDY)
    known, bounds = optima(rows), best_bounds(rows)
    fast = [row for row in rows if row["solver"] not in EXACT]
    methods = by_name(str(row["method"]) for row in fast)
    shown = [m for m in methods if m.startswith("greedy")][:1]
    if not shown:
        raise NoRecordsError("no run of greedy", file=f"{STUDY}.jsonl")
    greedy = [row for row in fast if row["method"] == shown[0]]
    certain = [row for row in greedy if problem_key(row) in known]
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE, 3.0))
        panels = figure.subplots(1, 3, width_ratios=(1, 1.1, 1.1))
        every = [100 * gap for gap in _gaps(certain, known)]
        _distributions(panels[0], fast, methods, known)
        for axes, name, key, order in (
            (panels[1], "family", lambda row: str(row["parameters"]["family"]), by_name),
            (panels[2], "uneven network", uneven, in_order),
        ):
            groups = {
                value: [100 * g for g in _gaps([r for r in certain if key(r) == value], known)]
                for value in order(key(row) for row in greedy)
            }
            strips(axes, groups, color="#0072B2", width=2.2)
            percent_axis(axes, every, 0.1)
            axes.set_xlabel(name)
        panels[1].set_ylabel("gap to optimum, %")
        panels[2].tick_params(labelleft=False)
        instances = {problem_key(row) for row in rows}
        runs = len(greedy) - len(certain)
        paths.figure(
            "greedy_gap",
            figure,
            f"""Gap to the proved optimum, (objective - optimum) / objective, on the
            {len(known)} of {count_of(len(instances), "instance")} whose optimum is proved. Left:
            share of the runs of a method on these within a gap; runs without a solution count in
            the share. Middle and right: every run of {shown[0]}, its median and the median's 95 %
            interval (bootstrap, percentile, 4000 resamples); above: n, and how many have a gap
            above 1e-6. Not drawn: {count_of(runs, "run")} of {shown[0]} on instances without a
            proved optimum.""",
        )
    _table(paths, fast, known, bounds)


def _gaps(rows: Sequence[dict[str, Any]], known: Any) -> list[float]:
    gaps = [gap_to_optimum(row, known) for row in rows]
    return [gap for gap in gaps if gap is not None]


def _distributions(axes: Axes, fast: list[Any], methods: list[str], known: Any) -> None:
    looks = line_styles(methods)
    for method in methods:
        rows = [row for row in fast if row["method"] == method and problem_key(row) in known]
        if not rows:
            continue
        gaps = [gap_to_optimum(row, known) for row in rows]
        x, shares = ecdf([math.inf if gap is None else 100 * gap for gap in gaps])
        axes.step(
            np.concatenate([[0], x, [100]]),
            np.concatenate([[0], shares, shares[-1:] if shares.size else [0]]),
            where="post",
            label=f"{plain(method)} ({len(rows)})",
            color=looks[method]["color"],
            linestyle=looks[method]["linestyle"],
        )
    axes.set_xscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set_xticks([0, 0.1, 1, 10, 100], ["0", "0.1", "1", "10", "100"])
    axes.set_xlim(-0.01, 100)
    axes.set_ylim(0, 1.03)
    axes.set_xlabel("gap to optimum, %")
    axes.set_ylabel("share of runs")
    axes.legend(loc="lower left", bbox_to_anchor=(-0.12, 1.0), fontsize=5.5, ncols=2)


def _table(paths: Paths, fast: list[Any], known: Any, bounds: Any) -> None:
    lines = []
    groups = grouped(fast, lambda r: (str(r["method"]), str(r["parameters"]["family"]), uneven(r)))
    for names in sorted(groups):
        rows = groups[names]
        certain = [row for row in rows if problem_key(row) in known]
        gaps = sorted(_gaps(certain, known))
        cells = ["–"] * 4
        if gaps:
            cells = [
                percent(sum(gap <= 1e-6 for gap in gaps) / len(gaps)),
                between(mean_interval(gaps), percent),
                percent(float(np.median(gaps))),
                percent(gaps[-1]),
            ]
        others = [
            gap_between(float(row["objective"]), bounds[problem_key(row)], label(row))
            for row in rows
            if problem_key(row) not in known and solved(row)
        ]
        rest = percent(float(np.median(others))) if others else "–"
        unsolved = sum(not solved(row) for row in rows)
        lines.append([*names, len(rows), unsolved, len(gaps), *cells, len(others), rest])
    paths.table(
        "greedy_gap",
        ("method", "family", "uneven", "runs", "no solution", "n", "optimal %", "mean % [95 %]",
         "median %", "max %", "open", "open: median %"),
        lines,
        """Gap to optimum, (objective - optimum) / objective, over the n runs with a solution on
        instances whose optimum is proved. Optimal: share of these with a gap of at most 1e-6. Mean:
        arithmetic, with a BCa bootstrap interval. Open: solved runs on instances without a proved
        optimum, and the median of their gap to the best bound of any method, (objective - bound) /
        objective.""",
        texts=3,
    )  # fmt: skip


if __name__ == "__main__":
    build(Paths())
