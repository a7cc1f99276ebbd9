"""The distance bound: no chunk arrives before the shortest path to it takes, latency included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._kernels import FAR

if TYPE_CHECKING:
    from nestopt.collective.bounds._model import Network
    from nestopt.collective.model.collective import Part

__all__ = ["distance_bound"]

_ALL_SOURCES = 4 * 10**7
_SECONDS_A_LINK = 5e-8


def distance_bound(net: Network, budget: Budget | None = None) -> dict[str, Any] | None:
    """The farthest pair that must exchange a chunk.

    In an All-Reduce whose sums only move, the sum is formed at one node r that reduces, so that
    everything gets to r first and from there to all; the bound is the least over r of the two
    eccentricities' sum. Where sums are copied it may be formed at many nodes at once, and only the
    farthest pair counts.
    """
    budget = budget or Budget()
    best: dict[str, Any] | None = None
    for part in net.parts:
        index = net.instance.collective.parts.index(part)
        for found in (_farthest(net, part, budget), _through_root(net, part, budget)):
            if found is not None and (best is None or found["value"] > best["value"]):
                best = found | {"kind": "distance", "part": index, "size": part.chunk_size}
    return best


def _farthest(net: Network, part: Part, budget: Budget) -> dict[str, Any]:
    """The farthest pair; from a few sources only, where all are too many."""
    length = net.transfer(part.chunk_size)
    if part.pattern in ("reduce", "gather"):
        far = net.distances_to(np.array([part.root], np.int32), length)[part.npus]
        u = int(np.argmax(far))
        return {"value": int(far[u]), "source": int(part.npus[u]), "target": int(part.root or 0)}
    sources = net.origins(part)
    exhaustive = len(sources) * net.topology.num_links <= _ALL_SOURCES
    best = {"value": -1}
    node = int(sources[0])
    # a double sweep (the farthest from the farthest) finds a diameter or nearly one
    order = sources.tolist() if exhaustive else [node] * 6
    for step, start in enumerate(order):
        node = start if exhaustive else node
        far = net.distances_from(np.array([node], np.int32), length)[part.npus]
        v = int(np.argmax(far))
        if int(far[v]) > best["value"]:
            best = {"value": int(far[v]), "source": node, "target": int(part.npus[v])}
        if not exhaustive:
            node = int(part.npus[v])
        budget.spend(_SECONDS_A_LINK * net.topology.num_links)
        if step and budget.used_up():
            break
    return best


def _through_root(net: Network, part: Part, budget: Budget) -> dict[str, Any] | None:
    """The least over nodes r of the time to gather at r and to spread from r."""
    topology = net.topology
    if part.pattern != "all-reduce" or net.instance.sums != "moved":
        return None
    if 2 * topology.num_nodes * topology.num_links > _ALL_SOURCES:
        return None
    length = net.transfer(part.chunk_size)
    into = np.zeros(topology.num_nodes, dtype=np.int64)
    out = np.zeros(topology.num_nodes, dtype=np.int64)
    for v in part.npus:
        budget.spend(2 * _SECONDS_A_LINK * topology.num_links)
        if budget.used_up():
            return None
        single = np.array([v], np.int32)
        np.maximum(into, net.distances_from(single, length), out=into)
        np.maximum(out, net.distances_to(single, length), out=out)
    never = ~topology.reduces | (into >= FAR) | (out >= FAR)
    around = np.where(never, FAR, into + out)
    root = int(np.argmin(around))
    return {"value": int(around[root]), "root": root}
