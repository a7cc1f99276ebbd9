"""Load-aware routing of chunks with one source and one destination each.

Chunks are routed one after another along cheapest paths, where a link's cost grows with a power of
the time for which it is already loaded; in later rounds each is taken out and routed again. This
is best response in a congestion game, whose price function approaches the maximum load.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.event import heap_pop, heap_push, next_random, random_state
from nestopt.core.stop_kernel import stopped

__all__ = ["route"]

_FAR = 1e300
MOST_POWER = 64.0


@njit(cache=True, nogil=True)
def _cheapest(
    root: int,
    cost: Any,
    in_ptr: Any,
    in_links: Any,
    src: Any,
    distance: Any,
    via: Any,
    key: Any,
    tie: Any,
    item: Any,
    state: Any,
) -> None:
    """Dijkstra backwards from `root`: cost and first link of a cheapest path from every node."""
    distance[:] = _FAR
    via[:] = -1
    distance[root] = 0.0
    size = heap_push(key, tie, item, 0, 0.0, np.int64(0), np.int64(root))
    while size > 0:
        d, v = key[0], item[0]
        size = heap_pop(key, tie, item, size)
        if d > distance[v]:
            continue
        for at in range(in_ptr[v], in_ptr[v + 1]):
            e = in_links[at]
            u = src[e]
            reach = d + cost[e]
            # A tie counts only from a nearer node: a small cost may vanish beside a large distance,
            # and two nodes must not become each other's next.
            if reach < distance[u] or (
                reach == distance[u] and d < reach and via[u] >= 0 and next_random(state) & 1
            ):
                if reach < distance[u]:
                    size = heap_push(key, tie, item, size, reach, next_random(state), np.int64(u))
                distance[u], via[u] = reach, e


@njit(cache=True, nogil=True)
def route(
    src: Any,
    dst: Any,
    in_ptr: Any,
    in_links: Any,
    occupancy: Any,
    transfer: Any,
    source: Any,
    destination: Any,
    dest_ptr: Any,
    dest_chunks: Any,
    size_of: Any,
    rounds: int,
    batch: int,
    power: float,
    growth: float,
    seed: int,
    path_len: Any,
    paths: Any,
) -> Any:
    """Route every chunk; the greatest load of a link, in picoseconds.

    Parameters
    ----------
    occupancy, transfer : int64[sizes, links]
    source, destination, size_of : int32[chunks]
    dest_ptr, dest_chunks
        Chunks of each destination.
    rounds : int
    batch : int
        Chunks routed on one tree of cheapest paths.
    power, growth : float
        Exponent of the load in a link's cost in the first round, and by how much it is multiplied
        from round to round.
    path_len : int32[chunks], paths : int32[chunks, longest]
        Filled with the links of each chunk's path.
    """
    nodes, links = len(in_ptr) - 1, len(src)
    state = random_state(seed)
    load = np.zeros(links, dtype=np.int64)
    best_load = np.int64(2**62)
    best_sum = 0.0
    best_len, best_paths = path_len.copy(), paths.copy()
    cost = np.empty(links, dtype=np.float64)
    distance = np.empty(nodes, dtype=np.float64)
    via = np.empty(nodes, dtype=np.int64)
    key = np.empty(links + nodes + 1, dtype=np.float64)
    tie = np.empty(links + nodes + 1, dtype=np.int64)
    item = np.empty(links + nodes + 1, dtype=np.int64)
    longest = paths.shape[1]
    path_len[:] = 0
    turn = np.arange(nodes)
    for turns in range(rounds):
        if turns > 0 and stopped():
            break
        for k in range(nodes - 1, 0, -1):
            j = next_random(state) % (k + 1)
            turn[k], turn[j] = turn[j], turn[k]
        for k in range(nodes):
            root = turn[k]
            low, high = dest_ptr[root], dest_ptr[root + 1]
            for j in range(high - 1, low, -1):
                i = low + next_random(state) % (j - low + 1)
                dest_chunks[j], dest_chunks[i] = dest_chunks[i], dest_chunks[j]
            at = low
            while at < high:
                stop = min(at + batch, high)
                for j in range(at, stop):
                    c = dest_chunks[j]
                    for step in range(path_len[c]):
                        load[paths[c, step]] -= occupancy[size_of[c], paths[c, step]]
                cls = size_of[dest_chunks[at]]
                top = max(load.max(), occupancy[cls].max())
                for e in range(links):
                    relative = (load[e] + occupancy[cls, e]) / top
                    # the term in the duration keeps paths short where nothing is loaded
                    cost[e] = occupancy[cls, e] * relative**power + 0.02 * transfer[cls, e]
                _cheapest(root, cost, in_ptr, in_links, src, distance, via, key, tie, item, state)
                for j in range(at, stop):
                    c = dest_chunks[j]
                    v, length = source[c], 0
                    while v != root:
                        if via[v] < 0 or length == longest:
                            return np.int64(-1)
                        paths[c, length] = via[v]
                        length += 1
                        v = dst[via[v]]
                    path_len[c] = length
                    for step in range(length):
                        load[paths[c, step]] += occupancy[size_of[c], paths[c, step]]
                at = stop
        power = min(power * growth, MOST_POWER)
        worst, summed = load.max(), float(load.sum())
        if worst < best_load or (worst == best_load and summed < best_sum):
            best_load, best_sum = worst, summed
            best_len[:] = path_len
            best_paths[:] = paths
    path_len[:] = best_len
    paths[:] = best_paths
    return best_load
