"""Pictures of a schedule: its links over time by kind, and the network coloured by link load.

Dark means busy in both halves. Chunks have discrete colours: up to eight those of Okabe and Ito,
more are joined in runs from dark to light; all are readable in grey and by the colour-blind. The
same schedule gives the same file, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from nestopt.core.colours import OKABE_ITO
from nestopt.core.pictures import write_picture

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.collective.model.topology import Topology

__all__ = [
    "draw_links",
    "draw_schedule",
    "draw_topology",
    "plot_schedule",
]

MOST_BARS = 3000
MOST_NAMED_LINKS = 40
MOST_NAMED_NODES = 80
BUSY = "viridis_r"


def plot_schedule(instance: CollectiveInstance, schedule: Schedule, target: Path) -> None:
    """Write a schedule's picture; PDF, PNG or SVG by the ending.

    Raises
    ------
    UsageError
        If the ending is another one.
    """
    write_picture(target, lambda: draw_schedule(instance, schedule))


def draw_schedule(instance: CollectiveInstance, schedule: Schedule) -> Figure:
    """The figure of a schedule: links over time on the left, the network on the right."""
    from matplotlib.figure import Figure

    high = 5.2 if instance.topology.num_links <= 2 * MOST_NAMED_LINKS else 6.4
    figure = Figure(figsize=(12, high), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    draw_links(left, instance, schedule)
    draw_topology(right, instance, schedule)
    scale, unit = time_unit(schedule.makespan_ps)
    figure.suptitle(f"{instance.name}: makespan {schedule.makespan_ps / scale:.6g} {unit}")
    return figure


def _chunk_scale(chunks: int) -> tuple[Any, Any, list[str]]:
    """Colours, their boundaries, and the name of each run."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, ListedColormap

    ends = chunk_runs(chunks)
    count = len(ends) - 1
    if count <= len(OKABE_ITO):
        colours: list[Any] = list(OKABE_ITO[:count])
    else:
        colours = [colormaps["viridis"](i / (count - 1)) for i in range(count)]
    return ListedColormap(colours), BoundaryNorm(ends, count), run_names(ends)


def draw_links(axes: Axes, instance: CollectiveInstance, schedule: Schedule) -> None:
    """Draw when each link is occupied: a bar a send, or shares of time where there are too many.

    A row is a link (a few neighbouring ones beyond 400 links), in order of its kind; the labels say
    how many links a kind has, their bandwidth, and for which share of the makespan they are idle.
    """
    from matplotlib.collections import PolyCollection

    topology = instance.topology
    kinds = link_kinds(topology)
    order, row_of = in_rows(kinds, topology.num_links)
    lasts = occupancy(instance, schedule)
    scale, unit = time_unit(schedule.makespan_ps)
    axes.set_xlabel(f"time ({unit})")
    axes.set_xlim(0, max(schedule.makespan_ps, 1) / scale)
    axes.set_ylim(topology.num_links - 0.5, -0.5)
    if schedule.num_sends <= MOST_BARS:
        begin = schedule.start_ps / scale
        end = begin + lasts / scale
        row = row_of[schedule.link]
        low, high = row - 0.42, row + 0.42
        corners = np.stack([begin, low, begin, high, end, high, end, low], axis=1).reshape(-1, 4, 2)
        colours, norm, names = _chunk_scale(instance.collective.num_chunks)
        edge = 0.3 if topology.num_links <= 200 else 0.1
        bars = PolyCollection(
            list(corners), array=schedule.chunk, cmap=colours, norm=norm, edgecolors="white",
            linewidths=edge,
        )  # fmt: skip
        axes.add_collection(bars)
        bar = axes.figure.colorbar(
            bars, ax=axes, label="chunk", location="bottom", fraction=0.035, pad=0.02, aspect=50
        )
        middles = (norm.boundaries[:-1] + norm.boundaries[1:]) / 2
        bar.set_ticks(middles, labels=names, fontsize=6)
        bar.ax.tick_params(length=0)
        axes.set_title("Sends on links")
    else:
        image = axes.imshow(
            shares(instance, schedule, row_of),
            aspect="auto",
            cmap=BUSY,
            vmin=0,
            vmax=1,
            interpolation="nearest",
            extent=(0, schedule.makespan_ps / scale, topology.num_links - 0.5, -0.5),
        )
        axes.figure.colorbar(
            image, ax=axes, label="share of time occupied", location="bottom", fraction=0.035,
            pad=0.02, aspect=50,
        )  # fmt: skip
        axes.set_title("Occupation of links")
    _label_rows(axes, topology, kinds, order, busy_ps(instance, schedule), schedule.makespan_ps)


