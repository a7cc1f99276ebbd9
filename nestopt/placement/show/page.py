"""A plan as an interactive page: the pipeline over time, and the cluster at a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.colours import BACKWARD, FORWARD, SYNC, paler, ramp
from nestopt.core.page import Band, Bars, Node, Page, Picture, Table
from nestopt.core.units import format_bytes, format_seconds
from nestopt.placement.judge.check import Pricing, price
from nestopt.placement.judge.simulate import Pipeline, Timeline, pipeline_of, run
from nestopt.placement.show.describe import name_ranges, number_ranges, share_words, utilization
from nestopt.placement.show.plot_layout import lay_out

if TYPE_CHECKING:
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.workload import Workload

__all__ = ["MOST_BARS", "plan_page"]

MOST_BARS = 100_000
"""Beyond, the page shows the first and last micro-batches only, and says so."""


def plan_page(workload: Workload, cluster: Cluster, plan: Plan) -> Page:
    """The page of a plan.

    Raises
    ------
    CheckError
        If the plan is malformed.
    """
    pricing = price(workload, cluster, plan)
    pipeline = pipeline_of(workload, cluster, plan, pricing)
    timeline = run(pipeline)
    scale, unit = (1e3, "ms") if timeline.seconds < 1 else (1.0, "s")
    stages, chunks = len(plan.stages), plan.chunks
    shades = [0.6 * c / max(1, chunks - 1) for c in range(chunks)]
    tasks = [paler(colour, s) for colour in (FORWARD, BACKWARD) for s in shades]
    colours = [*tasks, SYNC, *_stage_colours(stages)]
    bars, left_out = _bars(pipeline, timeline, scale)
    names = [_layers(workload, stage.operators) for stage in plan.stages]
    legend = [("forward", 0), ("backward", chunks), ("synchronisation, step", 2 * chunks)]
    if stages <= 12:
        legend += [(f"stage {q}", 2 * chunks + 1 + q) for q in range(stages)]
    of = [f" of chunk {c}, micro-batch" if chunks > 1 else " of micro-batch" for c in range(chunks)]
    return Page(
        title=f"{workload.name} on {cluster.name}",
        facts=_facts(workload, cluster, plan, pricing, timeline, left_out),
        unit=unit,
        end=float(f"{timeline.seconds * scale:.9g}"),  # as the bars' ends are written
        start=float(timeline.backward_end[0].min()) * scale,
        rows=[f"stage {q}: {name}" for q, name in enumerate(names)],
        noun="stages",
        verb="work",
        bands=[Band(f"stage {q}", _shorter(names[q], 24), q, 1) for q in range(stages)],
        words=[f"{way}{text}" for way in ("forward", "backward") for text in of]
        + ["synchronisation and optimizer step"],
        colours=colours,
        legend=legend,
        map=_map(cluster, plan, 2 * chunks + 1),
        bars=bars,
        tables=[_stage_table(plan, pricing, timeline, names)],
    )


def _stage_colours(stages: int) -> list[str]:
    """Colours of the stages, none of which is a task's."""
    few = ["#0072B2", "#CC79A7", "#D55E00", "#F0E442", "#999999"]
    return few[:stages] if stages <= len(few) else ramp(stages)


def _layers(workload: Workload, operators: tuple[int, ...]) -> str:
    return ", ".join(name_ranges([workload.operators[o].name for o in operators]))


