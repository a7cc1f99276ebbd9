"""What users of other planners reported as broken, and the right outcome here.

The row about PuLP and CBC (limits or infeasibility reported as Optimal, fractional values read as a
solution: PuLP #649, #876, #517, Cbc #353) is held by ``tests/formulations/test_adapters.py``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from plan_cases import random_case
from random_instances import tiny_instance
from sampling import slow
from truth import search

from nestopt.core.errors import CheckError, InputError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method, named
from nestopt.core.result import Reason, Result
from nestopt.core.units import format_bytes, parse_bytes
from nestopt.placement.baselines.split import even_split
from nestopt.placement.judge.check import check_plan, check_result, price
from nestopt.placement.judge.simulate import simulate
from nestopt.placement.model.cluster import Cluster, DeviceType, Level, Override
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.space_text import SPACE_SETTINGS
from nestopt.placement.model.workload import Operator, Workload
from nestopt.placement.pricing.evaluate import evaluate

GPU = DeviceType("gpu", 1e14, 8e10, 2e12)


def flat(devices: int, gpu: DeviceType = GPU, **level: float) -> Cluster:
    figures = {"latency": 1e-6, "port": 1e11} | level
    return Cluster.regular("flat", (devices,), (Level("node", **figures),), (gpu,))


def nodes(size: int, count: int, uplink: float, latency: float = 1e-5) -> Cluster:
    levels = (Level("node", 1e-6, 1e11, uplink), Level("net", latency, 1e10))
    return Cluster.regular("nodes", (size, count), levels, (GPU,))


def layers(count: int, batch: int, **fields: object) -> Workload:
    block = {
        "kind": "block", "flops": 1e12, "params": 1e8, "tensor_divides": (48,),
        "tp_bytes": 1e7, "tp_fwd": 2, "tp_bwd": 2,
    } | fields  # fmt: skip
    operators = [Operator(f"block {i}", **block) for i in range(count)]  # type: ignore[arg-type]
    return Workload.chain("layers", operators, 1e6, batch)


def solve(workload: Workload, cluster: Cluster, method: str = "dp", **options: str) -> Result:
    space = {key: options.pop(key) for key in SPACE_SETTINGS if key in options}
    instance = PlacementInstance(
        workload, cluster, PlanSpace.parse(space, PlanSpace.named("default-1"))
    )
    result: Result = get_method("placement", method)(instance, SolveOptions(set=options))
    check_result(result)
    return result


def plan_of(result: Result) -> Plan:
    assert result.solution_json is not None
    return Plan.from_json(result.solution_json)


# --- layers -------------------------------------------------------------------------------------


def whole(plan: Plan, count: int) -> None:
    assert sorted(i for stage in plan.stages for i in stage.operators) == list(range(count))
    assert all(stage.operators for stage in plan.stages)


@pytest.mark.parametrize("method", ["dp", "megatron", "grid", "flat-dp", "mcmc", "random"])
@pytest.mark.parametrize(("count", "devices"), [(29, 4), *slow([(30, 4), (13, 5)])])
def test_no_layer_is_lost(method, count, devices):
    """Megatron-LM #1304, #468: 30 layers on 4 stages built 28, the remainder was dropped."""
    fixed = {"tensor": "1", "replicas": "1"}
    if method in ("mcmc", "random"):
        fixed["iterations"] = "200"
    # parameters that no single device holds
    result = solve(layers(count, 16, params=80e9 / 18 * devices / count * 0.8),
                   flat(devices), method, **fixed)  # fmt: skip
    plan = plan_of(result)
    whole(plan, count)
    assert len(plan.stages) == devices


@pytest.mark.parametrize("method", ["dp", "grid"])
def test_80_layers_on_16_stages_of_2_chunks(method):
    """Megatron-LM #1852, torchtitan #963: 80 layers on 16 x 2 ran 64; 32 does not divide 80."""
    result = solve(
        layers(80, 32, params=80e9 / 18 * 16 / 80 * 0.6),
        flat(16), method,
        tensor="1", replicas="1", zero="0", recompute="full", schedule="interleaved", chunks="2",
    )  # fmt: skip
    plan = plan_of(result)
    whole(plan, 80)
    assert len(plan.stages) == 16 and plan.chunks == 2
    sizes = [len(stage.operators) for stage in plan.stages]
    assert max(sizes) == 6 and not any(size % 2 for size in sizes)


