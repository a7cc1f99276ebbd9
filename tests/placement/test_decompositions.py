"""Decompositions in workloads, plans and spaces: sizes of collectives, files, settings."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import pytest

from nestopt.core.errors import InputError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import named
from nestopt.fourd.decomposition import Batch, layer_collectives
from nestopt.fourd.decomposition import Grid as Decomposition
from nestopt.fourd.network import block, embedding, head
from nestopt.placement.baselines.uniform import solve_grid, solve_megatron
from nestopt.placement.dp.solve import solve
from nestopt.placement.judge.check import check_result
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.transformer import Transformer, expand
from nestopt.placement.model.workload import Operator, Workload

if TYPE_CHECKING:
    from nestopt.fourd.decomposition import Linear

GPT = Transformer(2, 96, 12, 32, 480)
GQA = Transformer(2, 96, 12, 32, 480, kv_heads=4, ffn=192, gated=True)
MIXTURE = Transformer(
    2, 96, 12, 32, 480, gated=True, experts=6, top_k=2, shared_experts=1, expert_ffn=48
)


def of_operator(o: Operator, x: int, y: int, z: int, samples: int) -> Counter[tuple[str, ...]]:
    """Bytes of the collectives over X and Y by phase and axis, and their number, from the fields.

    The formulas are those of ``MODEL.md``, section 5, with bytes of one micro-batch.
    """
    u = samples / z
    sizes = [("forward", "y", o.tp_bytes * u / x)] * o.tp_fwd
    sizes += [("backward", "y", o.tp_bytes * u / x)] * o.tp_bwd
    sizes += [("forward", "x", size * u / y) for size in o.x_fwd]
    sizes += [("backward", "x", size * u / y) for size in o.x_bwd]
    size_of = {"x": x, "y": y}
    return Counter((phase, axis, f"{size:.6g}") for phase, axis, size in sizes if size_of[axis] > 1)


def of_layers(
    layers: tuple[Linear, ...], x: int, y: int, z: int, samples: int
) -> Counter[tuple[str, ...]]:
    """The same from the decomposition of each layer."""
    batch = Batch(samples, GPT.sequence)
    found = [
        c
        for layer in layers
        for c in layer_collectives(layer, Decomposition(x, y, z), batch)
        if c.kind == "all-reduce" and c.phase != "sync"
    ]
    return Counter((c.phase, c.axis, f"{c.bytes:.6g}") for c in found)


@pytest.mark.parametrize("model", [GPT, GQA], ids=["gpt", "grouped, gated"])
@pytest.mark.parametrize(("x", "y", "z"), list(product((1, 2, 4), (1, 2, 4), (1, 2))))
def test_collectives_are_those_of_the_decomposition(model, x, y, z):
    samples = 4
    workload = expand("w", model, samples)
    first, middle, last = (workload.operators[i] for i in (0, 1, -1))
    for operator, layers in (
        (middle, block(model)), (first, (embedding(model),)), (last, (head(model),)),
    ):  # fmt: skip
        assert of_operator(operator, x, y, z, samples) == of_layers(layers, x, y, z, samples)


@pytest.mark.parametrize("model", [GPT, GQA], ids=["gpt", "grouped, gated"])
def test_weights_gathered_are_those_of_the_decomposition(model):
    """Norms and biases, which the decomposition of the products leaves out, aside."""
    workload = expand("w", model, 4)
    layers = layer_bytes(block(model))
    extra = workload.operators[1].params - sum(layer.k * layer.n for layer in block(model))
    assert 2 * (workload.operators[1].params - extra) / 4 == pytest.approx(layers)
    assert 0 < extra < 0.1 * workload.operators[1].params


def layer_bytes(layers: tuple[Linear, ...]) -> float:
    """Bytes that one all-gather of each layer's weights over Z moves, on the grid (2, 2, 2)."""
    found = [
        c
        for layer in layers
        for c in layer_collectives(layer, Decomposition(2, 2, 2), Batch(4, GPT.sequence))
    ]
    return sum(c.bytes for c in found if c.tensor == "W" and c.phase == "forward")


def test_a_mixture_reduces_routed_shared_and_scores_by_themselves():
    o = expand("w", MIXTURE, 4).operators[1]
    s, h = MIXTURE.sequence, MIXTURE.hidden
    assert o.x_fwd == (2 * s * 3 * h, 2 * s * 2 * 2 * 48, 2 * s * 2 * 48, 2 * s * 6)
    assert o.x_bwd == (2 * s * h, 2 * s * 2 * 48, 2 * s * 48)
    assert o.x_divides == (h,)


