"""Greedy synthesis: published optima, every pattern, uneven and broken networks, determinism."""

from __future__ import annotations

import itertools
import json
import time

import numpy as np
import pytest
from collective_cases import greedy, instance, random_topology, schedule_of, verified
from sampling import slow

from nestopt.collective.greedy.steps import match_steps
from nestopt.collective.greedy.translate import find_translation
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.judge.check_steps import check_steps
from nestopt.collective.model.collective import PATTERNS, Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import UsageError
from nestopt.core.registry import named
from nestopt.core.result import Limit, Reason

UNIT = 10**9  # ps: a chunk of 1 MB at 1 GB/s


@pytest.mark.parametrize(
    ("network", "steps"),
    [
        ("mesh2d:3x3", 4),
        ("mesh2d:4x4", 8),
        ("mesh2d:5x5", 12),
        ("torus2d:3x3", 2),
        ("torus2d:3x4", 3),
        ("torus2d:4x4", 4),
        ("torus2d:5x5", 6),
        ("ring:6", 3),
        ("mesh2d:4x4,bw=1GB/s:333333333B/s", 12),
        ("torus2d:4x4,bw=1GB/s:500MB/s", 6),
    ],
)
@pytest.mark.parametrize("pattern", ["all-gather", "reduce-scatter"])
def test_proved_optima_of_grids(network: str, steps: int, pattern: str) -> None:
    """CP-SAT proves these makespans optimal; the default settings reach them."""
    result = verified(instance(network, pattern))
    # 1/3 GB/s is no whole number of bytes/s: its chunks take 1 ps in 3 * 10**9 longer
    assert result.objective == pytest.approx(steps * UNIT, rel=1e-8)
    if "33333" not in network:
        assert result.objective == steps * UNIT
        assert result.termination.reason is Reason.OPTIMAL


@pytest.mark.parametrize("network", ["torus2d:5x5", "torus2d:4x4", "torus2d:3x3"])
def test_relabelled_tori_reach_the_optimum_too(network: str) -> None:
    """No coordinates are seen under a random numbering; matching and search must do."""
    torus = named("topology", network)
    label = np.random.default_rng(5).permutation(torus.num_nodes)
    mixed = Topology.from_links(
        "mixed",
        torus.num_nodes,
        zip(label[torus.src], label[torus.dst], torus.alpha_ps, torus.bandwidth),
    )
    assert find_translation(mixed) is None
    best = int(greedy(instance(torus)).objective)
    assert verified(instance(mixed)).objective == best


def test_a_transfer_never_starts_before_its_source_holds_the_chunk() -> None:
    """A published synthesizer reports 4.0 us on this graph, where 0 -> 3 alone needs 6.0 us."""
    result = verified(instance("uneven4", chunk_size=1))
    assert 6_000_000 <= result.objective <= 6_000_010
    assert result.termination.reason is Reason.OPTIMAL


GROUPS = {"all": slice(None), "half": slice(None, None, 2)}


@pytest.mark.parametrize(
    ("group", "latency"),
    [
        ("all", "blocking"),
        ("half", "pipelined"),
        *slow([("all", "pipelined"), ("half", "blocking")]),
    ],
)
@pytest.mark.parametrize("network", ["mesh2d:3x4", "dgx-a100:2x4", *slow(["ndv2:2", "fat-tree:4"])])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_pattern_on_every_kind_of_network(network, pattern, group, latency) -> None:
    npus = named("topology", network).npus[GROUPS[group]]
    verified(instance(network, pattern, npus=npus, latency=latency, chunks_per_npu=2), restarts=2)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("multicast", ["yes", "no"])
def test_switches_that_multicast_and_reduce(pattern: str, multicast: str) -> None:
    network = f"switch:6,multicast={multicast},reduce={multicast}"
    result = verified(instance(network, pattern), restarts=4)
    if multicast == "yes" and pattern in ("all-gather", "reduce-scatter"):
        assert result.objective == 6 * UNIT


