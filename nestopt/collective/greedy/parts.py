"""Schedules of a collective's parts, by what kind of work they are.

A collective falls into up to four kinds of parts. Chunks with one source and many destinations are
*copied* (`greedy_steps` on equal links, `greedy_translate` on networks that look the same from
every node, `greedy_match` otherwise). Reductions to one NPU are the same thing backwards in time on
the reversed network. An All-Reduce is a reduction to one NPU a chunk, then a broadcast from it, or
trees for both that are packed together (`greedy_trees`). Chunks with one source and one destination
are *routed* (`alltoall`). Where a collective has parts of several kinds, their schedules are merged
by list scheduling.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.greedy.alltoall import route_all
from nestopt.collective.greedy.bound import quick_bound
from nestopt.collective.greedy.insert import rearrange
from nestopt.collective.greedy.join import MOST_SENDS, retime, settle
from nestopt.collective.greedy.match import Effort, Sends, match
from nestopt.collective.greedy.network import link_times, make_task
from nestopt.collective.greedy.parallel import best_of
from nestopt.collective.greedy.rounds import match_in_rounds
from nestopt.collective.greedy.steps import equal_step, match_steps
from nestopt.collective.greedy.translate import find_translation, match_translated
from nestopt.collective.greedy.trees import pack
from nestopt.collective.model.collective import Part
from nestopt.collective.model.of_result import in_columns
from nestopt.collective.model.schedule import REDUCE, Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.collective.greedy.network import Task
    from nestopt.collective.greedy.parallel import Best
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.steps import StepSchedule
    from nestopt.collective.model.store import AnySchedule
    from nestopt.collective.model.topology import Topology

__all__ = ["schedule_parts"]

LARGE = 100_000
MOST_REARRANGED = 10**8
# chunks of its source that a link looks at, and the largest instances for which it does by default
_AHEAD = (16, 64)
_MOST_CLAIMS_AHEAD = 3 * 10**8
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
_MIRRORED = {"reduce-scatter": "all-gather", "reduce": "broadcast"}


def schedule_parts(
    instance: CollectiveInstance, effort: Effort
) -> tuple[AnySchedule, dict[str, Any]]:
    """A schedule of every part of a connected instance, and how it came about, by kind."""
    parts = instance.collective.parts
    kinds: dict[str, list[int]] = {}
    for index, part in enumerate(parts):
        if part.num_chunks and len(part.npus) > 1:
            kinds.setdefault(_KINDS[part.pattern], []).append(index)
    made: list[AnySchedule] = []
    stats: dict[str, Any] = {}
    for kind, indices in kinds.items():
        some = _only(instance, indices)
        aim = effort if len(indices) == len(parts) else replace(effort, target=0)
        schedule, stats[kind] = _of_kind(some, kind, aim)
        made.append(schedule)
    if len(made) == 1 and len(next(iter(kinds.values()))) == len(parts):
        return made[0], stats
    numbered = [
        _renumbered(instance, indices, in_columns(_only(instance, indices), schedule))
        for indices, schedule in zip(kinds.values(), made)
    ]
    return _merge(instance, numbered), stats


def _only(instance: CollectiveInstance, indices: Sequence[int]) -> CollectiveInstance:
    parts = tuple(instance.collective.parts[index] for index in indices)
    return replace(instance, collective=replace(instance.collective, parts=parts))


def _with_patterns(instance: CollectiveInstance, patterns: dict[str, str]) -> CollectiveInstance:
    parts = tuple(
        piece
        for part in instance.collective.parts
        for piece in _as_pattern(part, patterns.get(part.pattern, part.pattern))
    )
    return replace(instance, collective=replace(instance.collective, parts=parts))


def _as_pattern(part: Part, pattern: str) -> list[Part]:
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


def _of_kind(
    instance: CollectiveInstance, kind: str, effort: Effort
) -> tuple[AnySchedule, dict[str, Any]]:
    """A schedule of an instance whose parts are all of one kind."""
    if kind == "all-reduce":
        return _all_reduce(instance, effort)
    effort = replace(effort, target=max(effort.target, int(quick_bound(instance)["value"])))
    if kind == "reduce":
        return _reduce(instance, effort)
    if kind == "copy":
        return _copy(instance, effort)
    parts = instance.collective.parts
    times = link_times(instance.topology, parts, instance.latency)
    routed = route_all(instance.topology, parts, times, effort)
    return _as_schedule(routed.value, routed.makespan), _stats("route", routed.tries)


def _stats(kernel: str, tries: int) -> dict[str, Any]:
    return {"kernel": kernel, "tries": tries}


def _as_schedule(sends: Sends, makespan: int) -> Schedule:
    return Schedule.of(sends.chunk, sends.link, sends.start_ps, makespan)


def _copy(instance: CollectiveInstance, effort: Effort) -> tuple[AnySchedule, dict[str, Any]]:
    """All-Gathers and Broadcasts: the shortest of what the kernels that apply find."""
    parts, topology = instance.collective.parts, instance.topology
    best: AnySchedule | None = None
    stats: dict[str, Any] = {}
    alone = len(parts) == 1 and parts[0].pattern == "all-gather"
    if alone and effort.policy in (None, "fifo"):
        best, stats = _in_steps(instance, effort)
    whole = alone and len(parts[0].npus) == topology.num_nodes
    if whole and effort.policy is None and (best is None or best.makespan_ps > effort.target):
        found, how = _translated(instance, effort)
        if found is not None and (best is None or found.makespan_ps < best.makespan_ps):
            best, stats = found, how
    large = topology.num_nodes * instance.collective.num_chunks >= LARGE
    if best is not None and (best.makespan_ps <= effort.target or large):
        return best, stats
    task = make_task(topology, parts, instance.latency)
    matched, kernel = _matched(instance, task, effort)
    if best is not None and best.makespan_ps <= matched.makespan:
        return best, stats
    sends = _prune(topology, matched.value, task.part_of, task.member)
    schedule = _as_schedule(sends, matched.makespan)
    if not task.plain or schedule.num_sends < len(matched.value.chunk):
        # closes the pauses that dropped sends and queues in switches have left
        schedule = _shorter(schedule, retime(instance, schedule))
    if not task.plain and _searched(schedule, effort):
        better = rearrange(task, schedule, effort)
        if better is not None and better.makespan < schedule.makespan_ps:
            return better.value, _stats("insertion", better.tries)
    return schedule, _stats(kernel, matched.tries)


def _searched(schedule: Schedule, effort: Effort) -> bool:
    """Whether to search further around a schedule."""
    default = effort.policy is None and effort.restarts is None
    return default and schedule.makespan_ps > effort.target and not effort.clock.stop()


def _matched(instance: CollectiveInstance, task: Task, effort: Effort) -> tuple[Best[Sends], str]:
    """The shorter of a matching by events and, on equal links, one in steps."""
    step = equal_step(instance)
    stepwise: Best[Sends] | None = None
    if step is not None and effort.policy is None and task.num_claims < LARGE:
        stepwise = match_in_rounds(task, step, effort)
        if stepwise.makespan <= effort.target:
            return stepwise, "rounds"
    matched = match(task, effort)
    if stepwise is not None and stepwise.makespan <= matched.makespan:
        return stepwise, "rounds"
    return matched, "events"


def _in_steps(
    instance: CollectiveInstance, effort: Effort
) -> tuple[AnySchedule | None, dict[str, Any]]:
    """One All-Gather on equal links, by the synchronous kernel: the only one for large networks."""
    step = equal_step(instance)
    (part,) = instance.collective.parts
    if step is None:
        return None, {}
    claims = instance.topology.num_nodes * instance.collective.num_chunks

    def attempt(index: int) -> tuple[int, StepSchedule]:
        seed = effort.seed * 1_000_003 + index
        # every other try looks ahead, which takes several times as long
        looks = index % 2 and effort.policy is None
        ahead = _AHEAD[index // 2 % len(_AHEAD)] if looks else 0
        steps = match_steps(instance, step, seed=seed, threads=effort.threads, ahead=ahead)
        return steps.makespan_ps, steps

    # one try after the other: each uses all threads by itself
    count = effort.tries(1e-7 * claims) if claims >= LARGE or effort.policy else 2
    if effort.restarts is None and claims <= _MOST_CLAIMS_AHEAD:
        count = max(count, 2)
    tries = (partial(attempt, index) for index in range(count))
    found = best_of(tries, threads=1, target=effort.target, clock=effort.clock)
    assert found is not None
    best = found.value
    if len(part.npus) == instance.topology.num_nodes:
        return best, _stats("steps", found.tries)
    every = best.to_schedule(instance.topology)
    member = np.zeros((1, instance.topology.num_nodes), dtype=np.bool_)
    member[0, part.npus] = True
    sends = Sends(every.chunk, every.link, every.start_ps)
    needed = _prune(instance.topology, sends, instance.collective.part_of, member)
    return _as_schedule(needed, best.makespan_ps), _stats("steps", found.tries)


def _translated(
    instance: CollectiveInstance, effort: Effort
) -> tuple[Schedule | None, dict[str, Any]]:
    """One All-Gather over every node of a network that looks the same from each."""
    translation = find_translation(instance.topology)
    if translation is None:
        return None, {}
    found = match_translated(instance, translation, effort)
    if found is None:
        return None, {}
    return _as_schedule(found.value, found.makespan), _stats("translation", found.tries)


def _reduce(instance: CollectiveInstance, effort: Effort) -> tuple[Schedule, dict[str, Any]]:
    """Reductions to one NPU a chunk: copies on the reversed network, backwards in time."""
    mirrored = replace(_with_patterns(instance, _MIRRORED), topology=instance.topology.reversed())
    copied, stats = _copy(mirrored, effort)
    backwards = in_columns(mirrored, copied)
    sizes, size_of = np.unique(instance.collective.chunk_sizes, return_inverse=True)
    transfer = np.array([instance.transfer_ps(int(size)) for size in sizes])
    lasts = transfer[size_of.reshape(-1)[backwards.chunk], backwards.link]
    forward = Schedule.of(
        backwards.chunk,
        backwards.link,
        backwards.makespan_ps - backwards.start_ps - lasts,
        backwards.makespan_ps,
        np.full(backwards.num_sends, REDUCE, dtype=np.uint8),
    )
    if instance.topology.reduces.all():
        return forward, stats
    return _shorter(forward, retime(instance, forward)), stats


def _all_reduce(instance: CollectiveInstance, effort: Effort) -> tuple[Schedule, dict[str, Any]]:
    """Reduce every chunk to one NPU, then broadcast each sum; or both along packed trees."""
    phases, stats = [], {}
    for kind, pattern in (("reduce", "reduce-scatter"), ("copy", "all-gather")):
        phase = _with_patterns(instance, {"all-reduce": pattern})
        schedule, stats[kind] = _of_kind(phase, kind, replace(effort, target=0))
        phases.append(in_columns(phase, schedule))
    reduced, copied = phases
    both = Schedule.of(
        np.concatenate([reduced.chunk, copied.chunk]),
        np.concatenate([reduced.link, copied.link]),
        np.concatenate([reduced.start_ps, copied.start_ps + reduced.makespan_ps]),
        reduced.makespan_ps + copied.makespan_ps,
        np.concatenate([reduced.phase, copied.phase]),
    )
    best = _shorter(both, retime(instance, both))
    effort = replace(effort, target=max(effort.target, int(quick_bound(instance)["value"])))
    claims = instance.topology.num_nodes * instance.collective.num_chunks
    if not _searched(best, effort) or claims > MOST_SENDS:
        return best, stats
    parts = _with_patterns(instance, {"all-reduce": "all-gather"}).collective.parts
    task = make_task(instance.topology, parts, instance.latency)
    back = make_task(instance.topology.reversed(), parts, instance.latency)
    # each search starts from the two phases too, so that packing never makes it longer
    starts = [best]
    found = pack(task, back, effort)
    if found is not None and found.makespan < best.makespan_ps:
        best = found.value if task.plain else settle(instance, found.value)
        stats |= _stats("trees", found.tries)
        starts.append(best)
    for start in starts:
        large = instance.topology.num_nodes * start.num_sends >= MOST_REARRANGED
        if large or not _searched(best, effort):
            break
        found = rearrange(task, start, effort, back=back)
        if found is not None and found.makespan < best.makespan_ps:
            best, stats = found.value, stats | _stats("insertion", found.tries)
    return best, stats


def _shorter(first: Schedule, second: Schedule) -> Schedule:
    return second if second.makespan_ps < first.makespan_ps else first


def _renumbered(
    instance: CollectiveInstance, indices: Sequence[int], schedule: Schedule
) -> Schedule:
    """A schedule of the parts `indices`, its chunks numbered as in the whole instance."""
    counts = [part.num_chunks for part in instance.collective.parts]
    first = np.concatenate([[0], np.cumsum(counts)])
    number = np.concatenate([np.arange(first[i], first[i + 1]) for i in indices])
    return Schedule.of(
        number[schedule.chunk],
        schedule.link,
        schedule.start_ps,
        schedule.makespan_ps,
        schedule.phase,
        schedule.content,
        schedule.sets,
    )


def _prune(
    topology: Topology, sends: Sends, part_of: NDArray[np.int32], member: NDArray[np.bool_]
) -> Sends:
    """Drop what reaches only nodes that neither need it nor pass it on."""
    from nestopt.collective.greedy.kernels.sends import mark_needed

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


def _merge(instance: CollectiveInstance, schedules: list[Schedule]) -> Schedule:
    """One schedule of all: behind each other, then interleaved by their relative starts."""
    if not schedules:
        return Schedule.of([], [], [], 0)
    if len(schedules) == 1:
        return schedules[0]
    offset, starts, relative = 0, [], []
    for each in schedules:
        starts.append(each.start_ps + offset)
        relative.append((each.start_ps / max(each.makespan_ps, 1) * 2**40).astype(np.int64))
        offset += each.makespan_ps
    columns = [
        np.concatenate([getattr(each, name) for each in schedules])
        for name in ("chunk", "link", "phase")
    ]
    behind = Schedule.of(columns[0], columns[1], np.concatenate(starts), offset, columns[2])
    # `behind` is sorted by start: its schedules lie one after the other, each in its own order
    interleaved = retime(instance, behind, np.concatenate(relative))
    return _shorter(_shorter(behind, retime(instance, behind)), interleaved)
