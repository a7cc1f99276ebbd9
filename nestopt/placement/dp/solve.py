"""The method ``dp``: exact over the structured space (``MODEL.md``, section 8)."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.comm import Network
from nestopt.placement.cost import StageCosts
from nestopt.placement.dp.geometry import Line
from nestopt.placement.dp.lattice import build_lattice
from nestopt.placement.dp.relaxed import Best, best_sides, relaxed_classes
from nestopt.placement.dp.search import Search, SearchStopped
from nestopt.placement.dp.tables import (
    Batch,
    Weights,
    boundary_prices,
    bounds,
    build_entries,
    divisible_blocks,
)
from nestopt.placement.space import SpaceSettings, divisors


if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nestopt.options import SolveOptions
    from nestopt.placement.cluster import Cluster
    from nestopt.placement.cost import Grid, Mode
    from nestopt.placement.plan import Plan
    from nestopt.placement.workload import Workload

    Floats = NDArray[np.float64]

__all__ = ["Outcome", "search_structured"]

_BEAM = 2
_BEAM_SCENARIOS = 12


@dataclass(slots=True)
class Outcome:
    """What `search_structured` found.

    Attributes
    ----------
    objective : float
        ``inf`` without a plan.
    bound : float
        Valid for the structured space; equal to the objective when the search finished.
    general_bound : float
        Valid for the general space with the same settings.
    limit : str or None
        The limit that ended the search.
    """

    objective: float
    plan: Plan | None
    bound: float
    general_bound: float
    limit: str | None
    search: Search


@dataclass(frozen=True, slots=True)
class _Case:
    """A batch with its configurations, and its bound by devices a replica."""

    batch: Batch
    grids: tuple[Grid, ...]
    modes: tuple[tuple[Mode, ...], ...]
    floor: Floats
    """``floor[u]``: bound with ``u`` devices a replica; constant behind its end."""

    def bound(self, units: int) -> float:
        return float(self.floor[min(units, len(self.floor) - 1)])


class _Clock:
    def __init__(self, limit: float) -> None:
        self.begin = time.perf_counter()
        self.limit = limit

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begin

    def check(self) -> None:
        if self.seconds > self.limit:
            raise SearchStopped("time")


def _batches(workload: Workload, settings: SpaceSettings, devices: int) -> Iterator[Batch]:
    for d, b in settings.batches(workload, devices):
        m = workload.global_batch // (d * b)
        if settings.schedule == "interleaved":
            for s in divisors(m):
                if s <= min(workload.num_operators, devices // d):
                    yield Batch(d, b, m, settings.schedule, settings.chunks, s)
        else:
            yield Batch(d, b, m, settings.schedule, settings.chunks, 0)


def _case(
    search: Search,
    cluster: Cluster,
    batch: Batch,
    grids: tuple[Grid, ...],
    modes: tuple[tuple[Mode, ...], ...],
    best: Best,
) -> _Case | None:
    """The position-free bound of a batch, or None where nothing fits."""
    fitting = [
        (g, m) for g, m in zip(grids, modes, strict=True)
        if g.width * batch.replicas <= len(cluster.alive) and batch.microbatch % g.e == 0
    ]  # fmt: skip
    if not fitting:
        return None
    kept = tuple(g for g, _ in fitting)
    kept_modes = tuple(m for _, m in fitting)
    classes = relaxed_classes(cluster, best, kept, batch.replicas)
    entries = build_entries(
        search.costs, search.lattice, kept, kept_modes, classes, batch,
        divisible_blocks(search.lattice, search.settings),
    )  # fmt: skip
    if not len(entries.seconds):
        return None
    width = np.array([g.width for g in kept], dtype=np.int64)
    operators = search.costs.workload.num_operators
    units = min(len(cluster.alive) // batch.replicas, operators * int(width.max()))
    alpha, beta = best_sides(best, kept, batch.replicas)
    held = batch.held(min(operators, units))
    table = bounds(
        search.lattice, entries, classes, width, units,
        boundary_prices(search.lattice, batch, alpha, beta), held, buckets=False,
    )  # fmt: skip
    weights = Weights.of(search.objective, batch.microbatches, batch.chunks)
    full = search.lattice.ideals - 1
    with np.errstate(invalid="ignore"):
        floor = (
            weights.total * np.where(np.isinf(table.total[0][full]), 0.0, table.total[0][full])
            + weights.largest * table.largest[0][full]
            + weights.sync * table.sync
        )
    if not np.isfinite(floor[-1]):
        return None
    return _Case(batch, kept, kept_modes, floor)


def _choices(
    search: Search, grids: list[Grid]
) -> list[tuple[tuple[Grid, ...], tuple[tuple[Mode, ...], ...]]]:
    """The sets of configurations to search: all together, or one at a time if uniform."""
    s = search.settings
    modes = [search.costs.modes(g, s.zero, s.recompute, s.sequence) for g in grids]
    if not s.uniform:
        return [(tuple(grids), tuple(modes))]
    return [((g,), ((m,),)) for g, offered in zip(grids, modes, strict=True) for m in offered]


def search_structured(
    workload: Workload, cluster: Cluster, settings: SpaceSettings, options: SolveOptions
) -> Outcome:
    """Search the structured space exactly.

    The scenarios (replicas, micro-batch, layout, window) are taken in the order of their
    position-free bounds; one whose bound reaches the incumbent is never opened.
    """
    clock = _Clock(options.time_limit)
    network = Network.of(cluster)
    costs = StageCosts(workload)
    line = Line.of(cluster, network)
    alive = len(line.devices)
    lattice = build_lattice(workload, costs)
    best = Best.of(cluster, network)
    search = Search(costs, lattice, line, best, settings, options.objective, clock.check)
    state = Outcome(math.inf, None, -math.inf, -math.inf, None, search)

    def offer(value: float, plan: Plan | None) -> None:
        if plan is not None and value < state.objective:
            state.objective, state.plan = value, plan
            if options.progress is not None:
                options.progress(clock.seconds, value, state.general_bound, "dp")

    try:
        cases = []
        for grids, modes in _choices(search, settings.grids(workload, alive)):
            for batch in _batches(workload, settings, alive):
                clock.check()
                case = _case(search, cluster, batch, grids, modes, best)
                if case is not None:
                    cases.append(case)
        cases.sort(key=lambda c: c.bound(alive // c.batch.replicas))
        if not cases:
            state.bound = state.general_bound = math.inf
            return state
        state.general_bound = cases[0].bound(alive // cases[0].batch.replicas)
        scenarios = [s for case in cases for s in _scenarios(search, case, alive)]
        search.stats.scenarios = len(scenarios)
        scenarios.sort(key=lambda s: s[0])
        seen: set[int] = set()
        for floor, case, layout, window in scenarios:
            if floor >= state.objective or len(seen) >= _BEAM_SCENARIOS:
                break
            if id(case) in seen and layout == "outer" and window < alive // case.batch.replicas:
                continue
            seen.add(id(case))
            offer(
                *search.run(
                    case.grids, case.modes, case.batch, layout, window, state.objective, beam=_BEAM
                )
            )
        for floor, case, layout, window in scenarios:
            state.bound = min(floor, state.objective)
            if floor >= state.objective * (1 - options.rel_gap) * (1 - 1e-12):
                break
            offer(
                *search.run(
                    case.grids,
                    case.modes,
                    case.batch,
                    layout,
                    window,
                    state.objective * (1 - options.rel_gap),
                )
            )
        else:
            state.bound = state.objective
        if options.rel_gap == 0:
            state.bound = state.objective
    except SearchStopped as stopped:
        state.limit = stopped.limit
    except KeyboardInterrupt:
        state.limit = "interrupted"
    return state


def _scenarios(search: Search, case: _Case, alive: int) -> list[tuple[float, _Case, str, int]]:
    d = case.batch.replicas
    rows = []
    layouts = search.settings.layouts
    if "inner" in layouts or d == 1:
        rows.append((case.bound(alive // d), case, "inner", alive))
    if "outer" in layouts and d > 1:
        for window in range(alive // d, 0, -1):
            floor = case.bound(window)
            if math.isfinite(floor):
                rows.append((floor, case, "outer", window))
    return rows
