"""What moves as one: colours fused into units, the units' order, and their transfers.

The dynamic program and the exact models work on units. Units that add nothing to any load are set
aside first, which can shrink the lattice of ideals from millions to hundreds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nestopt.placement.partitioning.maxload.model import Stage

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from nestopt.placement.partitioning.maxload.model import MaxLoadProblem

__all__ = ["Aside", "Transfer", "Units", "make_units", "restore"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """Outputs of unit `home` that exactly the other units `users` take; `cost` seconds a time."""

    home: int
    users: tuple[int, ...]
    cost: float


@dataclass(frozen=True, slots=True)
class Aside:
    """Operators that cost nothing wherever they are, and what they have to stay with.

    They go to the earliest stage of the `anchors` (operator ids) if `earliest`, else to the
    latest; without anchors, anywhere.
    """

    operators: tuple[int, ...]
    earliest: bool
    anchors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Units:
    """Indivisible units 0..n-1 of a problem.

    Attributes
    ----------
    members : tuple of tuple of int
        Ids of each unit's operators.
    predecessors : tuple of tuple of int
        Units that must not come in a later stage.
    accelerator_time, cpu_time, memory : tuple of float
        Seconds, seconds and bytes of each unit.
    on_accelerator : tuple of bool
        Whether an accelerator can run every operator of the unit and has the memory for it.
    transfers : tuple of Transfer
        What cuts cost; none is free.
    aside : tuple of Aside
        In the order in which they were set aside; `restore` goes backwards.
    """

    members: tuple[tuple[int, ...], ...]
    predecessors: tuple[tuple[int, ...], ...]
    accelerator_time: tuple[float, ...]
    cpu_time: tuple[float, ...]
    memory: tuple[float, ...]
    on_accelerator: tuple[bool, ...]
    transfers: tuple[Transfer, ...]
    aside: tuple[Aside, ...]

    def __len__(self) -> int:
        return len(self.members)


def make_units(problem: MaxLoadProblem, *, set_aside: bool = True) -> Units:
    """The units of a problem.

    Operators of one colour are one unit. A unit with a forward operator takes its order from the
    forward edges. A unit of backward operators only is ordered as its artificial forward mates
    would be, whose edges mirror those of the backward operators. Units that would have to precede
    each other are fused.

    Parameters
    ----------
    problem : MaxLoadProblem
    set_aside : bool
        Leave out, or merge into their neighbour, units whose place cannot change the optimum.
    """
    colour: dict[int, Hashable] = {
        o.id: ("operator", o.id) if o.colour is None else o.colour for o in problem.operators
    }
    backward = {o.id: o.backward for o in problem.operators}
    ordered = {colour[i] for i in colour if not backward[i]}
    arcs: set[tuple[Hashable, Hashable]] = set()
    for u, v in problem.edges:
        first, second = colour[u], colour[v]
        if backward[u] and backward[v]:
            if first in ordered and second in ordered:
                continue
            first, second = second, first
        elif backward[u] or backward[v]:
            continue
        if first != second:
            arcs.add((first, second))
    component = _components(list(dict.fromkeys(colour.values())), arcs)
    draft = _Draft(problem, {i: component[c] for i, c in colour.items()})
    for first, second in arcs:
        draft.order(component[first], component[second])
    if set_aside:
        draft.set_aside()
    return draft.finish()


def restore(units: Units, stages: Iterable[tuple[str, Sequence[int]]]) -> tuple[Stage, ...]:
    """Stages of operators from stages of units; those set aside are put back.

    Parameters
    ----------
    units : Units
    stages : iterable of (str, sequence of int)
        Device kind and units of each stage, in pipeline order; empty stages are dropped.
    """
    kinds: list[str] = []
    contents: list[list[int]] = []
    for kind, chosen in stages:
        if chosen:
            kinds.append(kind)
            contents.append([i for unit in chosen for i in units.members[unit]])
    where = {i: s for s, content in enumerate(contents) for i in content}
    for entry in reversed(units.aside):
        places = [where[i] for i in entry.anchors]
        stage = (min if entry.earliest else max)(places, default=0)
        contents[stage].extend(entry.operators)
        where.update(dict.fromkeys(entry.operators, stage))
    return tuple(
        Stage("cpu" if kind == "cpu" else "accelerator", tuple(sorted(content)))
        for kind, content in zip(kinds, contents)
    )


def _components(
    vertices: list[Hashable], arcs: set[tuple[Hashable, Hashable]]
) -> dict[Hashable, int]:
    """The number of each vertex's strongly connected component."""
    import numpy as np
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    index = {v: i for i, v in enumerate(vertices)}
    pairs = np.array([(index[u], index[v]) for u, v in arcs], dtype=np.int32).reshape(-1, 2)
    graph = coo_array(
        (np.ones(len(pairs), dtype=np.int8), (pairs[:, 0], pairs[:, 1])),
        shape=(len(vertices), len(vertices)),
    )
    _, labels = connected_components(graph, directed=True, connection="strong")
    return {v: int(labels[i]) for v, i in index.items()}


