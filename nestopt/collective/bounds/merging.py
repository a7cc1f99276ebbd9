"""The merging bound: what comes early brings one contribution at a time.

A message that brings an NPU v the contributions of two others was added up at some node w: two
contributions had to get to w, and the sum from there to v. Let s be the least such time. What v
receives before s brings at most one contribution each, so that a sum needs n - 1 messages, or at
least one that comes at s or later. So v has its sums at time T only if, with x the number of
messages that can come from s to T (at most one a sum counts), the other sums' n - 1 messages each
can have come by T too. It holds whether sums are moved or copied; for small buffers it is what
proves one-shot best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._kernels import FAR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.bounds._model import Network
    from nestopt.collective.model.collective import Part

__all__ = ["merging_bound"]

_MOST_WORK = 5 * 10**6
_SECONDS_A_LINK = 1e-7
_SECONDS_A_TARGET = 2e-4


@dataclass(frozen=True, slots=True)
class _Nearest:
    """The three members nearest to every node, the nearest first.

    Attributes
    ----------
    member : int64[3, V]
        Positions in the group.
    distance : int64[3, V]
    """

    member: NDArray[np.int64]
    distance: NDArray[np.int64]

    def without(self, rank: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Distances of the nearest and the second nearest member but one, int64[V] each."""
        is_first, is_second = self.member[0] == rank, self.member[1] == rank
        first = np.where(is_first, self.distance[1], self.distance[0])
        second = np.where(is_first | is_second, self.distance[2], self.distance[1])
        return first, second


def merging_bound(net: Network, budget: Budget | None = None) -> dict[str, Any] | None:
    """The best over all NPUs where sums end."""
    budget, topology = budget or Budget(), net.topology
    best: dict[str, Any] | None = None
    for part in net.parts:
        work = len(part.npus) * topology.num_links
        if not part.reduction or work > _MOST_WORK or budget.used_up():
            continue
        budget.spend(_SECONDS_A_LINK * work)
        length = net.transfer(part.chunk_size)
        away = np.stack([net.distances_from(np.array([u], np.int32), length) for u in part.npus])
        kept = min(3, len(part.npus))
        near = np.argpartition(away, kept - 1, axis=0)[:kept]
        near = np.take_along_axis(
            near, np.argsort(np.take_along_axis(away, near, 0), axis=0, kind="stable"), 0
        )
        nearest = _Nearest(near, np.take_along_axis(away, near, 0))
        counts = np.bincount(
            part.destinations().clip(min=0), minlength=topology.num_nodes
        )  # sums that end at one NPU each
        everywhere = part.pattern == "all-reduce"
        targets = part.npus if everywhere else np.unique(part.destinations())
        for v in targets.tolist():
            budget.spend(_SECONDS_A_LINK * topology.num_links + _SECONDS_A_TARGET)
            if budget.used_up():
                break
            sums = part.num_chunks if everywhere else int(counts[v])
            row = _at(net, part, v, sums, nearest)
            if row is not None and (best is None or row["value"] > best["value"]):
                best = row | {"part": net.instance.collective.parts.index(part)}
    return best


def _at(net: Network, part: Part, v: int, sums: int, nearest: _Nearest) -> dict[str, Any] | None:
    """The bound at one NPU."""
    topology, size = net.topology, part.chunk_size
    if len(part.npus) < 3:
        return None
    first, near = nearest.without(int(np.searchsorted(part.npus, v)))
    onward = net.distances_to(np.array([v], np.int32), net.transfer(size))
    ways = np.where(topology.reduces & (near < FAR) & (onward < FAR), near + onward, FAR)
    ways[v] = FAR
    merged = int(ways.min())
    ptr, links = net.in_links
    here = links[ptr[v] : ptr[v + 1]]
    # what comes to v has not passed v: it starts at another member
    head = first[topology.src[here]]
    release = (head + net.transfer(size)[here])[head < FAR]
    occupancy = net.occupancy(size)[here][head < FAR]
    if len(release) == 0:
        return None
    value = _least(release, occupancy, merged, sums, len(part.npus) - 1)
    return {"kind": "merging", "value": value, "target": v, "merged": merged, "sums": sums}


def _least(
    release: NDArray[np.int64], occupancy: NDArray[np.int64], merged: int, sums: int, others: int
) -> int:
    """Least time by which `sums` sums of `others` contributions can have come."""
    rows = list(zip(release.tolist(), occupancy.tolist()))

    def come(moment: int, since: int) -> int:
        return sum(
            1 + (moment - max(first, since)) // each
            for first, each in rows
            if moment >= max(first, since)
        )

    def enough(moment: int) -> bool:
        late = min(sums, come(moment, merged))
        return (sums - late) * others + late <= come(moment, 0)

    low, high = 0, max(1, int(release.min()))
    while not enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
