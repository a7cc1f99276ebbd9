"""Bounds by partition and by merging, and the check of their witnesses."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from collective_cases import instance, random_topology
from sampling import slow

from nestopt.collective.bounds import all_bounds, best_bound, verify_witness
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance

US = 10**6
PATTERNS = ("all-gather", "reduce-scatter", "all-reduce", "broadcast", "all-to-all", "gather")


def rows(problem: CollectiveInstance) -> dict[str, dict[str, Any]]:
    """Bounds by name; every witness has passed the independent check."""
    found = all_bounds(problem)
    for row in found:
        assert verify_witness(problem, row["witness"]) == row["value"]
    return {row["name"]: row for row in found}


@pytest.mark.parametrize("sums", ["copied", *slow(["moved"])])
def test_thirty_transfers_a_chunk_between_sixteen_nodes(sums: str) -> None:
    # 128 sums, each 2 * 15 times between nodes, over 128 NICs of 20 us a chunk; of use for nothing
    # in the 20 us that the first, or the last, of two hops takes
    problem = instance("dgx-h100:16x8", "all-reduce", sums=sums)
    found = best_bound(problem)
    assert (found["name"], found["value"]) == ("partition", 620 * US)
    assert found["space"] == "sums copied or moved"
    assert len(found["witness"]["blocks"]) == 16
    # 8 chunks a GPU: eight times as much
    eight = instance("dgx-h100:16x8", "all-reduce", sums=sums, chunks_per_npu=8)
    assert best_bound(eight)["value"] == (8 * 600 + 20) * US


def three_racks(reduces: bool) -> Topology:
    """Three racks of 2 NPUs, joined by fast links; every NPU has a slow link to one spine."""
    fast, slow = (0, 10 * 10**9), (0, 10**9)
    links = [(v, v + 1, *fast) for v in (0, 2, 4)] + [(v, 6, *slow) for v in range(6)]
    able = [6] if reduces else []
    return Topology.from_links(
        "racks", 7, links, switches=[6], multicast=able, reduces=able, bidirectional=True
    )


def test_in_network_reduction_weakens_the_count_as_far_as_it_must() -> None:
    # a plain spine: 6 sums pass 2 * 2 times from rack to rack, over 6 links out of racks of 1 ms,
    # and the last hop takes another 1 ms
    plain = rows(instance(three_racks(False), "all-reduce", sums="copied"))["partition"]
    assert plain["value"] == 5_000 * US
    # a spine that adds and copies: 6 sums leave every rack once, over 2 links
    able = rows(instance(three_racks(True), "all-reduce", sums="copied"))["partition"]
    assert able["value"] == 3_000 * US


def test_a_moved_sum_has_a_radius_where_a_copied_one_has_a_diameter() -> None:
    line = Topology.from_links("line", 3, [(0, 1, 0, 10**9), (1, 2, 0, 10**9)], bidirectional=True)
    copied, moved = (
        rows(instance(line, "all-reduce", sums=sums))["distance"] for sums in ("copied", "moved")
    )
    assert copied["value"] == 2 * 1_000 * US
    assert moved["value"] == 2 * 1_000 * US
    star = "fully-connected:4,bw=1GB/s"
    copied, moved = (
        rows(instance(star, "all-reduce", sums=sums))["distance"] for sums in ("copied", "moved")
    )
    assert (copied["value"], moved["value"]) == (1_000 * US, 2_000 * US)
    assert (copied["space"], moved["space"]) == ("sums copied or moved", "sums moved")
    forged = dict(moved["witness"])
    with pytest.raises(CheckError, match="sums may be copied"):
        verify_witness(instance(star, "all-reduce", sums="copied"), forged)


def test_one_latency_proves_one_shot_best() -> None:
    problem = instance(
        "fully-connected:8,bw=25GB/s,alpha=5us",
        "all-reduce",
        latency="pipelined",
        chunk_size=1000,
        sums="copied",
    )
    # 7 contributions to each of 8 sums over 7 links, before any message can hold two
    assert rows(problem)["merging"]["value"] == 5_320_000


def forgeries(witness: dict[str, Any]) -> list[dict[str, Any]]:
    """Witnesses that claim more than they show."""
    found = [witness | {"value": witness["value"] + 1}]
    if witness["kind"] == "partition":
        found.append(witness | {"cost": witness["cost"] + 1})
        found.append(witness | {"blocks": [*witness["blocks"][:-1], [0]]})
        found.append(witness | {"prices": [-1, *witness["prices"][1:]]})
        found.append(witness | {"prices": witness["prices"][1:]})
    else:
        found.append(witness | {"sums": witness["sums"] + 1})
        found.append(witness | {"merged": witness["merged"] + 1})
    return found


@pytest.mark.parametrize("seed", [*range(4), *slow(range(4, 10))])
def test_witnesses_hold_and_forged_ones_do_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, int(rng.integers(4, 9)), both=False)
    seen = 0
    for pattern in PATTERNS:
        problem = instance(
            topology, pattern, latency=("blocking", "pipelined")[seed % 2], sums="copied"
        )
        for name, row in rows(problem).items():
            if name in ("partition", "merging"):
                seen += 1
                for forged in forgeries(row["witness"]):
                    with pytest.raises(CheckError):
                        verify_witness(problem, forged)
    assert seen >= len(PATTERNS)


def test_fractions_are_those_of_the_input() -> None:
    # 65 MB/s in all into node 2: 3 MB take 3/65 s, which no number of picoseconds is
    links = [(0, 2, 0, 26 * 10**6), (1, 2, 0, 39 * 10**6), (2, 0, 0, 10**9), (0, 1, 0, 10**9)]
    links.append((1, 0, 0, 10**9))
    network = Topology.from_links("three", 3, links)
    found = rows(instance(network, "broadcast", chunk_size=10**6, chunks_per_npu=3, root=0))
    assert Fraction(found["ingress"]["fluid"]) == Fraction(3 * 10**12, 65)
    # three links of 7 bytes/ps a third: the work of 2 * 2 transfers a sum over three links each way
    ring = Topology.from_links(
        "ring", 3, [(v, (v + 1) % 3, 0, 7 * 10**9) for v in range(3)], bidirectional=True
    )
    work = rows(instance(ring, "all-reduce", chunk_size=10**6, sums="copied"))["work"]
    assert Fraction(work["fluid"]) == Fraction(3 * 4, 6) * Fraction(10**18, 7 * 10**9)
