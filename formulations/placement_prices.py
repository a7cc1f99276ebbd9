"""Choices of a stage and their prices, operator by operator.

Every price comes from the stage-cost module (`nestopt.placement.cost`, `nestopt.placement.comm`),
called with one operator or one family at a time, so that a model can add them up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from formulations.placement_classes import FamilyClass, family_classes
from nestopt.placement.comm import PROFILE, families_of
from nestopt.placement.cost import Blocks

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from formulations.placement_data import PlacementData
    from nestopt.placement.cost import Grid, Mode

    Floats = NDArray[np.float64]

__all__ = [
    "DENSE",
    "SPARSE",
    "Config",
    "Family",
    "GridChoice",
    "Line",
    "TYPES",
    "price_grid",
]

Line = tuple[float, float]
"""Intercept and slope."""

TENSOR, DENSE, SPARSE, TYPES = 1, 5, 6, -1
_SLACK = 1e-12


@dataclass(frozen=True, eq=False)
class Family:
    """A family of a grid whose place matters.

    Attributes
    ----------
    index : int
        Position in `nestopt.placement.cost.FAMILIES`.
    groups : tuple of tuples of int
        Roles of every group.
    classes : tuple of FamilyClass
    """

    index: int
    groups: tuple[tuple[int, ...], ...]
    classes: tuple[FamilyClass, ...]

    @property
    def size(self) -> int:
        """Members of a group."""
        return len(self.groups[0])


@dataclass(frozen=True, eq=False)
class GridChoice:
    """Degrees that a stage may have. Its roles are 0..d w - 1: rank j of replica r is r w + j."""

    index: int
    grid: Grid
    roles: int
    families: tuple[Family, ...]


@dataclass(frozen=True, eq=False)
class Config:
    """A grid with a mode, and its prices.

    Attributes
    ----------
    compute : float array (operators,)
        Seconds of an operator on the fastest devices with the cheapest communication.
    excess : dict of int to float array (classes, operators)
        By family: seconds that a class adds to that; for ``TYPES``, that a type set adds.
    step : float array (type sets, operators)
        Seconds of the optimizer step.
    step_shared : float array (type sets,)
        Seconds of it that shared parameters save.
    sync : dict of int to tuple, one entry a class, of lines
        Families 3 and 4: the synchronisation of x parameters (all of the stage) takes the least
        of the lines at x, and nothing at x = 0.
    states, stored, working, gathered : float arrays (operators,)
        Bytes that add up over operators; the same for each micro-batch in flight; bytes of which
        the largest operator's count; a second kind of those.
    states_shared, buffers : float
        Bytes that shared parameters save; bytes per byte of the two cuts.
    allowed : bool array (operators,)
    """

    index: int
    grid: GridChoice
    mode: Mode
    compute: Floats
    excess: dict[int, Floats]
    step: Floats
    step_shared: Floats
    sync: dict[int, tuple[tuple[Line, ...], ...]]
    states: Floats
    stored: Floats
    working: Floats
    gathered: Floats
    states_shared: float
    buffers: float
    allowed: NDArray[np.bool_]

    def largest_need(self, held: float, largest_cut: float) -> float:
        """A bound on the bytes that any stage of this configuration needs on a device."""
        each = float((self.states + held * self.stored).sum())
        largest = float(self.working.max() + self.gathered.max())
        return each + largest + 2 * self.buffers * largest_cut


def price_grid(
    data: PlacementData,
    grid: Grid,
    microbatch: int,
    replicas: int,
    first_grid: int,
    first_config: int,
    held: float,
    most_held: float,
) -> list[Config]:
    """The configurations of a grid, those left out that others beat in every respect.

    Parameters
    ----------
    first_grid, first_config : int
        Numbers to give.
    held, most_held : float
        Fewest and most micro-batches in flight at any position.
    """
    settings = data.settings
    modes = data.costs.modes(grid, settings.zero, settings.recompute, settings.sequence)
    pricing = _Pricing(data, grid, microbatch, replicas)
    families = pricing.families()
    choice = GridChoice(first_grid, grid, replicas * grid.width, families)
    configs = [pricing.config(choice, mode) for mode in modes]
    limit = max(min(t.usable for t in ts) for ts in data.type_sets)
    kept: list[Config] = []
    room = min(t.usable for ts in data.type_sets for t in ts)
    ample = all(c.largest_need(most_held, data.largest_cut) <= room for c in configs)
    for config in configs:
        if any(_beats(data, other, config, ample) for other in kept):
            continue
        kept = [other for other in kept if not _beats(data, config, other, ample)]
        kept.append(config)
    found: list[Config] = []
    for config in kept:
        alone = config.states + held * config.stored + config.working + config.gathered
        allowed = config.allowed & (alone <= limit * (1 + _SLACK))
        if allowed.any():
            found.append(replace(config, index=first_config + len(found), allowed=allowed))
    return found


class _Pricing:
    """Prices of one grid."""

    def __init__(self, data: PlacementData, grid: Grid, microbatch: int, replicas: int) -> None:
        self.data, self.grid = data, grid
        self.microbatch, self.replicas = microbatch, replicas
        self.sizes = grid.family_sizes(replicas)
        self.nowhere = np.zeros((len(self.sizes), PROFILE))
        count = len(data.costs.kinds)
        none = np.zeros(count)
        self.single = Blocks(np.eye(count, dtype=np.int64), none, none, none)
        self.double = Blocks(2 * self.single.counts, none, none, none)
        one = np.ones(1)
        empty = np.zeros((1, count), dtype=np.int64)
        tied = data.workload.tied
        self.shared = Blocks(empty, 0 * one, 0 * one, (tied.params if tied else 0.0) * one)
        self.cut = Blocks(empty, one, 0 * one, 0 * one)
        self.totals = {DENSE: float(data.params.sum()), SPARSE: float(data.params_expert.sum())}

    def _rates(self, modes: Sequence[Mode], profiles: Floats, types: int) -> Floats:
        """Seconds of one operator of each kind: (kinds, modes)."""
        return self.data.costs.rates(
            self.grid, modes, self.microbatch, self.replicas, profiles, self.data.type_sets[types]
        )

    def _extra(self, modes: Sequence[Mode], family: int, profile: Floats) -> Floats:
        """Seconds that a family's communication takes: (kinds, modes)."""
        profiles = self.nowhere.copy()
        profiles[family] = profile
        return self._rates(modes, profiles, 0) - self._rates(modes, self.nowhere, 0)

    def families(self) -> tuple[Family, ...]:
        """The families that cost something, with their classes."""
        settings = self.data.settings
        roles = np.arange(self.replicas * self.grid.width, dtype=np.int64)
        groups = families_of(roles.reshape(self.replicas, -1), *self.grid)
        found = []
        for family, (n, rows) in enumerate(zip(self.sizes, groups, strict=True)):
            # prices of a family differ between modes only in these respects
            zero = settings.zero if family in self.totals else settings.zero[:1]
            modes = self.data.costs.modes(
                self.grid, zero, settings.recompute[:1], settings.sequence
            )
            signature = partial(self._signature, family, modes)
            if n == 1 or signature(np.zeros(PROFILE)) == signature(np.ones(PROFILE)):
                continue
            classes = family_classes(self.data, len(rows), n, signature)
            found.append(Family(family, tuple(tuple(map(int, g)) for g in rows), classes))
        return tuple(found)

    def _signature(self, family: int, modes: Sequence[Mode], profile: Floats) -> Hashable:
        """Everything that a family of a profile costs."""
        syncs = sorted({mode.zero for mode in modes})
        extra = self._extra(modes, family, profile)
        return extra.tobytes(), *(self.lines(family, zero, profile) for zero in syncs)

    def lines(self, family: int, zero: int, profile: Floats) -> tuple[Line, ...]:
        """Lines whose least is the synchronisation time of x > 0 parameters of the stage.

        The stage-cost module gives only the least time of all algorithms; here they are one by one
        (``MODEL.md``, section 2).
        """
        if family not in self.totals or zero == 3 or self.totals[family] == 0:
            return ()
        n = self.sizes[family]
        workload = self.data.workload
        share = 1 / self.grid.t if family == DENSE else 1 / (self.grid.t * self.grid.e)
        alpha, ring, direct, steps, rate = (float(x) for x in profile)
        gather = [((n - 1) * alpha, (n - 1) / n * ring), (alpha, direct)]
        if np.isfinite(steps):
            gather.append((steps, rate))
        gradient, weight = workload.bytes_gradient * share, workload.bytes_weight * share
        found: list[Line]
        if zero == 0:
            found = [(2 * a, 2 * s * gradient) for a, s in gather]
            found.append((2 * (n - 1).bit_length() * alpha, 2 * ring * gradient))
        elif zero == 1:
            found = [(a + z, s * gradient + y * weight) for a, s in gather for z, y in gather]
        else:
            found = [(a, s * weight) for a, s in gather]
        return _envelope(found, self.totals[family])

    def config(self, choice: GridChoice, mode: Mode) -> Config:
        """A configuration with its prices; its number is given later."""
        data, costs = self.data, self.data.costs
        kinds = data.kinds
        by_types = np.stack(
            [self._rates([mode], self.nowhere, y)[:, 0] for y in range(len(data.type_sets))]
        )
        compute = by_types.min(axis=0)
        excess = {TYPES: (by_types - compute)[:, kinds]}
        sync: dict[int, tuple[tuple[Line, ...], ...]] = {}
        for family in choice.families:
            profiles = [c.profile for c in family.classes]
            extra = np.stack([self._extra([mode], family.index, p)[:, 0] for p in profiles])
            compute = compute + extra.min(axis=0)
            excess[family.index] = np.maximum(extra - extra.min(axis=0), 0.0)[:, kinds]
            if family.index in self.totals and mode.zero < 3 and self.totals[family.index] > 0:
                sync[family.index] = tuple(self.lines(family.index, mode.zero, p) for p in profiles)

        def step(blocks: Blocks) -> Floats:
            return np.stack(
                [
                    costs.sync(blocks, self.grid, [mode], self.replicas, self.nowhere, types)[:, 0]
                    for types in data.type_sets
                ]
            )

        def memory(blocks: Blocks, mode: Mode) -> tuple[Floats, Floats]:
            found = costs.memory(blocks, self.grid, [mode], self.microbatch, self.replicas)
            return found.fixed[:, 0], found.stored[:, 0]

        once, stored = memory(self.single, mode)
        twice, _ = memory(self.double, mode)
        states = twice - once
        plain, _ = memory(self.single, mode._replace(zero=0))
        plain_states = memory(self.double, mode._replace(zero=0))[0] - plain
        working = plain - plain_states
        return Config(
            -1,
            choice,
            mode,
            compute[kinds],
            excess,
            step(self.single)[:, kinds],
            -step(self.shared)[:, 0],
            sync,
            states[kinds],
            stored[kinds],
            working[kinds],
            np.maximum(once - states - working, 0.0)[kinds],
            -float(memory(self.shared, mode)[0][0]),
            float(memory(self.cut, mode)[0][0]),
            costs.allowed(self.grid)[kinds],
        )


