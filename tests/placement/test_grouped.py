"""Experts as one grouped product: the formula by hand, both pricings, enumeration, files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plan_cases import random_case
from random_instances import TinyInstance, tiny_instance
from sampling import slow
from truth import check_outcome, search, structured_optimum

from nestopt.core.errors import InputError
from nestopt.core.registry import named
from nestopt.placement.judge.check import price
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.workload import Operator, Workload
from nestopt.placement.pricing.evaluate import evaluate
from nestopt.placement.pricing.parameters import using_set


def with_groups(workload: Workload, rng: np.random.Generator) -> Workload:
    """The workload with half of the products of experts told apart, kind by kind."""
    kinds = {}
    for o in workload.operators:
        if o.kind not in kinds:
            share = float(rng.choice([0.5, 1.0])) if o.experts and rng.random() < 0.8 else 0.0
            # few rows an expert, so that tiles decide
            kinds[o.kind] = share * o.flops, float(rng.integers(50, 2000))
    changed = [
        replace(o, flops_expert=kinds[o.kind][0], rows=kinds[o.kind][1] if o.experts else 0.0)
        for o in workload.operators
    ]
    return replace(workload, operators=tuple(changed))


def _one_block(rows: float, expert: int, batch: int = 8) -> tuple[float, float]:
    """Seconds of one block of 4 experts on 4 devices, by both pricings; no link costs anything."""
    fast = DeviceType("gpu", peak=1e12, memory=1e15, memory_bandwidth=1e10, half_flops=1e9)
    cluster = Cluster("four", (Level("node", 0.0, 1e30),), (fast,), np.zeros(4, int), ((4,),))
    block = Operator(
        "moe", flops=9e9, flops_expert=8e9, rows=rows, experts=4, params=2e6, params_expert=4e7
    )
    workload = Workload("one", (block,), (), batch)
    config = StageConfig(expert=expert)
    devices = np.arange(4, dtype=np.int64).reshape(4 // expert, expert)
    plan = Plan((Stage((0,), config, devices),), 4 // expert, expert)
    ours, theirs = evaluate(workload, cluster, plan), price(workload, cluster, plan)
    return float(ours.seconds[0]), float(theirs.stages[0].seconds)


@pytest.mark.parametrize(
    ("rows", "expert", "forward"),
    [
        # 1,000 rows over 4 experts: 250 + 64 each, 8e6 FLOPs a row; weights 8 ms against 11.05
        (1000, 1, (1e9 + 1e9) / 1e12 + max((4 * 314 * 8e6 + 1e9) / 1e12, 2 * 4e7 / 1e10)),
        # one expert a device gets all 1,000 of them; weights of one expert are read in 2 ms
        (1000, 4, (1e9 + 1e9) / 1e12 + (1064 * 8e6 + 1e9) / 1e12),
        # 20 rows over 4 experts: a tile of 128 rows each; 4e8 FLOPs a row
        (20, 1, (1e9 + 1e9) / 1e12 + (4 * 128 * 4e8 + 1e9) / 1e12),
    ],
)
def test_the_formula_by_hand(rows: float, expert: int, forward: float) -> None:
    # 2e6 parameters are read in 0.4 ms, less than their product takes
    ours, theirs = _one_block(rows, expert)
    assert ours == pytest.approx(3 * forward, rel=1e-9)
    assert theirs == pytest.approx(3 * forward, rel=1e-9)


@pytest.mark.parametrize(
    ("low", "count"), [(0, 60), *slow((low, 200) for low in range(200, 1000, 200))]
)
def test_evaluator_and_checker_price_alike(low: int, count: int) -> None:
    changed = 0
    for seed in range(low, low + count):
        rng = np.random.default_rng(seed)
        plain, cluster, plan = random_case(rng, ("1f1b", "gpipe", "interleaved"), decomposed=True)
        workload = with_groups(plain, rng)
        ours, theirs = evaluate(workload, cluster, plan), price(workload, cluster, plan)
        np.testing.assert_allclose(
            [*ours.seconds, *ours.sync, ours.iteration_time],
            [*(s.seconds for s in theirs.stages), *(s.sync for s in theirs.stages),
             theirs.iteration_time],
            rtol=1e-12, atol=0, err_msg=f"seed {seed}",
        )  # fmt: skip
        before = evaluate(plain, cluster, plan).seconds
        # told apart, products never take less time (without ordinary products, other parameters
        # are read by nobody)
        if all(o.flops_expert < o.flops or not o.flops for o in workload.operators):
            assert (ours.seconds >= before * (1 - 1e-12)).all(), seed
        changed += bool((ours.seconds > before * (1 + 1e-9)).any())
    assert changed > count / 10


def draw(seed: int) -> TinyInstance:
    """A tiny instance with experts whose products are told apart."""
    rng = np.random.default_rng(seed)
    tiny = tiny_instance(rng, devices=4, operators=3, modes=1)
    return replace(tiny, workload=with_groups(tiny.workload, rng))


@pytest.mark.parametrize(("low", "count"), [(0, 3), *slow((low, 25) for low in (100, 200, 300))])
def test_dp_finds_the_enumerated_optimum(low: int, count: int) -> None:
    cases = (draw(seed) for seed in range(low, low + 20 * count))
    told = [t for t in cases if any(o.flops_expert for o in t.workload.operators)][:count]
    assert len(told) == count
    for tiny in told:
        check_outcome(tiny, search(tiny), structured_optimum(tiny))


def test_named_models_and_parameter_sets() -> None:
    """The first set prices a block's products as one, as recorded results did; so do dense ones."""
    grouped = named("workload", "mixtral-8x7b")
    block = grouped.operators[1]
    assert block.rows == 4096 * 2
    assert block.flops_expert == 2 * block.rows * 3 * 4096 * 14336
    assert Workload.from_json(grouped.to_json()) == grouped
    with using_set("nestopt-1"):
        assert named("workload", "mixtral-8x7b").operators[1].flops_expert == 0
    off = named("workload", "mixtral-8x7b,grouped=0").operators[1]
    assert (off.flops_expert, off.rows, off.flops) == (0, 0, block.flops)
    assert block.bytes_full - off.bytes_full == 2 * 4096 * 4096 * 2 * 3
    assert grouped.iteration_flops == named("workload", "mixtral-8x7b,grouped=0").iteration_flops
    assert not any(o.flops_expert for o in named("workload", "llama3-8b").operators)


