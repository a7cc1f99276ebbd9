"""The chunk tables of the eight patterns, groups, files and names."""

from __future__ import annotations

import numpy as np
import pytest

from nestopt.collective.model.collective import PATTERNS, Collective, Part
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import InputError, UsageError
from nestopt.core.registry import named

GROUP = [2, 5, 7]
SIZES = {
    "all-gather": 6,
    "reduce-scatter": 6,
    "all-reduce": 6,
    "broadcast": 2,
    "reduce": 2,
    "scatter": 4,
    "gather": 4,
    "all-to-all": 12,
}


def table(pattern: str) -> list[tuple[list[int], list[int]]]:
    collective = Collective.of(pattern, GROUP, chunks_per_npu=2)
    return [
        (collective.pre(c).tolist(), collective.post(c).tolist())
        for c in range(collective.num_chunks)
    ]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_number_of_chunks_and_round_trip(pattern: str) -> None:
    collective = Collective.of(pattern, GROUP, chunks_per_npu=2, chunk_size=77)
    assert collective.num_chunks == SIZES[pattern] == len(collective.source)
    assert collective.chunk_size == 77
    assert collective.reduction.tolist() == [collective.has_reduction] * SIZES[pattern]
    again = Collective.from_json(collective.to_json())
    assert again.to_json() == collective.to_json()


def test_the_tables() -> None:
    pairs = [(a, b) for a in GROUP for b in GROUP if a != b]
    twice = [0, 0, 1, 1, 2, 2]
    assert table("all-gather") == [([GROUP[k]], GROUP) for k in twice]
    assert table("reduce-scatter") == [(GROUP, [GROUP[k]]) for k in twice]
    assert table("all-reduce") == [(GROUP, GROUP)] * 6
    assert table("broadcast") == [([2], GROUP)] * 2
    assert table("reduce") == [(GROUP, [2])] * 2
    assert table("scatter") == [([2], [v]) for v in (5, 5, 7, 7)]
    assert table("gather") == [([v], [2]) for v in (5, 5, 7, 7)]
    assert table("all-to-all") == [([a], [b]) for a, b in pairs for _ in range(2)]


def test_several_at_once() -> None:
    both = Collective.together(
        Collective.of("all-gather", 2, chunk_size=10),
        Collective.of("reduce", [2, 3], chunk_size=20, root=3),
    )
    assert both.pattern == "mixed"
    assert both.chunk_sizes.tolist() == [10, 10, 20]
    assert both.part_of.tolist() == [0, 0, 1]
    assert (both.pre(2).tolist(), both.post(2).tolist()) == ([2, 3], [3])
    with pytest.raises(InputError, match="different sizes"):
        _ = both.chunk_size
    assert Collective.from_json(both.to_json()).to_json() == both.to_json()
    with pytest.raises(InputError, match="no chunk 3"):
        both.pre(3)


def test_a_large_group_is_stored_as_a_range() -> None:
    collective = Collective.of("all-gather", 40_000)
    assert collective.num_chunks == 40_000
    assert len(str(collective.to_json())) < 300
    assert collective.post(7).size == 40_000


@pytest.mark.parametrize(
    ("change", "error", "expected"),
    [
        ({"pattern": "all-gathr"}, InputError, r"parts\[0\]\.pattern: .*did you mean 'all-gather'"),
        ({"npus": []}, InputError, "at least one NPU"),
        ({"npus": [1, 1]}, InputError, "duplicate NPU 1"),
        ({"chunk_size": 0}, InputError, "chunk_size: 0 is not a positive"),
        ({"chunk_size": "1.5 B"}, InputError, "chunk_size: 1.5 is not a whole number"),
        ({"chunks_per_npu": -1}, InputError, "chunks_per_npu: -1 is not a positive"),
        ({"root": 1}, InputError, "all-gather has no root"),
        ({"pattern": "broadcast", "root": 9}, InputError, "root: 9 is not in the group"),
        ({"color": "red"}, InputError, "color"),
    ],
)
def test_wrong_parts(change, error, expected) -> None:
    part = {"pattern": "all-gather", "npus": [0, 1], "chunk_size": "1 MB"}
    data = {"schema": "nestopt.collective/1", "name": "x", "parts": [part | change]}
    with pytest.raises(error, match=expected):
        Collective.from_json(data, file="c.json")


