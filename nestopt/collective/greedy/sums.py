"""Sums: Reduce-Scatter and Reduce as copies backwards, and All-Reduce."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.baselines.exchange import exchange_schedule
from nestopt.collective.baselines.solve import count_messages
from nestopt.collective.bounds import best_bound
from nestopt.collective.greedy.bound import quick_bound
from nestopt.collective.greedy.copies import COPIES, LARGE
from nestopt.collective.greedy.insert import rearrange
from nestopt.collective.greedy.join import MOST_SENDS, behind, retime, settle
from nestopt.collective.greedy.known import KNOWN_EARLY, KNOWN_LATE
from nestopt.collective.greedy.network import make_task
from nestopt.collective.greedy.portfolio import Entry, Found, Job, play, tuned
from nestopt.collective.greedy.trees import pack
from nestopt.collective.model.collective import Part
from nestopt.collective.model.of_result import in_columns
from nestopt.collective.model.schedule import REDUCE, Schedule
from nestopt.core.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from nestopt.collective.greedy.network import Task
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.store import AnySchedule

__all__ = ["ALL_REDUCES", "backwards", "as_pattern", "reduced", "with_patterns"]

# (node, send) pairs above which one search over orders takes too long
MOST_REARRANGED = 10**8
# messages up to which algorithms that copy partial sums are played
MOST_EXCHANGED = 5_000
# links above which the bound of a phase takes too long
MOST_BOUNDED = 50_000
_MIRRORED = {"reduce-scatter": "all-gather", "reduce": "broadcast"}


def with_patterns(instance: CollectiveInstance, patterns: dict[str, str]) -> CollectiveInstance:
    """The instance with some patterns replaced by others."""
    parts = tuple(
        piece
        for part in instance.collective.parts
        for piece in as_pattern(part, patterns.get(part.pattern, part.pattern))
    )
    return replace(instance, collective=replace(instance.collective, parts=parts))


def as_pattern(part: Part, pattern: str) -> list[Part]:
    """A part with another pattern, its chunks in their order.

    Chunks of an All-Reduce that are no multiple of its NPUs are dealt out to roots, in runs.
    """
    if part.chunks is None:
        return [replace(part, pattern=pattern)]
    rooted = {"reduce-scatter": "reduce", "all-gather": "broadcast"}[pattern]
    n = len(part.npus)
    first = [-(-r * part.chunks // n) for r in range(n + 1)]
    return [
        Part(rooted, part.npus, part.chunk_size, count, int(part.npus[r]))
        for r in range(n)
        if (count := first[r + 1] - first[r])
    ]


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
        work = Job(phase, replace(job.effort, target=_least(job, phase)))
        found = reduced(work) if kind == "reduce" else play(COPIES, work)
        if found is None:
            return None
        stats[kind] = found.stats
        phases.append(in_columns(phase, found.schedule))
    both = behind(phases)
    retimed = retime(job.instance, both)
    if retimed.makespan_ps >= both.makespan_ps:
        # another order is no shorter; in this one, a send may still wait for nothing
        retimed = settle(job.instance, both)
    return Found(retimed, stats)


def _least(job: Job, phase: CollectiveInstance) -> int:
    """A lower bound of a phase; a better one where a search that it spares takes long."""
    quick = int(quick_bound(phase)["value"])
    if job.claims < LARGE or job.topology.num_links > MOST_BOUNDED:
        return quick
    strong = best_bound(phase, effort=1.0, only=("partition", "spread"))
    return max(quick, int(strong["value"]))


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
    starts = [each.schedule for each in job.tried if _plain(each.schedule)]
    starts.sort(key=lambda schedule: schedule.makespan_ps)
    for start in starts[:2]:
        if job.topology.num_nodes * start.num_sends >= MOST_REARRANGED or work.done:
            break
        found = rearrange(task, start, job.effort, back=back)
        if found is not None:
            work.consider(Found(found.value, {"kernel": "insertion", "tries": found.tries}))
    return work.best


def _plain(schedule: AnySchedule) -> TypeIs[Schedule]:
    """Whether partial sums only move, so that a search may start from the schedule."""
    return isinstance(schedule, Schedule) and not schedule.shares


def _exchanges(name: str, job: Job) -> Found | None:
    """An algorithm that copies partial sums, if it is shorter than the best so far."""
    try:
        schedule = exchange_schedule(job.instance, name)
    except UsageError:
        return None
    return None if schedule is None else Found(schedule, {"kernel": name, "tries": 1})


def _copied(job: Job) -> bool:
    few = count_messages(job.instance) <= MOST_EXCHANGED
    return tuned(job) and few and job.instance.sums == "copied"


def _shorter(first: Schedule, second: Schedule) -> Schedule:
    return second if second.makespan_ps < first.makespan_ps else first


ALL_REDUCES = (
    Entry("phases", _two_phases, lambda job: True, "a Reduce-Scatter, then an All-Gather"),
    *KNOWN_EARLY,
    Entry("one-shot", partial(_exchanges, "one-shot"), _copied, "one latency: small messages"),
    Entry(
        "recursive-doubling",
        partial(_exchanges, "recursive-doubling"),
        _copied,
        "log2(n) latencies: small messages",
    ),
    Entry("mixed", partial(_exchanges, "mixed"), _copied, "another algorithm at each level"),
    Entry("trees", _packed, _small, "an early chunk is spread while a late one is summed up"),
    Entry("insertion", _rearranged, _small, "each delivery into the best gap"),
    *KNOWN_LATE,
)
"""What makes All-Reduces, in the order in which it is played."""
