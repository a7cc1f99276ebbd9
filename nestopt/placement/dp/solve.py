"""The method ``dp``: exact over the structured space (``MODEL.md``, section 8)."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.core.stop import noticed
from nestopt.placement.bounds.why import explain
from nestopt.placement.dp.cases import cases_of, expanded, offered_by_any, outlines, raised
from nestopt.placement.dp.descent import around
from nestopt.placement.dp.geometry import Line
from nestopt.placement.dp.lattice import build_lattice
from nestopt.placement.dp.recipe import recipe_plan
from nestopt.placement.dp.relaxed import Best
from nestopt.placement.dp.search import Search, Stats
from nestopt.placement.dp.straight import straightened
from nestopt.placement.dp.tables import CLOSE
from nestopt.placement.dp.uneven import UnevenSearch
from nestopt.placement.model.clock import Clock, SearchStopped
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.words import ALL, ScheduleName, Shares, Structure
from nestopt.placement.pricing.comm import Network
from nestopt.placement.pricing.cost import StageCosts
from nestopt.placement.pricing.evaluate import reported

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nestopt.core.options import SolveOptions
    from nestopt.placement.dp.cases import Case, Outline, Scenario
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.words import Degrees

    Floats = NDArray[np.float64]

__all__ = ["Clock", "Outcome", "new_search", "search_space", "search_structured", "solve"]

_BEAMS = (2, 8)
_BEAM_CASES = 8
_RELAXED_LABELS = 20_000
_FIRST, _FIRST_COLUMNS = 6, 24
"""Batches, and configurations of each, from which the first plans are made."""
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

    First the manual recipe gives a plan (`recipe`), so that a short limit has one; a beam over the
    most promising configurations of the most promising batches gives better ones (`reduced` says
    which). Batches, numbers of stages and configurations that cannot beat it stage by stage are
    dropped (`stagewise`). Then every case whose first bound is below it is relaxed to pipelines
    without places, which bounds the general structure and closes most cases; those of the least
    bounds are relaxed exactly. What is left is searched on real places, in the order of the bounds:
    its boxes (`boxes`), and in those that their bounds leave open, its labels (`kernel`).
    """
    clock = Clock(options.time_limit)
    state = Outcome(math.inf, None, -math.inf, -math.inf, None, {})
    if not len(instance.cluster.alive):
        state.bound = state.general_bound = math.inf
        return state
    stats = Stats()
    try:
        state.objective, state.plan = recipe_plan(instance, options)
        if state.plan is not None and options.progress is not None:
            options.progress(clock.seconds, state.objective, state.bound, "dp")
        search = new_search(instance, clock.check)
        stats = search.stats
        _search(search, state, clock, options)
    except SearchStopped as stopped:
        noticed()
        state.limit = stopped.limit
    except KeyboardInterrupt:
        noticed()
        state.limit = "interrupted"
    if state.bound == -math.inf:
        state.bound = state.general_bound = _arithmetic_bound(instance)
    if state.plan is not None and state.limit is None:
        state.plan = straightened(instance, state.plan, StageCosts(instance.workload))
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


def search_space(instance: PlacementInstance, options: SolveOptions) -> Outcome:
    """Search an instance's structured plans exactly, those with unequal shares too."""
    if instance.space.shares is Shares.EQUAL:
        return search_structured(instance, options)
    return UnevenSearch(instance, options, search_structured, new_search).run()


def _arithmetic_bound(instance: PlacementInstance) -> float:
    """A bound for all plans that needs no search, for a search that ended before its first."""
    from nestopt.placement.bounds.general import compute_bound

    row = compute_bound(instance.workload, instance.cluster, instance.objective)
    return float(row["value"])


def _search(search: Search, state: Outcome, clock: Clock, options: SolveOptions) -> None:
    keep = 1.0 - options.rel_gap * _HAIR
    run = _runner(search, state, clock, options)
    menu = _menu(search.space)
    if menu != search.space:
        # the bounds of a large space take their time: plans come first
        narrow = replace(search, space=menu)
        _first_answer(narrow, state, _runner(narrow, state, clock, options))
        _descend(search, state, clock, options)
    known = outlines(search)
    if not known:
        state.bound = state.general_bound = math.inf
        return
    state.bound = state.general_bound = min(known[0].bound, state.objective)
    if menu == search.space or state.plan is None:
        _first_plans(search, state, known, run)
    cases, floors = _open_cases(search, state, known)
    search.stats.cases = len(cases)
    _probe(search, state, cases, run, _BEAMS[1])
    alive = len(search.line.devices)
    layouts = search.space.layouts
    scenarios: list[Scenario] = []
    for case in cases:
        rows = case.scenarios(layouts, alive)
        if case in floors:
            rows = raised(search, case, rows, floors[case], state.objective * keep)
        scenarios += rows
    search.stats.scenarios = len(scenarios)
    _search_scenarios(search, state, scenarios, keep, run)