def test_relays_carry_what_a_group_cannot() -> None:
    path = Topology.from_links(
        "path", 5, [(v, v + 1, 0, 10**9) for v in range(4)], bidirectional=True
    )
    result = verified(instance(path, npus=[0, 4]))
    assert result.objective == 4 * UNIT
    assert result.solution_json["num_sends"] == 8


def test_sends_to_idle_relays_are_dropped() -> None:
    result = verified(instance("mesh2d:5x5", npus=[0, 1]))
    assert result.objective == UNIT
    assert result.solution_json["num_sends"] == 2


def test_parallel_links_and_several_chunks() -> None:
    pair = Topology.from_links("pair", 2, [(0, 1, 0, 10**9)] * 3 + [(1, 0, 0, 10**9)] * 2)
    result = verified(instance(pair, chunks_per_npu=6))
    assert result.objective == 3 * UNIT
    assert result.termination.reason is Reason.OPTIMAL


def test_broadcast_spreads_different_chunks_over_different_links() -> None:
    result = verified(instance("torus2d:3x3", "broadcast", chunks_per_npu=16))
    assert result.objective <= 8 * UNIT
    assert result.bound >= 4 * UNIT


def test_slow_links_leave_what_fast_ones_bring_sooner() -> None:
    """The slow link from 0 to 1 would bring the second chunk after the fast one has."""
    two = Topology.from_links("two", 2, [(0, 1, 0, 10**9), (0, 1, 0, 10**8), (1, 0, 0, 10**9)])
    result = verified(instance(two, "broadcast", chunks_per_npu=9))
    assert result.objective == 9 * UNIT
    more = verified(instance(two, "broadcast", chunks_per_npu=11))
    assert more.objective == 10 * UNIT


def test_pipelined_latency_overlaps_sends() -> None:
    pair = Topology.from_links("pair", 2, [(0, 1, 5 * UNIT, 10**9), (1, 0, 5 * UNIT, 10**9)])
    assert verified(instance(pair, chunks_per_npu=4)).objective == 24 * UNIT
    pipelined = verified(instance(pair, chunks_per_npu=4, latency="pipelined"))
    assert pipelined.objective == 9 * UNIT


@pytest.mark.parametrize(
    ("network", "pattern", "optimum"),
    [
        ("dgx1v", "all-to-all", 3 * 40_000_000),
        ("ring:8", "all-to-all", 8 * UNIT),
        ("ndv2:2", "all-to-all", 64 * 80_000_000),
        ("mesh2d:4x4", "all-to-all", 16 * UNIT),
        ("mesh2d:8x8", "scatter", 32 * UNIT),
        ("mesh2d:8x8", "gather", 32 * UNIT),
        ("torus2d:8x8", "all-gather", 16 * UNIT),
        ("torus2d:8x8", "all-reduce", 32 * UNIT),
        ("torus3d:4x4x4", "reduce-scatter", 11 * UNIT),
    ],
)
def test_optima_that_the_bound_proves(network: str, pattern: str, optimum: int) -> None:
    result = verified(instance(network, pattern))
    assert result.objective == optimum
    if pattern != "all-to-all" or network != "mesh2d:4x4":
        assert result.bound == optimum


def test_all_to_all_of_1_gb_on_two_ndv2() -> None:
    """64 parts of 62.5 MB cross a link of 12.5 GB/s: 320.0 ms, which the fluid optimum attains."""
    result = verified(instance("ndv2:2", "all-to-all", chunk_size=62_500_000))
    assert result.objective == 320 * 10**9


def test_several_collectives_at_once() -> None:
    mesh = named("topology", "mesh2d:4x4")
    both = Collective.together(
        Collective.of("all-gather", range(8), chunk_size=2 * 10**6),
        Collective.of("all-to-all", range(8, 16)),
        Collective.of("all-reduce", [0, 5, 10, 15], chunk_size=5 * 10**5),
        Collective.of("reduce", range(0, 16, 3), root=6),
    )
    result = verified(CollectiveInstance(mesh, both), effort=0.2)
    alone = [
        int(greedy(CollectiveInstance(mesh, Collective("one", (part,)))).objective)
        for part in both.parts
    ]
    assert max(alone) <= result.objective <= sum(alone)


