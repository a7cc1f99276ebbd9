"""A schedule as an interactive page: links over time by kind, and the network at a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.show.kinds import (
    LinkKind,
    busy_ps,
    idle_share,
    in_rows,
    link_kinds,
    occupancy,
    short_link,
)
from nestopt.collective.show.places import link_paths, places, short_names
from nestopt.collective.show.shares import chunk_runs, run_names, shares, time_unit
from nestopt.core.colours import distinct
from nestopt.core.page import Band, Bars, Heat, Link, Node, Page, Picture, Table
from nestopt.core.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.collective.model.topology import Topology

__all__ = ["MOST_BARS", "schedule_page"]

MOST_BARS = 60_000
"""Beyond, the page shows shares of time instead of sends, so that it stays a few megabytes."""

MOST_LINES = 6_000
MARGIN = 0.8


def schedule_page(instance: CollectiveInstance, schedule: Schedule) -> Page:
    """The page of a schedule.

    Parameters
    ----------
    instance : CollectiveInstance
    schedule : Schedule
        Of any size: more than 60,000 sends are shown as shares of time.
    """
    topology, chunks = instance.topology, instance.collective.num_chunks
    kinds = link_kinds(topology)
    order, row_of = in_rows(kinds, topology.num_links)
    scale, unit = time_unit(schedule.makespan_ps)
    ends = chunk_runs(chunks)
    colours = distinct(len(ends) - 1)
    many = schedule.num_sends > MOST_BARS
    legend = [(f"chunk {name}", index) for index, name in enumerate(run_names(ends))]
    busy = busy_ps(instance, schedule)
    return Page(
        title=instance.name,
        facts=_facts(instance, schedule),
        unit=unit,
        end=float(f"{max(schedule.makespan_ps, 1) / scale:.9g}"),  # as the bars' ends are written
        start=0.0,
        rows=[short_link(topology, link) for link in order.tolist()],
        noun="links",
        verb="busy",
        bands=_bands(kinds, busy, schedule.makespan_ps),
        words=["chunk"],
        colours=colours,
        legend=[] if many else legend,
        map=_map(topology, row_of),
        bars=None if many else _bars(instance, schedule, row_of, ends, scale),
        heat=_heat(instance, schedule, row_of) if many else None,
        tables=[_kind_table(kinds, busy, schedule.makespan_ps)],
    )


def _facts(instance: CollectiveInstance, schedule: Schedule) -> list[tuple[str, str]]:
    topology = instance.topology
    switches = int(topology.is_switch.sum())
    sizes = sorted({part.chunk_size for part in instance.collective.parts})
    nodes = f"{topology.num_nodes - switches} NPUs"
    return [
        ("makespan", format_seconds(schedule.makespan_ps * 1e-12)),
        ("network", f"{nodes}, {switches} switches" if switches else nodes),
        ("chunks", f"{instance.collective.num_chunks} of "
         + " or ".join(format_bytes(size) for size in sizes)),
        ("sends", str(schedule.num_sends)),
    ]  # fmt: skip


def _bands(kinds: list[LinkKind], busy: NDArray[np.int64], makespan_ps: int) -> list[Band]:
    bands, first = [], 0
    for kind in kinds:
        idle = 100 * idle_share(kind, busy, makespan_ps)
        detail = f"{len(kind.links)} x {kind.rate}\nidle {idle:.0f} %"
        bands.append(Band("" if kind.name == "link" else kind.name, detail, first, len(kind.links)))
        first += len(kind.links)
    return bands


def _bars(
    instance: CollectiveInstance,
    schedule: Schedule,
    row_of: NDArray[np.int64],
    ends: NDArray[np.int64],
    scale: float,
) -> Bars:
    start = schedule.start_ps / scale
    end = (schedule.start_ps + occupancy(instance, schedule)) / scale
    run = np.searchsorted(ends, schedule.chunk, side="right") - 1
    return Bars(
        row=row_of[schedule.link].tolist(),
        start=[float(f"{t:.9g}") for t in start.tolist()],
        end=[float(f"{t:.9g}") for t in end.tolist()],
        colour=run.tolist(),
        word=[0] * schedule.num_sends,
        number=schedule.chunk.tolist(),
    )


def _heat(instance: CollectiveInstance, schedule: Schedule, row_of: NDArray[np.int64]) -> Heat:
    rows = min(instance.topology.num_links, 300)
    table = shares(instance, schedule, row_of, rows, 300)
    return Heat(rows, 300, np.rint(100 * table).astype(int).ravel().tolist())


def _map(topology: Topology, row_of: NDArray[np.int64]) -> Picture:
    place = places(topology)
    low, high = place.min(axis=0) - MARGIN, place.max(axis=0) + MARGIN
    flip = np.array([1.0, -1.0])
    corner = np.array([low[0], -high[1]])
    at = place * flip - corner
    labels = short_names(topology) if topology.num_nodes <= 120 else [""] * topology.num_nodes
    nodes = [
        Node(
            x=round(x, 3),
            y=round(y, 3),
            size=0.24,
            shape="switch" if topology.is_switch[node] else "circle",
            row=-1,
            colour=-1,
            label=labels[node],
            tip=f"{topology.node_name(node)}, "
            + ("switch" if topology.is_switch[node] else f"NPU {node}"),
        )
        for node, (x, y) in enumerate(at.tolist())
    ]
    lines = link_paths(topology, place) * flip - corner
    links = [
        Link([[round(x, 3), round(y, 3)] for x, y in path], int(row_of[link]))
        for link, path in enumerate(lines.tolist())
        if topology.num_links <= MOST_LINES
    ]
    wide, tall = (high - low).tolist()
    return Picture(round(wide, 3), round(tall, 3), nodes=nodes, links=links)


def _kind_table(kinds: list[LinkKind], busy: NDArray[np.int64], makespan_ps: int) -> Table:
    head = ["links", "number", "bandwidth", "idle", "busiest link idle"]
    rows = []
    for kind in kinds:
        most = 1 - float(busy[kind.links].max()) / max(makespan_ps, 1)
        idle = idle_share(kind, busy, makespan_ps)
        rows.append(
            [
                kind.name,
                str(len(kind.links)),
                kind.rate,
                f"{100 * idle:.1f} %",
                f"{100 * most:.1f} %",
            ]
        )
    return Table("Idle share of each kind of link", head, rows)
