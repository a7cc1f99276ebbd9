"""All-Reduce along packed trees: validity on any network, makespans, determinism, gaps of links."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from collective_cases import greedy, instance, random_topology, schedule_of, verified
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import slow

from nestopt.collective.greedy import sums as greedy_sums
from nestopt.collective.greedy import trees as greedy_trees
from nestopt.collective.greedy.join import settle
from nestopt.collective.greedy.kernels.gaps import first_gap, last_gap, release, reserve
from nestopt.collective.greedy.match import Effort
from nestopt.collective.greedy.network import make_task
from nestopt.collective.greedy.parallel import Clock
from nestopt.collective.greedy.trees import pack
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.judge.simulate import simulate_schedule
from nestopt.collective.model.collective import Collective
from nestopt.collective.model.connectivity import find_separation
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.topology import Topology
from nestopt.core.options import SolveOptions
from nestopt.core.registry import named
from nestopt.core.result import Reason
from nestopt.formulations.collective.solve import solve_cpsat

if TYPE_CHECKING:
    from nestopt.collective.greedy.parallel import Best
    from nestopt.collective.model.schedule import Schedule

UNIT = 10**9  # ps: a chunk of 1 MB at 1 GB/s
latencies = st.sampled_from(["blocking", "pipelined"])


def packed(
    problem: CollectiveInstance, *, seconds: float = 1e-6, threads: int = 1, seed: int = 0
) -> Best[Schedule] | None:
    """What the packing alone finds, checked and simulated."""
    parts = [replace(part, pattern="all-gather") for part in problem.collective.parts]
    task = make_task(problem.topology, parts, problem.latency)
    back = make_task(problem.topology.reversed(), parts, problem.latency)
    clock = Clock(float("inf"), time.perf_counter())
    found = pack(task, back, Effort(None, None, seconds, seed, threads, 0, clock))
    if found is not None:
        check_schedule(problem, found.value)
        settled = settle(problem, found.value)
        assert settled.makespan_ps <= found.makespan
        assert settled.makespan_ps == found.makespan or not task.plain
        check_schedule(problem, settled)
        played = simulate_schedule(problem, settled)
        assert played["simulated"] == played["closed_form"] == settled.makespan_ps
    return found


def random_problem(seed: int, latency: str) -> CollectiveInstance | None:
    """Unequal links, often switches of any kind, up to two groups; None where they are apart."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(3, 10))
    plain = random_topology(rng, nodes, both=bool(seed % 2))
    count = int(rng.integers(1, nodes - 1)) if rng.random() < 0.6 else 0
    switches = np.sort(rng.choice(nodes, count, replace=False)).tolist()
    topology = Topology.from_links(
        "random",
        nodes,
        zip(plain.src, plain.dst, plain.alpha_ps, plain.bandwidth),
        switches=switches,
        multicast=[v for v in switches if rng.random() < 0.4],
        reduces=[v for v in switches if rng.random() < 0.4],
    )
    jobs = []
    for _ in range(int(rng.integers(1, 3))):
        size = int(rng.integers(2, len(topology.npus) + 1))
        group = rng.choice(topology.npus, size, replace=False)
        chunk = 10**5 * int(rng.integers(1, 4))
        jobs.append(
            Collective.of(
                "all-reduce", group, chunk_size=chunk, chunks_per_npu=int(rng.integers(1, 4))
            )
        )
    problem = CollectiveInstance(topology, Collective.together(*jobs), latency)
    return None if find_separation(problem) else problem


def hold_packed(seed: int, latency: str) -> None:
    problem = random_problem(seed, latency)
    if problem is not None:
        assert packed(problem, seed=seed) is not None


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), latencies)
def test_packed_trees_are_right_on_any_network(seed: int, latency: str) -> None:
    hold_packed(seed, latency)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), latencies)
def test_packed_trees_are_right_on_many_networks(seed: int, latency: str) -> None:
    hold_packed(seed, latency)


@pytest.mark.parametrize(
    ("network", "steps"),
    [("mesh2d:5x5", 23), *slow([("mesh2d:8x8", 52)])],
)
def test_makespans_of_grids(network: str, steps: int) -> None:
    assert verified(instance(network, "all-reduce")).objective <= steps * UNIT


@pytest.mark.slow
@pytest.mark.parametrize(("network", "steps"), [("mesh2d:16x16", 175), ("mesh2d:32x32", 630)])
def test_makespans_of_large_grids(network: str, steps: int) -> None:
    # reductions of all chunks, then all their copies, take 229 and 941 steps
    found = packed(instance(network, "all-reduce"))
    assert found is not None
    assert found.makespan <= steps * UNIT


def two_phases(problem: CollectiveInstance, monkeypatch: pytest.MonkeyPatch) -> int:
    """Makespan of the reduction and the copies made one by one."""
    with monkeypatch.context() as patch:
        patch.setattr(greedy_sums, "pack", lambda *_: None)
        return int(greedy(problem, effort=0.1).objective)


