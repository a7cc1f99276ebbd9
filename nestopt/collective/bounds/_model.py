"""What the bounds know of an instance: times of links, demands, the time-reversed instance."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.model.collective import Collective, Part
from nestopt.collective.model.instance import CollectiveInstance

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Network", "crossing", "reverse_instance"]

_DUAL = {
    "all-gather": "reduce-scatter",
    "reduce-scatter": "all-gather",
    "broadcast": "reduce",
    "reduce": "broadcast",
    "scatter": "gather",
    "gather": "scatter",
    "all-to-all": "all-to-all",
    "all-reduce": "all-reduce",
}


def reverse_instance(instance: CollectiveInstance) -> CollectiveInstance:
    """The instance whose schedules are the given instance's schedules run backwards.

    Every link is turned round; an All-Gather becomes a Reduce-Scatter, a Broadcast a Reduce, a
    Scatter a Gather, and the other way round. A send that starts at t and arrives at t' becomes
    one that starts at T - t' and arrives at T - t, so both have the same optimum.
    """
    parts = tuple(
        Part(_DUAL[p.pattern], p.npus, p.chunk_size, p.chunks_per_npu, p.root, p.chunks)
        for p in instance.collective.parts
    )
    return CollectiveInstance(
        instance.topology.reversed(),
        Collective(f"{instance.collective.name} reversed", parts),
        instance.latency,
        instance.sums,
    )


def crossing(part: Part, inside: NDArray[np.bool_]) -> int:
    """How many chunks of a part must cross from the node set `inside` to the rest at least once.

    In a reduction a chunk must cross if a contribution lies inside and the sum is needed outside.
    """
    k, n = part.chunks_per_npu, len(part.npus)
    here = int(inside[part.npus].sum())
    there = n - here
    if here == 0 or there == 0:
        return 0
    root_here = part.root is not None and bool(inside[part.root])
    if part.pattern == "all-gather":
        return k * here
    if part.pattern == "reduce-scatter":
        return k * there
    if part.pattern == "all-reduce":
        return part.num_chunks
    if part.pattern == "all-to-all":
        return k * here * there
    if part.pattern == "broadcast":
        return k if root_here else 0
    if part.pattern == "reduce":
        return 0 if root_here else k
    if part.pattern == "scatter":
        return k * there if root_here else 0
    return 0 if root_here else k * here


@dataclass(frozen=True)
class Network:
    """An instance with the arrays that the bounds need, computed once.

    `occupancy` and `transfer` are lists over the different chunk sizes, see `sizes`.
    """

    instance: CollectiveInstance

    @property
    def topology(self) -> Any:
        """The topology."""
        return self.instance.topology

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the collective that move anything."""
        return tuple(p for p in self.instance.collective.parts if p.num_chunks and len(p.npus) > 1)

    @cached_property
    def out_links(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Links by source."""
        return self.topology.out_links()

    @cached_property
    def in_links(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Links by destination."""
        return self.topology.in_links()

    @cached_property
    def _times(self) -> dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]]:
        sizes = {part.chunk_size for part in self.parts}
        return {
            size: (self.instance.occupancy_ps(size), self.instance.transfer_ps(size))
            for size in sorted(sizes)
        }

    def occupancy(self, size: int) -> NDArray[np.int64]:
        """Time a chunk occupies each link, int64[E], ps."""
        return self._times[size][0]

    def transfer(self, size: int) -> NDArray[np.int64]:
        """Time from the start of a send to its arrival, int64[E], ps."""
        return self._times[size][1]

    def exact_occupancy(self, size: int, links: NDArray[Any]) -> list[Fraction]:
        """Time a chunk occupies each of some links, ps, as the input says it: not rounded."""
        topology, blocking = self.topology, self.instance.latency == "blocking"
        rows = zip(topology.bandwidth[links].tolist(), topology.alpha_ps[links].tolist())
        return [
            Fraction(size * 10**12, bandwidth) + (alpha if blocking else 0)
            for bandwidth, alpha in rows
        ]

    @property
    def sizes(self) -> list[int]:
        """The different chunk sizes."""
        return list(self._times)

    def distances_from(
        self, sources: NDArray[np.int32], length: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Distance of each node from the nearest source, int64[V]."""
        from nestopt.collective.bounds._kernels import shortest

        return shortest(*self.out_links, self.topology.dst, length, np.asarray(sources, np.int32))

    def distances_to(
        self, targets: NDArray[np.int32], length: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Distance of each node to the nearest target, int64[V]."""
        from nestopt.collective.bounds._kernels import shortest

        return shortest(*self.in_links, self.topology.src, length, np.asarray(targets, np.int32))

    def origins(self, part: Part) -> NDArray[np.int32]:
        """Nodes where chunks or contributions of a part start."""
        if part.pattern in ("broadcast", "scatter"):
            return np.array([part.root], dtype=np.int32)
        return part.npus

    def heads(self, part: Part) -> NDArray[np.int64]:
        """Earliest time at which anything of a part can be at each node, int64[V], ps."""
        return self.distances_from(self.origins(part), self.transfer(part.chunk_size))

    def tails(self, part: Part) -> NDArray[np.int64]:
        """Least time from each node to where anything of a part must end, int64[V], ps."""
        ends = part.npus
        if part.pattern in ("reduce", "gather"):
            ends = np.array([part.root], dtype=np.int32)
        elif part.pattern == "scatter":
            ends = part.npus[part.npus != part.root]
        return self.distances_to(ends, self.transfer(part.chunk_size))

    @cached_property
    def idle(self) -> NDArray[np.int64]:
        """Time that each link cannot be used in: before anything comes, and too late, int64[E].

        One part may come to a link early and another leave it late: the least over the parts is
        taken of each by itself.
        """
        from nestopt.collective.bounds._kernels import FAR

        topology = self.topology
        before = np.full(topology.num_links, FAR, dtype=np.int64)
        behind = before.copy()
        for part in self.parts:
            starts = self.origins(part)
            if part.pattern == "gather":
                starts = starts[starts != part.root]
            come = self.distances_from(starts, self.transfer(part.chunk_size))[topology.src]
            go = self.tails(part)[topology.dst]
            of_use = (come < FAR) & (go < FAR)
            np.minimum(before, come, out=before, where=of_use)
            np.minimum(behind, go, out=behind, where=of_use)
        return np.minimum(before, FAR // 2) + np.minimum(behind, FAR // 2)
