"""Lower bounds: published figures, brute force, and an independent check of every witness."""

from __future__ import annotations

import copy
import itertools
from fractions import Fraction

import numpy as np
import pytest
from sampling import slow

from nestopt.collective.bounds import all_bounds, best_bound, bottleneck_cut, verify_witness
from nestopt.collective.bounds._kernels import max_flow
from nestopt.collective.bounds._model import crossing, reverse_instance
from nestopt.collective.model.collective import PATTERNS, Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import CheckError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import named

UNIT = 10**9  # ps: a chunk of 1 MB at 1 GB/s


def instance(
    topology: Topology | str,
    pattern: str,
    latency: str = "blocking",
    sums: str = "moved",
    **settings,
):
    network = named("topology", topology) if isinstance(topology, str) else topology
    collective = Collective.of(pattern, network.npus, **settings)
    return CollectiveInstance(network, collective, latency, sums)


def rows(*arguments, **settings) -> dict[str, dict]:
    """Bounds by name; every witness has passed the independent check."""
    problem = instance(*arguments, **settings)
    found = all_bounds(problem)
    assert [row["value"] for row in found] == sorted((r["value"] for r in found), reverse=True)
    for row in found:
        assert verify_witness(problem, row["witness"]) == row["value"]
    return {row["name"]: row for row in found}


def random_topology(rng: np.random.Generator, nodes: int, switches: int = 0) -> Topology:
    """Strongly connected, with unequal links."""
    order = rng.permutation(nodes).tolist()
    pairs = list(zip(order, order[1:] + order[:1]))
    others = [p for p in itertools.permutations(range(nodes), 2) if p not in pairs]
    extra = rng.choice(len(others), size=min(len(others), nodes), replace=False)
    pairs += [others[i] for i in extra]
    links = [
        (a, b, int(rng.integers(0, 4)) * 10, int(rng.integers(1, 6)) * 10**9) for a, b in pairs
    ]
    return Topology.from_links("random", nodes, links, switches=range(nodes - switches, nodes))


@pytest.mark.parametrize(
    ("name", "ratio", "algbw"),
    [
        ("dgx1v", Fraction(7, 150), 171.43),
        ("dgx-a100:1x8", Fraction(7, 300), 342.86),
        ("dgx-a100:2x8", Fraction(3, 65), 346.67),
        ("dgx-a100:4x8", Fraction(3, 25), 266.67),
        ("dgx-h100:2x8", Fraction(3, 100), 533.33),
        ("mi250:1x16", Fraction(7, 150), 342.86),
    ],
)
def test_throughput_table(name: str, ratio: Fraction, algbw: float) -> None:
    # figures of ForestColl's throughput optimum, per GB/s
    topology = named("topology", name)
    found = bottleneck_cut(topology)
    assert found.exact
    assert found.ratio * 10**9 == ratio
    assert len(topology.npus) / (found.ratio * 10**9) == pytest.approx(algbw, abs=0.005)


def test_throughput_of_a_damaged_dgx1() -> None:
    whole = named("topology", "dgx1v")
    between = [e for e in range(whole.num_links) if {whole.src[e], whole.dst[e]} == {0, 4}]
    there = [e for e in between if whole.src[e] == 0]
    back = [e for e in between if whole.src[e] == 4]
    assert len(there) == len(back) == 2
    gone = bottleneck_cut(whole.without(links=between))
    halved = bottleneck_cut(whole.without(links=[there[0], back[0]]))
    assert 8 / (gone.ratio * 10**9) == pytest.approx(114.29, abs=0.005)
    assert 8 / (halved.ratio * 10**9) == pytest.approx(142.86, abs=0.005)


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("mesh2d:3x3", 4),
        ("mesh2d:4x4", 8),
        ("mesh2d:5x5", 12),
        ("torus2d:3x3", 2),
        ("torus2d:3x4", 3),
        ("torus2d:4x4", 4),
        ("torus2d:5x5", 6),
        ("ring:6", 3),
        ("mesh2d:4x4,bw=1GB/s:3GB/s", 4),
        ("torus2d:4x4,bw=1GB/s:2GB/s", 3),
    ],
)
def test_all_gather_bounds_meet_the_published_optima(name: str, steps: int) -> None:
    # the two last are in units of the slow link's chunk time: 12 / 3 and 6 / 2
    if "," in name:
        found = rows(name, "all-gather", chunk_size=3 * 10**6)
        assert max(r["value"] for r in found.values()) == 3 * steps * UNIT
    else:
        assert best_bound(instance(name, "all-gather"))["value"] == steps * UNIT
        assert best_bound(instance(name, "reduce-scatter"))["value"] == steps * UNIT