def _envelope(lines: Sequence[Line], most: float) -> tuple[Line, ...]:
    """The lines that are least somewhere on (0, most], by increasing intercept."""
    kept: list[Line] = []

    def crossing(a: Line, b: Line) -> float:
        return (b[0] - a[0]) / (a[1] - b[1])

    for line in sorted(set(lines)):
        if kept and line[1] >= kept[-1][1]:
            continue
        while len(kept) > 1 and crossing(kept[-2], line) <= crossing(kept[-2], kept[-1]):
            kept.pop()
        kept.append(line)
    last = next((i for i in range(1, len(kept)) if crossing(kept[i - 1], kept[i]) >= most), None)
    return tuple(kept[:last])


def _beats(data: PlacementData, a: Config, b: Config, ample: bool) -> bool:
    """Whether a configuration is at least as good as another of its grid, whatever the stage."""
    if set(a.sync) - set(b.sync):
        return False
    pairs = [(a.compute, b.compute), (_with_tied(data, a.step, a.step_shared),
                                      _with_tied(data, b.step, b.step_shared))]  # fmt: skip
    pairs += [(a.excess[f], b.excess[f]) for f in a.excess]
    if not ample:
        pairs += [
            (getattr(a, name), getattr(b, name))
            for name in ("stored", "working", "gathered", "buffers")
        ]
        pairs.append(
            (
                _with_tied(data, a.states, a.states_shared),
                _with_tied(data, b.states, b.states_shared),
            )
        )
    if not all(np.all(x <= np.asarray(y) * (1 + _SLACK)) for x, y in pairs):
        return False
    return all(
        any(x[0] <= y[0] and x[1] <= y[1] for x in mine)
        for f in a.sync
        for mine, theirs in zip(a.sync[f], b.sync[f], strict=True)
        for y in theirs
    )


def _with_tied(data: PlacementData, values: Floats, saved: Floats | float) -> Floats:
    """Figures of each operator and, appended, of the tied ones together."""
    tied = data.workload.tied
    if tied is None:
        return values
    both = values[..., [tied.first]] + values[..., [tied.second]]
    return np.concatenate([values, both - np.reshape(saved, (-1, 1)[2 - values.ndim :])], axis=-1)
