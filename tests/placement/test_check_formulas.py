"""Every formula of MODEL.md against figures worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from plan_cases import random_case, tiny_cluster, tiny_plan

from nestopt.placement.judge.check import Tree, boundary_seconds, cuts, family_of, price
from nestopt.placement.model.cluster import Cluster, DeviceType, Level, Override
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.workload import Edge, Operator, Tied, Workload

PAIRS = np.array([[0, 1], [2, 3]])
ACROSS = np.array([[0, 2], [1, 3]])
ALL = np.array([[0, 1, 2, 3]])


# --- section 2 ----------------------------------------------------------------------------------


def test_family_inside_a_node():
    # ring 1 + 1/2 * 400/100; direct 1 + 400 * (1/2)/100; hierarchical the same: 3 s
    family = family_of(Tree.of(tiny_cluster()), PAIRS)
    assert (family.alpha, family.ring, family.direct) == (1.0, 0.01, 0.005)
    assert (family.steps_alpha, family.steps_beta) == (1.0, 0.005)
    assert family.gather(400) == pytest.approx(3.0)
    assert family.reduce(400) == pytest.approx(6.0)
    assert family.exchange(400) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("uplink", "ring", "direct", "beta", "seconds"),
    [
        # ports decide: 1/50; two groups share 150 B/s: 2/150; direct 1/2 / 50, uplink 1/150
        (150.0, 0.02, 0.01, 0.01, 14.0),
        # uplink decides: 2/60; direct: two groups with k(n-k)/n = 1/2 each: 1/60
        (60.0, 2 / 60, 1 / 60, 1 / 60, 10 + 400 / 60),
    ],
)
def test_family_across_nodes(uplink, ring, direct, beta, seconds):
    family = family_of(Tree.of(tiny_cluster(uplink=uplink)), ACROSS)
    assert family.alpha == 10.0
    assert family.ring == pytest.approx(ring)
    assert family.direct == pytest.approx(direct)
    assert (family.steps_alpha, family.steps_beta) == (10.0, pytest.approx(beta))
    assert family.gather(400) == pytest.approx(seconds)


def test_hierarchical_wins_behind_a_narrow_uplink():
    # One group of 4 with 40 B/s uplinks. ring: max(1/50, 1/40), direct: 2*2/4 / 40 = 1/40.
    # hierarchical: alpha 1*1 + 1*10; beta 1/2 * 1/100 + 1/4 * max(1/50, 2/40) = 0.0175
    family = family_of(Tree.of(tiny_cluster(uplink=40.0)), ALL)
    assert (family.ring, family.direct) == (0.025, 0.025)
    assert (family.steps_alpha, family.steps_beta) == (11.0, pytest.approx(0.0175))
    assert family.gather(1000) == pytest.approx(28.5)  # ring 48.75, direct 35
    assert family.reduce(1000) == pytest.approx(57.0)  # tree 2*2*10 + 2*1000/40 = 90
    assert family.gather(10) == pytest.approx(10.25)  # small: direct, 10 + 10/40


def test_tree_wins_in_an_uneven_family():
    # Nodes of 3 and 5, uplinks 1 B/s, ports wide. direct 3*5/8 = 1.875, ring 1, not regular.
    # all-reduce of 30 B: ring 2*7*10 + 2*7/8*30 = 192.5; direct 20 + 112.5; tree 2*3*10 + 60 = 120
    cluster = Cluster(
        "uneven",
        (Level("node", 1.0, 1e6, 1.0), Level("top", 10.0, 1e6)),
        (DeviceType("gpu", 1.0, 1.0, 1.0),),
        np.zeros(8, dtype=np.int64),
        ((3, 5), (8,)),
    )
    family = family_of(Tree.of(cluster), np.arange(8)[None, :])
    assert math.isinf(family.steps_alpha)
    assert family.direct == pytest.approx(1.875)
    assert family.reduce(30) == pytest.approx(120.0)
    assert family.gather(30) == pytest.approx(10 + 30 * 1.875)  # ring 70 + 26.25


def test_one_member_or_no_bytes_cost_nothing():
    tree = Tree.of(tiny_cluster())
    alone = family_of(tree, np.array([[0], [3]]))
    pair = family_of(tree, PAIRS)
    for call in ("gather", "reduce", "exchange"):
        assert getattr(alone, call)(100.0) == 0.0
        assert getattr(pair, call)(0.0) == 0.0


def test_the_slowest_member_of_any_group_decides():
    # the second node's own figures: latency 3 s, port 25 B/s
    cluster = replace(tiny_cluster(), overrides=(Override(0, 1, latency=3.0, port=25.0),))
    family = family_of(Tree.of(cluster), PAIRS)
    assert (family.alpha, family.ring) == (3.0, 0.04)
    first = family_of(Tree.of(cluster), PAIRS[:1])
    assert (first.alpha, first.ring) == (1.0, 0.01)


def test_mixed_spans_are_not_regular():
    # two members of {0,1} in one node, one member of {2,4} in each of two: no common counts
    cluster = Cluster.regular(
        "three", (2, 3), (Level("node", 1.0, 1.0, 1.0), Level("top", 1.0, 1.0)),
        (DeviceType("gpu", 1.0, 1.0, 1.0),),
    )  # fmt: skip
    family = family_of(Tree.of(cluster), np.array([[0, 1], [2, 4]]))
    assert math.isinf(family.steps_alpha)


# --- sections 3 and 5 ---------------------------------------------------------------------------


def test_cuts_count_each_tensor_once():
    # 0 feeds 1 (5), 2 (7), 3 (2); 1 feeds 3 (4); 2 feeds 3 (6)
    edges = (Edge(0, 1, 5), Edge(0, 2, 7), Edge(0, 3, 2), Edge(1, 3, 4), Edge(2, 3, 6))
    workload = Workload("dag", tuple(Operator(n) for n in "abcd"), edges, 1)
    stages = tuple(Stage((i,), StageConfig(), np.array([[i]])) for i in range(4))
    assert cuts(workload, Plan(stages, 1, 1)) == [0, 7, 7 + 4, 2 + 4 + 6, 0]


@pytest.mark.parametrize("seed", range(30))
def test_cuts_by_definition(seed):
    workload, _, plan = random_case(np.random.default_rng(seed))
    ideal: set[int] = set()
    for value, stage in zip(cuts(workload, plan), (*plan.stages, None)):
        assert value == pytest.approx(workload.cut_bytes(ideal))
        ideal |= set(stage.operators) if stage else set()


def one_stage(operator: Operator, config: StageConfig, devices, cluster, *, b=2, d=1, batch=4):
    """The price of a plan of one stage with one operator."""
    workload = Workload("one", (operator,), (), batch)
    plan = Plan((Stage((0,), config, np.array(devices)),), d, b)
    return price(workload, cluster, plan).stages[0]


WORK = Operator(
    "work", flops=900, flops_attn=400, bytes_full=80, bytes_shard=160, bytes_attn=40, params=30,
    act_full=5, act_shard=8, act_attn=6, act_input=3, logits_bytes=10,
    tensor_divides=(4,), context_divides=4, experts=4,
)  # fmt: skip
EFFICIENT = tiny_cluster().with_types(
    [DeviceType("gpu", 1000.0, 500.0, 400.0, efficiency=0.5, half_flops=100.0)]
)


@pytest.mark.parametrize(
    ("recompute", "sequence", "seconds"),
    [
        # u = 2, t = 2: product (900 + 100)/500 = 2; attention (400 + 100)/500 + 40/400 = 1.1;
        # elementwise 2 * (80 + 160/2)/400 = 0.8, with sequence parallelism 2 * (40 + 80)/400 = 0.6
        ("none", False, 3 * 3.9),
        ("none", True, 3 * 3.7),
        ("selective", False, 3 * 3.9 + 1.1),
        ("full", False, 4 * 3.9),
    ],
)
def test_compute(recompute, sequence, seconds):
    config = StageConfig((1, 2, 1), sequence_parallel=sequence, recompute=recompute)
    cost = one_stage(WORK, config, [[0, 1]], EFFICIENT)
    assert cost.seconds == pytest.approx(seconds)
    assert cost.forward == pytest.approx(3.7 if sequence else 3.9)


def test_weights_bound_a_small_product():
    # 2 bytes * 4000 parameters / 400 B/s = 20 s, above (900 + 100)/500; no product, no traffic
    heavy = Operator("heavy", flops=900, params=4000)
    assert one_stage(heavy, StageConfig(), [[0]], EFFICIENT, b=1).forward == pytest.approx(20.0)
    light = Operator("light", params=4000)
    assert one_stage(light, StageConfig(), [[0]], EFFICIENT, b=1).forward == 0.0


def test_measured_times_replace_the_roofline():
    # 3 + 5 s a sample, b = 2, w = 2; selective recompute has nothing to add, full adds forward
    timed = replace(WORK, time_fwd={"gpu": 3.0}, time_bwd={"gpu": 5.0})
    for recompute, seconds in (("none", 8.0), ("selective", 8.0), ("full", 11.0)):
        config = StageConfig((1, 2, 1), recompute=recompute)
        assert one_stage(timed, config, [[0, 1]], EFFICIENT).seconds == pytest.approx(seconds)


def test_the_slowest_type_present_decides():
    fast, slow = DeviceType("fast", 1000.0, 400.0, 400.0), DeviceType("slow", 250.0, 300.0, 800.0)
    cluster = Cluster.regular(
        "mixed", (2,), (Level("node", 1.0, 100.0),), (fast, slow), type_of=[0, 1]
    )
    operator = Operator("o", flops=500, params=10)
    both = one_stage(operator, StageConfig(), [[0], [1]], cluster, b=1, d=2)
    assert both.forward == pytest.approx(500 / 250)
    # step: (2 * 12 + 4 + 2) * 10 / 400 by the slowest memory, the fast type's
    assert both.step == pytest.approx(0.75)
    assert (both.usable, both.smallest) == (300.0, 1)


@pytest.mark.parametrize(
    ("sequence", "recompute", "seconds"),
    [
        # all-reduce of 200 B in a node 2 * (1 + 200 * 0.005) = 4 s; 2 forward, 2 backward
        (False, "none", 4 * 4.0),
        (True, "none", 4 * 4.0),  # all-gather + reduce-scatter: the same here
        (False, "full", 6 * 4.0),  # the two forward ones again
    ],
)
def test_tensor_communication(sequence, recompute, seconds):
    talk = Operator("talk", tp_bytes=100, tp_fwd=2, tp_bwd=2, tensor_divides=(4,))
    config = StageConfig((1, 2, 1), sequence_parallel=sequence, recompute=recompute)
    cost = one_stage(talk, config, [[0, 1]], tiny_cluster())
    assert cost.seconds == pytest.approx(seconds)
    assert cost.forward == pytest.approx(8.0)


def test_context_and_tensor_groups_follow_the_rank_order():
    # rank j = ic * t + it: tensor groups {0,1} {2,3}, context groups {0,2} {1,3}.
    # tensor, u = 2/2: all-reduce of 100 B: 2 * (1 + 0.5) = 3; context, S = 60 * 2/2 = 60 B:
    # gather 10 + 60 * 0.01 = 10.6, three of them (two gathers, one reduce-scatter)
    operator = Operator(
        "o", tp_bytes=100, tp_fwd=1, cp_bytes=60, tensor_divides=(4,), context_divides=4
    )
    cost = one_stage(operator, StageConfig((1, 2, 1), context=2), [[0, 1, 2, 3]], tiny_cluster())
    assert cost.seconds == pytest.approx(3.0 + 3 * 10.6)
    full = StageConfig((1, 2, 1), context=2, recompute="full")
    cost = one_stage(operator, full, [[0, 1, 2, 3]], tiny_cluster())
    assert cost.seconds == pytest.approx(2 * 3.0 + 4 * 10.6)


def test_experts():
    # e = 2, d = 2: expert groups {0,1} {2,3}; dense sync {0,1,2,3}; expert sync {0,2} {1,3}.
    # all-to-all, u = 2/2: 1 + 50 * 0.005 = 1.25, four of them.
    # P = 10: all-reduce of 40 B over four: 2 * (10 + 40 * 0.01) = 20.8
    # Pe = 16/2: all-reduce of 32 B across: 2 * (10 + 32 * 0.01) = 20.64; step 30 * 18/400 = 1.35
    operator = Operator("o", ep_bytes=50, params=10, params_expert=16, experts=4)
    cost = one_stage(operator, StageConfig(expert=2), [[0, 1], [2, 3]], tiny_cluster(), d=2)
    assert cost.seconds == pytest.approx(5.0)
    assert cost.sync == pytest.approx(20.8 + 20.64 + 1.35)
    # ZeRO 1: P over d c e = 4, Pe over d c = 2; states 2*18 + 4*18 + 12*(10/4 + 8/2)
    # sync: P: RS(40) 10.4 + AG(20) 10.2; Pe: RS(32) 10.32 + AG(16) 10.16; step 30 * 6.5/400
    cost = one_stage(operator, StageConfig(expert=2, zero=1), [[0, 1], [2, 3]], tiny_cluster(), d=2)
    assert cost.states == pytest.approx(2 * 18 + 4 * 18 + 12 * 6.5)
    assert cost.sync == pytest.approx(10.4 + 10.2 + 10.32 + 10.16 + 0.4875)
    full = StageConfig(expert=2, recompute="full")
    cost = one_stage(operator, full, [[0, 1], [2, 3]], tiny_cluster(), d=2)
    assert cost.seconds == pytest.approx(6 * 1.25)


def test_boundary():
    tree = Tree.of(tiny_cluster())
    # one device each, two replicas: top of the tree; 1/50 a device, two devices on 150 B/s: 2/150
    seconds = boundary_seconds(tree, np.array([[0], [1]]), np.array([[2], [3]]), 30.0)
    assert seconds == pytest.approx(10 + 30 / 50)
    # two devices share a replica's tensor: 1/(2 * 50) and 2/(2 * 150), but the other side has one
    seconds = boundary_seconds(tree, np.array([[0, 1]]), np.array([[2]]), 30.0)
    assert seconds == pytest.approx(10 + 30 / 50)
    seconds = boundary_seconds(tree, np.array([[0, 1]]), np.array([[2, 3]]), 30.0)
    assert seconds == pytest.approx(10 + 30 / 100)
    # inside a node
    seconds = boundary_seconds(tree, np.array([[0]]), np.array([[1]]), 30.0)
    assert seconds == pytest.approx(1 + 30 / 100)
    # a narrow uplink: two replicas, one device each, on 40 B/s
    tree = Tree.of(tiny_cluster(uplink=40.0))
    seconds = boundary_seconds(tree, np.array([[0], [1]]), np.array([[2], [3]]), 30.0)
    assert seconds == pytest.approx(10 + 30 * 2 / 40)


# --- sections 5 to 7, a whole plan --------------------------------------------------------------


def test_a_whole_plan():
    # operator: 500/1000 = 0.5 forward, 1.5 in all; stage 3.0; boundary 2 * (10 + 30/50) = 21.2
    # sync: all-reduce of 4 * 20 B in a node 2 * (1 + 80 * 0.005) = 2.8; step 30 * 20/400 = 1.5
    workload, cluster, plan = tiny_plan()
    pricing = price(workload, cluster, plan)
    assert pricing.microbatches == 4
    assert [s.seconds for s in pricing.stages] == pytest.approx([24.2, 24.2])
    assert [s.sync for s in pricing.stages] == pytest.approx([4.3, 4.3])
    assert pricing.iteration_time == pytest.approx(2 * 24.2 + 3 * 24.2 + 4.3)
    assert pricing.bottleneck == pytest.approx(24.2)
    # states 18 * 20; activations 2 * 7, in flight 2 and 1; buffers 2 * 30
    assert [s.memory for s in pricing.stages] == pytest.approx([360 + 28 + 60, 360 + 14 + 60])
    gpipe = price(workload, cluster, replace(plan, schedule="gpipe"))
    assert [s.memory for s in gpipe.stages] == pytest.approx([360 + 56 + 60] * 2)
    assert gpipe.iteration_time == pytest.approx(pricing.iteration_time)


@pytest.mark.parametrize(
    ("zero", "extra", "sync", "states", "buffers"),
    [
        # groups of 2 in a node: a gather of S bytes takes 1 + S/200; P = 20, D = 2
        (1, 0.0, (1 + 0.4) + (1 + 0.2) + 0.75, (2 + 4 + 6) * 20, 60),
        # reduce-scatter of 4 * 10 B an operator, 1.2 s, two operators
        (2, 2.4, 1.2 + 0.75, (2 + 2 + 6) * 20, 60),
        # and twice a gather of 2 * 10 B, 1.1 s; buffers 2 * 2 * 10 more
        (3, 2.4 + 4.4, 0.75, (1 + 2 + 6) * 20, 60 + 40),
    ],
)
def test_zero(zero, extra, sync, states, buffers):
    first = price(*tiny_plan(zero=zero)).stages[0]
    assert first.seconds == pytest.approx(24.2 + extra)
    assert first.sync == pytest.approx(sync)
    assert first.states == pytest.approx(states)
    assert first.buffers == pytest.approx(buffers)


def test_shared_parameters_count_once_where_both_are():
    workload, cluster, plan = tiny_plan()
    apart = price(replace(workload, tied=Tied(0, 3, 4.0)), cluster, plan).stages
    together = price(replace(workload, tied=Tied(0, 1, 4.0)), cluster, plan).stages
    assert [s.states for s in apart] == pytest.approx([360, 360])
    assert [s.states for s in together] == pytest.approx([18 * 16, 360])
    assert together[0].sync == pytest.approx(2 * (1 + 64 * 0.005) + 30 * 16 / 400)


@pytest.mark.parametrize(
    ("recompute", "sequence", "stored", "working"),
    [
        # u = 2, t = 2; act_full 5, act_shard 8, act_attn 6, act_input 3
        ("none", False, 2 * (5 + 4 + 3), 0),
        ("none", True, 2 * (2.5 + 4 + 3), 0),
        ("selective", False, 2 * (5 + 4), 2 * 3),
        ("full", False, 2 * 3, 2 * (5 + 4 + 3)),
        ("full", True, 2 * 1.5, 2 * (2.5 + 4 + 3)),
    ],
)
def test_activations(recompute, sequence, stored, working):
    config = StageConfig((1, 2, 1), sequence_parallel=sequence, recompute=recompute)
    cost = one_stage(WORK, config, [[0, 1]], EFFICIENT)
    assert (cost.stored, cost.working) == (pytest.approx(stored), pytest.approx(working))
    assert cost.buffers == pytest.approx(2 * 2 * 10 / 2)  # logits and their gradient


def test_interleaving():
    # two chunks a stage: the boundary is crossed twice, x = 42.4, t = 3 + 42.4 = 45.4;
    # T = 2 * 45.4/2 + (4 - 1/2) * 45.4 + 4.3; in flight (2*1 + 2 + 1)/2 and (0 + 2 + 1)/2
    workload, cluster, plan = tiny_plan()
    pricing = price(workload, cluster, replace(plan, schedule="interleaved", chunks=2))
    assert [s.seconds for s in pricing.stages] == pytest.approx([45.4, 45.4])
    assert pricing.iteration_time == pytest.approx(45.4 + 3.5 * 45.4 + 4.3)
    assert [s.in_flight for s in pricing.stages] == [2.5, 1.5]


def test_one_device():
    workload, cluster, _ = tiny_plan()
    lone = Plan((Stage((0, 1, 2, 3), StageConfig(), np.array([[0]])),), 1, 8)
    pricing = price(workload, cluster, lone)
    assert pricing.microbatches == 1
    # product 500 * 8/1000 = 4 s forward; four operators; step 30 * 40/400
    assert pricing.iteration_time == pytest.approx(4 * 12 + 3)
