"""The checker accepts what is right and rejects every single mutation of it."""

from __future__ import annotations

import numpy as np
import pytest
from collective_cases import greedy, instance, schedule_of

from nestopt.collective.greedy.steps import match_steps
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.judge.check_steps import check_steps
from nestopt.collective.judge.simulate import simulate_schedule
from nestopt.collective.model.collective import PATTERNS
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.schedule import COPY, REDUCE, Schedule
from nestopt.collective.model.steps import StepSchedule
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import CheckError
from nestopt.core.registry import named

NETWORKS = ("mesh2d:3x3", "dgx1v", "dgx-a100:2x4", "uneven4")
PAIR = Topology.from_links("pair", 2, [(0, 1, 0, 10**12), (1, 0, 0, 10**12)])


def altered(schedule: Schedule, **columns) -> Schedule:
    made = {n: columns.get(n, getattr(schedule, n)) for n in ("chunk", "link", "start_ps", "phase")}
    makespan = columns.get("makespan_ps", schedule.makespan_ps)
    return Schedule.of(made["chunk"], made["link"], made["start_ps"], makespan, made["phase"])


def picked(schedule: Schedule, rows) -> Schedule:
    columns = {n: getattr(schedule, n)[rows] for n in ("chunk", "link", "start_ps", "phase")}
    return altered(schedule, **columns)


def with_entry(schedule: Schedule, name: str, row: int, value: int) -> Schedule:
    column = getattr(schedule, name).copy()
    column[row] = value
    return altered(schedule, **{name: column})


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_single_mutation_is_rejected(network: str, pattern: str) -> None:
    problem = instance(network, pattern)
    schedule = schedule_of(problem, greedy(problem, restarts=2))
    check_schedule(problem, schedule)
    topology = problem.topology
    rng = np.random.default_rng(1)
    rows = rng.permutation(schedule.num_sends)[:25].tolist()
    for row in rows:
        link, start = int(schedule.link[row]), int(schedule.start_ps[row])
        everything = np.arange(schedule.num_sends)
        u, v = topology.src[link], topology.dst[link]
        back = np.flatnonzero((topology.src == v) & (topology.dst == u))
        # of a partial sum another way may be as good; of a copy no other destination is
        away = np.flatnonzero(topology.dst != v) if schedule.phase[row] == COPY else back
        mutants = {
            "dropped": picked(schedule, everything != row),
            "duplicated": picked(schedule, np.append(everything, row)),
            "before time 0": with_entry(schedule, "start_ps", row, -1),
            "turned round": with_entry(schedule, "link", row, int(back[0])),
            "rerouted": with_entry(schedule, "link", row, int(rng.choice(away))),
            "no such link": with_entry(schedule, "link", row, topology.num_links),
            "no such chunk": with_entry(schedule, "chunk", row, -1),
        }
        longest = int(schedule.makespan_ps)
        mutants["too late"] = with_entry(schedule, "start_ps", row, longest)
        busy_until = start + int(problem.occupancy_ps(10**6)[link])
        neighbours = np.flatnonzero((schedule.link == link) & (schedule.start_ps >= busy_until))
        if neighbours.size:
            mutants["overlapping"] = with_entry(
                schedule, "start_ps", int(neighbours[0]), busy_until - 1
            )
        for name, mutant in mutants.items():
            with pytest.raises(CheckError):
                check_schedule(problem, mutant)
                raise AssertionError(f"accepted: {name}, send {row}")


@pytest.mark.parametrize("pattern", ["all-gather", "reduce-scatter", "all-to-all"])
def test_a_send_before_its_chunk_has_come(pattern: str) -> None:
    problem = instance("mesh2d:3x3", pattern)
    schedule = schedule_of(problem, greedy(problem))
    transfer = problem.transfer_ps(10**6)
    arrival = schedule.start_ps + transfer[schedule.link]
    found = 0
    for row in range(schedule.num_sends):
        came = (problem.topology.dst[schedule.link] == problem.topology.src[schedule.link[row]]) & (
            schedule.chunk == schedule.chunk[row]
        )
        if not came.any() or schedule.start_ps[row] != arrival[came].max():
            continue
        found += 1
        with pytest.raises(CheckError):
            check_schedule(
                problem, with_entry(schedule, "start_ps", row, int(arrival[came][0]) - 1)
            )
    assert found > 5


