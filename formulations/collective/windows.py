"""When the variables of the exact models can be true, and which of them belong together.

Sets and parameters of the models on a time grid:

| symbol | code | meaning | unit |
| --- | --- | --- | --- |
| c | `problem.chunks` | chunks; sums are those that are added up on the way | |
| pre, post | `ready`, `targets` | nodes that hold (contribute to) a chunk; that must hold it | |
| v, e | `num_nodes`, `num_links` | nodes; links from src(e) to dst(e) | |
| t, H | `horizon` | ticks 0 to H; H is the makespan that is asked for | ticks |
| o, d | `occupancy`, `transfer` | how long a send occupies its link; until it arrives | ticks |
| Sigma | `symmetries` | pairs ((c, v), (c', v')) of places that a symmetry maps | |

Variables (each only at the ticks where it can be true; binary, in the MILP `hold` and `done`
continuous):

| name | meaning |
| --- | --- |
| `send[c, e, t]` | a copy of chunk c (of a sum: of the whole) starts on link e at tick t |
| `part[c, e, t]` | what src(e) has of sum c starts to move over e at tick t |
| `whole[c, v, t]` | sum c becomes whole at node v at tick t |
| `hold[c, v, t]` | node v holds chunk c (the whole sum) at tick t |
| `done[c, v, t]` | by tick t node v has passed on what it had of sum c, or has it whole |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.formulations.collective.grid import FAR, Chunk, GridProblem, distances

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Windows"]


class Windows:
    """At which ticks the variables of an exact model can be true, within a horizon.

    A copy of a chunk can start on a link only once the chunk can be at its source and only while
    there is time to reach a target afterwards; the other variables accordingly. Both exact models
    create their variables, and find the ones that belong together, here.
    """

    def __init__(self, problem: GridProblem, horizon: int) -> None:
        self.problem, self.horizon = problem, horizon
        self.out_of, self.into = problem.out_of(), problem.into()
        self.sums = [i for i, chunk in enumerate(problem.chunks) if chunk.is_sum]
        self._first = [self._first_whole(chunk) for chunk in problem.chunks]
        self._send_range = [self._sends_of(i) for i in range(len(problem.chunks))]
        self._part_range = {i: self._parts_of(i) for i in self.sums}
        self._root_set = {i: frozenset(self._roots(i)) for i in self.sums}
        self._adders = np.flatnonzero(problem.reduces).tolist()

    def transfer(self, c: int, e: int) -> int:
        """Ticks from the start of a send of chunk c on link e to its arrival."""
        return int(self.problem.transfer[self.problem.chunks[c].size, e])

    def _first_whole(self, chunk: Chunk) -> list[int]:
        if not chunk.is_sum:
            return self.problem.earliest(chunk)
        length = self.problem.transfer[chunk.size]
        ways = [
            distances(self.out_of, self.problem.dst, length, [start])
            for start in chunk.ready.items()
        ]
        return [max(times) for times in zip(*ways)]

    def _starts(self, c: int, e: int, first: int, remaining: int) -> list[int]:
        size = self.problem.chunks[c].size
        last = self.horizon - self.transfer(c, e) - remaining
        ticks = range(first, last + 1)
        if e in self.problem.busy:
            return [t for t in ticks if self.problem.free(e, t, size)]
        return list(ticks)

    def _sends_of(self, c: int) -> dict[int, list[int]]:
        problem, chunk = self.problem, self.problem.chunks[c]
        if chunk.is_sum and len(chunk.targets) == 1:
            return {}
        remaining = problem.remaining(chunk)
        found = {}
        for e, (u, w) in enumerate(zip(problem.src.tolist(), problem.dst.tolist())):
            if w in chunk.ready and not chunk.is_sum:
                continue
            if self._first[c][u] < FAR and remaining[w] < FAR:
                starts = self._starts(c, e, self._first[c][u], remaining[w])
                if starts:
                    found[e] = starts
        return found

    def _parts_of(self, c: int) -> dict[int, list[int]]:
        problem, chunk = self.problem, self.problem.chunks[c]
        length = problem.transfer[chunk.size]
        first = problem.earliest(chunk)
        ways = [distances(self.into, problem.src, length, [(v, 0)]) for v in chunk.targets]
        remaining = [max(times) for times in zip(*ways)]
        found = {}
        for e, (u, w) in enumerate(zip(problem.src.tolist(), problem.dst.tolist())):
            if chunk.targets == {u}:
                continue
            if first[u] < FAR and remaining[w] < FAR:
                starts = self._starts(c, e, first[u], remaining[w])
                if starts:
                    found[e] = starts
        return found

    # --- keys of variables -----------------------------------------------------------------------

    def sends(self) -> Iterator[tuple[int, int, int]]:
        """(chunk, link, tick) at which a copy can start."""
        for c, ranges in enumerate(self._send_range):
            for e, starts in ranges.items():
                for t in starts:
                    yield c, e, t

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """(sum, link, tick) at which a part can start to move."""
        for c, ranges in self._part_range.items():
            for e, starts in ranges.items():
                for t in starts:
                    yield c, e, t

    def _roots(self, c: int) -> list[int]:
        problem, chunk = self.problem, self.problem.chunks[c]
        if len(chunk.targets) == 1:
            return list(chunk.targets)
        able = problem.reduces & problem.multicast
        return [v for v in np.flatnonzero(able).tolist() if self._first[c][v] <= self.horizon]

    def wholes(self) -> Iterator[tuple[int, int, int]]:
        """(sum, node, tick) at which the sum can become whole."""
        for c in self.sums:
            yield from self.wholes_of(c)

    def wholes_of(
        self, c: int, v: int | None = None, t: int | None = None
    ) -> Iterator[tuple[int, int, int]]:
        """`wholes` of one sum (at one node, at one tick)."""
        roots = self._root_set.get(c)
        if not roots:
            return
        for node in sorted(roots) if v is None else [v]:
            if node not in roots:
                continue
            ticks = range(self._first[c][node], self.horizon + 1)
            if t is None:
                yield from ((c, node, tick) for tick in ticks)
            elif t in ticks:
                yield c, node, t

    def holds(self) -> Iterator[tuple[int, int, int]]:
        """(chunk, node, tick) at which it is open whether the node holds the chunk."""
        for c, chunk in enumerate(self.problem.chunks):
            for v in range(self.problem.num_nodes):
                if not self.problem.multicast[v] or (v in chunk.ready and not chunk.is_sum):
                    continue
                for t in range(self._first[c][v], self.horizon + 1):
                    yield c, v, t

    def dones(self) -> Iterator[tuple[int, int, int]]:
        """(sum, node, tick) at which it is open whether the node is done with the sum."""
        for c in self.sums:
            for v in self.adders(c):
                for t in range(self.horizon + 1):
                    yield c, v, t

    # --- what belongs together -------------------------------------------------------------------

    def holds_initially(self, c: int, v: int, t: int) -> bool:
        """Whether node v holds chunk c at tick t from the beginning."""
        chunk = self.problem.chunks[c]
        return not chunk.is_sum and chunk.ready.get(v, FAR) <= t

    def adders(self, c: int) -> list[int]:
        """Nodes that can add parts of a sum."""
        return self._adders

    def deliveries(self) -> Iterator[tuple[int, int]]:
        """(chunk, target) that is still to be served."""
        for c, chunk in enumerate(self.problem.chunks):
            for v in sorted(chunk.targets):
                if chunk.is_sum or v not in chunk.ready:
                    yield c, v

    def relays(self) -> Iterator[tuple[int, int]]:
        """(chunk, node) where the chunk may arrive but need not."""
        for c, chunk in enumerate(self.problem.chunks):
            for v in range(self.problem.num_nodes):
                if v in chunk.targets or not self.problem.multicast[v]:
                    continue
                if chunk.is_sum or v not in chunk.ready:
                    yield c, v

    def arrivals(self, c: int, v: int, t: int | None = None) -> Iterator[tuple[int, int, int]]:
        """Copies of chunk c that arrive at node v (at tick t)."""
        return self._over(self._send_range[c], self.into[v], c, t, arriving=True)

    def departures(self, c: int, v: int, t: int | None = None) -> Iterator[tuple[int, int, int]]:
        """Parts of the sum c that leave node v (at tick t)."""
        return self._over(self._part_range.get(c, {}), self.out_of[v], c, t, arriving=False)

    def _over(
        self,
        ranges: dict[int, list[int]],
        links: list[int],
        c: int,
        t: int | None,
        *,
        arriving: bool,
    ) -> Iterator[tuple[int, int, int]]:
        for e in links:
            starts = ranges.get(e)
            if starts is None:
                continue
            if t is None:
                yield from ((c, e, start) for start in starts)
                continue
            start = t - self.transfer(c, e) if arriving else t
            at = start - starts[0]
            if (0 <= at < len(starts) and starts[at] == start) or (
                e in self.problem.busy and start in starts
            ):
                yield c, e, start

    def conflicts(self) -> Iterator[list[tuple[bool, int, int, int]]]:
        """Sets of (is part, chunk, link, tick) of which at most one can be true."""
        by_link: dict[int, list[tuple[bool, int, list[int]]]] = {}
        for c, ranges in enumerate(self._send_range):
            for e, starts in ranges.items():
                by_link.setdefault(e, []).append((False, c, starts))
        for c, ranges in self._part_range.items():
            for e, starts in ranges.items():
                by_link.setdefault(e, []).append((True, c, starts))
        for e, rows in by_link.items():
            covering: dict[int, list[tuple[bool, int, int, int]]] = {}
            for partial, c, starts in rows:
                length = int(self.problem.occupancy[self.problem.chunks[c].size, e])
                for start in starts:
                    for t in range(start, start + length):
                        covering.setdefault(t, []).append((partial, c, e, start))
            previous: set[tuple[bool, int, int, int]] = set()
            for t in sorted(covering):
                clique = covering[t]
                following = set(covering.get(t + 1, ()))
                # a set within its neighbour's says nothing new
                if (
                    len(clique) > 1
                    and not previous.issuperset(clique)
                    and not (following.issuperset(clique) and len(following) > len(clique))
                ):
                    yield clique
                previous = set(clique)

    def ports(self) -> Iterator[tuple[list[tuple[int, int, int]], int]]:
        """For each node, the places that are filled by arrivals alone, and how many can come.

        The keys are those of ``hold`` at the end for the chunks that a node does not hold from the
        beginning; how many can arrive by then follows from its links, one send after another. Only
        where more chunks are wanted than can come is there anything to say sooner than the links'
        own constraints say it, but it is stated for every node.
        """
        problem = self.problem
        shortest = problem.occupancy.min(axis=0), problem.transfer.min(axis=0)
        copies = [c for c, chunk in enumerate(problem.chunks) if not chunk.is_sum]
        earliest: dict[int, int] = {}
        for c in copies:
            for e, starts in self._send_range[c].items():
                earliest[e] = min(earliest.get(e, FAR), starts[0])
        for v in np.flatnonzero(problem.multicast).tolist():
            wanted = [c for c in copies if v not in problem.chunks[c].ready]
            keys = [(c, v, self.horizon) for c in wanted if self._first[c][v] <= self.horizon]
            room = 0
            for e in self.into[v]:
                spare = self.horizon - int(shortest[1][e]) - earliest.get(e, FAR)
                room += spare // int(shortest[0][e]) + 1 if spare >= 0 else 0
            if len(keys) > 1:
                yield keys, room

    def switch_balances(
        self, *, partial: bool
    ) -> Iterator[tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]]:
        """For a switch without the ability, what has left and what has arrived by each tick."""
        able = self.problem.reduces if partial else self.problem.multicast
        ranges = self._part_range if partial else dict(enumerate(self._send_range))
        for v in np.flatnonzero(~able).tolist():
            for c in ranges:
                leaving = list(self._over(ranges[c], self.out_of[v], c, None, arriving=False))
                arriving = list(self._over(ranges[c], self.into[v], c, None, arriving=True))
                for t in sorted({key[2] for key in leaving}):
                    left = [key for key in leaving if key[2] <= t]
                    come = [k for k in arriving if k[2] + self.transfer(c, k[1]) <= t]
                    yield left, come

    def switch_totals(
        self,
    ) -> Iterator[tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]]:
        """For a switch that cannot add, all parts that leave and all that arrive."""
        for v in np.flatnonzero(~self.problem.reduces).tolist():
            for c, ranges in self._part_range.items():
                leaving = list(self._over(ranges, self.out_of[v], c, None, arriving=False))
                arriving = list(self._over(ranges, self.into[v], c, None, arriving=True))
                if leaving or arriving:
                    yield leaving, arriving
