"""Plans of a space with unequal replicas: starts, bounds and the exact search.

The space has the plans with equal shares, which the search of `nestopt.placement.dp.solve` covers,
and those that state their shares: several replicas, ZeRO 0 or 1, 1F1B or GPipe, any number of
replicas up to the micro-batches (``MODEL.md``, section 6). The latter are searched here, pair by
pair of replicas and micro-batch.

**Bound.** Some replica takes at least ``m = ceil(N / d)`` of N micro-batches, and its stages, on
its own devices, cost no less than in the position-free relaxation. So the relaxation with m for
every replica bounds all plans of a pair. Pairs, numbers of stages and configurations that it rules
out are not searched.

**Starts.** With equal speeds the equal search is the right one. So the types are blended, all
devices having the mean speed and the least memory, and the best equal plan there gets its best
shares on the real devices; likewise with all devices as fast as the fastest.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.stop import noticed, requested
from nestopt.placement.dp.cases import cases_of, expanded, outlines
from nestopt.placement.dp.tables import CLOSE
from nestopt.placement.dp.uneven_labels import UnevenScenario
from nestopt.placement.model.clock import Clock, SearchStopped
from nestopt.placement.model.words import ALL, ScheduleName, Shares
from nestopt.placement.pricing.cost import StageCosts
from nestopt.placement.pricing.evaluate import evaluate, launchable, with_best_shares

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.core.options import SolveOptions
    from nestopt.placement.dp.cases import Case
    from nestopt.placement.dp.search import Search
    from nestopt.placement.dp.solve import Outcome
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.space import PlanSpace

__all__ = ["UnevenSearch", "stated_space"]

_EQUAL_PART, _START_PART = 0.4, 0.2
"""Of the time that is left, for the equal plans and for each start."""
# As in the search of equal plans: a hair less than the gap allowed.
_HAIR = 1.0 - 1e-6


def stated_space(space: PlanSpace) -> PlanSpace | None:
    """The part of a space whose plans may state their shares; None if there is none."""
    zero = tuple(z for z in space.zero if z < 2)
    schedules = tuple(s for s in space.schedules if s is not ScheduleName.INTERLEAVED)
    if space.shares is Shares.EQUAL or not zero or not schedules:
        return None
    return replace(space, zero=zero, schedules=schedules, chunks=ALL)


def _blends(cluster: Cluster) -> list[Cluster]:
    """The cluster with its device types alike: as fast as the mean, and as the fastest."""
    kinds, counts = np.unique(cluster.type_of[cluster.alive], return_counts=True)
    if len(kinds) < 2:
        return []
    present = [cluster.types[i] for i in kinds]
    least = min(t.usable for t in present)
    found = []
    fastest = max(present, key=lambda t: t.peak * t.efficiency)
    for rates in (counts / counts.sum(), np.array([float(t is fastest) for t in present])):
        peak, bandwidth, half = (
            float(rates @ np.array([getattr(t, name) for t in present]))
            for name in ("peak", "memory_bandwidth", "half_flops")
        )
        speed = float(rates @ np.array([t.peak * t.efficiency for t in present]))
        alike = {
            "peak": peak, "memory_bandwidth": bandwidth, "half_flops": half, "memory": least,
            "reserve": 0.0, "efficiency": speed / peak,
        }  # fmt: skip
        found.append(cluster.with_types([replace(t, **alike) for t in cluster.types]))
    return found


class UnevenSearch:
    """The search of a space with unequal replicas.

    Parameters
    ----------
    instance : PlacementInstance
    options : SolveOptions
    equal : callable
        Searches an instance with equal shares.
    make : callable
        Makes the search of an instance, nothing searched yet.
    """

    def __init__(
        self,
        instance: PlacementInstance,
        options: SolveOptions,
        equal: Callable[[PlacementInstance, SolveOptions], Outcome],
        make: Callable[[PlacementInstance, Callable[[], None]], Search],
    ) -> None:
        self.instance, self.options = instance, options
        self.equal, self.make = equal, make
        self.clock = Clock(options.time_limit)
        self.costs = StageCosts(instance.workload)
        self.stats: dict[str, Any] = {"pairs": 0, "uneven_scenarios": 0, "uneven_labels": 0}

    def run(self) -> Outcome:
        """The best plan of the whole space, with bounds as in the search of equal plans."""
        stated = stated_space(self.instance.space)
        plain = replace(self.instance.space, shares=Shares.EQUAL)
        part = 1.0 if stated is None else _EQUAL_PART
        state = self.equal(self.instance.over(plain), self._within(part))
        if stated is None or state.limit == "interrupted" or requested():
            return self._unsearched(state, stated)
        floor = general = -math.inf
        limit = None
        try:
            self._offer(state, state.plan)
            for start in self._starts(stated):
                self._offer(state, start)
            floor, general = self._search(state, self.instance.over(stated))
        except SearchStopped as stopped:
            noticed()
            limit, floor, general = stopped.limit, self.floor, self.general
        except KeyboardInterrupt:
            noticed()
            limit, floor, general = "interrupted", self.floor, self.general
        state.limit = state.limit or limit
        state.bound = min(state.bound, floor, state.objective)
        state.general_bound = min(state.general_bound, general, state.bound)
        state.stats |= self.stats
        return state

    floor = general = -math.inf

    def _unsearched(self, state: Outcome, stated: PlanSpace | None) -> Outcome:
        """The equal plans' outcome: all there is, or all that there was time for."""
        if stated is not None:
            state.bound = state.general_bound = -math.inf
            state.limit = state.limit or "time"
        return state

    def _within(self, part: float) -> SolveOptions:
        left = self.clock.left
        limit = left if math.isinf(left) else max(0.0, part * left)
        return replace(self.options, time_limit=limit)

    def _starts(self, stated: PlanSpace) -> list[Plan]:
        """The best equal plans of blended clusters."""
        plain = replace(stated, shares=Shares.EQUAL)
        found = []
        for cluster in _blends(self.instance.cluster):
            blended = replace(self.instance, cluster=cluster, space=plain)
            quick = replace(self._within(_START_PART), progress=None)
            outcome = self.equal(blended, quick)
            self.clock.check()
            if outcome.plan is not None:
                found.append(outcome.plan)
        return found

    def _offer(self, state: Outcome, plan: Plan | None) -> None:
        """Give a plan its best shares, and keep it if it is better."""
        if plan is None:
            return
        workload, cluster = self.instance.workload, self.instance.cluster
        better = with_best_shares(workload, cluster, plan, self.costs)
        if better is None or self.instance.space.admits(better, cluster) is not None:
            return
        value = evaluate(workload, cluster, better, self.costs).iteration_time
        if value < state.objective * CLOSE:
            self._keep(state, value, better)

    def _keep(self, state: Outcome, value: float, plan: Plan) -> None:
        workload, cluster = self.instance.workload, self.instance.cluster
        plan = launchable(workload, cluster, plan, self.costs)
        state.objective, state.plan = value, plan
        if self.options.progress is not None:
            self.options.progress(self.clock.seconds, value, state.bound, "dp, unequal shares")

    # --- the exact search ------------------------------------------------------------------------

    def _search(self, state: Outcome, instance: PlacementInstance) -> tuple[float, float]:
        """Search all that the bounds leave open; bounds of structured and of all stated plans."""
        if not len(instance.cluster.alive):
            return math.inf, math.inf
        search = self.make(instance, self.clock.check)
        keep = 1.0 - self.options.rel_gap * _HAIR
        known = [o for o in outlines(search) if o.batches[0].replicas > 1]
        self.floor = self.general = min((o.bound for o in known), default=math.inf)
        rows: list[tuple[float, int, Case]] = []
        for outline in known:
            if outline.bound >= state.objective * CLOSE:
                break
            self.stats["pairs"] += 1
            for root in cases_of(search, outline, state.objective):
                for case in expanded(search, root):
                    row = search.relaxed_floor(case.grids, case.modes, case.batch, state.objective)
                    rows.append((max(float(row[-1]), case.least), len(rows), case))
        self.general = min([state.objective, *(row[0] for row in rows)])
        hidden = math.inf
        for floor, _, case in sorted(rows):
            # what was ruled out before costs no less than the incumbent of then
            self.floor = min(floor, hidden, state.objective)
            if floor >= state.objective * keep * CLOSE:
                break
            hidden = min(hidden, max(floor, state.objective * keep))
            self._search_case(search, case, state, keep)
        else:
            self.floor = min(hidden, state.objective)
        return self.floor, self.general

    def _search_case(self, search: Search, case: Case, state: Outcome, keep: float) -> None:
        alive = len(search.line.devices)
        for scenario in case.scenarios(search.space.layouts, alive):
            if scenario.floor >= state.objective * keep * CLOSE:
                continue
            self.stats["uneven_scenarios"] += 1
            exact = UnevenScenario(
                search, case, scenario.layout, scenario.window, state.objective * keep
            )
            try:
                exact.run()
            finally:
                self.stats["uneven_labels"] += exact.labels
                if exact.plan is not None:
                    self._keep(state, exact.value, exact.plan)
