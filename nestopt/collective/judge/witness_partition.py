"""Independent check of the witnesses of partition bounds and merging bounds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.judge.witness_distances import (
    NEVER,
    distances,
    from_nearest,
    idle_times,
    require,
)

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["verify_merging", "verify_partition"]


def verify_partition(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    """The bound that a witness of kind ``partition`` proves, picoseconds.

    Chunks are counted one by one: how many times each must pass into or out of a block, at the
    cheapest prices of the links between blocks.
    """
    topology, value = instance.topology, int(witness["value"])
    block = [-1] * topology.num_nodes
    for number, nodes in enumerate(witness["blocks"]):
        for v in nodes:
            require(type(v) is int and 0 <= v < len(block), f"{v!r} is no node")
            require(block[v] == -1, f"node {v} is in two blocks")
            block[v] = number
    for v in topology.npus.tolist():
        require(block[v] >= 0, f"NPU {v} is in no block")
    given = witness["prices"]
    require(len(given) == topology.num_links, f"{len(given)} prices, {topology.num_links} links")
    require(all(type(price) is int and price >= 0 for price in given), "a price is no number >= 0")
    ends = list(zip(topology.src.tolist(), topology.dst.tolist()))
    for link, (u, w) in enumerate(ends):
        inner = block[u] >= 0 and block[u] == block[w]
        require(not (inner and given[link]), f"link {link} lies inside a block and has a price")
    cost = 0
    sizes = set()
    for part in instance.collective.parts:
        found = _between(instance, part, block, len(witness["blocks"]), given)
        cost += found
        if found:
            sizes.add(part.chunk_size)
    require(cost == int(witness["cost"]), f"the chunks cost {cost}, not {witness['cost']}")
    occupancy = instance.occupancy_ps(sizes.pop()).tolist() if len(sizes) == 1 else None
    sold, idle = 0, idle_times(instance)
    for link, price in enumerate(given):
        if not price or idle[link] == NEVER:
            continue
        late = idle[link] + (int(topology.alpha_ps[link]) if instance.latency == "pipelined" else 0)
        open_for = max(0, value - 1 - late)
        if occupancy is not None:
            open_for -= open_for % occupancy[link]
        sold += price * open_for
    require(sold < cost, f"the links can sell {sold} of {cost} by {value - 1} ps")
    return value


def _between(
    instance: CollectiveInstance, part: Any, block: list[int], blocks: int, prices: list[int]
) -> int:
    """What a part costs at least between the blocks."""
    topology = instance.topology
    number = [b if b >= 0 else blocks + v for v, b in enumerate(block)]
    length = instance.occupancy_ps(part.chunk_size).tolist()
    size = blocks + topology.num_nodes
    ahead: list[list[tuple[int, int]]] = [[] for _ in range(size)]
    back: list[list[tuple[int, int]]] = [[] for _ in range(size)]
    for link, (u, w) in enumerate(zip(topology.src.tolist(), topology.dst.tolist())):
        if number[u] != number[w]:
            ahead[number[u]].append((number[w], prices[link] * length[link]))
            back[number[w]].append((number[u], prices[link] * length[link]))
    places = sorted({block[v] for v in part.npus.tolist()})
    if len(places) < 2:
        return 0
    sources, targets = part.sources().tolist(), part.destinations().tolist()
    pairs = Counter(
        (a if a < 0 else block[a], b if b < 0 else block[b]) for a, b in zip(sources, targets)
    )
    if part.pattern in ("all-to-all", "scatter", "gather"):
        total = 0
        for start in sorted({a for a, _ in pairs}):
            far = from_nearest(ahead, [start])
            for (a, b), count in pairs.items():
                if a == start and a != b:
                    require(far[b] != NEVER, f"block {b} cannot be reached from block {a}")
                    total += count * far[b]
        return total
    able = [*range(blocks)]
    able += [
        blocks + v
        for v in range(topology.num_nodes)
        if block[v] < 0 and (topology.multicast[v] or topology.reduces[v])
    ]
    come, go = from_nearest(ahead, able), from_nearest(back, able)
    into = {b: _least([(come[u], price) for u, price in back[b]]) for b in places}
    out = {b: _least([(go[w], price) for w, price in ahead[b]]) for b in places}
    total = 0
    for (source, target), count in pairs.items():
        if source < 0 and target < 0:
            # every block but one sends before one is whole, and receives after
            each = [into[b] + out[b] for b in places]
            total += count * (sum(each) - max(each))
        elif source < 0:
            total += count * (sum(out[b] for b in places) - out[target])
        else:
            total += count * (sum(into[b] for b in places) - into[source])
    return total


def _least(ways: list[tuple[int, int]]) -> int:
    found = [far + price for far, price in ways if far != NEVER]
    require(bool(found), "a block has no way to or from another")
    return min(found)


def verify_merging(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    """The bound that a witness of kind ``merging`` proves, picoseconds."""
    topology, value = instance.topology, int(witness["value"])
    part = instance.collective.parts[witness["part"]]
    target, members = int(witness["target"]), part.npus.tolist()
    require(part.reduction and target in members, f"no sum ends at node {target}")
    sums = sum(1 for end in part.destinations().tolist() if end in (-1, target))
    require(sums == int(witness["sums"]), f"{sums} sums end at {target}, not {witness['sums']}")
    length = instance.transfer_ps(part.chunk_size)
    away = [distances(instance, length, u) for u in members if u != target]
    onward = distances(instance, length, target, backward=True)
    merged = None
    for w in range(topology.num_nodes):
        near = sorted(row[w] for row in away if row[w] != NEVER)
        if w == target or not topology.reduces[w] or onward[w] == NEVER or len(near) < 2:
            continue
        way = near[1] + onward[w]
        merged = way if merged is None else min(merged, way)
    if merged is not None:
        require(
            merged >= int(witness["merged"]),
            f"two contributions can come in one message at {merged} ps, before {witness['merged']}",
        )
    occupancy = instance.occupancy_ps(part.chunk_size)
    moment, early, late = value - 1, 0, 0
    for link in np.flatnonzero(topology.dst == target).tolist():
        tail = [row[topology.src[link]] for row in away]
        near_tail = [d for d in tail if d != NEVER]
        if not near_tail:
            continue
        first = min(near_tail) + int(length[link])
        each = int(occupancy[link])
        if moment >= first:
            early += 1 + (moment - first) // each
        first = max(first, int(witness["merged"]))
        if moment >= first:
            late += 1 + (moment - first) // each
    late = min(sums, late)
    require(
        (sums - late) * len(away) + late > early,
        f"all sums can have come to node {target} by {moment} ps",
    )
    return value
