"""Exact models as objects: constraints of one's own, admission, conflicts, sizes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from placement_runs import CLOSE, SOLVERS, best_of, least_load, random_problem, value
from random_instances import tiny_instance
from sampling import slow

from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.collective import Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.core.errors import UsageError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import library_instance, named
from nestopt.core.result import Reason
from nestopt.formulations import formulation
from nestopt.formulations.placement.cpsat import PlacementCpsat
from nestopt.formulations.placement.milp import PlacementMilp
from nestopt.formulations.placement.search import search
from nestopt.placement.dp.solve import solve as solve_dp
from nestopt.placement.judge.check import check_plan
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.words import Structure
from nestopt.placement.partitioning.maxload.model import Stage

if TYPE_CHECKING:
    from random_instances import TinyInstance

    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan

METHODS = ("milp", "cpsat")


def tiny(seed: int, devices: int = 3, operators: int = 3) -> TinyInstance:
    return tiny_instance(np.random.default_rng(seed), devices=devices, operators=operators)


def of(case: TinyInstance, method: str, space: str = "structured") -> Any:
    chosen = replace(case.space, structure=Structure(space))
    return formulation(case.instance.over(chosen), method)


def chain() -> PlacementInstance:
    """chain4-tree2x2 with one mode: a constraint of one's own lets no dominated mode out."""
    found = library_instance("chain4-tree2x2")
    modes = {"zero": "0", "recompute": "none", "sequence": "0", "schedule": "1f1b"}
    return found.over(PlanSpace.parse(modes, found.space))


# --- the finding: a start that ignores the constraint closed the search --------------------------


class ThreeStagesMilp(PlacementMilp):
    def add_constraints(self) -> None:
        super().add_constraints()
        self._add(self.num_stages == 3, "three_stages")


class ThreeStagesCpsat(PlacementCpsat):
    def add_constraints(self) -> None:
        super().add_constraints()
        self._add(self.num_stages == 3, "three_stages")


@pytest.mark.parametrize(
    ("method", "model"), [("milp", ThreeStagesMilp), ("cpsat", ThreeStagesCpsat)]
)
def test_a_subclass_with_a_constraint_of_its_own_is_not_closed_by_the_dps_start(
    method: str, model: type
) -> None:
    instance = chain()
    plain = SOLVERS[method](instance, SolveOptions())
    result = search(instance, SolveOptions(), method, model)
    assert result.termination.reason is Reason.OPTIMAL
    assert result.solution is not None and plain.solution is not None
    assert len(result.solution.stages) == 3
    assert result.objective > plain.objective
    assert any("dp" in note and "switched off" in note for note in result.stats["notes"])


@pytest.mark.parametrize("method", ["milp", *slow(["cpsat"])])
def test_an_added_constraint_holds_and_the_result_says_so(method: str) -> None:
    instance = chain()
    own = formulation(instance, method).add("three stages", lambda m: m.num_stages == 3)
    results = [own.solve(), own.solve(set={"start": "none"})]
    for result in results:
        assert result.termination.reason is Reason.OPTIMAL
        assert len(result.solution.stages) == 3
        assert result.stats["added"] == ["three stages"]
        assert "three stages" in result.witness["bound"]
    assert results[0].objective == pytest.approx(results[1].objective, rel=CLOSE)
    plain = solve_dp(instance, SolveOptions())
    assert not own.admits(plain.solution)
    assert "three stages" in own.admits(plain.solution).because
    assert own.admits(results[0].solution)


@pytest.mark.parametrize("method", METHODS)
def test_a_start_that_keeps_the_added_constraint_is_used(method: str) -> None:
    instance = chain()
    own = formulation(instance, method).add("few stages", lambda m: m.num_stages <= 2)
    result = own.solve()
    assert value(result) == pytest.approx(solve_dp(instance, SolveOptions()).objective, rel=CLOSE)
    assert not any("switched off, they ignore" in note for note in result.stats["notes"])


# --- against enumeration -------------------------------------------------------------------------

RULES = {
    "two stages": (lambda m: m.num_stages == 2, lambda plan: len(plan.stages) == 2),
    "zero 3": (
        lambda m: [m.has_config(p, lambda c: c.mode.zero == 3) == m.use[p] for p in m.positions],
        lambda plan: all(stage.config.zero == 3 for stage in plan.stages),
    ),
    "one replica": (lambda m: m.replicas == 1, lambda plan: plan.replicas == 1),
    "first device holds the last stage": (
        lambda m: m.devices_at(0, [m.data.cell_of[m.data.alive[0]]]) >= 1,
        None,
    ),
}


