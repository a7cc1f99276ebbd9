"""Pictures of a plan: its stages on the cluster's tree, and the pipeline's timeline.

Up to eight stages have the colours of Okabe and Ito, more a scale from dark to light; both stay
apart for the colour-blind and in grey. The same plan gives the same file, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.colours import BACKWARD, FORWARD, OKABE_ITO, SYNC, ink
from nestopt.core.pictures import write_picture
from nestopt.core.units import format_seconds
from nestopt.placement.judge.check import price
from nestopt.placement.judge.simulate import Pipeline, Timeline, pipeline_of, run
from nestopt.placement.show.plot_layout import TreePicture, lay_out
from nestopt.placement.show.windows import windows

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.workload import Workload

    Floats = NDArray[np.float64]

__all__ = ["draw_cluster", "draw_plan", "draw_timeline", "plot_plan"]


def plot_plan(workload: Workload, cluster: Cluster, plan: Plan, target: Path) -> None:
    """Write a plan's picture; PDF, PNG or SVG by the ending.

    Raises
    ------
    UsageError
        If the ending is another one.
    CheckError
        If the plan is malformed.
    """
    write_picture(target, lambda: draw_plan(workload, cluster, plan))


def draw_plan(workload: Workload, cluster: Cluster, plan: Plan) -> Figure:
    """The figure of a plan: cluster above, timeline below."""
    from matplotlib.figure import Figure

    pricing = price(workload, cluster, plan)
    pipeline = pipeline_of(workload, cluster, plan, pricing)
    timeline = run(pipeline)
    picture = lay_out(cluster)
    figure = Figure(figsize=(10, 8.5), layout="constrained")
    grid = figure.add_gridspec(2, 1, height_ratios=(1.15, 1))
    above, below = figure.add_subfigure(grid[0]), figure.add_subfigure(grid[1])
    draw_cluster(above.subplots(), cluster, plan, picture)
    above.suptitle(
        f"{workload.name} on {cluster.name} (stages: {len(plan.stages)}, "
        f"replicas: {plan.replicas})",
        fontsize=10,
    )
    shown = windows(pipeline, timeline)
    widths = [high - low for low, high in shown]
    axes = below.subplots(1, len(shown), sharey=True, squeeze=False, width_ratios=widths)[0]
    draw_timeline(list(axes), pipeline, timeline, shown)
    below.suptitle(
        f"{plan.schedule}, {pipeline.microbatches} micro-batches of {plan.microbatch}: simulated "
        f"{format_seconds(timeline.seconds)}, closed form {format_seconds(pricing.iteration_time)}",
        fontsize=10,
    )
    return figure


def _stage_colours(stages: int) -> list[Any]:
    if stages <= len(OKABE_ITO):
        return list(OKABE_ITO[:stages])
    from matplotlib import colormaps

    return [colormaps["viridis"](q / (stages - 1)) for q in range(stages)]


def _ink(colour: Any) -> str:
    from matplotlib.colors import to_rgb

    return ink(to_rgb(colour))


def draw_cluster(axes: Axes, cluster: Cluster, plan: Plan, picture: TreePicture) -> None:
    """Draw the devices as squares in their groups' boxes, coloured by stage."""
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.patches import Patch

    stages = len(plan.stages)
    colours = _stage_colours(stages)
    role = {
        int(device): (q, r)
        for q, stage in enumerate(plan.stages)
        for r, row in enumerate(stage.devices)
        for device in row
    }
    failed = set(cluster.failed)
    count = len(cluster.type_of)
    idle = [d for d in range(count) if d not in role and d not in failed]
    squares = PolyCollection(
        [_square(picture, d) for d in role],
        facecolors=[colours[q] for q, _ in role.values()],
        edgecolors="white",
        linewidths=0.3 if count <= 2048 else 0.0,
        label="stages",
    )
    axes.add_collection(squares)
    if idle:
        axes.add_collection(
            PolyCollection(
                [_square(picture, d) for d in idle],
                facecolors="white",
                edgecolors="#888888",
                linewidths=0.5,
                label="idle",
            )
        )
    if failed:
        strokes = []
        for d in sorted(failed):
            x, y = picture.x[d], picture.y[d]
            strokes += [[(x, y), (x + 1, y + 1)], [(x, y + 1), (x + 1, y)]]
        axes.add_collection(LineCollection(strokes, colors="black", linewidths=0.7, label="failed"))
    _draw_boxes(axes, cluster, picture)
    _label_groups(axes, cluster, picture, role, colours, plan.replicas)
    axes.set_xlim(-0.5, picture.width + 0.5)
    axes.set_ylim(-0.5, picture.height + 0.5)
    axes.set_aspect("equal")
    axes.set_axis_off()
    names = ", ".join(level.name for level in cluster.levels)
    axes.set_title(f"{count} devices; levels: {names}", fontsize=8, color="#444444")
    handles = [Patch(facecolor=colours[q], label=f"stage {q}") for q in range(stages)]
    handles = handles if stages <= len(OKABE_ITO) else []
    if idle:
        handles.append(Patch(facecolor="white", edgecolor="#888888", label="idle"))
    if failed:
        handles.append(Patch(facecolor="white", edgecolor="black", hatch="xxxx", label="failed"))
    if handles:
        axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    if stages > len(OKABE_ITO):
        _colour_bar(axes, stages)


