"""The picture of a sweep of plans: days against money or device-hours, and the Pareto front."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nestopt.core.colours import OKABE_ITO
from nestopt.core.errors import NestoptError
from nestopt.core.pictures import write_picture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from nestopt.placement.economics.terms import Terms
    from nestopt.placement.sweep import Point

__all__ = ["draw_front", "plot_front"]

_MARKERS = "osD^vPX*"


def draw_front(axes: Axes, points: Sequence[Point], terms: Terms) -> None:
    """Draw the cells, one marker a batch, and join those of the front.

    Raises
    ------
    NestoptError
        If no cell has a plan.
    """
    money = terms.price is not None
    shown: list[tuple[float, float, Point]] = []
    for point in points:
        report = point.report
        if report is None or not math.isfinite(report.days):
            continue
        shown.append(
            (report.days, report.money if report.money is not None else report.device_hours, point)
        )
    if not shown:
        raise NestoptError("no cell has a plan; nothing to draw")
    front = sorted((x, y) for x, y, point in shown if point.front)
    axes.plot(
        [x for x, _ in front], [y for _, y in front], color="#999999", linewidth=1.2, zorder=1,
        label="Pareto front",
    )  # fmt: skip
    for index, batch in enumerate(sorted({point.found.batch for _, _, point in shown})):
        mine = [(x, y, p) for x, y, p in shown if p.found.batch == batch]
        axes.scatter(
            [x for x, _, _ in mine], [y for _, y, _ in mine], s=28, zorder=2,
            color=OKABE_ITO[index % len(OKABE_ITO)], marker=_MARKERS[index % len(_MARKERS)],
            label=f"batch {batch}",
        )  # fmt: skip
        for x, y, point in mine:
            axes.annotate(
                str(point.found.devices), (x, y), xytext=(4, 4), textcoords="offset points",
                fontsize=7,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"days for {terms.tokens:.4g} tokens")
    axes.set_ylabel("money" if money else "device-hours")
    axes.grid(True, which="both", linewidth=0.3, alpha=0.5)
    axes.legend(frameon=False)


def plot_front(points: Sequence[Point], terms: Terms, target: Path) -> None:
    """Write the picture; PDF, PNG or SVG by the ending.

    Raises
    ------
    NestoptError
        If no cell has a plan, or matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise NestoptError("plot needs matplotlib: pip install 'nestopt[plot]'") from error

    def draw() -> Figure:
        figure = Figure(figsize=(5.5, 3.8), layout="constrained")
        axes = figure.subplots()
        draw_front(axes, points, terms)
        axes.set_title(f"{points[0].found.workload}: numbers are devices", fontsize=9)
        return figure

    write_picture(target, draw)
