"""Prices of drafts, many at once and only as far as they are new.

Every figure comes of the stage-cost module (`nestopt.placement.pricing`). What is added here is
memory: a stage that has been priced is looked up, and those that are new are priced together, in
one call for all stages of one grid.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from nestopt.core.stop import check
from nestopt.placement.lns.draft import Batch, Draft, Order, Site, order_of
from nestopt.placement.model.grid import Grid, Mode, config_of, grid_of
from nestopt.placement.model.plan import Plan, Stage
from nestopt.placement.pricing.comm import Network, families_of, family_profiles, side_profiles
from nestopt.placement.pricing.cost import StageCosts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.schedules import Weights
    from nestopt.placement.pricing.cost import Blocks

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = ["Group", "Prices"]

_KEPT = 200_000
"""Entries of a memory before it is emptied."""
_KEPT_DEVICES = 8_000_000
"""Devices in the sites that are remembered."""


class Group(NamedTuple):
    """Stages that are priced in one call: grid, replicas, micro-batch, device types."""

    grid: Grid
    replicas: int
    microbatch: int
    kinds: tuple[int, ...]


class _Menu(NamedTuple):
    """What a stage costs by mode: seconds and synchronisation (M,), bytes (M,) twice."""

    seconds: Floats
    sync: Floats
    fixed: Floats
    stored: Floats


class _Front(NamedTuple):
    """The modes of a stage that fit and that no other beats: seconds, synchronisation, index."""

    seconds: Floats
    sync: Floats
    modes: Ints


class Prices:
    """The prices of an instance's drafts.

    Attributes
    ----------
    space : PlanSpace
    alive : int array
        The devices that may be used.
    """

    def __init__(self, instance: PlacementInstance) -> None:
        self.instance = instance
        self.workload, self.cluster, self.space = (
            instance.workload, instance.cluster, instance.space,
        )  # fmt: skip
        self.costs = StageCosts(self.workload)
        self.network = Network.of(self.cluster)
        self.alive = self.cluster.alive
        self.repeated: Flags = np.bincount(self.costs.kind_of) > 1
        self._experts = self.costs.expert_kinds()
        self._modes: dict[Grid, tuple[Mode, ...]] = {}
        self._allowed: dict[Grid, Flags] = {}
        self._families: dict[tuple[Grid, int], tuple[Ints, ...]] = {}
        self._sites: dict[tuple[Grid, int, bytes], Site] = {}
        self._held = 0
        self._rates: dict[tuple[Group, bytes], Floats] = {}
        self._menus: dict[tuple[Group, bytes, bytes], _Menu] = {}
        self._fronts: dict[tuple[Group, bytes, bytes, float], _Front] = {}

    # --- drafts and plans ------------------------------------------------------------------------

    def draft(self, plan: Plan) -> Draft:
        """The draft of a plan."""
        batch = Batch(plan.replicas, plan.microbatch, plan.pipeline)
        ends = np.cumsum([len(stage.operators) for stage in plan.stages])
        sites = self.sites(
            [(grid_of(stage.config), np.asarray(stage.devices, np.int64)) for stage in plan.stages]
        )
        order = Order(self.workload, self.costs, order_of(plan))
        return Draft(order, batch, tuple(map(int, ends)), tuple(sites))

    def plan(self, draft: Draft) -> Plan | None:
        """The plan of a draft with the best modes; None if it does not fit."""
        _, modes = self._combined(draft)
        if modes is None:
            return None
        stages = []
        for q, (begin, end) in enumerate(zip(draft.begins, draft.ends, strict=True)):
            site = draft.sites[q]
            operators = tuple(sorted(draft.order.operators[begin:end]))
            config = config_of(site.grid, self.modes(site.grid)[int(modes[q])])
            stages.append(Stage(operators, config, site.devices))
        b = draft.batch
        return Plan(tuple(stages), b.replicas, b.microbatch, b.schedule.name, b.schedule.chunks)

    def modes(self, grid: Grid) -> tuple[Mode, ...]:
        """The modes that the space offers a grid."""
        if grid not in self._modes:
            s = self.space
            self._modes[grid] = self.costs.modes(
                grid, s.zero, s.recompute, s.sequence, s.overlap, s.hides
            )
        return self._modes[grid]

    # --- what is a plan at all -------------------------------------------------------------------

    def suits(self, order: Order, begin: int, end: int, grid: Grid) -> bool:
        """Whether the operators of a stage can be split by a grid."""
        if grid not in self._allowed:
            self._allowed[grid] = self.costs.allowed(grid)
        held = order.counts[end] - order.counts[begin] > 0
        if not self._allowed[grid][held].all():
            return False
        return grid.e == 1 or bool(self._experts[held].any())

    def is_plan(self, draft: Draft) -> bool:
        """Whether a draft is a plan of the space, memory and devices apart."""
        d, b, schedule = draft.batch
        m = self.workload.global_batch // (d * b)
        stages = len(draft.ends)
        if not schedule.suits(m, stages):
            return False
        grids = [site.grid for site in draft.sites]
        if self.space.uniform and len(set(grids)) > 1:
            return False
        spans = list(zip(draft.begins, draft.ends, grids, strict=True))
        if any(begin >= end or b % grid.sample_parts for begin, end, grid in spans):
            return False
        if not all(self.suits(draft.order, begin, end, grid) for begin, end, grid in spans):
            return False
        if schedule.chunks == 1:
            return True
        held = np.stack([draft.order.counts[j] - draft.order.counts[i] for i, j, _ in spans])
        return bool(schedule.divides(held, self.repeated).all())

    # --- sites -----------------------------------------------------------------------------------

    def sites(self, wanted: Sequence[tuple[Grid, Ints]]) -> list[Site]:
        """The sites of grids and devices (d, w), those that are new priced together."""
        keys = [(grid, len(devices), devices.tobytes()) for grid, devices in wanted]
        fresh: dict[tuple[Grid, int], dict[tuple[Grid, int, bytes], Ints]] = {}
        known: dict[tuple[Grid, int, bytes], Site] = {}
        for key, (grid, devices) in zip(keys, wanted, strict=True):
            site = self._sites.get(key)
            if site is None:
                fresh.setdefault((grid, len(devices)), {})[key] = devices
            else:
                known[key] = site
        if self._held > _KEPT_DEVICES or len(self._sites) > _KEPT:
            self._sites.clear()
            self._held = 0
        for (grid, d), rows in fresh.items():
            check()
            for key, site in zip(rows, self._priced(grid, d, list(rows.values())), strict=True):
                known[key] = self._sites[key] = site
                self._held += site.devices.size
        return [known[key] for key in keys]

    def profiles(self, grid: Grid, d: int, layouts: Ints) -> Floats:
        """The profiles of the families on many layouts (P, d*w), (P, 7, entries).

        A family of single devices costs nothing and stays zero.
        """
        count, size = layouts.shape
        if (grid, d) not in self._families:
            self._families[grid, d] = families_of(np.arange(size).reshape(d, -1), *grid)
        out = np.zeros((count, 7, self.network.entries))
        starts = np.arange(count) * size
        line = np.ascontiguousarray(layouts).ravel()
        last = None
        for row, family in enumerate(self._families[grid, d]):
            if family.shape[1] == 1:
                continue
            if row == 6 and grid.e == 1 and last is not None:
                # without experts apart both syncs are over the same groups
                out[:, 6] = last
                continue
            last = family_profiles(self.network, line, starts, family)
            out[:, row] = last
        return out

    def _priced(self, grid: Grid, d: int, rows: list[Ints]) -> list[Site]:
        layouts = np.stack([devices.ravel() for devices in rows])
        count, size = layouts.shape
        profiles = self.profiles(grid, d, layouts)
        starts = np.arange(count) * size
        sides = side_profiles(self.network, layouts.ravel(), starts, np.arange(size), grid.width)
        kinds: Iterable[tuple[int, ...]] = [(int(self.cluster.type_of[layouts[0, 0]]),)] * count
        if len(self.cluster.types) > 1:
            kinds = [tuple(np.unique(row).tolist()) for row in self.cluster.type_of[layouts]]
        return [
            Site(grid, devices, profiles[i], kind, sides[i])
            for i, (devices, kind) in enumerate(zip(rows, kinds, strict=True))
        ]

    # --- stages ----------------------------------------------------------------------------------

    def price(self, drafts: Sequence[Draft]) -> Floats:
        """The objective of each draft, inf where one does not fit or is no plan."""
        plans = [draft if self.is_plan(draft) else None for draft in drafts]
        self._fill([draft for draft in plans if draft is not None])
        values = np.full(len(drafts), math.inf)
        for index, draft in enumerate(plans):
            if draft is not None:
                values[index] = self._combined(draft)[0]
        return values

    def _fill(self, drafts: Iterable[Draft]) -> None:
        """Price the stages of drafts that are new, together where they are alike."""
        if len(self._menus) > _KEPT or len(self._rates) > _KEPT // 10:
            for memory in (self._menus, self._rates, self._fronts):
                memory.clear()
        wanted: dict[Group, dict[tuple[bytes, bytes], tuple[Site, Blocks]]] = {}
        for draft in drafts:
            d, b, _ = draft.batch
            for site, begin, end in zip(draft.sites, draft.begins, draft.ends, strict=True):
                group = Group(site.grid, d, b, site.kinds)
                pair = site.key, draft.order.key(begin, end)
                if (group, *pair) not in self._menus and pair not in wanted.get(group, ()):
                    row = wanted.setdefault(group, {})
                    row[pair] = site, draft.order.block(begin, end)
        for group, rows in wanted.items():
            check()
            self._fill_group(group, rows)

    def _fill_group(
        self, group: Group, rows: dict[tuple[bytes, bytes], tuple[Site, Blocks]]
    ) -> None:
        """The menus of a grid's stages: every pair of a profile and a block."""
        grid, d, b, kinds = group
        modes, types = self.modes(grid), [self.cluster.types[k] for k in kinds]
        profiles = {key[0]: site.profile for key, (site, _) in rows.items()}
        new = [key for key in profiles if (group, key) not in self._rates]
        if new:
            stacked = np.stack([profiles[key] for key in new])
            found = self.costs.rates(grid, modes, b, d, stacked, types)
            self._rates |= {(group, key): found[i] for i, key in enumerate(new)}
        by_block: dict[bytes, list[bytes]] = {}
        for profile, name in rows:
            by_block.setdefault(name, []).append(profile)
        for name, held in by_block.items():
            block = rows[held[0], name][1]
            stacked = np.stack([profiles[key] for key in held])
            sync = self.costs.sync(block, grid, modes, b, d, stacked, types)
            memory = self.costs.memory(block, grid, modes, b, d)
            for i, key in enumerate(held):
                seconds = block.counts[0] @ self._rates[group, key]
                self._menus[group, key, name] = _Menu(
                    seconds, sync[i, 0], memory.fixed[0], memory.stored[0]
                )

    def group(self, site: Site, batch: Batch) -> Group:
        """What the stages of a site are priced together with."""
        return Group(site.grid, batch.replicas, batch.microbatch, site.kinds)

    def rates(self, group: Group, profile: Floats) -> Floats:
        """Seconds per operator of each kind and mode on a profile, (K, M)."""
        key = group, profile.tobytes()
        if key not in self._rates:
            types = [self.cluster.types[k] for k in group.kinds]
            self._rates[key] = self.costs.rates(
                group.grid, self.modes(group.grid), group.microbatch, group.replicas, profile, types
            )
        return self._rates[key]

    def menu(self, draft: Draft, q: int) -> _Menu:
        """What stage q costs by mode, without boundaries; priced before."""
        site, d, b = draft.sites[q], draft.batch.replicas, draft.batch.microbatch
        block = draft.order.key(draft.begins[q], draft.ends[q])
        return self._menus[Group(site.grid, d, b, site.kinds), site.key, block]

    def _front(self, draft: Draft, q: int) -> _Front:
        """The modes of stage q that fit and count."""
        d, b, schedule = draft.batch
        stages = len(draft.ends)
        m = self.workload.global_batch // (d * b)
        held = schedule.in_flight(m, stages - q, stages)
        site = draft.sites[q]
        group = Group(site.grid, d, b, site.kinds)
        key = group, site.key, draft.order.key(draft.begins[q], draft.ends[q]), held
        found = self._fronts.get(key)
        if found is None:
            menu = self._menus[key[:3]]
            room = min(self.cluster.types[k].usable for k in site.kinds)
            found = self._fronts[key] = _front_of(menu, menu.fixed + held * menu.stored <= room)
        return found

    # --- whole drafts ----------------------------------------------------------------------------

    def crossings(self, draft: Draft) -> Floats:
        """Seconds of the boundaries before and behind each stage, (s,)."""
        stages = len(draft.sites)
        out = np.zeros(stages)
        for q in range(stages - 1):
            left, right = draft.sites[q], draft.sites[q + 1]
            level = _level(self.network.group_of, left.low, left.high, right.low, right.high)
            alpha = max(left.side[1, level], right.side[1, level])
            beta = max(left.side[0, level], right.side[0, level])
            volume = draft.batch.microbatch * draft.order.cut(draft.ends[q])
            x = draft.batch.schedule.crossings * (alpha + volume * beta)
            out[q] += x
            out[q + 1] += x
        return out

    def stage_seconds(self, draft: Draft) -> tuple[Floats, Floats] | None:
        """Seconds and synchronisation of every stage at the best modes; None if it does not fit."""
        _, modes = self._combined(draft)
        if modes is None:
            return None
        menus = [self.menu(draft, q) for q in range(len(draft.sites))]
        pairs = list(zip(menus, modes.tolist(), strict=True))
        seconds = np.array([menu.seconds[mode] for menu, mode in pairs])
        return seconds + self.crossings(draft), np.array([menu.sync[i] for menu, i in pairs])

    def _combined(self, draft: Draft) -> tuple[float, Ints | None]:
        """The objective of a priced draft and the mode of every stage."""
        d, b, schedule = draft.batch
        m = self.workload.global_batch // (d * b)
        weights = schedule.weights(self.instance.objective, m)
        across = self.crossings(draft)
        if self.space.uniform:
            return self._uniform(draft, across, weights)
        fronts = [self._front(draft, q) for q in range(len(draft.sites))]
        if not all(len(front.modes) for front in fronts):
            return math.inf, None
        sizes = np.array([len(front.modes) for front in fronts])
        starts = np.cumsum(sizes) - sizes
        seconds = np.concatenate([f.seconds for f in fronts]) + np.repeat(across, sizes)
        sync = np.concatenate([f.sync for f in fronts])
        value, chosen = _choose(starts, sizes, seconds, sync, *weights)
        modes = [int(f.modes[i]) for f, i in zip(fronts, chosen.tolist(), strict=True)]
        return float(value), np.array(modes)

    def _uniform(self, draft: Draft, across: Floats, weights: Weights) -> tuple[float, Ints | None]:
        """The same with one mode for all stages."""
        d, b, schedule = draft.batch
        stages = len(draft.sites)
        m = self.workload.global_batch // (d * b)
        seconds, sync = [], []
        for q in range(stages):
            menu = self.menu(draft, q)
            held = schedule.in_flight(m, stages - q, stages)
            room = min(self.cluster.types[k].usable for k in draft.sites[q].kinds)
            fits = menu.fixed + held * menu.stored <= room
            seconds.append(np.where(fits, menu.seconds + across[q], math.inf))
            sync.append(menu.sync)
        t, s = np.stack(seconds), np.stack(sync)
        finite = np.isfinite(t).all(axis=0)
        if not finite.any():
            return math.inf, None
        t = np.where(finite, t, 1e200)
        values = (
            weights.total * t.sum(axis=0)
            + weights.largest * t.max(axis=0)
            + weights.sync * s.max(axis=0)
        )
        best = int(np.argmin(np.where(finite, values, math.inf)))
        return float(values[best]), np.full(stages, best)


