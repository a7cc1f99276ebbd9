"""What the checks of witnesses share: distances by algorithms that the searches do not use."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from nestopt.errors import CheckError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.problem import CollectiveInstance

__all__ = ["NEVER", "distances", "require"]

NEVER = -1
_EXACT = 2**53


def require(condition: bool, message: str) -> None:
    """Raise a `CheckError` with the message unless the condition holds."""
    if not condition:
        raise CheckError(message)


def distances(
    instance: CollectiveInstance, length: NDArray[np.int64], start: int, *, backward: bool = False
) -> list[int]:
    """Exact distance from (backward: to) a node; `NEVER` if there is no path."""
    topology = instance.topology
    tails, heads = topology.src, topology.dst
    if backward:
        tails, heads = heads, tails
    longest = int(length.max(initial=0)) * topology.num_nodes
    if longest < _EXACT and length.min(initial=1) > 0:
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import dijkstra

        # of parallel links the shortest; the sparse constructor would add them up
        order = np.lexsort((length, heads, tails))
        first = np.ones(len(order), dtype=bool)
        t, h = tails[order], heads[order]
        first[1:] = (t[1:] != t[:-1]) | (h[1:] != h[:-1])
        keep = order[first]
        shape = (topology.num_nodes, topology.num_nodes)
        matrix = coo_matrix((length[keep].astype(float), (tails[keep], heads[keep])), shape=shape)
        found = dijkstra(matrix.tocsr(), indices=start)
        return [int(d) if np.isfinite(d) else NEVER for d in found]
    adjacent: list[list[tuple[int, int]]] = [[] for _ in range(topology.num_nodes)]
    for u, w, d in zip(tails.tolist(), heads.tolist(), length.tolist()):
        adjacent[u].append((w, d))
    distance = [NEVER] * topology.num_nodes
    heap = [(0, start)]
    while heap:
        d, u = heapq.heappop(heap)
        if distance[u] != NEVER:
            continue
        distance[u] = d
        for w, extra in adjacent[u]:
            if distance[w] == NEVER:
                heapq.heappush(heap, (d + extra, w))
    return distance
