"""Putting schedules of different parts, or of the two phases of an All-Reduce, on one network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.model.schedule import REDUCE, Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["MOST_SENDS", "at_times", "behind", "durations", "find_dependencies", "retime", "settle"]

MOST_SENDS = 6_000_000


def at_times(schedules: list[Schedule], offsets: list[int], makespan_ps: int) -> Schedule:
    """Schedules of the same instance on one time axis, each from its offset (picoseconds) on."""
    columns = [
        np.concatenate([getattr(each, name) for each in schedules])
        for name in ("chunk", "link", "phase")
    ]
    starts = [each.start_ps + offset for each, offset in zip(schedules, offsets)]
    sets = [ranks for each in schedules for ranks in each.sets]
    content = None
    if sets:
        first, contents = 0, []
        for each in schedules:
            own = np.full(each.num_sends, -1) if each.content is None else each.content
            contents.append(np.where(own < 0, -1, own + first))
            first += len(each.sets)
        content = np.concatenate(contents)
    start = np.concatenate(starts)
    return Schedule.of(columns[0], columns[1], start, makespan_ps, columns[2], content, sets)


def behind(schedules: list[Schedule]) -> Schedule:
    """Schedules one after the other."""
    ends = np.cumsum([each.makespan_ps for each in schedules]).tolist()
    return at_times(schedules, [0, *ends[:-1]], ends[-1])


def retime(
    instance: CollectiveInstance, schedule: Schedule, priority: NDArray[np.int64] | None = None
) -> Schedule:
    """Every send as early as its link and what it waits for allow, in order of `priority`.

    What a send waits for is taken from `schedule`: the arrivals of its chunk at its source before
    it starts. `priority` is the start by default, so that nothing gets later.
    """
    from nestopt.collective.greedy.kernels.list import list_schedule

    if schedule.num_sends == 0 or schedule.num_sends > MOST_SENDS or schedule.shares:
        # what a copied partial sum waits for is said by its set, which is not followed here
        return schedule
    occupancy, transfer = durations(instance, schedule)
    waits, next_ptr, nexts = find_dependencies(instance, schedule)
    start = np.empty(schedule.num_sends, dtype=np.int64)
    makespan = int(
        list_schedule(
            schedule.link.astype(np.int64),
            occupancy,
            transfer,
            # copies, of one type: for another the kernel would be compiled anew
            np.array(schedule.start_ps if priority is None else priority, dtype=np.int64),
            next_ptr,
            nexts,
            waits.astype(np.int64),
            instance.topology.num_links,
            start,
        )
    )
    return Schedule.of(schedule.chunk, schedule.link, start, makespan, schedule.phase)


def settle(instance: CollectiveInstance, schedule: Schedule) -> Schedule:
    """Every send as early as the order of sends on its link, and what has come by then, allow.

    A switch that forwards piece by piece may forward another piece than the one that was meant, so
    that what each send waits for is found anew until nothing moves any more.
    """
    from nestopt.collective.greedy.kernels.justify import shift_early

    while 0 < schedule.num_sends <= MOST_SENDS and not schedule.shares:
        occupancy, transfer = durations(instance, schedule)
        _, ptr, nexts = find_dependencies(instance, schedule)
        start = schedule.start_ps.copy()
        links = schedule.link.astype(np.int64)
        makespan = int(
            shift_early(links, occupancy, transfer, ptr, nexts, instance.topology.num_links, start)
        )
        if (start == schedule.start_ps).all():
            break
        schedule = Schedule.of(schedule.chunk, schedule.link, start, makespan, schedule.phase)
    return schedule


def durations(
    instance: CollectiveInstance, schedule: Schedule
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Occupancy and transfer time of every send, picoseconds."""
    sizes, size_of = np.unique(instance.collective.chunk_sizes, return_inverse=True)
    occupancy = np.array([instance.occupancy_ps(int(size)) for size in sizes])
    transfer = np.array([instance.transfer_ps(int(size)) for size in sizes])
    row = size_of.reshape(-1)[schedule.chunk]
    return occupancy[row, schedule.link], transfer[row, schedule.link]


def find_dependencies(
    instance: CollectiveInstance, schedule: Schedule
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """How many sends each send waits for, and which wait for it, as (waits, next_ptr, nexts)."""
    from nestopt.collective.greedy.kernels.sends import find_waits

    topology, sends = instance.topology, schedule.num_sends
    arrival = schedule.start_ps + durations(instance, schedule)[1]
    place = schedule.chunk.astype(np.int64) * topology.num_nodes + topology.dst[schedule.link]
    by_place = np.lexsort((arrival, place))
    turn = _turns(instance, schedule)
    waits = np.zeros(sends, dtype=np.int32)
    counts = np.zeros(sends, dtype=np.int64)
    nexts = np.empty(0, dtype=np.int64)
    next_ptr = np.zeros(sends + 1, dtype=np.int64)
    for fill in (False, True):
        if fill:
            np.cumsum(counts, out=next_ptr[1:])
            nexts = np.empty(int(next_ptr[-1]), dtype=np.int64)
            counts = next_ptr[:-1].copy()
        find_waits(
            schedule.chunk,
            schedule.link,
            schedule.start_ps,
            arrival,
            schedule.phase,
            topology.src,
            by_place,
            place[by_place],
            topology.num_nodes,
            turn,
            fill,
            waits,
            counts,
            nexts,
        )
    return waits, next_ptr, nexts


def _turns(instance: CollectiveInstance, schedule: Schedule) -> NDArray[np.int64]:
    """Of sends out of switches that forward piece by piece, which forwarding it is; else -1."""
    topology = instance.topology
    source = topology.src[schedule.link]
    merges = np.where(
        schedule.phase == REDUCE, topology.reduces[source], topology.multicast[source]
    )
    rows = np.flatnonzero(~merges)
    group = np.stack([schedule.phase[rows], schedule.chunk[rows], source[rows]])
    order = np.lexsort((rows, *group))
    fresh = np.ones(len(rows), dtype=np.bool_)
    fresh[1:] = (group[:, order[1:]] != group[:, order[:-1]]).any(axis=0)
    index = np.arange(len(rows))
    turn = np.full(schedule.num_sends, -1, dtype=np.int64)
    turn[rows[order]] = index - np.maximum.accumulate(np.where(fresh, index, 0))
    return turn
