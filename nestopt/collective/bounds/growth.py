"""The growth bound: how fast a chunk can come to more and more nodes.

A chunk starts at one node. A node that has it sends it to one other node at a time over each of its
links, and only nodes that have it can send it: so those that have it grow in number no faster than
a family does. Nodes that keep a chunk and pass it on are NPUs and switches that multicast; a switch
that does not only forwards.

Let p(j) be the least time, over all such nodes, from a node's having the chunk to its having
brought it to the j-th other. Start with one node at time 0 and let every node that has the chunk
bring it to one more after p(1), p(2), ... each. If m NPUs need the chunk, the m-th of these times
is a bound.

A node with k chunks of its own sends one of them for the first time after it has sent the k - 1
others once each: that chunk starts to grow so much later. In an All-Reduce every NPU has a
contribution to every chunk, and all need it, however it is summed up with others on the way.

Time reversed, the bound holds for Reduce-Scatter and Reduce.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._kernels import FAR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.bounds._model import Network
    from nestopt.collective.model.collective import Part

__all__ = ["growth_bound"]

_GROWS = ("all-gather", "broadcast", "all-reduce")
_MOST_WORK = 5 * 10**6
_SECONDS_A_SENDING = 2e-7


def growth_bound(net: Network, budget: Budget | None = None) -> dict[str, Any] | None:
    """The best over parts and over the nodes where chunks start."""
    budget = budget or Budget()
    best: dict[str, Any] | None = None
    for index, part in enumerate(net.instance.collective.parts):
        work = net.topology.num_links * len(part.npus)
        if part not in net.parts or part.pattern not in _GROWS or work > _MOST_WORK:
            continue
        if budget.used_up():
            break
        budget.spend(_SECONDS_A_SENDING * work)
        soonest = _soonest(net, part, len(part.npus) - 1)
        grown = _grown(soonest, len(part.npus))
        node, begin = _latest_start(net, part)
        value = begin + grown
        if grown < FAR // 4 and (best is None or value > best["value"]):
            best = {"kind": "growth", "value": value, "part": index, "node": node, "begin": begin}
    return best


def _soonest(net: Network, part: Part, count: int) -> list[int]:
    """The least time to the first, second, ... arrival of what a node sends, `count` of them."""
    topology = net.topology
    transfer, occupancy = net.transfer(part.chunk_size), net.occupancy(part.chunk_size)
    keeps = np.flatnonzero(topology.multicast).astype(np.int32)
    arrives = net.distances_to(keeps, transfer)[topology.dst] + transfer
    ptr, links = net.out_links
    least = np.full(count, FAR, dtype=np.int64)
    seen = set()
    for v in keeps.tolist():
        out = links[ptr[v] : ptr[v + 1]]
        out = out[arrives[out] < FAR // 4]
        rows = tuple(sorted(zip(arrives[out].tolist(), occupancy[out].tolist())))
        if not rows or rows in seen:
            continue
        seen.add(rows)
        least = np.minimum(least, _merged(rows, count))
    return least.tolist()


def _merged(rows: tuple[tuple[int, int], ...], count: int) -> NDArray[np.int64]:
    """The first `count` of the numbers first, first + step, ... of all rows, in order."""
    # no later than this many on the quickest row alone
    last = min(FAR, min(first + (count - 1) * step for first, step in rows))
    each = [np.arange(first, last + 1, step, dtype=np.int64) for first, step in rows]
    every = np.sort(np.concatenate(each))[:count]
    return np.append(every, np.full(count - len(every), FAR, dtype=np.int64))


def _grown(soonest: list[int], members: int) -> int:
    """When so many nodes can have the chunk, from one on."""
    queue: list[tuple[int, int, int]] = []
    moment = 0
    for _ in range(members - 1):
        heappush(queue, (moment + soonest[0], moment, 0))
        moment, since, sent = heappop(queue)
        if moment >= FAR // 4:
            return FAR
        if sent + 1 < len(soonest):
            heappush(queue, (since + soonest[sent + 1], since, sent + 1))
    return moment


def _latest_start(net: Network, part: Part) -> tuple[int, int]:
    """A node, and by when it can have begun to send all but one of its own chunks."""
    occupancy = net.occupancy(part.chunk_size)
    ptr, links = net.out_links
    own = part.num_chunks if part.pattern == "all-reduce" else part.chunks_per_npu
    best = (-1, -1)
    for v in [part.root] if part.root is not None else part.npus.tolist():
        steps = occupancy[links[ptr[v] : ptr[v + 1]]].tolist()
        if steps:
            begin = int(_merged(tuple((0, step) for step in steps), own)[-1])
            best = max(best, (begin, -v))
    return -best[1], best[0]
