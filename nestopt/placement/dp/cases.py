"""Cases and scenarios: what the search loops over, with bounds that close most at a glance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.placement.dp.any_chunks import AnyChunks
from nestopt.placement.dp.entries import spots_by_width
from nestopt.placement.dp.relaxed import best_sides, relaxed_classes
from nestopt.placement.dp.tables import CLOSE, Batch, boundary_prices, floors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.dp.reduced import Columns
    from nestopt.placement.dp.search import Search
    from nestopt.placement.model.schedules import PipelineSchedule
    from nestopt.placement.model.space import PlanSpace
    from nestopt.placement.model.workload import Workload
    from nestopt.placement.pricing.cost import Grid, Mode

    Floats = NDArray[np.float64]

__all__ = ["Case", "Outline", "Scenario", "all_cases", "cases_of", "expanded", "outlines", "raised"]


_WORTH_CLOSING_AT_ONCE = 3
"""Numbers of chunks from which one bound for all of them is tried first."""


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


def _batches(workload: Workload, space: PlanSpace, devices: int) -> list[Batch]:
    """Every batch of the space; the number of stages, where a schedule fixes it, is left open."""
    found = []
    for d, b in space.batches(workload, devices):
        m = workload.global_batch // (d * b)
        for schedule in space.pipelines(workload):
            if schedule.stage_counts(m, _most(workload, devices // d, schedule)):
                found.append(Batch(d, b, m, schedule, 0))
    return found


def _most(workload: Workload, units: int, schedule: PipelineSchedule) -> int:
    """The most stages of a pipeline on so many devices a replica."""
    return min(workload.num_operators // schedule.chunks, units)


def expanded(search: Search, case: Case) -> list[Case]:
    """A case for each number of stages, where the schedule has to know it."""
    batch = case.batch
    if not batch.schedule.fixes_stages:
        return [case]
    most = _most(search.costs.workload, len(search.line.devices) // batch.replicas, batch.schedule)
    return [
        replace(case, batch=batch._replace(stages=s))
        for s in batch.schedule.stage_counts(batch.microbatches, most)
        if s > 1 or not search.has_plain_schedule
    ]


def all_cases(search: Search, incumbent: float = math.inf) -> list[Case]:
    """Every case in which anything fits and may cost less than the incumbent, by bound.

    A uniform space has a case for each configuration, otherwise there is one for each batch. The
    number of stages is open (`expanded`). Batches and configurations that `reduced` rules out are
    not priced.
    """
    found = []
    for outline in outlines(search):
        if outline.bound >= incumbent * CLOSE:
            break
        found += cases_of(search, outline, incumbent)
    alive = len(search.line.devices)
    return sorted(found, key=lambda c: c.bound(alive // c.batch.replicas))


class Outline(NamedTuple):
    """A pair of replicas and micro-batch with its schedules, before anything is priced.

    Attributes
    ----------
    bound : float
        Of all its plans.
    columns : Columns
    offers : tuple of (Batch, float, float array (C,))
        Of each schedule the batch, its bound, and by how much it rises where a column is used.
    """

    bound: float
    columns: Columns
    offers: tuple[tuple[Batch, float, Floats], ...]


def outlines(search: Search) -> list[Outline]:
    """The outlines of all pairs of replicas and micro-batch, by bound."""
    workload, space = search.costs.workload, search.space
    alive = len(search.line.devices)
    pricer = search.pricer
    grouped: dict[tuple[int, int], list[Batch]] = {}
    for batch in _batches(workload, space, alive):
        grouped.setdefault((batch.replicas, batch.microbatch), []).append(batch)
    found = []
    for (d, b), group in grouped.items():
        search.stop()
        columns = pricer.columns(d, b)
        offers = []
        for batch in group:
            value, rise = _bound(search, columns, batch, math.inf)
            if math.isfinite(value):
                offers.append((batch, value, rise))
        if offers:
            least = min(value for _, value, _ in offers)
            found.append(Outline(least, columns, tuple(offers)))
    return sorted(found, key=lambda o: o.bound)


def _bound(search: Search, columns: Columns, batch: Batch, goal: float) -> tuple[float, Floats]:
    pricer = search.pricer
    weights = batch.schedule.weights(search.objective, batch.microbatches)
    units = len(search.line.devices) // batch.replicas
    return columns.bound(pricer.counts, weights, units, pricer.room, batch.schedule.chunks, goal)


def cases_of(
    search: Search, outline: Outline, incumbent: float = math.inf, most: int | None = None
) -> list[Case]:
    """The cases of an outline that may cost less than the incumbent.

    Parameters
    ----------
    most : int, optional
        Only the grids of so many columns that raise the bound least; then the bounds hold for no
        other plans.
    """
    goal = incumbent * CLOSE
    offers = []
    for batch, value, rise in outline.offers:
        if value >= goal:
            continue
        if batch.schedule.chunks > 1:
            value, rise = _bound(search, outline.columns, batch, goal)
        if value < goal:
            offers.append((batch, value, rise))
    if not offers:
        return []
    rise = np.min([value + r for _, value, r in offers], axis=0)
    keep = rise < goal
    if most is not None and keep.sum() > most:
        keep &= rise <= np.partition(rise, most - 1)[most - 1]
    choices = _choices(search, outline.columns, keep)
    cases = []
    for grids, modes in choices:
        open_batches = [batch for batch, _, _ in offers]
        if math.isfinite(incumbent):
            open_batches = _without_hopeless_chunks(search, open_batches, grids, modes, incumbent)
        for batch in open_batches:
            search.stop()
            floor = _floor(search, batch, grids, modes)
            if math.isfinite(floor[-1]) and floor[-1] < incumbent:
                cases.append(Case(batch, grids, modes, floor))
    return cases


def _without_hopeless_chunks(
    search: Search,
    batches: list[Batch],
    grids: tuple[Grid, ...],
    modes: tuple[tuple[Mode, ...], ...],
    incumbent: float,
) -> list[Batch]:
    """The batches without those of interleaving that one bound for several closes.

    Numbers of chunks are halved until they are few.
    """

    def left(cut: list[Batch]) -> list[Batch]:
        if len(cut) < _WORTH_CLOSING_AT_ONCE:
            return cut
        chunks = [batch.schedule.chunks for batch in cut]
        joint = cut[0]._replace(schedule=AnyChunks(min(chunks), max(chunks)))
        if _floor(search, joint, grids, modes)[-1] >= incumbent * CLOSE:
            return []
        if search.relaxed_floor(grids, modes, joint, incumbent)[-1] >= incumbent * CLOSE:
            return []
        middle = len(cut) // 2
        return left(cut[:middle]) + left(cut[middle:])

    cut = sorted((b for b in batches if b.schedule.chunks > 1), key=lambda b: b.schedule.chunks)
    return [b for b in batches if b.schedule.chunks == 1] + left(cut)


def _choices(
    search: Search, columns: Columns, keep: NDArray[np.bool_]
) -> list[tuple[tuple[Grid, ...], tuple[tuple[Mode, ...], ...]]]:
    """The grids and modes of the columns kept; in a uniform space each column alone."""
    pricer = search.pricer
    chosen: dict[int, list[Mode]] = {}
    for g, m in zip(columns.grid[keep].tolist(), columns.mode[keep].tolist(), strict=True):
        chosen.setdefault(g, []).append(pricer.modes[g][m])
    if search.space.uniform:
        return [((pricer.grids[g],), ((m,),)) for g, row in chosen.items() for m in row]
    if not chosen:
        return []
    return [(tuple(pricer.grids[g] for g in chosen), tuple(tuple(row) for row in chosen.values()))]


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
