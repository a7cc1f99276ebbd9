"""Every network family: counts, degrees, symmetry, connectivity and bandwidth laws."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestopt.core.errors import InputError, UsageError
from nestopt.instances.network import Network, strongly_connected
from nestopt.instances.topologies import by_name, network_by_name

GB = 10**9


def degrees(network: Network) -> list[int]:
    return np.bincount(network.src, minlength=network.num_nodes).tolist()


def assert_symmetric(network: Network) -> None:
    """Every link has its reverse with the same bandwidth and latency."""
    links = Counter(
        zip(
            network.src.tolist(),
            network.dst.tolist(),
            network.bandwidth.tolist(),
            network.alpha_ps.tolist(),
        )
    )
    assert links == Counter({(v, u, b, a): n for (u, v, b, a), n in links.items()})


# name, NPUs, switches, links, sorted set of NPU out-degrees
COUNTS = [
    ("ring:8", 8, 0, 16, {2}),
    ("ring:2", 2, 0, 2, {1}),
    ("ring:8,directed=yes", 8, 0, 8, {1}),
    ("line:5", 5, 0, 8, {1, 2}),
    ("star:6", 6, 0, 10, {1, 5}),
    ("mesh2d:3x4", 12, 0, 2 * (3 * 3 + 2 * 4), {2, 3, 4}),
    ("mesh3d:2x3x4", 24, 0, 2 * (12 + 16 + 18), {3, 4, 5}),
    ("torus2d:4x4", 16, 0, 64, {4}),
    ("torus2d:2x4", 8, 0, 24, {3}),
    ("torus3d:3x4x5", 60, 0, 360, {6}),
    ("torus:3x3x3x3", 81, 0, 648, {8}),
    ("grid:3x4,wrap=01", 12, 0, 2 * (12 + 8), {3, 4}),
    ("hypercube:4", 16, 0, 64, {4}),
    ("fully-connected:7", 7, 0, 42, {6}),
    ("switch:5", 5, 1, 10, {1}),
    ("3d-rfs:4x3x2", 24, 12, 2 * (24 + 24 + 24), {2 + 2 + 1}),
    ("random-regular:10,3,4", 10, 0, 30, {3}),
    ("fat-tree:4", 16, 20, 96, {1}),
    ("fat-tree:6", 54, 45, 2 * 54 * 3, {1}),
    ("leaf-spine:4x8,spines=3", 32, 7, 2 * (32 + 12), {1}),
    ("leaf-spine:4x8,rails=yes", 32, 12, 2 * 64, {2}),
    ("leaf-spine:4x8,rails=yes,unit=2,spines=2", 32, 4 + 16 + 2, 2 * (64 + 32), {2}),
    ("dragonfly:4x2x2", 72, 36, 2 * (72 + 9 * 6 + 36), {1}),
    ("dragonfly:4x2x2,groups=3", 24, 12, 2 * (24 + 3 * 6 + 3 * 4), {1}),
    ("dgx1v", 8, 0, 48, {6}),
    ("ndv2:2", 16, 0, 98, {6, 7}),
    ("ndv2:3", 24, 1, 3 * 48 + 6, {6, 7}),
    ("dgx-a100", 8, 1, 16, {1}),
    ("dgx-a100:2x8", 16, 3, 64, {2}),
    ("dgx-h100:40x8,fabric=rail", 320, 40 + 16 + 8, 2 * (640 + 16 * 8), {2}),
    ("mi250", 16, 0, 112, {7}),
    ("perlmutter:3", 12, 1, 3 * 48 + 24, {13}),
    ("frontier", 8, 0, 56, {7}),
    ("frontier:3", 24, 13, 3 * 56 + 2 * (24 + 12), {8}),
    ("alps:2", 8, 1, 2 * 12 + 16, {4}),
    ("tpuv4:4x4x4", 64, 0, 384, {6}),
    ("tpuv4:2x2x1", 4, 0, 8, {2}),
    ("uneven4", 4, 0, 10, {2, 3}),
]


@pytest.mark.parametrize("name, npus, switches, links, out", COUNTS)
def test_counts_degrees_and_connectivity(
    name: str, npus: int, switches: int, links: int, out: set[int]
) -> None:
    network = network_by_name(name)
    assert len(network.npus) == npus
    assert int(network.is_switch.sum()) == switches
    assert network.num_links == links
    degree = degrees(network)
    assert {degree[npu] for npu in network.npus} == out
    assert strongly_connected(network)
    if "directed" not in name:
        assert_symmetric(network)
    graph = nx.DiGraph(list(zip(network.src.tolist(), network.dst.tolist())))
    assert nx.is_strongly_connected(graph)
    assert len(graph) == network.num_nodes
    topology = by_name(name)
    assert topology.num_links == links
    assert topology.name == name
    assert len(set(topology.node_names)) == topology.num_nodes


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=4))
def test_grid_laws(dimensions: list[tuple[int, bool]]) -> None:
    sizes = [size for size, _ in dimensions]
    wrap = "".join("1" if around else "0" for _, around in dimensions)
    network = network_by_name(f"grid:{'x'.join(map(str, sizes))},wrap={wrap}")
    total = int(np.prod(sizes))
    cables = sum(
        total // size * (size if around and size > 2 else size - 1) for size, around in dimensions
    )
    assert len(network.npus) == total
    assert network.num_links == 2 * cables
    assert_symmetric(network)
    assert strongly_connected(network)
    expected = (
        nx.grid_graph([1])
        if total == 1
        else nx.grid_graph(
            sizes[::-1], periodic=[around and size > 2 for size, around in dimensions][::-1]
        )
    )
    assert expected.number_of_edges() == cables
    index = {c: i for i, c in enumerate(sorted(expected.nodes))}
    if total > 1:
        edges = {frozenset((index[a], index[b])) for a, b in expected.edges}
        assert edges == {frozenset(e) for e in zip(network.src.tolist(), network.dst.tolist())}


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 14), st.integers(2, 6), st.integers(0, 10**6))
def test_random_regular_is_simple_regular_and_connected(size: int, degree: int, seed: int) -> None:
    name = f"random-regular:{size},{degree},{seed}"
    if degree >= size or size * degree % 2:
        with pytest.raises(InputError, match="there is no graph"):
            network_by_name(name)
        return
    network = network_by_name(name)
    assert set(degrees(network)) == {degree}
    pairs = list(zip(network.src.tolist(), network.dst.tolist()))
    assert len(set(pairs)) == len(pairs)
    assert all(u != v for u, v in pairs)
    assert strongly_connected(network)


def test_random_regular_seeds_differ() -> None:
    graphs = {
        tuple(zip(n.src.tolist(), n.dst.tolist()))
        for n in (network_by_name(f"random-regular:16,3,{seed}") for seed in range(10))
    }
    assert len(graphs) == 10


def test_links_per_dimension() -> None:
    network = network_by_name("3d-rfs:4x3x2,bw=200GB/s:100GB/s:50GB/s,alpha=0.5us:1us:2us")
    by_tier = {
        tier: (int(b), int(a))
        for tier, b, a in zip(network.tier, network.bandwidth, network.alpha_ps)
    }
    assert by_tier == {
        "dim0": (200 * GB, 500_000),
        "dim1": (100 * GB, 1_000_000),
        "dim2": (50 * GB, 2_000_000),
    }


def test_unit_link_is_the_default() -> None:
    topology = by_name("mesh2d:4x4")
    assert set(topology.bandwidth.tolist()) == {GB}
    assert not topology.alpha_ps.any()


def test_fat_tree_is_rearrangeable() -> None:
    """As much bandwidth leaves each tier as enters it."""
    network = network_by_name("fat-tree:4")
    tiers = Counter(network.tier)
    assert tiers["npu"] == tiers["edge"] == tiers["core"] == 32


@pytest.mark.parametrize("oversub", [1, 2, 4])
def test_oversubscription(oversub: int) -> None:
    network = network_by_name(f"leaf-spine:4x8,spines=2,oversub={oversub}")
    up = [int(b) for b, tier in zip(network.bandwidth, network.tier) if tier == "uplink"]
    down = [int(b) for b, tier in zip(network.bandwidth, network.tier) if tier == "port"]
    assert sum(down) == oversub * sum(up)


def test_dragonfly_ports_are_used_once() -> None:
    network = network_by_name("dragonfly:4x2x2")
    out = Counter(int(u) for u, tier in zip(network.src, network.tier) if tier == "global")
    assert set(out.values()) == {2}
    group = {router: g for g, members in enumerate(network.groups["rack"]) for router in members}
    pairs = Counter(
        (group[int(u)], group[int(v)])
        for u, v, tier in zip(network.src, network.dst, network.tier)
        if tier == "global"
    )
    assert len(pairs) == 72
    assert set(pairs.values()) == {1}


def test_rails_join_equal_positions() -> None:
    network = network_by_name("leaf-spine:4x8,rails=yes")
    for rail in network.groups["rail"]:
        names = [network.node_names[node] for node in rail[:-1]]
        assert len({name.split(".")[1] for name in names}) == 1


def test_multicast_and_reduce_of_switches() -> None:
    plain, able = by_name("switch:4"), by_name("switch:4,multicast=yes,reduce=yes")
    assert not plain.multicast[4] and not plain.reduces[4]
    assert able.multicast.all() and able.reduces.all()


def throughput_attained(network: Network, inverse: Fraction) -> bool:
    """Whether every NPU can receive 1/inverse GB/s from every other at once (max-flow)."""
    graph = nx.DiGraph()
    for u, v, bandwidth in zip(network.src.tolist(), network.dst.tolist(), network.bandwidth):
        capacity = int(bandwidth) * inverse.numerator
        before = graph.get_edge_data(u, v, {"capacity": 0})["capacity"]
        graph.add_edge(u, v, capacity=before + capacity)
    npus = [int(npu) for npu in network.npus]
    for npu in npus:
        graph.add_edge("source", npu, capacity=GB * inverse.denominator)
    want = GB * inverse.denominator * len(npus)
    return all(nx.maximum_flow_value(graph, "source", npu) == want for npu in npus)


@pytest.mark.parametrize(
    "name, inverse",
    [
        ("dgx1v", Fraction(7, 150)),
        ("dgx-a100:1x8", Fraction(7, 300)),
        ("dgx-a100:2x8", Fraction(3, 65)),
        ("dgx-a100:4x8", Fraction(3, 25)),
        ("dgx-h100:2x8", Fraction(3, 100)),
        ("mi250:1x16", Fraction(7, 150)),
    ],
)
def test_published_throughput_optimum(name: str, inverse: Fraction) -> None:
    """1/x* in s/GB: attained, and nothing smaller is (ForestColl's bottleneck cut)."""
    network = network_by_name(name)
    assert throughput_attained(network, inverse)
    assert not throughput_attained(network, inverse * Fraction(999_999, 1_000_000))


def test_ndv2_chassis_are_joined_by_one_cable() -> None:
    network = network_by_name("ndv2:2")
    across = [
        (int(u), int(v), int(b))
        for u, v, b, tier in zip(network.src, network.dst, network.bandwidth, network.tier)
        if tier == "nic"
    ]
    assert across == [(0, 9, 12_500_000_000), (9, 0, 12_500_000_000)]


def test_tpuv4_wraps_only_whole_cubes() -> None:
    assert set(degrees(network_by_name("tpuv4:4x4x8"))) == {6}
    assert 3 in degrees(network_by_name("tpuv4:2x2x4"))
    cubes = network_by_name("tpuv4:4x8x8").groups["cube"]
    assert len(cubes) == 4
    assert {len(cube) for cube in cubes} == {64}


def test_uneven4_distance() -> None:
    network = network_by_name("uneven4")
    graph = nx.DiGraph()
    for u, v, alpha in zip(network.src.tolist(), network.dst.tolist(), network.alpha_ps.tolist()):
        graph.add_edge(u, v, weight=alpha)
    assert nx.shortest_path_length(graph, 0, 3, weight="weight") == 6_000_000


@pytest.mark.parametrize(
    "name, message",
    [
        ("mesh2d:0x4", "dimension 0 is 0"),
        ("mesh2d:4", "1 dimensions; expected 2"),
        ("mesh2d", "needs the size of every dimension as argument 1"),
        ("mesh2d:4x", "is no shape"),
        ("ring:", "has no arguments"),
        ("ring:1", "is 1; expected at least 2"),
        ("ring:x", "expected a whole number"),
        ("ring:4,4", "one too many"),
        ("ring:4,bw=50", "no unit"),
        ("ring:4,bw=0GB/s", "positive"),
        ("ring:4,bw=", "is empty"),
        ("ring:4,bw=1GB/s,bw=2GB/s", "given twice"),
        ("ring:4,bw=1GB/s:2GB/s", "lists 2 values; expected 1 or 1"),
        ("ring:4,alpha=-1us", "negative"),
        ("ring:4,alpha=0.1ps", "whole number of picoseconds"),
        ("ring:4,bww=1GB/s", "did you mean 'bw'"),
        ("ring:bw=1GB/s,4", "follows an option"),
        ("grid:3x3,wrap=2", "expected 2 digits"),
        ("fat-tree:3", "even number"),
        ("hypercube:30", "at most 20"),
        ("leaf-spine:4x8,oversub=0", "at least"),
        ("leaf-spine:4x8,oversub=x", "no number"),
        ("dragonfly:2x2x2,groups=9", "at most 5"),
        ("random-regular:5,3", "there is no graph"),
        ("random-regular:6,1", "cannot be connected"),
        ("mi250:1x8", "expected 16"),
        ("dgx-a100:1x9", "at most 8"),
        ("dgx-a100:2x8,fabric=ring", "expected one of switch, rail"),
        ("switch:4,multicast=maybe", "expected yes or no"),
    ],
)
def test_wrong_parameters(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        by_name(name)


def test_unknown_family_suggests() -> None:
    with pytest.raises(UsageError, match="did you mean 'torus2d'"):
        by_name("tours2d:4x4")
