"""A lower bound in time linear in the network: what the matching measures itself against.

`nestopt.collective.bounds` has the stronger ones; this one is cheap enough for 40,000 NPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.collective import Part
    from nestopt.collective.problem import CollectiveInstance

__all__ = ["quick_bound"]


def quick_bound(instance: CollectiveInstance) -> dict[str, Any]:
    """The best bound from the links into, or out of, one NPU.

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
    return best


def _needs(part: Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Chunks that must at least enter and leave each NPU of the group."""
    n, k = len(part.npus), part.chunks_per_npu
    root = part.npus == (-1 if part.root is None else part.root)
    one = np.ones(n, dtype=np.int64)
    others = np.where(root, 0, 1)
    return {
        "all-gather": (one * (n - 1) * k, one * k),
        "reduce-scatter": (one * k, one * (n - 1) * k),
        "all-reduce": (one * n * k, one * n * k),
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