@pytest.mark.parametrize(
    ("case", "latency"),
    [
        ("switches", "pipelined"),
        ("group with relays", "blocking"),
        ("random", "blocking"),
        *slow(
            [
                ("failures", "pipelined"),
                ("unequal", "blocking"),
                ("torus", "blocking"),
                ("two jobs", "pipelined"),
            ]
        ),
    ],
)
def test_never_longer_than_two_phases(
    case: str, latency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = named("topology", "mesh2d:4x4")
    problem = {
        "switches": lambda: instance("dgx-a100:2x4", "all-reduce", latency=latency),
        "group with relays": lambda: instance(
            grid, "all-reduce", latency=latency, npus=range(0, 16, 3)
        ),
        "failures": lambda: instance(grid.without([5, 7, 8]), "all-reduce", latency=latency),
        "unequal": lambda: instance(
            "mesh2d:4x4,bw=1GB/s:3GB/s", "all-reduce", latency=latency, chunks_per_npu=2
        ),
        "torus": lambda: instance("torus2d:4x4", "all-reduce", latency=latency),
        "two jobs": lambda: CollectiveInstance(
            grid,
            Collective.together(
                Collective.of("all-reduce", range(10)),
                Collective.of("all-reduce", range(4, 16), chunk_size=2 * 10**6),
            ),
            latency,
        ),
        "random": lambda: instance(
            random_topology(np.random.default_rng(3), 8, both=False), "all-reduce", latency=latency
        ),
    }[case]()
    assert verified(problem, effort=0.1).objective <= two_phases(problem, monkeypatch)


@pytest.mark.parametrize("network", ["mesh2d:4x4", "dgx-a100:2x4"])
def test_threads_and_repetition_change_nothing(network: str) -> None:
    problem = instance(network, "all-reduce")
    runs = [packed(problem, seconds=0.005, threads=threads, seed=7) for threads in (1, 2, 2)]
    texts = [run.value.to_json() for run in runs if run is not None]
    assert len(texts) == 3
    assert texts[0] == texts[1] == texts[2]
    other = packed(problem, seconds=0.005, seed=8)
    assert other is not None
    assert other.value.to_json() != texts[0]


def test_what_is_too_large_is_left_to_the_two_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = instance("mesh2d:5x5", "all-reduce")
    monkeypatch.setattr(greedy_trees, "MOST_SENDS", 1000)
    assert packed(problem) is None
    monkeypatch.setattr(greedy_sums, "MOST_SENDS", 100)
    result = greedy(problem)
    check_schedule(problem, schedule_of(problem, result))
    assert "trees" not in str(result.stats)


@pytest.mark.parametrize("seed", [0, 3, *slow([1, 2, 4, 5])])
def test_no_shorter_than_a_proved_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # latencies and bandwidths that keep the time grid coarse
    nodes = 3 + seed % 2
    pairs = [(i, (i + 1) % nodes) for i in range(nodes)] + [(0, 2), (2, 0)][: 1 + seed % 2]
    links = [(a, b, 1000 * int(rng.integers(0, 3)), 6 * 10**9) for a, b in pairs]
    topology = Topology.from_links("small", nodes, links, bidirectional=seed < 3)
    problem = instance(topology, "all-reduce", chunk_size=6)
    exact = solve_cpsat(
        problem,
        SolveOptions(time_limit=60.0, set={"incumbent": "none", "bound": "none"}),
    )
    assert exact.termination.reason is Reason.OPTIMAL
    found = packed(problem, seconds=0.01)
    assert found is not None
    assert found.makespan >= exact.objective


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_gaps_are_those_of_a_timeline(seed: int) -> None:
    rng = np.random.default_rng(seed)
    horizon, past = 60, 60
    begin, end = np.empty(40, dtype=np.int64), np.empty(40, dtype=np.int64)
    count = np.zeros(1, dtype=np.int64)
    taken = np.zeros(past + 2 * horizon, dtype=np.bool_)  # index `past` is time 0
    held: list[tuple[int, int]] = []
    for _ in range(40):
        ready, length = int(rng.integers(0, horizon)), int(rng.integers(1, 6))
        free = [
            s
            for s in range(-past + 1, 2 * horizon - length)
            if not taken[past + s : past + s + length].any()
        ]
        first = first_gap(begin, end, count[0], ready, length)
        assert first == min(s for s in free if s >= ready)
        assert last_gap(begin, end, count[0], ready, length) == max(s for s in free if s <= ready)
        if held and rng.random() < 0.4:
            start, length = held.pop(int(rng.integers(len(held))))
            release(begin, end, count, 0, start, length)
            taken[past + start : past + start + length] = False
        elif first + length < horizon:
            reserve(begin, end, count, 0, first, length)
            taken[past + first : past + first + length] = True
            held.append((first, length))
        edges = np.flatnonzero(np.diff(np.concatenate([[False], taken, [False]]).astype(int)))
        assert (begin[: count[0]] + past).tolist() == edges[0::2].tolist()
        assert (end[: count[0]] + past).tolist() == edges[1::2].tolist()
