"""A plan as a picture of characters: stages on the devices, and the pipeline's start and end."""

from __future__ import annotations

from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from nestopt.core.charts import axis, symbol
from nestopt.core.colours import BACKWARD, FORWARD, SYNC, distinct
from nestopt.core.units import format_seconds
from nestopt.placement.judge.check import price
from nestopt.placement.judge.simulate import Pipeline, Timeline, pipeline_of, run
from nestopt.placement.show.windows import windows

if TYPE_CHECKING:
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.workload import Workload

__all__ = ["plan_chart"]

MOST_STAGES = 40


def plan_chart(
    workload: Workload, cluster: Cluster, plan: Plan, width: int = 80
) -> list[Text | str]:
    """The lines of the picture.

    Parameters
    ----------
    width : int
        Characters of a line, at least 40.
    """
    pricing = price(workload, cluster, plan)
    pipeline = pipeline_of(workload, cluster, plan, pricing)
    timeline = run(pipeline)
    width = max(width, 40)
    group = cluster.levels[0].name
    title = f"{workload.name} on {cluster.name}: {format_seconds(pricing.iteration_time)}"
    return [
        *wrap(f"{title} an iteration, simulated {format_seconds(timeline.seconds)}", width),
        "",
        f"stage of each device, a bracket a {group} (. idle, x failed)",
        *_devices(cluster, plan, width),
        "",
        "F forward, B backward, S synchronisation and step, . idle",
        *_timeline(pipeline, timeline, width),
    ]


def _devices(cluster: Cluster, plan: Plan, width: int) -> list[Text | str]:
    colours = distinct(len(plan.stages))
    stage_of = {
        int(device): q for q, stage in enumerate(plan.stages) for device in stage.devices.ravel()
    }
    failed = set(cluster.failed)
    ends = np.cumsum(cluster.sizes[0]).tolist()
    groups = [
        tuple(-2 if d in failed else stage_of.get(d, -1) for d in range(end - size, end))
        for end, size in zip(ends, cluster.sizes[0])
    ]
    lines: list[Text | str] = []
    line = Text()
    for members, alike in groupby(groups):
        count = len(list(alike))
        repeated = count > 3
        piece = Text("[")
        for held in members:
            mark = {-2: "x", -1: "."}.get(held) or symbol(held)
            piece.append(mark, colours[held] if held >= 0 else None)
        piece.append(f"] x {count} " if repeated else "] ")
        for _ in range(1 if repeated else count):
            if len(line) and len(line) + len(piece) > width + 1:
                lines.append(line)
                line = Text()
            line.append_text(piece)
    return [*lines, line]


def _timeline(pipeline: Pipeline, timeline: Timeline, width: int) -> list[Text | str]:
    shown = windows(pipeline, timeline)
    stages = len(pipeline.forward)
    columns = width - 5
    span = sum(high - low for low, high in shown)
    widths = [max(8, round((columns - len(shown)) * (high - low) / span)) for low, high in shown]
    lines: list[Text | str] = []
    for q in range(stages):
        if MOST_STAGES // 2 <= q < stages - MOST_STAGES // 2:
            if q == MOST_STAGES // 2:
                lines.append(f"... {stages - MOST_STAGES} stages left out")
            continue
        line = Text(f"{q:>3} ")
        for (low, high), count in zip(shown, widths):
            line.append("|")
            for mark in _marks(pipeline, timeline, q, low, high, count):
                line.append(mark, {"F": FORWARD, "B": BACKWARD, "S": SYNC}.get(mark))
        lines.append(line)
    ends = [
        axis(format_seconds(high), count, format_seconds(low))
        for (low, high), count in zip(shown, widths)
    ]
    return [*lines, " " * 5 + " ".join(ends)]


def _marks(
    pipeline: Pipeline, timeline: Timeline, q: int, low: float, high: float, count: int
) -> list[str]:
    """What a stage does in the middle of each of `count` columns."""
    middles = low + (np.arange(count) + 0.5) * (high - low) / count
    marks = np.full(count, ".", dtype="<U1")
    for mark, ends, lasts in (
        ("F", timeline.forward_end, pipeline.forward[q]),
        ("B", timeline.backward_end, pipeline.backward[q]),
    ):
        stops = np.sort(ends[q].ravel())
        at = np.searchsorted(stops, middles, side="right")
        inside = at < len(stops)
        begun = stops[np.minimum(at, len(stops) - 1)] - lasts <= middles
        marks[inside & begun] = mark
    marks[(middles >= timeline.sync_start[q]) & (middles < timeline.sync_end[q])] = "S"
    return [str(mark) for mark in marks.tolist()]
