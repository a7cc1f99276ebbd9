"""What the matching kernels run on: hops, ports and chunk tables as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.greedy.hops import find_hops
from nestopt.collective.model.collective import Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.topology import grouped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.topology import Topology

__all__ = ["Task", "Times", "hops_out", "link_times", "make_task"]


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """Times by size of chunk: `sizes` int64[K], `occupancy` and `transfer` int64[K, E], in ps."""

    sizes: NDArray[np.int64]
    occupancy: NDArray[np.int64]
    transfer: NDArray[np.int64]


def link_times(topology: Topology, parts: Sequence[Part], latency: str) -> Times:
    """The times of every size of chunk in `parts` on every link."""
    sizes = np.unique([part.chunk_size for part in parts]).astype(np.int64)
    instance = CollectiveInstance(topology, Collective("times", tuple(parts)), latency)
    return Times(
        sizes,
        np.array([instance.occupancy_ps(int(size)) for size in sizes]),
        np.array([instance.transfer_ps(int(size)) for size in sizes]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Chunks that start at one node each and must reach every member of a group.

    Attributes
    ----------
    topology : Topology
    times : Times
    source, part_of, size_of : int32[chunks]
    member : bool[parts, nodes]
    port_ptr, hop_src, hop_dst, hop_ptr, hop_links, node_ptr, node_ports : int64 arrays
        See `nestopt.collective.greedy.kernels.event.match_events`.
    plain : bool
        Whether every hop is one link and every port one hop.
    relays : bool
        Whether nodes outside a group may pass its chunks on. Where every hop has a link of its own
        that costs nothing; where hops share ports it is done only if the group needs it, or if
        there are switches that multicast.
    """

    topology: Topology
    times: Times
    source: NDArray[np.int32]
    part_of: NDArray[np.int32]
    size_of: NDArray[np.int32]
    member: NDArray[np.bool_]
    port_ptr: NDArray[np.int64]
    hop_src: NDArray[np.int64]
    hop_dst: NDArray[np.int64]
    hop_ptr: NDArray[np.int64]
    hop_links: NDArray[np.int64]
    node_ptr: NDArray[np.int64]
    node_ports: NDArray[np.int64]
    plain: bool
    relays: bool

    @property
    def num_claims(self) -> int:
        """At most how many times a node can receive a chunk."""
        return self.topology.num_nodes * len(self.source)

    def distances(self) -> NDArray[np.float64]:
        """Shortest times between nodes for the first size of chunk, in units of the longest hop."""
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import dijkstra

        length = np.add.reduceat(self.times.transfer[0][self.hop_links], self.hop_ptr[:-1])
        order = np.argsort(-length, kind="stable")
        nodes = self.topology.num_nodes
        shortest = np.full((nodes, nodes), np.inf)
        shortest[self.hop_src[order], self.hop_dst[order]] = length[order]
        rows, columns = np.nonzero(np.isfinite(shortest))
        graph = coo_matrix((shortest[rows, columns], (rows, columns)), shape=(nodes, nodes))
        found = dijkstra(graph.tocsr())
        found[~np.isfinite(found)] = 0.0
        scaled: NDArray[np.float64] = found / max(float(length.max()), 1.0)
        return scaled


def make_task(topology: Topology, parts: Sequence[Part], latency: str) -> Task:
    """The task of copying the chunks of `parts` (All-Gathers and Broadcasts) to their groups."""
    times = link_times(topology, parts, latency)
    counts = [part.num_chunks for part in parts]
    part_of = np.repeat(np.arange(len(parts), dtype=np.int32), counts)
    size = np.array([part.chunk_size for part in parts], dtype=np.int64)
    member = np.zeros((len(parts), topology.num_nodes), dtype=np.bool_)
    for row, part in enumerate(parts):
        member[row, part.npus] = True
    hops: dict[str, Any] = find_hops(topology, times.transfer[0])
    return Task(
        topology=topology,
        times=times,
        source=np.concatenate([part.sources() for part in parts]),
        part_of=part_of,
        size_of=np.searchsorted(times.sizes, size)[part_of].astype(np.int32),
        member=member,
        relays=hops["plain"]
        or bool((topology.is_switch & topology.multicast).any())
        or not all(_connected(hops, group) for group in member),
        **hops,
    )


def _connected(hops: dict[str, Any], group: NDArray[np.bool_]) -> bool:
    """Whether hops between the nodes of a group lead from each of them to each other."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    label = np.cumsum(group) - 1
    inner = group[hops["hop_src"]] & group[hops["hop_dst"]]
    ends = label[hops["hop_src"][inner]], label[hops["hop_dst"][inner]]
    size = int(group.sum())
    graph = coo_matrix((np.ones(len(ends[0])), ends), shape=(size, size))
    count, _ = connected_components(graph, directed=True, connection="strong")
    return bool(count == 1)


def hops_out(task: Task) -> tuple[Any, ...]:
    """Hops by the node that they leave, their ends and links, as the kernels take them."""
    out = grouped(task.hop_src, task.topology.num_nodes)
    return *out, task.hop_src, task.hop_dst, task.hop_ptr, task.hop_links
