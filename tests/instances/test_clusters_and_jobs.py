"""Cluster trees, random workloads, and clustering of networks."""

from __future__ import annotations

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestopt.core.errors import InputError, UsageError
from nestopt.instances.clustering import cluster_of, widest_path_partitions
from nestopt.instances.jobs import random_workload
from nestopt.instances.network import strongly_connected
from nestopt.instances.topologies import network_by_name
from nestopt.instances.tree_networks import network_of_cluster
from nestopt.instances.trees import cluster_by_name
from nestopt.placement.model.cluster import Cluster
from nestopt.placement.model.workload import Workload
from nestopt.placement.pricing.parameters import parameter_set

H100 = parameter_set("nestopt-2").device_type("h100")


@pytest.mark.parametrize(
    "name",
    [
        "tree:8",
        "tree:8x4x2,device=a100,port=300GB/s:25GB/s:25GB/s,uplink=100GB/s:400GB/s,latency=1us",
        "h100-spineleaf-64+fail-npus:3+seed:1",
        "of:(dgx-a100:4x8),device=a100",
        "tree:8x4+uneven:0.5+mix:h100,a100+memory:1,1/2+uplink:0.5,1+latency:1,2+port:0.5,1",
        "tree:4x4+degraded-devices:2,1/2+degraded-links:1,1/4",
        "tree:4x4x2+fail-group:level1,1",
    ],
)
def test_clusters_survive_json(name: str) -> None:
    cluster = cluster_by_name(name)
    assert cluster.name == name
    assert Cluster.from_json(cluster.to_json()).to_json() == cluster.to_json()


def test_tree_defaults_carry_all_ports() -> None:
    cluster = cluster_by_name("tree:8x4x2")
    assert cluster.num_devices == 64
    assert [len(sizes) for sizes in cluster.sizes] == [8, 2, 1]
    assert cluster.levels[0].uplink == 8 * cluster.levels[1].port
    assert cluster.levels[1].uplink == 32 * cluster.levels[2].port


