r"""Bounds from prices of single operators, and the configurations that they rule out.

Before any block of operators is priced: let a *column* be a grid with a mode, w its devices a
replica, u the devices of a replica, and ``t``, ``S`` and ``M`` the seconds, the part of the
synchronisation that grows with the parameters, and the bytes that one operator of a kind costs in
it at least. With weights (a, b, c) of the objective and any price :math:`\lambda \ge 0` of memory,
a plan costs at least

.. math:: \sum_k n_k \min_{\text{columns}} \Bigl( \bigl(a + \tfrac{w}{u} b\bigr) t_k
          + \tfrac{w}{u} c\, S_k + \lambda w M_k \Bigr) - \lambda u R

with n the operators of each kind and R the memory of the largest device: the largest stage time is
at least the mean over devices, and so is the largest synchronisation; stages hold at least one
micro-batch, and all of them together no more than u R. A plan that uses a column costs at least the
bound plus the least amount by which an operator in it exceeds its minimum (its reduced cost), so a
column for which that reaches the incumbent is in no better plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.placement.dp.relaxed import relaxed_classes
from nestopt.placement.model.plan import Hides
from nestopt.placement.pricing.cost import Blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.dp.entries import PlaceClass
    from nestopt.placement.dp.relaxed import Best
    from nestopt.placement.model.cluster import Cluster, DeviceType
    from nestopt.placement.model.schedules import Weights
    from nestopt.placement.pricing.cost import Grid, Mode, StageCosts

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

__all__ = ["Columns", "Pricer"]

_MEMORY_PRICES = (0.0, 0.03, 0.1, 0.2, 0.4, 0.8, 1.5, 3.0)
"""Prices of memory tried, in shares of the bound without memory for all of it."""
_MOST_KEPT = 128
"""Pairs of replicas and micro-batch whose columns are kept."""
_LARGE = 1e30
"""Parameters at which a collective's latency is nothing beside its bytes."""


class Columns(NamedTuple):
    """The columns of a batch, C of them.

    Attributes
    ----------
    grid, mode : int arrays (C,)
        Index of the grid, and of the mode among the grid's.
    width : float array (C,)
    seconds, sync : float arrays (K, C)
        Least of one operator of each kind; seconds are infinite where it is not allowed.
    states, stored : float arrays (K, C)
        Bytes of its parameters' states, and of the activations of one micro-batch.
    extra : float array (K, C)
        Bytes that a stage with any such operator needs besides.
    """

    grid: Ints
    mode: Ints
    width: Floats
    seconds: Floats
    sync: Floats
    states: Floats
    stored: Floats
    extra: Floats

    def of(self, chosen: Bools) -> Columns:
        """Some of the columns, those chosen, (C,)."""
        return Columns._make(figure[..., chosen] for figure in self)

    def bound(
        self,
        counts: Ints,
        weights: Weights,
        units: int,
        room: float,
        chunks: int = 1,
        goal: float = math.inf,
    ) -> tuple[float, Floats]:
        """The bound, and by how much it rises where a plan uses a column, (C,).

        Parameters
        ----------
        counts : int array (K,)
            Operators of each kind.
        chunks : int
            Chunks a stage: so many operators of a repeated kind are in a stage at least, and the
            longest stage takes no less.
        goal : float
            Plans that cost as much do not count.
        """
        if not len(self.grid):
            return math.inf, np.zeros(0)
        share = self.width / units
        seconds = self.seconds
        if chunks > 1 and math.isfinite(goal):
            longest = goal / (weights.largest + weights.total)
            fits = seconds * np.where(counts > 1, chunks, 1)[:, None] < longest
            seconds = np.where(fits, seconds, math.inf)
        cost = (weights.total + share * weights.largest) * seconds
        cost += share * weights.sync * self.sync
        load = self.width * (self.states + self.stored)
        whole = units * room
        plain = float(counts @ cost.min(axis=1))
        if not math.isfinite(plain):
            return math.inf, np.full(len(self.grid), math.inf)
        best, rise = -math.inf, np.zeros(0)
        for factor in _MEMORY_PRICES:
            price = factor * plain / whole if whole > 0 else 0.0
            priced = cost + price * load
            least = priced.min(axis=1)
            value = float(counts @ least) - price * whole
            if value > best:
                best, rise = value, np.nan_to_num(priced - least[:, None], nan=math.inf).min(axis=0)
        # Other sums than the evaluator's: a little less is safe.
        return best * (1 - 1e-11), rise