@pytest.mark.parametrize("network", ["mesh2d:8x8", "torus2d:8x8"])
@pytest.mark.parametrize("seed", range(4))
def test_three_failed_npus(network: str, seed: int) -> None:
    whole = named("topology", network)
    lost = np.random.default_rng(seed).permutation(64)[:3].tolist()
    problem = instance(whole.without(npus=lost))
    result = greedy(problem)
    if result.termination.reason is Reason.INFEASIBLE:
        assert "no link leads from" in result.infeasible_because[0]
        return
    check_schedule(problem, schedule_of(problem, result))
    assert result.termination.reason is Reason.OPTIMAL


def test_a_disconnected_topology_names_its_sides() -> None:
    rows = [(0, 1, 0, 10**9), (1, 0, 0, 10**9), (2, 3, 0, 10**9), (3, 2, 0, 10**9)]
    split = Topology.from_links("split", 4, rows, node_names=["a", "b", "c", "d"])
    for pattern in PATTERNS:
        result = greedy(instance(split, pattern))
        assert result.termination.reason is Reason.INFEASIBLE
        assert result.solution_json is None
        (because,) = result.infeasible_because
        assert "no link leads from" in because
        assert ("{a, b} to {c, d}" in because) or ("{c, d} to {a, b}" in because)
    one_way = Topology.from_links("one way", 2, [(0, 1, 0, 10**9)])
    assert greedy(instance(one_way)).termination.reason is Reason.INFEASIBLE
    assert verified(instance(one_way, "broadcast")).objective == UNIT


@pytest.mark.parametrize(
    ("network", "pattern"),
    [("uneven4", "all-gather"), ("mesh2d:4x4", "all-to-all"), ("torus2d:3x5", "broadcast"),
     *slow([("torus2d:8x8+log-uniform:0.5,2", "all-gather"), ("dgx-a100:2x4", "all-reduce"),
            ("torus2d:20x20+log-uniform:0.5,2", "all-gather")])],
)  # fmt: skip
def test_any_number_of_threads_gives_the_same_bytes(network: str, pattern: str) -> None:
    problem = instance(network, pattern)
    answers = {
        json.dumps(greedy(problem, threads=threads, seed=3, effort=0.3).solution_json)
        for threads in (1, 2, 5)
    }
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("network", "pattern"),
    [
        ("dgx-a100:2x4", "all-gather"),
        ("mesh2d:3x3", "all-to-all"),
        ("mesh2d:9x9", "all-gather"),
        ("dgx1v", "reduce-scatter"),
        *slow([("mesh2d:4x4", "all-reduce"), ("torus3d:3x3x3", "all-to-all")]),
    ],
)
def test_a_slow_machine_finds_the_same(network: str, pattern: str, monkeypatch) -> None:
    problem = instance(network, pattern)
    before = greedy(problem, effort=0.3)
    hours = itertools.count(0.0, 3600.0)
    monkeypatch.setattr(time, "perf_counter", lambda: next(hours))
    after = greedy(problem, effort=0.3)
    assert after.seconds > 3600.0
    for name in ("solution", "bound", "witness", "termination", "stats"):
        assert getattr(after, name) == getattr(before, name)


def test_threads_of_the_synchronous_kernel_agree() -> None:
    problem = instance("mesh2d:40x40")
    for ahead in (0, 16):
        one, three = (
            match_steps(problem, UNIT, seed=1, threads=threads, ahead=ahead) for threads in (1, 3)
        )
        assert np.array_equal(one.order, three.order)
        assert all(np.array_equal(a, b) for a, b in zip(one.masks, three.masks, strict=True))


