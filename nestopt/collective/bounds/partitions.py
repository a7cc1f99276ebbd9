"""Bounds by partition: what must pass between the blocks of a partition of the nodes.

Let everything inside a block be free and take no time. A schedule of the instance is then one of a
smaller instance whose NPUs are the blocks, so that every bound of the smaller one holds. Of k
blocks with members of the group,

- every chunk of an All-Gather must enter k - 1 blocks, every sum of a Reduce-Scatter leave k - 1;
- every sum of an All-Reduce must pass at least 2 (k - 1) times between blocks, whether sums are
  copied or moved. Take the block that first holds all contributions to a chunk, and the moment t
  when it does. Every other block has sent something that came by t, since its contribution got
  there, and must still receive something that comes after t, since it does not hold all at t;
- an All-to-All exchanges the pairs of members of every two blocks.

Nodes that multicast or reduce are ends of such transfers, others are only passed: in-network
multicast and reduction weaken the count as far as they must. Prices on the links between blocks
(equal, of one direction only, or by the linear programs of `prices`) make of it a bound.

Blocks are found by what is joined by fast links, by the switch that NPUs hang on, and by the second
eigenvector of the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._model import Network
from nestopt.collective.bounds.prices import (
    exact_fluid,
    flow_bound,
    price_bound,
    time_to_sell,
    work_bound,
)
from nestopt.collective.model.collective import Collective, Part
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = ["contract", "partition_bound", "partitions"]

_MOST_BLOCKS = 256
_MOST_THRESHOLDS = 8
_MOST_LINKS = 200_000
_LP_LINKS = 4_000
_SECONDS_A_LINK = 2e-6


@dataclass(frozen=True, slots=True)
class Contracted:
    """The smaller instance, and the link of the instance that each of its links is.

    Attributes
    ----------
    net : Network
    links : int64[E']
    """

    net: Network
    links: NDArray[np.int64]


def partition_bound(net: Network, budget: Budget | None = None) -> dict[str, Any] | None:
    """The best bound over the partitions of `partitions`."""
    budget, topology = budget or Budget(), net.topology
    best: dict[str, Any] | None = None
    if topology.num_links > _MOST_LINKS:
        return None
    for labels in partitions(net):
        if budget.used_up():
            break
        small = contract(net, labels)
        if small is None:
            continue
        blocks = int(labels.max()) + 1
        budget.spend(_SECONDS_A_LINK * (topology.num_links + len(small.links) * blocks))
        for row in _rows(small, budget):
            if best is None or row["value"] > best["value"]:
                prices = np.zeros(topology.num_links, dtype=np.int64)
                prices[small.links] = row["prices"]
                best = row | {"kind": "partition", "labels": labels, "prices": prices}
                # inside a block things take time, too: links are idle longer than between blocks
                best["value"] = time_to_sell(net, prices, row["cost"], row["size"])
                best["between"] = small.net, row["prices"]
    if best is not None:
        exact = exact_fluid(*best.pop("between"))
        best["fluid"] = best["fluid"] if exact is None else exact
    return best


def _rows(small: Contracted, budget: Budget) -> Iterator[dict[str, Any]]:
    topology = small.net.topology
    found = [work_bound(small.net)]
    inner = ~topology.is_switch
    for ends in (topology.src, topology.dst):
        found.append(price_bound(small.net, inner[ends].astype(np.int64)))
    if len(small.links) <= _LP_LINKS and not budget.used_up():
        found.append(flow_bound(small.net, Budget(max(0.1, budget.work / 4))))
    yield from (row for row in found if row is not None)


def contract(net: Network, labels: NDArray[np.int64]) -> Contracted | None:
    """The instance between the blocks; None if nothing has to pass between them.

    Parameters
    ----------
    labels : int64[V]
        Block of each node, -1 for switches outside; every NPU is in a block.
    """
    topology = net.topology
    blocks = int(labels.max()) + 1
    place = labels.copy()
    outside = np.flatnonzero(labels < 0)
    place[outside] = blocks + np.arange(len(outside))
    src, dst = place[topology.src], place[topology.dst]
    links = np.flatnonzero(src != dst)
    parts = [small for part in net.parts for small in _contracted(part, labels)]
    if not parts or len(links) == 0:
        return None
    inside = np.ones(blocks, dtype=np.bool_)
    between = Topology(
        name=f"{blocks} blocks of {topology.name}",
        num_nodes=blocks + len(outside),
        is_switch=np.concatenate([~inside, np.ones(len(outside), dtype=np.bool_)]),
        src=src[links],
        dst=dst[links],
        alpha_ps=topology.alpha_ps[links],
        bandwidth=topology.bandwidth[links],
        multicast=np.concatenate([inside, topology.multicast[outside]]),
        reduces=np.concatenate([inside, topology.reduces[outside]]),
    )
    instance = net.instance
    small = CollectiveInstance(
        between, Collective("between blocks", tuple(parts)), instance.latency, instance.sums
    )
    return Contracted(Network(small), links)


def _contracted(part: Part, labels: NDArray[np.int64]) -> list[Part]:
    """A part as parts over the blocks of its members."""
    found, members = np.unique(labels[part.npus], return_counts=True)
    blocks = found.astype(np.int32)
    if len(blocks) < 2:
        return []
    k, size = part.chunks_per_npu, part.chunk_size
    home = -1 if part.root is None else int(labels[part.root])
    if part.pattern == "all-reduce":
        return [Part("all-reduce", blocks, size, chunks=part.num_chunks)]
    if part.pattern in ("broadcast", "reduce"):
        return [Part(part.pattern, blocks, size, k, home)]
    counts = dict(zip(blocks.tolist(), members.tolist()))
    if part.pattern in ("scatter", "gather"):
        return [
            Part(part.pattern, np.array([home, b], np.int32), size, k * count, home)
            for b, count in counts.items()
            if b != home
        ]
    if part.pattern == "all-to-all":
        if len(set(counts.values())) == 1:
            return [Part("all-to-all", blocks, size, k * int(members[0]) ** 2)]
        return [
            Part("scatter", np.array([a, b], np.int32), size, k * counts[a] * counts[b], a)
            for a in counts
            for b in counts
            if a != b
        ]
    rooted = "broadcast" if part.pattern == "all-gather" else "reduce"
    if len(set(counts.values())) == 1:
        return [Part(part.pattern, blocks, size, k * int(members[0]))]
    return [Part(rooted, blocks, size, k * count, b) for b, count in counts.items()]


# --- which partitions ----------------------------------------------------------------------------


def partitions(net: Network) -> Iterator[NDArray[np.int64]]:
    """Different partitions into at least two blocks, those that say most as a rule first."""
    topology, seen = net.topology, set()
    for labels in (*_by_speed(net), *_by_switch(topology), *_by_halves(topology)):
        numbered = _numbered(topology, labels)
        blocks = int(numbered.max()) + 1
        if 2 <= blocks <= _MOST_BLOCKS and numbered.tobytes() not in seen:
            seen.add(numbered.tobytes())
            yield numbered


def _numbered(topology: Topology, labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Blocks numbered from 0 in order of their NPUs; what holds no NPU is outside."""
    found = np.full(topology.num_nodes, -1, dtype=np.int64)
    table: dict[int, int] = {}
    for v in topology.npus.tolist():
        table.setdefault(int(labels[v]), len(table))
    for v in range(topology.num_nodes):
        found[v] = table.get(int(labels[v]), -1)
    return found


def _by_speed(net: Network) -> Iterator[NDArray[np.int64]]:
    """What links join that are no slower than a threshold."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    topology, nodes = net.topology, net.topology.num_nodes
    for time in (net.occupancy(net.sizes[-1]), net.transfer(net.sizes[-1])):
        levels = np.unique(time)
        if len(levels) > _MOST_THRESHOLDS:
            levels = levels[np.linspace(0, len(levels) - 1, _MOST_THRESHOLDS).astype(int)]
        for level in levels[:-1].tolist():
            fast = time <= level
            ones = np.ones(int(fast.sum()), dtype=np.int8)
            graph = coo_matrix((ones, (topology.src[fast], topology.dst[fast])), (nodes, nodes))
            yield connected_components(graph, directed=False)[1].astype(np.int64)


def _by_switch(topology: Topology) -> Iterator[NDArray[np.int64]]:
    """NPUs with the switches they hang on; then groups that hang on the same switches."""
    if not topology.is_switch.any():
        return
    labels = np.arange(topology.num_nodes, dtype=np.int64)
    free = topology.is_switch.copy()
    for _ in range(4):
        ends: dict[int, set[int]] = {}
        for u, w in zip(topology.src.tolist(), topology.dst.tolist()):
            if free[w] and not free[u]:
                ends.setdefault(int(labels[u]), set()).add(w)
        if not ends:
            return
        root = {block: block for block in ends}
        joined: dict[int, int] = {}
        for block, switches in ends.items():
            for switch in switches:
                other = joined.setdefault(switch, block)
                root[_find(root, block)] = _find(root, other)
        for v in range(topology.num_nodes):
            if int(labels[v]) in root:
                labels[v] = _find(root, int(labels[v]))
        for switch, block in joined.items():
            labels[switch], free[switch] = _find(root, block), False
        yield labels.copy()


def _find(root: dict[int, int], block: int) -> int:
    while root[block] != block:
        block = root[block]
    return block


def _by_halves(topology: Topology) -> Iterator[NDArray[np.int64]]:
    """Halves, quarters, ... by the second eigenvector."""
    from nestopt.collective.bounds.cuts import fiedler_order

    if not 4 <= topology.num_nodes <= 300:
        return
    labels = np.zeros(topology.num_nodes, dtype=np.int64)
    for level in range(3):
        fresh = labels.copy()
        for block in range(1 << level):
            nodes = np.flatnonzero(labels == block)
            inner = np.isin(topology.src, nodes) & np.isin(topology.dst, nodes)
            if len(nodes) < 4 or not inner.any():
                continue
            index = np.full(topology.num_nodes, -1, dtype=np.int64)
            index[nodes] = np.arange(len(nodes))
            order = fiedler_order(
                len(nodes),
                index[topology.src[inner]],
                index[topology.dst[inner]],
                topology.bandwidth[inner],
            )
            fresh[nodes[order[len(nodes) // 2 :]]] = block + (1 << level)
        labels = fresh
        yield labels.copy()