def _label_rows(
    axes: Axes,
    topology: Topology,
    kinds: list[LinkKind],
    order: NDArray[np.int64],
    busy: NDArray[np.int64],
    makespan_ps: int,
) -> None:
    """Kinds on the left with their idle share, links by name on the right where they fit."""
    middles, labels, at = [], [], 0
    for kind in kinds:
        if at:
            axes.axhline(at - 0.5, color="black", linewidth=0.8)
        middles.append(at + (len(kind.links) - 1) / 2)
        idle = 100 * idle_share(kind, busy, makespan_ps)
        count = f"{len(kind.links)} link{'s' if len(kind.links) > 1 else ''}"
        name = "" if kind.name == "link" else f"{kind.name}\n"
        labels.append(f"{name}{count}, {kind.rate}\nidle {idle:.0f} %")
        at += len(kind.links)
    axes.set_yticks(middles, labels=labels, fontsize=7)
    axes.tick_params(axis="y", length=0)
    if topology.num_links <= MOST_NAMED_LINKS:
        right = axes.secondary_yaxis("right")
        names = [short_link(topology, link) for link in order.tolist()]
        size = 6 if topology.num_links <= 24 else 5
        right.set_yticks(range(len(names)), labels=names, fontsize=size)
        right.tick_params(length=0, pad=2)


def draw_topology(axes: Axes, instance: CollectiveInstance, schedule: Schedule) -> None:
    """Draw the network, each link coloured by the share of the makespan it is occupied."""
    from matplotlib.collections import LineCollection

    topology = instance.topology
    share = busy_ps(instance, schedule) / max(schedule.makespan_ps, 1)
    place = places(topology)
    crowded = topology.num_links >= 400
    lines = LineCollection(
        list(link_paths(topology, place)), array=share, cmap=BUSY,
        linewidths=0.6 if crowded else 1.4, capstyle="butt",
    )  # fmt: skip
    lines.set_clim(0, 1)
    axes.add_collection(lines)
    for kind, marker, label in ((False, "o", "NPU"), (True, "s", "switch")):
        chosen = topology.is_switch == kind
        if chosen.any():
            axes.scatter(
                place[chosen, 0],
                place[chosen, 1],
                s=max(3.0, 34.0 - 0.2 * len(place)),
                marker=marker,
                facecolor="white" if kind else "0.75",
                edgecolor="black",
                linewidth=0.5,
                zorder=3,
                label=label,
            )
    if topology.num_nodes <= MOST_NAMED_NODES:
        _name_nodes(axes, topology, place)
    if topology.is_switch.any():
        axes.legend(loc="upper right", bbox_to_anchor=(1.0, 0.0), ncols=2, fontsize=7)
    axes.figure.colorbar(
        lines, ax=axes, label="share of the makespan occupied", location="bottom", fraction=0.035,
        pad=0.02, aspect=40,
    )  # fmt: skip
    axes.set_title("Load of links")
    axes.set_aspect("equal")
    axes.margins(0.09)
    axes.set_axis_off()


def _name_nodes(axes: Axes, topology: Topology, place: NDArray[np.float64]) -> None:
    """Names beside the nodes, on the side where fewest links leave."""
    along = place[topology.dst] - place[topology.src]
    angles = np.arctan2(along[:, 1], along[:, 0])
    leaving: list[list[float]] = [[] for _ in range(topology.num_nodes)]
    for a, b, angle in zip(topology.src.tolist(), topology.dst.tolist(), angles.tolist()):
        leaving[a].append(angle)
        leaving[b].append(angle + np.pi)
    ways = np.pi * (np.arange(16) + 2) / 8  # up and right first
    for node, name in enumerate(short_names(topology)):
        apart = np.cos(ways[:, None] - np.array(leaving[node] or [0.0]))
        way = ways[np.argmin(np.round(apart.max(axis=1), 3))]
        away = np.array([np.cos(way), np.sin(way)])
        x, y = 6.5 * away
        axes.annotate(
            name,
            place[node],
            xytext=(x, y),
            textcoords="offset points",
            ha="left" if away[0] > 0.4 else "right" if away[0] < -0.4 else "center",
            va="bottom" if away[1] > 0.4 else "top" if away[1] < -0.4 else "center",
            fontsize=6 if topology.num_nodes <= 40 else 5,
            zorder=4,
        )
