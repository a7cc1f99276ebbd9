"""Trees of an All-Reduce, packed in time: chunk by chunk, into the gaps that links still have.

A chunk's partial sums run up a tree to its root and the finished sum runs down another one. The
moment at which the sum is whole splits both: backwards in time from it every node sends as late as
the links' gaps allow, forwards in time every node receives as early as they allow. So both trees
grow as shortest paths do, in the network as the chunks before have left it, and a late chunk is
summed up while an early one is spread. The moment is the earliest, not before that of the chunk
before, from which no send would start before time 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.event import INFINITE, heap_pop, heap_push
from nestopt.collective.greedy.kernels.gaps import first_gap, last_gap, release, reserve

__all__ = ["pack_trees"]

# moments that are tried for a chunk's sum at even steps
EVEN_STEPS = 32


@njit(cache=True, nogil=True, inline="always")
def _cross(
    backward: bool, size: Any, e: Any, t: Any, occupancy: Any, transfer: Any, begin: Any, end: Any,
    count: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Start of a send over link e from time t on, and its arrival; backwards both run from -t."""
    if backward:
        latest = -t - transfer[size, e]
        start = last_gap(begin[e], end[e], count[e], latest, occupancy[size, e])
        return start, -start
    start = first_gap(begin[e], end[e], count[e], t, occupancy[size, e])
    return start, start + transfer[size, e]


@njit(cache=True, nogil=True)
def _grow(
    backward: bool,
    root: Any,
    moment: Any,
    size: Any,
    out_ptr: Any,
    out: Any,
    hop_src: Any,
    hop_dst: Any,
    hop_ptr: Any,
    hop_links: Any,
    occupancy: Any,
    transfer: Any,
    member: Any,
    relays: bool,
    price: float,
    balance: float,
    begin: Any,
    end: Any,
    count: Any,
    carried: Any,
    busy: Any,
    reached: Any,
    via: Any,
    key: Any,
    tie: Any,
    item: Any,
    link: Any,
    start: Any,
    first: int,
) -> tuple[int, Any]:
    """Grow one tree from the root and reserve its links; where its sends end, and its last time.

    Times are negated with `backward`. The sends are put behind the first `first` ones, the links
    of a hop side by side, the nearest to the root first. The last time is `INFINITE`, and nothing
    is reserved, where a member is not reached.
    """
    most = begin.shape[1]
    reached[:] = INFINITE
    reached[root] = -moment if backward else moment
    missing = 0
    for v in range(len(member)):
        missing += member[v] and v != root
    order = np.empty(len(member), dtype=np.int64)
    behind = np.empty(len(member) + 1, dtype=np.int64)
    nodes, sends, queued, last, v = 0, first, 0, reached[root], root
    while missing > 0:
        for k in range(out_ptr[v], out_ptr[v + 1]):
            hop = out[k]
            if reached[hop_dst[hop]] < INFINITE or not (relays or member[hop_dst[hop]]):
                continue
            t, load, cost = reached[v], np.int64(0), np.int64(0)
            for step in range(hop_ptr[hop], hop_ptr[hop + 1]):
                e = hop_links[step]
                if carried[e] + 1 >= most:
                    t = INFINITE
                    break
                _, t = _cross(backward, size, e, t, occupancy, transfer, begin, end, count)
                load, cost = max(load, busy[e]), cost + occupancy[size, e]
            if t < INFINITE:
                cost = np.int64(price * cost + balance * load)
                queued = heap_push(key, tie, item, queued, t + cost, load, hop)
        hop = -1
        while queued > 0:
            wanted, load, hop = key[0], tie[0], item[0]
            queued = heap_pop(key, tie, item, queued)
            if reached[hop_dst[hop]] < INFINITE:
                hop = -1
                continue
            # links of other hops may have been taken since
            t, cost = reached[hop_src[hop]], np.int64(0)
            for step in range(hop_ptr[hop], hop_ptr[hop + 1]):
                e = hop_links[step]
                _, t = _cross(backward, size, e, t, occupancy, transfer, begin, end, count)
                cost += occupancy[size, e]
                if carried[e] + 1 >= most:
                    t = INFINITE
                    break
            cost = np.int64(price * cost + balance * load)
            if t < INFINITE and t + cost <= wanted:
                break
            if t < INFINITE:
                queued = heap_push(key, tie, item, queued, t + cost, load, hop)
            hop = -1
        if hop < 0:
            _undo(first, sends, size, occupancy, begin, end, count, carried, busy, link, start)
            return first, INFINITE
        t, v = reached[hop_src[hop]], hop_dst[hop]
        order[nodes], behind[nodes], via[v] = v, sends, hop_src[hop]
        nodes += 1
        for step in range(hop_ptr[hop], hop_ptr[hop + 1]):
            e = hop_links[step]
            link[sends] = e
            start[sends], t = _cross(
                backward, size, e, t, occupancy, transfer, begin, end, count
            )  # fmt: skip
            reserve(begin[e], end[e], count, e, start[sends], occupancy[size, e])
            carried[e] += 1
            busy[e] += occupancy[size, e]
            sends += 1
        reached[v] = t
        if member[v]:
            missing -= 1
            last = max(last, t)
    behind[nodes] = sends
    # relays that serve nobody go again
    needed = member.copy()
    for i in range(nodes - 1, -1, -1):
        needed[via[order[i]]] |= needed[order[i]]
    sends = first
    for i in range(nodes):
        if not needed[order[i]]:
            _undo(
                behind[i], behind[i + 1], size, occupancy, begin, end, count, carried, busy,
                link, start,
            )  # fmt: skip
            continue
        for j in range(behind[i], behind[i + 1]):
            link[sends], start[sends] = link[j], start[j]
            sends += 1
    return sends, last


