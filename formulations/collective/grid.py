"""The collective problem in whole ticks: what the exact models share.

A `GridProblem` states which chunks (or partial sums) are where from which tick on, where they must
get, and how many ticks each link needs. The tick is the greatest common divisor of all durations,
so that an optimal schedule starts every send on a tick (shift every send to the left: its start is
then a sum of durations). Where that tick is too fine, a coarser one with the durations rounded down
gives a problem whose optimum is a lower bound, and rounded up one whose schedules can be re-timed
into schedules of the instance.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["FAR", "Chunk", "GridProblem", "Send", "distances", "finest_tick", "grid_problem"]

FAR = 2**60


@dataclass(frozen=True, slots=True)
class Send:
    """One send, in ticks; `partial` if it moves a partial sum."""

    chunk: int
    link: int
    start: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk to move.

    Attributes
    ----------
    number : int
        Its number in the instance.
    size : int
        Index of its size among the problem's sizes.
    ready : dict of int to int
        Nodes that hold the chunk (in a sum: a contribution), and from which tick on.
    targets : frozenset of int
        Nodes that must hold it (in a sum: the whole sum) at the end.
    is_sum : bool
        Whether the ready nodes hold contributions that have to be added up.
    """

    number: int
    size: int
    ready: dict[int, int]
    targets: frozenset[int]
    is_sum: bool = False


@dataclass(frozen=True, slots=True)
class GridProblem:
    """A collective problem in ticks.

    Attributes
    ----------
    tick : int
        Picoseconds.
    src, dst : int32[E]
    multicast, reduces, is_switch : bool[V]
    occupancy, transfer : int64[sizes, E]
        Ticks that a send occupies its link, and until it arrives; at least 1.
    chunks : tuple of Chunk
    busy : dict of int to list of (int, int)
        Ticks [from, to) at which a link is taken already.
    """

    tick: int
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    multicast: NDArray[np.bool_]
    reduces: NDArray[np.bool_]
    is_switch: NDArray[np.bool_]
    occupancy: NDArray[np.int64]
    transfer: NDArray[np.int64]
    chunks: tuple[Chunk, ...]
    busy: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.is_switch)

    @property
    def num_links(self) -> int:
        """Number of links."""
        return len(self.src)

    def out_of(self) -> list[list[int]]:
        """Links that leave each node."""
        return _group(self.src, self.num_nodes)

    def into(self) -> list[list[int]]:
        """Links that enter each node."""
        return _group(self.dst, self.num_nodes)

    def earliest(self, chunk: Chunk) -> list[int]:
        """First tick at which a chunk (or a contribution to it) can be at each node.

        A node that is going to hold a chunk does not get it from elsewhere any sooner.
        """
        length = self.transfer[chunk.size]
        given = {} if chunk.is_sum else chunk.ready
        return distances(self.out_of(), self.dst, length, chunk.ready.items(), given)

    def remaining(self, chunk: Chunk) -> list[int]:
        """Ticks from each node to the nearest target of a chunk."""
        length = self.transfer[chunk.size]
        return distances(self.into(), self.src, length, ((v, 0) for v in chunk.targets))

    def free(self, link: int, start: int, size: int) -> bool:
        """Whether a send of a chunk of that size may start on a link, as far as `busy` goes."""
        end = start + int(self.occupancy[size, link])
        return all(end <= low or high <= start for low, high in self.busy.get(link, ()))

    def lower_bound(self) -> int:
        """Latest of the shortest ways to a target, ticks."""
        bound = 0
        for chunk in self.chunks:
            first = self.earliest(chunk)
            bound = max([bound, *(first[v] for v in chunk.targets)])
        return bound


def _group(ends: NDArray[np.int32], nodes: int) -> list[list[int]]:
    grouped: list[list[int]] = [[] for _ in range(nodes)]
    for link, end in enumerate(ends.tolist()):
        grouped[end].append(link)
    return grouped


def distances(
    links: list[list[int]],
    ends: NDArray[np.int32],
    length: NDArray[np.int64],
    start: Iterable[tuple[int, int]],
    given: Container[int] = (),
) -> list[int]:
    """Distances from the nearest start; the nodes in `given` keep the distance they start with."""
    import heapq

    distance = [FAR] * len(links)
    heap = [(d, v) for v, d in start]
    heapq.heapify(heap)
    while heap:
        d, v = heapq.heappop(heap)
        if d >= distance[v]:
            continue
        distance[v] = d
        for e in links[v]:
            w, further = int(ends[e]), d + int(length[e])
            if further < distance[w] and w not in given:
                heapq.heappush(heap, (further, w))
    return distance


def finest_tick(instance: CollectiveInstance) -> int:
    """Greatest common divisor of all occupancies and transfer times, picoseconds."""
    durations: set[int] = set()
    for size in {part.chunk_size for part in instance.collective.parts}:
        durations |= set(instance.occupancy_ps(size).tolist())
        durations |= set(instance.transfer_ps(size).tolist())
    return reduce(gcd, durations, 0) or 1


def grid_problem(
    instance: CollectiveInstance, tick: int | None = None, *, round_up: bool = False
) -> GridProblem:
    """An instance in ticks; durations that are no multiple of `tick` are rounded.

    Parameters
    ----------
    tick : int, optional
        `finest_tick` by default, which rounds nothing.
    round_up : bool
        Whether to round durations up (schedules) or down (bounds). A tick longer than the shortest
        duration makes no sense when rounding down: nothing would take no time.
    """
    topology, collective = instance.topology, instance.collective
    tick = finest_tick(instance) if tick is None else tick
    sizes = sorted({part.chunk_size for part in collective.parts})

    def ticks(duration: NDArray[np.int64]) -> NDArray[np.int64]:
        return -(-duration // tick) if round_up else duration // tick

    chunks = []
    first = 0
    for part in collective.parts:
        group = part.npus.tolist()
        size = sizes.index(part.chunk_size)
        ends = zip(part.sources().tolist(), part.destinations().tolist())
        for local, (source, target) in enumerate(ends):
            ready = dict.fromkeys(group if source < 0 else [source], 0)
            targets = frozenset(group if target < 0 else [target])
            if len(group) > 1:
                chunks.append(Chunk(first + local, size, ready, targets, source < 0))
        first += part.num_chunks
    return GridProblem(
        tick,
        topology.src,
        topology.dst,
        topology.multicast,
        topology.reduces,
        topology.is_switch,
        np.stack([ticks(instance.occupancy_ps(size)) for size in sizes]),
        np.stack([ticks(instance.transfer_ps(size)) for size in sizes]),
        tuple(chunks),
    )