def test_fluid_bounds_have_flow_conservation() -> None:
    # a bound program without conservation gives 6, 5/3 and 7/24
    assert rows("ring:8", "all-to-all")["flow"]["fluid"] == str(8 * UNIT)
    unit = Fraction(10**9)
    dgx = rows("dgx1v", "all-to-all", chunk_size=25 * 10**6)["flow"]
    assert Fraction(dgx["fluid"]) / unit == Fraction(8, 3)
    scatter = rows("dgx1v", "scatter", chunk_size=25 * 10**6)
    assert Fraction(scatter["flow"]["fluid"]) / unit == Fraction(7, 6)
    assert Fraction(scatter["egress"]["fluid"]) / unit == Fraction(7, 6)
    # and it is reached with chunks of a sixth
    sixth = rows("dgx1v", "scatter", chunk_size=25 * 10**6, chunks_per_npu=6)
    assert sixth["flow"]["value"] == 7 * unit


def test_two_chassis_all_to_all_takes_320_ms() -> None:
    found = rows("ndv2:2", "all-to-all", chunk_size=62_500_000)
    assert found["flow"]["value"] == found["cut"]["value"] == 320 * 10**9
    assert Fraction(found["flow"]["fluid"]) == 320 * 10**9


def test_switches_that_pass_on_piece_by_piece_are_no_place_to_copy_or_sum() -> None:
    # 15 partial sums and 15 copies of each of 16 chunks leave 16 NPUs over one link each,
    # a hop late or early
    assert rows("fat-tree:4", "all-reduce")["flow"]["value"] == 31 * UNIT
    # half of the contributions, and of the copies, go from box to box over two slow links
    dgx = instance("dgx-a100:2x8", "all-reduce")
    slow = int(dgx.transfer_ps(10**6).max())
    assert rows("dgx-a100:2x8", "all-reduce")["distance"]["value"] == 4 * slow


@pytest.mark.parametrize(("reduces", "hops"), [((), 4), ((3,), 2)])
def test_a_sum_is_formed_at_a_node_that_reduces(reduces: tuple[int, ...], hops: int) -> None:
    links = [(v, 3, 0, 10**9) for v in range(3)]
    star = Topology.from_links(
        "star", 4, links, switches=[3], reduces=reduces, multicast=reduces, bidirectional=True
    )
    assert rows(star, "all-reduce")["distance"]["value"] == hops * UNIT
    forged = {"kind": "distance", "part": 0, "size": 10**6, "root": 3, "value": 2 * UNIT}
    problem = instance(star, "all-reduce")
    if reduces:
        assert verify_witness(problem, forged) == 2 * UNIT
    else:
        with pytest.raises(CheckError, match="takes 4000000000 ps"):
            verify_witness(problem, forged)


def test_four_node_graph_needs_six_microseconds() -> None:
    assert best_bound(instance("uneven4", "all-gather", chunk_size=1))["value"] >= 6 * 10**6


@pytest.mark.parametrize("seed", range(12))
def test_bottleneck_cut_equals_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    topology = random_topology(rng, int(rng.integers(3, 8)), switches=int(seed % 3 == 0))
    best = Fraction(0)
    for bits in itertools.product([False, True], repeat=topology.num_nodes):
        inside = np.array(bits)
        here = int(inside[topology.npus].sum())
        if 0 < here < len(topology.npus):
            out = topology.bandwidth[inside[topology.src] & ~inside[topology.dst]].sum()
            best = max(best, Fraction(here, int(out)))
    found = bottleneck_cut(topology)
    assert found.ratio == best
    assert found.exact


@pytest.mark.parametrize("seed", range(5))
def test_max_flow_equals_networkx(seed: int) -> None:
    import networkx as nx

    rng = np.random.default_rng(seed)
    topology = random_topology(rng, 9)
    graph = nx.DiGraph()
    for u, w, c in zip(topology.src.tolist(), topology.dst.tolist(), topology.bandwidth.tolist()):
        graph.add_edge(u, w, capacity=c)
    value, side = max_flow(
        9, topology.src.astype(np.int64), topology.dst.astype(np.int64), topology.bandwidth, 0, 5
    )
    assert value == nx.maximum_flow_value(graph, 0, 5)
    cut = side[topology.src] & ~side[topology.dst]
    assert side[0]
    assert not side[5]
    assert topology.bandwidth[cut].sum() == value


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("latency", ["blocking", "pipelined"])
@pytest.mark.parametrize("count", [1, *slow([6])])
def test_witnesses_on_uneven_networks(pattern: str, latency: str, count: int) -> None:
    for seed in range(count):
        rng = np.random.default_rng(seed)
        topology = random_topology(rng, 7, switches=seed % 2)
        group = topology.npus[: 4 + seed % 3]
        part = Collective.of(pattern, group, chunk_size=1000 + seed, chunks_per_npu=1 + seed % 2)
        problem = CollectiveInstance(topology, part, latency)
        found = all_bounds(problem)
        assert found[0]["value"] > 0
        mirrored = all_bounds(reverse_instance(problem))
        assert mirrored[0]["value"] == found[0]["value"]
        for row in found:
            assert verify_witness(problem, row["witness"]) == row["value"]


