"""Figure and table: the exact back-ends against each other, proof time and size limits.

python paper_figs/exact_backends.py
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from figure_tools import NoRecordsError, Paths, by_name, count_of

from nestopt.errors import InputError
from nestopt.study.comparison import (
    grouped,
    instance_key,
    one_each,
    proved,
    seconds_counted,
    timed_out,
)
from nestopt.study.drawing import PAGE, line_styles, log_scale, plain, style
from nestopt.study.statistics import performance_profile, shifted_geometric_mean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STUDIES = ("exact-backends-placement", "exact-backends-collective")
EXACT = ("milp", "cpsat")
SHIFT = 1.0


def build(paths: Paths) -> None:
    """Draw the figure and write its tables."""
    rows, missing = paths.read_some(STUDIES)
    sides = {
        problem: [
            row for row in rows if row["instance"]["problem"] == problem and row["solver"] in EXACT
        ]
        for problem in ("placement", "collective")
    }
    sides = {problem: chosen for problem, chosen in sides.items() if chosen}
    if not sides:
        raise NoRecordsError("no run of an exact method", file=" or ".join(STUDIES))
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE / 2 * len(sides), 2.7))
        panels = figure.subplots(1, len(sides), squeeze=False)[0]
        counts = []
        for axes, (problem, chosen) in zip(panels, sides.items()):
            instances, left_out, unsolved = _profile(axes, chosen)
            axes.set_title(f"{problem} (n = {instances})", loc="left")
            counts.append(
                f"{problem}: {count_of(instances, 'instance')}, {unsolved} of them proved by no "
                f"back-end, {left_out} not run by all and left out"
            )
        panels[0].set_ylabel("share of instances proved")
        limits = sorted({float(row["time_limit"] or math.inf) for row in rows})
        paths.figure(
            "exact_backends",
            figure,
            f"""Performance profiles (Dolan and More) of the time to a proof, optimal or infeasible:
            share of all instances that a back-end proves within a factor of the fastest back-end's
            CPU time. A run without a proof has an infinite ratio. One thread; limits:
            {", ".join(f"{limit:g} s" for limit in limits)}. {"; ".join(counts)}. Missing:
            {"; ".join(missing) or "nothing"}.""",
        )
    _tables(paths, sides)


def _profile(axes: Axes, rows: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Draw; instances drawn, those left out, and those that nothing proved."""
    tables = {
        method: one_each(group, instance_key)
        for method, group in grouped(rows, lambda r: str(r["method"])).items()
    }
    methods = by_name(tables)
    every = dict.fromkeys(instance_key(row) for row in rows)
    shared = [key for key in every if all(key in table for table in tables.values())]
    if not shared:
        raise InputError(f"no instance was run by all of {', '.join(methods)}")
    costs = np.array([[_cost(tables[method][key]) for method in methods] for key in shared])
    profile = performance_profile(costs)
    looks = line_styles(methods)
    end = max(1.2, 1.2 * float(profile.taus[-1]))
    for column, method in enumerate(methods):
        shares = profile.shares[:, column]
        axes.step(
            np.append(profile.taus, end),
            np.append(shares, shares[-1]),
            where="post",
            label=plain(method),
            color=looks[method]["color"],
            linestyle=looks[method]["linestyle"],
        )
    axes.set_xlim(1, end)
    axes.set_ylim(0, 1.03)
    if end > 2:
        log_scale(axes, "x")
    axes.set_xlabel("CPU time / fastest back-end's")
    axes.legend(loc="lower right", fontsize=6)
    unsolved = int(np.isinf(costs).all(axis=1).sum())
    return len(shared), len(every) - len(shared), unsolved


def _cost(row: dict[str, Any]) -> float:
    return seconds_counted(row) if proved(row) else math.inf


def _size(row: dict[str, Any]) -> tuple[int, int]:
    parameters = row["parameters"]
    layers = parameters.get("layers")
    return int(parameters.get("size") or 0), layers if isinstance(layers, int) else 0


def _tables(paths: Paths, sides: dict[str, list[dict[str, Any]]]) -> None:
    summary, limits = [], []
    for problem, rows in sides.items():
        groups = grouped(rows, lambda r: str(r["method"]))
        for method in by_name(groups):
            group = groups[method]
            sizes = grouped(group, _size)
            whole = [size for size, runs in sizes.items() if all(map(proved, runs))]
            half = [s for s, runs in sizes.items() if sum(map(proved, runs)) * 2 >= len(runs)]
            mean = shifted_geometric_mean([seconds_counted(row) for row in group], SHIFT)
            late = sum(map(timed_out, group))
            memory = sum(row["termination"]["limit"] == "memory" for row in group)
            errors = sum(row["termination"]["reason"] == "error" for row in group)
            summary.append(
                [problem, method, len(group), sum(map(proved, group)), late, memory, errors,
                 f"{mean:.3g}", _shown(max(whole, default=None)), _shown(max(half, default=None))]
            )  # fmt: skip
        methods = by_name(groups)
        for size in sorted({_size(row) for row in rows}):
            cells = []
            for method in methods:
                runs = [row for row in groups[method] if _size(row) == size]
                cells.append(f"{sum(map(proved, runs))}/{len(runs)}" if runs else "–")
            limits.append((problem, methods, [_shown(size), *cells]))
    paths.table(
        "exact_backends",
        ("problem", "back-end", "runs", "proved", "timeouts", "out of memory", "errors",
         "CPU time, s", "all proved at", "half proved at"),
        summary,
        f"""Proved: optimal or infeasible. Time: shifted geometric mean (shift {SHIFT:g} s), runs
        that a limit or an error ended at the limit. Last columns: largest size (NPUs, or devices x
        layers) of which all, and at least half, of the runs ended with a proof.""",
        texts=2,
    )  # fmt: skip
    for problem in sides:
        lines = [cells for name, _, cells in limits if name == problem]
        methods = next(found for name, found, _ in limits if name == problem)
        paths.table(
            f"exact_backends_{problem}",
            ("size", *methods),
            lines,
            f"""Runs that ended with a proof of all runs, by size
            ({"NPUs" if problem == "collective" else "devices x layers"}), {problem}; a dash where
            the back-end was not run.""",
        )


def _shown(size: tuple[int, int] | None) -> str:
    if size is None:
        return "–"
    return f"{size[0]} x {size[1]}" if size[1] else str(size[0])


if __name__ == "__main__":
    build(Paths())
