"""Cases and scenarios: what the search loops over, with bounds that close most at a glance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.placement.dp.entries import spots_by_width
from nestopt.placement.dp.relaxed import best_sides, relaxed_classes
from nestopt.placement.dp.stagewise import Stagewise
from nestopt.placement.dp.tables import CLOSE, Batch, boundary_prices, floors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.dp.reduced import Columns
    from nestopt.placement.dp.search import Search
    from nestopt.placement.dp.stagewise import Left
    from nestopt.placement.model.schedules import PipelineSchedule
    from nestopt.placement.model.space import PlanSpace
    from nestopt.placement.model.workload import Workload
    from nestopt.placement.pricing.cost import Grid, Mode

    Floats = NDArray[np.float64]

__all__ = [
    "Case", "Outline", "Scenario", "all_cases", "cases_of", "expanded", "offered_by_any",
    "outlines", "raised",
]  # fmt: skip


_FEW = 2
"""So many scenarios that say the same of places are searched without a bound for all of them."""


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
    counts : tuple of (int, float) or None
        Numbers of stages to tell apart, where the schedule has to know it, with their bounds;
        None: all.
    least : float
        Another bound of all its plans.
    """

    batch: Batch
    grids: tuple[Grid, ...]
    modes: tuple[tuple[Mode, ...], ...]
    floor: Floats
    counts: tuple[tuple[int, float], ...] | None = None
    least: float = 0.0

    def bound(self, units: int) -> float:
        """The bound with `units` devices a replica."""
        return max(self.least, float(self.floor[min(units, len(self.floor) - 1)]))

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
    """Every batch of the space; the number of stages, where a schedule fixes it, is left open.

    With unequal shares the micro-batches are those that some replica takes at least.
    """
    found = []
    for d, b in space.batches(workload, devices):
        m = workload.global_batch // (d * b)
        for schedule in space.pipelines(workload):
            if schedule.stage_counts(m, _most(workload, devices // d, schedule)):
                found.append(Batch(d, b, m, schedule, 0))
    plain = [schedule for schedule in space.pipelines(workload) if not schedule.fixes_stages]
    for d, b in space.uneven_batches(workload, devices):
        # some replica takes so many: what bounds it bounds the plan
        m = math.ceil(workload.global_batch // b / d)
        found += [Batch(d, b, m, schedule, 0) for schedule in plain]
    return list(dict.fromkeys(found))


def _most(workload: Workload, units: int, schedule: PipelineSchedule) -> int:
    """The most stages of a pipeline on so many devices a replica."""
    return min(workload.num_operators // schedule.chunks, units)


def expanded(search: Search, case: Case) -> list[Case]:
    """A case for each number of stages, where the schedule has to know it."""
    batch = case.batch
    if not batch.schedule.fixes_stages:
        return [case]
    counts = dict.fromkeys(_counts(search, batch), case.least)
    if case.counts is not None:
        counts = dict(case.counts)
    return [
        replace(case, batch=batch._replace(stages=s), least=least) for s, least in counts.items()
    ]


def _counts(search: Search, batch: Batch) -> tuple[int, ...]:
    """Numbers of stages to search one by one; (0,) where the schedule need not know them."""
    most = _most(search.costs.workload, len(search.line.devices) // batch.replicas, batch.schedule)
    counts = batch.schedule.stage_counts(batch.microbatches, most)
    return tuple(s for s in counts if s != 1 or not search.has_plain_schedule)


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


class _Where(NamedTuple):
    """What a scenario says of places.

    Attributes
    ----------
    layout : str
        As `best_sides` takes it.
    apart : int
        Below this level no place holds the same rank of two replicas.
    devices : int
        A replica, at most.
    """

    layout: str
    apart: int
    devices: int


class Outline(NamedTuple):
    """A pair of replicas and micro-batch with its schedules, before anything is priced.

    Attributes
    ----------
    bound : float
        Of all its plans.
    columns : Columns
    batches : tuple of Batch
        One for each schedule.
    """

    bound: float
    columns: Columns
    batches: tuple[Batch, ...]


def outlines(search: Search) -> list[Outline]:
    """The outlines of all pairs of replicas and micro-batch, by bound.

    A bound falls as the chunks rise (a part of the sum of stage times gives way to as much of the
    largest), so the schedule of the most chunks bounds all of a pair.
    """
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
        most = max(group, key=lambda batch: batch.schedule.chunks)
        weights = most.schedule.weights(search.objective, most.microbatches)
        value, _ = columns.bound(pricer.counts, weights, alive // d, pricer.room)
        if math.isfinite(value):
            found.append(Outline(value, columns, tuple(group)))
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
    if outline.bound >= goal:
        return []
    offers = {}
    for batch in outline.batches:
        value, rise = _bound(search, outline.columns, batch, goal)
        if value < goal:
            offers[batch] = value + rise
    if not offers:
        return []
    rise = np.min(list(offers.values()), axis=0)
    keep = rise < goal
    counts: dict[Batch, Left | None] = dict.fromkeys(offers)
    if math.isfinite(goal) and most is None:
        counts, may = _stage_counts(search, outline, list(offers), goal)
        keep &= may
    if most is not None and keep.sum() > most:
        keep &= rise <= np.partition(rise[keep], most - 1)[most - 1]
    cases = []
    for grids, modes in _choices(search, outline.columns, keep):
        if search.space.uniform and math.isfinite(goal) and most is None:
            # a configuration for all stages: its own bound is far above that of any mix
            alone = _counts_alone(search, outline, grids[0], modes[0][0], list(counts), goal)
        else:
            alone = counts
        for batch, left in alone.items():
            search.stop()
            floor = _floor(search, batch, grids, modes)
            if math.isfinite(floor[-1]) and floor[-1] < incumbent:
                case = Case(batch, grids, modes, floor)
                if left is not None:
                    case = replace(case, counts=left.stages, least=left.bound)
                cases.append(case)
    return cases


def _stage_counts(
    search: Search, outline: Outline, batches: list[Batch], goal: float
) -> tuple[dict[Batch, Left | None], NDArray[np.bool_]]:
    """What is left of each batch that may reach less than a goal, and the columns of any."""
    counts: dict[Batch, Left | None] = {}
    keep = np.zeros(len(outline.columns.grid), dtype=np.bool_)
    replicas = outline.batches[0].replicas
    anywhere = _Where("", 0, len(search.line.devices) // replicas)
    stagewise = _stagewise(search, outline.columns, replicas, anywhere)
    for batch in batches:
        search.stop()
        left = stagewise.left(batch, _counts(search, batch), goal)
        if left.stages:
            counts[batch] = left
            keep |= left.keep
    return counts, keep


def _counts_alone(
    search: Search, outline: Outline, grid: Grid, mode: Mode, batches: list[Batch], goal: float
) -> dict[Batch, Left | None]:
    """What is left of each batch where every stage has the same column."""
    g = search.pricer.grids.index(grid)
    columns = outline.columns
    one = columns.of((columns.grid == g) & (columns.mode == search.pricer.modes[g].index(mode)))
    replicas = outline.batches[0].replicas
    anywhere = _Where("", 0, len(search.line.devices) // replicas)
    stagewise = _stagewise(search, one, replicas, anywhere)
    found = {batch: stagewise.left(batch, _counts(search, batch), goal) for batch in batches}
    return {batch: left for batch, left in found.items() if left.stages}


def _stagewise(search: Search, columns: Columns, replicas: int, where: _Where) -> Stagewise:
    """The bounds stage by stage of some columns."""
    widths, number = np.unique(columns.width.astype(np.int64), return_inverse=True)
    alpha, beta = best_sides(search.best, widths, replicas, where.layout)
    return Stagewise(
        search.pricer,
        columns,
        (alpha[number], beta[number]),
        float(search.lattice.cut[1:-1].min(initial=math.inf)),
        where.devices,
        search.objective,
    )


def _choices(
    search: Search, columns: Columns, keep: NDArray[np.bool_]
) -> list[tuple[tuple[Grid, ...], tuple[tuple[Mode, ...], ...]]]:
    """The grids and modes of the columns kept; in a uniform space each column alone."""
    if not keep.any():
        return []
    grids, modes = _kept(search, columns, keep)
    if search.space.uniform:
        return [((g,), ((m,),)) for g, row in zip(grids, modes, strict=True) for m in row]
    return [(grids, modes)]


def _kept(
    search: Search, columns: Columns, keep: NDArray[np.bool_]
) -> tuple[tuple[Grid, ...], tuple[tuple[Mode, ...], ...]]:
    """The grids of the columns kept, and the modes of each."""
    pricer = search.pricer
    chosen: dict[int, list[Mode]] = {}
    for g, m in zip(columns.grid[keep].tolist(), columns.mode[keep].tolist(), strict=True):
        chosen.setdefault(g, []).append(pricer.modes[g][m])
    return tuple(pricer.grids[g] for g in chosen), tuple(tuple(row) for row in chosen.values())


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


def offered_by_any(
    cases: Sequence[Case],
) -> tuple[tuple[Grid, ...], tuple[tuple[Mode, ...], ...]]:
    """The grids that any of some cases offers, and the modes of each."""
    found: dict[Grid, dict[Mode, None]] = {}
    for case in cases:
        for grid, modes in zip(case.grids, case.modes, strict=True):
            found.setdefault(grid, {}).update(dict.fromkeys(modes))
    return tuple(found), tuple(tuple(modes) for modes in found.values())


class _Narrow(NamedTuple):
    """A bound, infinite where no plan is below the goal, and the columns that such a plan has."""

    bound: float
    grids: tuple[Grid, ...]
    modes: tuple[tuple[Mode, ...], ...]


class _Raised:
    """Bounds of a case by what its scenarios say of places, each found once."""

    def __init__(self, search: Search, case: Case, goal: float) -> None:
        self._search, self._case, self._goal = search, case, goal
        self._stages: dict[_Where, _Narrow] = {}
        self._rows: dict[_Where, Floats] = {}

    def where(self, scenario: Scenario) -> _Where:
        """What a scenario says of places.

        In windows at least as long as the places of a level, no such place holds the same rank of
        two replicas, so their synchronisation leaves it.
        """
        most = self._search.best.most
        units = len(self._search.line.devices) // self._case.batch.replicas
        if scenario.layout == "inner":
            return _Where("inner", 0, units)
        # The outermost level has no uplink to cross, so it never counts.
        short = np.append(most[:-1] <= scenario.window, False)
        apart = int(np.argmin(short))
        if apart < len(most) - 1:
            units = min(units, int(most[apart]) - 1)
        return _Where("outer", apart, units)

    def by_stages(self, where: _Where) -> _Narrow:
        """The bound stage by stage, and what it leaves of the case."""
        if where not in self._stages:
            search, case = self._search, self._case
            search.stop()
            columns = search.pricer.columns(case.batch.replicas, case.batch.microbatch, where.apart)
            columns = columns.of(_offered(search, columns, case))
            found = _Narrow(math.inf, (), ())
            if len(columns.grid):
                tool = _stagewise(search, columns, case.batch.replicas, where)
                left = tool.left(case.batch, (case.batch.stages,), self._goal)
                if left.keep.any():
                    found = _Narrow(left.bound, *_kept(search, columns, left.keep))
            self._stages[where] = found
        return self._stages[where]

    def by_tables(self, where: _Where, units: int) -> float:
        """The bound of the relaxation with so many devices a replica."""
        if where not in self._rows:
            _, grids, modes = self.by_stages(where)
            self._rows[where] = self._search.relaxed_floor(
                grids, modes, self._case.batch, self._goal, where.apart, where.layout
            )
        row = self._rows[where]
        return float(row[min(units, len(row) - 1)])


def _offered(search: Search, columns: Columns, case: Case) -> NDArray[np.bool_]:
    """Which columns a case offers, (C,)."""
    modes = dict(zip(case.grids, case.modes, strict=True))
    return np.array(
        [
            search.pricer.modes[g][m] in modes.get(search.pricer.grids[g], ())
            for g, m in zip(columns.grid.tolist(), columns.mode.tolist(), strict=True)
        ],
        dtype=np.bool_,
    )


def raised(
    search: Search, case: Case, scenarios: list[Scenario], floor: Floats, goal: float
) -> list[Scenario]:
    """The scenarios of a case with their bounds raised by what they say of places.

    A scenario keeps the configurations alone that a plan below the goal may have there.

    Parameters
    ----------
    floor : float array (U + 1,)
        Bound by devices a replica.
    goal : float
        No bound need be higher, and none returned is by what holds below the goal only.
    """
    bounds = _Raised(search, case, goal)
    rows: list[Scenario] = []
    narrow: dict[_Where, Case] = {}
    open_by: dict[_Where, list[int]] = {}
    for index, scenario in enumerate(scenarios):
        units = _units(scenario)
        value = max(scenario.floor, float(floor[min(units, len(floor) - 1)]))
        if value < goal * CLOSE:
            where = bounds.where(scenario)
            bound, grids, modes = bounds.by_stages(where)
            value = max(value, min(bound, goal))
            if value < goal * CLOSE:
                if where not in narrow:
                    narrow[where] = replace(case, grids=grids, modes=modes)
                scenario = scenario._replace(case=narrow[where])
                open_by.setdefault(where, []).append(index)
        rows.append(scenario._replace(floor=value))
    for where, numbers in open_by.items():
        # the search of a few scenarios begins with such a bound, of its own places
        if len(numbers) > _FEW:
            for index in numbers:
                value = min(bounds.by_tables(where, _units(rows[index])), goal)
                rows[index] = rows[index]._replace(floor=max(rows[index].floor, value))
    return rows


def _units(scenario: Scenario) -> int:
    """Devices a replica."""
    inner = scenario.layout == "inner"
    return scenario.window // (scenario.case.batch.replicas if inner else 1)
