"""Trees packed at the rate of the bottleneck cut: published rates, validity, schedules."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from collective_cases import instance
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import slow

from nestopt.collective.bounds import best_bound
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.judge.simulate import simulate_schedule
from nestopt.collective.model.collective import Collective
from nestopt.collective.model.connectivity import find_separation
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.of_result import schedule_of
from nestopt.collective.model.topology import Topology
from nestopt.collective.trees.forest import SHAPES, best_rate, find_forest
from nestopt.collective.trees.solve import PATTERNS, ForestCache, fluid_ps, rechunked, tree_schedule
from nestopt.core.errors import InputError, UsageError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method, named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.trees.forest import Forest

GB = 10**9


def dgx1v_less(count: int) -> Topology:
    """A DGX-1V that has lost so many of the two links each way between GPUs 0 and 4."""
    whole = named("topology", "dgx1v")
    ends = list(zip(whole.src.tolist(), whole.dst.tolist()))
    lost = [
        e
        for pair in ((0, 4), (4, 0))
        for e in [i for i, each in enumerate(ends) if each == pair][:count]
    ]
    return whole.without(links=lost)


def fabric4() -> Topology:
    """Two boxes of five NPUs behind a switch each, and a third switch that joins them unevenly."""
    ports = [100, 300, 200, 200, 100, 100, 100, 100, 200, 300]
    rows = [(v, 10 + v // 5, 0, rate * GB) for v, rate in enumerate(ports)]
    rows += [(3, 12, 0, 50 * GB), (4, 12, 0, 12 * GB), (6, 12, 0, 12 * GB)]
    rows += [(10, 12, 0, 25 * GB), (11, 12, 0, 25 * GB)]
    return Topology.from_links("fabric4", 13, rows, switches=[10, 11, 12], bidirectional=True)


def verify_forest(
    topology: Topology, group: NDArray[np.int32], forest: Forest, root: int | None = None
) -> None:
    """Trees span the group, their weights add up, and no link carries more than it can."""
    carried: dict[tuple[int, int], int] = {}
    weight: dict[int, int] = {}
    for tree in forest.trees:
        assert tree.weight > 0
        weight[tree.root] = weight.get(tree.root, 0) + tree.weight
        reached = {tree.root}
        for (origin, goal), routes in zip(tree.arcs, tree.routes):
            assert origin in reached
            assert goal not in reached
            reached.add(goal)
            assert sum(amount for _, amount in routes) == tree.weight
            for route, amount in routes:
                assert (route[0], route[-1]) == (origin, goal)
                assert not {int(v) for v in group} & set(route[1:-1])
                assert len(set(route)) == len(route), "a loop"
                for pair in pairwise(route):
                    carried[pair] = carried.get(pair, 0) + amount
        assert reached == {int(v) for v in group}
    roots = group.tolist() if root is None else [root]
    assert weight == dict.fromkeys(roots, forest.copies)
    # trees a root times the rate of one tree is the rate of a root
    assert forest.copies * forest.unit == 1 / forest.ratio
    rate: dict[tuple[int, int], int] = {}
    for a, b, each in zip(topology.src.tolist(), topology.dst.tolist(), topology.bandwidth):
        rate[a, b] = rate.get((a, b), 0) + int(each)
    for pair, amount in carried.items():
        assert amount * forest.unit <= rate[pair], pair


@pytest.mark.parametrize(
    ("network", "ratio"),
    [
        ("dgx1v", Fraction(7, 150)),
        ("dgx-a100:1x8", Fraction(7, 300)),
        ("dgx-a100:2x8", Fraction(3, 65)),
        ("dgx-a100:4x8", Fraction(3, 25)),
        ("dgx-h100:2x8", Fraction(3, 100)),
        ("mi250:1x16", Fraction(7, 150)),
        # algorithmic bandwidths of 142.86 and 114.29 GB/s: eight NPUs over 1/x
        (1, Fraction(56, 1000)),
        (2, Fraction(7, 100)),
    ],
)
def test_published_rates_are_reached_exactly(network: str | int, ratio: Fraction) -> None:
    """Bottlenecks of ForestColl's topologies (seconds a GB of every NPU)."""
    topology = named("topology", network) if isinstance(network, str) else dgx1v_less(network)
    for shape in SHAPES[:2]:
        forest = find_forest(topology, topology.npus, shape=shape)
        assert forest.ratio == ratio / GB
        assert forest.optimal
        verify_forest(topology, topology.npus, forest)


