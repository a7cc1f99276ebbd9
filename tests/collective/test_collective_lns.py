"""Large-neighbourhood search: reaches proved optima from poor starts, and never loses ground."""

from __future__ import annotations

import numpy as np
import pytest
from sampling import slow

from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.collective import Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.schedule import Schedule
from nestopt.collective.model.topology import Topology
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method, named
from nestopt.core.result import Reason
from nestopt.formulations.collective.grid import Send, grid_problem
from nestopt.formulations.collective.lns import flipped, improve, solve
from nestopt.formulations.collective.sends import pruned
from nestopt.formulations.collective.solve import solve_cpsat

UNIT = 10**9


def instance(name: str, pattern: str, **settings) -> CollectiveInstance:
    topology = named("topology", name)
    group = settings.pop("npus", topology.npus)
    return CollectiveInstance(topology, Collective.of(pattern, group, **settings))


def poor_start(problem: CollectiveInstance, policy: str = "fifo"):
    chosen = SolveOptions(set={"policy": policy, "restarts": "1"})
    return get_method("collective", "greedy")(problem, chosen)


@pytest.mark.parametrize(
    ("name", "size", "steps"),
    [
        ("torus2d:4x4", 1, 4),
        ("mesh2d:4x4", 1, 8),
        *slow(
            [
                ("torus2d:5x5", 1, 6),
                ("mesh2d:4x4,bw=1GB/s:3GB/s", 3, 12),
                ("torus2d:4x4,bw=1GB/s:2GB/s", 2, 6),
            ]
        ),
    ],
)
@pytest.mark.parametrize("pattern", ["all-gather", "reduce-scatter"])
def test_reaches_the_optimum_from_a_plain_greedy_start(
    name: str, size: int, steps: int, pattern: str
) -> None:
    problem = instance(name, pattern, chunk_size=size * 10**6)
    start = poor_start(problem)
    # no time limit: repeatable, and the same on a loaded machine
    result = solve(problem, SolveOptions(warm_start=start))
    assert result.objective == steps * UNIT
    assert result.termination.reason is Reason.OPTIMAL
    check_schedule(problem, Schedule.from_json(result.solution_json))


def test_a_switch_keeps_the_copies_that_arrive_first() -> None:
    """A copy over a slow link starts earlier and arrives later: it is the one too many."""
    problem = instance("leaf-spine:2x3,spines=1", "all-gather", chunk_size=3 * 10**6)
    grid = grid_problem(problem, UNIT)
    slow, fast = Send(3, 4, 15), Send(3, 13, 16)
    others = [Send(3, 13, 10), Send(3, 13, 13), Send(3, 5, 12), Send(3, 1, 14), Send(3, 3, 17)]
    ends = [send.start + int(grid.transfer[0, send.link]) for send in (slow, fast)]
    assert ends[0] > 17 >= ends[1]
    kept = pruned(grid, [slow, fast, *others])
    assert kept == sorted([fast, *others], key=lambda send: send.start)


def test_unequal_links_and_fine_ticks() -> None:
    problem = instance("mesh2d:4x4+log-uniform:0.5,2+seed:3", "all-gather")
    start = poor_start(problem, "random")
    result = solve(problem, SolveOptions(warm_start=start, set={"iterations": "30"}))
    assert result.bound <= result.objective <= start.objective
    check_schedule(problem, Schedule.from_json(result.solution_json))


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("all-reduce", "switch:4"),
        ("all-to-all", "switch:4"),
        ("all-to-all", "mesh2d:2x3"),
        *slow([("all-reduce", "mesh2d:2x3")]),
    ],
)
def test_other_patterns_stay_valid(pattern: str, name: str) -> None:
    problem = instance(name, pattern)
    start = get_method("collective", "greedy")(problem, SolveOptions())
    result = solve(problem, SolveOptions(warm_start=start, set={"iterations": "10", "effort": "1"}))
    assert result.objective <= start.objective
    check_schedule(problem, Schedule.from_json(result.solution_json))
    if name == "mesh2d:2x3":
        assert result.objective >= solve_cpsat(problem, SolveOptions(time_limit=30.0)).bound


def test_runs_repeat() -> None:
    problem = instance("mesh2d:4x4,bw=1GB/s:3GB/s", "all-gather", chunk_size=3 * 10**6)
    start = poor_start(problem)
    chosen = SolveOptions(warm_start=start, seed=3, set={"iterations": "15"})
    first, second = (solve(problem, chosen) for _ in range(2))
    assert first.solution_json == second.solution_json
    assert first.objective < start.objective


def test_subgroup_with_relays() -> None:
    problem = instance("torus2d:4x4", "all-gather", npus=range(0, 16, 2))
    start = poor_start(problem)
    before = Schedule.from_json(start.solution_json)
    after = improve(problem, before, start.bound, SolveOptions(), iterations=20)
    check_schedule(problem, after)
    assert after.makespan_ps <= before.makespan_ps


@pytest.mark.parametrize("pattern", ["all-gather", "all-reduce", "all-to-all", "scatter", "reduce"])
def test_running_backwards_twice_changes_nothing(pattern: str) -> None:
    problem = instance("mesh2d:2x3", pattern, chunks_per_npu=2)
    schedule = Schedule.from_json(
        get_method("collective", "greedy")(problem, SolveOptions()).solution_json
    )
    back, mirrored = flipped(problem, schedule)
    check_schedule(back, mirrored)
    _, again = flipped(back, mirrored)
    assert again.makespan_ps == schedule.makespan_ps
    for column in ("chunk", "link", "start_ps", "phase"):
        assert np.array_equal(getattr(again, column), getattr(schedule, column))


def test_disconnected_is_infeasible() -> None:
    topology = Topology.from_links("halves", 2, [(0, 1, 0, 10**9)])
    problem = CollectiveInstance(topology, Collective.of("all-gather", 2))
    assert solve(problem, SolveOptions()).termination.reason is Reason.INFEASIBLE
