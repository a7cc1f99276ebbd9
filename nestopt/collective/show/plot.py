"""Pictures of a schedule: its links over time, and the topology coloured by link load.

The colour scale is readable in grey and by the colour-blind; the same schedule gives the same file,
byte for byte.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.collective.model.topology import Topology

__all__ = ["draw_links", "draw_schedule", "draw_topology", "plot_schedule"]

MOST_BARS = 3000
BINS = 200
_UNITS = ((1e12, "s"), (1e9, "ms"), (1e6, "us"), (1e3, "ns"), (1.0, "ps"))
_METADATA: dict[str, dict[str, str | None]] = {
    ".pdf": {"CreationDate": None, "Producer": "nestopt", "Creator": "nestopt"},
    ".png": {"Software": "nestopt"},
    ".svg": {"Date": None, "Creator": "nestopt"},
}


def plot_schedule(instance: CollectiveInstance, schedule: Schedule, target: Path) -> None:
    """Write a schedule's picture; PDF, PNG or SVG by the ending.

    Raises
    ------
    UsageError
        If the ending is another one.
    """
    import matplotlib as mpl

    ending = Path(target).suffix.lower()
    if ending not in _METADATA:
        raise UsageError(f"{target}: expected a name that ends in .pdf, .png or .svg")
    style: Any = {"svg.hashsalt": "nestopt", "pdf.fonttype": 42, "font.size": 8.0}
    with mpl.rc_context(style):
        figure = draw_schedule(instance, schedule)
        figure.savefig(target, metadata=_METADATA[ending], dpi=200)


def draw_schedule(instance: CollectiveInstance, schedule: Schedule) -> Figure:
    """The figure of a schedule: links over time on the left, the topology on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.3, 1))
    draw_links(left, instance, schedule)
    draw_topology(right, instance, schedule)
    scale, unit = _time_unit(schedule.makespan_ps)
    figure.suptitle(f"{instance.name}: makespan {schedule.makespan_ps / scale:.6g} {unit}")
    return figure


def _time_unit(picoseconds: int) -> tuple[float, str]:
    return next((row for row in _UNITS if picoseconds >= row[0]), _UNITS[-1])


def _occupancy(instance: CollectiveInstance, schedule: Schedule) -> NDArray[np.int64]:
    """How long each send occupies its link, picoseconds."""
    lasts = np.zeros(schedule.num_sends, dtype=np.int64)
    sizes = instance.collective.chunk_sizes[schedule.chunk]
    for size in np.unique(sizes).tolist():
        rows = sizes == size
        lasts[rows] = instance.occupancy_ps(size)[schedule.link[rows]]
    return lasts


def draw_links(axes: Axes, instance: CollectiveInstance, schedule: Schedule) -> None:
    """Draw when each link is occupied: a bar a send, or shares of time where there are too many."""
    from matplotlib.collections import PolyCollection

    scale, unit = _time_unit(schedule.makespan_ps)
    links, lasts = instance.topology.num_links, _occupancy(instance, schedule)
    axes.set_xlabel(f"time ({unit})")
    axes.set_ylabel("link")
    axes.set_xlim(0, max(schedule.makespan_ps, 1) / scale)
    axes.set_ylim(-0.5, links - 0.5)
    if schedule.num_sends <= MOST_BARS:
        begin = schedule.start_ps / scale
        end = begin + lasts / scale
        low, high = schedule.link - 0.42, schedule.link + 0.42
        corners = np.stack([begin, low, begin, high, end, high, end, low], axis=1).reshape(-1, 4, 2)
        bars = PolyCollection(
            list(corners), array=schedule.chunk, cmap="viridis", edgecolors="white", linewidths=0.2
        )
        axes.add_collection(bars)
        bars.set_clim(0, max(instance.collective.num_chunks - 1, 1))
        axes.figure.colorbar(bars, ax=axes, label="chunk", shrink=0.8)
        axes.set_title("Sends on links")
        return
    shares = _shares(instance, schedule, lasts)
    image = axes.imshow(
        shares,
        aspect="auto",
        origin="lower",
        cmap="viridis",
        vmin=0,
        vmax=1,
        interpolation="nearest",
        extent=(0, schedule.makespan_ps / scale, -0.5, links - 0.5),
    )
    axes.figure.colorbar(image, ax=axes, label="share of time occupied", shrink=0.8)
    axes.set_title("Occupation of links")


