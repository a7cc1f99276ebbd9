"""Drafts: plans in the form that the search changes and prices them in.

A draft leaves the modes of its stages open; its price takes the best ones. Its parts are shared by
all drafts that have them, so that only what changed is priced again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.placement.pricing.cost import Blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.model.grid import Grid
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.schedules import PipelineSchedule
    from nestopt.placement.model.workload import Workload
    from nestopt.placement.pricing.cost import StageCosts

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Batch", "Draft", "Order", "Site", "order_of", "shuffled"]


class Batch(NamedTuple):
    """Replicas, samples of a micro-batch, and the schedule that runs them."""

    replicas: int
    microbatch: int
    schedule: PipelineSchedule


class Site:
    """The devices of a stage by role, and all of its price that does not depend on operators.

    Attributes
    ----------
    grid : Grid
    devices : int array (d, w)
    profile : float array (7, entries)
        Of the families, in the order of `FAMILIES`.
    kinds : tuple of int
        Device types present, ascending.
    side : float array (2, L)
        What the stage makes a boundary cost.
    low, high : int arrays (d,)
        First and last device of each replica.
    key : bytes
        Equal for sites that cost the same, boundaries apart.
    """

    __slots__ = ("devices", "grid", "high", "key", "kinds", "low", "profile", "side")

    def __init__(
        self, grid: Grid, devices: Ints, profile: Floats, kinds: tuple[int, ...], side: Floats
    ) -> None:
        self.grid, self.devices, self.profile = grid, devices, profile
        self.kinds, self.side = kinds, side
        self.low, self.high = devices.min(axis=1), devices.max(axis=1)
        self.key = profile.tobytes()


class Order:
    """The operators in an order whose every prefix is an ideal, with sums over prefixes.

    Attributes
    ----------
    operators : tuple of int
    counts : int array (n + 1, K)
        Operators of each kind among the first i.
    """

    def __init__(self, workload: Workload, costs: StageCosts, operators: Sequence[int]) -> None:
        self.operators = tuple(operators)
        count = len(self.operators)
        self.counts = np.zeros((count + 1, len(costs.kinds)), np.int64)
        for place, operator in enumerate(self.operators):
            self.counts[place + 1] = self.counts[place]
            self.counts[place + 1, costs.kind_of[operator]] += 1
        self._cuts = _cuts(workload, self.operators)
        self._keys: dict[tuple[int, int], bytes] = {}
        self._tied, self._params = (-1, -1), 0.0
        if workload.tied is not None:
            places = sorted(map(self.operators.index, (workload.tied.first, workload.tied.second)))
            self._tied, self._params = (places[0], places[1]), workload.tied.params

    def cut(self, end: int) -> float:
        """Bytes per sample that leave the first `end` operators."""
        return float(self._cuts[end])

    def block(self, begin: int, end: int) -> Blocks:
        """The operators from `begin` to `end` as a block to price."""
        first, last = self._tied
        both = first >= 0 and begin <= first and last < end
        return Blocks(
            (self.counts[end] - self.counts[begin])[None],
            self._cuts[begin : begin + 1],
            self._cuts[end : end + 1],
            np.array([self._params if both else 0.0]),
        )

    def key(self, begin: int, end: int) -> bytes:
        """Equal for blocks that are priced alike, in any order."""
        found = self._keys.get((begin, end))
        if found is None:
            block = self.block(begin, end)
            parts = (block.counts, block.cut_in, block.cut_out, block.shared)
            found = self._keys[begin, end] = b"".join(part.tobytes() for part in parts)
        return found


def _cuts(workload: Workload, operators: tuple[int, ...]) -> Floats:
    """The cut of every prefix, (n + 1,); exactly as `Workload.cut_bytes` adds it up."""
    place = {operator: index for index, operator in enumerate(operators)}
    readers: list[list[tuple[int, float]]] = [[] for _ in operators]
    for edge in workload.edges:
        readers[edge.source].append((place[edge.target], edge.bytes))
    cuts = np.zeros(len(operators) + 1)
    open_ones: list[int] = []
    for end in range(1, len(operators) + 1):
        open_ones.append(operators[end - 1])
        largest = {
            u: max((size for where, size in readers[u] if where >= end), default=-1.0)
            for u in open_ones
        }
        open_ones = [u for u in open_ones if largest[u] >= 0]
        cuts[end] = sum(largest[u] for u in sorted(open_ones))
    return cuts


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A plan but for the modes of its stages.

    Attributes
    ----------
    order : Order
    batch : Batch
    ends : tuple of int
        One behind the last place in `order` of every stage; the last is all of them.
    sites : tuple of Site
    """

    order: Order
    batch: Batch
    ends: tuple[int, ...]
    sites: tuple[Site, ...]

    @property
    def begins(self) -> tuple[int, ...]:
        """First place in `order` of every stage."""
        return (0, *self.ends[:-1])

    @property
    def used(self) -> int:
        """Devices that hold a role."""
        return sum(site.devices.size for site in self.sites)

    def line(self) -> Ints:
        """All devices, stage after stage, replica after replica."""
        return np.concatenate([site.devices.ravel() for site in self.sites])


def order_of(plan: Plan) -> list[int]:
    """The operators of a plan, stage after stage; every prefix is an ideal."""
    return [operator for stage in plan.stages for operator in sorted(stage.operators)]


def shuffled(
    workload: Workload, operators: Sequence[int], rng: np.random.Generator
) -> tuple[int, ...]:
    """Some operators in a random order in which each comes after those that it needs."""
    inside = set(operators)
    needs = {o: len(inside.intersection(workload.predecessors[o])) for o in operators}
    readers: dict[int, list[int]] = {o: [] for o in operators}
    for operator in operators:
        for before in workload.predecessors[operator]:
            if before in inside:
                readers[before].append(operator)
    ready = sorted(o for o, count in needs.items() if count == 0)
    out = []
    while ready:
        chosen = ready.pop(int(rng.integers(len(ready))))
        out.append(chosen)
        for reader in readers[chosen]:
            needs[reader] -= 1
            if needs[reader] == 0:
                ready.append(reader)
    return tuple(out)