def test_instances_know_their_topology() -> None:
    topology = Topology.from_links("star", 3, [(0, 2, 0, 1), (2, 1, 0, 1)], switches=[2])
    CollectiveInstance(topology, Collective.of("all-gather", [0, 1]))
    with pytest.raises(InputError, match="2 is a switch"):
        CollectiveInstance(topology, Collective.of("all-gather", 3))
    with pytest.raises(InputError, match="3 is an unknown node"):
        CollectiveInstance(topology, Collective.of("all-gather", [0, 3]))
    with pytest.raises(InputError, match="'eager'; expected 'blocking'"):
        CollectiveInstance(topology, Collective.of("all-gather", [0, 1]), "eager")


def test_latency_models() -> None:
    topology = Topology.from_links("pair", 2, [(0, 1, 500, 10**12), (1, 0, 0, 10**11)])
    collective = Collective.of("all-gather", 2, chunk_size=1000)
    blocking = CollectiveInstance(topology, collective, "blocking")
    pipelined = CollectiveInstance(topology, collective, "pipelined")
    assert blocking.occupancy_ps(1000).tolist() == [1500, 10_000]
    assert pipelined.occupancy_ps(1000).tolist() == [1000, 10_000]
    assert blocking.transfer_ps(1000).tolist() == [1500, 10_000]
    assert pipelined.transfer_ps(1000).tolist() == [1500, 10_000]
    for each in (blocking, pipelined):
        assert CollectiveInstance.from_json(each.to_json()).to_json() == each.to_json()


def test_names() -> None:
    star = Topology.from_links("star", 9, [(0, 8, 0, 1)], switches=[0])
    plain = named("collective", "all-gather").on(star)
    assert plain.parts[0].npus.tolist() == list(range(1, 9))
    assert plain.chunk_size == 10**6
    fine = named("collective", "broadcast:chunks=4,size=256KB,root=2,npus=1-3+6").on(star)
    assert fine.parts[0].npus.tolist() == [2, 3, 4, 7]
    assert (fine.parts[0].root, fine.num_chunks, fine.chunk_size) == (4, 4, 256_000)
    assert named("collective", "all-to-all:npus=half").on(star).parts[0].npus.tolist() == [
        1, 3, 5, 7,
    ]  # fmt: skip
    assert named("collective", "all-gather:total=8MB").on(star).chunk_size == 10**6
    two = named("collective", "all-gather:npus=0-3;all-to-all:npus=4-7/3").on(star)
    assert [part.npus.tolist() for part in two.parts] == [[1, 2, 3, 4], [5, 8]]


@pytest.mark.parametrize(
    ("name", "error", "expected"),
    [
        ("all-gathr", UsageError, "did you mean 'all-gather'"),
        ("all-gather:root=1", InputError, "has no root"),
        ("all-gather:size=1", InputError, "no unit"),
        ("all-gather:size=1KB,total=4KB", InputError, "exclude each other"),
        ("all-gather:chonks=1", InputError, "did you mean 'chunks'"),
        ("all-gather:npus=4-2", InputError, "is empty"),
        ("all-gather:npus=0-4", InputError, "has 4 NPUs, 0 to 3"),
        ("all-gather:npus=x", InputError, "expected positions"),
        ("all-gather:total=5B", InputError, "do not divide into 4 chunks"),
        ("reduce:root=4", InputError, "the group has 4 NPUs"),
    ],
)
def test_wrong_names(name: str, error: type[Exception], expected: str) -> None:
    ring = Topology.from_links("ring", 4, [(v, (v + 1) % 4, 0, 1) for v in range(4)])
    with pytest.raises(error, match=expected):
        named("collective", name).on(ring)


def test_parts_are_immutable() -> None:
    part = Part("all-gather", np.array([3, 1]), 5)
    assert part.npus.tolist() == [1, 3]
    with pytest.raises(ValueError, match="read-only"):
        part.npus[0] = 2
