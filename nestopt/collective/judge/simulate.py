"""Independent event simulation of a schedule.

Of the schedule only the order of the sends on each link is taken, and what each send needs: its
chunk at its source; where partial sums are moved, as many of them as it moved in the schedule;
where they are copied, the arrivals of which the sum consists. When things happen follows from the
links alone.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.collective.judge.check import check_columns
from nestopt.collective.judge.check_sets import Ingredients, check_sets, shared_chunks
from nestopt.collective.model.instance import LATEST_PS
from nestopt.collective.model.schedule import REDUCE
from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

__all__ = ["simulate_schedule"]


def simulate_schedule(instance: CollectiveInstance, schedule: Schedule) -> dict[str, Any]:
    """Play a schedule event by event.

    Returns
    -------
    dict
        ``closed_form`` and ``simulated`` (the makespan as the schedule gives it and as it is
        simulated, picoseconds), ``relative_difference``, ``busiest_link_share`` and
        ``mean_link_share`` (shares of the simulated time for which links are occupied).

    Raises
    ------
    CheckError
        If a send has no such chunk or link or starts after the stated makespan, if the sends wait
        for each other in a circle, or if they end beyond 2**62 ps.
    """
    check_columns(instance, schedule)
    topology, sends = instance.topology, schedule.num_sends
    occupancy, transfer = _durations(instance, schedule)
    place = schedule.chunk.astype(np.int64) * topology.num_nodes
    source, target = place + topology.src[schedule.link], place + topology.dst[schedule.link]
    places, compact = np.unique(np.concatenate([source, target]), return_inverse=True)
    source, target = compact.reshape(-1)[:sends], compact.reshape(-1)[sends:]
    kind = schedule.phase == REDUCE
    arrival = schedule.start_ps + transfer
    need = _needs(instance, schedule, source, target, kind, arrival)
    shared = shared_chunks(instance, schedule)[schedule.chunk]
    parts = Ingredients(np.zeros(sends + 1, dtype=np.int64), np.empty(0, dtype=np.int64))
    if shared.any():
        # what a copied sum waits for is said by its set, not by a number of arrivals
        parts = check_sets(instance, schedule, arrival, allow_redundant=True)
        need = (np.where(shared, 0, need[0]), np.where(shared, 0, need[1]))
    next_ptr, nexts = _followers(parts)
    by_link = np.lexsort((np.arange(sends), schedule.link))
    ptr = np.zeros(topology.num_links + 1, dtype=np.int64)
    np.cumsum(np.bincount(schedule.link, minlength=topology.num_links), out=ptr[1:])
    out_ptr, out = topology.out_links()
    started, makespan = _play(
        ptr,
        by_link,
        out_ptr,
        out,
        topology.dst[schedule.link],
        source,
        target,
        kind.astype(np.int64),
        *need,
        np.diff(parts.ptr),
        next_ptr,
        nexts,
        occupancy,
        transfer,
        len(places),
    )
    if makespan > LATEST_PS:
        raise CheckError("the sends last longer than 2**62 ps")
    if started < sends:
        raise CheckError(f"{sends - started} of {sends} sends wait for each other")
    busy = np.zeros(topology.num_links, dtype=np.float64)
    np.add.at(busy, schedule.link, occupancy)
    whole = max(int(makespan), 1)
    claimed = schedule.makespan_ps
    return {
        "closed_form": claimed,
        "simulated": int(makespan),
        "relative_difference": (int(makespan) - claimed) / max(claimed, 1),
        "busiest_link_share": float(busy.max(initial=0.0) / whole),
        "mean_link_share": float(busy.mean() / whole) if len(busy) else 0.0,
    }


def _durations(
    instance: CollectiveInstance, schedule: Schedule
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How long each send occupies its link, and how long it takes to arrive; picoseconds."""
    occupancy = np.zeros(schedule.num_sends, dtype=np.int64)
    transfer = np.zeros(schedule.num_sends, dtype=np.int64)
    size = instance.collective.chunk_sizes[schedule.chunk]
    for each in np.unique(size).tolist():
        rows = size == each
        occupancy[rows] = instance.occupancy_ps(each)[schedule.link[rows]]
        transfer[rows] = instance.transfer_ps(each)[schedule.link[rows]]
    return occupancy, transfer