@settings(max_examples=25, deadline=None)
@given(st.integers(50, 950), st.integers(0, 500))
def test_uneven_keeps_a_device_in_every_group(thousandths: int, seed: int) -> None:
    cluster = cluster_by_name(f"tree:8x6+uneven:{thousandths / 1000:.3f}+seed:{seed}")
    assert len(cluster.sizes[0]) == 6
    assert all(8 - 8 * thousandths // 1000 <= size <= 8 for size in cluster.sizes[0])
    assert sum(cluster.sizes[0]) == cluster.num_devices == cluster.sizes[1][0]


def test_mixed_types_are_whole_groups() -> None:
    cluster = cluster_by_name("tree:8x16+mix:h100,a100+seed:2")
    assert {t.name for t in cluster.types} == {"h100", "a100"}
    for group in range(16):
        assert len(set(cluster.type_of[8 * group : 8 * group + 8].tolist())) == 1
    assert len(set(cluster.type_of.tolist())) == 2


def test_mixed_memory_and_slow_devices() -> None:
    cluster = cluster_by_name("tree:8x16+memory:1,1/2")
    assert {t.memory for t in cluster.types} == {H100.memory, H100.memory / 2}
    slow = cluster_by_name("tree:8x16+degraded-devices:5,1/2")
    peaks = [slow.types[t].peak for t in slow.type_of]
    assert sorted(set(peaks)) == [H100.peak / 2, H100.peak]
    assert peaks.count(H100.peak / 2) == 5


def test_uplinks_vary_within_range() -> None:
    plain = cluster_by_name("tree:8x16")
    cluster = cluster_by_name("tree:8x16+uplink:0.25,0.75")
    ratio = cluster.uplink[0] / plain.uplink[0]
    assert len(set(ratio.tolist())) == 16
    assert 0.25 - 1e-4 <= ratio.min() < ratio.max() <= 0.75 + 1e-4
    degraded = cluster_by_name("tree:8x16+degraded-links:3,1/4")
    assert (degraded.uplink[0] == plain.uplink[0] / 4).sum() == 3


def test_cluster_failures_are_counted_and_nested() -> None:
    sets = [set(cluster_by_name(f"tree:8x8+fail-npus:{k}+seed:5").failed) for k in range(10)]
    assert [len(s) for s in sets] == list(range(10))
    assert all(a < b for a, b in itertools.pairwise(sets))
    group = cluster_by_name("tree:4x4x2+fail-group:level1,1")
    assert len(group.failed) == 16
    rsc = [set(cluster_by_name(f"dgx-h100-512+fail-rates:rsc1,days={d}").failed) for d in (5, 50)]
    assert rsc[0] < rsc[1]
    assert all(len(s) % 8 == 0 for s in rsc)


@pytest.mark.parametrize(
    "name, message",
    [
        ("tree:8x4+fail-links:1", "has no links"),
        ("tree:8x4+connected", "has no links"),
        ("tree:8x4+fail-npus:33", "33 shall fail; there are 32"),
        ("tree:8x4+fail-group:rack,1", "no level 'rack'; there are: level0, level1"),
        ("tree:8x4+fail-group:level0,5", "5 shall fail; there are 4"),
        ("tree:8x4+uplink:1,2,level=1", "the outermost level has no uplink"),
        ("tree:8x4+uplink:1,2,level=2", "levels 0 to 1"),
        ("tree:8x4+uplink:2,1", "above the highest"),
        ("tree:8x4+mix:h100,b100", "unknown device 'b100'"),
        ("tree:8x4+uneven:1", "less than 1"),
        ("tree:8x4,uplink=1GB/s:2GB/s", "lists 2 values; expected 1 or 1"),
        ("tree:8x4,port=-1GB/s", "above zero"),
        ("of:(ring:4),type=h100", "unknown option 'type'"),
        ("of:ring:4", r"expected of:\(TOPOLOGY\)"),
    ],
)
def test_wrong_clusters(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        cluster_by_name(name)


def test_unknown_cluster_parts_suggest() -> None:
    with pytest.raises(UsageError, match="did you mean 'uplink'"):
        cluster_by_name("tree:8x4+uplinks:1,2")


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 20), st.integers(1, 4), st.floats(0, 1), st.integers(0, 999))
def test_random_dag_is_connected_and_ordered(
    count: int, width: int, skip: float, seed: int
) -> None:
    workload = random_workload(f"random-dag:{count},width={width},skip={skip:.2f},seed={seed}")
    assert workload.num_operators == count
    graph = nx.DiGraph()
    graph.add_nodes_from(range(count))
    graph.add_edges_from((e.source, e.target) for e in workload.edges)
    assert nx.is_directed_acyclic_graph(graph)
    first_layer = [v for v in graph if not graph.pred[v]]
    assert len(first_layer) <= width
    last_layer = [v for v in graph if not graph.succ[v]]
    assert len(last_layer) <= width
    assert Workload.from_json(workload.to_json()).to_json() == workload.to_json()


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.floats(0, 1.5), st.floats(0.01, 0.99), st.integers(1, 64))
def test_random_chain_memory_tightness(count: int, skew: float, tight: float, devices: int) -> None:
    workload = random_workload(
        f"random-chain:{count},skew={skew:.3f},tight={tight:.3f},devices={devices}"
    )
    assert workload.is_chain
    states = 18 * workload.total_params
    assert states == pytest.approx(float(f"{tight:.3f}") * devices * H100.usable, rel=1e-6)


def test_skew_zero_makes_equal_operators() -> None:
    workload = random_workload("random-chain:6,skew=0")
    assert len({o.flops for o in workload.operators}) == 1
    wide = random_workload("random-chain:200,skew=1")
    logs = np.log([o.flops for o in wide.operators])
    assert abs(logs.std() - 1) < 0.15


def test_workload_seed_and_errors() -> None:
    assert random_workload("random-chain:5,seed=3").to_json() == {
        **random_workload("random-chain:5", 3).to_json(),
        "name": "random-chain:5,seed=3",
    }
    with pytest.raises(InputError, match="unknown option 'width'"):
        random_workload("random-chain:5,width=2")
    with pytest.raises(InputError, match="at least 1"):
        random_workload("random-chain:0")
    with pytest.raises(UsageError, match="did you mean 'random-chain'"):
        random_workload("random-chains:5")