@pytest.mark.parametrize("space", ["structured", pytest.param("general", marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", [*list(RULES)[2:], *slow(list(RULES)[:2])])
@pytest.mark.parametrize("method", METHODS)
def test_with_an_added_constraint_the_optimum_is_that_of_enumeration(
    method: str, rule: str, space: str
) -> None:
    solved = 0
    for seed in (2, 9, 7):
        case = tiny(seed)
        added, wanted = RULES[rule]
        if wanted is None:
            cluster = case.cluster
            first = int(cluster.alive[0])
            group = int(cluster.group_of[0, first])
            like = {
                int(i)
                for i in cluster.alive
                if cluster.group_of[0, i] == group and cluster.type_of[i] == cluster.type_of[first]
            }

            def wanted(plan: Plan, like: set[int] = like) -> bool:
                return bool(like & set(plan.stages[-1].devices.ravel().tolist()))

        best = best_of(case, space, wanted)
        result = of(case, method, space).add(rule, added).solve()
        if best == math.inf:
            assert result.termination.reason is Reason.INFEASIBLE
            assert rule in result.infeasible_because[0]
            continue
        solved += 1
        assert value(result) == pytest.approx(best, rel=CLOSE)
        plan = result.solution
        check_plan(case.workload, case.cluster, plan, result.objective, case.objective)
    assert solved


# --- conflicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["cpsat", *slow(["milp"])])
def test_families_in_conflict_are_named_and_none_is_too_many(method: str) -> None:
    case = tiny(9)
    one = {"replicas": "1", "microbatch": "1"}
    own = of(replace(case, options=case.options | one), method).add(
        "many stages", lambda m: m.num_stages >= 2
    )
    own.add("few stages", lambda m: m.num_stages <= 1)
    assert own.conflict() == ("many stages", "few stages")
    result = own.solve()
    assert result.termination.reason is Reason.INFEASIBLE
    assert result.infeasible_because == ("families in conflict: many stages, few stages",)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_with_a_solution_has_no_conflict(method: str) -> None:
    with pytest.raises(UsageError, match="not proved infeasible"):
        of(tiny(1), method).conflict()


@pytest.mark.parametrize("method", METHODS)
def test_a_name_is_given_once_and_a_rule_gives_constraints(method: str) -> None:
    own = of(tiny(1), method)
    with pytest.raises(UsageError, match="'memory'"):
        own.add("memory", lambda m: True)
    with pytest.raises(UsageError, match="no constraint"):
        own.add("an expression", lambda m: m.num_stages).model()


@pytest.mark.parametrize("method", METHODS)
def test_sizes_add_up(method: str) -> None:
    own = of(tiny(9), method).add("two stages", lambda m: m.num_stages == 2)
    model, sizes = own.model(), own.sizes()
    assert set(own.variables()) >= {"use", "late", "config", "role", "stage_time"}
    assert sizes["two stages"].constraints == 1
    assert set(sizes) == set(own.names)
    assert sum(size.constraints for size in sizes.values()) == model.counts()[1]
    assert sum(own.variables().values()) == model.counts()[0]


# --- collectives ---------------------------------------------------------------------------------


def ring(pattern: str = "all-gather") -> CollectiveInstance:
    network = named("topology", "ring:4")
    return CollectiveInstance(network, Collective.of(pattern, network.npus), sums="moved")


def without_link(link: int) -> Any:
    def rule(m: Any) -> list[Any]:
        sends = [*m.send.items(), *m.part.items()]
        return [x == 0 for (_, e, _), x in sends if e == link]

    return rule


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("pattern", ["all-gather", "reduce-scatter", "all-reduce"])
def test_a_forbidden_link_is_not_used_and_costs_what_a_missing_one_costs(
    method: str, pattern: str
) -> None:
    instance = ring(pattern)
    own = formulation(instance, method).add("link 0 is down", without_link(0))
    result = own.solve(time_limit=60.0)
    assert result.termination.reason is Reason.OPTIMAL
    schedule = result.solution
    check_schedule(instance, schedule)
    assert 0 not in schedule.link
    less = instance.topology.without(links=[0])
    other = CollectiveInstance(less, instance.collective)
    assert result.objective == formulation(other, method).solve(time_limit=60.0).objective
    assert own.admits(schedule)
    plain = formulation(instance, method).solve(time_limit=60.0)
    assert plain.objective < result.objective
    assert "link 0 is down" in own.admits(plain.solution).because


@pytest.mark.parametrize("method", METHODS)
def test_sends_keep_the_ticks_that_a_constraint_demands(method: str) -> None:
    instance = ring()
    own = formulation(instance, method)
    own.add("nothing at first", lambda m: [x == 0 for (c, e, t), x in m.send.items() if t == 0])
    plain = formulation(instance, method).solve(time_limit=60.0)
    result = own.solve(time_limit=60.0)
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective == plain.objective + own.tick_ps
    assert result.solution.start_ps.min() == own.tick_ps


@pytest.mark.parametrize("method", METHODS)
def test_what_is_in_the_way_of_a_shorter_schedule_is_named(method: str) -> None:
    network = named("topology", "ring:3,directed=yes")
    instance = CollectiveInstance(
        network, Collective.of("all-gather", network.npus, chunks_per_npu=2)
    )
    own = formulation(instance, method)
    assert "link_capacity" in own.conflict()
    sizes = own.sizes()
    assert sizes["link_capacity"].constraints > 0
    assert sum(size.constraints for size in sizes.values()) == own.model().counts()[1]


# --- max-load ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_max_load_with_two_units_kept_apart(method: str) -> None:
    dearer = solved = 0
    for seed in (13, 17, 20, 21, 33, 38, 41, 43):
        problem = random_problem(np.random.default_rng(seed))
        if math.isinf(least_load(problem)):
            continue
        own = formulation(problem, method)
        members = own.model().data.units.members
        if len(members) < 2:
            continue
        own.add("apart", lambda m: [m.inside(0, s) + m.inside(1, s) <= 1 for s in m.stages])
        one, other = members[0][0], members[1][0]
        best = least_load(problem, lambda where, u=one, v=other: where[u] != where[v])
        result = own.solve()
        if math.isinf(best):
            assert result.termination.reason is Reason.INFEASIBLE
            continue
        assert result.termination.reason is Reason.OPTIMAL
        assert result.objective == pytest.approx(best, rel=CLOSE)
        split = [Stage(s["device"], tuple(s["operators"])) for s in result.solution_json["stages"]]
        assert own.admits(split)
        solved += 1
        dearer += best > least_load(problem) * (1 + CLOSE)
    assert solved > 3
    assert dearer


def test_rules_may_be_many() -> None:
    case = tiny(1)
    own = of(case, "milp")
    for index in range(3):
        own.add(f"rule {index}", lambda m: True)
    assert own.names[-3:] == ("rule 0", "rule 1", "rule 2")
    assert "3 of one's own" in repr(own)
