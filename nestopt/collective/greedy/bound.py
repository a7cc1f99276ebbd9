"""Cheap lower bounds: what the matching measures itself against, at any size.

`nestopt.collective.bounds` has the stronger ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["quick_bound"]


def quick_bound(instance: CollectiveInstance) -> dict[str, Any]:
    """The best of a few bounds: links into or out of one NPU, and distances on small networks.

    Returns
    -------
    dict
        ``name``, ``value`` (picoseconds) and ``witness`` (as `verify_witness` of
        `nestopt.collective.bounds` takes it).
    """
    best: dict[str, Any] = {
        "name": "trivial",
        "value": 0,
        "witness": {"kind": "trivial", "value": 0},
    }
    topology = instance.topology
    for index, part in enumerate(instance.collective.parts):
        enter, leave = _needs(part)
        occupancy = instance.occupancy_ps(part.chunk_size)
        transfer = instance.transfer_ps(part.chunk_size)
        for name, need, (ptr, links) in (
            ("ingress", enter, topology.in_links()),
            ("egress", leave, topology.out_links()),
        ):
            if len(part.npus) < 2 or not need.any():
                continue
            value = _earliest(part.npus, need, ptr, links, occupancy, transfer)
            worst = int(np.argmax(value))
            node = int(part.npus[worst])
            if value[worst] <= best["value"]:
                continue
            best = {
                "name": name,
                "value": int(value[worst]),
                "witness": {
                    "kind": "cut",
                    "mode": "chunks",
                    "nodes": [node],
                    "side": "outside" if name == "ingress" else "inside",
                    "links": np.sort(links[ptr[node] : ptr[node + 1]]).tolist(),
                    "backward": name == "egress",
                    "threshold": 0,
                    "part": index,
                    "size": part.chunk_size,
                    "need": int(need[worst]),
                    "value": int(value[worst]),
                },
            }
        far = _farthest(instance, part)
        if far is not None and far[0] > best["value"]:
            witness = {"kind": "distance", "part": index, "source": far[1], "target": far[2]}
            witness["value"] = far[0]
            best = {"name": "distance", "value": far[0], "witness": witness}
    return best


def _farthest(instance: CollectiveInstance, part: Part) -> tuple[int, int, int] | None:
    """The longest shortest path between NPUs that exchange a chunk, as (time, source, target).

    None where it would take long, or where times leave the exact range of a double.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import dijkstra

    topology = instance.topology
    starts = part.npus if part.root is None else np.array([part.root])
    length = instance.transfer_ps(part.chunk_size)
    nodes = topology.num_nodes
    if len(starts) * topology.num_links > 4_000_000 or len(part.npus) < 2:
        return None
    if int(length.max(initial=0)) * nodes >= 2**53:
        return None
    order = np.lexsort((length, topology.dst, topology.src))
    pair = topology.src[order].astype(np.int64) * nodes + topology.dst[order]
    keep = order[np.append(True, pair[1:] != pair[:-1])] if len(order) else order
    graph = coo_matrix(
        (length[keep].astype(np.float64), (topology.src[keep], topology.dst[keep])),
        shape=(nodes, nodes),
    ).tocsr()
    inward = part.pattern in ("reduce", "gather")
    found = dijkstra(graph.T.tocsr() if inward else graph, indices=starts)[:, part.npus]
    if not np.isfinite(found).all():
        return None
    row, column = np.unravel_index(int(np.argmax(found)), found.shape)
    ends = int(starts[row]), int(part.npus[column])
    source, target = ends[::-1] if inward else ends
    return int(found[row, column]), source, target


def _needs(part: Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Chunks that must at least enter and leave each NPU of the group."""
    n, k = len(part.npus), part.chunks_per_npu
    root = part.npus == (-1 if part.root is None else part.root)
    one = np.ones(n, dtype=np.int64)
    others = np.where(root, 0, 1)
    return {
        "all-gather": (one * (n - 1) * k, one * k),
        "reduce-scatter": (one * k, one * (n - 1) * k),
        "all-reduce": (one * part.num_chunks, one * part.num_chunks),
        "broadcast": (others * k, root * k),
        "reduce": (root * k, others * k),
        "scatter": (others * k, root * (n - 1) * k),
        "gather": (root * (n - 1) * k, others * k),
        "all-to-all": (one * (n - 1) * k, one * (n - 1) * k),
    }[part.pattern]


@njit(cache=True, nogil=True)
def _earliest(
    npus: Any, need: Any, ptr: Any, links: Any, occupancy: Any, transfer: Any
) -> NDArray[np.int64]:
    """Least time in which each NPU's links can carry what it needs, by bisection."""
    value = np.zeros(len(npus), dtype=np.int64)
    for i in range(len(npus)):
        v, low, high = npus[i], np.int64(0), np.int64(0)
        for at in range(ptr[v], ptr[v + 1]):
            one = transfer[links[at]] + (need[i] - 1) * occupancy[links[at]]
            high = one if at == ptr[v] else min(high, one)
        if need[i] == 0 or ptr[v] == ptr[v + 1]:
            continue
        # the links carry the need by `high`, and not by `low`
        while high - low > 1:
            middle, carried = (low + high) // 2, np.int64(0)
            for at in range(ptr[v], ptr[v + 1]):
                if middle >= transfer[links[at]]:
                    carried += 1 + (middle - transfer[links[at]]) // occupancy[links[at]]
            if carried >= need[i]:
                high = middle
            else:
                low = middle
        value[i] = high
    return value