def _shares(
    instance: CollectiveInstance, schedule: Schedule, lasts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Share of time for which each link is occupied, by bin of time; [rows, bins].

    At most 400 rows: beyond that a row is the mean of neighbouring links.
    """
    links = instance.topology.num_links
    rows = min(links, 400)
    width = schedule.makespan_ps / BINS
    table = np.zeros((rows, BINS))
    row = schedule.link.astype(np.int64) * rows // links
    begin, end = schedule.start_ps / width, (schedule.start_ps + lasts) / width
    first = begin.astype(np.int64)
    for offset in range(int(np.ceil((lasts / width).max())) + 1):
        at = first + offset
        inside = np.clip(np.minimum(end, at + 1) - np.maximum(begin, at), 0, 1)
        good = (at < BINS) & (inside > 0)
        np.add.at(table, (row[good], at[good]), inside[good])
    count = np.bincount(np.arange(links) * rows // links, minlength=rows)
    shares: NDArray[np.float64] = table / count[:, None]
    return shares


def draw_topology(axes: Axes, instance: CollectiveInstance, schedule: Schedule) -> None:
    """Draw the topology, each link coloured by the share of the makespan it is occupied."""
    from matplotlib.collections import LineCollection

    topology = instance.topology
    busy = np.zeros(topology.num_links)
    np.add.at(busy, schedule.link, _occupancy(instance, schedule))
    share = busy / max(schedule.makespan_ps, 1)
    place = _layout(topology)
    a, b = place[topology.src], place[topology.dst]
    along = b - a
    # the two directions and parallel links lie side by side
    side = np.stack([-along[:, 1], along[:, 0]], axis=1)
    side /= np.maximum(np.hypot(side[:, 0], side[:, 1]), 1e-12)[:, None]
    gap = 0.012 + 0.02 * _parallel(topology)[:, None]
    segments = np.stack([a + 0.08 * along + side * gap, b - 0.08 * along + side * gap], axis=1)
    lines = LineCollection(
        list(segments), array=share, cmap="viridis_r", linewidths=1.4 if len(a) < 400 else 0.6
    )
    lines.set_clim(0, 1)
    axes.add_collection(lines)
    for kind, marker, label in ((False, "o", "NPU"), (True, "s", "switch")):
        chosen = topology.is_switch == kind
        if chosen.any():
            axes.scatter(
                place[chosen, 0],
                place[chosen, 1],
                s=max(4.0, 60.0 - 0.2 * len(place)),
                marker=marker,
                facecolor="white" if kind else "0.85",
                edgecolor="black",
                linewidth=0.5,
                zorder=3,
                label=label,
            )
    if topology.num_nodes <= 40:
        for node in range(topology.num_nodes):
            axes.annotate(
                topology.node_name(node),
                place[node],
                ha="center",
                va="center",
                fontsize=5,
                zorder=4,
            )
    if topology.is_switch.any():
        axes.legend(loc="lower right", fontsize=6)
    axes.figure.colorbar(lines, ax=axes, label="share of the makespan occupied", shrink=0.8)
    axes.set_title("Load of links")
    axes.set_aspect("equal")
    axes.margins(0.06)
    axes.set_axis_off()


def _parallel(topology: Topology) -> NDArray[np.int64]:
    """How many earlier links join the same ends, of each link."""
    pair = topology.src.astype(np.int64) * topology.num_nodes + topology.dst
    order = np.argsort(pair, kind="stable")
    group = pair[order]
    first = np.append(True, group[1:] != group[:-1])[: len(group)]
    index = np.arange(len(group))
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = index - np.maximum.accumulate(np.where(first, index, 0))
    return rank


def _layout(topology: Topology) -> NDArray[np.float64]:
    """Positions of the nodes in the plane, float64[nodes, 2]: eigenvectors, then springs."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(topology.num_nodes))
    graph.add_edges_from(zip(topology.src.tolist(), topology.dst.tolist()))
    if topology.num_nodes <= 150:
        place = nx.kamada_kawai_layout(graph)
    else:
        side = int(np.ceil(np.sqrt(topology.num_nodes)))
        start = {v: (v % side / side, v // side / side) for v in range(topology.num_nodes)}
        rounds = 30 if topology.num_nodes <= 1100 else 0
        place = nx.spring_layout(graph, pos=start, iterations=rounds, seed=0) if rounds else start
    return np.array([place[v] for v in range(topology.num_nodes)], dtype=np.float64)
