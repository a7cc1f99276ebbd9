"""The growth bound: proofs of Broadcasts and Reduces, its witness, and that it is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from collective_cases import instance, random_topology, verified
from sampling import slow

from nestopt.collective.bounds import all_bounds
from nestopt.collective.judge.witness import verify_witness
from nestopt.collective.model.collective import PATTERNS
from nestopt.core.errors import CheckError
from nestopt.core.options import SolveOptions
from nestopt.core.result import Reason
from nestopt.formulations.collective.solve import solve_cpsat

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance

UNIT = 10**9


def growth(problem: CollectiveInstance) -> dict | None:
    rows = {row["name"]: row for row in all_bounds(problem)}
    return rows.get("growth")


@pytest.mark.parametrize("pattern", ["broadcast", "reduce"])
@pytest.mark.parametrize(
    ("network", "chunks", "steps"),
    [
        # two steps a message, a message a step: 1, 1, 2, 3, 5, 8 NPUs have it
        ("switch:8", 1, 5),
        ("switch:6", 2, 6),
        # a link to each: all have it at once
        ("fully-connected:8", 1, 1),
    ],
)
def test_broadcasts_and_reduces_are_proved(
    network: str, pattern: str, chunks: int, steps: int
) -> None:
    result = verified(instance(network, pattern, chunks_per_npu=chunks), effort=0.1)
    assert result.objective == result.bound == steps * UNIT


def test_a_latency_slows_growth() -> None:
    """A message a millisecond, which takes four: three children in time, and one grandchild."""
    row = growth(instance("switch:6,alpha=1ms", "broadcast", latency="pipelined"))
    assert row is not None
    # 4, 5, 6, 7 ms from the root, and 8 ms from it and from its first child
    assert row["value"] == 8 * UNIT


@pytest.mark.parametrize("seed", [0, 1, *slow(range(2, 16))])
def test_no_optimum_is_below_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, int(rng.integers(3, 6)), both=bool(seed % 2))
    latency = ("blocking", "pipelined")[seed // 2 % 2]
    proved = 0
    for pattern in PATTERNS:
        chunks = int(rng.integers(1, 3))
        problem = instance(topology, pattern, latency=latency, chunks_per_npu=chunks)
        row = growth(problem)
        assert (row is None) == (pattern in ("scatter", "gather", "all-to-all"))
        if row is None:
            continue
        exact = solve_cpsat(problem, SolveOptions(time_limit=5.0, set={"bound": "none"}))
        if exact.termination.reason is Reason.OPTIMAL:
            proved += 1
            assert row["value"] <= exact.objective, pattern
    assert proved


@pytest.mark.parametrize("pattern", ["broadcast", "reduce", "all-gather", "all-reduce"])
def test_forged_witnesses_are_refused(pattern: str) -> None:
    problem = instance("leaf-spine:2x3", pattern, chunks_per_npu=2)
    row = growth(problem)
    assert row is not None
    witness = row["witness"]
    assert verify_witness(problem, witness) == row["value"]
    for change in ({"value": witness["value"] + 1}, {"begin": witness["begin"] + 1}):
        with pytest.raises(CheckError):
            verify_witness(problem, witness | change)
    if pattern in ("broadcast", "reduce"):
        for change in ({"node": 1}, {"backward": not witness["backward"]}):
            with pytest.raises(CheckError):
                verify_witness(problem, witness | change)
