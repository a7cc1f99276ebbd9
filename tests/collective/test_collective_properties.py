"""What holds of every network: relabelling, scaling, useless links, round trips, determinism."""

from __future__ import annotations

import json

import numpy as np
from collective_cases import greedy, instance, random_topology, schedule_of, verified
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nestopt.collective.greedy.bound import quick_bound
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.collective import PATTERNS
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.schedule import Schedule
from nestopt.collective.model.topology import Topology

patterns = st.sampled_from(PATTERNS)
latencies = st.sampled_from(["blocking", "pipelined"])
seeds = st.integers(0, 10**6)
few = settings(max_examples=25, deadline=None)


def drawn(seed: int, nodes: int = 0) -> Topology:
    rng = np.random.default_rng(seed)
    return random_topology(rng, nodes or int(rng.integers(3, 8)), both=bool(seed % 2))


@few
@example(seed=479794, pattern="all-reduce", latency="pipelined", chunks=2)
@example(seed=1710504, pattern="all-reduce", latency="blocking", chunks=1)
@given(seeds, patterns, latencies, st.integers(1, 3))
def test_greedy_schedules_are_right_and_simulate_to_their_makespan(
    seed: int, pattern: str, latency: str, chunks: int
) -> None:
    problem = instance(drawn(seed), pattern, latency=latency, chunks_per_npu=chunks)
    verified(problem, restarts=2)


@few
@given(seeds, patterns)
def test_relabelling_changes_nothing(seed: int, pattern: str) -> None:
    topology = drawn(seed)
    problem = instance(topology, pattern)
    schedule = schedule_of(problem, greedy(problem, restarts=1))
    nodes, links = topology.num_nodes, topology.num_links
    rng = np.random.default_rng(seed + 1)
    label, shuffled = rng.permutation(nodes), rng.permutation(links)
    other = Topology.from_links(
        "relabelled",
        nodes,
        zip(
            label[topology.src[shuffled]],
            label[topology.dst[shuffled]],
            topology.alpha_ps[shuffled],
            topology.bandwidth[shuffled],
        ),
    )
    root = problem.collective.parts[0].root
    renamed = instance(other, pattern, root=None if root is None else int(label[root]))
    assert quick_bound(renamed)["value"] == quick_bound(problem)["value"]
    # chunks are numbered by source and destination, so that these tell which is which
    ends = {
        pair: c
        for c, pair in enumerate(
            zip(renamed.collective.source.tolist(), renamed.collective.destination.tolist())
        )
    }
    moved = [
        ends[tuple(int(label[v]) if v >= 0 else -1 for v in pair)]
        for pair in zip(problem.collective.source.tolist(), problem.collective.destination.tolist())
    ] if pattern != "all-reduce" else list(range(nodes))  # fmt: skip
    place = np.argsort(shuffled)
    same = Schedule.of(
        np.array(moved)[schedule.chunk],
        place[schedule.link],
        schedule.start_ps,
        schedule.makespan_ps,
        schedule.phase,
    )
    check_schedule(renamed, same)


@few
@given(seeds, st.sampled_from(["all-gather", "reduce-scatter", "broadcast"]), latencies)
def test_doubling_all_times_doubles_the_makespan(seed: int, pattern: str, latency: str) -> None:
    topology = drawn(seed)
    slower = Topology.from_links(
        "slower",
        topology.num_nodes,
        zip(topology.src, topology.dst, 2 * topology.alpha_ps, topology.bandwidth // 2),
    )
    # 12 MB: every bandwidth divides the time, before and after
    times = [
        greedy(instance(net, pattern, latency=latency, chunk_size=12 * 10**6), restarts=4).objective
        for net in (topology, slower)
    ]
    assert times[1] == 2 * times[0]


@few
@given(seeds, patterns)
def test_a_useless_link_keeps_every_schedule_right(seed: int, pattern: str) -> None:
    topology = drawn(seed)
    problem = instance(topology, pattern)
    schedule = schedule_of(problem, greedy(problem, restarts=1))
    more = Topology.from_links(
        "more",
        topology.num_nodes,
        [
            *zip(topology.src, topology.dst, topology.alpha_ps, topology.bandwidth),
            (0, 1, 10**15, 1000),
        ],
    )
    larger = instance(more, pattern)
    check_schedule(larger, schedule)
    assert quick_bound(larger)["value"] <= quick_bound(problem)["value"]


def test_a_useless_link_does_not_lengthen_a_proved_optimum() -> None:
    from nestopt.core.registry import named

    mesh = named("topology", "mesh2d:4x4")
    rows = [*zip(mesh.src, mesh.dst, mesh.alpha_ps, mesh.bandwidth), (0, 15, 10**12, 1000)]
    assert greedy(instance(Topology.from_links("more", 16, rows))).objective == 8 * 10**9


@few
@given(seeds, patterns, latencies)
def test_round_trip_of_instances(seed: int, pattern: str, latency: str) -> None:
    problem = instance(drawn(seed), pattern, latency=latency, chunks_per_npu=2)
    data = json.loads(json.dumps(problem.to_json()))
    again = CollectiveInstance.from_json(data)
    assert again.to_json() == problem.to_json()
    assert again.transfer_ps(10**6).tolist() == problem.transfer_ps(10**6).tolist()


@settings(max_examples=10, deadline=None)
@given(seeds, patterns)
def test_seeds_decide_everything(seed: int, pattern: str) -> None:
    problem = instance(drawn(seed), pattern)
    first, second = (greedy(problem, seed=seed, threads=threads, effort=0.02) for threads in (1, 2))
    assert first.solution_json == second.solution_json
    assert first.objective == second.objective
