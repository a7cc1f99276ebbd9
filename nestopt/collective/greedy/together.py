"""Several collectives at once: parts solved apart, laid over each other, and improved together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.greedy.join import (
    MOST_SENDS,
    at_times,
    behind,
    durations,
    find_dependencies,
    retime,
)
from nestopt.collective.greedy.kernels.list import search_priorities
from nestopt.collective.greedy.portfolio import Found, tuned
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.connectivity import find_separation
from nestopt.collective.model.of_result import in_columns
from nestopt.collective.model.schedule import Schedule
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from nestopt.collective.greedy.match import Effort
    from nestopt.collective.greedy.portfolio import Job
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.store import AnySchedule

    Solver = Callable[[CollectiveInstance, Effort], tuple[AnySchedule, dict[str, Any]]]

__all__ = ["improve", "merge", "only", "renumbered", "separate"]

# the least nominal seconds for each different piece where there are many
LEAST_SECONDS = 0.02
# a round of the search over priorities takes about 0.4 us a send
SECONDS_A_SEND = 4e-7
FEWEST_ROUNDS, MOST_ROUNDS = 10, 2000


def only(instance: CollectiveInstance, indices: Sequence[int]) -> CollectiveInstance:
    """The instance with some of its parts."""
    parts = tuple(instance.collective.parts[index] for index in indices)
    return replace(instance, collective=replace(instance.collective, parts=parts))


def renumbered(
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


def merge(instance: CollectiveInstance, schedules: list[Schedule]) -> Schedule:
    """One schedule of all: behind each other, then interleaved by their relative starts."""
    if not schedules:
        return Schedule.of([], [], [], 0)
    if len(schedules) == 1:
        return schedules[0]
    apart = behind(schedules)
    # `apart` is sorted by start: its schedules lie one after the other, each in its own order
    relative = np.concatenate(
        [(s.start_ps / max(s.makespan_ps, 1) * 2**40).astype(np.int64) for s in schedules]
    )
    found = [apart, retime(instance, apart), retime(instance, apart, relative)]
    return min(found, key=lambda schedule: schedule.makespan_ps)


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Parts that share NPUs, on the piece of the network that is theirs.

    Attributes
    ----------
    instance : CollectiveInstance
        Its nodes and links are numbered anew.
    parts : list of int
        Numbers of the parts in the whole instance.
    links : int64[E]
        Numbers of the links in the whole network.
    """

    instance: CollectiveInstance
    parts: list[int]
    links: NDArray[np.int64]

    def signature(self) -> tuple[Any, ...]:
        """Equal for pieces that have the same schedules."""
        topology = self.instance.topology
        arrays = (
            topology.src,
            topology.dst,
            topology.alpha_ps,
            topology.bandwidth,
            topology.is_switch,
            topology.multicast,
            topology.reduces,
        )
        jobs = tuple(
            (p.pattern, p.npus.tobytes(), p.chunk_size, p.chunks_per_npu, p.chunks, p.root)
            for p in self.instance.collective.parts
        )
        return tuple(array.tobytes() for array in arrays), jobs


def separate(job: Job, solve: Solver) -> Found | None:
    """Groups of parts that have no NPU in common, each solved on its own piece of the network.

    None where all parts hang together. A piece is the group's NPUs and the switches between them;
    where these do not connect the group, it is the whole network. Equal pieces are solved once.
    What the pieces share (ports of switches) is settled by list scheduling.
    """
    groups = _groups(job.instance)
    if len(groups) == 1:
        return None
    pieces = [_piece(job.instance, group) for group in groups]
    names = [piece.signature() for piece in pieces]
    different = len(set(names))
    seconds = max(LEAST_SECONDS, job.effort.seconds / different)
    known: dict[Any, Schedule] = {}
    made: list[Schedule] = []
    for piece, name in zip(pieces, names):
        if name not in known:
            effort = replace(job.effort, seconds=min(seconds, job.effort.seconds), target=0)
            known[name] = in_columns(piece.instance, solve(piece.instance, effort)[0])
        own = known[name]
        moved = Schedule.of(
            own.chunk,
            piece.links[own.link],
            own.start_ps,
            own.makespan_ps,
            own.phase,
            own.content,
            own.sets,
        )
        made.append(renumbered(job.instance, piece.parts, moved))
    stats = {"kernel": "apart", "pieces": len(pieces), "different": different}
    return Found(_overlaid(job.instance, made), stats)


def _overlaid(instance: CollectiveInstance, schedules: list[Schedule]) -> Schedule:
    """All at once, where they have no link in common; otherwise as early as that allows."""
    uses = np.zeros(instance.topology.num_links, dtype=np.int64)
    for each in schedules:
        uses[np.unique(each.link)] += 1
    if (uses > 1).any():
        return merge(instance, schedules)
    longest = max(each.makespan_ps for each in schedules)
    return at_times(schedules, [0] * len(schedules), longest)


