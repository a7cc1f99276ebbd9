"""Heterogeneity, failures and tenants: laws, counts, nesting, and the same bytes everywhere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestopt.core.errors import InputError, UsageError
from nestopt.instances.failures import FailureModel, draw_failures, fail
from nestopt.instances.heterogeneity import apply_heterogeneity
from nestopt.instances.network import strongly_connected
from nestopt.instances.streams import stream
from nestopt.instances.tenants import tenant_groups
from nestopt.instances.topologies import network_by_name

GB = 10**9


def vary(name: str, recipe: str, seed: int = 0) -> np.ndarray:
    """Factors by which a recipe changes the bandwidths."""
    network = network_by_name(name)
    changed = apply_heterogeneity(network, recipe, stream(seed, "test"))
    return changed.bandwidth / network.bandwidth


def test_tier_factor_is_exact() -> None:
    network = network_by_name("mesh2d:4x4,bw=3GB/s")
    changed = apply_heterogeneity(network, "tier:dim1=1/3", stream(0, "test"))
    speeds = dict(zip(changed.tier, changed.bandwidth.tolist()))
    assert speeds == {"dim0": 3 * GB, "dim1": GB}


@settings(max_examples=30, deadline=None)
@given(st.floats(0.05, 1), st.floats(1, 20), st.integers(0, 999))
def test_log_uniform_stays_in_range_and_is_symmetric(low: float, high: float, seed: int) -> None:
    network = network_by_name("torus2d:4x4")
    changed = apply_heterogeneity(network, f"log-uniform:{low},{high}", stream(seed, "test"))
    factors = changed.bandwidth / network.bandwidth
    assert factors.min() >= low - 1e-3
    assert factors.max() <= high + 1e-3
    speed = dict(zip(zip(network.src.tolist(), network.dst.tolist()), changed.bandwidth.tolist()))
    assert all(speed[u, v] == speed[v, u] for u, v in speed)


def test_log_uniform_law() -> None:
    logs = np.log(vary("torus2d:32x32", "log-uniform:0.1,10"))
    assert abs(logs.mean()) < 0.1
    assert abs(logs.var() - math.log(100) ** 2 / 12) < 0.1


def test_lognormal_law() -> None:
    logs = np.log(vary("torus2d:32x32", "lognormal:0.5"))
    assert abs(logs.mean()) < 0.05
    assert abs(logs.std() - 0.5) < 0.03


def test_per_link_differs_by_direction() -> None:
    network = network_by_name("ring:16")
    changed = apply_heterogeneity(network, "log-uniform:0.5,2,per=link", stream(1, "test"))
    speed = dict(zip(zip(network.src.tolist(), network.dst.tolist()), changed.bandwidth.tolist()))
    assert any(speed[u, v] != speed[v, u] for u, v in speed)


def test_choice_takes_only_what_is_listed() -> None:
    factors = vary("mesh2d:8x8", "choice:1,1/2,1/4")
    assert set(factors.tolist()) == {1.0, 0.5, 0.25}


def test_group_factor_is_common_within_a_group() -> None:
    network = network_by_name("dgx-a100:4x8")
    changed = apply_heterogeneity(network, "group:node,0.5,0.9", stream(0, "test"))
    factors = changed.bandwidth / network.bandwidth
    seen = set()
    for group in network.groups["node"]:
        inside = np.isin(network.src, group) & np.isin(network.dst, group)
        assert len(set(factors[inside].tolist())) == 1
        seen.add(factors[inside][0])
    assert len(seen) == 4
    assert set(factors[np.array(network.tier) == "nic"].tolist()) == {1.0}


def test_degraded_cables_and_npus() -> None:
    factors = vary("torus2d:6x6", "degraded:5,0.25")
    assert sorted(set(factors.tolist())) == [0.25, 1.0]
    assert (factors == 0.25).sum() == 10
    assert (vary("torus2d:6x6", "degraded:1,1/2,what=npu") == 0.5).sum() == 8


def test_latency_recipe_leaves_bandwidth() -> None:
    network = network_by_name("ring:8,alpha=1us")
    changed = apply_heterogeneity(network, "log-uniform:1,4,of=latency", stream(0, "test"))
    assert (changed.bandwidth == network.bandwidth).all()
    assert changed.alpha_ps.min() >= 10**6
    assert changed.alpha_ps.max() > 10**6


@pytest.mark.parametrize(
    "recipe, message",
    [
        ("tier:dim7=2", "has no tier 'dim7'; it has dim0, dim1"),
        ("tier:dim0=0", "above zero"),
        ("tier:", "no arguments"),
        ("log-uniform:2,1", "is above the highest"),
        ("log-uniform:1", "needs the highest factor"),
        ("lognormal:x", "is no factor"),
        ("group:pod,1,2", "has no groups of kind 'pod'"),
        ("degraded:999,0.5", "has 24 cables"),
        ("degraded:1,0.5,what=node", "expected one of cable, npu"),
        ("choice:1,1/2,per=npu", "expected one of cable, link"),
    ],
)
def test_wrong_recipes(recipe: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        apply_heterogeneity(network_by_name("mesh2d:4x4"), recipe, stream(0, "test"))


def test_unknown_recipe_suggests() -> None:
    with pytest.raises(UsageError, match="did you mean 'lognormal'"):
        vary("ring:4", "log-normal:1")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 99))
def test_failures_have_the_count_and_are_nested(fewer: int, more: int, seed: int) -> None:
    fewer, more = sorted((fewer, more))
    network = network_by_name("torus2d:5x5")
    few = draw_failures(network, FailureModel(npus=fewer, cables=fewer), seed)
    many = draw_failures(network, FailureModel(npus=more, cables=more), seed)
    assert len(few.nodes) == fewer
    assert len(few.links) == 2 * fewer
    assert set(few.nodes) <= set(many.nodes)
    assert set(few.links) <= set(many.links)


def test_link_failures_do_not_disturb_npu_failures() -> None:
    network = network_by_name("torus2d:5x5")
    alone = draw_failures(network, FailureModel(npus=3), 7)
    both = draw_failures(network, FailureModel(npus=3, cables=4), 7)
    assert alone.nodes == both.nodes


def test_removal_keeps_names_and_links() -> None:
    network = network_by_name("mesh2d:3x3")
    left = network.without(nodes=[4])
    assert left.num_nodes == 8
    assert "npu1.1" not in left.node_names
    assert left.num_links == network.num_links - 8
    kept = {
        (left.node_names[u], left.node_names[v])
        for u, v in zip(left.src.tolist(), left.dst.tolist())
    }
    before = {
        (network.node_names[u], network.node_names[v])
        for u, v in zip(network.src.tolist(), network.dst.tolist())
        if 4 not in (u, v)
    }
    assert kept == before
    assert left.topology().num_nodes == 8


@pytest.mark.parametrize(
    "name, kind, nodes, switches, links",
    [
        ("dgx-a100:4x8", "node", 8, 1, 0),
        ("dgx-a100:4x8", "rail", 0, 0, 8),
        ("leaf-spine:4x8,rails=yes", "rail", 0, 1, 0),
        ("leaf-spine:4x8", "rack", 8, 1, 0),
        ("leaf-spine:4x8", "switch", 0, 1, 0),
        ("tpuv4:4x4x8", "cube", 64, 0, 0),
        ("torus2d:4x4", "row", 4, 0, 0),
    ],
)
def test_correlated_failures(name: str, kind: str, nodes: int, switches: int, links: int) -> None:
    network = network_by_name(name)
    failures = draw_failures(network, FailureModel(groups=((kind, 1),)), 3)
    is_switch = network.is_switch[list(failures.nodes)]
    assert int((~is_switch).sum()) == nodes
    assert int(is_switch.sum()) == switches
    assert len(failures.links) == links


def test_published_rates_are_met() -> None:
    """16,384 H100 for 54 days: GPU failures within 4 standard deviations of what was published."""
    network = network_by_name("dgx-h100:512x8")
    failed = [
        len(draw_failures(network, FailureModel(rates="llama3", days=54), seed).nodes)
        for seed in range(4)
    ]
    expected = 4 * 4096 * -math.expm1(-3.03e-4 * 54)
    assert abs(sum(failed) - expected) < 4 * math.sqrt(expected)


def test_rates_are_nested_in_time() -> None:
    network = network_by_name("dgx-h100:64x8")
    for name in ("llama3", "rsc1", "rsc2"):
        sets = [
            draw_failures(network, FailureModel(rates=name, days=days), 1)
            for days in (0, 10, 100, 1000)
        ]
        assert not sets[0].nodes
        assert len(sets[3].nodes) > len(sets[1].nodes)
        for few, many in itertools.pairwise(sets):
            assert set(few.nodes) <= set(many.nodes)
            assert set(few.links) <= set(many.links)


def test_tpu_rates_cut_cables_both_ways() -> None:
    network = network_by_name("tpuv4:8x8x8")
    failures = draw_failures(network, FailureModel(rates="tpuv4", days=200), 0)
    ends = {(int(network.src[i]), int(network.dst[i])) for i in failures.links}
    assert ends
    assert ends == {(v, u) for u, v in ends}


def test_connected_redraws_and_counts() -> None:
    network = network_by_name("line:12")
    drawn = [fail(network, FailureModel(npus=1), seed, connected=True) for seed in range(8)]
    assert all(strongly_connected(left) for left, _, _ in drawn)
    assert all(set(f.nodes) <= {0, 11} for _, f, _ in drawn)
    assert max(count for _, _, count in drawn) > 1
    with pytest.raises(InputError, match="left no connected network"):
        fail(network_by_name("line:4"), FailureModel(cables=1), 0, connected=True)


@pytest.mark.parametrize(
    "model, message",
    [
        ({"npus": 17}, "17 shall fail; there are 16"),
        ({"cables": 25}, "25 shall fail; there are 24"),
        ({"npus": -1}, "expected at least 0"),
        ({"groups": (("cube", 1),)}, "no group of kind 'cube'; there are: row"),
        ({"days": 3.0}, "days without rates"),
        ({"rates": "rsc1", "days": 3.0}, "no group of kind 'node'"),
        ({"npus": 16}, "all 16 NPUs fail"),
    ],
)
def test_wrong_failures(model: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fail(network_by_name("mesh2d:4x4"), FailureModel(**model), 0)


def test_unknown_rates_suggest() -> None:
    with pytest.raises(UsageError, match="did you mean 'rsc"):
        FailureModel(rates="rsc3", days=1)


@pytest.mark.parametrize("layout", ["contiguous", "random", "strided"])
def test_disjoint_tenants(layout: str) -> None:
    groups = tenant_groups(range(18), f"{layout}:4", stream(0, "tenants"))
    assert [len(group) for group in groups] == [4] * 4
    assert len({npu for group in groups for npu in group}) == 16
    assert all(list(group) == sorted(group) for group in groups)


def test_tenant_layouts() -> None:
    rng = stream(0, "tenants")
    assert tenant_groups(range(8), "contiguous:2", rng) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert tenant_groups(range(8), "strided:2", rng) == ((0, 2, 4, 6), (1, 3, 5, 7))
    groups = tenant_groups(range(8), "overlapping:5,size=6", rng)
    assert len(groups) == 5
    assert all(len(set(group)) == 6 for group in groups)
    with pytest.raises(InputError, match="need 9 NPUs; there are 8"):
        tenant_groups(range(8), "random:3,size=3", rng)
    with pytest.raises(UsageError, match="unknown tenant layout"):
        tenant_groups(range(8), "diagonal:3", rng)
