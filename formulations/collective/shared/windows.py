"""When which set of contributions can be where: what both models of copied sums share.

A message carries a set S of contributions to a chunk (a chunk that is no sum has one contribution).
What has *come* to a node are its own contribution and the sets of the messages that have arrived. A
node that adds can *form* a set S that has come, or the disjoint union of one that has come, which
holds the lowest contribution of S, and a smaller one that it can form. That order of the sets that
are added up is no restriction, and it keeps the models small. Nothing that came is ever lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nestopt.formulations.collective.grid import FAR, Chunk, GridProblem, distances

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MOST_MEMBERS", "SetWindows"]

MOST_MEMBERS = 9
Place = tuple[int, int, int]


class SetWindows:
    """Keys of the variables within a horizon; sets are bit masks over a chunk's sources.

    Attributes
    ----------
    members : list of tuple of int
        Of every chunk the nodes that hold a contribution, in order of their bits.
    sends : dict of (chunk, set, link) to range
        Ticks at which a message can start.
    forms : dict of (chunk, set, node) to int
        First tick from which it is open whether the node can form the set.
    """

    def __init__(self, problem: GridProblem, horizon: int) -> None:
        self.problem, self.horizon = problem, horizon
        self.out_of, self.into = problem.out_of(), problem.into()
        self.members = [
            tuple(sorted(chunk.ready)) if chunk.is_sum else () for chunk in problem.chunks
        ]
        self.first = [self._first(c, chunk) for c, chunk in enumerate(problem.chunks)]
        self.sends: dict[Place, range] = {}
        for c, chunk in enumerate(problem.chunks):
            self._add_sends(c, chunk)
        self.arriving: dict[Place, list[int]] = {}
        for c, mask, e in self.sends:
            self.arriving.setdefault((c, mask, int(problem.dst[e])), []).append(e)
        self.forms: dict[Place, int] = {}
        for c, v in self.deliveries():
            self._need(c, self.full(c), v)
        for c, mask, e in self.sends:
            u = int(problem.src[e])
            if problem.multicast[u]:
                self._need(c, mask, u)

    def full(self, c: int) -> int:
        """The whole of a chunk."""
        return (1 << max(1, len(self.members[c]))) - 1

    def own(self, c: int, v: int) -> int:
        """What a node has of a chunk from the beginning, 0 for nothing."""
        chunk = self.problem.chunks[c]
        if not chunk.is_sum:
            return int(v in chunk.ready)
        return 1 << self.members[c].index(v) if v in chunk.ready else 0

    def transfer(self, c: int, e: int) -> int:
        """Ticks from the start of a message of chunk c on link e to its arrival."""
        return int(self.problem.transfer[self.problem.chunks[c].size, e])

    def _first(self, c: int, chunk: Chunk) -> list[list[int]]:
        """Distance of every node from every contribution, ticks."""
        length = self.problem.transfer[chunk.size]
        if not chunk.is_sum:
            return [self.problem.earliest(chunk)]
        return [
            distances(self.out_of, self.problem.dst, length, [(v, chunk.ready[v])])
            for v in self.members[c]
        ]

    def earliest(self, c: int, mask: int, v: int) -> int:
        """First tick at which all of a set can be at a node."""
        return max(row[v] for i, row in enumerate(self.first[c]) if mask >> i & 1)

    def _add_sends(self, c: int, chunk: Chunk) -> None:
        remaining = self.problem.remaining(chunk)
        for e, (u, w) in enumerate(zip(self.problem.src.tolist(), self.problem.dst.tolist())):
            if remaining[w] >= FAR or (not chunk.is_sum and w in chunk.ready):
                continue
            last = self.horizon - self.transfer(c, e) - remaining[w]
            for mask in range(1, self.full(c) + 1):
                first = self.earliest(c, mask, u)
                # what a node has from the beginning need not come to it
                if first <= last and mask != self.own(c, w):
                    self.sends[c, mask, e] = range(first, last + 1)

    def _need(self, c: int, mask: int, v: int) -> None:
        stack = [mask]
        while stack:
            mask = stack.pop()
            if (c, mask, v) in self.forms or mask == self.own(c, v):
                continue
            first = self.earliest(c, mask, v)
            if first > self.horizon:
                continue
            self.forms[c, mask, v] = first
            stack += [rest for _, rest in self.splits(c, mask, v)]

    def can_come(self, c: int, mask: int, v: int) -> bool:
        """Whether a set can come to a node in one message, or is there from the beginning."""
        return (c, mask, v) in self.arriving or mask == self.own(c, v)

    def splits(self, c: int, mask: int, v: int) -> Iterator[tuple[int, int]]:
        """Ways to form a set: one that has come, with the lowest contribution, and the rest."""
        if not self.problem.reduces[v]:
            return
        low = mask & -mask
        others = mask ^ low
        part = others
        while part:
            # every part of the others but the whole, and none of them last
            part = (part - 1) & others
            if self.can_come(c, low | part, v):
                yield low | part, others ^ part
            if not part:
                return

    def arrivals(self, c: int, mask: int, v: int, tick: int) -> Iterator[tuple[int, int, int, int]]:
        """Messages (chunk, set, link, start) of a set that arrive at a node at a tick."""
        for e in self.arriving.get((c, mask, v), ()):
            start = tick - self.transfer(c, e)
            if start in self.sends[c, mask, e]:
                yield c, mask, e, start

    def deliveries(self) -> Iterator[tuple[int, int]]:
        """(chunk, target) that is still to be served."""
        for c, chunk in enumerate(self.problem.chunks):
            for v in sorted(chunk.targets):
                if self.own(c, v) != self.full(c):
                    yield c, v

    def conflicts(self) -> Iterator[list[tuple[int, int, int, int]]]:
        """Sets of messages of which a link carries at most one."""
        by_link: dict[int, dict[int, list[tuple[int, int, int, int]]]] = {}
        for (c, mask, e), starts in self.sends.items():
            length = int(self.problem.occupancy[self.problem.chunks[c].size, e])
            covering = by_link.setdefault(e, {})
            for start in starts:
                for tick in range(start, start + length):
                    covering.setdefault(tick, []).append((c, mask, e, start))
        for covering in by_link.values():
            previous: set[tuple[int, int, int, int]] = set()
            for tick in sorted(covering):
                clique = set(covering[tick])
                following = set(covering.get(tick + 1, ()))
                if len(clique) > 1 and not clique <= previous and not clique < following:
                    yield sorted(clique)
                previous = clique

    def passed_on(self) -> Iterator[tuple[list[tuple[int, int, int, int]], ...]]:
        """At a switch that cannot copy: messages that have left by a tick, and that have come."""
        for v in range(self.problem.num_nodes):
            if self.problem.multicast[v]:
                continue
            leaving: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
            for e in self.out_of[v]:
                for (c, mask, link), starts in self.sends.items():
                    if link == e:
                        leaving.setdefault((c, mask), []).extend((c, mask, e, t) for t in starts)
            for (c, mask), messages in leaving.items():
                come = [
                    (c, mask, e, t)
                    for e in self.arriving.get((c, mask, v), ())
                    for t in self.sends[c, mask, e]
                ]
                for tick in sorted({key[3] for key in messages}):
                    yield (
                        [key for key in messages if key[3] <= tick],
                        [key for key in come if key[3] + self.transfer(c, key[2]) <= tick],
                    )

    def alike(self) -> Iterator[tuple[int, int]]:
        """Pairs of neighbouring chunks that may change places."""
        kinds: dict[tuple[object, ...], int] = {}
        for c, chunk in enumerate(self.problem.chunks):
            key = (chunk.size, tuple(sorted(chunk.ready.items())), chunk.targets, chunk.is_sum)
            if key in kinds:
                yield kinds[key], c
            kinds[key] = c

    def size(self) -> int:
        """About how many literals a model has."""
        ways = sum(
            (self.horizon - first + 1) * (1 + sum(1 for _ in self.splits(*key)))
            for key, first in self.forms.items()
        )
        return ways + sum(len(starts) for starts in self.sends.values())
