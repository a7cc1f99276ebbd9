"""Messages between NPUs, played on the network: real routes, links that carry one chunk at a time.

A message moves a chunk from one NPU to another along a shortest path, node by node. It starts when
the chunk is at its source. Links serve requests in the order in which they come. A node that a
chunk passes keeps it, so that the chunk is not sent to it twice: what a message would bring to a
node that has it, or is about to have it, continues from there when it is there. With `unicast`
every message travels by itself instead, as if the network did not know what it carries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.event import heap_pop, heap_push
from nestopt.core.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.topology import Topology

__all__ = ["MOST_MESSAGES", "NO_LIMIT", "next_links", "play"]

MOST_MESSAGES = 20_000_000
_MOST_SENDS = 60_000_000
_FAR = 2**62
NO_LIMIT = 2**62


@njit(cache=True, nogil=True)
def _routes(ptr: Any, links: Any, src: Any, length: Any, targets: Any, table: Any) -> None:
    """Dijkstra backwards from every target; of equally good links one by turns."""
    nodes = len(ptr) - 1
    dist = np.empty(nodes, np.int64)
    key = np.empty(len(src) + 1, np.int64)
    tie = np.empty(len(src) + 1, np.int64)
    item = np.empty(len(src) + 1, np.int64)
    for row in range(len(targets)):
        dist[:] = _FAR
        dist[targets[row]] = 0
        size = heap_push(key, tie, item, 0, np.int64(0), np.int64(0), np.int64(targets[row]))
        while size > 0:
            d, w = key[0], item[0]
            size = heap_pop(key, tie, item, size)
            if d > dist[w]:
                continue
            for i in range(ptr[w], ptr[w + 1]):
                e = links[i]
                u = src[e]
                if d + length[e] < dist[u]:
                    dist[u] = d + length[e]
                    size = heap_push(
                        key, tie, item, size, dist[u], np.int64(0), np.int64(u)
                    )  # fmt: skip
        seen = np.zeros(nodes, np.int64)
        for w in range(nodes):
            for i in range(ptr[w], ptr[w + 1]):
                e = links[i]
                u = src[e]
                if dist[w] < _FAR and dist[w] + length[e] == dist[u]:
                    seen[u] += 1
                    # the k-th of n equal choices is kept if its turn has come
                    if table[row, u] < 0 or (u + row) % seen[u] == 0:
                        table[row, u] = e


def next_links(
    topology: Topology, transfer: NDArray[np.int64], targets: NDArray[np.int32]
) -> NDArray[np.int32]:
    """First link of a shortest path from every node to every target, int32[targets, nodes]."""
    table = np.full((len(targets), topology.num_nodes), -1, dtype=np.int32)
    _routes(*topology.in_links(), topology.src, transfer, targets, table)
    return table


@njit(cache=True, nogil=True)
def _play(
    chunk: Any,
    origin: Any,
    goal: Any,
    goal_row: Any,
    present: Any,
    table: Any,
    src: Any,
    dst: Any,
    multicast: Any,
    occupancy: Any,
    transfer: Any,
    size_of: Any,
    twin: Any,
    unicast: bool,
    limit: Any,
    out_chunk: Any,
    out_link: Any,
    out_start: Any,
) -> tuple[Any, Any]:
    """Play all messages; the number of sends and the last arrival, or any time beyond `limit`.

    `present` is int8[chunks, nodes]: 1 where a chunk is at first; 2 stands for under way. A message
    in a list at (chunk, node) goes on when the chunk is there.
    """
    count = len(chunk)
    first = np.full(present.shape, -1, dtype=np.int32)
    last = np.full(present.shape, -1, dtype=np.int32)
    following = np.full(count, -1, dtype=np.int32)
    place = origin.copy()
    free = np.zeros(len(src), dtype=np.int64)
    capacity = count + 1
    key = np.empty(capacity, np.int64)
    tie = np.empty(capacity, np.int64)
    item = np.empty(capacity, np.int64)
    size, order, sends, makespan = 0, 0, 0, np.int64(0)
    # messages that can go on now, in order: a queue through `following`
    head, tail = -1, -1
    for m in range(count):
        c, u = chunk[m], origin[m]
        if present[c, u] == 1:
            if head < 0:
                head = m
            else:
                following[tail] = m
            tail = m
        else:
            if first[c, u] < 0:
                first[c, u] = m
            else:
                following[last[c, u]] = m
            last[c, u] = m
    now = np.int64(0)
    while head >= 0 or size > 0:
        while head >= 0:
            m = head
            head = following[m]
            following[m] = -1
            c = chunk[m]
            going = True
            while going:
                u = place[m]
                if u == goal[m]:
                    break
                e = table[goal_row[m], u]
                w = dst[e]
                if multicast[u] and not unicast:
                    # the next node that keeps chunks, behind switches that only pass them on
                    keeper = w
                    while not multicast[keeper] and keeper != goal[m]:
                        keeper = dst[table[goal_row[m], keeper]]
                    if present[c, keeper] == 1:
                        place[m] = keeper
                        continue
                    if present[c, keeper] == 2:
                        place[m] = keeper
                        if first[c, keeper] < 0:
                            first[c, keeper] = m
                        else:
                            following[last[c, keeper]] = m
                        last[c, keeper] = m
                        break
                    present[c, keeper] = 2
                # of parallel links the one that is free first
                other = twin[e]
                while other != table[goal_row[m], u]:
                    if free[other] < free[e]:
                        e = other
                    other = twin[other]
                start = max(now, free[e])
                free[e] = start + occupancy[size_of[c], e]
                out_chunk[sends] = c
                out_link[sends] = e
                out_start[sends] = start
                sends += 1
                place[m] = w
                size = heap_push(
                    key, tie, item, size, start + transfer[size_of[c], e], np.int64(order), m
                )  # fmt: skip
                order += 1
                going = False
        if size == 0:
            break
        now, m = key[0], item[0]
        size = heap_pop(key, tie, item, size)
        makespan = max(makespan, now)
        if makespan > limit:
            break
        c, v = chunk[m], place[m]
        head, tail = m, m
        if (multicast[v] and not unicast) or v == goal[m]:
            present[c, v] = 1
            if first[c, v] >= 0:
                following[m] = first[c, v]
                tail = last[c, v]
                first[c, v] = -1
                last[c, v] = -1
    return sends, makespan


@njit(cache=True, nogil=True)
def _count_hops(origin: Any, goal: Any, goal_row: Any, table: Any, dst: Any) -> int:
    hops = 0
    for m in range(len(origin)):
        u = origin[m]
        while u != goal[m]:
            u = dst[table[goal_row[m], u]]
            hops += 1
    return hops


def play(
    topology: Topology,
    sizes: NDArray[np.int64],
    times: tuple[NDArray[np.int64], NDArray[np.int64]],
    source: NDArray[np.int32],
    messages: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
    *,
    unicast: bool = False,
    limit: int = NO_LIMIT,
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64], int]:
    """Play messages in their order.

    Parameters
    ----------
    sizes : int64[chunks]
        Class of each chunk's size: a row of `times`.
    times : (occupancy, transfer), int64[classes, E]
        Picoseconds.
    source : int32[chunks]
        Where each chunk is at first.
    messages : (chunk, origin, goal), int64[M]
    unicast : bool
        Whether every message travels by itself.
    limit : int
        Picoseconds; where the messages take longer the play is broken off.

    Returns
    -------
    (chunk, link, start_ps, makespan_ps)
        The sends; the makespan is above `limit` where they are not all.
    """
    chunk, origin, goal = messages
    if len(chunk) > MOST_MESSAGES:
        raise UsageError(f"{len(chunk)} messages; a baseline plays at most {MOST_MESSAGES}")
    targets, goal_row = np.unique(goal, return_inverse=True)
    table = next_links(topology, times[1].max(axis=0), targets.astype(np.int32))
    present = np.zeros((len(source), topology.num_nodes), dtype=np.int8)
    present[np.arange(len(source)), source] = 1
    rows = goal_row.reshape(-1).astype(np.int64)
    room = _count_hops(origin, goal, rows, table, topology.dst)
    if not unicast and topology.multicast.all():
        room = min(room, len(source) * topology.num_nodes)
    if room > _MOST_SENDS:
        raise UsageError(f"{room} sends; a baseline plays at most {_MOST_SENDS}")
    out = (np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int64))
    sends, makespan = _play(
        chunk.astype(np.int32),
        origin.astype(np.int32),
        goal.astype(np.int32),
        rows,
        present,
        table,
        topology.src,
        topology.dst,
        topology.multicast,
        *times,
        sizes,
        _twins(topology, times),
        unicast,
        limit,
        *out,
    )
    return out[0][:sends], out[1][:sends], out[2][:sends], int(makespan)


def _twins(
    topology: Topology, times: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> NDArray[np.int32]:
    """The next of the links that are parallel to each link and as fast, in a circle; int32[E]."""
    circles: dict[tuple[int, ...], list[int]] = {}
    columns = np.concatenate([[topology.src, topology.dst], *times]).T
    for e, key in enumerate(columns.tolist()):
        circles.setdefault(tuple(key), []).append(e)
    twin = np.empty(topology.num_links, dtype=np.int32)
    for links in circles.values():
        twin[links] = links[1:] + links[:1]
    return twin
