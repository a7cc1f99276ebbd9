"""Prices of a stage's choices, operator by operator.

Every price comes from the stage-cost module (`nestopt.placement.pricing`),
called with one operator and one family at a time (with overlap, with X, Y and Z together), so that
a model can add them up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.formulations.placement.classes import family_classes
from nestopt.formulations.placement.config import (
    AXES,
    DENSE,
    JOINT,
    SPARSE,
    TYPES,
    Config,
    Family,
    GridChoice,
    beats,
)
from nestopt.placement.model.plan import Hides
from nestopt.placement.pricing.comm import PROFILE, families_of
from nestopt.placement.pricing.cost import Blocks, Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from nestopt.formulations.placement.config import Line
    from nestopt.formulations.placement.data import PlacementData
    from nestopt.placement.pricing.cost import Grid

    Floats = NDArray[np.float64]

__all__ = ["Batch", "parts_of", "price_grid"]

_SLACK = 1e-12


class Batch(NamedTuple):
    """How the global batch is cut: samples of a micro-batch, and replicas."""

    microbatch: int
    replicas: int


def price_grid(
    data: PlacementData,
    grid: Grid,
    batch: Batch,
    in_flight: tuple[float, float],
    first: tuple[int, int],
    *,
    dominated: bool = False,
) -> list[Config]:
    """The configurations of a grid.

    Parameters
    ----------
    in_flight : (float, float)
        Fewest and most micro-batches in flight at any position.
    first : (int, int)
        Numbers to give to the grid and to its first configuration.
    dominated : bool
        Whether to keep configurations that another one beats in every respect.
    """
    pricing = _Pricing(data, grid, batch.microbatch, batch.replicas)
    choice = GridChoice(first[0], grid, batch.replicas * grid.width, pricing.families())
    configs = pricing.configs(choice)
    if not dominated:
        configs = _undominated(data, configs, in_flight[1])
    limit = max(min(t.usable for t in ts) for ts in data.type_sets)
    found: list[Config] = []
    for config in configs:
        alone = config.states + in_flight[0] * config.stored + config.working + config.gathered
        allowed = config.allowed & (alone <= limit * (1 + _SLACK))
        if allowed.any():
            found.append(replace(config, index=first[1] + len(found), allowed=allowed))
    return found


def _undominated(data: PlacementData, configs: list[Config], most_held: float) -> list[Config]:
    """The configurations of a grid without those that others beat in every respect."""
    kept: list[Config] = []
    room = min(t.usable for ts in data.type_sets for t in ts)
    ample = all(c.largest_need(most_held, data.largest_cut) <= room for c in configs)
    for config in configs:
        if any(beats(data, other, config, ample) for other in kept):
            continue
        kept = [other for other in kept if not beats(data, config, other, ample)]
        kept.append(config)
    return kept


class _Times(NamedTuple):
    """Seconds of an operator in parts that add up; see `Config`."""

    compute: Floats
    excess: dict[int, Floats]
    joined: tuple[int, ...]
    combinations: tuple[tuple[int, ...], ...]
    table: Floats


class _Pricing:
    """Prices of one grid."""

    def __init__(self, data: PlacementData, grid: Grid, microbatch: int, replicas: int) -> None:
        self.data, self.grid = data, grid
        self.microbatch, self.replicas = microbatch, replicas
        self.sizes = grid.family_sizes(replicas)
        s = data.space
        self.modes = data.costs.modes(grid, s.zero, s.recompute, s.sequence, s.overlap, s.hides)
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

    def _only(self, family: int, profile: Floats) -> Floats:
        """Profiles of which one is not free."""
        profiles = self.nowhere.copy()
        profiles[family] = profile
        return profiles

    def _extra(self, modes: Sequence[Mode], family: int, profile: Floats) -> Floats:
        """Seconds that a family's communication takes where nothing hides it: (kinds, modes)."""
        plain = [mode._replace(overlap=False, hides=Hides.NONE) for mode in modes]
        free = self._rates(plain, self.nowhere, 0)
        return self._rates(plain, self._only(family, profile), 0) - free

    # --- families --------------------------------------------------------------------------------

    def families(self) -> tuple[Family, ...]:
        """The families that cost something, with their classes."""
        roles = np.arange(self.replicas * self.grid.width, dtype=np.int64)
        groups = families_of(roles.reshape(self.replicas, -1), *self.grid)
        found = []
        for family, (n, rows) in enumerate(zip(self.sizes, groups, strict=True)):
            signature = self._signature_of(family)
            if n == 1 or signature(np.zeros(PROFILE)) == signature(np.ones(PROFILE)):
                continue
            classes = family_classes(self.data, len(rows), n, signature)
            found.append(Family(family, tuple(tuple(map(int, g)) for g in rows), classes))
        return tuple(found)

    def _signature_of(self, family: int) -> Callable[[Floats], Hashable]:
        """What tells everything that a family of a profile costs in any mode."""
        # prices of a family differ between modes only in these respects
        zeros = sorted({m.zero for m in self.modes}) if family in self.totals else [0]
        splits = sorted({m.sequence_parallel for m in self.modes})
        modes = [Mode(split, zero, "none") for split in splits for zero in zeros]

        def of_axis(profile: Floats) -> Hashable:
            profiles = self._only(family, profile)
            return tuple(
                seconds.tobytes()
                for split in splits
                for seconds in self.data.costs.reduces(self.grid, self.microbatch, profiles, split)
            )

        def of_other(profile: Floats) -> Hashable:
            extra = self._extra(modes, family, profile)
            return extra.tobytes(), *(self.lines(family, zero, profile) for zero in zeros)

        return of_axis if family in AXES else of_other

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

    # --- configurations --------------------------------------------------------------------------

    def configs(self, choice: GridChoice) -> list[Config]:
        """The configurations of every mode; their numbers are given later."""
        return [
            self._config(choice, mode, times)
            for mode, times in zip(self.modes, self._times(choice))
        ]

    def _times(self, choice: GridChoice) -> list[_Times]:
        """Operators' times, by mode."""
        # overlap hides the collectives of X, Y and Z behind compute and behind each other
        hiding = any(m.overlap or m.hides & Hides.TENSOR for m in self.modes)
        axes = [f for f in choice.families if f.index in AXES and hiding]
        names = (TYPES, *(f.index for f in axes))
        sizes = (len(self.data.type_sets), *(len(f.classes) for f in axes))
        table = np.empty((*sizes, len(self.data.costs.kinds), len(self.modes)))
        for types, *classes in np.ndindex(*sizes):
            profiles = self.nowhere.copy()
            for family, k in zip(axes, classes):
                profiles[family.index] = family.classes[k].profile
            table[(types, *classes)] = self._rates(self.modes, profiles, types)
        extra = {
            f.index: np.stack([self._extra(self.modes, f.index, c.profile) for c in f.classes])
            for f in choice.families
            if f not in axes
        }
        kinds = self.data.kinds
        found = []
        for m in range(len(self.modes)):
            least, excess, together = parts_of(table[..., m])
            named = {JOINT if a == JOINT else names[a]: v for a, v in excess.items()}
            joint = tuple(names[axis] for axis in together)
            combinations = tuple(np.ndindex(*(sizes[axis] for axis in together))) if joint else ()
            base = sum(values[..., m].min(axis=0) for values in extra.values())
            named |= {
                f: np.maximum(v[..., m] - v[..., m].min(axis=0), 0.0) for f, v in extra.items()
            }
            full = table[..., m].reshape(sizes[0], -1, table.shape[-2]) + base
            found.append(
                _Times(
                    (least + base)[kinds],
                    {f: values[:, kinds] for f, values in named.items()},
                    joint,
                    combinations,
                    full[..., kinds],
                )
            )
        return found

    def _config(self, choice: GridChoice, mode: Mode, times: _Times) -> Config:
        data, costs = self.data, self.data.costs
        kinds = data.kinds
        sync: dict[int, tuple[tuple[Line, ...], ...]] = {}
        for family in choice.families:
            if family.index in self.totals and mode.zero < 3 and self.totals[family.index] > 0:
                sync[family.index] = tuple(
                    self.lines(family.index, mode.zero, c.profile) for c in family.classes
                )

        batch = self.microbatch, self.replicas

        def step(blocks: Blocks) -> Floats:
            return np.stack(
                [
                    costs.sync(blocks, self.grid, [mode], *batch, self.nowhere, types)[:, 0]
                    for types in data.type_sets
                ]
            )

        def fixed(blocks: Blocks, mode: Mode) -> Floats:
            found = costs.memory(blocks, self.grid, [mode], self.microbatch, self.replicas)
            return found.fixed[:, 0]

        def of_largest(mode: Mode) -> tuple[Floats, Floats]:
            """Bytes that add up over operators, and those of the largest one."""
            once = fixed(self.single, mode)
            each = fixed(self.double, mode) - once
            return each, np.maximum(once - each, 0.0)

        stored = costs.memory(self.single, self.grid, [mode], self.microbatch, self.replicas).stored
        states, largest = of_largest(mode)
        # without recompute the largest operator counts for its gathered weights only
        _, gathered = of_largest(mode._replace(recompute="none"))
        return Config(
            index=-1,
            grid=choice,
            mode=mode,
            compute=times.compute,
            excess=times.excess,
            joined=times.joined,
            combinations=times.combinations,
            table=times.table,
            step=step(self.single)[:, kinds],
            step_shared=-step(self.shared)[:, 0],
            sync=sync,
            states=states[kinds],
            stored=stored[kinds, 0],
            working=np.maximum(largest - gathered, 0.0)[kinds],
            gathered=gathered[kinds],
            states_shared=-float(fixed(self.shared, mode)[0]),
            buffers=float(fixed(self.cut, mode)[0]),
            allowed=costs.allowed(self.grid)[kinds],
        )


