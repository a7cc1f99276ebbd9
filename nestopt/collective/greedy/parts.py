"""Schedules of a collective's parts, by what kind of work they are.

A collective falls into up to four kinds of parts. Chunks with one source and many destinations are
*copied* (`nestopt.collective.greedy.copies`). Reductions to one NPU are the same thing backwards in
time on the reversed network, and an All-Reduce is one after the other, or trees for both that are
packed together (`nestopt.collective.greedy.sums`). Chunks with one source and one destination are
*routed* (`nestopt.collective.greedy.alltoall`). Each kind has a portfolio: a table of solvers.

Parts that have no NPU in common are solved apart and laid over each other; parts of different kinds
are merged by list scheduling (`nestopt.collective.greedy.together`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nestopt.collective.greedy.alltoall import ROUTES
from nestopt.collective.greedy.bound import quick_bound
from nestopt.collective.greedy.coarser import divisible, from_larger_chunks
from nestopt.collective.greedy.copies import COPIES
from nestopt.collective.greedy.known import KNOWN_EARLY, KNOWN_LATE
from nestopt.collective.greedy.portfolio import Entry, Found, Job, play
from nestopt.collective.greedy.sums import ALL_REDUCES, reduced
from nestopt.collective.greedy.together import improve, merge, only, renumbered, separate
from nestopt.collective.model.of_result import in_columns

if TYPE_CHECKING:
    from nestopt.collective.greedy.match import Effort
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.store import AnySchedule

__all__ = ["schedule_parts"]

_KINDS = {
    "all-gather": "copy",
    "broadcast": "copy",
    "reduce-scatter": "reduce",
    "reduce": "reduce",
    "all-reduce": "all-reduce",
    "scatter": "route",
    "gather": "route",
    "all-to-all": "route",
}
# a Reduce-Scatter's known algorithms are those of the All-Gather that it is backwards
REDUCES = (Entry("backwards", reduced, lambda job: True, "copies, seen backwards in time"),)
PORTFOLIOS = {"copy": COPIES, "reduce": REDUCES, "all-reduce": ALL_REDUCES, "route": ROUTES}


def schedule_parts(
    instance: CollectiveInstance, effort: Effort
) -> tuple[AnySchedule, dict[str, Any]]:
    """A schedule of every part of a connected instance, and how it came about."""
    busy = [i for i, p in enumerate(instance.collective.parts) if p.num_chunks and len(p.npus) > 1]
    if not busy:
        return merge(instance, []), {}
    job = Job(only(instance, busy), effort)
    found = play(WHOLE, job)
    assert found is not None
    if len(busy) == len(instance.collective.parts):
        return found.schedule, found.stats
    columns = in_columns(job.instance, found.schedule)
    return renumbered(instance, busy, columns), found.stats


def _kinds(job: Job) -> dict[str, list[int]]:
    kinds: dict[str, list[int]] = {}
    for index, part in enumerate(job.parts):
        kinds.setdefault(_KINDS[part.pattern], []).append(index)
    return kinds


def _by_kind(job: Job) -> Found | None:
    """The portfolio of the parts' kind; several kinds one by one, merged."""
    kinds = _kinds(job)
    made, stats = [], {}
    for kind, indices in kinds.items():
        some = only(job.instance, indices)
        target = int(quick_bound(some)["value"])
        if len(kinds) == 1:
            target = max(target, job.effort.target)
        work = Job(some, replace(job.effort, target=target))
        found = play(PORTFOLIOS[kind], work)
        if found is None:
            return None
        stats[kind] = found.stats
        if len(kinds) == 1:
            return Found(found.schedule, stats)
        made.append(renumbered(job.instance, indices, in_columns(some, found.schedule)))
    return Found(merge(job.instance, made), stats)


def _apart(job: Job) -> Found | None:
    """Parts without a common NPU, each on its own piece of the network."""
    return separate(job, schedule_parts)


def _coarser(job: Job) -> Found | None:
    """The same bytes in larger chunks, each cut in pieces."""
    return from_larger_chunks(job, schedule_parts)


def _mixed(entry: Entry) -> Entry:
    """An entry for collectives of several kinds only; each kind's portfolio has it too."""
    return replace(entry, when=lambda job: len(_kinds(job)) > 1 and entry.when(job))


WHOLE = (
    Entry("apart", _apart, lambda job: len(job.parts) > 1, "parts that need not meet, do not"),
    Entry("kinds", _by_kind, lambda job: True, "all parts of one kind are searched together"),
    *(_mixed(entry) for entry in KNOWN_EARLY),
    Entry("priorities", improve, lambda job: len(job.parts) > 1, "sends of all parts, reordered"),
    *(_mixed(entry) for entry in KNOWN_LATE),
    Entry("larger-chunks", _coarser, divisible, "more chunks are never worse than fewer"),
)
"""What makes any collective, in the order in which it is played."""