def test_a_plan_with_an_empty_stage_is_refused():
    """torchtitan #963: a stage without layers."""
    stages = (
        Stage((0, 1), StageConfig(), np.array([[0]])),
        Stage((), StageConfig(), np.array([[1]])),
    )
    with pytest.raises(CheckError, match="stage 1 has no operator"):
        check_plan(layers(2, 4), flat(2), Plan(stages, 1, 1))


def test_five_equal_layers_on_four_stages():
    """DeepSpeed #4312: 2, 2, 1, 0."""
    ends = even_split(np.ones(5), 4)
    assert np.diff([0, *ends]).tolist() == [2, 1, 1, 1]


@pytest.mark.parametrize("count", range(1, 20))
def test_equal_layers_differ_by_one_at_most(count):
    """DeepSpeed #4312, in general: no stage is empty while another has two."""
    for parts in range(1, count + 1):
        sizes = np.diff([0, *even_split(np.ones(count), parts)])
        assert sizes.sum() == count
        assert sizes.max() - sizes.min() <= 1
        assert sizes.tolist() == sorted(sizes, reverse=True)


def test_more_stages_than_layers_are_never_made():
    """Three layers on eight devices: three stages at most, the others idle or replicas."""
    result = solve(layers(3, 1), flat(8), tensor="1")
    plan = plan_of(result)
    whole(plan, 3)
    assert len(plan.stages) <= 3


# --- infeasible, and why ------------------------------------------------------------------------


def told_memory(text: str) -> float:
    return parse_bytes(re.search(r"at least (\S+ \S+) would be needed", text)[1])  # type: ignore[index]


@pytest.mark.parametrize(
    ("count", "devices", "gigabytes", "options"),
    [
        (8, 4, 8.0, {}),
        (6, 4, 8.0, {"schedule": "gpipe", "recompute": "selective"}),
        (7, 3, 30.0, {"zero": "0", "recompute": "none", "tensor": "1"}),
        (4, 8, 1.5, {"zero": "1", "microbatch": "2"}),
        (7, 3, 8.0, {"zero": "0", "recompute": "none", "tensor": "1"}),
        *slow(
            [
                (6, 5, 8.0, {"uniform": "true"}),
                (6, 4, 8.0, {"decomposition": "4d", "replicas": "1"}),
            ]
        ),
    ],
)
def test_infeasible_names_device_layer_and_the_least_memory_that_would_do(
    count, devices, gigabytes, options
):
    """Alpa #882, transformers #27830: "no solution" without a reason."""
    sizes = {"params": 1e9, "act_full": 2e9, "act_shard": 3e9, "act_attn": 1e9, "act_input": 5e8}
    workload = layers(count, 8, **sizes)
    small = replace(GPU, memory=gigabytes * 1e9, reserve=1e9)
    result = solve(workload, flat(devices, small), **options)
    assert result.termination.reason is Reason.INFEASIBLE
    (why,) = result.infeasible_because
    assert why.startswith("memory: ")
    assert "device 0 (gpu)" in why and "operator 'block 0'" in why
    assert f"has {format_bytes(small.usable)} usable" in why
    alone = parse_bytes(re.search(r"(?:at least|most,) (\S+ \S+)(?: on each| alone)", why)[1])  # type: ignore[index]
    assert (alone > small.usable) == ("alone needs at least" in why)
    needed = told_memory(why)
    assert needed >= alone
    enough = replace(GPU, memory=needed)
    assert solve(workload, flat(devices, enough), **options).objective is not None
    short = replace(GPU, memory=0.99 * needed)
    less = solve(workload, flat(devices, short), **options)
    assert less.termination.reason is Reason.INFEASIBLE
    assert told_memory(less.infeasible_because[0]) == pytest.approx(needed, rel=1e-3)


def test_a_large_model_on_few_devices_names_the_least_memory():
    """Alpa #882: the reason also of a real model, and soon."""
    result = solve(named("workload", "gpt3-175b"), named("cluster", "perlmutter-8"))
    assert result.termination.reason is Reason.INFEASIBLE
    (why,) = result.infeasible_because
    assert "device 0 (a100-40)" in why and "'block 0'" in why
    assert 18 * 175e9 / 8 < told_memory(why) < 18 * 200e9 / 8 * 1.5


