"""Figure and table: iteration time of each baseline over that of dp, on NEST's models and clusters.

python paper_figs/nest_evaluation.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from figure_tools import (
    NoRecordsError,
    Paths,
    by_name,
    count_of,
    tally,
)

from nestopt.study.comparison import grouped, label, proved, solved
from nestopt.study.drawing import PAGE, line_styles, log_scale, plain, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STUDY = "nest-evaluation"
REFERENCE = "dp"


def build(paths: Paths) -> None:
    """Draw the figure and write its table."""
    rows = paths.read(STUDY)
    cells = grouped(rows, _cell)
    reference = {
        cell: next((r for r in runs if r["solver"] == REFERENCE), None)
        for cell, runs in cells.items()
    }
    known = {cell: row for cell, row in reference.items() if row is not None and solved(row)}
    if not known:
        raise NoRecordsError(f"no plan of {REFERENCE}", file=f"{STUDY}.jsonl")
    methods = by_name(str(row["solver"]) for row in rows if row["solver"] != REFERENCE)
    ratios = {
        (cell, method): _ratios(cells[cell], method, float(row["objective"]))
        for cell, row in known.items()
        for method in methods
    }
    without = sorted(f"{' on '.join(cell)}" for cell in cells if cell not in known)
    unsolved = [row for row in rows if row["solver"] != REFERENCE and not solved(row)]
    unproved = sum(not proved(row) for row in known.values())
    _draw(paths, sorted(known, key=_order), methods, ratios, rows, len(unsolved), without, unproved)
    _table(paths, known, methods, ratios, unsolved, without)


def _cell(row: dict[str, Any]) -> tuple[str, str]:
    return str(row["parameters"].get("workload")), str(row["parameters"].get("cluster"))


def _order(cell: tuple[str, str]) -> tuple[str, int, str]:
    head, _, size = cell[1].rpartition("-")
    return head, int(size) if size.isdigit() else 0, cell[0]


def _ratios(rows: list[dict[str, Any]], method: str, reference: float) -> list[float]:
    """Objective / dp's, of all seeds that found a plan."""
    return sorted(
        float(row["objective"]) / reference
        for row in rows
        if row["solver"] == method and solved(row)
    )


def _draw(
    paths: Paths, cells: list[Any], methods: list[str], ratios: Any, rows: list[Any],
    unsolved: int, without: list[str], unproved: int,
) -> None:  # fmt: skip
    heads = list(dict.fromkeys(_order(cell)[0] for cell in cells))
    looks = line_styles(methods)
    most = max(sum(_order(c)[0] == head for c in cells) for head in heads)
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE, 0.9 + 0.19 * most))
        panels = figure.subplots(1, len(heads), squeeze=False, sharex=True)[0]
        for axes, head in zip(panels, heads):
            group = [cell for cell in cells if _order(cell)[0] == head]
            _dots(axes, group, methods, ratios, looks)
            axes.set_title(plain(head), loc="left")
            axes.set_xlabel(f"iteration time / {REFERENCE}'s (slowdown + 1)")
            log_scale(axes, "x")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(methods))
        seeds = [f"{method} {_seeds(rows, method)}" for method in methods]
        paths.figure(
            "nest_evaluation",
            figure,
            f"""Iteration time of each baseline over that of {REFERENCE} (the optimum of the
            plan space default-1, contiguous, in all cells but {unproved});
            {count_of(len(cells), "cell")} of model,
            cluster and size. Mark: the run, or the median over seeds
            ({", ".join(seeds)}), with a line from the least to the greatest. Cells without a plan
            of {REFERENCE}: {len(without)}; {count_of(unsolved, "run")} of baselines
            without a plan (see the table).""",
        )


def _seeds(rows: list[Any], method: str) -> str:
    """How many seeds a cell has, ``3`` or ``3 to 10``."""
    groups = grouped((row for row in rows if row["solver"] == method), _cell)
    counts = sorted(len(runs) for runs in groups.values())
    return str(counts[0]) if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def _dots(axes: Axes, cells: list[Any], methods: list[str], ratios: Any, looks: Any) -> None:
    axes.axvline(1, color="#000000", linewidth=0.6, zorder=1)
    for rank, method in enumerate(methods):
        offset = 0.5 * (rank / max(1, len(methods) - 1) - 0.5)
        found = [(i + offset, ratios[cell, method]) for i, cell in enumerate(cells)]
        found = [(place, values) for place, values in found if values]
        for place, values in found:
            axes.hlines(place, values[0], values[-1], color=looks[method]["color"], linewidth=0.8)
        axes.plot(
            [float(np.median(values)) for _, values in found],
            [place for place, _ in found],
            linestyle="none",
            marker=looks[method]["marker"],
            markersize=3.2,
            color=looks[method]["color"],
            label=plain(method),
        )
    axes.set_yticks(range(len(cells)), [plain(f"{cell[0]}, {_order(cell)[1]}") for cell in cells])
    axes.set_ylim(len(cells) - 0.4, -0.6)


def _slower(ratio: float) -> str:
    """A ratio as a slowdown in per cent."""
    return f"{100 * (ratio - 1):.1f}"


def _table(
    paths: Paths, known: Any, methods: list[str], ratios: Any, unsolved: list[Any],
    without: list[str],
) -> None:  # fmt: skip
    lines = []
    for cell in sorted(known, key=_order):
        shown = [
            _slower(float(np.median(ratios[cell, method]))) if ratios[cell, method] else "–"
            for method in methods
        ]
        lines.append([*cell, f"{float(known[cell]['objective']):.4g}", *shown])
    heads = dict.fromkeys(_order(cell)[0] for cell in sorted(known, key=_order))
    for head in (*heads, None):
        means = []
        for method in methods:
            values = [
                float(np.median(ratios[cell, method]))
                for cell in sorted(known)
                if ratios[cell, method] and head in (None, _order(cell)[0])
            ]
            mean = float(np.exp(np.mean(np.log(values)))) if values else None
            means.append("–" if mean is None else f"{_slower(mean)} (n = {len(values)})")
        lines.append(["geometric mean", head or "all clusters", "", *means])
    paths.table(
        "nest_evaluation",
        ("model", "cluster", f"{REFERENCE}, s", *(f"{method}: slowdown %" for method in methods)),
        lines,
        f"""Slowdown in per cent, iteration time / that of {REFERENCE} - 1, of several seeds the
        median. Last lines: geometric means of the ratios over the n cells in which the baseline
        found a plan, less 1; the cells are a designed grid, so that no interval is given. Plan
        space default-1, contiguous.
        {count_of(len(without), "cell")} without a plan of {REFERENCE}; runs of baselines without a
        plan: {tally(row["solver"] for row in unsolved)}.""",
        texts=2,
        listed=[f"without a plan: {name}" for name in (*without, *map(label, unsolved))],
    )


if __name__ == "__main__":
    build(Paths())