@njit(cache=True, nogil=True)
def _undo(
    first: int, stop: int, size: Any, occupancy: Any, begin: Any, end: Any, count: Any,
    carried: Any, busy: Any, link: Any, start: Any,
) -> None:  # fmt: skip
    """Release the links of sends."""
    for j in range(stop - 1, first - 1, -1):
        e = link[j]
        release(begin[e], end[e], count, e, start[j], occupancy[size, e])
        carried[e] -= 1
        busy[e] -= occupancy[size, e]


@njit(cache=True, nogil=True)
def pack_trees(
    out_ptr: Any,
    out: Any,
    hop_src: Any,
    hop_dst: Any,
    hop_ptr: Any,
    hop_links: Any,
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
    relays: bool,
    turns: Any,
    root: Any,
    price: float,
    balance: float,
    most: int,
    link: Any,
    start: Any,
    first: Any,
    middle: Any,
) -> tuple[Any, int]:
    """Pack the trees of all chunks; (makespan, sends), `INFINITE` where a link would be overfull.

    Parameters
    ----------
    out_ptr, out, hop_src, hop_dst, hop_ptr, hop_links
        Hops by the node that they leave, their ends and links.
    back_out_ptr, ..., back_links
        The same of the reversed network.
    occupancy, transfer : int64[sizes, links]
    size_of, part_of : int32[chunks]
    member : bool[parts, nodes]
    relays : bool
        Whether nodes outside a group may pass its chunks on.
    turns, root : int64[chunks]
        The order of the chunks, and where the sum of each is formed.
    price, balance : float
        What a hop costs beside its time, for each picosecond for which it takes its links, and for
        each for which they are taken already.
    most : int
        Sends that a link may carry, and one.
    link, start
        Filled with the sends, those of each chunk side by side, its partial sums first.
    first, middle : int64[chunks]
        Filled: where the sends of each chunk, and its copies, begin.
    """
    links, nodes = occupancy.shape[1], member.shape[1]
    begin = np.empty((links, most), dtype=np.int64)
    end = np.empty((links, most), dtype=np.int64)
    count = np.zeros(links, dtype=np.int64)
    carried = np.zeros(links, dtype=np.int64)
    busy = np.zeros(links, dtype=np.int64)
    reached = np.empty(nodes, dtype=np.int64)
    via = np.empty(nodes, dtype=np.int64)
    hops = max(len(hop_src), len(back_src)) + 1
    key = np.empty(hops, dtype=np.int64)
    tie = np.empty(hops, dtype=np.int64)
    item = np.empty(hops, dtype=np.int64)
    makespan, moment = np.int64(0), np.int64(0)
    sends: Any = np.int64(0)
    # no constants: for each, and for the first 0 of `sends`, `_grow` would be compiled anew
    backward, forward = links >= 0, links < 0
    for turn in range(len(turns)):
        c = turns[turn]
        size, group = size_of[c], member[part_of[c]]
        first[c] = sends
        begun, tried = moment, 0
        while True:
            middle[c], early = _grow(
                backward, root[c], moment, size, back_out_ptr, back_out, back_src, back_dst,
                back_hop_ptr, back_links, occupancy, transfer, group, relays, price, balance,
                begin, end, count, carried, busy, reached, via, key, tie, item, link, start, sends,
            )  # fmt: skip
            if early == INFINITE:
                return INFINITE, sends
            if early <= 0:
                break
            _undo(
                sends, middle[c], size, occupancy, begin, end, count, carried, busy, link, start
            )  # fmt: skip
            # at least by the shortest send, since gaps of a picosecond are none; where one link is
            # far quicker than another even that is next to nothing, so that steps grow
            tried += 1
            step = occupancy[size].min()
            if tried > EVEN_STEPS:
                step = max(step, (moment - begun) // 16)
            moment += max(early, step)
        sends, last = _grow(
            forward, root[c], moment, size, out_ptr, out, hop_src, hop_dst, hop_ptr, hop_links,
            occupancy, transfer, group, relays, price, balance, begin, end, count, carried, busy,
            reached, via, key, tie, item, link, start, middle[c],
        )  # fmt: skip
        if last == INFINITE:
            return INFINITE, sends
        makespan = max(makespan, last)
    return makespan, sends
