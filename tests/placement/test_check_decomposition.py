"""Tensor decompositions (x, y, z) with overlap: figures worked out by hand, mutations rejected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plan_cases import result_of, tiny_cluster

from nestopt.core.errors import CheckError
from nestopt.placement.judge.check import check_plan, check_result, check_structure, price
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.workload import Operator, Workload

# In a node of the tiny cluster an all-gather of S bytes over two takes 1 + S/200 s and an
# all-reduce twice that; across nodes 10 + S/100 s and twice that. A device does 1000 FLOP/s and
# moves 400 B/s.


def one_stage(operator, config, devices=(0, 1, 2, 3), cluster=None, *, b=2, d=1):
    """The price of a plan of one stage with one operator."""
    workload = Workload("one", (operator,), (), 4)
    placed = np.array(devices).reshape(d, -1)
    plan = Plan((Stage((0,), config, placed),), d, b)
    return price(workload, cluster or tiny_cluster(), plan).stages[0]


# --- groups: rank j = (iz*y + iy)*x + ix --------------------------------------------------------


@pytest.mark.parametrize(
    ("tensor", "operator", "seconds"),
    [
        # X = {0,1}, {2,3} in a node; Y = {0,2}, {1,3} across
        # over X: forward 100 B * 2/2, backward 200 B * 2/2: 2 * (1 + 0.5) + 2 * (1 + 1)
        ((2, 2, 1), {"x_fwd": (100,), "x_bwd": (200,)}, 7.0),
        # over Y: 100 B * 2/2, one forward, one backward: 2 * 2 * (10 + 1)
        ((2, 2, 1), {"tp_bytes": 100, "tp_fwd": 1, "tp_bwd": 1}, 44.0),
        # two reduces forward over X are priced one by one: 2 * (1 + 0.5) + 2 * (1 + 1)
        ((2, 2, 1), {"x_fwd": (100, 200)}, 7.0),
        # X in a node, Z = {0,2}, {1,3} across; W = 300/2 parameters of 2 and gradients of 4 bytes:
        # two gathers of 300 B, one reduce-scatter of 600 B: 2 * (10 + 3) + 10 + 6
        ((2, 1, 2), {"params": 300}, 42.0),
        # Y in a node, Z across: as before, and over Y 100 B * 1 sample: 2 * (1 + 0.5)
        ((1, 2, 2), {"params": 300, "tp_bytes": 100, "tp_fwd": 1}, 42.0 + 3.0),
        # Z over all four: direct, 10 + S * max(3/4/100, 1/2/50, 2*2/4/150)
        ((1, 1, 4), {"params": 300}, 2 * (10 + 600 * 0.01) + 10 + 1200 * 0.01),
    ],
)  # fmt: skip
def test_collectives_of_each_axis(tensor, operator, seconds):
    divides = {"tensor_divides": (4,), "x_divides": (4,)}
    cost = one_stage(Operator("o", **operator, **divides), StageConfig(tensor), b=4 if 4 in tensor
                     else 2)  # fmt: skip
    assert cost.seconds == pytest.approx(seconds)


def test_recompute_repeats_the_forward_reduces_only():
    talk = Operator(
        "o", tp_bytes=100, tp_fwd=1, tp_bwd=1, x_fwd=(100,), x_bwd=(200,),
        tensor_divides=(4,), x_divides=(4,),
    )  # fmt: skip
    none = one_stage(talk, StageConfig((2, 2, 1)))
    full = one_stage(talk, StageConfig((2, 2, 1), recompute="full"))
    assert (none.forward, none.backward) == (pytest.approx(22 + 3), pytest.approx(22 + 4))
    assert (full.forward, full.backward) == (pytest.approx(25), pytest.approx(26 + 25))
    weights = replace(talk, tp_bytes=0, x_fwd=(), x_bwd=(), params=300)
    for recompute in ("none", "selective", "full"):
        cost = one_stage(weights, StageConfig((1, 2, 2), recompute=recompute))
        assert cost.seconds == pytest.approx(42.0)


# --- the shards ---------------------------------------------------------------------------------

WORK = Operator(
    "work", flops=8000, flops_attn=4000, bytes_full=80, bytes_shard=160, bytes_attn=40, params=32,
    act_full=5, act_shard=8, act_attn=6, act_input=3, logits_bytes=10, cp_bytes=64,
    tensor_divides=(4,), x_divides=(4,), context_divides=4,
)  # fmt: skip


def test_compute_of_a_decomposition():
    # x = 2, y = 2: product 8000 * 2/4 FLOPs = 4 s; attention 4000 * 2/2 FLOPs = 4 s and 40 B;
    # elementwise 2 * (80/2 + 160/2) = 240 B; 4 + 4 + 0.1 + 0.6
    cost = one_stage(WORK, StageConfig((2, 2, 1)))
    assert cost.forward == pytest.approx(8.7)
    assert cost.seconds == pytest.approx(3 * 8.7)
    assert one_stage(WORK, StageConfig((2, 2, 1), recompute="selective")).seconds == pytest.approx(
        3 * 8.7 + 4.1
    )
    # y = 2, z = 2, u = 1: 8000/2 = 4 s; 4000/2 = 2 s and 20 B; 80 + 160/2 B; gathers of 16 * 2 B
    cost = one_stage(WORK, StageConfig((1, 2, 2)))
    assert cost.forward == pytest.approx(4 + 2 + 0.05 + 0.4 + 10 + 0.32)
    # with sequence parallelism 40 + 80 B
    cost = one_stage(WORK, StageConfig((1, 2, 2), sequence_parallel=True))
    assert cost.forward == pytest.approx(4 + 2 + 0.05 + 0.3 + 10 + 0.32)


def test_a_gathered_weight_is_read_whole():
    # W = 4000/2: 4000 B take 10 s, the product 8000 * 1/2 only 4 s
    heavy = replace(WORK, params=4000, flops_attn=0, bytes_attn=0, bytes_full=0, bytes_shard=0)
    cost = one_stage(heavy, StageConfig((1, 2, 2)))
    assert cost.forward == pytest.approx(10 + 10 + 40)


def test_context_keys_are_split_over_y_and_z_but_not_over_x():
    # context groups {j, j+2}: across nodes; S = 64 * 2/(z y): 3 * (10 + S/100)
    keys = replace(WORK, flops=0, flops_attn=0, bytes_full=0, bytes_shard=0, bytes_attn=0, params=0)
    over_x = one_stage(keys, StageConfig((2, 1, 1), context=2))
    assert over_x.seconds == pytest.approx(3 * (10 + 1.28))
    over_y = one_stage(keys, StageConfig((1, 2, 1), context=2))
    over_z = one_stage(keys, StageConfig((1, 1, 2), context=2))
    assert over_y.seconds == over_z.seconds == pytest.approx(3 * (10 + 0.64))


def test_tokens_to_experts_are_split_over_x():
    # e = 2 across nodes; u = 2/2, h = 2: all-to-all of 100 * 1/2 B, four of them: 10 + 50/100
    operator = Operator("o", ep_bytes=100, experts=2, tensor_divides=(4,), x_divides=(4,))
    cost = one_stage(operator, StageConfig((2, 1, 1), expert=2))
    assert cost.seconds == pytest.approx(4 * 10.5)


@pytest.mark.parametrize(
    ("config", "stored", "working", "buffers"),
    [
        # u = 2, h = 2, y = 2; logits 2 * 2 * 10/2
        (StageConfig((2, 2, 1)), 2 * (2.5 + 4 + 3), 0, 20),
        (StageConfig((2, 2, 1), recompute="selective"), 2 * 6.5, 2 * 3, 20),
        (StageConfig((2, 2, 1), recompute="full"), 2 * 1.5, 2 * (2.5 + 4 + 3), 20),
        # u = 1, h = 1, y = 2, W = 16: two gathered weights of 2 * 16 B, one gradient of 4 * 16 B
        (StageConfig((1, 2, 2)), 5 + 4 + 3, 0, 10 + 64 + 64),
        (StageConfig((1, 2, 2), zero=3), 5 + 4 + 3, 0, 10 + 64 + 64),
        (StageConfig((1, 2, 2), sequence_parallel=True), 2.5 + 4 + 3, 0, 10 + 64 + 64),
        # without z the gradient needs no buffer: W = 8
        (StageConfig((2, 2, 1), zero=3), 2 * (2.5 + 4 + 3), 0, 20 + 32),
    ],
)
def test_memory_of_a_decomposition(config, stored, working, buffers):
    cost = one_stage(WORK, config)
    assert (cost.stored, cost.working) == (pytest.approx(stored), pytest.approx(working))
    assert cost.buffers == pytest.approx(buffers)
    # weights, gradients and optimizer are split over all of x, y and z, whatever ZeRO (d = 1)
    assert cost.states == pytest.approx(18 * 32 / 4)


def test_boundary_buffers_are_split_over_x():
    workload = Workload.chain(
        "two", [Operator(n, kind="o", tensor_divides=(2,), x_divides=(2,)) for n in "ab"], 30.0, 4
    )
    stages = [Stage((q,), StageConfig((2, 1, 1)), np.array([[2 * q, 2 * q + 1]])) for q in range(2)]
    pricing = price(workload, tiny_cluster(), Plan(tuple(stages), 1, 2))
    assert [s.buffers for s in pricing.stages] == pytest.approx([2 * 2 * 30 / 2] * 2)


# --- overlap ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "tp_bytes", "flops", "forward", "backward"),
    [
        # y = 2 in a node, z = 2 across, u = 1; gemm = fwd = flops/2000, bwd twice that
        # all hidden: R = R' = 2 * (1 + 0.5) = 3, G = 10 + 2 = 12, G' = 10 + 4 = 14; fwd 40, bwd 80
        (200, 100, 80_000, 40 + 3, 80),
        # R' = 42 outlasts the product's 40 s by 2; G + G' + R' = 68 fits into 80
        (200, 4_000, 80_000, 40 + 42, 80 + 2),
        # G = 12 outlasts fwd = 10 by 2; G + G' + R' = 29 outlasts bwd = 20 by 9; R' fits into 10
        (200, 100, 20_000, 10 + 3 + 2, 20 + 9),
        # both: R' = 42 outlasts 20 by 22, the three together, 68, outlast 40 by 28
        (200, 4_000, 40_000, 20 + 42, 40 + 28),
    ],
)
def test_overlap(params, tp_bytes, flops, forward, backward):
    operator = Operator(
        "o", flops=flops, params=params, tp_bytes=tp_bytes, tp_fwd=1, tp_bwd=1, tensor_divides=(2,)
    )
    cost = one_stage(operator, StageConfig((1, 2, 2), overlap=True))
    assert (cost.forward, cost.backward) == (pytest.approx(forward), pytest.approx(backward))
    off = one_stage(operator, StageConfig((1, 2, 2)))
    reduce = 2 * (1 + tp_bytes / 200)
    assert off.forward == pytest.approx(flops / 2000 + reduce + 12)
    assert off.backward == pytest.approx(flops / 1000 + reduce + 12 + 14)


@pytest.mark.parametrize(
    ("recompute", "sequence", "backward"),
    [
        # x = 1, y = 2, z = 2: gemm 10, attention 5, fwd 15, bwd 30; R = R' = 2 * (1 + 10) = 22,
        # G = 12, G' = 14; of R' 22 - 10 = 12 stay, of the three 48 - 30 = 18
        ("none", False, 30 + 18),
        ("selective", False, 35 + 13),
        # the forward pass again: fwd 15, R 22; of the three 48 - 45 = 3, of R' alone 12
        ("full", False, 45 + 22 + 12),
        # the reduce-scatter, 11, can wait: 1 outlasts the product; 12 + 14 + 11 - 30 = 7 stay
        ("none", True, 30 + 11 + 7),
        ("full", True, 45 + 22 + 11 + 1),
    ],
)
def test_overlap_with_recompute_and_sequence_parallelism(recompute, sequence, backward):
    operator = Operator(
        "o", flops=20_000, flops_attn=10_000, params=200, tp_bytes=2_000, tp_fwd=1, tp_bwd=1,
        tensor_divides=(2,),
    )  # fmt: skip
    config = StageConfig((1, 2, 2), sequence_parallel=sequence, recompute=recompute, overlap=True)
    cost = one_stage(operator, config)
    assert cost.forward == pytest.approx(15 + 22)
    assert cost.backward == pytest.approx(backward)


def test_reduces_over_x_can_wait_too():
    # R' over X = {0,1}: 2 * (1 + 200/200) = 4, over Y across: 2 * (10 + 1) = 22; gemm 6: 20 stay
    operator = Operator(
        "o", flops=12_000, x_fwd=(100,), x_bwd=(200,), tp_bytes=100, tp_bwd=1,
        tensor_divides=(2,), x_divides=(2,),
    )  # fmt: skip
    cost = one_stage(operator, StageConfig((2, 2, 1), overlap=True))
    assert (cost.forward, cost.backward) == (pytest.approx(6 + 3), pytest.approx(12 + 20))


def test_measured_operators_hide_behind_half_their_backward_pass():
    # fwd = 20 * 2/4 = 10, bwd = 30 * 2/4 = 15, gemm 7.5; R' = 2 * (10 + 1) = 22
    operator = Operator(
        "o", flops=1e9, tp_bytes=100, tp_bwd=1, tensor_divides=(2,), x_divides=(2,),
        time_fwd={"gpu": 20.0}, time_bwd={"gpu": 30.0},
    )  # fmt: skip
    cost = one_stage(operator, StageConfig((2, 2, 1), overlap=True))
    assert (cost.forward, cost.backward) == (pytest.approx(10), pytest.approx(15 + 14.5))


def test_the_slowest_type_is_the_one_that_ends_last_with_what_is_exposed():
    # Of two types with equal products one has slow memory: 120 B of elementwise work take it 12 s
    # more. fwd 5 and 17, bwd 10 and 34: the first leaves 22 - 5 of R', so 32 in all, the second
    # also 22 - 5, so 68; the products hide alike, and the second type decides.
    types = (DeviceType("a", 1000.0, 1e9, 1e12), DeviceType("b", 1000.0, 1e9, 10.0))
    cluster = replace(tiny_cluster(), types=types, type_of=np.array([0, 0, 1, 1]))
    operator = Operator(
        "o", flops=10_000, bytes_full=60, tp_bytes=100, tp_bwd=1, tensor_divides=(2,),
        x_divides=(2,),
    )  # fmt: skip
    mixed = one_stage(operator, StageConfig((2, 2, 1), overlap=True), cluster=cluster)
    assert (mixed.forward, mixed.backward) == (pytest.approx(5 + 6), pytest.approx(22 + 17))


# --- mutations ----------------------------------------------------------------------------------

BLOCK = Operator(
    "b", flops=1e3, bytes_full=100, params=40, act_full=4, act_shard=4, tp_bytes=60, tp_fwd=1,
    tp_bwd=1, x_fwd=(50,), x_bwd=(50,), tensor_divides=(4, 6), x_divides=(4,), experts=4,
)  # fmt: skip
WIDE = Cluster.regular(
    "wide", (8, 8), (Level("node", 1e-3, 1e3, 1e3), Level("top", 1e-2, 1e2)),
    (DeviceType("gpu", 1e3, 5e3, 1e3),),
)  # fmt: skip


def decomposed(config: StageConfig, operator: Operator = BLOCK, b: int = 4) -> tuple:
    """One stage of one operator and one replica on the first devices."""
    workload = Workload("one", (operator,), (), 8)
    devices = np.arange(max(1, config.width))[None, :]
    return workload, WIDE, Plan((Stage((0,), config, devices),), 1, b)


@pytest.mark.parametrize(
    "config",
    [
        StageConfig((2, 2, 2), overlap=True),
        StageConfig((4, 1, 1), zero=3, recompute="full"),
        StageConfig((1, 1, 4), overlap=True, zero=2),
        StageConfig((1, 2, 2), sequence_parallel=True, overlap=True),
        StageConfig((2, 1, 2), expert=2, recompute="selective"),
    ],
)
def test_decompositions_that_divide_pass(config):
    workload, cluster, plan = decomposed(config)
    objective = price(workload, cluster, plan).iteration_time
    check_plan(workload, cluster, plan, objective)
    for wrong in (objective * 1.01, objective * 0.99):
        with pytest.raises(CheckError, match="is claimed"):
            check_plan(workload, cluster, plan, wrong)


@pytest.mark.parametrize(
    ("config", "operator", "message"),
    [
        (StageConfig((3, 1, 1)), BLOCK, "x = 3 does not divide 4"),
        (StageConfig((1, 4, 1)), BLOCK, "y = 4 does not divide 6"),
        (StageConfig((1, 1, 3)), BLOCK, "times z = 3 does not divide the micro-batch of 4"),
        (StageConfig((1, 1, 4), expert=2), BLOCK, "degree 2 times z = 4 does not divide"),
        (StageConfig((2, 2, 1)), replace(BLOCK, x_divides=()), "cannot be split over x"),
        (StageConfig((1, 1, 2)), replace(BLOCK, tensor_divides=()), "by tensor parallelism"),
        (StageConfig((2, 1, 1)), replace(BLOCK, tensor_divides=()), "by tensor parallelism"),
        (StageConfig((1, 1, 1), overlap=True), BLOCK, "overlap needs a tensor degree above 1"),
        (StageConfig((2, 2, 1), sequence_parallel=True), BLOCK, "needs y > 1 and x = 1"),
        (StageConfig((1, 1, 2), sequence_parallel=True), BLOCK, "needs y > 1 and x = 1"),
        (StageConfig((0, 1, 1)), BLOCK, "at least 1"),
        (StageConfig((1, 1, 0)), BLOCK, "at least 1"),
    ],
)
def test_wrong_decompositions(config, operator, message):
    workload, cluster, _ = decomposed(StageConfig(), operator)
    devices = np.arange(8)[None, : max(1, int(np.prod(config.tensor)) * config.expert)]
    plan = Plan((Stage((0,), config, devices),), 1, 4)
    with pytest.raises(CheckError, match=message):
        check_plan(workload, cluster, plan)


def test_width_counts_x_and_z():
    workload, cluster, plan = decomposed(StageConfig((2, 2, 2)))
    (stage,) = plan.stages
    for tensor in ((1, 2, 2), (2, 2, 1), (2, 1, 2), (4, 2, 2)):
        wrong = replace(stage, config=StageConfig(tensor))
        with pytest.raises(CheckError, match="devices of shape"):
            check_structure(workload, cluster, replace(plan, stages=(wrong,)))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (StageConfig((2, 2, 2)), StageConfig((1, 2, 4))),
        (StageConfig((2, 2, 2)), StageConfig((4, 2, 1))),
        (StageConfig((2, 2, 2)), StageConfig((2, 1, 4))),
        (StageConfig((2, 2, 2)), StageConfig((2, 2, 2), overlap=True)),
        (StageConfig((1, 2, 4), overlap=True), StageConfig((1, 2, 4))),
        (StageConfig((1, 2, 2), sequence_parallel=True), StageConfig((1, 2, 2))),
    ],
)
def test_the_price_of_another_decomposition_is_refused(right, wrong):
    workload, cluster, plan = decomposed(right)
    figures = price(workload, cluster, plan)
    (stage,) = plan.stages
    mutant = replace(plan, stages=(replace(stage, config=wrong),))
    with pytest.raises(CheckError, match="is claimed"):
        check_plan(workload, cluster, mutant, figures.iteration_time)
    report = {"seconds": [figures.stages[0].seconds]}
    check_plan(workload, cluster, replace(plan, report=report))
    with pytest.raises(CheckError, match="but the plan reports"):
        check_plan(workload, cluster, replace(mutant, report=report))


def test_swapped_devices_change_the_price_of_unequal_axes():
    workload, _, plan = decomposed(StageConfig((2, 2, 1)))
    narrow = Cluster.regular(
        "narrow", (2, 2), (Level("node", 1e-3, 1e3, 1e2), Level("top", 1e-1, 1e1)),
        (DeviceType("gpu", 1e3, 5e3, 1e3),),
    )  # fmt: skip
    claimed = price(workload, narrow, plan).iteration_time
    (stage,) = plan.stages
    swapped = replace(stage, devices=stage.devices[:, [0, 3, 2, 1]])
    with pytest.raises(CheckError, match="is claimed"):
        check_plan(workload, narrow, replace(plan, stages=(swapped,)), claimed)


@pytest.mark.parametrize("tensor", [(2, 2, 2), (1, 1, 4), (4, 1, 1)])
def test_understated_memory(tensor):
    workload, cluster, plan = decomposed(StageConfig(tensor))
    (stage,) = price(workload, cluster, plan).stages
    (kind,) = cluster.types
    check_plan(workload, cluster.with_types([replace(kind, memory=stage.memory)]), plan)
    with pytest.raises(CheckError, match="stage 0 needs"):
        short = replace(kind, memory=stage.memory * (1 - 1e-6))
        check_plan(workload, cluster.with_types([short]), plan)
    with pytest.raises(CheckError, match="bytes, but the plan reports"):
        report = {"memory": [stage.memory * 0.99]}
        check_plan(workload, cluster, replace(plan, report=report))


def test_results_keep_decomposition_and_overlap():
    case = decomposed(StageConfig((2, 2, 2), overlap=True))
    result = result_of(*case)
    assert check_result(result)
    assert result.solution_json is not None
    result.solution_json["stages"][0]["config"]["overlap"] = False
    with pytest.raises(CheckError, match="is claimed"):
        check_result(result)