def test_the_claimed_makespan_must_be_the_last_arrival() -> None:
    problem = instance("dgx1v")
    schedule = schedule_of(problem, greedy(problem))
    for makespan in (schedule.makespan_ps - 1, schedule.makespan_ps + 1):
        with pytest.raises(CheckError, match="the last chunk arrives at"):
            check_schedule(problem, altered(schedule, makespan_ps=makespan))


def test_a_contribution_counted_twice() -> None:
    """A node that has passed its partial sum on cannot pass it on again."""
    path = Topology.from_links("path", 3, [(0, 1, 0, 10**12), (1, 2, 0, 10**12), (0, 2, 0, 10**12)])
    problem = instance(path, "reduce", root=2)
    step = 10**6
    good = Schedule.of([0, 0], [0, 1], [0, step], 2 * step, [REDUCE, REDUCE])
    check_schedule(problem, good)
    twice = Schedule.of([0, 0, 0], [0, 1, 2], [0, step, step], 2 * step, [REDUCE] * 3)
    with pytest.raises(CheckError, match=r"send 2 .* carries no contribution"):
        check_schedule(problem, twice)
    early = Schedule.of([0, 0], [0, 1], [0, 0], step, [REDUCE, REDUCE])
    with pytest.raises(CheckError, match="2 does not hold the whole sum of chunk 0"):
        check_schedule(problem, early)


def test_a_sum_is_copied_only_when_it_is_whole() -> None:
    problem = instance(PAIR, "all-reduce")
    step = 10**6
    good = Schedule.of(
        [0, 1, 0, 1], [0, 1, 1, 0], [0, 0, step, step], 2 * step, [REDUCE, REDUCE, COPY, COPY]
    )
    check_schedule(problem, good)
    bad = Schedule.of([0, 1, 0, 1], [0, 1, 1, 0], [0, 0, step, step], 2 * step, [COPY, 1, 0, 0])
    with pytest.raises(CheckError, match="contributions are still missing"):
        check_schedule(problem, bad)
    gather = instance(PAIR, "all-gather")
    moved = Schedule.of([0, 1], [0, 1], [0, 0], step, [REDUCE, COPY])
    with pytest.raises(CheckError, match="its chunk is not reduced"):
        check_schedule(gather, moved)


def test_redundant_deliveries_need_leave() -> None:
    problem = instance(PAIR, "all-gather")
    step = 10**6
    again = Schedule.of([0, 1, 0], [0, 1, 0], [0, 0, step], 2 * step)
    with pytest.raises(CheckError, match="more than once"):
        check_schedule(problem, again)
    assert check_schedule(problem, again, allow_redundant=True)


def star(multicast: bool, reduces: bool) -> Topology:
    rows = [(v, 3, 0, 10**12) for v in range(3)] + [(3, v, 0, 10**12) for v in range(3)]
    return Topology.from_links(
        "star",
        4,
        rows,
        switches=[3],
        multicast=[3] if multicast else [],
        reduces=[3] if reduces else [],
    )


def test_a_switch_forwards_each_copy_once_unless_it_multicasts() -> None:
    step = 10**6
    sends = ([0, 0, 0], [0, 4, 5], [0, step, step])
    once = Schedule.of(*sends, 2 * step)
    check_schedule(instance(star(True, False), "broadcast"), once)
    with pytest.raises(CheckError, match="cannot multicast"):
        check_schedule(instance(star(False, False), "broadcast"), once)
    twice = Schedule.of([0] * 4, [0, 0, 4, 5], [0, step, step, 2 * step], 3 * step)
    check_schedule(instance(star(False, False), "broadcast"), twice)


def test_a_switch_keeps_partial_sums_apart_unless_it_reduces() -> None:
    step = 10**6
    merged = Schedule.of([0] * 3, [1, 2, 3], [0, 0, step], 2 * step, [REDUCE] * 3)
    check_schedule(instance(star(False, True), "reduce"), merged)
    with pytest.raises(CheckError, match="0 does not hold the whole sum"):
        check_schedule(instance(star(False, False), "reduce"), merged)
    apart = Schedule.of([0] * 4, [1, 2, 3, 3], [0, 0, step, 2 * step], 3 * step, [REDUCE] * 4)
    check_schedule(instance(star(False, False), "reduce"), apart)