def parts_of(table: Floats) -> tuple[Floats, dict[int, Floats], tuple[int, ...]]:
    """Split a table over several choices into parts that add up.

    Parameters
    ----------
    table : float array (choices, ..., choices, kinds)

    Returns
    -------
    least : float array (kinds,)
    excess : dict of int to float array (choices, kinds)
        By axis what each of its choices adds: nothing on axes that are priced together. Under
        ``JOINT``, if there are such, what each of their combinations adds.
    together : tuple of int
        The axes that are priced together.
    """
    axes = range(table.ndim - 1)
    scale = np.abs(table).max(axis=tuple(axes))

    def along(*chosen: int) -> Floats:
        """The table along some axes, at the first choice of the others: (choices, kinds)."""
        at = tuple(slice(None) if axis in chosen else 0 for axis in axes)
        return table[at].reshape(-1, table.shape[-1])

    together = []
    for axis in axes:
        change = table - table.take([0], axis=axis)
        others = tuple(a for a in axes if a != axis)
        spread = change.max(axis=others) - change.min(axis=others)
        if (spread > _SLACK * scale).any():
            together.append(axis)
    joint = along(*together)
    least, excess = joint.min(axis=0), {}
    if together:
        excess[JOINT] = joint - least
    for axis in axes:
        values = np.zeros((table.shape[axis], table.shape[-1]))
        if axis not in together:
            values = along(axis) - along()
            least = least + values.min(axis=0)
        excess[axis] = values - values.min(axis=0)
    return least, excess, tuple(together)


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