def _shorter(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _batch_facts(plan: Plan, pricing: Pricing) -> list[tuple[str, str]]:
    if plan.shares:
        return [
            ("batch", f"{sum(plan.shares)} x {plan.microbatch} (micro-batches, samples)"),
            ("shares", share_words(plan.shares)),
            ("shown", "the replica that is through last"),
        ]
    text = f"{plan.replicas} x {pricing.microbatches} x {plan.microbatch}"
    return [("batch", f"{text} (replicas, micro-batches, samples)")]


def _facts(
    workload: Workload,
    cluster: Cluster,
    plan: Plan,
    pricing: Pricing,
    timeline: Timeline,
    left_out: int,
) -> list[tuple[str, str]]:
    used = sum(stage.devices.size for stage in plan.stages)
    chunks = f", {plan.chunks} chunks" if plan.chunks > 1 else ""
    seconds = pricing.iteration_time
    failed = f", {len(cluster.failed)} failed" if cluster.failed else ""
    facts = [
        ("iteration", f"{format_seconds(seconds)} (simulated {format_seconds(timeline.seconds)})"),
        ("utilization", utilization(workload, cluster, plan, seconds)),
        ("schedule", f"{plan.schedule}{chunks}"),
        *_batch_facts(plan, pricing),
        ("devices", f"{used} used, {len(cluster.alive) - used} idle{failed}"),
    ]  # fmt: skip
    if left_out:
        facts.append(("not shown", f"{left_out} tasks between the first and last micro-batches"))
    return facts


def _bars(pipeline: Pipeline, timeline: Timeline, scale: float) -> tuple[Bars, int]:
    """The tasks, and how many are left out."""
    stages, chunks, count = timeline.forward_end.shape
    most = max(2, MOST_BARS // (2 * stages * chunks))
    shown = np.arange(count)
    if count > most:
        shown = np.concatenate([shown[: most // 2], shown[count - most // 2 :]])
    row, start, end, kind, number = [], [], [], [], []
    for way, (ends, lengths) in enumerate(
        ((timeline.forward_end, pipeline.forward), (timeline.backward_end, pipeline.backward))
    ):
        for q in range(stages):
            for c in range(chunks):
                stop = ends[q, c, shown]
                row += [q] * len(shown)
                end += stop.tolist()
                start += (stop - lengths[q]).tolist()
                kind += [way * chunks + c] * len(shown)
                number += shown.tolist()
    row += list(range(stages))
    start += timeline.sync_start.tolist()
    end += timeline.sync_end.tolist()
    kind += [2 * chunks] * stages
    number += [-1] * stages
    bars = Bars(
        row=row,
        start=[float(f"{t * scale:.9g}") for t in start],
        end=[float(f"{t * scale:.9g}") for t in end],
        colour=kind,
        word=kind,
        number=number,
    )
    return bars, 2 * stages * chunks * (count - len(shown))


def _map(cluster: Cluster, plan: Plan, first_colour: int) -> Picture:
    picture = lay_out(cluster)
    role = {
        int(device): (q, r, w)
        for q, stage in enumerate(plan.stages)
        for r, row in enumerate(stage.devices)
        for w, device in enumerate(row)
    }
    failed = set(cluster.failed)
    height = picture.height + 1
    nodes = []
    for device in range(len(cluster.type_of)):
        kind = cluster.types[int(cluster.type_of[device])].name
        q, r, w = role.get(device, (-1, -1, -1))
        doing = f"stage {q}, replica {r}, rank {w}" if q >= 0 else "idle"
        if device in failed:
            doing = "failed"
        nodes.append(
            Node(
                x=round(picture.x[device] + 1.0, 3),
                y=round(height - picture.y[device] - 1.0, 3),
                size=0.94,
                shape="square",
                row=q,
                colour=first_colour + q if q >= 0 else -1,
                label=str(q) if q >= 0 else "",
                tip=f"device {device} ({kind})\n{doing}",
                failed=device in failed,
            )
        )
    boxes: list[list[float]] = [
        [round(b.x + 0.5, 3), round(height - 0.5 - b.y - b.height, 3), b.width, b.height, b.level]
        for b in picture.boxes
    ]
    return Picture(picture.width + 1, height, boxes=boxes, nodes=nodes)


def _stage_table(plan: Plan, pricing: Pricing, timeline: Timeline, names: list[str]) -> Table:
    rows = []
    for q, (stage, cost) in enumerate(zip(plan.stages, pricing.stages)):
        devices = " ".join(number_ranges(stage.devices.ravel().tolist()))
        share = 100 * cost.memory / cost.usable if cost.usable > 0 else 100.0
        rows.append(
            [
                str(q), names[q], stage.config.label(), _shorter(devices, 60),
                format_seconds(cost.seconds), format_seconds(cost.sync),
                f"{100 * timeline.idle[q]:.1f} %", f"{format_bytes(cost.memory)} ({share:.0f} %)",
            ]
        )  # fmt: skip
    head = [
        "stage",
        "layers",
        "configuration",
        "devices",
        "a micro-batch",
        "sync",
        "idle",
        "memory",
    ]
    return Table("Stages", head, rows)