def test_steps_are_checked_as_sends_are() -> None:
    problem = instance("mesh2d:6x7")
    steps = match_steps(problem, 10**9)
    lines = check_steps(problem, steps)
    assert lines == check_schedule(problem, steps.to_schedule(problem.topology))


def mutated(steps: StepSchedule, **arrays) -> StepSchedule:
    kept = {n: getattr(steps, n) for n in ("step_ps", "order", "initial", "received", "masks")}
    return StepSchedule(**(kept | arrays))


def test_mutations_of_steps_are_rejected() -> None:
    problem = instance("mesh2d:6x7")
    steps = match_steps(problem, 10**9)
    rng = np.random.default_rng(0)
    (mask,) = steps.masks
    sent = np.argwhere(mask > 0)
    for step, node in sent[rng.permutation(len(sent))[:20]]:
        flipped = mask.copy()
        flipped[step, node] ^= 1 << rng.integers(8)
        with pytest.raises(CheckError):
            check_steps(problem, mutated(steps, masks=(flipped,)))
    for _ in range(20):
        order = steps.order.copy()
        node = rng.integers(len(order))
        order[node, rng.integers(1, order.shape[1])] = rng.integers(order.shape[1] + 3)
        if np.array_equal(order, steps.order):
            continue
        with pytest.raises(CheckError):
            check_steps(problem, mutated(steps, order=order))
    with pytest.raises(CheckError, match=r"transfer time|occupancy"):
        check_steps(problem, mutated(steps, step_ps=10**9 - 1))
    with pytest.raises(CheckError, match="nothing is sent in the last step"):
        longer = np.concatenate([mask, np.zeros_like(mask[:1])])
        check_steps(problem, mutated(steps, masks=(longer,)))
    with pytest.raises(CheckError, match="in all, not"):
        check_steps(problem, mutated(steps, received=steps.received - 1))
    with pytest.raises(CheckError, match="lacks a chunk"):
        short = mutated(steps, masks=(mask[:-1],), received=steps.received.copy())
        last = np.zeros(len(steps.order), dtype=np.int64)
        for node, bits in enumerate(mask[-1]):
            last[node] = int(bits).bit_count()
        check_steps(problem, mutated(short, received=steps.received - last))


def test_simulation_closes_pauses_and_finds_circles() -> None:
    problem = instance(PAIR, "all-gather", chunks_per_npu=2)
    step = 10**6
    lazy = Schedule.of([0, 2, 1, 3], [0, 1, 0, 1], [0, 0, 3 * step, 2 * step], 4 * step)
    check_schedule(problem, lazy)
    played = simulate_schedule(problem, lazy)
    assert (played["closed_form"], played["simulated"]) == (4 * step, 2 * step)
    assert played["relative_difference"] == -0.5
    assert played["busiest_link_share"] == 1.0
    path = Topology.from_links(
        "path", 3, [(0, 1, 0, 10**12), (1, 2, 0, 10**12)], bidirectional=True
    )
    # 2 is to give chunk 0 back to 1 before 1 has given it to 2
    circle = Schedule.of([0, 0], [2, 3], [0, 1], 9)
    with pytest.raises(CheckError, match="2 of 2 sends wait for each other"):
        simulate_schedule(instance(path), circle)


def test_many_short_sends_beside_a_long_one_are_simulated() -> None:
    """Only when a send ends counts, not how long all would take one after another."""
    topology = named("topology", "line:3")
    whole = "scatter:size=100000GB;all-gather:size=1B,chunks=40000"
    problem = CollectiveInstance(topology, named("collective", whole).on(topology))
    schedule = schedule_of(problem, greedy(problem, effort=0.01))
    longest = int(problem.transfer_ps(10**14).max())
    assert schedule.num_sends * longest > 2**62
    assert simulate_schedule(problem, schedule)["simulated"] == schedule.makespan_ps