def test_machine_becomes_its_published_tree() -> None:
    cluster, npus = cluster_of(network_by_name("dgx-a100:4x8"), H100)
    assert cluster.sizes == ((8, 8, 8, 8), (32,))
    assert [(v.port, v.uplink) for v in cluster.levels] == [(300e9, 200e9), (25e9, math.inf)]
    assert npus == tuple(range(32))
    assert not cluster.overrides


def test_oversubscribed_leaves_become_a_level() -> None:
    cluster, _ = cluster_of(network_by_name("leaf-spine:4x8,oversub=2"), H100)
    assert cluster.sizes == ((8, 8, 8, 8), (32,))
    assert cluster.levels[0].uplink == 4e9
    flat, _ = cluster_of(network_by_name("leaf-spine:4x8"), H100)
    assert flat.sizes == ((32,),)


def test_latency_of_levels() -> None:
    network = network_by_name("dgx-a100:4x8,alpha=0.5us:2us")
    cluster, _ = cluster_of(network, H100)
    assert [level.latency for level in cluster.levels] == [1e-6, 4e-6]


def test_one_weak_group_becomes_an_override() -> None:
    network = network_by_name("dgx-a100:4x8")
    cut = [
        link
        for link, tier in enumerate(network.tier)
        if tier == "nic" and 0 in (network.src[link], network.dst[link])
    ]
    cluster, _ = cluster_of(network.without(links=cut), H100)
    weak = [o for o in cluster.overrides if o.level == 0]
    assert [(o.group, o.uplink) for o in weak] == [(0, 175e9)]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999))
def test_widest_path_partition_is_the_dendrogram(seed: int) -> None:
    """Two NPUs share a group exactly if a path at least as wide as the level joins them."""
    network = network_by_name(f"random-regular:12,3,{seed}+log-uniform:0.01,1+seed:{seed}")
    graph = nx.Graph()
    for u, v, b in zip(network.src.tolist(), network.dst.tolist(), network.bandwidth.tolist()):
        graph.add_edge(u, v, width=b)
    for width, groups in widest_path_partitions(network):
        wide = nx.Graph((u, v) for u, v, b in graph.edges(data="width") if b >= width)
        wide.add_nodes_from(graph)
        assert {frozenset(g) for g in groups} == {
            frozenset(c) for c in nx.connected_components(wide)
        }


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999))
def test_any_connected_network_clusters(seed: int) -> None:
    network = network_by_name(f"mesh2d:4x4+lognormal:1+seed:{seed}")
    cluster, npus = cluster_of(network, H100)
    assert sorted(npus) == list(range(16))
    assert cluster.num_devices == 16
    assert len(cluster.levels) <= 5
    assert Cluster.from_json(cluster.to_json()).to_json() == cluster.to_json()


def test_disconnected_network_is_refused() -> None:
    with pytest.raises(InputError, match="do not all reach each other"):
        cluster_of(network_by_name("line:4+fail-links:1"), H100)


@pytest.mark.parametrize("name", ["dgx-a100-32", "dgx-h100-64", "perlmutter-16", "alps-16"])
def test_cluster_to_network_and_back(name: str) -> None:
    cluster = cluster_by_name(name)
    network = network_of_cluster(cluster)
    assert strongly_connected(network)
    back, _ = cluster_of(network, cluster.types[0])
    assert back.sizes == cluster.sizes
    for got, expected in zip(back.levels, cluster.levels, strict=True):
        assert (got.port, got.uplink) == (expected.port, expected.uplink)
        assert got.latency == pytest.approx(expected.latency)


def test_failed_devices_are_absent_from_the_network() -> None:
    network = network_of_cluster(cluster_by_name("dgx-a100-32+fail-npus:5"))
    assert len(network.npus) == 27
    assert strongly_connected(network)
    whole = network_of_cluster(cluster_by_name("dgx-a100-32+fail-group:node,1"))
    assert len(whole.npus) == 24
