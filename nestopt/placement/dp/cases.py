"""Cases and scenarios: what the search loops over, with bounds that close most at a glance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.placement.dp.entries import spots_by_width
from nestopt.placement.dp.relaxed import best_sides, relaxed_classes
from nestopt.placement.dp.tables import CLOSE, Batch, boundary_prices, floors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nestopt.placement.dp.search import Search
    from nestopt.placement.model.space import PlanSpace
    from nestopt.placement.model.workload import Workload
    from nestopt.placement.pricing.cost import Grid, Mode

    Floats = NDArray[np.float64]

__all__ = ["Case", "Scenario", "all_cases", "batches", "raised"]


class Scenario(NamedTuple):
    """A case with a layout and a window, and its bound."""

    floor: float
    case: Case
    layout: str
    window: int


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A batch with the configurations offered to its stages.

    Attributes
    ----------
    floor : float array (U + 1,)
        Bound with ``u`` devices a replica, valid for the general space; constant behind its end.
    """

    batch: Batch
    grids: tuple[Grid, ...]
    modes: tuple[tuple[Mode, ...], ...]
    floor: Floats

    def bound(self, units: int) -> float:
        """The bound with `units` devices a replica."""
        return float(self.floor[min(units, len(self.floor) - 1)])

    def scenarios(self, layouts: tuple[str, ...], alive: int) -> list[Scenario]:
        """Layouts and windows; one replica has a single layout, the whole line."""
        d = self.batch.replicas
        rows = []
        if "inner" in layouts or d == 1:
            rows.append(Scenario(self.bound(alive // d), self, "inner", alive))
        if "outer" in layouts and d > 1:
            for window in range(alive // d, 0, -1):
                floor = self.bound(window)
                if math.isfinite(floor):
                    rows.append(Scenario(floor, self, "outer", window))
        return rows


def batches(workload: Workload, space: PlanSpace, devices: int) -> Iterator[Batch]:
    """Every batch of the space, with the number of stages if the schedule has to know it."""
    pipelines = space.pipelines(workload)
    for d, b in space.batches(workload, devices):
        m = workload.global_batch // (d * b)
        for schedule in pipelines:
            most = min(workload.num_operators // schedule.chunks, devices // d)
            for s in schedule.stage_counts(m, most):
                yield Batch(d, b, m, schedule, s)


def all_cases(search: Search) -> list[Case]:
    """Every case in which anything fits, by bound.

    A uniform space has a case for each configuration, otherwise there is one for each batch.
    """
    s = search.space
    alive = len(search.line.devices)
    grids = s.grids(search.costs.workload, alive)
    modes = [
        search.costs.modes(g, s.zero, s.recompute, s.sequence, s.overlap, s.hides) for g in grids
    ]
    choices = [(tuple(grids), tuple(modes))]
    if s.uniform:
        choices = [((g,), ((m,),)) for g, row in zip(grids, modes, strict=True) for m in row]
    cases = []
    for chosen_grids, chosen_modes in choices:
        for batch in batches(search.costs.workload, s, alive):
            search.stop()
            case = _case(search, batch, chosen_grids, chosen_modes)
            if case is not None:
                cases.append(case)
    return sorted(cases, key=lambda c: c.bound(alive // c.batch.replicas))


def _case(
    search: Search, batch: Batch, grids: tuple[Grid, ...], modes: tuple[tuple[Mode, ...], ...]
) -> Case | None:
    alive = len(search.line.devices)
    fitting = [
        (g, m)
        for g, m in zip(grids, modes, strict=True)
        if g.width * batch.replicas <= alive and batch.microbatch % g.sample_parts == 0
    ]
    if not fitting:
        return None
    kept = tuple(g for g, _ in fitting)
    kept_modes = tuple(m for _, m in fitting)
    floor = _floor(search, batch, kept, kept_modes)
    return Case(batch, kept, kept_modes, floor) if math.isfinite(floor[-1]) else None


def _floor(
    search: Search,
    batch: Batch,
    grids: tuple[Grid, ...],
    modes: tuple[tuple[Mode, ...], ...],
) -> Floats:
    lattice = search.lattice
    alive = len(search.line.devices)
    classes = relaxed_classes(search.line.cluster, search.best, grids, batch.replicas)
    widths, spots = spots_by_width(grids, classes)
    entries = search.entries(grids, modes, classes, spots, batch)
    operators = search.costs.workload.num_operators
    units = min(alive // batch.replicas, operators * int(widths.max()))
    if not len(entries.seconds):
        return np.full(units + 1, math.inf)
    alpha, beta = best_sides(search.best, widths, batch.replicas)
    prices = boundary_prices(lattice, batch, alpha, beta)
    weights = batch.schedule.weights(search.objective, batch.microbatches)
    held = float(batch.held(1)[1])
    return floors(lattice, entries, widths, units, prices, held, weights)


def raised(
    search: Search, case: Case, scenarios: list[Scenario], floor: Floats, goal: float
) -> list[Scenario]:
    """The scenarios of a case with their bounds raised, those of layout ``outer`` twice.

    In windows at least as long as the places of a level, no such place holds the same rank of two
    replicas, so their synchronisation leaves it.

    Parameters
    ----------
    floor : float array (U + 1,)
        Bound by devices a replica.
    goal : float
        No bound need be higher.
    """
    known = {0: floor}

    def at(apart: int, scenario: Scenario) -> Scenario:
        row = known[apart]
        units = scenario.window
        if scenario.layout == "inner":
            units //= case.batch.replicas
        value = float(row[min(units, len(row) - 1)])
        return scenario._replace(floor=max(scenario.floor, value))

    rows = []
    for scenario in scenarios:
        scenario = at(0, scenario)
        # The outermost level has no uplink to cross, so it never counts.
        short = np.append(search.best.most[:-1] <= scenario.window, False)
        apart = int(np.argmin(short))
        if scenario.layout == "outer" and apart > 0 and scenario.floor < goal * CLOSE:
            if apart not in known:
                known[apart] = search.relaxed_floor(case.grids, case.modes, case.batch, goal, apart)
            scenario = at(apart, scenario)
        rows.append(scenario)
    return rows