def _square(picture: TreePicture, device: int) -> list[tuple[float, float]]:
    x, y = picture.x[device], picture.y[device]
    return [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)]


def _draw_boxes(axes: Axes, cluster: Cluster, picture: TreePicture) -> None:
    from matplotlib.collections import PolyCollection

    crowded = len(cluster.type_of) > 4096
    for level in range(len(cluster.levels)):
        corners = [
            [
                (b.x, b.y),
                (b.x + b.width, b.y),
                (b.x + b.width, b.y + b.height),
                (b.x, b.y + b.height),
            ]
            for b in picture.boxes
            if b.level == level
        ]
        shade = 0.65 - 0.5 * level / max(1, len(cluster.levels) - 1)
        axes.add_collection(
            PolyCollection(
                corners,
                facecolors="none",
                edgecolors=str(shade),
                linewidths=(0.4 + 0.4 * level) * (0.4 if crowded else 1.0),
                label=cluster.levels[level].name,
            )
        )


def _label_groups(
    axes: Axes,
    cluster: Cluster,
    picture: TreePicture,
    role: dict[int, tuple[int, int]],
    colours: list[Any],
    replicas: int,
) -> None:
    """Stage numbers: one a device in small clusters, else one a group that has one stage."""
    count = len(cluster.type_of)
    if count <= 64:
        for device, (q, r) in role.items():
            text = f"{q}" if replicas == 1 else f"{q}\nr{r}"
            x, y = picture.x[device] + 0.5, picture.y[device] + 0.5
            size = 7 if count > 32 else 8
            axes.text(x, y, text, ha="center", va="center", fontsize=size, color=_ink(colours[q]))
        return
    boxes = [b for b in picture.boxes if b.level == 0]
    if len(boxes) > 300:
        return
    last = np.cumsum(cluster.sizes[0])
    fontsize = 7.0 if len(boxes) <= 150 else 5.0
    for box in boxes:
        members = range(int(last[box.group]) - cluster.sizes[0][box.group], int(last[box.group]))
        held = {role[d][0] for d in members if d in role}
        if len(held) == 1:
            q = held.pop()
            x, y = box.x + box.width / 2, box.y + box.height / 2
            ink = _ink(colours[q])
            axes.text(x, y, str(q), ha="center", va="center", fontsize=fontsize, color=ink)


def _colour_bar(axes: Axes, stages: int) -> None:
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = ScalarMappable(Normalize(0, stages - 1), colormaps["viridis"])
    bar = axes.figure.colorbar(scale, ax=axes, fraction=0.025, pad=0.01)
    bar.set_label("stage")


