"""List scheduling of given sends: the kernel that turns routes and orders into times.

Nothing is left idle: a link that is free takes, of the sends that are ready, the one with the
least priority value.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.event import heap_pop, heap_push, next_random, random_state
from nestopt.core.stop_kernel import stopped

__all__ = ["list_schedule", "search_priorities"]


@njit(cache=True, nogil=True)
def list_schedule(
    link: Any,
    occupancy: Any,
    transfer: Any,
    priority: Any,
    next_ptr: Any,
    nexts: Any,
    waits: Any,
    num_links: int,
    start: Any,
) -> Any:
    """Start every send as early as its links and predecessors allow, in order of priority.

    Parameters
    ----------
    link, occupancy, transfer, priority : int64[S]
        Of each send; the times in picoseconds, at least 1.
    next_ptr, nexts
        Sends that wait for each send's arrival.
    waits : int64[S]
        How many sends each send waits for; used up.
    start : int64[S]
        Filled.

    Returns
    -------
    int64
        The last arrival; -1 if the predecessors form a cycle.
    """
    sends = len(link)
    # ready sends of each link: binary heaps in one array, a segment a link
    base = np.zeros(num_links + 1, dtype=np.int64)
    for i in range(sends):
        base[link[i] + 1] += 1
    for e in range(num_links):
        base[e + 1] += base[e]
    queue_key = np.empty(sends, dtype=np.int64)
    queue_item = np.empty(sends, dtype=np.int64)
    queued = np.zeros(num_links, dtype=np.int64)
    free = np.zeros(num_links, dtype=np.int64)
    called = np.zeros(num_links, dtype=np.bool_)
    # events: arrivals of sends (tie 0), before dispatches of links (tie 1) at the same time
    size, capacity = 0, sends + num_links + 1
    key = np.empty(capacity, dtype=np.int64)
    tie = np.empty(capacity, dtype=np.int64)
    item = np.empty(capacity, dtype=np.int64)
    for i in range(sends):
        if waits[i] == 0:
            e = link[i]
            low, high = base[e], base[e + 1]
            queued[e] = heap_push(
                queue_key[low:high], queue_item[low:high], queue_item[low:high], queued[e],
                priority[i], i, i,
            )  # fmt: skip
            if not called[e]:
                called[e] = True
                size = heap_push(key, tie, item, size, np.int64(0), np.int64(1), e)
    last, started = np.int64(0), 0
    while size > 0:
        now, kind, which = key[0], tie[0], item[0]
        size = heap_pop(key, tie, item, size)
        if kind == 1:
            e = which
            low, high = base[e], base[e + 1]
            i = queue_item[low]
            queued[e] = heap_pop(
                queue_key[low:high], queue_item[low:high], queue_item[low:high], queued[e]
            )
            start[i] = now
            started += 1
            free[e] = now + occupancy[i]
            last = max(last, now + transfer[i])
            size = heap_push(key, tie, item, size, now + transfer[i], np.int64(0), i)
            called[e] = queued[e] > 0
            if called[e]:
                size = heap_push(key, tie, item, size, free[e], np.int64(1), e)
            continue
        for at in range(next_ptr[which], next_ptr[which + 1]):
            i = nexts[at]
            waits[i] -= 1
            if waits[i] > 0:
                continue
            e = link[i]
            low, high = base[e], base[e + 1]
            queued[e] = heap_push(
                queue_key[low:high], queue_item[low:high], queue_item[low:high], queued[e],
                priority[i], i, i,
            )  # fmt: skip
            if not called[e]:
                called[e] = True
                size = heap_push(key, tie, item, size, max(now, free[e]), np.int64(1), e)
    return last if started == sends else np.int64(-1)


@njit(cache=True, nogil=True)
def search_priorities(
    link: Any,
    occupancy: Any,
    transfer: Any,
    priority: Any,
    next_ptr: Any,
    nexts: Any,
    waits: Any,
    num_links: int,
    journey: Any,
    journey_ptr: Any,
    rounds: int,
    target: Any,
    seed: int,
    start: Any,
) -> Any:
    """List-schedule with perturbed priorities and keep what ends no later; the last arrival.

    A journey is the run of sends that move one chunk to its destination: ``journey[i]`` is that of
    send i, its sends are those from ``journey_ptr[j]`` to ``journey_ptr[j + 1]``. A perturbation
    moves the priorities of a few journeys, half of the time that of the one that ends last. The
    first schedule has the given priorities. `start` is filled.
    """
    state = random_state(seed)
    best = list_schedule(
        link, occupancy, transfer, priority, next_ptr, nexts, waits.copy(), num_links, start
    )
    if len(link) == 0:
        return best
    unit = max(np.int64(transfer.mean()), np.int64(4))
    kept_late: Any = 2**62
    kept = priority.copy()
    now = np.empty_like(start)
    for _ in range(rounds):
        if best <= target or stopped():
            break
        trial = kept.copy()
        for _ in range(1 + next_random(state) % 3):
            if next_random(state) & 1:
                last, ties = np.int64(0), 1
                for i in range(len(link)):
                    end, latest = start[i] + transfer[i], start[last] + transfer[last]
                    if end > latest:
                        last, ties = np.int64(i), 1
                    elif end == latest:
                        ties += 1
                        if next_random(state) % ties == 0:
                            last = np.int64(i)
                j = journey[last]
                change: Any = -(next_random(state) % (4 * unit))
            else:
                j = next_random(state) % (len(journey_ptr) - 1)
                change = next_random(state) % (4 * unit) - 2 * unit
            for i in range(journey_ptr[j], journey_ptr[j + 1]):
                trial[i] += change
        makespan = list_schedule(
            link, occupancy, transfer, trial, next_ptr, nexts, waits.copy(), num_links, now
        )
        if makespan > best:
            continue
        # of equal makespans the one with fewer sends that end so late
        late = 0
        for i in range(len(link)):
            late += now[i] + transfer[i] == makespan
        if makespan < best or late <= kept_late:
            best, kept_late = makespan, late
            kept[:] = trial
            start[:] = now
    return best
