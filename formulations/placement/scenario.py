"""A scenario: what is left to choose once replicas, micro-batch and layout are fixed.

Stages are numbered by *position* from the end: position 0 is the last stage, so that the
activations in flight (1F1B) do not depend on how many stages there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import NestoptError
from nestopt.formulations.placement.classes import TALLIES
from nestopt.formulations.placement.prices import Batch, price_grid
from nestopt.placement.model.orders import orders_of, role_offsets
from nestopt.placement.model.schedules import OneForwardOneBackward, PipelineSchedule
from nestopt.placement.model.words import Structure
from nestopt.placement.pricing.comm import PROFILE
from nestopt.placement.pricing.cost import FAMILIES

if TYPE_CHECKING:
    from nestopt.formulations.placement.config import Config, Family, GridChoice
    from nestopt.formulations.placement.data import PlacementData
    from nestopt.formulations.placement.tree import TreeGroup
    from nestopt.placement.model.grid import Grid
    from nestopt.placement.model.schedules import PipelineSchedule, Weights

_SLACK = 1 + 1e-9
_USUAL: PipelineSchedule = OneForwardOneBackward()
_MOST_COMBINATIONS = 200_000

__all__ = ["Placed", "Scenario", "ScenarioData", "quick_bound"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a scenario fixes.

    Attributes
    ----------
    replicas, microbatch : int
    layout : str
        Empty in the general space.
    stages : int
        0: any number.
    schedule : PipelineSchedule
    """

    replicas: int
    microbatch: int
    layout: str = ""
    stages: int = 0
    schedule: PipelineSchedule = _USUAL

    def label(self) -> str:
        """A short name."""
        parts = [f"d{self.replicas}b{self.microbatch}", str(self.layout)]
        parts += [f"s{self.stages}"] if self.stages else []
        parts += [self.schedule.name] if self.schedule != _USUAL else []
        parts += [f"v{self.schedule.chunks}"] if self.schedule.chunks > 1 else []
        return "-".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class Placed:
    """A place of the structured space: first and last + 1 place, window, cell of every role."""

    start: int
    end: int
    window: int
    devices: tuple[int, ...]