class _Base(NamedTuple):
    """What depends on the micro-batch of a grid's modes, (K, M) each.

    Seconds without ZeRO's traffic, bytes of a micro-batch's activations, bytes of what is neither
    these nor states.
    """

    seconds: Floats
    stored: Floats
    extra: Floats


class _Zero(NamedTuple):
    """What depends on the replicas, by ZeRO stage, (K, 4) each.

    Its traffic's seconds, what synchronisation grows by, bytes of states and of gathered weights.
    """

    traffic: Floats
    slope: Floats
    states: Floats
    gathered: Floats


@dataclass(eq=False)
class Pricer:
    """Makes the columns of every batch; what batches share is priced once.

    Attributes
    ----------
    grids : tuple of Grid
    modes : tuple of tuples of Mode
        Of each grid.
    """

    costs: StageCosts
    cluster: Cluster
    best: Best
    grids: tuple[Grid, ...]
    modes: tuple[tuple[Mode, ...], ...]
    counts: Ints = field(init=False)
    """Operators of each kind."""
    room: float = field(init=False)
    """Bytes that the largest device has."""
    _columns: dict[tuple[int, int, int], Columns] = field(default_factory=dict)
    _base: dict[tuple[int, int], _Base | None] = field(default_factory=dict)
    _zero: dict[tuple[int, int, int], _Zero | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = len(self.costs.kinds)
        self.counts = np.bincount(self.costs.kind_of, minlength=kinds).astype(np.int64)
        present = set(self.cluster.type_of.tolist())
        self.room = max((0.0, *(self.cluster.types[i].usable for i in present)))

    def columns(self, replicas: int, microbatch: int, apart: int = 0) -> Columns:
        """The columns that fit the devices and divide the micro-batch.

        Below level `apart` no place holds the same rank of two replicas.
        """
        key = replicas, microbatch, apart
        if key not in self._columns:
            if len(self._columns) >= _MOST_KEPT:
                self._columns.pop(next(iter(self._columns)))
            self._columns[key] = self._columns_afresh(replicas, microbatch, apart)
        return self._columns[key]

    def _columns_afresh(self, replicas: int, microbatch: int, apart: int) -> Columns:
        alive = len(self.cluster.alive)
        kinds = len(self.costs.kinds)
        index, chosen = [], []
        figures: list[tuple[Floats, ...]] = []
        for g, grid in enumerate(self.grids):
            if grid.width * replicas > alive or microbatch % grid.sample_parts:
                continue
            base = self._base_of(g, microbatch)
            zero = self._zero_of(g, replicas, apart)
            if base is None or zero is None:
                continue
            stages = np.array([m.zero for m in self.modes[g]])
            index.append(np.full(len(stages), g))
            chosen.append(np.arange(len(stages)))
            figures.append(
                (
                    base.seconds + zero.traffic[:, stages],
                    zero.slope[:, stages],
                    zero.states[:, stages],
                    base.stored,
                    base.extra + zero.gathered[:, stages],
                )
            )
        if not index:
            none = np.zeros(0, dtype=np.int64)
            empty = np.zeros((kinds, 0))
            return Columns(none, none, np.zeros(0), empty, empty, empty, empty, empty)
        number = np.concatenate(index)
        width = np.array([float(g.width) for g in self.grids])[number]
        rows = (np.concatenate(part, axis=1) for part in zip(*figures, strict=True))
        return Columns(number, np.concatenate(chosen), width, *rows)

    def _base_of(self, g: int, microbatch: int) -> _Base | None:
        key = g, microbatch
        if key not in self._base:
            self._base[key] = self._base_afresh(self.grids[g], self.modes[g], microbatch)
        return self._base[key]

    def _base_afresh(self, grid: Grid, modes: tuple[Mode, ...], microbatch: int) -> _Base | None:
        costs = self.costs
        plain = [m._replace(zero=0, hides=m.hides & ~Hides.GATHERS) for m in modes]
        distinct = list(dict.fromkeys(plain))
        classes = relaxed_classes(self.cluster, self.best, [grid], 1)
        if not classes:
            return None
        rates = [
            costs.rates(grid, distinct, microbatch, 1, profiles, types)
            for profiles, types in _by_types(classes)
        ]
        least = np.concatenate(rates).min(axis=0)
        least[~costs.allowed(grid)] = math.inf
        kinds = len(costs.kinds)
        none = np.zeros(kinds)
        alone = Blocks(np.eye(kinds, dtype=np.int64), none, none, none)
        fixed, stored = costs.memory(alone, grid, distinct, microbatch, 1)
        w = costs.workload
        params, expert = self._params
        states = (w.bytes_weight + w.bytes_gradient + w.bytes_optimizer) * (
            params / grid.t + expert / (grid.t * grid.e)
        )
        # a difference of large sums: a little less is safe
        extra = np.maximum(0.0, fixed * (1 - 1e-12) - states[:, None])
        place = [distinct.index(m) for m in plain]
        return _Base(least[:, place], stored[:, place], extra[:, place])

    @property
    def _params(self) -> tuple[Floats, Floats]:
        """Parameters of each kind, dense and of experts."""
        kinds = self.costs.kinds
        return np.array([o.params for o in kinds]), np.array([o.params_expert for o in kinds])

    def _zero_of(self, g: int, replicas: int, apart: int) -> _Zero | None:
        key = g, replicas, apart
        if key not in self._zero:
            classes = relaxed_classes(self.cluster, self.best, [self.grids[g]], replicas, apart)
            self._zero[key] = self._zero_afresh(self.grids[g], replicas, classes)
        return self._zero[key]

    def _zero_afresh(
        self, grid: Grid, replicas: int, classes: Sequence[PlaceClass]
    ) -> _Zero | None:
        if not classes:
            return None
        costs = self.costs
        kinds = len(costs.kinds)
        hides = {m.hides for modes in self.modes for m in modes}
        modes = costs.modes(grid, (0, 1, 2, 3), ("none",), (False,))
        traffic, slope = np.zeros((kinds, 4)), np.zeros((kinds, 4))
        params = self._params
        gathered = np.zeros((kinds, 4))
        if grid.z == 1:
            # with Z they are gathered whatever the stage, and counted there
            gathered[:, 3] = params[0] / grid.t + params[1] / (grid.t * grid.e)
        gathered *= 2 * costs.workload.bytes_weight * (1 - 1e-12)
        tied = costs.workload.tied
        if tied is not None:
            for end in (tied.first, tied.second):
                kind = int(costs.kind_of[end])
                params[0][kind] = max(0.0, params[0][kind] - tied.params)
        if not any(flags & Hides.GATHERS for flags in hides):
            profiles, types = _by_types(classes)[0]
            # What is sent does not depend on the type.
            rates = costs.rates(grid, modes, grid.sample_parts, replicas, profiles, types)
            traffic = np.maximum(0.0, (rates - rates[..., :1]).min(axis=0)) * (1 - 1e-9)
        if not any(flags & Hides.SYNC for flags in hides):
            slope = self._slopes(grid, modes, replicas, params, classes)
        w = costs.workload
        *_, size, size_expert = grid.family_sizes(replicas)
        states = np.zeros((kinds, 4))
        for each, stage in ((w.bytes_weight, 3), (w.bytes_gradient, 2), (w.bytes_optimizer, 1)):
            for zero in range(4):
                over = (size, size_expert) if zero >= stage else (1, 1)
                states[:, zero] += each * params[0] / grid.t / over[0]
                states[:, zero] += each * params[1] / (grid.t * grid.e) / over[1]
        return _Zero(traffic, slope, states, gathered)

    def _slopes(
        self,
        grid: Grid,
        modes: tuple[Mode, ...],
        replicas: int,
        params: tuple[Floats, Floats],
        classes: Sequence[PlaceClass],
    ) -> Floats:
        """Seconds of synchronisation for each kind's parameters where latency does not matter."""
        costs = self.costs
        kinds = len(costs.kinds)
        none = np.zeros(kinds)
        slope = np.full((kinds, 4), math.inf)
        scale = np.where(params[0] + params[1] > 0, params[0] + params[1], 1.0)
        # All of a kind's parameters in one block, so many of them that latency is nothing.
        many = np.diag(np.ceil(_LARGE / scale))
        blocks = Blocks(many, none, none, none)
        for profiles, types in _by_types(classes):
            found = costs.sync(blocks, grid, modes, 1, replicas, profiles, types).min(axis=0)
            slope = np.minimum(slope, found / np.diag(many)[:, None])
        whole = np.array([o.params + o.params_expert for o in costs.kinds])
        part = np.divide(params[0] + params[1], whole, out=np.zeros(kinds), where=whole > 0)
        return slope * (1 - 1e-9) * part[:, None]


def _by_types(
    classes: Sequence[PlaceClass],
) -> list[tuple[Floats, tuple[DeviceType, ...]]]:
    """The profiles of the classes with each set of types, (classes, families, entries)."""
    found: dict[tuple[DeviceType, ...], list[Floats]] = {}
    for c in classes:
        found.setdefault(c.types, []).append(c.profiles)
    return [(np.stack(rows), types) for types, rows in found.items()]