def _front_of(menu: _Menu, fits: Flags) -> _Front:
    """The modes that fit, without those that another beats in both figures, fastest first."""
    offered = np.flatnonzero(fits)
    rows = offered[np.lexsort((offered, menu.sync[offered], menu.seconds[offered]))]
    kept, least = [], math.inf
    for row in rows.tolist():
        if menu.sync[row] < least:
            kept.append(row)
            least = menu.sync[row]
    chosen = np.array(kept, dtype=np.int64)
    return _Front(menu.seconds[chosen], menu.sync[chosen], chosen)


@njit(cache=True, nogil=True)
def _choose(
    starts: Ints,
    sizes: Ints,
    seconds: Floats,
    sync: Floats,
    total: float,
    largest: float,
    last: float,
) -> tuple[float, Ints]:
    """One row of each stage with the least objective.

    Rows of a stage are ascending in seconds and descending in synchronisation. Under a limit for
    the synchronisation each stage takes its first row within it, so all limits are tried.
    """
    stages = len(starts)
    best = np.inf
    limit = np.inf
    for i in range(len(sync)):
        top = sync[i]
        some, most, late = 0.0, 0.0, 0.0
        for q in range(stages):
            row = starts[q]
            end = row + sizes[q]
            while row < end and sync[row] > top:
                row += 1
            if row == end:
                some = np.inf
                break
            some += seconds[row]
            most = max(most, seconds[row])
            late = max(late, sync[row])
        value = total * some + largest * most + last * late
        if value < best:
            best = value
            limit = top
    chosen = np.zeros(stages, np.int64)
    for q in range(stages):
        while sync[starts[q] + chosen[q]] > limit:
            chosen[q] += 1
    return best, chosen


@njit(cache=True, nogil=True)
def _level(group_of: Ints, low: Ints, high: Ints, low_next: Ints, high_next: Ints) -> int:
    """The level of the boundary between two stages."""
    highest = 0
    for r in range(len(low)):
        first = min(low[r], low_next[r])
        last = max(high[r], high_next[r])
        while group_of[highest, first] != group_of[highest, last]:
            highest += 1
    return highest