@pytest.mark.parametrize(
    ("workload", "devices", "options", "reason"),
    [
        (layers(3, 4), 4, {"schedule": "interleaved", "chunks": "2"}, "multiples of 2 chunks"),
        (layers(3, 4), 4, {"tensor": "4", "replicas": "2"}, "replicas x degrees within 4 devices"),
        (layers(3, 4, experts=4), 4, {"expert": "4", "microbatch": "2"},
         "the expert degree a divisor of the micro-batch"),
        (layers(3, 4), 4, {"tensor": "5"}, "degree divides operator 'block 0'"),
        (layers(3, 4, x_divides=(6,)), 4, {"tensor": "5", "decomposition": "4d"},
         "'block 0' (Gy must divide [48], Gx [6], Gz the global batch 4) on 4 devices"),
        (layers(3, 4, tensor_divides=(2,)), 4, {"tensor": "3", "decomposition": "4d"},
         "'block 0' (Gy must divide [2], Gx [], Gz the global batch 4) on 4 devices"),
        (layers(3, 4, tensor_divides=(2,)), 4,
         {"tensor": "4", "decomposition": "4d", "microbatch": "1"},
         "the expert degree times Gz a divisor of the micro-batch"),
        (layers(3, 4), 4, {"replicas": "3"}, "divides the global batch 4 on 4 devices"),
        (layers(3, 4), 2, {"replicas": "4"}, "divides the global batch 4 on 2 devices"),
        (Workload.chain("two", [Operator("a", tensor_divides=(2,)),
                                Operator("b", tensor_divides=(3,))], 1.0, 1),
         12, {"tensor": "2,3", "uniform": "true"}, "one configuration for all stages"),
        (Workload.chain("two", [Operator("a", tensor_divides=(2,)),
                                Operator("b", tensor_divides=(3,))], 1.0, 1),
         4, {"tensor": "2,3"}, "whatever the memory"),
    ],
)  # fmt: skip
def test_infeasible_for_another_reason_does_not_blame_memory(workload, devices, options, reason):
    """Alpa #882: the reason given is the one that binds."""
    result = solve(workload, flat(devices), **options)
    assert result.termination.reason is Reason.INFEASIBLE
    (why,) = result.infeasible_because
    assert why.startswith("divisibility: ") and reason in why
    assert "memory: " not in why and "inf" not in why


# --- the objective ------------------------------------------------------------------------------


def test_the_sum_of_the_stages_counts_and_devices_may_idle():
    """nnScaler #30: (m - 1) max alone ties plans of one and two further stages.

    Layers of 4, 1 and 1 units: the slowest stage is the first whether or not the small ones are
    split, but another boundary makes the sum larger; the third device stays idle.
    """
    operators = [Operator(f"o{i}", flops=f * 1e12, params=f * 5e8) for i, f in enumerate((4, 1, 1))]
    workload = Workload.chain("uneven", operators, 1e6, 8)
    gpu = replace(GPU, memory=4e10)
    cluster = flat(3, gpu, latency=1e-4)
    options = {"tensor": "1", "replicas": "1", "microbatch": "1", "zero": "0", "recompute": "none"}
    result = solve(workload, cluster, **options)
    plan = plan_of(result)
    assert [stage.operators for stage in plan.stages] == [(0,), (1, 2)]
    one = np.array([[0]])
    config = StageConfig()
    three = Plan(tuple(Stage((i,), config, one + i) for i in range(3)), 1, 1)
    two, longer = evaluate(workload, cluster, plan), evaluate(workload, cluster, three)
    assert longer.bottleneck == pytest.approx(two.bottleneck, rel=1e-12)
    assert longer.seconds.sum() > two.seconds.sum()
    assert longer.iteration_time > two.iteration_time == pytest.approx(result.objective)
    lines = check_result(result)
    assert any("1 alive ones stay idle" in line for line in lines)


