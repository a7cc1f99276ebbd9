"""Which nodes reach which: the reason why a collective cannot be done at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.topology import Topology

__all__ = ["Separation", "find_separation", "reachable"]


@dataclass(frozen=True, slots=True)
class Separation:
    """A set of nodes that no link leaves, although a chunk must.

    Attributes
    ----------
    inside, outside : int32 arrays
        The two sides; nothing gets from `inside` to `outside`.
    chunk, source, target : int
        A chunk (or a contribution to it) that must get from `source` to `target`.
    message : str
        All of that for people.
    """

    inside: NDArray[np.int32]
    outside: NDArray[np.int32]
    chunk: int
    source: int
    target: int
    message: str


def reachable(topology: Topology, start: int) -> NDArray[np.bool_]:
    """Nodes that can be reached from `start` along links, bool[num_nodes]."""
    ptr, links = topology.out_links()
    seen = np.zeros(topology.num_nodes, dtype=np.bool_)
    seen[start] = True
    front = np.array([start])
    while front.size:
        out = np.concatenate([links[ptr[v] : ptr[v + 1]] for v in front])
        found = np.unique(topology.dst[out])
        front = found[~seen[found]]
        seen[front] = True
    return seen


def find_separation(instance: CollectiveInstance) -> Separation | None:
    """A pair of NPUs that must exchange a chunk and cannot, with its two sides; None if all can.

    One search from each NPU that sends, in the worst case; one forward and one backward search
    where the group is strongly connected.
    """
    topology = instance.topology
    first = 0
    for part in instance.collective.parts:
        if part.num_chunks and len(part.npus) > 1:
            hub = int(part.npus[0] if part.root is None else part.root)
            backward = topology.reversed()
            whole = reachable(topology, hub)[part.npus].all()
            if not (whole and reachable(backward, hub)[part.npus].all()):
                found = _search(topology, part, first)
                if found is not None:
                    return found
        first += part.num_chunks
    return None


def _search(topology: Topology, part: Part, first: int) -> Separation | None:
    sources, destinations = part.sources(), part.destinations()
    cache: dict[int, NDArray[np.bool_]] = {}
    done: set[tuple[int, int]] = set()
    for chunk, pair in enumerate(zip(sources.tolist(), destinations.tolist())):
        if pair in done:
            continue
        done.add(pair)
        for source in part.npus.tolist() if pair[0] < 0 else [pair[0]]:
            if source not in cache:
                cache[source] = reachable(topology, source)
            targets = part.npus if pair[1] < 0 else np.array([pair[1]], dtype=np.int32)
            missing = targets[~cache[source][targets]]
            if missing.size:
                return _separation(topology, cache[source], first + chunk, source, int(missing[0]))
    return None


def _separation(
    topology: Topology, seen: NDArray[np.bool_], chunk: int, source: int, target: int
) -> Separation:
    inside = np.flatnonzero(seen).astype(np.int32)
    outside = np.flatnonzero(~seen).astype(np.int32)
    message = (
        f"chunk {chunk} must get from {topology.node_name(source)} to "
        f"{topology.node_name(target)}, but no link leads from {_side(topology, inside)} to "
        f"{_side(topology, outside)}"
    )
    return Separation(inside, outside, chunk, source, target, message)


def _side(topology: Topology, nodes: NDArray[np.int32]) -> str:
    shown = ", ".join(topology.node_name(int(v)) for v in nodes[:8])
    return f"{{{shown}, ... ({len(nodes)} nodes)}}" if len(nodes) > 8 else f"{{{shown}}}"
