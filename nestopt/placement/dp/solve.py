"""The method ``dp``: exact over the structured space (``MODEL.md``, section 8)."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.core.stop import noticed
from nestopt.placement.bounds.why import explain
from nestopt.placement.dp.cases import all_cases, raised
from nestopt.placement.dp.geometry import Line
from nestopt.placement.dp.lattice import build_lattice
from nestopt.placement.dp.relaxed import Best
from nestopt.placement.dp.search import Search, Stats
from nestopt.placement.dp.tables import CLOSE
from nestopt.placement.model.clock import Clock, SearchStopped
from nestopt.placement.model.words import Structure
from nestopt.placement.pricing.comm import Network
from nestopt.placement.pricing.cost import StageCosts
from nestopt.placement.pricing.evaluate import reported

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nestopt.core.options import SolveOptions
    from nestopt.placement.dp.cases import Case
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan

    Floats = NDArray[np.float64]

__all__ = ["Clock", "Outcome", "new_search", "search_structured", "solve"]

_BEAMS = (2, 8)
_BEAM_CASES = 8
_RELAXED_LABELS = 20_000
# The search aims at a hair less than the gap allowed, so that rounding cannot exceed it.
_HAIR = 1.0 - 1e-6


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
        Valid for all plans of the space in the general structure.
    limit : str or None
        The limit that ended the search.
    """

    objective: float
    plan: Plan | None
    bound: float
    general_bound: float
    limit: str | None
    stats: dict[str, Any]


def new_search(instance: PlacementInstance, stop: Callable[[], None]) -> Search:
    """The search of an instance, nothing searched yet; `stop` raises when a limit is reached."""
    network = Network.of(instance.cluster)
    costs = StageCosts(instance.workload)
    return Search(
        costs,
        build_lattice(instance.workload, costs, stop),
        Line.of(instance.cluster, network),
        Best.of(instance.cluster, network),
        instance.space,
        instance.objective,
        stop,
    )


def search_structured(instance: PlacementInstance, options: SolveOptions) -> Outcome:
    """Search the instance's plan space in the structured form exactly.

    First a beam over the most promising cases gives an incumbent. Then every case whose first
    bound is below it is relaxed to pipelines without places, which bounds the general space and
    closes most cases; those of the least bounds are relaxed exactly. What is left is searched on
    real places, in the order of the bounds: its boxes (`boxes`), and in those that their bounds
    leave open, its labels (`kernel`).
    """
    clock = Clock(options.time_limit)
    state = Outcome(math.inf, None, -math.inf, -math.inf, None, {})
    if not len(instance.cluster.alive):
        state.bound = state.general_bound = math.inf
        return state
    stats = Stats()
    try:
        search = new_search(instance, clock.check)
        stats = search.stats
        _search(search, state, clock, options)
    except SearchStopped as stopped:
        noticed()
        state.limit = stopped.limit
    except KeyboardInterrupt:
        noticed()
        state.limit = "interrupted"
    # A relaxed optimum is a lower bound, but its last digits are its own.
    state.bound = min(state.bound, state.objective)
    state.general_bound = min(state.general_bound, state.bound)
    state.stats = {
        "cases": stats.cases,
        "scenarios": stats.scenarios,
        "searched": stats.searched,
        "tables": stats.tables,
        "boxes": stats.boxes,
        "labels": stats.labels,
    }
    return state


