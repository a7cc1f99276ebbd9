"""Sums: Reduce-Scatter and Reduce as copies backwards, and All-Reduce."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.greedy.bound import quick_bound
from nestopt.collective.greedy.copies import COPIES
from nestopt.collective.greedy.insert import rearrange
from nestopt.collective.greedy.join import MOST_SENDS, retime, settle
from nestopt.collective.greedy.known import KNOWN_EARLY, KNOWN_LATE
from nestopt.collective.greedy.network import make_task
from nestopt.collective.greedy.portfolio import Entry, Found, Job, play, tuned
from nestopt.collective.greedy.trees import pack
from nestopt.collective.model.of_result import in_columns
from nestopt.collective.model.schedule import REDUCE, Schedule

if TYPE_CHECKING:
    from nestopt.collective.greedy.network import Task
    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["ALL_REDUCES", "backwards", "reduced", "with_patterns"]

# (node, send) pairs above which one search over orders takes too long
MOST_REARRANGED = 10**8
_MIRRORED = {"reduce-scatter": "all-gather", "reduce": "broadcast"}


def with_patterns(instance: CollectiveInstance, patterns: dict[str, str]) -> CollectiveInstance:
    """The instance with some patterns replaced by others."""
    parts = tuple(
        replace(part, pattern=patterns.get(part.pattern, part.pattern))
        for part in instance.collective.parts
    )
    return replace(instance, collective=replace(instance.collective, parts=parts))


def mirrored(instance: CollectiveInstance) -> CollectiveInstance:
    """Reductions to one NPU a chunk as copies on the reversed network."""
    copies = with_patterns(instance, _MIRRORED)
    return replace(copies, topology=instance.topology.reversed())


def reduced(job: Job) -> Found | None:
    """Reductions to one NPU a chunk: copies on the reversed network, backwards in time."""
    back = Job(mirrored(job.instance), job.effort)
    copied = play(COPIES, back)
    if copied is None:
        return None
    forward = backwards(job.instance, in_columns(back.instance, copied.schedule))
    if not job.topology.reduces.all():
        forward = _shorter(forward, retime(job.instance, forward))
    return Found(forward, copied.stats)


def backwards(instance: CollectiveInstance, copies: Schedule) -> Schedule:
    """The reductions that copies on the reversed network are, seen backwards in time."""
    sizes, size_of = np.unique(instance.collective.chunk_sizes, return_inverse=True)
    transfer = np.array([instance.transfer_ps(int(size)) for size in sizes])
    lasts = transfer[size_of.reshape(-1)[copies.chunk], copies.link]
    return Schedule.of(
        copies.chunk,
        copies.link,
        copies.makespan_ps - copies.start_ps - lasts,
        copies.makespan_ps,
        np.full(copies.num_sends, REDUCE, dtype=np.uint8),
    )


def _two_phases(job: Job) -> Found | None:
    """Reduce every chunk to one NPU, then broadcast each sum."""
    phases, stats = [], {}
    for kind, pattern in (("reduce", "reduce-scatter"), ("copy", "all-gather")):
        phase = with_patterns(job.instance, {"all-reduce": pattern})
        target = int(quick_bound(phase)["value"])
        work = Job(phase, replace(job.effort, target=target))
        found = reduced(work) if kind == "reduce" else play(COPIES, work)
        if found is None:
            return None
        stats[kind] = found.stats
        phases.append(in_columns(phase, found.schedule))
    first, second = phases
    both = Schedule.of(
        np.concatenate([first.chunk, second.chunk]),
        np.concatenate([first.link, second.link]),
        np.concatenate([first.start_ps, second.start_ps + first.makespan_ps]),
        first.makespan_ps + second.makespan_ps,
        np.concatenate([first.phase, second.phase]),
    )
    return Found(_shorter(both, retime(job.instance, both)), stats)


def _tasks(job: Job) -> tuple[Task, Task]:
    """The copies, and the partial sums as copies on the reversed network."""
    parts = with_patterns(job.instance, {"all-reduce": "all-gather"}).collective.parts
    task = make_task(job.topology, parts, job.instance.latency)
    return task, make_task(job.topology.reversed(), parts, job.instance.latency)


def _small(job: Job) -> bool:
    return tuned(job) and job.claims <= MOST_SENDS


def _packed(job: Job) -> Found | None:
    """Trees for both phases, packed together."""
    task, back = _tasks(job)
    found = pack(task, back, job.effort)
    if found is None:
        return None
    schedule = found.value if task.plain else settle(job.instance, found.value)
    return Found(schedule, {"kernel": "trees", "tries": found.tries})


def _rearranged(job: Job) -> Found | None:
    """Searches over orders of deliveries, from the two best schedules that are there."""
    task, back = _tasks(job)
    work = Job(job.instance, job.effort, job.best)
    starts = [each.schedule for each in job.tried if isinstance(each.schedule, Schedule)]
    starts.sort(key=lambda schedule: schedule.makespan_ps)
    for start in starts[:2]:
        if job.topology.num_nodes * start.num_sends >= MOST_REARRANGED or work.done:
            break
        found = rearrange(task, start, job.effort, back=back)
        if found is not None:
            work.consider(Found(found.value, {"kernel": "insertion", "tries": found.tries}))
    return work.best


def _shorter(first: Schedule, second: Schedule) -> Schedule:
    return second if second.makespan_ps < first.makespan_ps else first


ALL_REDUCES = (
    Entry("phases", _two_phases, lambda job: True, "a Reduce-Scatter, then an All-Gather"),
    *KNOWN_EARLY,
    Entry("trees", _packed, _small, "an early chunk is spread while a late one is summed up"),
    Entry("insertion", _rearranged, _small, "each delivery into the best gap"),
    *KNOWN_LATE,
)
"""What makes All-Reduces, in the order in which it is played."""
