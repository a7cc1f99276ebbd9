"""Integer kernels of the bounds: shortest distances, counting of sends, maximum flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FAR", "earliest_time", "ingress_times", "max_flow", "shortest", "total_distance"]

FAR = 2**62


@njit(cache=True, nogil=True)
def _push(keys: Any, nodes: Any, size: Any, key: Any, node: Any) -> None:
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if keys[parent] <= key:
            break
        keys[i] = keys[parent]
        nodes[i] = nodes[parent]
        i = parent
    keys[i] = key
    nodes[i] = node


@njit(cache=True, nogil=True)
def _pop(keys: Any, nodes: Any, size: Any) -> None:
    """Remove the smallest entry; `size` is the size afterwards."""
    key = keys[size]
    node = nodes[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[i] = keys[child]
        nodes[i] = nodes[child]
        i = child
    keys[i] = key
    nodes[i] = node


@njit(cache=True, nogil=True)
def _dijkstra(
    ptr: Any, links: Any, head: Any, length: Any, sources: Any, dist: Any, keys: Any, nodes: Any
) -> None:
    dist[:] = FAR
    size = 0
    for s in sources:
        if dist[s] != 0:
            dist[s] = 0
            _push(keys, nodes, size, 0, s)
            size += 1
    while size > 0:
        if overdue():
            raise KernelStopped
        key = keys[0]
        u = nodes[0]
        size -= 1
        _pop(keys, nodes, size)
        if key > dist[u]:
            continue
        for i in range(ptr[u], ptr[u + 1]):
            e = links[i]
            w = head[e]
            d = key + length[e]
            if d < dist[w]:
                dist[w] = d
                _push(keys, nodes, size, d, w)
                size += 1


def shortest(
    ptr: NDArray[np.int64],
    links: NDArray[np.int32],
    head: NDArray[np.int32],
    length: NDArray[np.int64],
    sources: NDArray[np.int32],
) -> NDArray[np.int64]:
    """Distance of every node from the nearest of `sources`, int64[V]; `FAR` if unreachable.

    Parameters
    ----------
    ptr : int64[V + 1], links : int32[E]
        Links by the node that they leave (in the direction of the search).
    head : int32[E]
        The node that each link enters.
    length : int64[E]
        Non-negative.
    """
    dist = np.empty(len(ptr) - 1, dtype=np.int64)
    room = len(head) + len(sources) + 1
    keys, nodes = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64)
    _dijkstra(ptr, links, head, length, sources, dist, keys, nodes)
    return dist


@njit(cache=True, nogil=True)
def _total_distance(
    ptr: Any,
    links: Any,
    head: Any,
    tail: Any,
    length: Any,
    demand_src: Any,
    demand_ptr: Any,
    demand_dst: Any,
    load: Any,
) -> Any:
    """Sum of the distances of the demands of each source, and the load of its tree on each link."""
    totals = np.zeros(len(demand_src), np.int64)
    num_nodes = len(ptr) - 1
    dist = np.empty(num_nodes, np.int64)
    keys = np.empty(len(head) + 2, np.int64)
    nodes = np.empty(len(head) + 2, np.int64)
    source = np.empty(1, np.int64)
    parent = np.empty(num_nodes, np.int64)
    weight = np.empty(num_nodes, np.int64)
    for i in range(len(demand_src)):
        source[0] = demand_src[i]
        _dijkstra(ptr, links, head, length, source, dist, keys, nodes)
        weight[:] = 0
        for j in range(demand_ptr[i], demand_ptr[i + 1]):
            v = demand_dst[j]
            if dist[v] >= FAR:
                totals[i] = -1
                return totals
            totals[i] += dist[v]
            weight[v] += 1
        if len(load):
            parent[:] = -1
            for e in range(len(head)):
                v = head[e]
                if dist[tail[e]] < FAR and v != source[0] and dist[tail[e]] + length[e] == dist[v]:
                    parent[v] = e
            for v in np.argsort(-dist):
                if weight[v] and parent[v] >= 0 and dist[v] < FAR:
                    e = parent[v]
                    load[e] += weight[v]
                    weight[tail[e]] += weight[v]
    return totals


def total_distance(
    ptr: NDArray[np.int64],
    links: NDArray[np.int32],
    head: NDArray[np.int32],
    tail: NDArray[np.int32],
    length: NDArray[np.int64],
    demands: tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]],
    load: NDArray[np.int64] | None = None,
) -> int:
    """Sum over demands of the shortest distance from source to destination; -1 if one has no path.

    Parameters
    ----------
    demands : (source[G], ptr[G + 1], destination[D])
        Demands by their source, repeated destinations allowed.
    load : int64[E], optional
        Receives the number of demands routed over each link, lengths being positive.

    Notes
    -----
    The distances of one source must add up to less than 2**62; the sum over sources is a Python
    integer.
    """
    if load is None:
        load = np.empty(0, dtype=np.int64)
    totals = _total_distance(ptr, links, head, tail, length, *demands, load).tolist()
    return -1 if -1 in totals else sum(totals)


@njit(cache=True, nogil=True)
def _delivered(time: Any, release: Any, occupancy: Any) -> int:
    count = 0
    for i in range(len(release)):
        if time >= release[i]:
            count += 1 + (time - release[i]) // occupancy[i]
    return count


@njit(cache=True, nogil=True)
def _earliest(release: Any, occupancy: Any, need: Any) -> int:
    if need <= 0:
        return 0
    if len(release) == 0:
        return FAR
    low = FAR
    best = FAR
    for i in range(len(release)):
        low = min(low, release[i])
        # one link alone delivers all by then
        best = min(best, release[i] + (need - 1) * occupancy[i])
    low -= 1
    high = best
    while high - low > 1:
        middle = (low + high) // 2
        if _delivered(middle, release, occupancy) >= need:
            high = middle
        else:
            low = middle
    return high


def earliest_time(release: NDArray[np.int64], occupancy: NDArray[np.int64], need: int) -> int:
    """Least time by which links can have delivered `need` chunks.

    Link i delivers its first chunk at `release[i]` and one more every `occupancy[i]`.
    """
    return int(_earliest(release, occupancy, need))


@njit(cache=True, nogil=True)
def _ingress(
    ptr: Any, links: Any, release: Any, occupancy: Any, nodes: Any, need: Any, times: Any
) -> None:
    for i in range(len(nodes)):
        if overdue():
            raise KernelStopped
        v = nodes[i]
        here = links[ptr[v] : ptr[v + 1]]
        times[i] = _earliest(release[here], occupancy[here], need[i])


def ingress_times(
    ptr: NDArray[np.int64],
    links: NDArray[np.int32],
    release: NDArray[np.int64],
    occupancy: NDArray[np.int64],
    nodes: NDArray[np.int32],
    need: NDArray[np.int64],
) -> NDArray[np.int64]:
    """`earliest_time` over the links into each of `nodes`, int64[len(nodes)]."""
    times = np.empty(len(nodes), dtype=np.int64)
    _ingress(ptr, links, release, occupancy, nodes, need, times)
    return times


@njit(cache=True, nogil=True)
def _max_flow(
    ptr: Any,
    arcs: Any,
    to: Any,
    residual: Any,
    source: Any,
    sink: Any,
    level: Any,
    queue: Any,
    cursor: Any,
    path: Any,
) -> tuple[int, int]:
    """Dinic's algorithm; arcs 2i and 2i + 1 are each other's reverse. Changes `residual`.

    Returns the flow and the number of arcs looked at.
    """
    flow, scanned = 0, 0
    while True:
        level[:] = -1
        level[source] = 0
        queue[0] = source
        first, last = 0, 1
        while first < last and level[sink] < 0:
            u = queue[first]
            first += 1
            scanned += ptr[u + 1] - ptr[u]
            for i in range(ptr[u], ptr[u + 1]):
                a = arcs[i]
                if residual[a] > 0 and level[to[a]] < 0:
                    level[to[a]] = level[u] + 1
                    queue[last] = to[a]
                    last += 1
        if level[sink] < 0:
            return flow, scanned
        cursor[:] = ptr[:-1]
        if overdue():
            raise KernelStopped
        depth = 0
        u = source
        while True:
            if u == sink:
                amount = residual[path[0]]
                scanned += 2 * depth
                for i in range(depth):
                    amount = min(amount, residual[path[i]])
                flow += amount
                stop = depth
                for i in range(depth - 1, -1, -1):
                    residual[path[i]] -= amount
                    residual[path[i] ^ 1] += amount
                    if residual[path[i]] == 0:
                        stop = i
                depth = stop
                u = to[path[depth] ^ 1]
                continue
            advanced = False
            while cursor[u] < ptr[u + 1]:
                a = arcs[cursor[u]]
                scanned += 1
                if residual[a] > 0 and level[to[a]] == level[u] + 1:
                    path[depth] = a
                    depth += 1
                    u = to[a]
                    advanced = True
                    break
                cursor[u] += 1
            if advanced:
                continue
            if depth == 0:
                break
            depth -= 1
            u = to[path[depth] ^ 1]
            cursor[u] += 1


@njit(cache=True, nogil=True)
def _cut_side(
    ptr: Any, arcs: Any, to: Any, residual: Any, source: Any, seen: Any, queue: Any
) -> None:
    seen[:] = False
    seen[source] = True
    queue[0] = source
    first, last = 0, 1
    while first < last:
        u = queue[first]
        first += 1
        for i in range(ptr[u], ptr[u + 1]):
            a = arcs[i]
            if residual[a] > 0 and not seen[to[a]]:
                seen[to[a]] = True
                queue[last] = to[a]
                last += 1


def max_flow(
    num_nodes: int,
    tails: NDArray[np.int64],
    heads: NDArray[np.int64],
    capacity: NDArray[np.int64],
    source: int,
    sink: int,
) -> tuple[int, NDArray[np.bool_]]:
    """Maximum flow in exact integers, and the source side of a minimum cut.

    Parameters
    ----------
    tails, heads : int64[A]
        Ends of the arcs.
    capacity : int64[A]
        Their sum must stay below 2**62.

    Returns
    -------
    (flow, side) : int and bool[num_nodes]
    """
    count = len(tails)
    to = np.empty(2 * count, dtype=np.int64)
    to[0::2], to[1::2] = heads, tails
    start = np.empty(2 * count, dtype=np.int64)
    start[0::2], start[1::2] = tails, heads
    residual = np.zeros(2 * count, dtype=np.int64)
    residual[0::2] = capacity
    arcs = np.argsort(start, kind="stable")
    ptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(start, minlength=num_nodes), out=ptr[1:])
    level = np.empty(num_nodes, dtype=np.int64)
    queue = np.empty(num_nodes + 1, dtype=np.int64)
    cursor = np.empty(num_nodes, dtype=np.int64)
    path = np.empty(num_nodes + 1, dtype=np.int64)
    flow, _ = _max_flow(ptr, arcs, to, residual, source, sink, level, queue, cursor, path)
    seen = np.empty(num_nodes, dtype=np.bool_)
    _cut_side(ptr, arcs, to, residual, source, seen, queue)
    return int(flow), seen
