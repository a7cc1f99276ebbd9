"""Exact placement models where stages may take any tensor decomposition (x, y, z) and overlap."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from placement_runs import (
    CLOSE,
    MODELS,
    SOLVERS,
    check,
    compare_prices,
    compare_with_dp,
    compare_with_enumeration,
    run,
    value,
)
from random_instances import TinyInstance, tiny_instance
from sampling import slow

from nestopt.formulations.placement.config import AXES, JOINT, Family
from nestopt.formulations.placement.data import PlacementData
from nestopt.formulations.placement.prices import parts_of
from nestopt.formulations.placement.scenario import Scenario, ScenarioData
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.plan import Plan
from nestopt.placement.model.workload import Operator, Workload

if TYPE_CHECKING:
    from nestopt.formulations.placement.cpsat import PlacementCpsat
    from nestopt.formulations.placement.milp import PlacementMilp


def decomposed(seed: int, devices: int, operators: int) -> TinyInstance:
    rng = np.random.default_rng(seed)
    return tiny_instance(rng, devices=devices, operators=operators, decomposed=True)


@pytest.mark.parametrize("seed", [0, *slow(range(1, 4))])
@pytest.mark.parametrize("space", ["structured", "general"])
def test_models_find_the_best_of_all_plans(seed: int, space: str) -> None:
    tiny = decomposed(seed, 3, 3)
    for result in compare_with_enumeration(tiny, space):
        check(tiny, result)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300, 330))
@pytest.mark.parametrize("space", ["structured", "general"])
def test_models_find_the_best_of_all_plans_of_more_instances(seed: int, space: str) -> None:
    compare_with_enumeration(decomposed(seed, 4, 3), space)


@pytest.mark.parametrize("seed", [501, *slow([500, *range(502, 506)])])
def test_models_agree_with_the_dynamic_program(seed: int) -> None:
    compare_with_dp(decomposed(seed, 4, 3))


@pytest.mark.parametrize("method", SOLVERS)
def test_a_start_by_the_dynamic_program_changes_nothing(method: str) -> None:
    for seed in (502, 505):
        tiny = decomposed(seed, 3, 3)
        helped = run(method, tiny, "general", set={"start": "dp"})
        assert value(helped) == pytest.approx(value(run(method, tiny, "general")), rel=CLOSE)


@pytest.mark.slow
def test_models_agree_with_the_dynamic_program_on_a_hundred_instances() -> None:
    ratios = [compare_with_dp(decomposed(seed, 4, 4)) for seed in range(1000, 1110)]
    assert min(ratios) < 1 - 1e-3


# --- the model's objective is the evaluator's price ----------------------------------------------


@pytest.mark.parametrize(("model_class", "tolerance"), MODELS)
def test_a_plan_has_its_price_in_the_model(
    model_class: type[PlacementMilp | PlacementCpsat], tolerance: float
) -> None:
    priced = [compare_prices(model_class, tolerance, s, decomposed=True) for s in (700, 701)]
    assert sum(priced) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("model_class", "tolerance"), MODELS)
def test_every_plan_has_its_price_in_the_model(
    model_class: type[PlacementMilp | PlacementCpsat], tolerance: float
) -> None:
    priced = [compare_prices(model_class, tolerance, s, decomposed=True) for s in range(700, 860)]
    assert sum(priced) >= 150


def test_parts_of_a_price_add_up() -> None:
    """A table over three choices of which the last two interact, for one of four kinds."""
    rng = np.random.default_rng(0)
    alone, first, second = rng.random((2, 1, 1, 4)), rng.random((1, 3, 1, 4)), rng.random((5, 4))
    table = alone + first + second
    least, excess, together = parts_of(table)
    assert (together, JOINT in excess) == ((), False)
    np.testing.assert_allclose(least, table.min(axis=(0, 1, 2)))
    table[..., 3] += np.outer(np.arange(3), np.arange(5))
    least, excess, together = parts_of(table)
    assert together == (1, 2)
    for index in np.ndindex(2, 3, 5):
        parts = sum(excess[axis][k] for axis, k in enumerate(index))
        joint = excess[JOINT].reshape(3, 5, 4)[index[1:]]
        np.testing.assert_allclose(least + parts + joint, table[index])
    assert all(values.min() == 0 for values in excess.values())


def test_groups_that_meet() -> None:
    """Two groups over y meet the same three over x, and so do the other two."""
    x = Family(0, ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)), ())
    y = Family(1, ((0, 2, 4), (1, 3, 5), (6, 8, 10), (7, 9, 11)), ())
    assert x.meets(y) == [(0, 1), (2, 3)]
    assert y.meets(x) == [(0, 1, 2), (3, 4, 5)]


def test_what_hides_behind_what_is_priced_together() -> None:
    """With overlap the excess of a class depends on the type set and on the other classes."""
    joined = set()
    for seed in range(12):
        tiny = decomposed(seed, 5, 4)
        data = PlacementData(tiny.instance)
        for batch in tiny.space.batches(tiny.workload, len(data.alive)):
            for config in ScenarioData(data, Scenario(*batch)).configs:
                assert (JOINT in config.excess) == bool(config.joined)
                if not config.mode.overlap:
                    assert not config.joined
                else:
                    sizes = [len(config.excess[f]) for f in config.joined]
                    assert len(config.combinations) == math.prod(sizes) * bool(config.joined)
                joined.add(config.joined)
    assert any(len(set(AXES).intersection(names)) > 1 for names in joined)


# --- what it is good for -------------------------------------------------------------------------


def two_nodes() -> TinyInstance:
    """Two nodes of two devices; a replica takes all four."""
    block = {
        "kind": "block", "flops": 1e12, "params": 1e8, "tp_bytes": 4e8, "tp_fwd": 2, "tp_bwd": 2,
        "x_fwd": (4e8, 4e8), "x_bwd": (4e8, 4e8), "tensor_divides": (4,), "x_divides": (4,),
    }  # fmt: skip
    operators = [Operator(f"b{i}", **block) for i in range(2)]  # type: ignore[arg-type]
    workload = Workload.chain("blocks", operators, 1e6, global_batch=8)
    cluster = Cluster.regular(
        "nodes",
        (2, 2),
        (Level("node", 1e-6, 1e12, 1e11), Level("top", 1e-5, 1e11)),
        (DeviceType("gpu", 1e14, 1e11, 4e12),),
    )
    options = {"tensor": "4", "replicas": "1", "microbatch": "4", "zero": "0", "recompute": "none"}
    return TinyInstance(workload, cluster, "iteration-time", options)


@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("space", ["structured", "general"])
def test_decompositions_and_overlap_beat_tensor_parallelism(method: str, space: str) -> None:
    tiny = two_nodes()
    spaces = [{}, {"decomposition": "4d", "overlap": "0"}, {"decomposition": "4d"}]
    results = [run(method, replace(tiny, options=tiny.options | s), space) for s in spaces]
    values = [value(r) for r in results]
    for found, wider in pairwise(values):
        assert wider < 0.9 * found
    for result, s in zip(results, spaces):
        check(tiny, result)
        best = value(run("dp", replace(tiny, options=tiny.options | s), "structured"))
        assert value(result) == pytest.approx(best, rel=CLOSE)
    plain, split, hidden = (Plan.from_json(r.solution_json).stages[0].config for r in results)
    assert plain.tensor == (1, 4, 1)
    assert split.tensor != plain.tensor
    assert hidden.overlap
