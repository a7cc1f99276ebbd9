"""Communication that a framework hides: figures worked out by hand, laws, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plan_cases import random_case
from sampling import slow

from nestopt.core.errors import CheckError, UsageError
from nestopt.placement.judge.check.structure import check_structure
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.grid import Grid, hidden
from nestopt.placement.model.plan import Hides, Plan, Stage, StageConfig
from nestopt.placement.model.workload import Operator, Workload
from nestopt.placement.pricing.evaluate import evaluate

# 1 FLOP/s, 1 byte/s of memory; links of 1 byte/s without latency
DEVICE = DeviceType("one", 1.0, 1e9, 1.0, 1.0, 0.0, 0.0)


def _cluster(devices: int) -> Cluster:
    kinds = np.zeros(devices, dtype=np.int64)
    return Cluster("flat", (Level("flat", 0.0, 1.0),), (DEVICE,), kinds, ((devices,),))


def _plan(config: StageConfig, replicas: int) -> Plan:
    devices = np.arange(replicas * config.width, dtype=np.int64).reshape(replicas, -1)
    return Plan((Stage((0,), config, devices),), replicas, 1)


def _priced(operator: Operator, config: StageConfig, replicas: int = 1) -> tuple[float, float]:
    """t and S of the only stage, weights of 0 bytes, gradients and optimizer state of none."""
    workload = Workload("w", (operator,), (), replicas, 2.0, 2.0, 0.0)
    priced = evaluate(workload, _cluster(replicas * config.width), _plan(config, replicas))
    return float(priced.seconds[0]), float(priced.sync[0])


@pytest.mark.parametrize(("recompute", "again"), [("none", 0), ("full", 1)])
@pytest.mark.parametrize(("size", "shown"), [(4.0, 0.0), (30.0, 20.0)])
def test_tensor_reduces_hide_behind_their_products(recompute, again, size, shown):
    """Two all-reduces of size / 2 bytes a pass over two ranks; products of 10 and 20 s."""
    operator = Operator("o", flops=20.0, tp_bytes=size / 2, tp_fwd=2, tp_bwd=2, tensor_divides=(2,))
    config = StageConfig((1, 2, 1), recompute=recompute)
    reduces = size  # 2 all-reduces of size/2 bytes over two ranks at 1 byte/s
    compute = 10.0 * (3 + again)
    assert _priced(operator, config)[0] == pytest.approx(compute + (2 + again) * reduces)
    ring = replace(config, hides=Hides.TENSOR)
    late = (1 + again) * max(0.0, reduces - 10.0) + max(0.0, reduces - 20.0)
    assert _priced(operator, ring)[0] == pytest.approx(compute + late)
    assert max(0.0, reduces - 10.0) == shown


@pytest.mark.parametrize("params", [2.0, 40.0])
def test_synchronisation_hides_behind_one_backward_and_one_forward_pass(params):
    """Two replicas, ZeRO 1: reduce-scatter and all-gather of 2 bytes a parameter, half each."""
    operator = Operator("o", flops=20.0, params=params)
    t, exposed = _priced(operator, StageConfig(zero=1), 2)
    step = 4.0 * params / 2
    assert exposed == pytest.approx(params + params + step)
    again, hidden_sync = _priced(operator, StageConfig(zero=1, hides=Hides.SYNC), 2)
    assert again == t
    forward = max(20.0, 2 * params)  # a product takes at least as long as reading its weights
    late = max(0.0, params - 2 * forward) + max(0.0, params - forward)
    assert hidden_sync == pytest.approx(late + step)


@pytest.mark.parametrize("flops", [5.0, 1000.0])
def test_gathers_of_zero_3_hide_behind_the_passes(flops):
    operator = Operator("o", flops=flops, params=40.0)
    forward = max(flops, 80.0)
    shown, _ = _priced(operator, StageConfig(zero=3), 2)
    assert shown == pytest.approx(3 * forward + 3 * 40.0)
    behind, _ = _priced(operator, StageConfig(zero=3, hides=Hides.GATHERS), 2)
    late = max(0.0, 40.0 - forward) + max(0.0, 80.0 - 2 * forward)
    assert behind == pytest.approx(3 * forward + late)


@pytest.mark.parametrize("seed", [*range(50), *slow(range(50, 150))])
def test_to_hide_more_is_never_slower_and_takes_no_memory(seed):
    rng = np.random.default_rng(seed)
    workload, cluster, plan = random_case(rng, ("1f1b",), decomposed=bool(seed % 2))
    less = replace(
        plan,
        stages=tuple(replace(s, config=replace(s.config, hides=Hides.NONE)) for s in plan.stages),
    )
    a, b = evaluate(workload, cluster, plan), evaluate(workload, cluster, less)
    assert (a.seconds <= b.seconds * (1 + 1e-12)).all()
    assert (a.sync <= b.sync * (1 + 1e-12)).all()
    np.testing.assert_array_equal(a.need, b.need)


def test_what_there_is_to_hide():
    everything = Hides.TENSOR | Hides.SYNC | Hides.GATHERS
    assert hidden(Grid(1, 2, 1, 1, 1), 3, False, everything) == everything
    assert hidden(Grid(1, 2, 1, 1, 1), 1, False, everything) == Hides.TENSOR | Hides.SYNC
    assert hidden(Grid(1, 2, 1, 1, 1), 1, True, everything) == Hides.SYNC
    assert hidden(Grid(2, 2, 1, 1, 1), 0, False, everything) == Hides.SYNC
    assert Hides.of_words(everything.words) == everything
    with pytest.raises(UsageError, match="did you mean 'tensor'"):
        Hides.of_words(["tenser"])


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (StageConfig(hides=Hides.TENSOR), "tensor reduces need"),
        (StageConfig((1, 2, 1), overlap=True, hides=Hides.TENSOR), "without overlap"),
        (StageConfig(zero=1, hides=Hides.GATHERS), "gathers need ZeRO 2 or 3"),
    ],
)
def test_the_checker_refuses_to_hide_what_there_is_not(config, match):
    operator = Operator("o", flops=1.0, tensor_divides=(2,))
    workload = Workload("w", (operator,), (), 1)
    with pytest.raises(CheckError, match=match):
        check_structure(workload, _cluster(config.width), _plan(config, 1))


def test_plans_keep_what_they_hide():
    plan = _plan(StageConfig((1, 2, 1), zero=3, hides=Hides.TENSOR | Hides.GATHERS), 1)
    data = plan.to_json()
    assert data["stages"][0]["config"]["hides"] == ["tensor", "gathers"]
    assert Plan.from_json(data).stages[0].config == plan.stages[0].config
    assert "hides" not in _plan(StageConfig(), 1).to_json()["stages"][0]["config"]