def draw_timeline(
    axes: list[Axes],
    pipeline: Pipeline,
    timeline: Timeline,
    parts: list[tuple[float, float]],
) -> None:
    """Draw forward and backward tasks and synchronisations, a stage a row.

    Parameters
    ----------
    axes : list of Axes
        One a window.
    pipeline, timeline
        What was played, and when.
    parts : list of (float, float)
        Seconds shown on each of the axes.
    """
    from matplotlib.patches import Patch

    stages = len(pipeline.forward)
    span = sum(high - low for low, high in parts)
    unit, scale = ("ms", 1e3) if span < 1 else ("s", 1.0)
    for index, (axis, (low, high)) in enumerate(zip(axes, parts, strict=True)):
        share = (high - low) / span
        for ends, lengths, colour in (
            (timeline.forward_end, pipeline.forward, FORWARD),
            (timeline.backward_end, pipeline.backward, BACKWARD),
        ):
            _draw_tasks(axis, ends, lengths, colour, low, high, scale, share)
        for q in range(stages):
            start, stop = timeline.sync_start[q], min(timeline.sync_end[q], high)
            if stop > max(start, low):
                length = (stop - start) * scale
                axis.barh(q, length, left=start * scale, height=0.8, color=SYNC, hatch="//")
        axis.set_xlim(low * scale, high * scale)
        axis.set_ylim(stages - 0.4, -0.6)
        axis.set_xlabel(f"time ({unit})")
        axis.spines[["top", "right"]].set_visible(False)
        if index:
            axis.spines["left"].set_linestyle("--")
            axis.tick_params(left=False)
    if timeline.seconds > parts[-1][1] * (1 + 1e-9):
        text = f"synchronisation goes on until {format_seconds(timeline.seconds)}"
        axes[-1].set_title(text, loc="right", fontsize=8)
    step = max(1, -(-stages // 16))
    axes[0].set_yticks(range(0, stages, step))
    axes[0].set_ylabel("stage")
    paler = " (paler: later chunk)" if pipeline.chunks > 1 else ""
    handles = [
        Patch(facecolor=FORWARD, label=f"forward{paler}"),
        Patch(facecolor=BACKWARD, label="backward"),
        Patch(facecolor=SYNC, hatch="//", label="synchronisation, step"),
    ]
    axes[-1].figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)


def _draw_tasks(
    axis: Axes,
    ends: Floats,
    lengths: Floats,
    colour: str,
    low: float,
    high: float,
    scale: float,
    share: float,
) -> None:
    """The tasks of one kind that overlap the window; micro-batch numbers where they fit."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgb

    stages, chunks, count = ends.shape
    starts = ends - lengths[:, None, None]
    shown = np.argwhere((ends > low) & (starts < high) & (lengths[:, None, None] > 0)).tolist()
    # later chunks are paler
    pale = [0.6 * c / max(1, chunks - 1) for c in range(chunks)]
    shades = [tuple(x + (1 - x) * p for x in to_rgb(colour)) for p in pale]
    bars = []
    for q, c, i in shown:
        a, b = starts[q, c, i] * scale, ends[q, c, i] * scale
        bars.append([(a, q - 0.4), (b, q - 0.4), (b, q + 0.4), (a, q + 0.4)])
    axis.add_collection(
        PolyCollection(
            bars,
            facecolors=[shades[c] for _, c, _ in shown],
            edgecolors="white",
            linewidths=0.25 if stages <= 32 else 0.1,
        )
    )
    if stages > 32:
        return
    inches = 9.0 * share / (high - low)
    wide = 0.05 + 0.05 * len(str(count - 1))
    for q, c, i in shown:
        a, b = max(starts[q, c, i], low), min(ends[q, c, i], high)
        if lengths[q] * inches > wide and (b - a) * inches > wide:
            axis.text((a + b) / 2 * scale, q, str(i), ha="center", va="center", fontsize=5.5)