class _Draft:
    """Units while they are merged; numbers of units have gaps until `finish`."""

    def __init__(self, problem: MaxLoadProblem, unit_of: dict[int, int]) -> None:
        self.problem = problem
        self.members: dict[int, list[int]] = {}
        self.accelerator_time: dict[int, float] = {}
        self.cpu_time: dict[int, float] = {}
        self.memory: dict[int, float] = {}
        self.supported: dict[int, bool] = {}
        self.aside: list[Aside] = []
        for o in problem.operators:
            unit = unit_of[o.id]
            self.members.setdefault(unit, []).append(o.id)
            self.accelerator_time[unit] = self.accelerator_time.get(unit, 0.0) + o.accelerator_time
            self.cpu_time[unit] = self.cpu_time.get(unit, 0.0) + o.cpu_time
            self.memory[unit] = self.memory.get(unit, 0.0) + o.memory
            self.supported[unit] = self.supported.get(unit, True) and o.on_accelerator
        self.before: dict[int, set[int]] = {unit: set() for unit in self.members}
        self.after: dict[int, set[int]] = {unit: set() for unit in self.members}
        users: dict[int, set[int]] = {}
        for u, v in problem.edges:
            if unit_of[u] != unit_of[v]:
                users.setdefault(u, set()).add(unit_of[v])
        cost = {o.id: o.output_time for o in problem.operators}
        # Outputs of one unit that go to the same units are cut together
        self.transfers: dict[tuple[int, frozenset[int]], float] = {}
        for u, taken in users.items():
            if cost[u] > 0:
                key = (unit_of[u], frozenset(taken))
                self.transfers[key] = self.transfers.get(key, 0.0) + cost[u]

    def order(self, first: int, second: int) -> None:
        """Say that `first` must not come after `second`."""
        if first != second:
            self.after[first].add(second)
            self.before[second].add(first)

    def set_aside(self) -> None:
        """Merge idle units that have one neighbour into it; leave out those that cost nothing.

        An idle unit computes nothing, on either kind of device. If all its edges lead to one other
        unit, joining that one cancels transfers and adds none. If none of its transfers costs
        anything and nothing comes before it (or nothing after), it can join whatever comes next
        to it. Both hold only while the memory that moves along is zero, or cannot be short.
        """
        roomy = sum(self.memory.values()) <= self.problem.accelerator_memory
        changed = True
        while changed:
            changed = False
            for unit in list(self.members):
                idle = self.accelerator_time[unit] == 0 == self.cpu_time[unit]
                still = self.memory[unit] == 0 or roomy
                if not (idle and still and self.supported[unit]) or len(self.members) == 1:
                    continue
                paid = self._partners(unit)
                neighbours = self.before[unit] | self.after[unit] | paid
                if len(neighbours) == 1:
                    self._merge(unit, neighbours.pop())
                elif not paid and (not self.before[unit] or not self.after[unit]):
                    self._leave_out(unit)
                else:
                    continue
                changed = True

    def _partners(self, unit: int) -> set[int]:
        """Units with which this one has a transfer that costs something."""
        found: set[int] = set()
        for home, users in self.transfers:
            if home == unit:
                found |= users
            elif unit in users:
                found.add(home)
        return found

    def _merge(self, unit: int, into: int) -> None:
        self.members[into] += self.members[unit]
        self.memory[into] += self.memory[unit]
        merged: dict[tuple[int, frozenset[int]], float] = {}
        for (home, users), cost in self.transfers.items():
            # All of this unit's transfers are with `into`, so none is left of its own
            rest = users - {unit}
            if home != unit and rest:
                merged[home, rest] = merged.get((home, rest), 0.0) + cost
        self.transfers = merged
        self._forget(unit)

    def _leave_out(self, unit: int) -> None:
        earliest = not self.before[unit]
        beside = self.after[unit] if earliest else self.before[unit]
        anchors = tuple(sorted(self.members[other][0] for other in beside))
        self.aside.append(Aside(tuple(self.members[unit]), earliest, anchors))
        self._forget(unit)

    def _forget(self, unit: int) -> None:
        for other in self.before.pop(unit):
            self.after[other].discard(unit)
        for other in self.after.pop(unit):
            self.before[other].discard(unit)
        for table in (self.members, self.accelerator_time, self.cpu_time, self.memory):
            del table[unit]
        del self.supported[unit]

    def finish(self) -> Units:
        kept = sorted(self.members, key=lambda unit: min(self.members[unit]))
        number = {unit: i for i, unit in enumerate(kept)}
        limit = self.problem.accelerator_memory
        return Units(
            members=tuple(tuple(self.members[u]) for u in kept),
            predecessors=tuple(tuple(sorted(number[p] for p in self.before[u])) for u in kept),
            accelerator_time=tuple(self.accelerator_time[u] for u in kept),
            cpu_time=tuple(self.cpu_time[u] for u in kept),
            memory=tuple(self.memory[u] for u in kept),
            on_accelerator=tuple(self.supported[u] and self.memory[u] <= limit for u in kept),
            transfers=tuple(
                Transfer(number[home], tuple(sorted(number[x] for x in users)), cost)
                for (home, users), cost in sorted(
                    self.transfers.items(), key=lambda t: (number[t[0][0]], sorted(t[0][1]))
                )
            ),
            aside=tuple(self.aside),
        )
