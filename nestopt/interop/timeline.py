"""A plan's tasks in time, one replica of every stage, as the event simulator plays them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nestopt.interop.loading import Placed
    from nestopt.placement.judge.simulate import Pipeline, Timeline

__all__ = ["Task", "play", "tasks_of"]


@dataclass(frozen=True, slots=True)
class Task:
    """One task of a stage.

    Attributes
    ----------
    stage : int
    kind : str
        ``forward``, ``backward`` or ``sync`` (synchronisation and optimizer step).
    chunk, microbatch : int
        -1 for ``sync``.
    start, end : float
        Seconds.
    """

    stage: int
    kind: str
    chunk: int
    microbatch: int
    start: float
    end: float


def play(placed: Placed) -> tuple[Pipeline, Timeline]:
    """The pipeline of a plan, and when everything happens (asynchronous transfers)."""
    from nestopt.placement.judge.check import price
    from nestopt.placement.judge.simulate import pipeline_of, run

    pricing = price(placed.workload, placed.cluster, placed.plan)
    pipeline = pipeline_of(placed.workload, placed.cluster, placed.plan, pricing)
    return pipeline, run(pipeline)


def tasks_of(pipeline: Pipeline, timeline: Timeline) -> list[Task]:
    """Every task, stage by stage in order of time."""
    found = []
    stages, chunks, microbatches = timeline.forward_end.shape
    for q in range(stages):
        rows = []
        for kind, ends, spent in (
            ("forward", timeline.forward_end, float(pipeline.forward[q])),
            ("backward", timeline.backward_end, float(pipeline.backward[q])),
        ):
            for v in range(chunks):
                for m in range(microbatches):
                    end = float(ends[q, v, m])
                    rows.append(Task(q, kind, v, m, end - spent, end))
        rows.sort(key=lambda task: (task.end, task.start))
        begin, end = float(timeline.sync_start[q]), float(timeline.sync_end[q])
        found += [*rows, Task(q, "sync", -1, -1, begin, end)]
    return found
