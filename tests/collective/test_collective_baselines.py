"""Baselines: valid schedules on every kind of network, and known costs where they are known."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from sampling import slow

from nestopt.collective.baselines import baseline_schedule
from nestopt.collective.baselines.messages import ALGORITHMS
from nestopt.collective.baselines.orders import binary_tree, dimensions, ring_order
from nestopt.collective.bounds import best_bound
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.collective import PATTERNS, Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.schedule import Schedule
from nestopt.core.errors import CheckError, InputError, UsageError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method, named
from nestopt.core.result import Reason

UNIT = 10**9
NETWORKS = (
    "mesh2d:3x4",
    "dgx1v",
    "ndv2:2",
    "switch:5",
    "switch:5,multicast=yes,reduce=yes",
    "dgx-a100:2x4",
    "torus2d:4x4+log-uniform:0.5,2+fail-npus:2+seed:1",
)


def instance(name: str, pattern: str, latency: str = "blocking", **settings):
    topology = named("topology", name)
    group = settings.pop("npus", topology.npus)
    return CollectiveInstance(topology, Collective.of(pattern, group, **settings), latency)


@cache
def bound_of(network: str, pattern: str) -> float:
    return best_bound(instance(network, pattern, chunks_per_npu=2), effort=1.0)["value"]


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("network", [*NETWORKS[::2], *slow(NETWORKS[1::2])])
def test_every_pattern_gives_a_valid_schedule(name: str, network: str) -> None:
    for pattern in PATTERNS:
        if name == "dbt" and pattern in ("scatter", "gather", "all-to-all"):
            with pytest.raises(InputError, match="another baseline"):
                baseline_schedule(instance(network, pattern), name)
            continue
        problem = instance(network, pattern, chunks_per_npu=2)
        schedule = baseline_schedule(problem, name)
        check_schedule(problem, schedule)
        assert schedule.makespan_ps >= bound_of(network, pattern)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_subgroups_with_relays_and_pipelined_latency(name: str) -> None:
    for pattern in ("all-gather", "reduce-scatter", "all-reduce", "broadcast"):
        problem = instance(
            "torus2d:4x4,alpha=1us", pattern, "pipelined", npus=range(1, 16, 3), root=None
        )
        check_schedule(problem, baseline_schedule(problem, name))


@pytest.mark.parametrize(("n", "steps"), [(4, 2), (7, 3), (8, 4)])
def test_ring_on_a_ring_is_optimal(n: int, steps: int) -> None:
    problem = instance(f"ring:{n}", "all-gather")
    assert baseline_schedule(problem, "ring").makespan_ps == steps * UNIT
    twice = instance(f"ring:{n}", "all-reduce")
    assert baseline_schedule(twice, "ring").makespan_ps == 2 * steps * UNIT


def test_recursive_doubling_on_a_hypercube_takes_one_round_a_bit() -> None:
    problem = instance("hypercube:3", "broadcast")
    assert baseline_schedule(problem, "rhd").makespan_ps == 3 * UNIT


def test_direct_on_a_clique_is_one_step() -> None:
    problem = instance("fully-connected:5", "all-to-all")
    assert baseline_schedule(problem, "direct").makespan_ps == UNIT


def test_parallel_links_share_the_load() -> None:
    # a double link carries two chunks at once
    problem = instance("dgx1v", "scatter", chunk_size=25 * 10**6, npus=[0, 1], chunks_per_npu=2)
    assert baseline_schedule(problem, "direct").makespan_ps == UNIT


def test_unicast_pays_for_every_message() -> None:
    problem = instance("mesh2d:4x4", "all-gather")
    kept = baseline_schedule(problem, "direct")
    alone = baseline_schedule(problem, "direct", unicast=True)
    assert alone.makespan_ps > kept.makespan_ps
    assert alone.num_sends == sum(
        abs(a // 4 - b // 4) + abs(a % 4 - b % 4) for a, b in itertools.product(range(16), repeat=2)
    )
    check_schedule(problem, alone, allow_redundant=True)
    with pytest.raises(CheckError, match="more than once"):
        check_schedule(problem, alone)
    with pytest.raises(UsageError, match="reductions"):
        baseline_schedule(instance("ring:4", "reduce"), "direct", unicast=True)


def test_hierarchical_beats_a_flat_ring_between_nodes() -> None:
    problem = instance("dgx-a100:2x8", "all-reduce", chunk_size=25 * 10**6)
    layered = baseline_schedule(problem, "hierarchical").makespan_ps
    assert layered < baseline_schedule(problem, "ring").makespan_ps / 2


def test_dimensions_follow_the_bandwidths() -> None:
    topology = named("topology", "dgx-a100:2x4")
    node, rank = dimensions(topology, topology.npus)
    assert node.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert rank.tolist() == [0, 1, 2, 3] * 2
    flat = named("topology", "mesh2d:3x4")
    rows, columns = dimensions(flat, flat.npus)
    assert len(set(zip(rows.tolist(), columns.tolist()))) == 12
    with pytest.raises(UsageError, match="16 cells for 12 NPUs"):
        baseline_schedule(instance("mesh2d:3x4", "all-gather"), "hierarchical", dims=[4, 4])


def test_ring_order_finds_a_tour_of_a_grid() -> None:
    cells = np.array(list(itertools.product(range(4), range(4))))
    distance = np.abs(cells[:, None, :] - cells[None, :, :]).sum(axis=2)
    tour = ring_order(distance)
    assert sorted(tour.tolist()) == list(range(16))
    assert distance[tour, np.roll(tour, -1)].sum() == 16


@pytest.mark.parametrize("n", [2, 3, 5, 8, 13, 16])
def test_two_trees_share_their_leaves(n: int) -> None:
    inner = []
    for mirrored in (False, True):
        parent = binary_tree(n, mirrored=mirrored)
        assert parent.count(-1) == 1
        for rank in range(n):
            steps = 0
            while parent[rank] >= 0:
                rank, steps = parent[rank], steps + 1
            assert steps <= n.bit_length()
        assert max(parent.count(rank) for rank in range(n)) <= 2
        inner.append({p for p in parent if p >= 0})
    # an inner node of both trees would carry twice the load
    assert len(inner[0] & inner[1]) <= 2


@pytest.mark.parametrize("name", ALGORITHMS)
def test_methods_are_registered(name: str) -> None:
    problem = instance("torus2d:3x3", "all-gather")
    result = get_method("collective", name)(problem, SolveOptions())
    assert result.bound <= result.objective
    check_schedule(problem, Schedule.from_json(result.solution_json))
    again = get_method("collective", name)(problem, SolveOptions())
    assert again.solution_json == result.solution_json


def test_results_say_unicast_and_infeasible() -> None:
    problem = instance("mesh2d:3x3", "all-gather")
    result = get_method("collective", "direct")(problem, SolveOptions(set={"unicast": "yes"}))
    assert result.settings["unicast"] == "yes" and "unicast" not in result.solution_json
    cut = named("topology", "line:3").without(links=[0, 1])
    broken = CollectiveInstance(cut, Collective.of("all-gather", 3))
    result = get_method("collective", "ring")(broken, SolveOptions())
    assert result.termination.reason is Reason.INFEASIBLE
    with pytest.raises(UsageError, match="expected sizes"):
        get_method("collective", "hierarchical")(problem, SolveOptions(set={"dims": "3by3"}))
