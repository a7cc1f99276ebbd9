"""A schedule as text, as a table, and on axes of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.model.schedule import COPY
from nestopt.core.charts import rendered
from nestopt.core.errors import NestoptError
from nestopt.core.solution import MOST_ROWS, NO_MATPLOTLIB, as_html, as_text
from nestopt.core.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

__all__ = ["chart", "columns", "draw", "html", "page", "summary"]

PICOSECOND = 1e-12


def columns(schedule: Schedule, most: int | None = None) -> dict[str, Any]:
    """Columns of the first `most` sends (of all by default), times in picoseconds.

    ``arrival_ps`` is when the send's last byte is there. Without an instance there are no names,
    arrivals and sizes.
    """
    rows = slice(0, most)
    link, chunk = schedule.link[rows], schedule.chunk[rows]
    table: dict[str, Any] = {"start_ps": schedule.start_ps[rows]}
    instance = schedule.instance
    if instance is not None:
        sizes = instance.collective.chunk_sizes[chunk]
        lasts = np.zeros(len(link), dtype=np.int64)
        for size in np.unique(sizes).tolist():
            chosen = sizes == size
            lasts[chosen] = instance.transfer_ps(size)[link[chosen]]
        table["arrival_ps"] = table["start_ps"] + lasts
    table |= {"chunk": chunk, "link": link}
    if instance is not None:
        topology = instance.topology
        names = np.array([topology.node_name(v) for v in range(topology.num_nodes)], dtype=object)
        table |= {
            "source": names[topology.src[link]],
            "target": names[topology.dst[link]],
            "bytes": sizes,
        }
    table["sum"] = schedule.phase[rows] != COPY
    return table


def _first(schedule: Schedule) -> list[dict[str, Any]]:
    table = columns(schedule, MOST_ROWS)
    for name in ("start_ps", "arrival_ps"):
        if name in table:
            times = table.pop(name).tolist()
            table[name.removesuffix("_ps")] = [format_seconds(t * PICOSECOND) for t in times]
    names: list[str] = [name for name in ("start", "arrival") if name in table]
    names += [name for name in table if name not in names]
    count = min(schedule.num_sends, MOST_ROWS)
    return [{name: table[name][row] for name in names} for row in range(count)]


def _head(schedule: Schedule) -> str:
    text = f"{schedule.num_sends} sends, makespan {format_seconds(schedule.makespan_ps * 1e-12)}"
    return text if schedule.instance is None else f"{schedule.instance.name}: {text}"


def summary(schedule: Schedule) -> str:
    """One line about the whole schedule, then a table of its first sends."""
    more = schedule.num_sends - MOST_ROWS
    rest = f"\n... and {more} more" if more > 0 else ""
    return f"{_head(schedule)}\n{as_text(_first(schedule))}{rest}"


def html(schedule: Schedule) -> str:
    """The same for a notebook."""
    return as_html(_first(schedule), _head(schedule))


def _known(schedule: Schedule) -> CollectiveInstance:
    if schedule.instance is None:
        raise NestoptError("the schedule does not know its instance, so links have no durations")
    return schedule.instance


def chart(schedule: Schedule, width: int) -> str:
    """A picture of characters."""
    from nestopt.collective.show.chart import schedule_chart

    return rendered(schedule_chart(_known(schedule), schedule, width))


def page(schedule: Schedule) -> str:
    """An interactive page."""
    from nestopt.collective.show.page import schedule_page

    return schedule_page(_known(schedule), schedule).html()


def draw(schedule: Schedule, ax: Axes | None) -> Axes:
    """When each link is occupied."""
    instance = _known(schedule)
    try:
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
        from nestopt.collective.show.plot import draw_links
    except ModuleNotFoundError as error:
        raise NestoptError(NO_MATPLOTLIB) from error
    draw_links(ax, instance, schedule)
    return ax
