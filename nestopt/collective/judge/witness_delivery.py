"""Independent check of the witness of a delivery bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.judge.witness_distances import (
    NEVER,
    distances,
    from_nearest,
    links_out,
    require,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["verify_delivery"]


def verify_delivery(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    """The bound that a witness of kind ``delivery`` proves, picoseconds."""
    topology, value = instance.topology, int(witness["value"])
    part = instance.collective.parts[witness["part"]]
    backward, target = bool(witness["backward"]), int(witness["target"])
    tails, heads = topology.src, topology.dst
    if backward:
        tails, heads = heads, tails
    inside = np.zeros(topology.num_nodes, dtype=np.bool_)
    inside[np.array(witness["nodes"], dtype=np.int64)] = True
    if witness["side"] == "outside":
        inside = ~inside
    links = np.flatnonzero(inside[tails] & ~inside[heads])
    require(links.tolist() == list(witness["links"]), "the cut's links are not those listed")
    members, sources = set(part.npus.tolist()), [int(v) for v in witness["sources"]]
    require(target in members and not inside[target], f"node {target} is no target")
    require(
        len(set(sources)) == len(sources) and all(v in members and inside[v] for v in sources),
        "the sources are not different members behind the cut",
    )
    spreads = ("reduce-scatter", "reduce") if backward else ("all-gather", "broadcast")
    each = part.chunks_per_npu * len(sources)
    if part.pattern == "all-reduce":
        # every sum contains the contribution of one source, and every NPU needs every sum
        each = part.num_chunks
        require(len(sources) == 1, "an All-Reduce counts one contribution")
    else:
        require(part.pattern in spreads, f"{part.pattern} does not deliver chunks to all")
        rooted = part.root is None or sources == [part.root]
        require(rooted, "chunks that do not start at the sources")
    require(each == int(witness["need"]), f"{each} chunks are delivered, not {witness['need']}")
    occupancy = instance.occupancy_ps(part.chunk_size)
    transfer = instance.transfer_ps(part.chunk_size)
    before = _from_nearest(instance, transfer, sources, target, backward=backward)
    after = distances(instance, transfer, target, backward=not backward)
    delivered = 0
    for link in links.tolist():
        head, tail = before[int(tails[link])], after[int(heads[link])]
        if head == NEVER or tail == NEVER:
            continue
        first = head + int(transfer[link]) + tail
        if value - 1 >= first:
            delivered += 1 + (value - 1 - first) // int(occupancy[link])
    require(delivered < each, f"{delivered} of {each} chunks can be there by {value - 1} ps")
    return value


def _from_nearest(
    instance: CollectiveInstance,
    length: NDArray[np.int64],
    sources: list[int],
    closed: int,
    *,
    backward: bool,
) -> list[int]:
    """Distance of every node from the nearest source on paths that do not pass a node."""
    adjacent = links_out(instance, length, backward=backward)
    adjacent[closed] = []
    return from_nearest(adjacent, sources)