def _search(search: Search, state: Outcome, clock: Clock, options: SolveOptions) -> None:
    alive = len(search.line.devices)
    layouts = search.space.layouts
    cases = all_cases(search)
    search.stats.cases = len(cases)
    if not cases:
        state.bound = state.general_bound = math.inf
        return
    keep = 1.0 - options.rel_gap * _HAIR
    state.bound = state.general_bound = cases[0].bound(alive // cases[0].batch.replicas)

    def run(case: Case, layout: str, window: int, beam: int = 0) -> None:
        value, plan = search.run(
            case.grids, case.modes, case.batch, layout, window, state.objective * keep, beam
        )
        if plan is not None:
            state.objective, state.plan = value, plan
            if options.progress is not None:
                options.progress(clock.seconds, value, state.bound, "dp")

    def probe(chosen: list[Case], beam: int) -> None:
        for case in chosen:
            for s in case.scenarios(layouts, alive):
                whole = s.layout == "inner" or s.window == alive // case.batch.replicas
                if whole and s.floor < state.objective:
                    run(case, s.layout, s.window, beam)

    probe(cases[:_BEAM_CASES], _BEAMS[0])
    floors = _relaxed_floors(search, state, cases)
    state.bound = state.general_bound
    probe(sorted(floors, key=lambda c: float(floors[c][-1]))[: 3 * _BEAM_CASES], _BEAMS[1])
    scenarios = []
    for case in cases:
        rows = case.scenarios(layouts, alive)
        if case in floors:
            rows = raised(search, case, rows, floors[case], state.objective * keep)
        scenarios += [(s.floor, index, s) for index, s in enumerate(rows)]
    scenarios.sort(key=lambda row: row[:2])
    search.stats.scenarios = len(scenarios)
    # Least value that a plan may have in the scenarios searched: with a gap allowed they were only
    # searched for plans that are better by that gap.
    hidden = math.inf
    for floor, _, scenario in scenarios:
        state.bound = min(floor, hidden, state.objective)
        if floor >= state.objective * keep * CLOSE:
            return
        hidden = min(hidden, max(floor, state.objective * keep))
        run(scenario.case, scenario.layout, scenario.window)
    state.bound = min(hidden, state.objective)


def _relaxed_floors(search: Search, state: Outcome, cases: list[Case]) -> dict[Case, Floats]:
    """Bounds of the cases by devices a replica; the least is the general bound."""
    alive = len(search.line.devices)
    floors: dict[Case, Floats] = {}
    least: list[tuple[float, int]] = []
    for index, case in enumerate(cases):
        if case.bound(alive // case.batch.replicas) >= state.objective * CLOSE:
            break
        row = search.relaxed_floor(case.grids, case.modes, case.batch, state.objective)
        floors[case] = row
        heapq.heappush(least, (float(row[-1]), index))
    general = state.objective
    while least:
        floor, index = heapq.heappop(least)
        if floor >= general * CLOSE:
            break
        case = cases[index]
        try:
            value, plan = search.run_relaxed(
                case.grids, case.modes, case.batch, state.objective, label_limit=_RELAXED_LABELS
            )
        except SearchStopped as stopped:
            if stopped.limit != "memory":
                raise
            # Too large to relax exactly: the bound without labels stays.
            general = min(general, floor)
            break
        exact = value if plan is not None else state.objective
        floors[case] = np.maximum(floors[case], exact)
        general = min(general, exact)
    state.general_bound = min(general, state.objective)
    return floors


def solve(instance: PlacementInstance, options: SolveOptions) -> Result:
    """Solve a placement by dynamic programming.

    Exact over the structured plans of the instance's space: the result's bound equals its
    objective when the search finished. If the space is general, the plan is the same, but the
    bound holds for all its plans; that one is also in ``stats["general_bound"]``.
    """
    clock = Clock(options.time_limit)
    workload, cluster = instance.workload, instance.cluster
    found = search_structured(instance, options)
    general = instance.space.structure is Structure.GENERAL
    bound = found.general_bound if general else found.bound
    because: tuple[str, ...] = ()
    solution = None
    objective: float | None = None
    if found.plan is not None:
        plan, priced = reported(workload, cluster, found.plan)
        # The evaluator's own sum, not the search's, which adds in another order.
        objective = priced.objective(instance.objective)
        bound = min(bound, objective)
        solution = plan.to_json()
        # Rounding apart: the search and the evaluator add in different orders.
        if objective - bound <= (options.rel_gap + 1e-9) * objective:
            termination = Termination(Reason.OPTIMAL)
            bound = objective if options.rel_gap == 0 else bound
        else:
            termination = Termination(Reason.FEASIBLE, Limit(found.limit or "iterations"))
    elif found.limit is not None or bound < math.inf:
        # Without a structured plan there may still be a general one.
        termination = Termination(Reason.NO_SOLUTION, Limit(found.limit or "iterations"))
    else:
        termination = Termination(Reason.INFEASIBLE)
        because = explain(instance, clock.check)
        bound = math.inf
    return Result(
        problem="placement",
        instance=instance_record(instance),
        method="dp",
        termination=termination,
        objective=objective,
        bound=bound,
        seconds=clock.seconds,
        seed=options.seed,
        threads=1,
        solution_json=solution,
        witness={
            "space": instance.space.label,
            "bound": "search exhausted" if not general else "position-free relaxation",
            "general_bound": _json_number(found.general_bound),
            "relaxes": "places: every group and boundary at its best layout, on the best device",
        },
        infeasible_because=because,
        stats={**found.stats, "general_bound": _json_number(found.general_bound)},
        settings={"rel_gap": options.rel_gap, **options.set},
    )


def _json_number(value: float) -> float | None:
    return value if math.isfinite(value) else None
