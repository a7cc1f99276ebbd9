"""Topologies: exact times, failures, reversal, and their files."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from collective_cases import random_topology

from nestopt.collective.model.topology import Topology, serialization_ps
from nestopt.core.errors import InputError

BY_HAND = {
    "schema": "nestopt.topology/1",
    "name": "by hand",
    "nodes": [
        {"id": "gpu0"},
        {"id": "gpu1"},
        {"id": "switch", "switch": True, "multicast": True},
    ],
    "links": [
        {"src": "gpu0", "dst": "switch", "alpha": "0.7 us", "bandwidth": "25 GB/s", "count": 2},
        {"src": "gpu1", "dst": "switch", "alpha": "1 us", "bandwidth": "400 Gb/s",
         "bidirectional": True},
        {"src": "switch", "dst": "gpu0", "alpha_ps": 5, "bandwidth": 1000, "id": "slow"},
    ],
}  # fmt: skip


def test_serialization_is_the_exact_ceiling() -> None:
    bandwidth = np.array([1, 3, 7, 25 * 10**9, 2**30 * 10**9], dtype=np.int64)
    for size in (1, 10**6, 123_456_789, 62_500_000):
        rates = bandwidth[3:] if size > 10**6 else bandwidth
        found = serialization_ps(size, rates)
        assert found.tolist() == [-(-size * 10**12 // int(rate)) for rate in rates]


def test_times_beyond_the_representable_range_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be represented"):
        serialization_ps(10**12, np.array([1], dtype=np.int64))


def test_a_file_by_hand() -> None:
    topology = Topology.from_json(BY_HAND)
    assert topology.num_links == 5
    assert topology.src.tolist() == [0, 0, 1, 2, 2]
    assert topology.alpha_ps.tolist() == [700_000, 700_000, 10**6, 10**6, 5]
    assert topology.bandwidth.tolist() == [25 * 10**9] * 2 + [50 * 10**9] * 2 + [1000]
    assert topology.npus.tolist() == [0, 1]
    assert topology.multicast.tolist() == [True, True, True]
    assert topology.reduces.tolist() == [True, True, False]
    assert topology.node_name(2) == "switch"
    again = Topology.from_json(topology.to_json())
    assert again.to_json() == topology.to_json()


def test_round_trip_without_names() -> None:
    topology = random_topology(np.random.default_rng(3), 6, both=False)
    assert Topology.from_json(topology.to_json()).to_json() == topology.to_json()


@pytest.mark.parametrize(
    ("where", "value", "expected"),
    [
        (("links", 0, "bandwidth"), "0 GB/s", r"links\[0\].bandwidth: '0 GB/s' is a zero"),
        (("links", 0, "bandwidth"), -1, r"links\[0\].bandwidth: -1 is a negative bandwidth"),
        (("links", 0, "bandwidth"), float("nan"), r"links\[0\].bandwidth: nan is not a finite"),
        (("links", 0, "bandwidth"), 0.5, r"links\[0\].bandwidth: 0.5 is not a whole number"),
        (("links", 0, "bandwidth"), "25", r"links\[0\].bandwidth: '25' has no unit"),
        (("links", 0, "alpha"), "-1 us", r"links\[0\].alpha: '-1 us' is a negative latency"),
        (("links", 0, "alpha"), "0.3 ps", r"links\[0\].alpha: '0.3 ps' is not a whole number"),
        (("links", 2, "alpha_ps"), -5, r"links\[2\].alpha: -5 is a negative latency"),
        (("links", 0, "dst"), "gpu0", r"links\[0\].src: 'gpu0' is a self loop"),
        (("links", 0, "dst"), "gpu7", r"links\[0\].dst: 'gpu7' is an unknown node"),
        (("links", 0, "id"), "slow", r"links\[2\].id: duplicate id 'slow', also of links\[0\]"),
        (("nodes", 1, "id"), "gpu0", r"nodes\[1\].id: duplicate id 'gpu0', also of nodes\[0\]"),
        (("links", 0, "count"), 0, r"links\[0\].*count"),
        (("links", 0, "speed"), 3, r"links\[0\].*speed"),
        (("schema",), "nestopt.topology/2", r"schema: 'nestopt.topology/2'; expected"),
    ],
)
def test_each_fault_of_a_file_has_its_own_error(where, value, expected) -> None:
    data = copy.deepcopy(BY_HAND)
    inner = data
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = value
    with pytest.raises(InputError, match=expected) as caught:
        Topology.from_json(data, file="net.json")
    assert caught.value.file == "net.json"


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("bandwidth", 0, r"links\[1\].bandwidth: 0 is a zero bandwidth"),
        ("alpha_ps", -3, r"links\[1\].alpha: -3 ps is a negative latency"),
        ("dst", 9, r"links\[1\].dst: 9 is an unknown node"),
        ("dst", 1, r"links\[1\].src: 1 is a self loop"),
    ],
)
def test_columns_are_validated_too(column, value, expected) -> None:
    data = Topology.from_links("two", 2, [(0, 1, 0, 1), (1, 0, 0, 1)]).to_json()
    data["links"] = {k: v if isinstance(v, list) else [v] * 2 for k, v in data["links"].items()}
    data["links"][column][1] = value
    with pytest.raises(InputError, match=expected):
        Topology.from_json(data)


def test_a_topology_needs_an_npu() -> None:
    with pytest.raises(InputError, match="at least one NPU"):
        Topology.from_links("empty", 1, [], switches=[0])


def test_failures_keep_names_and_order() -> None:
    topology = Topology.from_json(BY_HAND)
    less = topology.without(npus=[0])
    assert [less.node_name(v) for v in range(less.num_nodes)] == ["gpu1", "switch"]
    assert less.src.tolist() == [0, 1]
    assert topology.without(links=[0, 4]).src.tolist() == [0, 1, 2]
    numbered = Topology.from_links("path", 3, [(0, 1, 0, 1), (1, 2, 0, 1)]).without(npus=[0])
    assert [numbered.node_name(v) for v in range(2)] == ["1", "2"]
    with pytest.raises(InputError, match="9 is an unknown node"):
        topology.without(npus=[9])


def test_reversal_swaps_multicast_and_reduction() -> None:
    topology = Topology.from_json(BY_HAND)
    back = topology.reversed()
    assert back.src.tolist() == topology.dst.tolist()
    assert (back.multicast[2], back.reduces[2]) == (False, True)
    assert back.reversed().src.tolist() == topology.src.tolist()


def test_links_by_end() -> None:
    topology = Topology.from_json(BY_HAND)
    ptr, links = topology.out_links()
    assert [links[ptr[v] : ptr[v + 1]].tolist() for v in range(3)] == [[0, 1], [2], [3, 4]]
    ptr, links = topology.in_links()
    assert [links[ptr[v] : ptr[v + 1]].tolist() for v in range(3)] == [[4], [3], [0, 1, 2]]