def random_fabric(seed: int) -> tuple[Topology, NDArray[np.int32]]:
    """A random network with whole rates, often with switches, and a group of its NPUs."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(3, 9))
    parent = [int(rng.integers(v)) for v in range(1, nodes)]
    edges = {(u, v + 1) for v, u in enumerate(parent)}
    edges |= {(a, b) for a in range(nodes) for b in range(a + 1, nodes) if rng.random() < 0.3}
    both = bool(seed % 3)
    rows = []
    for a, b in sorted(edges):
        rate = int(rng.integers(1, 13)) * GB
        back = rate if both else int(rng.integers(1, 13)) * GB
        rows += [(a, b, 0, rate), (b, a, 0, back)]
        if rng.random() < 0.2:
            rows += [(a, b, 0, rate), (b, a, 0, back)]
    count = int(rng.integers(0, nodes - 1)) if rng.random() < 0.7 else 0
    switches = np.sort(rng.choice(nodes, count, replace=False)).tolist()
    topology = Topology.from_links("random", nodes, rows, switches=switches)
    npus = topology.npus
    size = int(rng.integers(2, len(npus) + 1))
    group = np.sort(rng.choice(npus, size, replace=False)) if rng.random() < 0.3 else npus
    return topology, group


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(SHAPES), st.booleans())
def test_forests_of_random_fabrics(seed: int, shape: tuple[int, bool], rooted: bool) -> None:
    topology, group = random_fabric(seed)
    root = int(group[seed % len(group)]) if rooted else None
    forest = find_forest(topology, group, root, shape=shape)
    verify_forest(topology, group, forest, root)
    ratio, inside, exact = best_rate(topology, group, root)
    assert exact
    # the cut proves that no trees are faster
    out = inside[topology.src] & ~inside[topology.dst]
    needed = int(inside[group].sum()) if root is None else 1
    assert ratio == Fraction(needed, int(topology.bandwidth[out].sum()))
    assert forest.ratio >= ratio
    if seed % 3:
        # both directions of every cable alike: the cut is reached
        assert forest.optimal
        assert forest.ratio == ratio


def test_joined_routes_close_no_loops() -> None:
    """Ways through NPUs outside the group used to come back to one that they had passed."""
    topology = named("topology", "dgx-a100:4x8,fabric=rail")
    group = np.array([1, 3, 4, 8, 13, 14, 15, 22, 26, 28, 29, 30, 31], dtype=np.int32)
    verify_forest(topology, group, find_forest(topology, group))
    # a chunk of a byte, so that whole picoseconds and not rates decide
    played(instance(topology, npus=group, chunk_size=1, chunks_per_npu=2, latency="pipelined"))


def played(problem: CollectiveInstance, cache: ForestCache | None = None) -> int:
    """Makespan of the trees' schedule, checked and simulated."""
    schedule = tree_schedule(problem, cache)
    check_schedule(problem, schedule)
    run = simulate_schedule(problem, schedule)
    assert run["simulated"] == run["closed_form"] == schedule.makespan_ps
    return schedule.makespan_ps


@pytest.mark.parametrize("latency", ["pipelined", *slow(["blocking"])])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "network",
    ["mesh2d:3x3,alpha=1us", "dgx1v", "dgx-a100:2x4", "switch:5,multicast=yes,reduce=yes"],
)
def test_every_pattern_is_valid(network: str, pattern: str, latency: str) -> None:
    for chunks in (1, 3):
        problem = instance(network, pattern, latency=latency, chunks_per_npu=chunks)
        assert played(problem) >= best_bound(problem, effort=0.5)["value"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(PATTERNS))