def test_all_experts_of_a_deepseek_in_one_stage_are_slower() -> None:
    """256 experts on a device, one sequence: their weights are read for 128 rows each."""
    device = named("cluster", "dgx-h100-8").types[0]
    huge = replace(device, memory=1e15)
    cluster = Cluster("one", (Level("node", 0.0, 1e12),), (huge,), np.zeros(1, int), ((1,),))
    plan = Plan((Stage((0,), StageConfig(), np.zeros((1, 1), dtype=np.int64)),), 1, 1)
    shares = []
    for name in ("deepseek-v3-like,batch=1", "deepseek-v3-like,batch=1,grouped=0"):
        block = named("workload", name).operators[10]
        seconds = float(evaluate(Workload("block", (block,), (), 1), cluster, plan).seconds[0])
        shares.append(3 * (block.flops + block.flops_attn) / (seconds * device.peak))
    grouped, whole = shares
    assert grouped == pytest.approx(0.400, abs=0.001)
    assert whole > 0.47


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"flops": 1.0, "flops_expert": 2.0, "rows": 1.0, "experts": 1}, "at most flops"),
        ({"flops": 2.0, "flops_expert": 1.0, "experts": 1}, "rows"),
        ({"flops": 2.0, "flops_expert": 1.0, "rows": 1.0}, "experts"),
        ({"rows": -1.0}, "rows"),
    ],
)
def test_wrong_experts(fields: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Operator("o", **fields)  # type: ignore[arg-type]