def test_files_keep_the_fields_and_old_ones_are_read():
    workload = expand("w", GQA, 4)
    data = workload.to_json()
    assert data["operators"][1]["x_divides"] == [96]
    assert Workload.from_json(data).to_json() == data
    for row in data["operators"]:
        for name in ("x_fwd", "x_bwd", "x_divides"):
            row.pop(name, None)
    old = Workload.from_json(data).operators[1]
    assert old.x_fwd == old.x_bwd == old.x_divides == ()
    assert old.allows(1, 4, 2, 1, 1) and not old.allows(2, 1, 1, 1, 1)


@pytest.mark.parametrize(
    ("field", "value"), [("x_fwd", [-1.0]), ("x_bwd", ["a"]), ("x_divides", [0]), ("x_fwd", 3.0)]
)
def test_wrong_fields_are_refused(field, value):
    data = Workload.chain("w", [Operator("a", flops=1.0)], 0.0, 1).to_json()
    data["operators"][0][field] = value
    with pytest.raises(InputError, match=field):
        Workload.from_json(data)


@pytest.mark.parametrize(
    ("config", "label"),
    [
        (StageConfig((1, 8, 1)), "t8 z0"),
        (StageConfig((1, 8, 1), overlap=True, sequence_parallel=True), "t8 sp ov z0"),
        (StageConfig((2, 4, 1)), "t2x4x1 z0"),
        (StageConfig((1, 1, 4), 2, 2, zero=1, overlap=True), "t1x1x4 c2 e2 ov z1"),
    ],
)
def test_labels_and_widths(config, label):
    assert config.label() == label
    assert config.width == prod(config.tensor) * config.context * config.expert
    plan = Plan((Stage((0,), config, np.arange(config.width)[None, :]),), 1, 4)
    data = plan.to_json()
    assert Plan.from_json(data).stages[0].config == config
    del data["stages"][0]["config"]["overlap"]
    assert not Plan.from_json(data).stages[0].config.overlap


MENU = PlanSpace.named("default-1")


def test_spaces():
    workload = expand("w", GPT, 8)

    def tensors(**options: str) -> list[tuple[int, ...]]:
        grids = PlanSpace.parse(options, MENU).grids(workload, 8)
        assert len(grids) == len(set(grids))
        return [g[:3] for g in grids]

    assert tensors() == [(1, 1, 1), (1, 2, 1), (1, 4, 1), (1, 8, 1)]
    every = tensors(decomposition="4d", tensor="4")
    assert sorted(every) == [
        (1, 1, 4), (1, 2, 2), (1, 4, 1), (2, 1, 2), (2, 2, 1), (4, 1, 1),
    ]  # fmt: skip
    assert every[0] == (1, 4, 1)
    for options, overlap in (
        ({}, (False,)),
        ({"decomposition": "4d"}, (False, True)),
        ({"overlap": "1"}, (True,)),
        ({"decomposition": "4d", "overlap": "0"}, (False,)),
    ):
        assert PlanSpace.parse(options).overlap == overlap
    for wrong in ({"decomposition": "2d"}, {"overlap": "2"}, {"decomposition": "megatron,4d"}):
        with pytest.raises(InputError):
            PlanSpace.parse(wrong)


def test_a_real_model_gains_from_decompositions():
    instance = PlacementInstance(
        named("workload", "gpt3-1.7b,batch=32,layers=4"), named("cluster", "h100-spineleaf-16")
    )
    results = [
        solve(
            instance.over(PlanSpace.parse({"decomposition": scheme, "replicas": "1"}, MENU)),
            SolveOptions(),
        )
        for scheme in ("megatron", "4d")
    ]
    for result in results:
        check_result(result)
    one, every = (result.objective for result in results)
    assert every < one
    tensors = {tuple(s["config"]["tensor"]) for s in results[1].solution_json["stages"]}
    assert any(x * z > 1 for x, _, z in tensors)


def test_the_manual_recipe_stays_one_dimensional():
    instance = PlacementInstance(
        named("workload", "gpt3-1.7b,batch=32,layers=4"),
        named("cluster", "tree:4x2"),
        PlanSpace.parse({"decomposition": "4d", "tensor": "4", "replicas": "1"}, MENU),
    )
    for result in (solve_megatron(instance, SolveOptions()), solve_grid(instance, SolveOptions())):
        check_result(result)
        configs = [stage["config"] for stage in result.solution_json["stages"]]
        recipe = result.method == "megatron"
        assert all(c["tensor"] == [1, 4, 1] and not c["overlap"] for c in configs) == recipe