def test_fewer_devices_are_used_where_the_network_is_slow():
    """nnScaler #30: the best plan may leave devices idle."""
    plan = plan_of(solve(layers(4, 4), nodes(1, 4, 1e5, latency=0.5)))
    assert sum(stage.devices.size for stage in plan.stages) == 1


def test_one_micro_batch_on_eight_stages():
    """nanotron #347: fewer micro-batches than stages; the time is the sum of the stages."""
    workload = layers(8, 1, params=4e9)
    cluster = flat(8)
    result = solve(workload, cluster, tensor="1", zero="0", recompute="none")
    plan = plan_of(result)
    assert len(plan.stages) == 8 and plan.replicas == plan.microbatch == 1
    priced = price(workload, cluster, plan)
    total = sum(s.seconds for s in priced.stages) + max(s.sync for s in priced.stages)
    assert result.objective == pytest.approx(total, rel=1e-12)
    played = simulate(workload, cluster, plan)
    # the formula counts a boundary in both its stages, the simulation once
    assert 0.9 * result.objective <= played["simulated"] <= result.objective * (1 + 1e-9)


# --- what is offered ----------------------------------------------------------------------------


def test_a_dimension_smaller_than_its_axis_is_not_offered():
    """autoparallel #22: a dimension of 2 on a mesh axis of 4."""
    narrow = layers(2, 2, tensor_divides=(2,), context_divides=2)
    for degree in ("tensor", "context"):
        space = PlanSpace.parse({"tensor": "1", "context": "1", degree: "1,2,4"})
        assert max(g.width for g in space.grids(narrow, 8)) == 2
    plan = plan_of(solve(narrow, flat(8), tensor="1,2,4,8"))
    assert max(stage.config.t for stage in plan.stages) <= 2
    alone = solve(narrow, flat(8), tensor="4,8")
    assert alone.termination.reason is Reason.INFEASIBLE
    assert "tensor must divide [2]" in alone.infeasible_because[0]
    with pytest.raises(CheckError, match="y = 4 does not divide 2"):
        stage = Stage((0, 1), StageConfig((1, 4, 1)), np.arange(4)[None, :])
        check_plan(narrow, flat(8), Plan((stage,), 1, 1))


@pytest.mark.parametrize("batch", [1, 15, *slow([2, 7, 16])])
@pytest.mark.parametrize("method", ["dp", "megatron", "grid", "mcmc", "random"])
def test_the_global_batch_is_fixed(batch, method):
    """Calculon #2: the batch silently changed from 16 to 15; more replicas than samples."""
    pairs = PlanSpace().batches(layers(4, batch), 32)
    assert pairs and all(batch % (d * b) == 0 for d, b in pairs)
    options = {"iterations": "100"} if method in ("mcmc", "random") else {}
    result = solve(layers(4, batch), flat(12), method, **options)
    plan = plan_of(result)
    assert plan.replicas <= batch and batch % (plan.replicas * plan.microbatch) == 0
    assert result.instance["data"]["workload"]["global_batch"] == batch


# --- the network --------------------------------------------------------------------------------


def test_the_bandwidth_between_nodes_matters():
    """Metis: the bandwidth between nodes had no influence."""
    workload = layers(8, 16, params=2e9)
    clusters = []
    for factor in (1, 10, 100, 1000):
        levels = (Level("node", 1e-6, 1e11, 1e11 / factor), Level("net", 1e-5, 1e10 / factor))
        clusters.append(Cluster.regular("nodes", (2, 4), levels, (GPU,)))
    results = [solve(workload, cluster) for cluster in clusters]
    values = [float(result.objective or 0) for result in results]
    assert all(a < b for a, b in pairwise(values))
    # and the best plan is another one
    plans = [plan_of(result) for result in results]
    assert evaluate(workload, clusters[-1], plans[0]).iteration_time > values[-1] * 1.01