@pytest.mark.parametrize(
    ("network", "missing", "bound"),
    [
        ("mesh2d:8x32", (), 128),
        # two nodes in a corner, cut off but for one link each: either link must bring other chunks
        *slow([("mesh2d:32x32", (2, 4 * 32, 20 * 32 + 8), 510)]),
    ],
)
def test_looking_ahead_brings_each_chunk_over_one_link_into_a_narrow_part(
    network: str, missing: tuple[int, ...], bound: int
) -> None:
    problem = instance(named("topology", network).without(npus=list(missing)))
    blind = match_steps(problem, UNIT)
    seeing = match_steps(problem, UNIT, ahead=16)
    check_steps(problem, seeing)
    assert seeing.makespan_ps <= (bound + 1) * UNIT
    assert blind.makespan_ps > 1.2 * seeing.makespan_ps
    assert greedy(problem).objective <= (bound + 1) * UNIT


def test_large_equal_grids_reach_the_bound() -> None:
    for network in ("mesh2d:32x32", "torus2d:32x32"):
        problem = instance(network)
        result = greedy(problem)
        assert result.termination.reason is Reason.OPTIMAL
        check_schedule(problem, schedule_of(problem, result))


def test_half_of_a_large_grid_with_relays() -> None:
    network = named("topology", "mesh2d:20x20")
    problem = instance(network, npus=network.npus[::2])
    result = greedy(problem)
    check_schedule(problem, schedule_of(problem, result))
    assert result.gap <= 0.05


def test_a_large_schedule_goes_beside_the_result(tmp_path, monkeypatch) -> None:
    from dataclasses import replace

    from nestopt.collective.greedy.solve import solve
    from nestopt.collective.problem import PROBLEM
    from nestopt.core.options import SolveOptions

    monkeypatch.setattr("nestopt.collective.greedy.solve.INLINE_SENDS", 1000)
    problem = instance("mesh2d:20x20")
    options = SolveOptions(output=str(tmp_path / "r.json"))
    result = solve(problem, options)
    assert result.solution_json["store"] == "r.schedule"
    assert PROBLEM.check(result, directory=tmp_path)
    with pytest.raises(UsageError, match="give --output"):
        solve(problem, replace(options, output=None))
    elsewhere = solve(problem, SolveOptions(set={"store": str(tmp_path / "other")}))
    assert PROBLEM.check(elsewhere)


@pytest.mark.parametrize("policy", ["fifo", "rarest", "random", "critical-path", "patient"])
def test_policies(policy: str) -> None:
    rng = np.random.default_rng(2)
    verified(instance(random_topology(rng, 7)), policy=policy, restarts=3)


def test_unknown_settings_are_refused() -> None:
    problem = instance("ring:3")
    with pytest.raises(UsageError, match="did you mean 'rarest'"):
        greedy(problem, policy="rarst")
    for key, value in (("restarts", 0), ("restarts", "x"), ("effort", -1), ("effort", "much")):
        with pytest.raises(UsageError, match=key):
            greedy(problem, **{key: value})


def test_a_time_limit_ends_the_restarts() -> None:
    from nestopt.collective.greedy.solve import solve
    from nestopt.core.options import SolveOptions

    problem = instance("dgx-a100:2x4")
    result = solve(problem, SolveOptions(time_limit=0.0))
    assert result.termination.limit is Limit.TIME
    check_schedule(problem, schedule_of(problem, result))


def test_an_empty_collective_takes_no_time() -> None:
    result = verified(instance("ring:3", npus=[1]))
    assert (result.objective, result.termination.reason) == (0, Reason.OPTIMAL)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupt_returns_what_there_is(threads: int, monkeypatch) -> None:
    from nestopt.collective.greedy import match as greedy_match

    problem = instance(random_topology(np.random.default_rng(3), 8, both=False))
    original, calls = greedy_match._matching, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(greedy_match, "_matching", interrupted)
    result = greedy(problem, threads=threads)
    assert result.termination.limit is Limit.INTERRUPTED
    check_schedule(problem, schedule_of(problem, result))
    monkeypatch.setattr(greedy_match, "_matching", lambda *_: interrupted())
    # the known algorithms are there already
    assert greedy(problem, threads=threads).termination.limit is Limit.INTERRUPTED
    with pytest.raises(KeyboardInterrupt):
        greedy(problem, threads=threads, policy="rarest")
