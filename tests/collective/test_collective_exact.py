"""The exact models: proved optima, agreement of all back-ends, rounding, symmetries."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from sampling import slow

from nestopt.collective.bounds import best_bound
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.collective import PATTERNS, Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.schedule import Schedule
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import UsageError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method, named
from nestopt.core.result import Limit, Reason, Termination
from nestopt.formulations.collective import solve as collective_solve
from nestopt.formulations.collective.cpsat import CollectiveCpsat
from nestopt.formulations.collective.grid import finest_tick, grid_problem
from nestopt.formulations.collective.milp import CollectiveMilp
from nestopt.formulations.collective.solve import solve_cpsat, solve_milp
from nestopt.formulations.collective.symmetry import automorphism, find_symmetries
from nestopt.formulations.solvers.adapters import solve_milp as run_milp
from nestopt.formulations.solvers.outcome import Outcome

UNIT = 10**9  # ps: a chunk of 1 MB at 1 GB/s


def instance(topology: Topology | str, pattern: str, latency: str = "blocking", **settings):
    network = named("topology", topology) if isinstance(topology, str) else topology
    return CollectiveInstance(
        network, Collective.of(pattern, network.npus, **settings), latency, "moved"
    )


def options(**settings) -> SolveOptions:
    limit = settings.pop("time_limit", 60.0)
    chosen = {key.replace("_", "-"): str(value) for key, value in settings.items()}
    return SolveOptions(time_limit=limit, set=chosen)


def random_instance(seed: int) -> CollectiveInstance:
    """3 to 5 nodes, unequal links, any pattern, now and then a switch or a subgroup."""
    rng = np.random.default_rng(seed)
    nodes, switch = int(rng.integers(3, 6)), int(rng.random() < 0.4)
    order = rng.permutation(nodes).tolist()
    pairs = list(zip(order, order[1:] + order[:1]))
    others = [p for p in itertools.permutations(range(nodes), 2) if p not in pairs]
    chosen = rng.choice(len(others), size=min(len(others), nodes), replace=False)
    pairs += [others[i] for i in chosen]
    alpha = (1000 * rng.integers(0, 3, size=len(pairs))).tolist()
    rate = (6 * 10**9 // rng.integers(1, 4, size=len(pairs))).tolist()
    links = [(a, b, t, r) for (a, b), t, r in zip(pairs, alpha, rate)]
    able = [[nodes - 1] if switch and rng.random() < 0.5 else [] for _ in range(2)]
    topology = Topology.from_links(
        "random",
        nodes,
        links,
        switches=range(nodes - switch, nodes),
        multicast=able[0],
        reduces=able[1],
    )
    group = topology.npus if rng.random() < 0.7 else topology.npus[: max(2, nodes - 2)]
    pattern = PATTERNS[seed % 8]
    part = Collective.of(pattern, group, chunk_size=6)
    return CollectiveInstance(topology, part, ("blocking", "pipelined")[seed // 8 % 2], "moved")


def checked(problem: CollectiveInstance, result) -> Schedule:
    schedule = Schedule.from_json(result.solution_json)
    check_schedule(problem, schedule)
    assert schedule.makespan_ps == result.objective
    return schedule


@pytest.mark.parametrize("solve", [solve_cpsat, solve_milp])
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("mesh2d:3x3", 4),
        ("mesh2d:4x4", 8),
        ("torus2d:3x3", 2),
        ("torus2d:3x4", 3),
        ("torus2d:4x4", 4),
        ("ring:6", 3),
        *slow([("torus2d:5x5", 6)]),
    ],
)
def test_proved_optimum_of_grids(solve, name: str, steps: int) -> None:
    problem = instance(name, "all-gather")
    result = solve(problem, options(incumbent="none"))
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective == result.bound == steps * UNIT
    checked(problem, result)


@pytest.mark.parametrize(
    ("name", "steps"),
    [("mesh2d:4x4,bw=1GB/s:3GB/s", 12), ("torus2d:4x4,bw=1GB/s:2GB/s", 6)],
)
def test_proved_optimum_with_a_slow_dimension(name: str, steps: int) -> None:
    size = (2 if "2GB" in name else 3) * 10**6
    problem = instance(name, "all-gather", chunk_size=size)
    result = solve_cpsat(problem, options(incumbent="none"))
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective == steps * UNIT
    checked(problem, result)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("mesh2d:4x4", 8),
        ("torus2d:5x5", 6),
        pytest.param("mesh2d:6x6", 18, marks=pytest.mark.slow),
        pytest.param("torus2d:6x6", 9, marks=pytest.mark.slow),
    ],
)
def test_cpsat_proves_the_bound_of_the_ports_by_itself(name: str, steps: int) -> None:
    result = solve_cpsat(instance(name, "all-gather"), options(bound="none", time_limit=300.0))
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective == result.bound == steps * UNIT
    assert result.stats["proof"] == "search"
    refuted = [row["horizon"] for row in result.stats["horizons"] if row["answer"] == "infeasible"]
    assert refuted[-1] == steps - 1


@pytest.mark.parametrize("solve", [solve_cpsat, solve_milp])
@pytest.mark.parametrize(("chunks", "steps"), [(1, 2), (2, 3)])
def test_proved_optimum_of_dgx1(solve, chunks: int, steps: int) -> None:
    problem = instance("dgx1v", "all-gather", chunk_size=25 * 10**6, chunks_per_npu=chunks)
    result = solve(problem, options(incumbent="none"))
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective == steps * UNIT


@pytest.mark.slow
@pytest.mark.parametrize("solve", [solve_cpsat, solve_milp])
@pytest.mark.parametrize(
    ("name", "steps"), [("mesh2d:5x5", 12), ("torus2d:6x6", 9), ("mesh2d:6x6", 18)]
)
def test_proved_optimum_of_larger_grids(solve, name: str, steps: int) -> None:
    problem = instance(name, "all-gather")
    result = solve(problem, options(incumbent="none", time_limit=300.0))
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective == steps * UNIT


@pytest.mark.parametrize("solve", [solve_cpsat, solve_milp])
def test_infeasibility_of_the_step_below_is_proved_without_bounds(solve) -> None:
    problem = instance("mesh2d:2x3", "all-to-all")
    result = solve(problem, options(incumbent="none", bound="none"))
    assert result.termination.reason is Reason.OPTIMAL
    tried = {row["horizon"]: row["answer"] for row in result.stats["horizons"]}
    optimum = result.objective // UNIT
    assert tried[optimum] == "optimal"
    assert tried[optimum - 1] == "infeasible"
    assert result.witness["kind"] == "search"


@pytest.mark.parametrize("second_try", [True, False])
def test_undecided_horizons_below_a_schedule_are_tried_again(monkeypatch, second_try) -> None:
    problem = instance("mesh2d:2x3", "all-to-all")
    bare = options(incumbent="none", bound="none")
    optimum = int(solve_cpsat(problem, bare).objective) // UNIT
    whole = CollectiveCpsat.solve
    tried: list[int] = []

    def solve(model, hint, **settings):
        horizon = model.windows.horizon
        tried.append(horizon)
        if horizon < optimum and not (second_try and horizon in tried[:-1]):
            ended = Termination(Reason.NO_SOLUTION, Limit.TIME)
            return Outcome(ended, None, -np.inf, None, 0.0), []
        return whole(model, hint, **settings)

    monkeypatch.setattr(CollectiveCpsat, "solve", solve)
    result = solve_cpsat(problem, bare)
    assert result.objective == optimum * UNIT
    assert tried[-1] == optimum - 1 and tried.count(optimum - 1) == 2
    if second_try:
        assert result.termination.reason is Reason.OPTIMAL
    else:
        assert result.termination.reason is Reason.FEASIBLE
        assert result.termination.limit is Limit.TIME


@pytest.mark.parametrize("kind", [CollectiveCpsat, CollectiveMilp])
@pytest.mark.parametrize("family", ["add_delivery", "add_causality"])
def test_a_time_limit_holds_while_a_model_is_built(monkeypatch, kind, family: str) -> None:
    add = getattr(kind, family)
    hours = itertools.count(time.perf_counter() + 3600.0, 3600.0)

    def slow(model):
        monkeypatch.setattr(time, "perf_counter", lambda: next(hours))
        add(model)

    monkeypatch.setattr(kind, family, slow)
    solve = solve_cpsat if kind is CollectiveCpsat else solve_milp
    result = solve(instance("mesh2d:2x3", "all-gather"), options(incumbent="none"))
    assert result.termination.reason is Reason.NO_SOLUTION
    assert result.termination.limit is Limit.TIME
    assert result.bound == 3 * UNIT


@pytest.mark.parametrize("solve", [solve_cpsat, solve_milp])
def test_a_model_that_would_be_too_large_is_not_built(monkeypatch, solve) -> None:
    problem = instance("mesh2d:2x3", "all-gather")
    monkeypatch.setattr(collective_solve, "_LARGEST_MODEL", 10)
    result = solve(problem, options(incumbent="none"))
    assert result.termination.reason is Reason.NO_SOLUTION
    assert result.termination.limit is Limit.MEMORY
    assert result.bound == best_bound(problem)["value"]
    # a schedule that meets the bound needs no model
    assert solve(problem, options()).termination.reason is Reason.OPTIMAL


def test_four_node_graph_is_proved_without_any_help() -> None:
    problem = instance("uneven4", "all-gather", chunk_size=1)
    result = solve_cpsat(problem, options(incumbent="none", bound="none"))
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective >= 6 * 10**6
    assert result.stats["model"] == "interval"
    checked(problem, result)


SEEDS = [s for s in range(32) if s % 8 != 2]


@pytest.mark.parametrize("seed", [*SEEDS[:5], *slow(SEEDS[5:])])
def test_models_agree(seed: int) -> None:
    """Grid and intervals, CP-SAT and MILP, with and without symmetry breaking; bound <= optimum."""
    problem = random_instance(seed)
    bare = {"incumbent": "none", "bound": "none"}
    results = [
        solve_cpsat(problem, options(model="grid", **bare)),
        solve_cpsat(problem, options(model="grid", symmetry="no", **bare)),
        solve_cpsat(problem, options(model="interval", **bare)),
        solve_milp(problem, options(**bare)),
        solve_cpsat(problem, options()),
    ]
    assert {r.termination.reason for r in results} == {Reason.OPTIMAL}
    assert len({r.objective for r in results}) == 1
    assert best_bound(problem)["value"] <= results[0].objective
    greedy = get_method("collective", "greedy")(problem, SolveOptions())
    assert greedy.objective >= results[0].objective
    for result in results:
        checked(problem, result)


@pytest.mark.parametrize("seed", [10, 42])
def test_models_agree_on_all_reduce(seed: int) -> None:
    problem = random_instance(seed)
    grid = solve_cpsat(problem, options(model="grid"))
    interval = solve_cpsat(problem, options(model="interval", incumbent="none"))
    milp = solve_milp(problem, options())
    assert grid.objective == interval.objective == milp.objective
    assert grid.termination.reason is interval.termination.reason is Reason.OPTIMAL
    checked(problem, interval)


def test_false_infeasibility_of_presolve_is_caught() -> None:
    # HiGHS 1.16 calls this horizon infeasible unless presolve is off
    problem = grid_problem(random_instance(45))
    horizon = 14
    feasible, _ = CollectiveCpsat(problem, horizon).solve()
    model = CollectiveMilp(problem, horizon).model
    outcome = run_milp(model, presolve=True)
    assert feasible.termination.reason is outcome.termination.reason


def test_several_collectives_at_once() -> None:
    network = named("topology", "mesh2d:2x3")
    both = Collective.together(
        Collective.of("all-gather", range(3), chunk_size=10**6),
        Collective.of("reduce", range(6), chunk_size=2 * 10**6, root=5),
        Collective.of("scatter", [2, 3, 4], chunk_size=10**6),
    )
    problem = CollectiveInstance(network, both)
    grid = solve_cpsat(problem, options(model="grid", incumbent="none"))
    interval = solve_cpsat(problem, options(model="interval", incumbent="none"))
    assert grid.termination.reason is interval.termination.reason is Reason.OPTIMAL
    assert grid.objective == interval.objective
    checked(problem, grid)
    checked(problem, interval)


def test_rounding_says_what_it_is() -> None:
    problem = instance("uneven4", "all-gather", chunk_size=1)
    exact = solve_cpsat(problem, options()).objective
    rounded = solve_milp(problem, options(incumbent="none", bound="none"))
    assert rounded.bound <= exact <= rounded.objective
    assert rounded.stats["rounded_tick_ps"] > finest_tick(problem)
    assert rounded.stats["rounded_down"]["bound_ticks"] * rounded.stats["rounded_tick_ps"] <= exact
    assert rounded.objective <= 1.01 * exact
    checked(problem, rounded)


def test_time_limit_keeps_bound_and_incumbent() -> None:
    problem = instance("mesh2d:4x4", "all-to-all")
    result = solve_cpsat(problem, options(time_limit=0.5))
    assert result.bound > 0
    if result.termination.reason is not Reason.OPTIMAL:
        assert result.termination.limit is Limit.TIME
    checked(problem, result)


def test_warm_start_and_model_file(tmp_path) -> None:
    problem = instance("torus2d:3x3", "all-gather")
    first = solve_cpsat(problem, options())
    for ending, solve in ((".lp", solve_milp), (".pbtxt", solve_cpsat)):
        path = tmp_path / f"model{ending}"
        chosen = SolveOptions(warm_start=first, write_model=str(path), time_limit=60.0)
        result = solve(problem, chosen)
        assert result.objective == first.objective
        assert result.termination.reason is Reason.OPTIMAL
        assert path.stat().st_size > 0


def test_disconnected_is_infeasible() -> None:
    topology = Topology.from_links(
        "halves", 4, [(0, 1, 0, 10**9), (2, 3, 0, 10**9)], bidirectional=True
    )
    for solve in (solve_cpsat, solve_milp):
        result = solve(instance(topology, "all-gather"), options())
        assert result.termination.reason is Reason.INFEASIBLE
        assert "{0, 1}" in result.infeasible_because[0]
        assert "{2, 3}" in result.infeasible_because[0]


def test_settings_are_checked() -> None:
    problem = instance("ring:4", "all-gather")
    with pytest.raises(UsageError, match="expected one of auto, grid"):
        solve_cpsat(problem, SolveOptions(set={"model": "mesh"}))
    with pytest.raises(UsageError, match="expected picoseconds"):
        solve_milp(problem, SolveOptions(set={"tick": "soon", "incumbent": "none"}))


def test_deterministic_time_repeats() -> None:
    problem = instance("mesh2d:4x4", "all-gather")
    chosen = options(incumbent="none", deterministic_time=20.0)
    first, second = (solve_cpsat(problem, chosen) for _ in range(2))
    assert first.solution_json == second.solution_json


def test_symmetries_are_symmetries() -> None:
    problem = grid_problem(instance("torus2d:4x4", "all-gather"))
    mapping = automorphism(problem, {0: 5, 1: 9})
    assert mapping is not None
    links = set(zip(problem.src.tolist(), problem.dst.tolist()))
    assert {(mapping[u], mapping[w]) for u, w in links} == links
    assert automorphism(problem, {0: 0, 1: 5}) is None
    pairs = find_symmetries(problem)
    # every link can be mapped to every other
    assert len([p for p in pairs if p[0] == pairs[0][0]]) >= 63
    # the only symmetry of the 4-node graph turns it round: 0 and 3, 1 and 2 change places
    uneven = grid_problem(instance("uneven4", "all-gather", chunk_size=1))
    assert find_symmetries(uneven) == [((0, 2), (3, 1))]


def test_chunks_of_one_npu_are_ordered() -> None:
    problem = grid_problem(instance("ring:4", "all-gather", chunks_per_npu=2))
    pairs = find_symmetries(problem)
    assert ((2, 0), (3, 0)) in pairs
