"""A schedule as a picture of characters: how busy each kind of link is, and each link of a few."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from nestopt.collective.show.kinds import (
    busy_ps,
    idle_share,
    in_rows,
    link_kinds,
    occupancy,
    short_link,
)
from nestopt.collective.show.shares import chunk_runs, run_names, shares
from nestopt.core.charts import axis, shaded, symbol
from nestopt.core.colours import distinct
from nestopt.core.units import format_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

__all__ = ["MOST_LINKS", "schedule_chart"]

MOST_LINKS = 40
"""A line a link up to these, else a line a kind only."""

NAMES = 22


def schedule_chart(
    instance: CollectiveInstance, schedule: Schedule, width: int = 80
) -> list[Text | str]:
    """The lines of the picture.

    Parameters
    ----------
    width : int
        Characters of a line, at least 40.
    """
    topology, makespan = instance.topology, schedule.makespan_ps
    kinds = link_kinds(topology)
    order, row_of = in_rows(kinds, topology.num_links)
    columns = max(width, 40) - NAMES - 1
    busy = busy_ps(instance, schedule)
    end = format_seconds(makespan * 1e-12)
    lines: list[Text | str] = [*wrap(f"{instance.name}: makespan {end}", max(width, 40)), ""]
    lines += wrap("share of the links that are busy, by kind; full height: all", max(width, 40))
    every = shares(instance, schedule, row_of, topology.num_links, columns)
    first = 0
    for kind in kinds:
        mean = every[first : first + len(kind.links)].mean(axis=0)
        idle = f"idle {100 * idle_share(kind, busy, makespan):.0f} %"
        name = "links" if kind.name == "link" else kind.name
        lines.append(f"{name}: {len(kind.links)} of {kind.rate}, {idle}")
        lines.append(" " * NAMES + "|" + shaded(mean) + "|")
        first += len(kind.links)
    lines.append(" " * (NAMES + 1) + axis(end, columns))
    if topology.num_links > MOST_LINKS:
        return lines
    ends = chunk_runs(instance.collective.num_chunks)
    held = _held(instance, schedule, row_of, ends, columns)
    lines += ["", _legend(ends, max(width, 40))]
    for row, link in enumerate(order.tolist()):
        lines.append(_line(short_link(topology, link), held[row], distinct(len(ends) - 1)))
    lines.append(" " * (NAMES + 1) + axis(end, columns))
    return lines


def _held(
    instance: CollectiveInstance,
    schedule: Schedule,
    row_of: NDArray[np.int64],
    ends: NDArray[np.int64],
    columns: int,
) -> NDArray[np.int64]:
    """The run of chunks on each link in the middle of each column, -1 if none; [links, columns]."""
    held = np.full((instance.topology.num_links, columns), -1, dtype=np.int64)
    middles = (np.arange(columns) + 0.5) * max(schedule.makespan_ps, 1) / columns
    low = np.searchsorted(middles, schedule.start_ps, side="left")
    high = np.searchsorted(middles, schedule.start_ps + occupancy(instance, schedule), side="left")
    run = np.searchsorted(ends, schedule.chunk, side="right") - 1
    for row, a, b, colour in zip(row_of[schedule.link], low, high, run):
        held[row, a:b] = colour
    return held


def _legend(ends: NDArray[np.int64], width: int) -> str:
    names = run_names(ends)
    if all(symbol(i) == name for i, name in enumerate(names)):
        return "the chunk on each link"
    text = "chunk: " + " ".join(f"{symbol(i)}={name}" for i, name in enumerate(names))
    return text if len(text) <= width else text[: width - 3] + "..."


def _line(name: str, held: NDArray[np.int64], colours: list[str]) -> Text:
    line = Text((name if len(name) <= NAMES else name[: NAMES - 1] + "…").ljust(NAMES) + "|")
    for run in held.tolist():
        line.append("·" if run < 0 else symbol(run), None if run < 0 else colours[run])
    line.append("|")
    return line
