"""Schedules as transfers between ranks: order, sums, ways through switches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from interop_cases import problem, solved, without_send

from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.schedule import COPY, REDUCE, SHARE, Schedule
from nestopt.core.errors import CheckError
from nestopt.interop.program import program_of
from nestopt.interop.run.data import compare, inputs, sizes_of
from nestopt.interop.run.torch_backend import rounds_of

if TYPE_CHECKING:
    from nestopt.collective.model.collective import Collective
    from nestopt.interop.program import Program, Transfer

JOBS = [
    ("all-gather", "torus2d:3x3", "greedy"),
    ("all-gather:chunks=2", "dgx1v", "greedy"),
    ("reduce-scatter", "mesh2d:3x3+fail-npus:1+seed:1", "greedy"),
    ("all-reduce", "switch:6", "greedy"),
    ("all-reduce", "switch:6,multicast=yes,reduce=yes", "greedy"),
    ("reduce-scatter:npus=0-7", "fat-tree:4", "greedy"),
    ("all-reduce:npus=half", "mesh2d:3x4", "greedy"),
    ("all-reduce", "ring:6", "rhd"),
    ("all-reduce", "ring:7", "dbt"),
    ("all-to-all", "mesh2d:2x3", "greedy"),
    ("all-to-all:npus=half,chunks=2", "dgx-a100:1x8", "greedy"),
    ("broadcast:root=2,chunks=3", "mesh2d:3x3", "greedy"),
    ("reduce:root=1,chunks=3", "mesh2d:3x3", "greedy"),
    ("scatter:root=1", "switch:5", "greedy"),
    ("gather:root=4", "ring:6", "greedy"),
    ("all-gather:npus=0-3;all-reduce:npus=2-7;all-to-all:npus=0-7/2", "dgx1v", "greedy"),
    ("all-gather", "dgx-h100:2x4", "greedy"),
]


def _expected(collective: Collective, cells: list[dict[int, Any]], program: Program) -> list[Any]:
    """What every rank must hold, chunk by chunk, from what all ranks started with."""
    rank_of = {node: rank for rank, node in enumerate(program.npus)}
    right: list[dict[int, Any]] = [{} for _ in cells]
    for chunk in range(collective.num_chunks):
        start = [rank_of[v] for v in collective.pre(chunk).tolist()]
        value = np.sum([cells[r][chunk] for r in start], axis=0)
        part, local = collective.locate(chunk)
        end = int(part.destinations()[local])
        for node in part.npus.tolist() if end < 0 else [end]:
            right[rank_of[node]][chunk] = value
    return right


def _play(program: Program, cells: list[dict[int, Any]], order: list[int]) -> None:
    """Play the transfers as (send, then arrival) in an order that keeps what they wait for."""
    sent: dict[int, Any] = {}
    arrived: set[int] = set()
    todo = list(order)
    while todo:
        before = len(todo)
        for index in list(todo):
            t = program.transfers[index]
            if index not in sent and (t.needs < 0 or t.needs in arrived):
                sent[index] = cells[t.src][t.cell].copy()
            waits = {t.after, *t.readers} - {-1}
            read = all(i in sent for i in t.readers)
            if index in sent and read and (t.after < 0 or t.after in arrived):
                assert not waits & (set(todo) - set(sent))
                cell = cells[t.dst][t.into]
                cell[...] = cell + sent[index] if t.adds else sent[index]
                arrived.add(index)
                todo.remove(index)
        assert len(todo) < before, "transfers wait for each other"


@pytest.mark.parametrize(("job", "network", "method"), JOBS)
def test_any_order_that_keeps_the_dependencies_gives_the_right_data(
    job: str, network: str, method: str
) -> None:
    instance = problem(job, network)
    _, schedule = solved(instance, method)
    program = program_of(instance, schedule)
    sizes = sizes_of(instance.collective, 64, "int64")
    rng = np.random.default_rng(7)
    for turn in range(3):
        cells = [
            inputs(instance.collective, program, r, sizes, "int64") for r in range(program.ranks)
        ]
        right = _expected(instance.collective, cells, program)
        order = list(range(len(program.transfers)))
        if turn:
            order = rng.permutation(order).tolist() if turn == 1 else order[::-1]
        _play(program, cells, order)
        for rank in range(program.ranks):
            fault, _ = compare(rank, cells[rank], right[rank], {})
            assert fault is None, str(fault)


@pytest.mark.parametrize(("job", "network", "method"), JOBS[:8])
def test_rounds_hold_nothing_that_waits_for_the_same_round(
    job: str, network: str, method: str
) -> None:
    instance = problem(job, network)
    program = program_of(instance, solved(instance, method)[1])
    level: dict[int, int] = {}
    rounds = rounds_of(program)
    for number, transfers in enumerate(rounds):
        assert transfers
        level |= {t.index: number for t in transfers}
    assert len(level) == len(program.transfers)
    for t in program.transfers:
        assert t.needs < 0 or level[t.needs] < level[t.index] + t.local
        assert all(level[i] <= level[t.index] for i in (t.after, *t.readers) if i >= 0)
    last: dict[int, Transfer] = {}
    for t in program.by_start():
        link = program.links[t.index]
        if link in last and link >= 0:
            assert level[last[link].index] <= level[t.index]
        last[link] = t


def test_a_way_through_switches_is_one_transfer() -> None:
    instance = problem("all-gather", "switch:4,multicast=yes")
    _, schedule = solved(instance)
    program = program_of(instance, schedule)
    assert len(program.transfers) == 4 * 3
    assert {(t.src, t.dst, t.cell) for t in program.transfers} == {
        (a, b, a) for a in range(4) for b in range(4) if a != b
    }
    # a multicast: one send into the switch, three out of it
    assert len({t.sends[0] for t in program.transfers}) == 4
    assert schedule.num_sends == 4 + 12


def test_what_a_switch_adds_comes_back_without_its_own_part_travelling() -> None:
    instance = problem("all-reduce", "switch:4,multicast=yes,reduce=yes")
    up = [(c, e) for c in range(4) for e in range(instance.topology.num_links)]
    topology = instance.topology
    switch = int(np.flatnonzero(topology.is_switch)[0])
    step = int(instance.occupancy_ps(instance.collective.chunk_size)[0])
    rows = []
    for chunk, link in up:
        into = topology.dst[link] == switch
        rows.append((chunk, link, (chunk if into else 4 + chunk) * step, REDUCE if into else COPY))
    chunk, link, start, phase = zip(*rows)
    schedule = Schedule.of(chunk, link, start, 8 * step, phase)
    check_schedule(instance, schedule)
    program = program_of(instance, schedule)
    # each rank receives the three others' parts of each chunk, and keeps its own
    assert len(program.transfers) == 4 * 4 * 3
    assert all(t.src != t.dst and t.adds for t in program.transfers)


def test_a_cell_that_changed_in_between_gets_its_old_value_back_as_a_transfer() -> None:
    from nestopt.collective.model.collective import Collective
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.topology import Topology

    # node 2 is a switch that reduces; NPU 0 sends its part up, then receives NPU 1's by the direct
    # link, sends that up too, and gets the whole back
    links = [(0, 2, 0, 10**9), (2, 0, 0, 10**9), (1, 0, 0, 10**9), (2, 1, 0, 10**9)]
    topology = Topology.from_links("odd", 3, links, switches=[2], multicast=[2], reduces=[2])
    instance = CollectiveInstance(topology, Collective.of("all-reduce", [0, 1], chunk_size=1000))
    step = 10**6
    rows = []
    for c in range(2):
        rows += [(c, 0, 2 * c * step, REDUCE), (c, 2, 2 * c * step, REDUCE)]
        rows += [(c, 0, (2 * c + 1) * step, REDUCE)]
        rows += [(c, 1, (4 + c) * step, COPY), (c, 3, (4 + c) * step, COPY)]
    chunk, link, start, phase = zip(*rows)
    schedule = Schedule.of(chunk, link, start, 6 * step, phase)
    check_schedule(instance, schedule)
    program = program_of(instance, schedule)
    assert any(t.src == t.dst for t in program.transfers)
    sizes = sizes_of(instance.collective, None, "int64")
    cells = [inputs(instance.collective, program, r, sizes, "int64") for r in range(2)]
    right = _expected(instance.collective, cells, program)
    _play(program, cells, list(range(len(program.transfers))))
    assert all(compare(r, cells[r], right[r], {})[0] is None for r in range(2))


def test_a_left_out_send_gives_wrong_data_or_is_refused() -> None:
    instance = problem("all-reduce", "torus2d:2x3")
    _, schedule = solved(instance)
    sizes = sizes_of(instance.collective, 64, "int64")
    caught = 0
    for index in range(schedule.num_sends):
        program = program_of(instance, without_send(schedule, index), all_npus=True)
        cells = [inputs(instance.collective, program, r, sizes, "int64") for r in range(6)]
        right = _expected(instance.collective, cells, program)
        _play(program, cells, list(range(len(program.transfers))))
        faults = [compare(r, cells[r], right[r], {})[0] for r in range(6)]
        caught += any(fault is not None for fault in faults)
    assert caught == schedule.num_sends > 10

    instance = problem("all-gather", "switch:4")
    _, schedule = solved(instance)
    with pytest.raises(CheckError, match="leaves a switch that holds nothing of it"):
        program_of(instance, without_send(schedule, 0))


def test_sizes_keep_the_ratios_of_the_parts() -> None:
    instance = problem("all-gather:npus=0-3,size=4000B;all-to-all:npus=4-7,size=1000B", "dgx1v")
    sizes = sizes_of(instance.collective, 160_000, "float32")
    assert sizes.elements == (10_000, 2_500) and sizes.nbytes == 160_000
    assert sizes_of(instance.collective, 1, "int64").elements == (1, 1)
    assert sizes_of(instance.collective, None, "int64").elements == (500, 125)


def _shared(kind: str, latency: str = "blocking") -> tuple[Any, Any]:
    """An All-Reduce whose partial sums are copied: one-shot behind a switch, or doubling."""
    instance = problem("all-reduce:npus=0-3", "switch:4" if kind == "one-shot" else "hypercube:2")
    topology = instance.topology
    step = int(instance.occupancy_ps(instance.collective.chunk_size)[0])
    link = {(a, b): e for e, (a, b) in enumerate(zip(topology.src.tolist(), topology.dst.tolist()))}
    rows = []
    for chunk in range(4):
        for u in range(4):
            if kind == "one-shot":
                for turn in range(1, 4):
                    v, at = (u + turn) % 4, 2 * (3 * chunk + turn)
                    rows += [(at, chunk, link[u, 4], (u,)), (at + 1, chunk, link[4, v], (u,))]
            else:
                rows += [(2 * chunk, chunk, link[u, u ^ 1], (u,))]
                rows += [(2 * chunk + 1, chunk, link[u, u ^ 2], tuple(sorted((u, u ^ 1))))]
    rows.sort()
    sets = sorted({row[3] for row in rows})
    schedule = Schedule.of(
        [row[1] for row in rows],
        [row[2] for row in rows],
        [row[0] * step for row in rows],
        (rows[-1][0] + 1) * step,
        np.full(len(rows), SHARE, dtype=np.uint8),
        [sets.index(row[3]) for row in rows],
        [np.array(each, dtype=np.int32) for each in sets],
    )
    check_schedule(instance, schedule)
    return instance, schedule


@pytest.mark.parametrize("kind", ["one-shot", "doubling"])
def test_copied_partial_sums_are_kept_apart_and_added_once(kind: str) -> None:
    instance, schedule = _shared(kind)
    program = program_of(instance, schedule)
    assert any(t.local for t in program.transfers)
    sizes = sizes_of(instance.collective, 64, "int64")
    for order in (range(len(program.transfers)), range(len(program.transfers))[::-1]):
        cells = [inputs(instance.collective, program, r, sizes, "int64") for r in range(4)]
        right = _expected(instance.collective, cells, program)
        _play(program, cells, list(order))
        assert all(compare(r, cells[r], right[r], {})[0] is None for r in range(4))


@pytest.mark.parametrize("kind", ["one-shot", "doubling"])
def test_copied_partial_sums_in_msccl_xml(kind: str) -> None:
    from nestopt.interop.msccl_xml import msccl_xml

    instance, schedule = _shared(kind)
    assert 'type="re"' in msccl_xml(instance, schedule)  # verified when written
