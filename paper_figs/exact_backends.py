"""Figure and tables: the exact back-ends against each other, proof time and size limits.

python paper_figs/exact_backends.py
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from figure_tools import NoRecordsError, Paths, by_name, count_of, parameter

from nestopt.core.errors import InputError
from nestopt.study.comparison import (
    grouped,
    instance_key,
    one_each,
    problem_key,
    proved,
    seconds_counted,
    timed_out,
)
from nestopt.study.drawing import PAGE, draw_profile, line_styles, style
from nestopt.study.statistics import performance_profile, shifted_geometric_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STUDIES = ("exact-backends-collective", "exact-backends-placement")
EXACT = ("milp", "cpsat")
SHIFT = 1.0
Rows = list[dict[str, Any]]


def build(paths: Paths) -> None:
    """Draw the figure and write its tables."""
    found, missing = paths.read_some(STUDIES)
    sides = grouped((row for row in found if row["solver"] in EXACT), _side)
    if not sides:
        raise NoRecordsError("no run of an exact method", file=" or ".join(STUDIES))
    names = by_name(sides)
    looks = line_styles(by_name(_backend(row) for rows in sides.values() for row in rows))
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE, 2.6))
        panels = figure.subplots(1, len(names), squeeze=False, sharey=True)[0]
        counts = []
        for axes, name in zip(panels, names):
            instances, left_out, unsolved = _profile(axes, sides[name], looks)
            axes.set_title(f"{name} (n = {instances})", loc="left")
            counts.append(
                f"{name}: {count_of(instances, 'instance')}, {unsolved} of them proved by no "
                f"back-end, {left_out} not run by all and left out"
            )
        panels[0].set_ylabel("share of instances proved")
        handles: dict[str, Any] = {}
        for axes in panels:
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels())))
        figure.legend(handles.values(), handles, loc="outside upper center", ncols=len(handles))
        every = [row for rows in sides.values() for row in rows]
        limits = sorted({float(row["time_limit"] or math.inf) for row in every})
        threads = sorted({row["threads"] for row in every})
        paths.figure(
            "exact_backends",
            figure,
            f"""Performance profiles (Dolan and More) of the time to a proof, optimal or infeasible:
            share of all instances that a back-end proves within a factor of the fastest back-end's
            CPU time. Collectives: All-Gather, latencies 0; placement: plan space default-1.
            A run without a proof has an infinite ratio. Time limit by the wall clock
            {", ".join(f"{limit:g} s" for limit in limits)}, threads
            {", ".join(map(str, threads))}. {"; ".join(counts)}. Missing:
            {", ".join(missing) or "nothing"}.""",
        )
    _summary(paths, [(name, sides[name]) for name in names])
    _limits(paths, [(name, sides[name]) for name in names])


def _side(row: dict[str, Any]) -> str:
    """The problem, and for placement the space."""
    space = problem_key(row)[3]
    return f"{row['instance']['problem']}, {space}" if space else str(row["instance"]["problem"])


def _backend(row: dict[str, Any]) -> str:
    return str(row["method"])


def _profile(axes: Axes, rows: Rows, looks: Any) -> tuple[int, int, int]:
    """Draw; instances drawn, those left out, and those that nothing proved."""
    tables = {
        name: one_each(group, instance_key) for name, group in grouped(rows, _backend).items()
    }
    names = by_name(tables)
    every = dict.fromkeys(instance_key(row) for row in rows)
    shared = [key for key in every if all(key in table for table in tables.values())]
    if not shared:
        raise InputError(f"no instance was run by all of {', '.join(names)}")
    costs = np.array([[_cost(tables[name][key]) for name in names] for key in shared])
    profile = performance_profile(costs)
    draw_profile(axes, profile, {name: looks[name] for name in names})
    axes.set_xlabel("CPU time / fastest back-end's")
    unsolved = int(np.isinf(costs).all(axis=1).sum())
    return len(shared), len(every) - len(shared), unsolved


def _cost(row: dict[str, Any]) -> float:
    return seconds_counted(row) if proved(row) else math.inf


def _size(row: dict[str, Any]) -> tuple[tuple[int, ...], str]:
    """What to sort by, and the size in words: a shape, or devices and layers."""
    size, layers = int(parameter(row, "size") or 0), parameter(row, "layers")
    text = str(parameter(row, "shape", "graph") or size)
    order = (size, *map(int, re.findall(r"\d+", text)))
    if layers is None:
        return order, text
    return (size, int(layers)), f"{size} devices, {layers} layers"


def _summary(paths: Paths, sides: list[tuple[str, Rows]]) -> None:
    lines = []
    for side, rows in sides:
        groups = grouped(rows, lambda r: (str(r["parameters"]["family"]), _backend(r)))
        for family, name in sorted(groups):
            group = groups[family, name]
            sizes = grouped(group, _size)
            whole = [size for size, runs in sizes.items() if all(map(proved, runs))]
            half = [s for s, runs in sizes.items() if sum(map(proved, runs)) * 2 >= len(runs)]
            lines.append(
                [
                    side,
                    family,
                    name,
                    len(group),
                    sum(map(proved, group)),
                    sum(map(timed_out, group)),
                    sum(row["termination"]["limit"] == "memory" for row in group),
                    sum(row["termination"]["reason"] == "error" for row in group),
                    f"{shifted_geometric_mean(list(map(seconds_counted, group)), SHIFT):.3g}",
                    max(whole)[1] if whole else "–",
                    max(half)[1] if half else "–",
                ]
            )
    paths.table(
        "exact_backends",
        ("problem", "family", "back-end", "runs", "proved", "timeouts", "out of memory", "errors",
         "CPU time, s", "all proved at", "half proved at"),
        lines,
        f"""Proved: optimal or infeasible. Time: shifted geometric mean (shift {SHIFT:g} s), runs
        that a limit ended at the CPU seconds that they had used (limits were by the wall clock).
        Last columns: the largest size of which all,
        and at least half, of the runs ended with a proof.""",
        texts=3,
    )  # fmt: skip


def _limits(paths: Paths, sides: list[tuple[str, Rows]]) -> None:
    names = by_name(_backend(row) for _, rows in sides for row in rows)
    lines = []
    for side, rows in sides:
        groups = grouped(rows, lambda r: (str(r["parameters"]["family"]), _size(r)))
        for family, size in sorted(groups):
            cells = []
            for name in names:
                runs = [row for row in groups[family, size] if _backend(row) == name]
                times = [seconds_counted(row) for row in runs]
                cells.append(
                    f"{sum(map(proved, runs))}/{len(runs)} ({np.median(times):.3g} s)"
                    if runs
                    else "–"
                )
            lines.append([side, family, size[1], *cells])
    paths.table(
        "exact_backends_sizes",
        ("problem", "family", "size", *names),
        lines,
        """Runs that ended with a proof of all runs, by size, and the median of all runs' CPU
        seconds, timeouts at what they had used; a dash where the back-end was not run.""",
        texts=3,
    )


if __name__ == "__main__":
    build(Paths())
