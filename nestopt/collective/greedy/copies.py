"""Copies: chunks with one source and many destinations (All-Gather, Broadcast).

The portfolio of copies also serves Reduce-Scatter and Reduce: they are copies on the reversed
network, backwards in time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.greedy.insert import rearrange
from nestopt.collective.greedy.join import retime
from nestopt.collective.greedy.kernels.sends import mark_needed
from nestopt.collective.greedy.known import KNOWN_EARLY, KNOWN_LATE
from nestopt.collective.greedy.match import Sends, match
from nestopt.collective.greedy.parallel import best_of
from nestopt.collective.greedy.portfolio import Entry, Found, Job, tuned
from nestopt.collective.greedy.rounds import match_in_rounds
from nestopt.collective.greedy.steps import equal_step, match_steps
from nestopt.collective.greedy.translate import find_translation, match_translated
from nestopt.collective.model.schedule import Schedule
from nestopt.collective.trees.solve import ForestCache, tree_schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.greedy.parallel import Best
    from nestopt.collective.model.steps import StepSchedule
    from nestopt.collective.model.topology import Topology

__all__ = ["COPIES", "LARGE", "as_schedule"]

# (node, chunk) pairs above which a schedule in steps is good enough, and matching by events, which
# takes about 1 us a pair, is not tried after it
LARGE = 100_000
# nor is it for what is so near its bound
NEAR = 1.05
# how many chunks of its source a link looks at, and the largest instances (in such pairs) for which
# it does by default: looking takes several times as long as taking the first
AHEAD = (16, 64)
MOST_CLAIMS_AHEAD = 3 * 10**8


# trees of the bottleneck cut: NPUs up to which they are packed within a few seconds, sends up to
# which they are played, and the nominal seconds of a search below which that would take too long
MOST_CUT_NPUS = 40
MOST_CUT_SENDS = 300_000
LEAST_CUT_SECONDS = 0.1


def as_schedule(sends: Sends, makespan: int) -> Schedule:
    """Sends of copies as a schedule."""
    return Schedule.of(sends.chunk, sends.link, sends.start_ps, makespan)


def _alone(job: Job) -> bool:
    return len(job.parts) == 1 and job.parts[0].pattern == "all-gather"


def _stepwise(job: Job) -> bool:
    chosen = job.effort.policy in (None, "fifo")
    return chosen and _alone(job) and equal_step(job.instance) is not None


def _alike(job: Job) -> bool:
    whole = _alone(job) and len(job.parts[0].npus) == job.topology.num_nodes
    return whole and job.effort.policy is None


def _small(job: Job) -> bool:
    """Whether matching by events is worth its time: it is, if nothing else is there."""
    if job.best is None or job.claims < LARGE:
        return True
    return not job.near(NEAR) and not _in_equal_steps(job)


def _in_equal_steps(job: Job) -> bool:
    return any(each.stats.get("kernel") in ("steps", "translation") for each in job.tried)


def _rounds_apply(job: Job) -> bool:
    quick = job.effort.policy is None and job.claims < LARGE
    return quick and equal_step(job.instance) is not None


def _searchable(job: Job) -> bool:
    return tuned(job) and not job.task.plain and isinstance(_best(job), Schedule)


def _best(job: Job) -> object:
    return None if job.best is None else job.best.schedule


def _in_steps(job: Job) -> Found:
    """One All-Gather on equal links, by the synchronous kernel: the only one for large networks."""
    instance, effort = job.instance, job.effort
    step = equal_step(instance)
    assert step is not None
    (part,) = job.parts

    def attempt(index: int) -> tuple[int, StepSchedule]:
        seed = effort.seed * 1_000_003 + index
        # every other try looks ahead, which takes several times as long
        looks = index % 2 and effort.policy is None
        ahead = AHEAD[index // 2 % len(AHEAD)] if looks else 0
        steps = match_steps(instance, step, seed=seed, threads=effort.threads, ahead=ahead)
        return steps.makespan_ps, steps

    # one try after the other: each uses all threads by itself
    count = effort.tries(1e-7 * job.claims) if job.claims >= LARGE or effort.policy else 2
    if effort.restarts is None and job.claims <= MOST_CLAIMS_AHEAD:
        count = max(count, 2)
    tries = (partial(attempt, index) for index in range(count))
    found = best_of(tries, threads=1, target=effort.target, clock=effort.clock)
    assert found is not None
    stats = {"kernel": "steps", "tries": found.tries}
    best = found.value
    if len(part.npus) == job.topology.num_nodes:
        return Found(best, stats)
    every = best.to_schedule(job.topology)
    member = np.zeros((1, job.topology.num_nodes), dtype=np.bool_)
    member[0, part.npus] = True
    sends = Sends(every.chunk, every.link, every.start_ps)
    needed = prune(job.topology, sends, instance.collective.part_of, member)
    return Found(as_schedule(needed, best.makespan_ps), stats)


def _translated(job: Job) -> Found | None:
    """One All-Gather over every node of a network that looks the same from each."""
    translation = find_translation(job.topology)
    if translation is None:
        return None
    found = match_translated(job.instance, translation, job.effort)
    if found is None:
        return None
    stats = {"kernel": "translation", "tries": found.tries}
    return Found(as_schedule(found.value, found.makespan), stats)


def _in_rounds(job: Job) -> Found:
    step = equal_step(job.instance)
    assert step is not None
    return _needed(job, match_in_rounds(job.task, step, job.effort), "rounds")


def _by_events(job: Job) -> Found:
    return _needed(job, match(job.task, job.effort), "events")


def _needed(job: Job, matched: Best[Sends], kernel: str) -> Found:
    """A matching without what nobody needs, and without the pauses that leaves."""
    task = job.task
    sends = prune(job.topology, matched.value, task.part_of, task.member)
    schedule = as_schedule(sends, matched.makespan)
    if not task.plain or schedule.num_sends < len(matched.value.chunk):
        # closes the pauses that dropped sends and queues in switches have left
        earlier = retime(job.instance, schedule)
        schedule = earlier if earlier.makespan_ps < schedule.makespan_ps else schedule
    return Found(schedule, {"kernel": kernel, "tries": matched.tries})


def _cut_pays(job: Job) -> bool:
    """Whether trees of the bottleneck cut are worth their time: switches or several chunks."""
    few = max(len(part.npus) for part in job.parts) <= MOST_CUT_NPUS
    sends = sum(part.num_chunks * len(part.npus) for part in job.parts)
    worth = not job.topology.multicast.all() or max(p.chunks_per_npu for p in job.parts) > 1
    enough = job.effort.seconds >= LEAST_CUT_SECONDS
    return tuned(job) and few and worth and enough and sends <= MOST_CUT_SENDS


def _along_cut_trees(job: Job) -> Found:
    cache = ForestCache()
    schedule = tree_schedule(job.instance, cache)
    return Found(schedule, {"kernel": "forest", "tries": len(cache.forests())})


def _rearranged(job: Job) -> Found | None:
    """A search over orders of deliveries around the best schedule."""
    assert job.best is not None and isinstance(job.best.schedule, Schedule)
    found = rearrange(job.task, job.best.schedule, job.effort)
    if found is None:
        return None
    return Found(found.value, {"kernel": "insertion", "tries": found.tries})


def prune(
    topology: Topology, sends: Sends, part_of: NDArray[np.int32], member: NDArray[np.bool_]
) -> Sends:
    """Drop what reaches only nodes that neither need it nor pass it on."""
    if member.all():
        return sends
    keep = mark_needed(
        sends.chunk,
        sends.link,
        topology.src,
        topology.dst,
        topology.multicast,
        part_of,
        member,
    )
    return Sends(sends.chunk[keep], sends.link[keep], sends.start_ps[keep])


COPIES = (
    Entry("steps", _in_steps, _stepwise, "equal links: one tick a hop, no queue of events"),
    Entry("translation", _translated, _alike, "one node's tree, moved to all: N edges to search"),
    *KNOWN_EARLY,
    Entry("rounds", _in_rounds, _rounds_apply, "equal links: a maximum matching a tick"),
    Entry("events", _by_events, _small, "unequal links and switches: what ends first goes first"),
    Entry("forest", _along_cut_trees, _cut_pays, "many chunks: trees at the rate of the cut"),
    Entry("insertion", _rearranged, _searchable, "switches: each delivery into the best gap"),
    *KNOWN_LATE,
)
"""What makes copies, in the order in which it is played."""
