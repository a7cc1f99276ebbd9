"""Search over orders of deliveries: networks with switches, and All-Reduce without a barrier."""

from __future__ import annotations

import numpy as np
import pytest
from collective_cases import instance, random_topology, schedule_of, verified
from sampling import slow

from nestopt.collective.model.schedule import COPY, REDUCE

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
