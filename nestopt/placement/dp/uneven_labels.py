"""One scenario of unequal replicas: the exact search with a time for every replica.

A plan that states its shares takes ``max_r (sum_q t_qr + (m_r - 1) max_q t_qr) + max_q S_q``, and
the best shares for given times are found exactly (`best_shares`). So a part of a pipeline is known
by its sums and largest times *by replica*, the shares that its memory leaves to each, and its
longest synchronisation; of two parts between the same operators and places, one that is no worse in
any of these replaces the other. What is left of a part is bounded by fractional shares: with first
times a_r and further times b_r, no shares of N micro-batches end before
``(N - d + sum_r a_r / b_r) / sum_r 1 / b_r``, when all replicas would be through at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.placement.dp.arrangements import Arranged
from nestopt.placement.dp.tables import CLOSE
from nestopt.placement.model.clock import SearchStopped
from nestopt.placement.model.orders import role_offsets
from nestopt.placement.model.plan import Plan, Stage
from nestopt.placement.model.schedules import OneForwardOneBackward
from nestopt.placement.pricing.comm import side_profiles
from nestopt.placement.pricing.cost import config_of
from nestopt.placement.pricing.replicas import best_shares, types_by_replica

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.dp.cases import Case
    from nestopt.placement.dp.search import Search
    from nestopt.placement.model.plan import StageConfig
    from nestopt.placement.pricing.cost import Grid, Mode

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["MOST_LABELS", "UnevenScenario"]

MOST_LABELS = 1_000_000


class _Offers(NamedTuple):
    """Stages that can stand at a place; one row an order, configuration and mode.

    `rates` (O, d, K) are seconds of one operator of each kind, `sync` (O, R), `fixed` and `stored`
    (O, R) bytes, `rooms` (O, d) bytes usable; `devices` and `configs` say what each row is.
    """

    rates: Floats
    sync: Floats
    fixed: Floats
    stored: Floats
    rooms: Floats
    devices: list[Ints]
    configs: list[StageConfig]


class _Priced(NamedTuple):
    """A block at a place: times (O, d), sync, fixed and stored (O,), rooms (O, d), offer rows."""

    times: Floats
    sync: Floats
    fixed: Floats
    stored: Floats
    rooms: Floats
    rows: Ints


class _Label(NamedTuple):
    """The last stages of a pipeline.

    `total` and `largest` are sums and largest times by replica, the latter without the first of
    these stages, whose time so far is `own`; `most` are the shares that fit.
    """

    ideal: int
    place: int
    width: int
    total: Floats
    largest: Floats
    own: Floats
    most: Ints
    sync: float
    parent: _Label | None
    stage: tuple[int, Ints, StageConfig] | None

    @property
    def figures(self) -> Floats:
        """What a label is compared by: less is better."""
        return np.concatenate([self.total, self.largest, self.own, -self.most, [self.sync]])


@dataclass(eq=False)
class UnevenScenario:
    """A case with a layout and a window, whose replicas may take unequal shares.

    Attributes
    ----------
    value : float
        Only plans below it are looked for; then the least found.
    plan : Plan or None
    """

    search: Search
    case: Case
    layout: str
    window: int
    value: float
    plan: Plan | None = None
    labels: int = 0
    _offers: dict[tuple[int, int], _Offers] = field(default_factory=dict)
    _priced: dict[tuple[int, int, int], _Priced] = field(default_factory=dict)
    _kept: dict[tuple[int, int, int], Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        batch, line = self.case.batch, self.search.line
        self.replicas, self.inner = batch.replicas, self.layout == "inner"
        self.total = self.search.costs.workload.global_batch // batch.microbatch
        self.widths = sorted({g.width for g in self.case.grids})
        self.lengths = [w * self.replicas if self.inner else w for w in self.widths]
        steps = np.arange(self.replicas, dtype=np.int64)
        self.sides = []
        for w, length in zip(self.widths, self.lengths, strict=True):
            starts = np.arange(max(0, self.window - length + 1), dtype=np.int64)
            base = steps[:, None] * (w if self.inner else self.window)
            offsets = (base + np.arange(w, dtype=np.int64)).ravel()
            self.sides.append(side_profiles(line.network, line.devices, starts, offsets, w))
        self.rest = self._rest()

    # --- prices ----------------------------------------------------------------------------------

    def _offered(self, width: int, place: int) -> _Offers:
        key = width, place
        if key not in self._offers:
            self._offers[key] = self._offers_at(width, place)
        return self._offers[key]

    def _offers_at(self, width: int, place: int) -> _Offers:
        search, line = self.search, self.search.line
        window = 0 if self.inner else self.window
        start = np.array([place], dtype=np.int64)
        arranged = Arranged(line, self.replicas, window, search.free, start)
        parts: list[_Offers] = []
        for grid, modes in zip(self.case.grids, self.case.modes, strict=True):
            off = self.case.batch.microbatch % grid.sample_parts
            if off or grid.width != self.widths[width]:
                continue
            seen = set()
            for order, profiles in arranged.orders(grid):
                offsets = role_offsets(order, grid, self.replicas, window)
                devices = line.devices[place + offsets]
                kinds = types_by_replica(line.cluster, devices)
                # orders that cost the same by replica are one
                name = profiles.tobytes(), tuple(kinds)
                if name not in seen:
                    seen.add(name)
                    parts.append(self._one_offer(grid, modes, profiles[0], devices, kinds))
        none = np.zeros((0, 0))
        if not parts:
            return _Offers(none, none, none, none, none, [], [])
        return _Offers(
            np.concatenate([part.rates for part in parts]),
            np.concatenate([part.sync for part in parts]),
            np.concatenate([part.fixed for part in parts]),
            np.concatenate([part.stored for part in parts]),
            np.concatenate([part.rooms for part in parts]),
            [d for part in parts for d in part.devices],
            [c for part in parts for c in part.configs],
        )

    def _one_offer(
        self,
        grid: Grid,
        modes: tuple[Mode, ...],
        profiles: Floats,
        devices: Ints,
        kinds: list[tuple[int, ...]],
    ) -> _Offers:
        costs, cluster, batch = self.search.costs, self.search.line.cluster, self.case.batch
        blocks = self.search.lattice.blocks
        b, d = batch.microbatch, self.replicas
        by_kind = {
            kind: costs.rates(grid, modes, b, d, profiles, [cluster.types[i] for i in kind])
            for kind in set(kinds)
        }
        rates = np.stack([by_kind[kind].T for kind in kinds], axis=1)
        rates[:, :, ~costs.allowed(grid)] = math.inf
        present = [cluster.types[i] for i in sorted({i for kind in kinds for i in kind})]
        memory = costs.memory(blocks, grid, modes, b, d)
        sync = costs.sync(blocks, grid, modes, b, d, profiles, present)
        if grid.e > 1:
            # a stage without experts has none to spread
            sync[blocks.counts[:, costs.expert_kinds()].sum(axis=1) == 0] = math.inf
        room = [min(cluster.types[i].usable for i in kind) for kind in kinds]
        count = len(modes)
        return _Offers(
            rates, sync.T, memory.fixed.T, memory.stored.T,
            np.tile(np.array(room), (count, 1)), [devices] * count,
            [config_of(grid, mode) for mode in modes],
        )  # fmt: skip

    def _prices(self, width: int, place: int, block: int) -> _Priced:
        key = width, place, block
        if key not in self._priced:
            self._priced[key] = self._prices_of(width, place, block)
        return self._priced[key]

    def _prices_of(self, width: int, place: int, block: int) -> _Priced:
        offers = self._offered(width, place)
        counts = self.search.lattice.blocks.counts[block]
        held = counts > 0
        times = (offers.rates[:, :, held] * counts[held]).sum(axis=2)
        figures = np.concatenate(
            [
                times, -offers.rooms, offers.sync[:, [block]], offers.fixed[:, [block]],
                offers.stored[:, [block]],
            ],
            axis=1,
        )  # fmt: skip
        rows = _front(figures, np.flatnonzero(np.isfinite(figures).all(axis=1)))
        return _Priced(
            times[rows], offers.sync[rows, block], offers.fixed[rows, block],
            offers.stored[rows, block], offers.rooms[rows], rows,
        )  # fmt: skip

    def _shares_that_fit(self, priced: _Priced, left: int) -> Ints:
        """The largest share of each replica with which a stage fits, (O, d)."""
        fixed, stored = priced.fixed[:, None], priced.stored[:, None]
        held = left if isinstance(self.case.batch.schedule, OneForwardOneBackward) else self.total
        all_fit = fixed + min(held, self.total) * stored <= priced.rooms
        fraction = np.divide(
            priced.rooms - fixed, stored, out=np.zeros_like(priced.rooms), where=stored > 0
        )
        most = np.floor(np.clip(fraction, 0.0, self.total))
        # the same comparison as the evaluator's, whatever the division rounds
        most = np.where(fixed + most * stored > priced.rooms, most - 1, most)
        most = np.where(fixed + (most + 1) * stored <= priced.rooms, most + 1, most)
        return np.where(all_fit, self.total, np.clip(most, 0, self.total)).astype(np.int64)

    def _boundary(self, ideal: int, width: int, place: int, right: _Label) -> float:
        """Seconds of the boundary between a stage and the label's first one."""
        line, batch = self.search.line, self.case.batch
        group = line.network.group_of[:, line.devices]
        end = right.place + self.lengths[right.width] - 1
        steps = [0] if self.inner else [r * self.window for r in range(self.replicas)]
        level = max(int(np.argmax(group[:, place + s] == group[:, end + s])) for s in steps)
        beta, alpha = np.maximum(
            self.sides[width][place, :, level], self.sides[right.width][right.place, :, level]
        )
        volume = batch.microbatch * self.search.lattice.cut[ideal]
        return float(batch.schedule.crossings * (alpha + volume * beta))

    # --- bounds ----------------------------------------------------------------------------------

    def _rest(self) -> Floats:
        """Least sum of times before each ideal, whatever the places; (I,)."""
        lattice = self.search.lattice
        least = np.full(len(lattice.blocks.cut_in), math.inf)
        for width, length in enumerate(self.lengths):
            for place in range(self.window - length + 1):
                rates = self._offered(width, place).rates
                if len(rates):
                    best = rates.min(axis=(0, 1))
                    for block, counts in enumerate(lattice.blocks.counts):
                        held = counts > 0
                        least[block] = min(least[block], float((best[held] * counts[held]).sum()))
            self.search.stop()
        rest = np.full(lattice.ideals, math.inf)
        rest[0] = 0.0
        for ideal in range(1, lattice.ideals):
            for at in range(lattice.start[ideal], lattice.start[ideal + 1]):
                below, block = lattice.below[at], lattice.block[at]
                rest[ideal] = min(rest[ideal], rest[below] + least[block])
        return rest

    def _bounds(self, first: Floats, each: Floats, sync: Floats) -> Floats:
        """Least values with some first and further times, (O,): see the module."""
        value = first.max(axis=1)
        work = (each > 0).all(axis=1)
        inverse = 1.0 / np.where(each > 0, each, 1.0)
        together = (self.total - self.replicas + (first * inverse).sum(axis=1)) / inverse.sum(
            axis=1
        )
        return np.where(work, np.maximum(value, together), value) + sync

    # --- the search ------------------------------------------------------------------------------

    def run(self) -> None:
        """Search the scenario; `value` and `plan` hold what beats the value given."""
        none = np.zeros(self.replicas)
        whole = np.full(self.replicas, self.total, dtype=np.int64)
        last = self.search.lattice.ideals - 1
        layer = [_Label(last, self.window, -1, none, none, none, whole, 0.0, None, None)]
        left = 0
        while layer:
            left += 1
            found: list[_Label] = []
            for label in layer:
                self.search.stop()
                for width in range(len(self.widths)):
                    for place in range(label.place - self.lengths[width], -1, -1):
                        found += self._before(label, width, place, left)
            layer = found

    def _before(self, label: _Label, width: int, place: int, left: int) -> list[_Label]:
        """The labels with one more stage at a place."""
        lattice, found = self.search.lattice, []
        crossing = 0.0
        if label.parent is not None:
            crossing = self._boundary(label.ideal, width, place, label)
        largest = label.largest
        if label.parent is not None:
            largest = np.maximum(largest, label.own + crossing)
        for at in range(lattice.start[label.ideal], lattice.start[label.ideal + 1]):
            below = int(lattice.below[at])
            priced = self._prices(width, place, int(lattice.block[at]))
            if not len(priced.rows):
                continue
            most = np.minimum(label.most, self._shares_that_fit(priced, left))
            own = priced.times + crossing
            added = crossing if label.parent is not None else 0.0
            total = label.total + added + own
            sync = np.maximum(label.sync, priced.sync)
            each = np.maximum(largest, own)
            value = self._bounds(total + self.rest[below], each, sync)
            fits = (most >= 1).all(axis=1) & (most.sum(axis=1) >= self.total)
            for row in np.flatnonzero(fits & (value < self.value * CLOSE)).tolist():
                offer = int(priced.rows[row])
                offers = self._offered(width, place)
                stage = at, offers.devices[offer], offers.configs[offer]
                new = _Label(
                    below, place, width, total[row], largest, own[row], most[row],
                    float(sync[row]), label, stage,
                )  # fmt: skip
                if below == 0:
                    self._complete(new)
                elif self._keep(new):
                    found.append(new)
        return found

    def _keep(self, label: _Label) -> bool:
        """Keep a label unless another one of its place is no worse in any figure."""
        key = label.ideal, label.place, label.width
        row = label.figures
        kept = self._kept.get(key)
        if kept is not None and (kept <= row).all(axis=1).any():
            return False
        self.labels += 1
        if self.labels > MOST_LABELS:
            raise SearchStopped("memory")
        rows = row[None] if kept is None else np.concatenate([kept, row[None]])
        self._kept[key] = rows
        return True

    def _complete(self, label: _Label) -> None:
        each = np.maximum(label.largest, label.own)
        seconds, shares = best_shares(label.total, each, label.most, self.total)
        if seconds + label.sync >= self.value * CLOSE:
            return
        stages = []
        upper: _Label | None = label
        while upper is not None and upper.stage is not None and upper.parent is not None:
            _, devices, config = upper.stage
            operators = self.search.lattice.operators(upper.ideal, upper.parent.ideal)
            stages.append(Stage(operators, config, devices))
            upper = upper.parent
        batch = self.case.batch
        self.value = seconds + label.sync
        self.plan = Plan(
            tuple(stages), batch.replicas, batch.microbatch, batch.schedule.name, shares=shares
        )


def _front(figures: Floats, rows: Ints) -> Ints:
    """Of some rows, those that no other one is at most as large as in every figure."""
    kept: list[int] = []
    order = rows[np.lexsort(figures[rows].T[::-1])] if len(rows) else rows
    for row in order.tolist():
        if not any((figures[other] <= figures[row]).all() for other in kept):
            kept.append(row)
    return np.array(kept, dtype=np.int64)