def _search_scenarios(
    search: Search,
    state: Outcome,
    scenarios: list[Scenario],
    keep: float,
    run: Callable[..., None],
) -> None:
    """Search all scenarios that may have a plan of less than `keep` times the incumbent."""
    # Least value that a plan may have in the scenarios closed: with a gap allowed they were only
    # searched for plans that are better by that gap. What was ruled out before costs no less than
    # the incumbent of then, and so no less than the best.
    hidden = math.inf
    for group in _by_places(scenarios):
        least = group[0].floor
        state.bound = min(least, hidden, state.objective)
        if least >= state.objective * keep * CLOSE:
            return
        shared = None
        if not search.space.uniform:
            shared = offered_by_any([s.case for s in group if s.floor < state.objective * keep])
        for scenario in group:
            if scenario.floor >= state.objective * keep * CLOSE:
                hidden = min(hidden, scenario.floor)
                continue
            hidden = min(hidden, max(scenario.floor, state.objective * keep))
            case = scenario.case
            if shared is not None:
                case = replace(case, grids=shared[0], modes=shared[1])
            run(case, scenario.layout, scenario.window)
    state.bound = min(hidden, state.objective)


def _by_places(scenarios: list[Scenario]) -> list[list[Scenario]]:
    """The scenarios that share places and prices, by bound; the groups by their least.

    To search them one after another takes the pricing of one.
    """
    groups: dict[tuple[int, int, str, int], list[Scenario]] = {}
    for s in sorted(scenarios, key=lambda s: s.floor):
        batch = s.case.batch
        groups.setdefault((batch.replicas, batch.microbatch, s.layout, s.window), []).append(s)
    return list(groups.values())


def _runner(
    search: Search,
    state: Outcome,
    clock: Clock,
    options: SolveOptions,
    whole: Outcome | None = None,
) -> Callable[..., None]:
    """A function that searches a scenario and keeps what is better.

    Progress is told with the bound of `whole`, where `state` is of a part of its space.
    """
    told = state if whole is None else whole
    keep = 1.0 - options.rel_gap * _HAIR

    def run(case: Case, layout: str, window: int, beam: int = 0) -> None:
        value, plan = search.run(
            case.grids, case.modes, case.batch, layout, window, state.objective * keep, beam
        )
        if plan is not None:
            state.objective, state.plan = value, plan
            if options.progress is not None:
                options.progress(clock.seconds, value, told.bound, "dp")

    return run


def _menu(space: PlanSpace) -> PlanSpace:
    """A few plans of a space that are likely to be good: what ``default-1`` has of it, 1F1B."""
    usual = PlanSpace.named("default-1")

    def few(offered: Degrees, common: Degrees) -> Degrees:
        if offered is ALL or common is ALL:
            return common
        return tuple(n for n in offered if n in common) or offered

    plain = ScheduleName.ONE_F_ONE_B in space.schedules
    return replace(
        space,
        tensor=few(space.tensor, usual.tensor),
        context=few(space.context, usual.context),
        expert=few(space.expert, usual.expert),
        schedules=usual.schedules if plain else space.schedules,
        chunks=ALL if plain else space.chunks,
        decomposition=usual.decomposition,
    )


def _first_answer(search: Search, state: Outcome, run: Callable[..., None]) -> None:
    """The best plans that beams find in a narrow space."""
    known = outlines(search)
    _first_plans(search, state, known, run)
    roots = []
    for outline in known:
        if outline.bound >= state.objective * CLOSE:
            break
        roots += cases_of(search, outline, state.objective)
    _probe(search, state, roots, run, _BEAMS[1])


_DESCENT_SCENARIOS = 24
"""Scenarios of a small space that a descent searches, those of the least bounds."""


def _descend(search: Search, state: Outcome, clock: Clock, options: SolveOptions) -> None:
    """Better plans around the incumbent (`descent`), until none of its neighbours has one."""
    done: set[PlanSpace] = set()
    better = True
    while better and state.plan is not None:
        better = False
        for _, space in around(state.plan, search.space):
            if space in done:
                continue
            done.add(space)
            before = state.objective
            _search_few(replace(search, space=space), state, clock, options)
            better = state.objective < before
            if better:
                break


