"""Schedules by insertion: deliveries in a given order, each into the earliest gaps that are left.

A *delivery* brings a chunk to a node that needs it. Deliveries are made one after the other; each
comes over the hop on which it arrives first, between what is on the links already. So a schedule
is an order of deliveries, and a search over orders is a search over schedules, in which a delivery
that is decided late may still travel early. An All-Reduce is two orders: the partial sums, which
are deliveries backwards in time, and the copies of the finished sums, which fill the gaps that are
left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.event import (
    INFINITE,
    heap_pop,
    heap_push,
    next_random,
    random_state,
    uniform,
)
from nestopt.collective.greedy.kernels.gaps import first_gap, reserve
from nestopt.core.stop_kernel import stopped

__all__ = ["search_orders"]


@njit(cache=True, nogil=True, inline="always")
def _take(begin: Any, end: Any, count: Any, link: Any, at: Any, length: Any) -> Any:
    """Take the first gap of a link from `at` on; its start."""
    start = first_gap(begin, end, count[link], at, length)
    reserve(begin, end, count, link, start, length)
    return start


@njit(cache=True, nogil=True)
def _deliver(
    key: Any,
    wanted: Any,
    root: Any,
    into_ptr: Any,
    into: Any,
    out_ptr: Any,
    out: Any,
    hop_src: Any,
    hop_dst: Any,
    hop_ptr: Any,
    hop_links: Any,
    occupancy: Any,
    transfer: Any,
    size_of: Any,
    limit: Any,
    turn: Any,
    arrival: Any,
    via: Any,
    begin: Any,
    end: Any,
    count: Any,
    out_chunk: Any,
    out_link: Any,
    out_start: Any,
) -> tuple[Any, int]:
    """Make all deliveries, of those that are possible the one of least key first.

    `arrival` says what is where and is filled, as is `via` with the hops taken. Returns the last
    arrival and the sends; gives up with `INFINITE` where an arrival would be later than `limit`.
    """
    chunks, most = arrival.shape[1], begin.shape[1]
    makespan, sends, size = np.int64(0), 0, 0
    queue_key = np.empty(arrival.size + 1)
    queue = np.empty(arrival.size + 1, dtype=np.int64)
    open_ = wanted.copy()
    for c in range(chunks):
        open_[root[c], c] = False
    for c in range(chunks):
        for i in range(out_ptr[root[c]], out_ptr[root[c] + 1]):
            w = hop_dst[out[i]]
            if open_[w, c]:
                open_[w, c] = False
                size = heap_push(
                    queue_key, queue, queue, size, key[w, c], w * chunks + c, w * chunks + c
                )
    while size > 0:
        delivery = queue[0]
        size = heap_pop(queue_key, queue, queue, size)
        v, c = delivery // chunks, delivery % chunks
        best, chosen, hops = INFINITE, -1, into_ptr[v + 1] - into_ptr[v]
        for k in range(hops):
            hop = into[into_ptr[v] + (k + turn) % hops]
            t = arrival[hop_src[hop], c]
            if t >= best:
                continue
            for step in range(hop_ptr[hop], hop_ptr[hop + 1]):
                e = hop_links[step]
                if count[e] == most:
                    t = INFINITE
                    break
                t = first_gap(begin[e], end[e], count[e], t, occupancy[size_of[c], e])
                t += transfer[size_of[c], e]
                if t >= best:
                    break
            if t < best:
                best, chosen = t, hop
        if best > limit:
            return INFINITE, sends
        t = arrival[hop_src[chosen], c]
        for step in range(hop_ptr[chosen], hop_ptr[chosen + 1]):
            e = hop_links[step]
            length = occupancy[size_of[c], e]
            start = _take(begin[e], end[e], count, e, t, length)
            out_chunk[sends], out_link[sends], out_start[sends] = c, e, start
            sends += 1
            t = start + transfer[size_of[c], e]
        arrival[v, c], via[v, c] = best, chosen
        makespan = max(makespan, best)
        for i in range(out_ptr[v], out_ptr[v + 1]):
            w = hop_dst[out[i]]
            if open_[w, c]:
                open_[w, c] = False
                size = heap_push(
                    queue_key, queue, queue, size, key[w, c], w * chunks + c, w * chunks + c
                )
    return (INFINITE if open_.any() else makespan), sends


@njit(cache=True, nogil=True)
def _collect(
    hop_src: Any,
    hop_ptr: Any,
    hop_links: Any,
    occupancy: Any,
    transfer: Any,
    size_of: Any,
    limit: Any,
    arrival: Any,
    via: Any,
    whole: Any,
    begin: Any,
    end: Any,
    count: Any,
    out_chunk: Any,
    out_link: Any,
    out_start: Any,
) -> tuple[Any, int]:
    """Turn deliveries (on the reversed network) round: partial sums, each as early as it can be.

    The last to have been delivered comes first. `whole[v, c]` is filled with the time at which all
    that is summed up at v is there. Returns the last arrival and the sends.
    """
    chunks, most = arrival.shape[1], begin.shape[1]
    whole[:] = 0
    last, sends = np.int64(0), 0
    for delivery in np.argsort(-arrival.reshape(-1)):
        v, c = delivery // chunks, delivery % chunks
        hop = via[v, c]
        if hop < 0:
            continue
        t = whole[v, c]
        for step in range(hop_ptr[hop + 1] - 1, hop_ptr[hop] - 1, -1):
            e = hop_links[step]
            if count[e] == most:
                return INFINITE, sends
            length = occupancy[size_of[c], e]
            start = _take(begin[e], end[e], count, e, t, length)
            out_chunk[sends], out_link[sends], out_start[sends] = c, e, start
            sends += 1
            t = start + transfer[size_of[c], e]
        if t > limit:
            return INFINITE, sends
        u = hop_src[hop]
        whole[u, c] = max(whole[u, c], t)
        last = max(last, t)
    return last, sends


@njit(cache=True, nogil=True)
def search_orders(
    into_ptr: Any,
    into: Any,
    out_ptr: Any,
    out: Any,
    hop_src: Any,
    hop_dst: Any,
    hop_ptr: Any,
    hop_links: Any,
    back_into_ptr: Any,
    back_into: Any,
    back_out_ptr: Any,
    back_out: Any,
    back_src: Any,
    back_dst: Any,
    back_hop_ptr: Any,
    back_links: Any,
    occupancy: Any,
    transfer: Any,
    size_of: Any,
    part_of: Any,
    member: Any,
    root: Any,
    key: Any,
    back_key: Any,
    reduces: bool,
    most: int,
    rounds: int,
    target: Any,
    seed: int,
    out_chunk: Any,
    out_link: Any,
    out_start: Any,
) -> tuple[Any, int, int]:
    """Best schedule over `rounds` orders; (makespan, partial sums, sends), the sums coming first.

    Parameters
    ----------
    into_ptr, into, out_ptr, out, hop_src, hop_dst, hop_ptr, hop_links
        Hops by the node that they enter and by the one that they leave, their ends and links.
    back_into_ptr, ..., back_links
        The same of the reversed network; unread unless `reduces`.
    occupancy, transfer : int64[sizes, links]
    size_of, part_of : int32[chunks]
    member : bool[parts, nodes]
    root : int32[chunks]
        Where each chunk starts or its sum is formed; with `reduces` the search changes it.
    key, back_key : float64[nodes, chunks]
        Turns of the deliveries of the first order, the least first.
    reduces : bool
        Whether every member contributes to every chunk, which is summed up at its root first.
    most : int
        Sends that a link may carry.
    rounds, target, seed
        The search ends at a makespan of `target`.
    """
    nodes, chunks = member.shape[1], len(root)
    state = random_state(seed)
    begin = np.empty((occupancy.shape[1], most), dtype=np.int64)
    end = np.empty_like(begin)
    count = np.zeros(occupancy.shape[1], dtype=np.int64)
    arrival = np.empty((nodes, chunks), dtype=np.int64)
    back_arrival = np.empty((nodes, chunks), dtype=np.int64)
    whole = np.zeros((nodes, chunks), dtype=np.int64)
    via = np.empty((nodes, chunks), dtype=np.int64)
    back_via = np.empty((nodes, chunks), dtype=np.int64)
    wanted = np.zeros((nodes, chunks), dtype=np.bool_)
    for c in range(chunks):
        for v in range(nodes):
            wanted[v, c] = member[part_of[c], v]
    deliveries = np.flatnonzero(wanted)
    kept, kept_back, kept_root = key.copy(), back_key.copy(), root.copy()
    trial, trial_back, at = kept.copy(), kept_back.copy(), kept_root.copy()
    late, lates = np.zeros(len(deliveries), dtype=np.int64), 0
    via[:] = -1
    kept_via = via.copy()
    chunk, link, start = np.empty_like(out_chunk), np.empty_like(out_link), np.empty_like(out_start)
    best, best_cost, best_sums, best_sends = INFINITE, np.inf, 0, 0
    size = float(len(deliveries))
    unit = np.int64(transfer.mean()) // 2
    for step in range(rounds):
        if step > 0 and stopped():
            break
        if step > 0:
            trial[:], trial_back[:], at[:] = kept, kept_back, kept_root
            for _ in range(1 + next_random(state) % 3):
                if lates > 0 and next_random(state) % 4:
                    d = late[next_random(state) % lates]
                else:
                    d = deliveries[next_random(state) % len(deliveries)]
                c = d % chunks
                kind = next_random(state) % 8
                if reduces and kind >= 4:
                    if kind == 4:
                        v = deliveries[next_random(state) % len(deliveries)] // chunks
                        if member[part_of[c], v]:
                            at[c] = v
                    elif kind == 5:
                        # the whole chunk is summed up earlier or later
                        change = size * (uniform(state) - 0.5)
                        for v in range(nodes):
                            trial_back[v, c] += change
                    else:
                        trial_back[next_random(state) % nodes, c] = size * uniform(state)
                    continue
                if kind % 4 == 0:
                    trial[d // chunks, c] = size * uniform(state)
                    continue
                while kind % 4 == 1 and kept_via[d // chunks, c] >= 0:
                    # not the delivery itself but one that it waits for
                    d = hop_src[kept_via[d // chunks, c]] * chunks + c
                    if next_random(state) & 1:
                        break
                trial[d // chunks, c] *= uniform(state)
        count[:] = 0
        arrival[:] = INFINITE
        via[:] = -1
        limit = INFINITE - 1 if best == INFINITE else best
        turn = next_random(state) if step > 0 else np.int64(0)
        sums = 0
        if reduces:
            back_arrival[:] = INFINITE
            back_via[:] = -1
            for c in range(chunks):
                back_arrival[at[c], c] = 0
            made, sums = _deliver(
                trial_back, wanted, at, back_into_ptr, back_into, back_out_ptr, back_out, back_src,
                back_dst, back_hop_ptr, back_links, occupancy, transfer, size_of, limit, turn,
                back_arrival, back_via, begin, end, count, chunk, link, start,
            )  # fmt: skip
            if made == INFINITE:
                continue
            count[:] = 0
            made, sums = _collect(
                back_src, back_hop_ptr, back_links, occupancy, transfer, size_of, limit,
                back_arrival, back_via, whole, begin, end, count, chunk, link, start,
            )  # fmt: skip
            if made == INFINITE:
                continue
        for c in range(chunks):
            arrival[at[c], c] = whole[at[c], c]
        makespan, sends = _deliver(
            trial, wanted, at, into_ptr, into, out_ptr, out, hop_src, hop_dst, hop_ptr, hop_links,
            occupancy, transfer, size_of, limit, turn, arrival, via, begin, end, count,
            chunk[sums:], link[sums:], start[sums:],
        )  # fmt: skip
        if makespan == INFINITE:
            continue
        lateness = 0.0
        for d in deliveries:
            lateness += max(np.int64(0), arrival[d // chunks, d % chunks] - target)
        cost = float(makespan) + lateness / size
        if cost > best_cost:
            continue
        if makespan < best:
            best_sums, best_sends = sums, sums + sends
            out_chunk[:best_sends] = chunk[:best_sends]
            out_link[:best_sends] = link[:best_sends]
            out_start[:best_sends] = start[:best_sends]
        best, best_cost = makespan, cost
        kept[:], kept_back[:], kept_root[:], kept_via[:] = trial, trial_back, at, via
        lates = 0
        for d in deliveries:
            if arrival[d // chunks, d % chunks] > max(target, best - unit):
                late[lates] = d
                lates += 1
        if best <= target:
            break
    return best, best_sums, best_sends