def _needs(
    instance: CollectiveInstance,
    schedule: Schedule,
    source: NDArray[np.int64],
    target: NDArray[np.int64],
    kind: NDArray[np.bool_],
    arrival: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many copies and how many partial sums must have come to each send's source."""
    topology, collective = instance.topology, instance.collective
    start, node = schedule.start_ps, topology.src[schedule.link]
    came = [_count_before(source, start, target[kind == k], arrival[kind == k]) for k in (0, 1)]
    # the k-th forwarding of a switch that cannot multicast, or reduce, needs the k-th arrival
    turn = [np.ones(len(start), dtype=np.int64) for _ in range(2)]
    for k in (0, 1):
        rows = np.flatnonzero(kind == k)
        turn[k][rows] = _rank(source[rows], start[rows]) + 1
    begins = collective.source[schedule.chunk] == node
    copies = np.where(topology.multicast[node], 1, turn[0])
    copied_sum = collective.reduction[schedule.chunk] & ~kind & (came[0] == 0)
    copies = np.where(kind | begins | copied_sum, 0, copies)
    partial = np.where(topology.reduces[node], came[1], np.minimum(turn[1], came[1]))
    return copies, np.where(kind | copied_sum, partial, 0)


def _followers(parts: Ingredients) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which sends each send is in: ``nexts[ptr[i]:ptr[i + 1]]``."""
    sends = len(parts.ptr) - 1
    owner = np.repeat(np.arange(sends), np.diff(parts.ptr))
    ptr = np.zeros(sends + 1, dtype=np.int64)
    np.cumsum(np.bincount(parts.sends, minlength=sends), out=ptr[1:])
    return ptr, owner[np.argsort(parts.sends, kind="stable")]


def _count_before(
    place: NDArray[np.int64],
    time: NDArray[np.int64],
    at: NDArray[np.int64],
    when: NDArray[np.int64],
) -> NDArray[np.int64]:
    """For each (place, time), how many of (at, when) are at that place and not later."""
    both = np.concatenate([at, place])
    asks = np.concatenate([np.zeros(len(at), np.int64), np.ones(len(place), np.int64)])
    order = np.lexsort((asks, np.concatenate([when, time]), both))
    seen = np.cumsum(asks[order] == 0)
    group = both[order]
    first = np.append(True, group[1:] != group[:-1]) if len(group) else np.empty(0, np.bool_)
    before = np.where(first, seen - (asks[order] == 0), 0)
    count = np.empty(len(both), dtype=np.int64)
    count[order] = seen - np.maximum.accumulate(before) if len(group) else seen
    return count[len(at) :]


def _rank(place: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of the same place come before each in order of time."""
    order = np.lexsort((np.arange(len(place)), time, place))
    group = place[order]
    index = np.arange(len(place))
    first = np.append(True, group[1:] != group[:-1]) if len(group) else np.empty(0, np.bool_)
    rank = np.empty(len(place), dtype=np.int64)
    rank[order] = index - np.maximum.accumulate(np.where(first, index, 0)) if len(group) else 0
    return rank


@njit(cache=True, nogil=True)
def _play(
    ptr: Any,
    by_link: Any,
    out_ptr: Any,
    out: Any,
    to_node: Any,
    source: Any,
    target: Any,
    kind: Any,
    copies: Any,
    partial: Any,
    waits: Any,
    next_ptr: Any,
    nexts: Any,
    occupancy: Any,
    transfer: Any,
    places: int,
) -> tuple[int, Any]:
    """Returns how many sends were started and when the last one arrived.

    An event is (time, i): send i arrives or, with i negative, link -1 - i becomes free.
    """
    links = len(ptr) - 1
    came = np.zeros((2, places), dtype=np.int64)
    head = ptr[:-1].copy()
    free = np.zeros(links, dtype=np.int64)
    makespan, started = np.int64(0), 0
    events = [(np.int64(0), np.int64(-1 - e)) for e in range(links)]
    while len(events) > 0:
        now, which = heappop(events)
        if now > LATEST_PS:
            return started, now
        if which >= 0:
            makespan = max(makespan, now)
            came[kind[which], target[which]] += 1
            for at in range(next_ptr[which], next_ptr[which + 1]):
                waits[nexts[at]] -= 1
            low, high = out_ptr[to_node[which]], out_ptr[to_node[which] + 1]
        else:
            low, high = np.int64(0), np.int64(1)
        for at in range(low, high):
            e = np.int64(out[at]) if which >= 0 else -1 - which
            if head[e] == ptr[e + 1] or free[e] > now:
                continue
            i = by_link[head[e]]
            if came[0, source[i]] < copies[i] or came[1, source[i]] < partial[i] or waits[i] > 0:
                continue
            head[e] += 1
            started += 1
            free[e] = now + occupancy[i]
            heappush(events, (now + transfer[i], np.int64(i)))
            heappush(events, (free[e], np.int64(-1 - e)))
    return started, makespan
