"""Figure: how far greedy schedules are from the proved optimum, over failures and uneven links.

Gap to optimum, (objective - optimum) / objective, on the instances whose optimum some method
proved. The others are counted, and their gap to the best bound stands in the table. Instances that
are one network under other names (`classes.py`) count once.

    python paper_figs/greedy_gap.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from classes import read_classes
from figure_tools import (
    NoRecordsError,
    Paths,
    between,
    by_name,
    count_of,
    failures,
    in_order,
    mean_by_unit,
    parameter,
    percent,
    percent_axis,
    slowdown,
    strips,
    uneven,
)

from nestopt.study.comparison import (
    best_bounds,
    gap_between,
    gap_to_optimum,
    label,
    optima,
    problem_key,
    solved,
)
from nestopt.study.drawing import PAGE, style
from nestopt.study.statistics import wilson_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

STUDY = "greedy-gap"
WHERE = """Latencies are 0, one chunk an NPU (All-to-All: a pair), 4 to 9 NPUs."""
EXACT = ("milp", "cpsat")
SHOWN = "greedy"
Rows = list[dict[str, Any]]


def collective(row: dict[str, Any]) -> str:
    """The pattern of a record."""
    return str(parameter(row, "collective")).partition(":")[0]


KINDS: tuple[tuple[str, Callable[[dict[str, Any]], str], Callable[[Any], list[str]]], ...] = (
    ("family", lambda row: str(row["parameters"]["family"]), by_name),
    ("collective", collective, by_name),
    ("failures", failures, in_order),
    ("uneven network", uneven, in_order),
    ("NPUs", lambda row: str(parameter(row, "size")), in_order),
)


def distinct(rows: Rows, same: Mapping[str, str]) -> Rows:
    """The rows without those of instances that equal another one under other names.

    Parameters
    ----------
    rows : list of dict
    same : mapping
        For each instance the first that equals it, by name; one that is not in it stands for
        itself.
    """
    return [
        row
        for row in rows
        if same.get(row["instance"]["name"], "") in ("", row["instance"]["name"])
    ]


def build(paths: Paths) -> None:
    """Draw the figure and write its table."""
    every = paths.read(STUDY)
    rows = distinct(every, read_classes(paths.records))
    known, bounds = optima(rows), best_bounds(rows)
    fast = [row for row in rows if row["solver"] not in EXACT]
    greedy = [row for row in fast if row["method"] == SHOWN]
    if not greedy:
        raise NoRecordsError(f"no run of {SHOWN}", file=f"{STUDY}.jsonl")
    certain = [row for row in greedy if problem_key(row) in known]
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE, 2.7))
        panels = figure.subplots(1, 3, sharey=True, width_ratios=(1, 1.3, 1))
        for axes, (name, key, order) in zip(panels, KINDS[1:4]):
            groups = {
                value: [100 * g for g in _gaps([r for r in certain if key(r) == value], known)]
                for value in order(key(row) for row in greedy)
            }
            strips(axes, groups, color="#0072B2", width=2.1)
            axes.set_xlabel(name)
        panels[0].set_ylabel("gap to optimum, %")
        percent_axis(panels[0], [100 * gap for gap in _gaps(certain, known)], 0.1)
        unsolved = sum(not solved(row) for row in greedy)
        counted = {problem_key(row) for row in rows}
        copies = len({problem_key(row) for row in every}) - len(counted)
        paths.figure(
            "greedy_gap",
            figure,
            f"""Gap of {SHOWN} to the proved optimum, (objective - optimum) / objective, on the
            {len(known)} of {count_of(len(counted), "instance")} whose optimum some method proved;
            {count_of(copies, "renamed copy" if copies == 1 else "renamed copie")} under other
            names left out.
            {WHERE} Every point is a run, the line the median. Above: n, and how many
            have a gap above 1e-6. Linear up to 0.1 %, logarithmic above. Not drawn:
            {count_of(len(greedy) - len(certain), "run")} on
            instances without a proved optimum; {count_of(unsolved, "run")} without a solution.""",
        )
    lines = []
    for method in by_name(str(row["method"]) for row in fast):
        runs = [row for row in fast if row["method"] == method]
        for name, key, order in KINDS:
            for value in order(key(row) for row in runs):
                chosen = [row for row in runs if key(row) == value]
                lines.append([method, name, value, *_line(chosen, known, bounds)])
        lines.append([method, "all", "", *_line(runs, known, bounds)])
    paths.table(
        "greedy_gap",
        ("method", "by", "value", "runs", "no solution", "n", "optimal % [95 %]",
         "gap: mean % [95 %]", "gap: median %", "gap: max %", "slowdown: max %",
         "open", "open: median %", "open: max %"),
        lines,
        """Gap to optimum, (objective - optimum) / objective, over the n runs with a solution on
        distinct instances whose optimum some method proved. Optimal: share of these with a gap of
        at most 1e-6, with Wilson's interval. Mean: arithmetic, with the interval of a bootstrap
        that draws whole networks (percentile, 4000 resamples). Slowdown: objective / optimum - 1.
        Latencies are 0. Open: solved runs on instances
        without a proved optimum, and their gap to the best bound of any method, (objective -
        bound) / objective.""",
        texts=3,
    )  # fmt: skip


def _gaps(rows: Sequence[dict[str, Any]], known: Any) -> list[float]:
    gaps = [gap_to_optimum(row, known) for row in rows]
    return [gap for gap in gaps if gap is not None]


def _line(rows: Rows, known: Any, bounds: Any) -> list[Any]:
    found = [(gap_to_optimum(row, known), row) for row in rows if problem_key(row) in known]
    found = [(gap, row) for gap, row in found if gap is not None]
    found.sort(key=lambda pair: (pair[0], pair[1]["cell"]))
    gaps = [gap for gap, _ in found]
    cells = ["–"] * 5
    if gaps:
        best = sum(gap <= 1e-6 for gap in gaps)
        cells = [
            between(wilson_interval(best, len(gaps)), percent),
            mean_by_unit(gaps, [row for _, row in found]),
            percent(float(np.median(gaps))),
            percent(gaps[-1]),
            percent(slowdown(gaps[-1])),
        ]
    others = [
        gap_between(float(row["objective"]), bounds[problem_key(row)], label(row))
        for row in rows
        if problem_key(row) not in known and solved(row)
    ]
    rest = [percent(float(np.median(others))), percent(max(others))] if others else ["–", "–"]
    unsolved = sum(not solved(row) for row in rows)
    return [len(rows), unsolved, len(gaps), *cells, len(others), *rest]


if __name__ == "__main__":
    build(Paths())
