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

from nestopt.study.comparison import gap_between, gap_to_bound, general_bound, label, solved
from nestopt.study.drawing import PAGE, line_styles, log_scale, plain, style

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

STUDIES = ("scale-collective", "scale-placement")
SOLVERS = {"collective": "greedy", "placement": "dp"}
UNITS = {"collective": "NPUs", "placement": "devices"}


def build(paths: Paths) -> None:
    """Draw the figure and write its table."""
    rows, missing = paths.read_some(STUDIES)
    sides = {
        problem: by_family(
            [
                row
                for row in rows
                if row["instance"]["problem"] == problem and row["solver"] == solver
            ]
        )
        for problem, solver in SOLVERS.items()
    }
    for problem, found in sides.items():
        if not found and f"study scale-{problem}" not in missing:
            missing.append(f"runs of {SOLVERS[problem]}")
    sides = {problem: found for problem, found in sides.items() if found}
    if not sides:
        raise NoRecordsError("no run of dp or greedy", file=" or ".join(STUDIES))
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE / 2 * len(sides), 4.6))
        panels = figure.subplots(2, len(sides), sharex="col", squeeze=False)
        for column, (problem, families) in zip(panels.T, sides.items()):
            looks = line_styles(list(families))
            _gaps(column[0], families, looks)
            growth.draw(column[1], families, looks)
            column[1].legend(loc="upper left", fontsize=5.5)
            column[1].set_xlabel(UNITS[problem])
            column[1].set_ylim(top=column[1].get_ylim()[1] * 10)  # room for the legend
            log_scale(column[1], "y")
            column[0].set_title(f"{SOLVERS[problem]} ({problem})", loc="left")
        panels[0][0].set_ylabel("gap to bound, %")
        panels[1][0].set_ylabel("CPU time, s")
        counts = "; ".join(_counts(problem, families) for problem, families in sides.items())
        paths.figure(
            "scale",
            figure,
            f"""Above: gap to bound, (objective - bound) / objective; for placement the bound holds
            for the general space. Linear up to 0.1 %, logarithmic above. Below: CPU time of the
            method (of the whole process where a limit ended it); open marks: a limit by the wall
            clock
            ended the run, they stand at the CPU seconds used. All-Gather, latencies 0; placement:
            plan space default-1, contiguous. Below the line of 0 every series has a lane of its
            own, so that none hides another. Every mark is a run, lines join medians. Legend: runs
            with a gap; exponent of time over
            size where the points allow one, least squares of logarithms over the runs that neither
            a limit nor an error cut, with its 95 % interval. {counts}. Missing:
            {", ".join(missing) or "nothing"}.""",
        )
    lines = [
        [problem, family, *growth.line(runs, _gap)]
        for problem, families in sides.items()
        for family, runs in families.items()
    ]
    growth.table(
        paths, "scale", ("problem", "family"), lines,
        "(objective - bound) / objective, for placement with the bound of the general space",
    )  # fmt: skip


def by_family(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by family, families by name."""
    names = by_name(str(row["parameters"]["family"]) for row in rows)
    return {name: [r for r in rows if r["parameters"]["family"] == name] for name in names}


def _counts(problem: str, families: Mapping[str, Sequence[dict[str, Any]]]) -> str:
    rows = [row for runs in families.values() for row in runs]
    threads = ", ".join(str(count) for count in sorted({row["threads"] for row in rows}))
    limits = ", ".join(f"{x:g}" for x in sorted({row["time_limit"] or math.inf for row in rows}))
    return (
        f"{problem}: {count_of(len(rows), 'run')} of {SOLVERS[problem]}, threads {threads}, limit "
        f"{limits} s, {sum(not solved(row) for row in rows)} without a solution"
    )


def _gap(row: dict[str, Any]) -> float | None:
    """Gap to the bound over all plans; infinite where a solved run has no bound."""
    if row["instance"]["problem"] == "collective":
        return gap_to_bound(row)
    if not solved(row):
        return None
    bound = general_bound(row)
    return math.inf if bound is None else gap_between(float(row["objective"]), bound, label(row))


def _gaps(axes: Axes, families: Mapping[str, Sequence[dict[str, Any]]], looks: Any) -> None:
    every = []
    lanes = 0.035
    for lane, (name, rows) in enumerate(families.items(), 1):
        gaps: dict[int, list[float]] = {}
        for row in rows:
            gap = _gap(row)
            if gap is not None and math.isfinite(gap):
                gaps.setdefault(growth.size_of(row), []).append(100 * gap)
        points = [(size, gap) for size in sorted(gaps) for gap in gaps[size]]
        if not points:
            continue
        every += [gap for _, gap in points]
        look = looks[name]

        def place(gap: float, below: float = -lanes * lane) -> float:
            return gap if gap > 0 else below

        axes.plot(
            [size for size, _ in points], [place(gap) for _, gap in points], linestyle="none",
            marker=look["marker"], markersize=3, alpha=0.5, color=look["color"], markeredgewidth=0,
        )  # fmt: skip
        middle = [place(float(np.median(gaps[size]))) for size in sorted(gaps)]
        axes.plot(sorted(gaps), middle, color=look["color"], linestyle=look["linestyle"])
        axes.plot([], [], label=plain(f"{name} ({len(points)} of {len(rows)})"), **look)
    percent_axis(axes, every, 0.1)
    axes.axhline(0, color="#000000", linewidth=0.4)
    axes.set_ylim(-lanes * (len(families) + 0.7), axes.get_ylim()[1] * 4)
    axes.legend(loc="upper left", fontsize=5.5, ncols=2)


if __name__ == "__main__":
    build(Paths())