class ScenarioData:
    """A scenario's choices and prices.

    Parameters
    ----------
    dominated : bool
        Whether to keep configurations that another one beats in every respect: no best plan needs
        them, but a constraint of a user's own may.

    Attributes
    ----------
    positions : int
        The most stages.
    microbatches : int
        m.
    grids : tuple of GridChoice
    configs : tuple of Config
    limits : float array (type sets,)
        Bytes usable on every device of a type set.
    """

    def __init__(self, data: PlacementData, scenario: Scenario, *, dominated: bool = False) -> None:
        self.data, self.scenario = data, scenario
        space, workload = data.space, data.workload
        d, b = scenario.replicas, scenario.microbatch
        self.replicas, self.microbatch = d, b
        self.microbatches = workload.global_batch // (d * b)
        self.schedule = scenario.schedule
        share = len(data.alive) // d
        self.positions = scenario.stages or min(workload.num_operators, share)
        self.limits = np.array([min(t.usable for t in ts) for ts in data.type_sets])
        grids: list[GridChoice] = []
        configs: list[Config] = []
        for grid in space.grids(workload, share):
            if b % grid.sample_parts == 0:
                found = price_grid(
                    data,
                    grid,
                    Batch(b, d),
                    (self.held(0), self.held(max(0, self.positions - 1))),
                    (len(grids), len(configs)),
                    dominated=dominated,
                )
                if found:
                    grids.append(found[0].grid)
                    configs += found
        self.grids = tuple(grids)
        self.configs = tuple(configs)

    def check_size(self) -> None:
        """Refuse what would take longer to write down than anyone waits.

        Raises
        ------
        NestoptError
            If operators, stages and configurations have too many combinations.
        """
        operators = self.data.workload.num_operators
        combinations = operators * self.positions * len(self.configs)
        if combinations > _MOST_COMBINATIONS:
            raise NestoptError(
                f"{operators} operators, {self.positions} stages and {len(self.configs)} "
                "configurations are too many for an exact model; the method dp has no such limit"
            )

    def held(self, position: int) -> float:
        """Micro-batches in flight at a position."""
        return self.schedule.in_flight(self.microbatches, position + 1, self.positions)

    @cached_property
    def weights(self) -> Weights:
        """Weights of the sum of stage times, the largest, and the largest synchronisation."""
        return self.schedule.weights(self.data.objective, self.microbatches)

    @cached_property
    def floors(self) -> tuple[float, float]:
        """Lower bounds on the sum of the stage times and on the largest one, seconds.

        Every operator costs at least its cheapest choice; no operator is split over stages; and
        stage time times devices, summed, is at least each operator's cheapest device time.
        """
        alive = len(self.data.alive)
        count = self.data.workload.num_operators
        least, area = np.full(count, np.inf), np.full(count, np.inf)
        for config in self.configs:
            price = np.where(config.allowed, config.compute, np.inf)
            least = np.minimum(least, price)
            area = np.minimum(area, price * config.grid.roles)
        total = float(least.sum())
        return total, max(float(least.max()), float(area.sum()) / alive, total / self.positions)

    @cached_property
    def bound(self) -> float:
        """A valid lower bound on the scenario's objective; inf if an operator suits no choice."""
        if self.positions == 0 or not self.configs:
            return float("inf")
        total, largest = self.floors
        if math.isinf(total):
            return math.inf
        return self.weights[0] * total + self.weights[1] * largest

    def longest(self, cutoff: float) -> float:
        """The longest stage of a plan that costs at most the cutoff, seconds."""
        total, largest, _ = self.weights
        longest = cutoff / (total + largest)
        if largest > 0:
            longest = min(longest, (cutoff - total * self.floors[0]) / largest)
        return max(longest, 0.0) * _SLACK

    def capacity(self, config: Config, kind: int, cutoff: float, extra: float = 0.0) -> int | None:
        """How many operators of a kind a stage of a configuration holds at most; None: all.

        `extra` are seconds that a class adds to each of them.
        """
        members = np.flatnonzero(self.data.kinds == kind)
        price = float(config.compute[members[0]]) + extra
        if not math.isfinite(cutoff) or price * len(members) <= self.longest(cutoff):
            return None
        return math.floor(self.longest(cutoff) / price)

    @cached_property
    def places(self) -> tuple[tuple[Placed, ...], ...]:
        """By grid, the places of the structured space; none in the general space."""
        alive, d = self.data.alive, self.replicas
        found = []
        for choice in self.grids:
            w = choice.grid.width
            rows = []
            if self.scenario.layout == "inner":
                for offsets in self._orders(choice.grid, 0):
                    for start in range(len(alive) - d * w + 1):
                        devices = tuple(alive[start + k] for k in offsets)
                        rows.append(Placed(start, start + d * w, 0, devices))
            if self.scenario.layout == "outer":
                for n in range(1, len(alive) // d + 1):
                    for offsets in self._orders(choice.grid, n):
                        for start in range(n - w + 1):
                            devices = tuple(alive[start + k] for k in offsets)
                            rows.append(Placed(start, start + w, n, devices))
            found.append(tuple(rows))
        return tuple(found)

    def _orders(self, grid: Grid, window: int) -> list[tuple[int, ...]]:
        """Offsets of the roles from a stage's first place, in each order of its axes."""
        free = self.data.space.structure is Structure.STRUCTURED
        return [
            tuple(role_offsets(order, grid, self.replicas, window).ravel().tolist())
            for order in orders_of(grid, self.replicas, windows=window > 0, free=free)
        ]

    @cached_property
    def boundary_classes(self) -> tuple[tuple[int, float, float], ...]:
        """Classes (level, alpha, beta) of a boundary: every combination that can occur."""
        groups = self.data.groups
        widths = sorted({c.grid.width for c in self.grids})
        classes = []
        for level in range(len(self.data.cluster.levels)):
            below = [g for g in groups if g.level <= level]
            alpha = {g.latency for g in below}
            beta = {g.port_inverse / w for g in below for w in widths}
            for g in below:
                if g.level < level:
                    beta |= {
                        k / w * g.uplink_inverse
                        for w in widths
                        for k in range(1, min(self.replicas * w, g.size) + 1)
                    }
            # whatever the place, one group of each level up to this is used
            by_level = [[g for g in below if g.level == x] for x in range(level + 1)]
            least_alpha = max(min(g.latency for g in row) for row in by_level)
            least_beta = max(min(g.port_inverse for g in row) for row in by_level) / widths[-1]
            classes += [
                (level, a, z)
                for a in sorted(alpha)
                if a >= least_alpha
                for z in sorted(beta)
                if z >= least_beta
            ]
        return tuple(classes)

    def watched(self, family: Family) -> tuple[TreeGroup, ...]:
        """The groups of the tree in which the members of a family have to be counted."""
        found = []
        for group in self.data.groups:
            parent = self.data.parent(group)
            counts = range(1, min(family.size, group.size) + 1)
            if parent is not None and (
                not all(c.allows_count(group, parent, v) for c in family.classes for v in counts)
                or any(self.tallied(family, group, what) for what in TALLIES)
            ):
                found.append(group)
        return tuple(found)

    def tallied(self, family: Family, group: TreeGroup, what: str) -> tuple[int, ...]:
        """By class, the bound on a sum over crossing family groups; () if nothing is bounded."""
        size = family.size
        largest = max(TALLIES[what](v, size) for v in range(1, size + 1))
        most = len(family.groups) * largest
        bounds = tuple(int(min(c.most(group, what), most)) for c in family.classes)
        return bounds if any(b < most for b in bounds) else ()

    def compatible(self, one: Family, a: int, other: Family, b: int) -> bool:
        """Whether a class of one family can go with a class of another that crosses it.

        Groups of the two families meet in one device at most. At a level where no group of the
        first family reaches beyond a group of the tree, k of them inside that meet the same groups
        of the other family bring k members of each; what its class allows of that has to suffice.
        """
        first, second = one.classes[a], other.classes[b]
        count = one.size
        for level in range(first.span, len(self.data.cluster.levels)):
            devices = 0
            for group in self.data.groups:
                if group.level == level:
                    parent = self.data.parent(group)
                    most = min(group.size // count, second.size)
                    devices += count * max(
                        (
                            k
                            for k in range(1, most + 1)
                            if second.allows_group(group)
                            and second.allows_count(group, parent, k)
                            and (
                                k == second.size
                                or all(
                                    count * tally(k, second.size) <= second.most(group, what)
                                    for what, tally in TALLIES.items()
                                )
                            )
                        ),
                        default=0,
                    )
            if devices < count * second.size:
                return False
        return True

    def boundary_room(self, choice: GridChoice, group: TreeGroup) -> tuple[int, ...]:
        """By boundary class, how many devices a stage next to it may have in a tree group."""
        w, most = choice.grid.width, min(choice.roles, group.size)
        rooms = []
        for level, alpha, beta in self.boundary_classes:
            room = float(most)
            if group.level <= level:
                slow = group.port_inverse / w > beta * _SLACK
                room = 0.0 if slow or group.latency > alpha * _SLACK else room
            if group.level < level and group.uplink_inverse > 0:
                room = min(room, math.floor(beta * w / group.uplink_inverse * _SLACK))
            rooms.append(int(room))
        return tuple(rooms)

    @cached_property
    def always_fits(self) -> bool:
        """Whether no stage can need more memory than every device has."""
        held = self.held(max(0, self.positions - 1))
        room = float(self.limits.min())
        return all(c.largest_need(held, self.data.largest_cut) <= room for c in self.configs)

    @property
    def widest(self) -> int:
        """Devices a replica of the widest grid."""
        return max(g.grid.width for g in self.grids)

    @cached_property
    def members_of_kind(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Every kind with its operators."""
        kinds = self.data.kinds.tolist()
        return tuple(
            (k, tuple(o for o, x in enumerate(kinds) if x == k)) for k in sorted(set(kinds))
        )

    def rank_order(self, choice: GridChoice, *, replicas: bool) -> list[tuple[int, int]]:
        """Pairs of roles whose ranks (or replicas) may be swapped: one order is enough."""
        x, y, z, c, e = choice.grid
        t = choice.grid.t
        pairs = []
        for count, step in ((x, 1), (y, x), (z, x * y), (c, t), (e, t * c)):
            pairs += [(k * step, (k + 1) * step) for k in range(count - 1)]
        if replicas:
            w = choice.grid.width
            pairs += [(r * w, (r + 1) * w) for r in range(self.replicas - 1)]
        return pairs


def quick_bound(data: PlacementData, scenario: Scenario) -> float:
    """A lower bound on a scenario that needs no class of any family: communication is free."""
    d, b = scenario.replicas, scenario.microbatch
    share = len(data.alive) // d
    positions = scenario.stages or min(data.workload.num_operators, share)
    least = np.full(len(data.costs.kinds), np.inf)
    area = least.copy()
    nowhere = np.zeros((len(FAMILIES), PROFILE))
    s = data.space
    for grid in s.grids(data.workload, share):
        if b % grid.sample_parts:
            continue
        modes = data.costs.modes(grid, s.zero[:1], s.recompute[:1], s.sequence)
        for types in data.type_sets:
            if len(types) == 1:
                rates = data.costs.rates(grid, modes, b, d, nowhere, types).min(axis=1)
                rates = np.where(data.costs.allowed(grid), rates, np.inf)
                least = np.minimum(least, rates)
                area = np.minimum(area, rates * d * grid.width)
    if positions == 0 or not np.isfinite(least).all():
        return float("inf")
    total = float(least[data.kinds].sum())
    largest = max(
        float(least.max()), float(area[data.kinds].sum()) / len(data.alive), total / positions
    )
    weights = scenario.schedule.weights(data.objective, data.workload.global_batch // (d * b))
    return weights.total * total + weights.largest * largest
