"""The delivery bound: chunks that must cross a cut and then still get to one node.

Take a node v of the group, a set S that does not hold it, and chunks that start in S. Each of them
crosses a link e out of S on its way to v. There it starts no earlier than its way to e takes
without passing v, and it must arrive in time for the way from e to v. So link e delivers its first
of these chunks at

    head(e) + transfer(e) + tail(e)

counted at v, and one more every occupancy(e). With S all nodes but v this sharpens the ingress
bound: each link into v has its own earliest time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._kernels import FAR, earliest_time
from nestopt.collective.bounds.cuts import candidates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.bounds._model import Network
    from nestopt.collective.model.collective import Part

__all__ = ["delivery_bound"]

_SPREADS = ("all-gather", "broadcast", "all-reduce")
_MOST_WORK = 2_000_000
_SECONDS_A_LINK = 5e-8


def delivery_bound(net: Network, budget: Budget | None = None) -> dict[str, Any] | None:
    """The best over the cuts around single nodes and those that `best_cut` would try."""
    budget, topology = budget or Budget(), net.topology
    if topology.num_nodes * topology.num_links > _MOST_WORK:
        return None
    best: dict[str, Any] | None = None
    for index, part in enumerate(net.instance.collective.parts):
        if part not in net.parts or part.pattern not in _SPREADS:
            continue
        for v in part.npus.tolist():
            if budget.used_up():
                return best
            inside = np.ones(topology.num_nodes, dtype=np.bool_)
            inside[v] = False
            best = _better(best, _into(net, part, index, inside, [v], budget))
        sets, _ = candidates(topology, part, topology.bandwidth, budget)
        for inside in sets:
            targets = [v for v in part.npus.tolist() if not inside[v]]
            best = _better(best, _into(net, part, index, inside, targets, budget))
    return best


def _better(best: dict[str, Any] | None, found: dict[str, Any] | None) -> dict[str, Any] | None:
    if found is None or (best is not None and best["value"] >= found["value"]):
        return best
    return found


def _into(
    net: Network,
    part: Part,
    index: int,
    inside: NDArray[np.bool_],
    targets: list[int],
    budget: Budget,
) -> dict[str, Any] | None:
    """The best bound of one cut over the given targets, and over which chunks are counted."""
    topology, size = net.topology, part.chunk_size
    links = np.flatnonzero(inside[topology.src] & ~inside[topology.dst])
    origins = part.npus if part.root is None else np.array([part.root], dtype=np.int32)
    origins = origins[inside[origins]]
    if len(links) == 0 or len(origins) == 0:
        return None
    length = net.transfer(size)
    transfer, occupancy = length[links], net.occupancy(size)[links]
    # a path to v that passes v is none: with one target the links out of it are closed
    open_ = length.copy()
    if len(targets) == 1:
        open_[topology.src == targets[0]] = FAR // 4
    head = np.empty((len(origins), len(links)), dtype=np.int64)
    ends = topology.src[links]
    for u in np.unique(ends):
        row = net.distances_to(np.array([u], np.int32), open_)[origins]
        head[:, ends == u] = np.minimum(row, FAR // 4)[:, None]
    budget.spend(_SECONDS_A_LINK * topology.num_links * (len(links) + len(targets)))
    best: dict[str, Any] | None = None
    for v in targets:
        tail = np.minimum(net.distances_to(np.array([v], np.int32), length), FAR // 4)
        after = transfer + tail[topology.dst[links]]
        far = (head + after).min(axis=1)
        for counted, need in _counted(part, far):
            release = head[counted].min(axis=0) + after
            usable = release < FAR // 4
            value = earliest_time(release[usable], occupancy[usable], need)
            if value < FAR // 4 and (best is None or value > best["value"]):
                best = {"kind": "delivery", "value": value, "inside": inside, "links": links}
                best |= {"part": index, "target": v, "need": need}
                best["sources"] = np.sort(origins[counted]).tolist()
    return best


def _counted(part: Part, far: NDArray[np.int64]) -> list[tuple[NDArray[np.int64], int]]:
    """Which origins to count, the farthest, the two farthest, ..., and their chunks."""
    k = part.chunks_per_npu
    order = np.argsort(-far, kind="stable")
    if part.pattern == "all-reduce":
        # one contribution to every sum
        return [(order[:1], part.num_chunks)]
    last = np.flatnonzero(np.diff(far[order], append=-1))
    return [(order[: i + 1], k * (int(i) + 1)) for i in last]