@pytest.mark.parametrize("block", [0, *slow(range(1, 4))])
def test_a_slower_link_never_lowers_the_cost_of_a_plan(block):
    """Metis, in general: any figure of any group, any plan of the general space."""
    for seed in range(25 * block, 25 * block + 25):
        rng = np.random.default_rng(seed)
        workload, cluster, plan = random_case(rng, ("1f1b", "gpipe", "interleaved"))
        before = evaluate(workload, cluster, plan)
        for level, row in enumerate(cluster.sizes):
            group = int(rng.integers(len(row)))
            last = level == len(cluster.sizes) - 1
            for change in (
                Override(level, group, latency=3 * float(cluster.latency[level, group])),
                Override(level, group, port=float(cluster.port[level, group]) / 3),
                None
                if last
                else Override(level, group, uplink=float(cluster.uplink[level, group]) / 3),
            ):
                if change is None:
                    continue
                slower = replace(cluster, overrides=(*cluster.overrides, change))
                after = evaluate(workload, slower, plan)
                assert (after.seconds >= before.seconds * (1 - 1e-12)).all()
                assert (after.sync >= before.sync * (1 - 1e-12)).all()


@pytest.mark.parametrize("field", ["port", "uplink"])
def test_zero_bandwidth_is_an_error(field):
    """Metis: accepted, without any influence."""
    figures = {"latency": 1e-6, "port": 1e11, "uplink": 1e11} | {field: 0.0}
    with pytest.raises(
        InputError, match=rf"levels\[0\].{field}: 0.0; expected a number above zero"
    ):
        Cluster.regular("c", (2, 2), (Level("node", **figures), Level("net", 0.0, 1e9)), (GPU,))
    with pytest.raises(InputError, match=rf"overrides\[0\].{field}: 0.0"):
        replace(nodes(2, 2, 1e9), overrides=(Override(0, 1, **{field: 0.0}),))


# --- baselines ----------------------------------------------------------------------------------


@pytest.mark.slow  # tests/placement/test_baselines.py has a sample of the same law
@pytest.mark.parametrize("method", ["megatron", "grid", "flat-dp", "mcmc", "random"])
def test_never_worse_than_a_baseline(method):
    """FlexFlow #217: the tuned plan was slower than plain data parallelism."""
    compared = 0
    for seed in range(100, 130):
        tiny = tiny_instance(np.random.default_rng(seed), devices=5, operators=4, modes=1)
        if not tiny.workload.is_chain:
            continue
        options = {"iterations": "100"} if method in ("mcmc", "random") else {}
        other = get_method("placement", method)(tiny.instance, SolveOptions(set=options))
        if other.objective is not None:
            compared += 1
            assert search(tiny).objective <= other.objective * (1 + 1e-9), f"seed {seed}"
    assert compared > 5


@pytest.mark.parametrize("cluster", ["h100-spineleaf-64", *slow(["fattree-tpuv4-64"])])
def test_never_worse_than_plain_data_parallelism(cluster):
    """FlexFlow #217, on a real job: one replica on every device."""
    workload, machines = named("workload", "gpt3-1.7b"), named("cluster", cluster)
    config = StageConfig(zero=1, recompute="full")
    stage = Stage(tuple(range(workload.num_operators)), config, np.arange(64)[:, None])
    plain = Plan((stage,), 64, 1)
    check_plan(workload, machines, plan=plain)
    result = solve(workload, machines)
    assert result.objective <= evaluate(workload, machines, plain).iteration_time


# --- replicas -----------------------------------------------------------------------------------


def test_replicas_of_unequal_size_are_not_expressible():
    """Sailor's evaluator: replicas of unequal size mis-scored, batches rounded up."""
    data = Plan((Stage((0,), StageConfig(), np.array([[0], [1]])),), 2, 1).to_json()
    data["stages"][0]["devices"] = [[0], [1, 2]]
    with pytest.raises(InputError, match=r"stages\[0\].devices: every replica needs the same"):
        Plan.from_json(data, file="plan.json")
    wide = Plan((Stage((0,), StageConfig(), np.array([[0, 1], [2, 3]])),), 2, 1)
    with pytest.raises(CheckError, match=r"expected 2 replicas x 1 devices"):
        check_plan(layers(1, 2), flat(4), wide)


def test_a_batch_is_never_rounded_up():
    """Sailor's evaluator: 3 micro-batches of 2 samples are no batch of 5."""
    plan = Plan((Stage((0,), StageConfig(), np.array([[0]])),), 1, 2)
    with pytest.raises(CheckError, match="global batch of 5 is no multiple"):
        check_plan(layers(1, 5), flat(1), plan)
