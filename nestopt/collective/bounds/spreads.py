"""The spread bound: what enters a block late must still reach every member of the block.

Take a block S of nodes with m members of the group (a server, say), and D chunks that all of them
need from outside. The links into S bring so many of them before a moment t; every other chunk comes
to S at t or later, and all m members must then still receive it: over a link into S, or over a link
inside S that could not start before t. So T is at least the moment by which these links can have
brought m times as many messages as chunks are late.

An All-Reduce has a beginning, too. Let B be another block, and call a chunk early if the
contributions of all members of B have left B by sends that started before a moment s. Every member
sends something for every early chunk, so that at most x chunks are early. Of the others, something
comes to S only w later, with w the least time from B to S. So D - x chunks come over links into S
that are of no use before s + w. The chunk "comes" with the last contribution from outside, after
which every member must receive something more.

Time reversed, the bound holds for Reduce-Scatter and Reduce.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._kernels import FAR, earliest_time, shortest
from nestopt.collective.bounds.partitions import partitions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nestopt.collective.bounds._model import Network
    from nestopt.collective.model.collective import Part

__all__ = ["spread_bound"]

_SPREADS = ("all-gather", "broadcast", "all-reduce")
_MOST_LINKS = 50_000
_MOST_BLOCKS = 4
_MOST_MOMENTS = 48
_MOST_EARLY = 32
_SECONDS_A_LINK = 5e-7
_SECONDS_A_MOMENT = 3e-6


@dataclass(frozen=True, slots=True)
class _Links:
    """When links can bring their first message, and one more every so long; int64 each."""

    first: NDArray[np.int64]
    occupancy: NDArray[np.int64]

    def count(self, moment: int) -> int:
        """Messages that can have come by a moment."""
        came = self.first <= moment
        return int(((moment - self.first[came]) // self.occupancy[came] + 1).sum())

    def not_before(self, moment: int) -> _Links:
        """The same links, of no use before a moment."""
        return _Links(np.maximum(self.first, moment), self.occupancy)

    def time_of(self, need: int) -> int:
        """The least moment by which so many messages can have come."""
        return earliest_time(self.first, self.occupancy, need) if len(self.first) else FAR

    def moments(self, need: int) -> list[int]:
        """Moments at which messages up to the `need`-th come, a choice of them."""
        end = self.time_of(need)
        found: set[int] = set()
        for first, step in set(zip(self.first.tolist(), self.occupancy.tolist())):
            if first <= end:
                last = first + min((end - first) // step, need) * step
                found.update(range(first, last + 1, step)[-_MOST_MOMENTS:])
        chosen = sorted(found)
        if len(chosen) > _MOST_MOMENTS:
            places = np.linspace(0, len(chosen) - 1, _MOST_MOMENTS).astype(int)
            chosen = [chosen[i] for i in places]
        return chosen


@dataclass(frozen=True, slots=True)
class _Block:
    """A block as the bound sees it.

    Attributes
    ----------
    into : _Links
        Over the links into the block.
    direct : bool[...]
        Which of those end at a member.
    inner : _Links
        Over the links inside it that end at a member, counted from a chunk's coming to the block.
    members : int
    """

    into: _Links
    direct: NDArray[np.bool_]
    inner: _Links
    members: int

    def received(self, moment: int) -> _Links:
        """How members receive what comes to the block at a moment or later."""
        direct = _Links(self.into.first[self.direct], self.into.occupancy[self.direct])
        late = direct.not_before(moment)
        return _Links(
            np.concatenate([late.first, self.inner.first + moment]),
            np.concatenate([late.occupancy, self.inner.occupancy]),
        )


def spread_bound(net: Network, budget: Budget | None = None) -> dict[str, Any] | None:
    """The best over blocks of the partitions that `partition_bound` tries."""
    budget, topology = budget or Budget(), net.topology
    best: dict[str, Any] | None = None
    if topology.num_links > _MOST_LINKS:
        return None
    for index, part in enumerate(net.instance.collective.parts):
        if part not in net.parts or part.pattern not in _SPREADS:
            continue
        for labels in partitions(net):
            if int(labels.max()) + 1 >= len(topology.npus):
                continue
            for row in _of_partition(net, part, labels, budget):
                if best is None or row["value"] > best["value"]:
                    best = row | {"kind": "spread", "part": index}
            if budget.used_up():
                return best
    return best


def _of_partition(
    net: Network, part: Part, labels: NDArray[np.int64], budget: Budget
) -> Iterator[dict[str, Any]]:
    blocks = int(labels.max()) + 1
    held = np.bincount(labels[part.npus], minlength=blocks)
    order = np.argsort(-held, kind="stable")[:_MOST_BLOCKS]
    for b in order.tolist():
        if budget.used_up() or held[b] < 1 or held[b] == len(part.npus):
            continue
        budget.spend(_SECONDS_A_LINK * net.topology.num_links)
        inside = labels == b
        need = _need(part, inside)
        block = _block(net, part, inside)
        if block is None or need == 0:
            continue
        yield from _rows(block, need, 0, budget, {"inside": inside})
        if part.pattern != "all-reduce":
            continue
        for other in [o for o in order.tolist() if o != b and held[o]][:1]:
            yield from _with_beginning(net, part, (block, need), (inside, labels == other), budget)


def _with_beginning(
    net: Network,
    part: Part,
    entered: tuple[_Block, int],
    sides: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    budget: Budget,
) -> Iterator[dict[str, Any]]:
    """The bounds of an All-Reduce that know when contributions can have left another block."""
    (block, need), (inside, other) = entered, sides
    sent = _leaving(net, part, other)
    topology, transfer = net.topology, net.transfer(part.chunk_size)
    cut = np.flatnonzero(~inside[topology.src] & inside[topology.dst])
    away = net.distances_from(np.flatnonzero(other).astype(np.int32), transfer)
    way = int((np.minimum(away[topology.src[cut]], FAR // 2) + transfer[cut]).min())
    members = int(other[part.npus].sum())
    chosen = np.unique(np.linspace(0, need - 1, _MOST_EARLY).astype(int)).tolist()
    for early in range(need) if need <= _MOST_EARLY else chosen:
        left = sent.time_of((early + 1) * members)
        if budget.used_up() or left >= FAR // 4 or way >= FAR // 4:
            return
        late = _Block(block.into.not_before(left + way), block.direct, block.inner, block.members)
        about = {"inside": inside, "other": other, "early": early, "left": left, "need": need}
        yield from _rows(late, need - early, left + way, budget, about)


def _rows(
    block: _Block, need: int, begin: int, budget: Budget, about: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """The best over the moments from which chunks are counted as late."""
    best, at = -1, 0
    for moment in block.into.moments(need):
        budget.spend(_SECONDS_A_MOMENT)
        late = need - block.into.count(moment - 1)
        if late <= 0:
            continue
        value = block.received(moment).time_of(late * block.members)
        if best < value < FAR // 4:
            best, at = value, moment
    if best >= 0:
        yield {"need": need} | about | {"value": best, "moment": at}


def _need(part: Part, inside: NDArray[np.bool_]) -> int:
    """Chunks that every member of a block needs from outside."""
    outside = int((~inside[part.npus]).sum())
    if part.pattern == "all-reduce":
        return part.num_chunks if outside else 0
    if part.pattern == "broadcast":
        return part.chunks_per_npu * int(not inside[part.root])
    return part.chunks_per_npu * outside


def _block(net: Network, part: Part, inside: NDArray[np.bool_]) -> _Block | None:
    topology = net.topology
    occupancy, transfer = net.occupancy(part.chunk_size), net.transfer(part.chunk_size)
    member = np.zeros(topology.num_nodes, dtype=np.bool_)
    member[part.npus] = inside[part.npus]
    origins = net.origins(part)
    head = net.distances_from(origins[~inside[origins]], transfer)
    cut = np.flatnonzero(~inside[topology.src] & inside[topology.dst])
    cut = cut[head[topology.src[cut]] < FAR // 4]
    if len(cut) == 0:
        return None
    # ways inside the block only, from where the links into it end
    way = _ways(inside, (topology.src, topology.dst), transfer, topology.dst[cut])
    inner = np.flatnonzero(inside[topology.src] & member[topology.dst])
    inner = inner[way[topology.src[inner]] < FAR // 4]
    return _Block(
        _Links(head[topology.src[cut]] + transfer[cut], occupancy[cut]),
        member[topology.dst[cut]],
        _Links(way[topology.src[inner]] + transfer[inner], occupancy[inner]),
        int(member.sum()),
    )


def _leaving(net: Network, part: Part, inside: NDArray[np.bool_]) -> _Links:
    """By when a member's sends can have left a block: starts over a link out, or before one."""
    topology = net.topology
    occupancy, transfer = net.occupancy(part.chunk_size), net.transfer(part.chunk_size)
    member = np.zeros(topology.num_nodes, dtype=np.bool_)
    member[part.npus] = inside[part.npus]
    cut = np.flatnonzero(inside[topology.src] & ~inside[topology.dst])
    way = _ways(inside, (topology.dst, topology.src), transfer, topology.src[cut])
    inner = np.flatnonzero(member[topology.src] & inside[topology.dst])
    inner = inner[way[topology.dst[inner]] < FAR // 4]
    direct = cut[member[topology.src[cut]]]
    return _Links(
        np.concatenate(
            [np.zeros(len(direct), np.int64), transfer[inner] + way[topology.dst[inner]]]
        ),
        np.concatenate([occupancy[direct], occupancy[inner]]),
    )


def _ways(
    inside: NDArray[np.bool_],
    ends: tuple[NDArray[np.int32], NDArray[np.int32]],
    length: NDArray[np.int64],
    starts: NDArray[np.int32],
) -> NDArray[np.int64]:
    """Distance of every node from the nearest start, inside a block only, int64[V]."""
    kept = inside[ends[0]] & inside[ends[1]]
    tails, heads = ends[0][kept], ends[1][kept]
    ptr = np.zeros(len(inside) + 1, dtype=np.int64)
    np.cumsum(np.bincount(tails, minlength=len(inside)), out=ptr[1:])
    order = np.argsort(tails, kind="stable").astype(np.int32)
    return shortest(ptr, order, heads, length[kept], np.unique(starts).astype(np.int32))