def _groups(instance: CollectiveInstance) -> list[list[int]]:
    """Parts that hang together by common NPUs."""
    label = np.full(instance.topology.num_nodes, -1, dtype=np.int64)
    groups: dict[int, list[int]] = {}
    for index, part in enumerate(instance.collective.parts):
        met = np.unique(label[part.npus])
        joined = [index]
        for each in met[met >= 0].tolist():
            joined = groups.pop(each) + joined
            label[label == each] = index
        label[part.npus] = index
        groups[index] = sorted(joined)
    return list(groups.values())


def _piece(instance: CollectiveInstance, group: list[int]) -> _Piece:
    """The parts of a group on their piece of the network."""
    topology = instance.topology
    some = only(instance, group)
    own = np.zeros(topology.num_nodes, dtype=np.bool_)
    for part in some.collective.parts:
        own[part.npus] = True
    keep = _useful(topology, own | topology.is_switch)
    piece = _restricted(some, group, keep)
    if find_separation(piece.instance) is None:
        return piece
    return _restricted(some, group, np.ones(topology.num_nodes, dtype=np.bool_))


def _useful(topology: Topology, keep: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Without switches at the end of one cable, again and again."""
    keep = keep.copy()
    while True:
        inner = keep[topology.src] & keep[topology.dst]
        pairs = np.stack([topology.src[inner], topology.dst[inner]]).astype(np.int64)
        ends = np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1)
        degree = np.bincount(ends[0], minlength=topology.num_nodes)
        leaf = keep & topology.is_switch & (degree < 2)
        if not leaf.any():
            return keep
        keep &= ~leaf


def _restricted(instance: CollectiveInstance, group: list[int], keep: NDArray[np.bool_]) -> _Piece:
    topology = instance.topology
    links = np.flatnonzero(keep[topology.src] & keep[topology.dst])
    label = np.cumsum(keep) - 1
    inner = Topology(
        name=topology.name,
        num_nodes=int(keep.sum()),
        is_switch=topology.is_switch[keep],
        src=label[topology.src[links]],
        dst=label[topology.dst[links]],
        alpha_ps=topology.alpha_ps[links],
        bandwidth=topology.bandwidth[links],
        multicast=topology.multicast[keep],
        reduces=topology.reduces[keep],
    )
    parts = tuple(
        replace(
            part,
            npus=label[part.npus].astype(np.int32),
            root=None if part.root is None else int(label[part.root]),
        )
        for part in instance.collective.parts
    )
    collective = replace(instance.collective, parts=parts)
    return _Piece(replace(instance, topology=inner, collective=collective), group, links)


def improve(job: Job) -> Found | None:
    """A search over the priorities of sends, from the best schedule; its routes stay.

    Chunks are brought forward or put back, and all sends list-scheduled anew. Where a switch
    forwards partial sums one by one, another order may bring another sum: such a schedule is
    dropped.
    """
    if job.best is None or not tuned(job):
        return None
    schedule = in_columns(job.instance, job.best.schedule)
    if not 0 < schedule.num_sends <= MOST_SENDS or schedule.shares:
        return None
    seconds = SECONDS_A_SEND * schedule.num_sends + 1e-6
    rounds = min(int(2.0 * job.effort.seconds / seconds), MOST_ROUNDS)
    if rounds < FEWEST_ROUNDS:
        return None
    occupancy, transfer = durations(job.instance, schedule)
    waits, ptr, nexts = find_dependencies(job.instance, schedule)
    # the search moves runs of sends: those of a chunk stand together
    order = np.lexsort((schedule.start_ps, schedule.chunk))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    lengths = np.diff(ptr)[order]
    after = np.concatenate([nexts[ptr[i] : ptr[i + 1]] for i in order]) if len(nexts) else nexts
    chunk = schedule.chunk[order]
    first = np.flatnonzero(np.append(True, chunk[1:] != chunk[:-1]))
    start = np.empty(len(order), dtype=np.int64)
    makespan = int(
        search_priorities(
            schedule.link[order].astype(np.int64),
            occupancy[order],
            transfer[order],
            schedule.start_ps[order],
            np.concatenate([[0], np.cumsum(lengths)]),
            place[after],
            waits[order],
            job.topology.num_links,
            np.repeat(np.arange(len(first)), np.diff(np.append(first, len(chunk)))),
            np.append(first, len(chunk)),
            rounds,
            job.effort.target,
            job.effort.seed,
            start,
        )
    )
    found = Schedule.of(chunk, schedule.link[order], start, makespan, schedule.phase[order])
    try:
        check_schedule(job.instance, found)
    except CheckError:
        return None
    return Found(found, job.best.stats | {"kernel": "priorities", "tries": rounds})