def _search_few(search: Search, state: Outcome, clock: Clock, options: SolveOptions) -> None:
    """The scenarios of least bound of a small space; its bounds are not the whole space's."""
    # bounds of the small space stay in it
    here = replace(state)
    run = _runner(search, here, clock, options, state)
    try:
        cases, floors = _open_cases(search, here, outlines(search))
        alive = len(search.line.devices)
        scenarios = [
            (s.floor, index, s)
            for index, s in enumerate(
                row
                for case in cases
                for row in raised(
                    search,
                    case,
                    case.scenarios(search.space.layouts, alive),
                    floors[case],
                    state.objective,
                )
            )
        ]
        for floor, _, scenario in sorted(scenarios, key=lambda row: row[:2])[:_DESCENT_SCENARIOS]:
            if floor >= here.objective * CLOSE:
                break
            run(scenario.case, scenario.layout, scenario.window)
    finally:
        state.objective, state.plan = here.objective, here.plan


def _first_plans(
    search: Search, state: Outcome, known: list[Outline], run: Callable[..., None]
) -> None:
    """An incumbent from the most promising configurations of the most promising batches."""
    tried = 0
    for number, outline in enumerate(known):
        if outline.bound >= state.objective or (number >= _FIRST and tried >= _FIRST):
            break
        if math.isfinite(state.objective) and number >= _FIRST:
            break
        cases = cases_of(search, outline, state.objective, _FIRST_COLUMNS)
        tried += bool(cases)
        _probe(search, state, cases, run, _BEAMS[0])


def _probe(
    search: Search, state: Outcome, cases: list[Case], run: Callable[..., None], beam: int
) -> None:
    """Beams over the cases of least bound, the whole line each."""
    alive = len(search.line.devices)
    layouts = search.space.layouts
    ranked = sorted(cases, key=lambda c: c.bound(alive // c.batch.replicas))
    for case in ranked[: 3 * _BEAM_CASES]:
        for each in _likely(search, case, state.objective):
            for s in each.scenarios(layouts, alive):
                whole = s.layout == "inner" or s.window == alive // each.batch.replicas
                if whole and s.floor < state.objective:
                    run(each, s.layout, s.window, beam)


def _likely(search: Search, case: Case, incumbent: float) -> list[Case]:
    """The case, or with an open number of stages those nearest to what the relaxation takes."""
    if case.batch.stages or not case.batch.schedule.fixes_stages:
        return [case]
    _, plan = search.run_relaxed(case.grids, case.modes, case.batch, incumbent, _BEAMS[0])
    if plan is None:
        return []
    count = len(plan.stages)
    offered = sorted(expanded(search, case), key=lambda c: abs(math.log(c.batch.stages / count)))
    return offered[:2]


def _open_cases(
    search: Search, state: Outcome, known: list[Outline]
) -> tuple[list[Case], dict[Case, Floats]]:
    """The cases that the incumbent leaves open, and their relaxed bounds by devices a replica.

    The least bound is the general one.
    """
    floors: dict[Case, Floats] = {}
    alive = len(search.line.devices)
    roots = []
    for outline in known:
        if outline.bound >= state.objective * CLOSE:
            break
        roots += cases_of(search, outline, state.objective)
    for root in sorted(roots, key=lambda c: c.bound(alive // c.batch.replicas)):
        for case in expanded(search, root):
            row = np.maximum(case.floor, case.least)
            if not case.batch.stages:
                # with the stages counted, the bound stage by stage is seldom less
                row = search.relaxed_floor(case.grids, case.modes, case.batch, state.objective)
            if row[-1] < state.objective * CLOSE:
                floors[case] = row
    state.general_bound = min(_relaxed_optimum(search, state.objective, floors), state.objective)
    state.bound = state.general_bound
    cases = sorted(floors, key=lambda c: float(floors[c][-1]))
    return cases, floors


def _relaxed_optimum(search: Search, incumbent: float, floors: dict[Case, Floats]) -> float:
    """The least value of the relaxation, of which the bounds by case are raised to the exact."""
    least = [(float(row[-1]), index) for index, row in enumerate(floors.values())]
    heapq.heapify(least)
    cases = list(floors)
    general = incumbent
    while least:
        floor, index = heapq.heappop(least)
        if floor >= general * CLOSE:
            break
        case = cases[index]
        try:
            value, plan = search.run_relaxed(
                case.grids, case.modes, case.batch, incumbent, label_limit=_RELAXED_LABELS
            )
        except SearchStopped as stopped:
            if stopped.limit != "memory":
                raise
            # Too large to relax exactly: the bound without labels stays.
            return min(general, floor)
        exact = value if plan is not None else incumbent
        floors[case] = np.maximum(floors[case], exact)
        general = min(general, exact)
    return general


def solve(instance: PlacementInstance, options: SolveOptions) -> Result:
    """Solve a placement by dynamic programming.

    Exact over the structured plans of the instance's space: the result's bound equals its
    objective when the search finished. If the space is general, the plan is the same, but the
    bound holds for all its plans; that one is also in ``stats["general_bound"]``.
    """
    clock = Clock(options.time_limit)
    workload, cluster = instance.workload, instance.cluster
    found = search_space(instance, options)
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
