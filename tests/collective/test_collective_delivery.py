"""The delivery bound: exact on networks with switches, below every optimum, checked by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from collective_cases import instance, random_topology, verified
from sampling import slow

from nestopt.collective.bounds import all_bounds, verify_witness
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import CheckError
from nestopt.core.options import SolveOptions
from nestopt.core.result import Reason
from nestopt.formulations.collective.solve import solve_cpsat


def delivery(problem) -> dict:
    (row,) = [row for row in all_bounds(problem) if row["name"] == "delivery"]
    assert verify_witness(problem, row["witness"]) == row["value"]
    return row


@pytest.mark.parametrize(
    ("network", "pattern"),
    [
        ("dgx-a100:2x4", "all-gather"),
        ("dgx-a100:2x8", "all-gather"),
        ("dgx-a100:2x8", "reduce-scatter"),
        ("dgx-h100:2x8", "all-gather"),
        ("ndv2", "all-gather"),
        ("ndv2", "reduce-scatter"),
        *slow([("ndv2", "all-reduce")]),
    ],
)
def test_greedy_is_proved_optimal_on_machines(network: str, pattern: str) -> None:
    problem = instance(network, pattern)
    result = verified(problem)
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective == delivery(problem)["value"]


def test_by_hand() -> None:
    # 0 and 1 send to 2, which passes everything on to 3 over a slow link
    rows = [(0, 2, 0, 10**9), (1, 2, 0, 10**9), (2, 3, 0, 10**9 // 2), (2, 4, 0, 10**9)]
    back = [(b, a, alpha, bandwidth) for a, b, alpha, bandwidth in rows]
    topology = Topology.from_links("tail", 5, rows + back)
    # over the slow link the chunk of 2 at once, then those of 0 and 1: one every 2 ms
    assert delivery(instance(topology, npus=range(4)))["value"] == 6 * 10**9
    # 1 ms to 2, then 2 ms
    assert delivery(instance(topology, "broadcast", npus=[0, 3], root=0))["value"] == 3 * 10**9


@pytest.mark.parametrize("seed", [0, 1, 2, 11, *slow([*range(3, 11), *range(12, 16)])])
def test_never_above_the_optimum(seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(4, 6))
    topology = random_topology(rng, nodes, both=bool(seed % 2))
    group = sorted(rng.choice(nodes, int(rng.integers(3, nodes + 1)), replace=False).tolist())
    latency = ("blocking", "pipelined")[seed // 2 % 2]
    for pattern in ("all-gather", "reduce-scatter", "all-reduce", "broadcast"):
        problem = instance(topology, pattern, latency=latency, npus=group)
        bare = SolveOptions(set={"incumbent": "none", "bound": "none"}, time_limit=60.0)
        result = solve_cpsat(problem, bare)
        assert delivery(problem)["value"] <= result.objective


def test_a_wrong_witness_is_refused() -> None:
    problem = instance("dgx-a100:2x4")
    row = delivery(problem)["witness"]
    changes = [
        ("value", row["value"] + 1),
        ("need", row["need"] + 1),
        ("sources", row["sources"][1:]),
        ("sources", [*row["sources"][1:], row["sources"][-1]]),
        ("sources", [row["target"], *row["sources"][1:]]),
        ("links", row["links"][1:]),
        ("target", row["sources"][0]),
        ("backward", True),
    ]
    for field, value in changes:
        wrong = copy.deepcopy(row)
        wrong[field] = value
        with pytest.raises(CheckError):
            verify_witness(problem, wrong)
