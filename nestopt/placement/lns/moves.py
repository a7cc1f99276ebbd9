"""Neighbourhoods: drafts near another one, a batch of them at a time.

``exchange``   devices trade places, one by one, in runs or in whole groups; idle ones take part
``rearrange``  the devices of a stage, or of two in a row, are dealt to its roles in another order
``redeal``     all roles are dealt to the devices of another line in another order
``recut``      operators move between stages, along all stages in between
``regrid``     stages are split otherwise over the same devices
``renumber``   replicas trade their numbers within a stage
``rebuild``    another skeleton, with its best layout among a few
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.stop import check
from nestopt.placement.lns.draft import Draft, Order, shuffled
from nestopt.placement.lns.layouts import Roles, plain_lines, random_line
from nestopt.placement.lns.skeletons import Skeleton

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from nestopt.placement.lns.prices import Prices
    from nestopt.placement.lns.skeletons import Skeletons
    from nestopt.placement.model.grid import Grid

    Ints = NDArray[np.int64]
    Change = dict[int, tuple[Grid, Ints]]

__all__ = ["Moves"]

_BATCH = 24
"""Candidates of a move, on clusters of up to `_SMALL` devices; fewer on larger ones."""
_SMALL = 128
_LEAST_BATCH = 6
_MUTATIONS = 24
_BUILT = 3


class Moves:
    """The neighbourhoods of an instance's drafts."""

    def __init__(self, prices: Prices, skeletons: Skeletons, rng: np.random.Generator) -> None:
        self.prices, self.skeletons, self.rng = prices, skeletons, rng
        self.alive = prices.alive
        share = max(1.0, len(self.alive) / _SMALL)
        self.batch = max(_LEAST_BATCH, int(_BATCH / share))
        self._roles: dict[tuple[int, tuple[Grid, ...]], Roles] = {}
        self._lines: dict[int, list[Ints]] = {}

    @property
    def all(self) -> tuple[tuple[str, Callable[[Draft], list[Draft]]], ...]:
        """Every neighbourhood by name."""
        return (
            ("exchange", self.exchange),
            ("rearrange", self.rearrange),
            ("redeal", self.redeal),
            ("recut", self.recut),
            ("regrid", self.regrid),
            ("renumber", self.renumber),
            ("rebuild", self.rebuild),
        )

    def roles(self, d: int, grids: Sequence[Grid]) -> Roles:
        """The roles of some stages."""
        key = d, tuple(grids)
        if key not in self._roles:
            if len(self._roles) > 2000:
                self._roles.clear()
            self._roles[key] = Roles(d, grids)
        return self._roles[key]

    def lines(self, unit: int) -> list[Ints]:
        """The plain lines of the cluster."""
        if unit not in self._lines:
            self._lines[unit] = plain_lines(self.prices.cluster, unit)
        return self._lines[unit]

    def _changed(self, draft: Draft, changes: Sequence[Change]) -> list[Draft]:
        """The draft with other grids and devices for some stages, once for each change."""
        wanted = [row for change in changes for row in change.values()]
        made = iter(self.prices.sites(wanted))
        out = []
        for change in changes:
            sites = list(draft.sites)
            for q in change:
                sites[q] = next(made)
            out.append(replace(draft, sites=tuple(sites)))
        return out

    def dealt(self, order: Order, s: Skeleton, dealt: Sequence[Sequence[Ints]]) -> list[Draft]:
        """The drafts of a skeleton with devices dealt out."""
        rows = [(g, devices) for deal in dealt for g, devices in zip(s.grids, deal, strict=True)]
        sites = self.prices.sites(rows)
        stages = len(s.grids)
        return [
            Draft(order, s.batch, s.ends, tuple(sites[i * stages : (i + 1) * stages]))
            for i in range(len(dealt))
        ]

    # --- devices ---------------------------------------------------------------------------------

    def exchange(self, draft: Draft) -> list[Draft]:
        """Devices trade places; those of the slowest stage more often."""
        owner = np.full(self.prices.cluster.num_devices, -1)
        for q, site in enumerate(draft.sites):
            owner[site.devices] = q
        critical = self._critical(draft)
        changes = []
        for _ in range(self.batch):
            first, second = self._pair(draft, critical)
            keep = (first != second) & ((owner[first] >= 0) | (owner[second] >= 0))
            first, second = first[keep], second[keep]
            if not len(first):
                continue
            table = np.arange(len(owner))
            table[first], table[second] = second, first
            touched = sorted({*owner[first].tolist(), *owner[second].tolist()} - {-1})
            changes.append({q: (draft.sites[q].grid, table[draft.sites[q].devices])
                            for q in touched})  # fmt: skip
        return self._changed(draft, changes)

    def _critical(self, draft: Draft) -> int:
        """The slowest stage, or the one that synchronises longest, or any."""
        found = self.prices.stage_seconds(draft)
        dice = self.rng.random()
        if found is None or dice < 0.3:
            return int(self.rng.integers(len(draft.sites)))
        return int(np.argmax(found[0] if dice < 0.8 else found[1]))

    def _pair(self, draft: Draft, critical: int) -> tuple[Ints, Ints]:
        """Two disjoint lists of alive devices, of one length, that trade places."""
        rng, alive = self.rng, self.alive
        count = len(alive)
        kind = rng.random()
        devices = draft.sites[critical].devices
        if kind < 0.45 or count < 4:
            one = devices.ravel()[int(rng.integers(devices.size))]
            other = alive[int(rng.integers(count))]
            return np.array([one]), np.array([other])
        if kind < 0.6:
            # two replicas' shares of a rank, or two ranks of a replica
            axis = int(rng.integers(2))
            size = devices.shape[axis]
            i, j = int(rng.integers(size)), int(rng.integers(size))
            rows = devices if axis == 0 else devices.T
            return rows[i], rows[j]
        if kind < 0.8:
            length = int(2 ** rng.integers(1, max(2, int(math.log2(count)))))
            starts = rng.integers(0, count - length + 1, size=2)
            if kind < 0.75:
                starts = starts // length * length
            if abs(int(starts[0] - starts[1])) < length:
                starts[1] = starts[0]
            return alive[starts[0] : starts[0] + length], alive[starts[1] : starts[1] + length]
        group = self.prices.cluster.group_of[:, alive]
        level = int(rng.integers(group.shape[0]))
        names = np.unique(group[level])
        i, j = (names[int(rng.integers(len(names)))] for _ in range(2))
        first, second = alive[group[level] == i], alive[group[level] == j]
        length = min(len(first), len(second))
        return first[:length], second[:length]

    def rearrange(self, draft: Draft) -> list[Draft]:
        """One stage, or two in a row, on the same devices in another order."""
        rng, stages = self.rng, len(draft.sites)
        width = 2 if stages > 1 and rng.random() < 0.4 else 1
        q = int(rng.integers(stages - width + 1))
        if width == 1 and rng.random() < 0.5:
            q = self._critical(draft)
        sites = draft.sites[q : q + width]
        grids = [site.grid for site in sites]
        held = np.concatenate([site.devices.ravel() for site in sites])
        roles = self.roles(draft.batch.replicas, grids)
        base = np.sort(held)
        if rng.random() < 0.3:
            line = random_line(self.prices.cluster, rng, grids[0].width)
            base = line[np.isin(line, held)]
        changes = []
        for order in self._orders(roles):
            deal = roles.place(order, base)
            changes.append({q + i: row for i, row in enumerate(zip(grids, deal, strict=True))})
        return self._changed(draft, changes)

    def _orders(self, roles: Roles) -> list[list[Ints]]:
        """Orders to deal by: those of whole axes and some of their factors."""
        half = max(2, self.batch // 2)
        mixed = [roles.mixed_order(self.rng) for _ in range(half)] if roles.digits else []
        return roles.orders(self.rng, half) + mixed

    def redeal(self, draft: Draft) -> list[Draft]:
        """The whole skeleton on another line."""
        s = Skeleton.of(draft)
        unit = max(grid.width for grid in s.grids)
        roles = self.roles(s.batch.replicas, s.grids)
        line = random_line(self.prices.cluster, self.rng, unit)
        return self.dealt(draft.order, s, [roles.place(o, line) for o in self._orders(roles)])

    def renumber(self, draft: Draft) -> list[Draft]:
        """The replicas of a stage in another order, which boundaries may like better."""
        d = draft.batch.replicas
        if d == 1 or len(draft.sites) == 1:
            return []
        changes: list[Change] = []
        for _ in range(self.batch // 2):
            q = int(self.rng.integers(len(draft.sites)))
            site = draft.sites[q]
            rows = self.rng.permutation(d)
            if self.rng.random() < 0.5:
                near = draft.sites[q - 1 if q else 1]
                rows = np.empty(d, np.int64)
                rows[np.argsort(near.low)] = np.argsort(site.low)
            changes.append({q: (site.grid, np.ascontiguousarray(site.devices[rows]))})
        return self._changed(draft, changes)

    # --- operators and degrees -------------------------------------------------------------------

    def recut(self, draft: Draft) -> list[Draft]:
        """Operators move from one stage to another, and the cuts between them with them."""
        stages = len(draft.ends)
        if stages == 1:
            return []
        found = self.prices.stage_seconds(draft)
        step = draft.batch.schedule.chunks
        out = [replace(draft, ends=self.skeletons.balanced(Skeleton.of(draft)).ends)]
        slow = self._critical(draft)
        fast = int(np.argmin(found[0])) if found is not None else 0
        for _ in range(2 * self.batch):
            dice = self.rng.random()
            source = slow if dice < 0.6 else int(self.rng.integers(stages))
            target = fast if 0.3 < dice < 0.5 else int(self.rng.integers(stages))
            by = step * int(self.rng.integers(1, 4 if self.rng.random() < 0.3 else 2))
            ends = list(draft.ends)
            for q in range(min(source, target), max(source, target)):
                ends[q] += by if source > target else -by
            if source != target:
                out.append(replace(draft, ends=tuple(ends)))
        if not self.prices.workload.is_chain:
            out += self._reordered(draft)
        return out

    def _reordered(self, draft: Draft) -> list[Draft]:
        """Two neighbouring stages of a graph with their operators in another topological order."""
        q = int(self.rng.integers(len(draft.ends) - 1))
        begin, cut, end = draft.begins[q], draft.ends[q], draft.ends[q + 1]
        out = []
        for _ in range(self.batch // 4 + 1):
            held = draft.order.operators[begin:end]
            mixed = shuffled(self.prices.workload, held, self.rng)
            operators = list(draft.order.operators)
            # inside a stage the order is free, so one of it is taken
            operators[begin:end] = sorted(mixed[: cut - begin]) + sorted(mixed[cut - begin :])
            if tuple(operators) != draft.order.operators:
                order = Order(self.prices.workload, self.prices.costs, operators)
                out.append(replace(draft, order=order))
        return out

    def regrid(self, draft: Draft) -> list[Draft]:
        """Other grids of the same width on the same devices, for a stage or for all."""
        stages, changes = len(draft.sites), []
        every = self.prices.space.uniform or self.rng.random() < 0.4
        q = int(self.rng.integers(stages))
        for grid in self.skeletons.grids:
            if grid.width != draft.sites[q].grid.width:
                continue
            which = [i for i in range(stages) if every or i == q]
            if all(draft.sites[i].grid.width == grid.width for i in which):
                changes.append({i: (grid, draft.sites[i].devices) for i in which})
        return self._changed(draft, changes[: 2 * self.batch])

    # --- skeletons -------------------------------------------------------------------------------

    def rebuild(self, draft: Draft) -> list[Draft]:
        """Skeletons near this one that may cost less, each with its best layout of a few."""
        around = Skeleton.of(draft)
        if draft.order is not self.skeletons.order:
            self.skeletons.follow(draft.order)
        drawn = [self.skeletons.mutation(around) for _ in range(_MUTATIONS)]
        distinct = list(dict.fromkeys(s for s in drawn if s is not None and s != around))
        if not distinct:
            return []
        estimates = self.skeletons.estimate(distinct)
        out = []
        for index in np.argsort(estimates, kind="stable")[:_BUILT].tolist():
            if math.isfinite(estimates[index]):
                out.append(self.built(distinct[index], few=len(self.alive) > _SMALL))
        return [each for each, value in out if each is not None and math.isfinite(value)]

    def built(self, s: Skeleton, *, few: bool = False) -> tuple[Draft | None, float]:
        """A skeleton with its best layout among the plain lines and orders, and its price."""
        roles = self.roles(s.batch.replicas, s.grids)
        unit = max(grid.width for grid in s.grids)
        lines = self.lines(unit)
        if few and len(lines) > 2:
            chosen = int(self.rng.integers(2, len(lines)))
            lines = [lines[0], lines[1], lines[chosen]]
        best, value = None, math.inf
        for line in lines:
            check()
            orders = roles.orders(self.rng, 6 if few else 24)
            deals = [roles.place(order, line) for order in orders]
            drafts = self.dealt(self.skeletons.order, s, deals)
            found = self.prices.price(drafts)
            i = int(np.argmin(found))
            if found[i] < value:
                best, value = drafts[i], float(found[i])
        return best, value
