"""Search over orders of deliveries: networks with switches, and All-Reduce without a barrier."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from collective_cases import instance, random_topology, schedule_of, verified
from sampling import slow

from nestopt.collective.baselines import baseline_schedule
from nestopt.collective.greedy.insert import rearrange
from nestopt.collective.greedy.match import Effort
from nestopt.collective.greedy.network import make_task
from nestopt.collective.greedy.parallel import Clock
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.schedule import COPY, REDUCE
from nestopt.collective.model.topology import Topology

UNIT = 10**9


@pytest.mark.parametrize(
    ("network", "pattern", "steps"),
    [
        ("fat-tree:4", "all-gather", 20),
        ("mesh2d:4x4", "all-reduce", 15),
        *slow([("fat-tree:4", "all-reduce", 40), ("mesh2d:6x6", "all-reduce", 34)]),
    ],
)
def test_makespans_that_are_reached(network: str, pattern: str, steps: int) -> None:
    assert verified(instance(network, pattern)).objective <= steps * UNIT


def test_the_phases_of_an_all_reduce_overlap() -> None:
    problem = instance("mesh2d:4x4", "all-reduce")
    schedule = schedule_of(problem, verified(problem))
    sums, copies = (schedule.start_ps[schedule.phase == phase] for phase in (REDUCE, COPY))
    # a copy is under way before the last partial sum has arrived
    assert copies.min() < sums.max() + UNIT


@pytest.mark.parametrize("latency", ["blocking", "pipelined"])
def test_all_reduce_on_random_networks_and_groups(latency: str) -> None:
    rng = np.random.default_rng(4)
    for nodes in (4, 6):
        topology = random_topology(rng, nodes, both=False)
        for group in (range(nodes), sorted(rng.choice(nodes, 3, replace=False).tolist())):
            problem = instance(topology, "all-reduce", latency=latency, npus=group)
            copies = verified(instance(topology, "all-gather", latency=latency, npus=group))
            sums = verified(instance(topology, "reduce-scatter", latency=latency, npus=group))
            assert verified(problem).objective <= copies.objective + sums.objective


@pytest.mark.parametrize("network", ["dgx-a100:2x4", *slow(["fat-tree:4"])])
def test_switches_and_chunks(network: str) -> None:
    for pattern in ("all-gather", "all-reduce", "broadcast", "reduce"):
        verified(instance(network, pattern, chunks_per_npu=2), effort=0.1)


def test_hops_that_are_longer_one_way_than_the_other() -> None:
    """A switch that copies and does not reduce is one hop away forwards, and crossed backwards.

    There used to be room for the sends of the shorter hops only.
    """
    nodes = 6
    ring = [(v, (v + step) % nodes, 0, 10**9) for v in range(nodes) for step in (1, nodes - 1)]
    fast = [row for v in range(nodes) for row in ((v, nodes, 0, 10**11), (nodes, v, 0, 10**11))]
    topology = Topology.from_links("both", nodes + 1, ring + fast, switches=[6], multicast=[6])
    problem = instance(topology, "all-reduce", npus=range(nodes), chunks_per_npu=2)
    parts = instance(topology, npus=range(nodes), chunks_per_npu=2).collective.parts
    task = make_task(topology, parts, "blocking")
    back = make_task(topology.reversed(), parts, "blocking")
    assert np.diff(task.hop_ptr).max() == 1
    assert np.diff(back.hop_ptr).max() == 2
    effort = Effort(None, None, 0.1, 0, 1, 0, Clock(float("inf"), 0.0))
    late = replace(baseline_schedule(problem, "ring"), makespan_ps=10**15)
    found = rearrange(task, late, effort, back=back)
    assert found is not None
    check_schedule(problem, found.value)
    deliveries = len(task.source) * nodes
    assert found.value.num_sends > 2 * deliveries
