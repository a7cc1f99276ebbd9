"""Which parts of a pipeline's time a picture shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nestopt.placement.judge.simulate import Pipeline, Timeline

__all__ = ["windows"]


def windows(pipeline: Pipeline, timeline: Timeline) -> list[tuple[float, float]]:
    """The times to show: everything, or the beginning and the end at one scale.

    A synchronisation that is long against the pipeline's fill is cut at the right edge.
    """
    work = float(timeline.sync_start.max())
    # the first micro-batch's way there and back, and one more period
    fill = float(timeline.backward_end[0].min())
    fill += 2 * float((pipeline.forward + pipeline.backward).max()) * pipeline.chunks
    end = work + min(timeline.seconds - work, 0.4 * fill)
    if work <= 3 * fill:
        return [(0.0, end)]
    return [(0.0, fill), (work - fill, end)]