def test_random_fabrics_are_played_right(seed: int, pattern: str) -> None:
    topology, group = random_fabric(seed)
    job = Collective.of(pattern, group, chunk_size=10**6, chunks_per_npu=1 + seed % 4)
    problem = CollectiveInstance(topology, job)
    assert find_separation(problem) is None
    played(problem)


@pytest.mark.parametrize("network", ["dgx-a100:2x4", "mi250:1x16", "mesh2d:4x4", "dgx1v"])
@pytest.mark.parametrize("pattern", ["all-gather", "reduce-scatter"])
def test_many_chunks_come_to_the_cut(network: str, pattern: str) -> None:
    """At most 2 % above the fluid optimum, and one chunk down the deepest tree."""
    cache = ForestCache()
    problem = instance(network, pattern, chunk_size=240 * 10**6)
    copies = find_forest(problem.topology, problem.topology.npus).copies
    chunks = copies * -(-48 // copies)
    problem = rechunked(problem, chunks)
    made, fluid = played(problem, cache), fluid_ps(problem, cache)
    size = problem.collective.chunk_size
    slow = int(problem.transfer_ps(size).max())
    deepest = max(
        sum(len(routes[0][0]) - 1 for routes in tree.routes) for tree in cache.forests()[0].trees
    )
    fill = slow * min(deepest, 2 * len(problem.topology.npus))
    assert fluid <= made
    assert made <= 1.02 * fluid + fill
    assert made <= 1.12 * fluid


def test_an_uneven_fabric_goes_toward_its_bound() -> None:
    cache = ForestCache()
    topology = fabric4()
    over = []
    for chunks in (1, 8, 16, 64):
        job = Collective.of("all-gather", topology.npus, chunk_size=10**8)
        problem = rechunked(CollectiveInstance(topology, job), chunks)
        over.append(played(problem, cache) / float(fluid_ps(problem, cache)))
    assert over == sorted(over, reverse=True)
    assert over[1] < 1.12
    assert over[-1] < 1.02


def solve(problem: CollectiveInstance, **keys: str):
    return get_method("collective", "trees")(problem, SolveOptions(set=keys))


def test_the_number_of_chunks_is_chosen() -> None:
    problem = instance("dgx-a100:2x4", "all-gather", chunk_size=10**7)
    result = solve(problem, chunks="auto")
    chosen = result.stats["chunks"][0]
    assert chosen > 8
    assert result.stats["forests"][0]["optimal_rate"] is True
    for chunks in ("1", "4"):
        assert result.objective < solve(problem, chunks=chunks).objective
    inner = CollectiveInstance.from_json(result.instance["data"])
    assert inner.collective.parts[0].chunks_per_npu == chosen
    check_schedule(inner, schedule_of(result, None))
    # latency makes small messages one chunk
    small = instance("dgx-a100:2x4,alpha=5us", "all-gather", chunk_size=1000)
    assert solve(small, chunks="auto").stats["chunks"] == [1]


def test_what_trees_cannot_do_is_said() -> None:
    with pytest.raises(InputError, match="all-to-all needs another method"):
        solve(instance("ring:4", "all-to-all"))
    with pytest.raises(UsageError, match="expected auto or a number"):
        solve(instance("ring:4"), chunks="many")


def test_two_parts_share_the_network() -> None:
    topology = named("topology", "dgx-a100:2x4")
    jobs = [Collective.of("all-gather", range(4)), Collective.of("all-reduce", range(4, 8))]
    played(CollectiveInstance(topology, Collective.together(*jobs)))


@pytest.mark.slow
@pytest.mark.parametrize("network", ["dgx-a100:8x8", "dgx-h100:8x8", "mi250:4x16", "mesh2d:8x8"])
def test_sixty_four_npus(network: str) -> None:
    topology = named("topology", network)
    forest = find_forest(topology, topology.npus)
    assert forest.optimal
    verify_forest(topology, topology.npus, forest)