def test_several_collectives_at_once() -> None:
    topology = named("topology", "torus2d:4x4")
    both = Collective.together(
        Collective.of("all-gather", range(8), chunk_size=10**6),
        Collective.of("all-to-all", range(4, 12), chunk_size=3 * 10**5),
        Collective.of("reduce", range(16), chunk_size=10**6, root=3),
    )
    problem = CollectiveInstance(topology, both)
    together = all_bounds(problem)
    for row in together:
        assert verify_witness(problem, row["witness"]) == row["value"]
    for part in both.parts:
        alone = CollectiveInstance(topology, Collective("alone", (part,)))
        assert together[0]["value"] >= best_bound(alone)["value"]


def test_crossing_counts_chunks_one_by_one() -> None:
    rng = np.random.default_rng(1)
    for pattern in PATTERNS:
        collective = Collective.of(pattern, range(1, 6), chunks_per_npu=2)
        part = collective.parts[0]
        for _ in range(20):
            inside = rng.random(7) < 0.5
            count = 0
            for chunk in range(collective.num_chunks):
                before, after = inside[collective.pre(chunk)], inside[collective.post(chunk)]
                starts = before.any() if part.reduction else before.all()
                count += bool(starts and not after.all())
            assert crossing(part, inside) == count


def test_slowing_a_link_never_lowers_the_best_bound() -> None:
    rng = np.random.default_rng(5)
    topology = random_topology(rng, 6)
    before = best_bound(instance(topology, "all-gather", chunk_size=10**5))["value"]
    for link in range(topology.num_links):
        bandwidth = topology.bandwidth.copy()
        bandwidth[link] //= 2
        slower = Topology(
            "slower",
            topology.num_nodes,
            topology.is_switch,
            topology.src,
            topology.dst,
            topology.alpha_ps,
            bandwidth,
        )
        assert best_bound(instance(slower, "all-gather", chunk_size=10**5))["value"] >= before


def test_every_corrupted_witness_is_rejected() -> None:
    problem = instance("mesh2d:4x4", "all-gather")
    for row in all_bounds(problem):
        for delta in (1, UNIT):
            wrong = copy.deepcopy(row["witness"])
            wrong["value"] += delta
            with pytest.raises(CheckError):
                verify_witness(problem, wrong)
    witness = {row["name"]: row["witness"] for row in all_bounds(problem)}
    corruptions = [
        ("ingress", "need", 16),
        ("ingress", "links", witness["ingress"]["links"][1:]),
        ("ingress", "nodes", [5]),
        ("distance", "target", witness["distance"]["source"]),
        ("work", "prices", [1] * 47 + [1000]),
        ("work", "prices", [-1] * 48),
        ("work", "cost", 1),
    ]
    for name, field, value in corruptions:
        wrong = copy.deepcopy(witness[name])
        wrong[field] = value
        with pytest.raises(CheckError):
            verify_witness(problem, wrong)
    with pytest.raises(CheckError, match="unknown kind"):
        verify_witness(problem, {"kind": "faith", "value": 3})
    with pytest.raises(CheckError, match="witness: mode: Field required"):
        verify_witness(problem, {"kind": "cut", "value": 3})


def test_disconnected_is_infeasible_and_names_the_sides() -> None:
    topology = Topology.from_links(
        "halves", 4, [(0, 1, 0, 10**9), (2, 3, 0, 10**9)], bidirectional=True
    )
    row = best_bound(instance(topology, "all-gather"))
    assert row["value"] == float("inf")
    assert row["witness"]["inside"] == [0, 1]
    assert row["witness"]["outside"] == [2, 3]


def test_nothing_to_move_is_zero() -> None:
    row = best_bound(instance(Topology.from_links("one", 1, []), "all-gather"))
    assert row["value"] == 0
    assert verify_witness(instance("ring:4", "all-gather"), row["witness"]) == 0


def test_time_limit_only_costs_quality() -> None:
    problem = instance("mesh2d:12x12", "all-gather")
    hurried = all_bounds(problem, SolveOptions(time_limit=1e-6))
    for row in hurried:
        assert verify_witness(problem, row["witness"]) == row["value"]
    assert hurried[0]["value"] <= all_bounds(problem)[0]["value"]


def test_large_mesh_is_quick() -> None:
    import time

    problem = instance("mesh2d:100x100", "all-gather")
    best_bound(instance("mesh2d:4x4", "all-gather"))
    start = time.process_time()
    row = best_bound(problem)
    assert row["value"] == 5000 * UNIT
    assert time.process_time() - start < 10
    assert verify_witness(problem, row["witness"]) == row["value"]


def test_weighted_prices_stand_in_for_a_large_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from nestopt.collective.bounds import prices

    problem = instance("torus2d:4x4,bw=1GB/s:2GB/s", "all-to-all")
    exact = {r["name"]: r for r in all_bounds(problem)}["flow"]
    monkeypatch.setattr(prices, "_LP_VARIABLES", 0)
    row = {r["name"]: r for r in all_bounds(problem)}["flow"]
    assert verify_witness(problem, row["witness"]) == row["value"]
    assert 0.9 * exact["value"] <= row["value"] <= exact["value"]
