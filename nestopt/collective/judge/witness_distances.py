"""What the checks of witnesses share: distances by algorithms that the searches do not use."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["NEVER", "distances", "from_nearest", "idle_times", "links_out", "require"]

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
    return from_nearest(links_out(instance, length, backward=backward), [start])


def links_out(
    instance: CollectiveInstance, length: NDArray[np.int64], *, backward: bool
) -> list[list[tuple[int, int]]]:
    """Heads and lengths of the links out of (backward: tails, into) every node."""
    topology = instance.topology
    tails, heads = topology.src, topology.dst
    if backward:
        tails, heads = heads, tails
    links: list[list[tuple[int, int]]] = [[] for _ in range(topology.num_nodes)]
    for u, w, d in zip(tails.tolist(), heads.tolist(), length.tolist()):
        links[u].append((w, d))
    return links


def from_nearest(adjacent: list[list[tuple[int, int]]], sources: Iterable[int]) -> list[int]:
    """Distance of every node from the nearest source; `NEVER` if there is no path.

    Parameters
    ----------
    adjacent : list of list of (int, int)
        Heads and lengths of the links out of every node.
    """
    distance = [NEVER] * len(adjacent)
    heap = [(0, v) for v in sources]
    while heap:
        d, u = heapq.heappop(heap)
        if distance[u] != NEVER:
            continue
        distance[u] = d
        for w, extra in adjacent[u]:
            if distance[w] == NEVER:
                heapq.heappush(heap, (d + extra, w))
    return distance


def idle_times(instance: CollectiveInstance) -> list[int]:
    """How long each link carries nothing of use, ps; `NEVER` if it cannot carry anything of use.

    Before the first chunk, or contribution to a sum, can have come to the link's tail, and when
    nothing could any more get from its head to where it must end.
    """
    topology = instance.topology
    before, behind = [NEVER] * topology.num_links, [NEVER] * topology.num_links
    for part in instance.collective.parts:
        if len(part.npus) < 2 or not part.num_chunks:
            continue
        length = instance.transfer_ps(part.chunk_size)
        members = part.npus.tolist()
        starts = {v if v >= 0 else u for v in set(part.sources().tolist()) for u in members}
        ends = {v if v >= 0 else u for v in set(part.destinations().tolist()) for u in members}
        come = from_nearest(links_out(instance, length, backward=False), starts)
        go = from_nearest(links_out(instance, length, backward=True), ends)
        for link, (u, w) in enumerate(zip(topology.src.tolist(), topology.dst.tolist())):
            if come[u] != NEVER and go[w] != NEVER:
                # each by itself: one part may come early and another leave late
                if before[link] == NEVER or come[u] < before[link]:
                    before[link] = come[u]
                if behind[link] == NEVER or go[w] < behind[link]:
                    behind[link] = go[w]
    return [NEVER if a == NEVER else a + b for a, b in zip(before, behind)]
