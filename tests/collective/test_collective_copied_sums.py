"""Sums that are copied: schedules, their files, the checker, the simulator, the algorithms."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from collective_cases import instance, random_topology

from nestopt.collective.baselines.exchange import EXCHANGES, exchange_schedule
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.judge.simulate import simulate_schedule
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.schedule import COPY, REDUCE, SHARE, Schedule
from nestopt.collective.model.store import open_store, write_store
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import CheckError, InputError

if TYPE_CHECKING:
    from pathlib import Path

US = 10**6


def line(nodes: int) -> CollectiveInstance:
    rows = [(v, v + 1, 0, 10**9) for v in range(nodes - 1)]
    network = Topology.from_links("line", nodes, rows, bidirectional=True)
    return instance(network, "all-reduce", chunk_size=1000, sums="copied")


def swap() -> tuple[CollectiveInstance, Schedule]:
    """Two NPUs exchange their contributions to two sums at once."""
    problem = line(2)
    both = Schedule.of(
        [0, 0, 1, 1], [0, 1, 0, 1], [0, 0, US, US], 2 * US, [SHARE] * 4, [0, 1, 0, 1], [[0], [1]]
    )
    return problem, both


def test_two_npus_exchange_in_half_the_time() -> None:
    problem, both = swap()
    lines = check_schedule(problem, both)
    assert any("4 copied partial sums" in line for line in lines)
    assert simulate_schedule(problem, both)["simulated"] == 2 * US
    with pytest.raises(CheckError, match="sums of the instance move"):
        check_schedule(replace(problem, sums="moved"), both)


def test_a_set_is_made_of_disjoint_sets_in_the_way_that_exists() -> None:
    # node 2 of a line gets {0,1}, {1}, {0} and has {2}: {0,1,2} is {0,1}+{2}, or {0}+{1}+{2}
    problem = line(4)
    sets = [[0], [1], [0, 1], [0, 1, 2], [3], [2, 3]]
    rows = [
        (0, 0, SHARE, 0),  # 0 -> 1: {0}
        (2, 0, SHARE, 1),  # 1 -> 2: {1}
        (2, 1, SHARE, 0),  # 1 -> 2: {0}
        (2, 2, SHARE, 2),  # 1 -> 2: {0, 1}
        (5, 0, SHARE, 4),  # 3 -> 2: {3}
        (4, 3, SHARE, 3),  # 2 -> 3: {0, 1, 2}
        (3, 3, SHARE, 5),  # 2 -> 1: {2, 3}
        (1, 4, COPY, -1),  # 1 -> 0: all
    ]
    link, start, phase, content = (list(column) for column in zip(*rows))
    one = replace(problem, collective=_one_chunk(problem))
    schedule = Schedule.of(
        [0] * len(rows), link, [t * US for t in start], 5 * US, phase, content, sets
    )
    check_schedule(one, schedule)
    assert simulate_schedule(one, schedule)["simulated"] <= 5 * US


def _one_chunk(problem: CollectiveInstance):  # type: ignore[no-untyped-def]
    """The collective with one chunk: the whole buffer in one message."""
    part = problem.collective.parts[0]
    return replace(problem.collective, parts=(replace(part, chunks=1),))


def chain() -> tuple[CollectiveInstance, Schedule]:
    """One sum on a line of three: {0} and {2} to the middle, which sends {0,1} and {1,2}."""
    problem = line(3)
    one = replace(problem, collective=_one_chunk(problem))
    made = Schedule.of(
        [0] * 4,
        [0, 3, 2, 1],
        [0, 0, US, US],
        2 * US,
        [SHARE] * 4,
        [0, 1, 2, 3],
        [[0], [2], [0, 1], [1, 2], [0, 1, 2]],
    )
    return one, made


def changed(schedule: Schedule, send: int, **fields: int) -> Schedule:
    columns = {
        name: np.array(getattr(schedule, name))
        for name in ("chunk", "link", "start_ps", "phase", "content")
    }
    for name, value in fields.items():
        columns[name][send] = value
    return Schedule.of(makespan_ps=schedule.makespan_ps, sets=schedule.sets, **columns)


def test_every_mutation_of_a_set_is_refused() -> None:
    problem, good = chain()
    check_schedule(problem, good)
    assert simulate_schedule(problem, good)["simulated"] == 2 * US
    tried = 0
    for send in range(good.num_sends):
        for content in range(len(good.sets)):
            if content != good.content[send]:  # type: ignore[index]
                tried += 1
                wrong = changed(good, send, content=content)
                to_middle = int(problem.topology.dst[good.link[send]]) == 1
                if content == 4 and not to_middle:
                    # all three to an end: the end then holds {0} and {0, 1, 2}: whole
                    check_schedule(problem, wrong)
                    continue
                with pytest.raises(CheckError):
                    check_schedule(problem, wrong)
        keep = np.arange(good.num_sends) != send
        with pytest.raises(CheckError):
            check_schedule(
                problem,
                Schedule.of(
                    good.chunk[keep],
                    good.link[keep],
                    good.start_ps[keep],
                    good.makespan_ps,
                    good.phase[keep],
                    good.content[keep],  # type: ignore[index]
                    good.sets,
                ),
            )
    assert tried == 16


def test_a_double_count_is_refused() -> None:
    problem = line(3)
    one = replace(problem, collective=_one_chunk(problem))
    sets = [[0], [2], [0, 1], [1, 2], [0, 1, 2]]
    good = [(0, 0, 0), (3, 0, 1), (1, 1, 3), (2, 1, 2)]

    def made(rows: list[tuple[int, int, int]]) -> Schedule:
        link, start, content = (list(column) for column in zip(*rows))
        starts, last = [t * US for t in start], (max(start) + 1) * US
        return Schedule.of([0] * len(rows), link, starts, last, [SHARE] * len(rows), content, sets)

    check_schedule(one, made(good))
    # node 1 adds {0} that it has to {0, 1} that it gets back
    twice = [good[0], (1, 1, 2), (3, 1, 1), (0, 2, 2), (2, 3, 4), (1, 3, 4)]
    check_schedule(one, made(twice))
    moves = made([*twice[:4], *twice[5:]])
    phase = moves.phase.copy()
    phase[-1] = REDUCE
    content = moves.content.copy()  # type: ignore[union-attr]
    content[-1] = -1
    moving = Schedule.of(
        moves.chunk, moves.link, moves.start_ps, moves.makespan_ps, phase, content, sets
    )
    with pytest.raises(CheckError, match="not disjoint: a contribution would be counted twice"):
        check_schedule(one, moving)


def test_sets_that_overlap_make_no_sum() -> None:
    # node 2 of a ring gets {0, 1} one way round and {0, 3} the other: {0, 1, 2, 3} cannot be made
    rows = [(v, (v + 1) % 4, 0, 10**9) for v in range(4)]
    network = Topology.from_links("ring", 4, rows, bidirectional=True)
    problem = instance(network, "all-reduce", chunk_size=1000, chunks=1, sums="copied")
    sets = [[0], [0, 1], [0, 3], [0, 1, 2, 3]]
    link, content = [0, 7, 2, 5, 4], [0, 0, 1, 2, 3]
    schedule = Schedule.of(
        [0] * 5, link, [0, 0, US, US, 2 * US], 3 * US, [SHARE] * 5, content, sets
    )
    with pytest.raises(CheckError, match="not disjoint: a contribution would be counted twice"):
        check_schedule(problem, schedule)


def test_files_and_stores_keep_the_sets(tmp_path: Path) -> None:
    problem, both = swap()
    write_store(tmp_path / "s", both)
    for again in (Schedule.from_json(both.to_json()), open_store(tmp_path / "s")):
        assert isinstance(again, Schedule)
        assert again.content is not None
        assert again.content.tolist() == [0, 1, 0, 1]
        assert [ranks.tolist() for ranks in again.sets] == [[0], [1]]
        check_schedule(problem, again)
    data = both.to_json()
    for change, words in (
        ({"sets": [[[0, 1]]]}, "content"),
        ({"sets": [[[0, 1]], []]}, "at least one contribution"),
        ({"sets": [[[0, 1]], [[0, "x"]]]}, "first, count"),
    ):
        with pytest.raises(InputError, match=words):
            Schedule.from_json(data | change)
    sends = dict(data["sends"])
    del sends["content"]
    with pytest.raises(InputError, match="says no set"):
        Schedule.from_json(data | {"sends": sends})


def test_what_sums_may_do_is_part_of_the_instance() -> None:
    copied, moved = (instance("ring:4", "all-reduce", sums=sums) for sums in ("copied", "moved"))
    assert copied.name.endswith(", sums copied")
    assert moved.name.endswith(", sums moved")
    assert copied.to_json()["sums"] == "copied"
    # files from before sums could be copied say nothing of it, and mean what they meant
    assert "sums" not in moved.to_json()
    assert CollectiveInstance.from_json(moved.to_json()).sums == "moved"
    assert CollectiveInstance.from_json(copied.to_json()).sums == "copied"
    gathered = [instance("ring:4", "all-gather", sums=sums) for sums in ("copied", "moved")]
    assert gathered[0].to_json() == gathered[1].to_json()
    with pytest.raises(InputError, match="expected 'copied' or 'moved'"):
        instance("ring:4", "all-reduce", sums="both")


def test_a_buffer_may_be_one_chunk() -> None:
    problem = instance("ring:4", "all-reduce", chunks=1, sums="copied")
    assert problem.collective.num_chunks == 1
    again = CollectiveInstance.from_json(problem.to_json())
    assert again.collective.num_chunks == 1
    assert again.to_json() == problem.to_json()
    # eight chunks on four NPUs are two an NPU, however they are asked for
    eight = instance("ring:4", "all-reduce", chunks=8, sums="copied")
    assert (
        eight.to_json()
        == instance("ring:4", "all-reduce", chunks_per_npu=2, sums="copied").to_json()
    )
    for wrong in (0, -1, True):
        with pytest.raises(InputError, match="positive whole number"):
            instance("ring:4", "all-reduce", chunks=wrong)
    with pytest.raises(InputError, match="no number of chunks"):
        instance("ring:4", "all-gather", chunks=3)


NETWORKS = (
    "fully-connected:8,bw=25GB/s,alpha=5us",
    "hypercube:3,bw=25GB/s,alpha=5us",
    "ring:5",
    "mesh2d:3x3",
    "switch:6",
    "dgx-h100:2x8",
    "fat-tree:4",
)


@pytest.mark.parametrize("name", EXCHANGES)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_exchange_is_a_schedule(network: str, name: str) -> None:
    for settings in ({}, {"chunks": 3}):
        problem = instance(
            network, "all-reduce", latency="pipelined", chunk_size=1000, sums="copied", **settings
        )
        schedule = exchange_schedule(problem, name)
        assert schedule is not None
        check_schedule(problem, schedule)
        assert simulate_schedule(problem, schedule)["simulated"] == schedule.makespan_ps
    assert exchange_schedule(replace(problem, sums="moved"), name) is None


def test_small_buffers_gain_by_copies() -> None:
    def best(network: str, name: str) -> int:
        problem = instance(
            network, "all-reduce", latency="pipelined", chunk_size=1000, sums="copied"
        )
        schedule = exchange_schedule(problem, name)
        assert schedule is not None
        return schedule.makespan_ps

    # one latency and 8 chunks of 40 ns on every link
    assert best("fully-connected:8,bw=25GB/s,alpha=5us", "one-shot") == 5_320_000
    # three rounds of 5.04 us, the last with three chunks on a link: the diameter, and no less
    assert best("hypercube:3,bw=25GB/s,alpha=5us", "recursive-doubling") == 15_200_000
    assert best("hypercube:3,bw=25GB/s,alpha=5us", "mixed") == 15_200_000


@pytest.mark.parametrize("seed", range(12))
def test_exchanges_on_random_networks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(2, 8))
    network = random_topology(rng, nodes, both=False)
    group = np.sort(rng.choice(nodes, size=int(rng.integers(2, nodes + 1)), replace=False))
    for latency in ("blocking", "pipelined"):
        problem = instance(
            network, "all-reduce", latency=latency, npus=group, chunk_size=50_000, sums="copied"
        )
        for name in EXCHANGES:
            schedule = exchange_schedule(problem, name)
            assert schedule is not None
            check_schedule(problem, schedule)
            assert simulate_schedule(problem, schedule)["simulated"] <= schedule.makespan_ps
            # at time 0 a node has its own contribution only
            assert schedule.content is not None
            first = int(np.flatnonzero((schedule.start_ps == 0) & (schedule.phase == SHARE))[0])
            for content in set(range(len(schedule.sets))) - {int(schedule.content[first])}:
                with pytest.raises(CheckError, match="does not hold when it starts"):
                    check_schedule(problem, changed(schedule, first, content=content))
