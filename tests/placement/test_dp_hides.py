"""The dynamic program over what frameworks hide: enumeration, bounds, presets, refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from random_instances import TinyInstance, tiny_instance
from sampling import slow
from truth import check_outcome, general_optimum, search, structured_optimum

from nestopt.core.errors import UsageError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method
from nestopt.placement.bounds.general import bounds
from nestopt.placement.model.plan import Hides
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.pricing.parameters import parameter_set

OFFERED = ("tensor+sync+gathers", "sync", "none,tensor", "gathers,sync", "tensor+sync,gathers")


def draw(seed: int) -> TinyInstance:
    rng = np.random.default_rng(seed)
    decomposed = bool(seed % 3 == 0)
    tiny = tiny_instance(rng, devices=4, operators=3, modes=1, decomposed=decomposed)
    changes = {"hides": OFFERED[seed % len(OFFERED)], "zero": ("0,1", "1", "2", "3")[seed % 4]}
    return replace(tiny, options=tiny.options | changes)


@pytest.mark.parametrize(("low", "count"), [(14, 5), *slow((low, 12) for low in range(0, 60, 12))])
def test_dp_finds_the_enumerated_optimum(low: int, count: int) -> None:
    hidden = Hides.NONE
    for seed in range(low, low + count):
        tiny = draw(seed)
        found = search(tiny)
        try:
            check_outcome(tiny, found, structured_optimum(tiny))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        for stage in found.plan.stages if found.plan else ():
            hidden |= stage.config.hides
    assert hidden
    if count == 12:  # the optima from 36 on have no use for hidden gathers
        gathers = Hides.NONE if low == 36 else Hides.GATHERS
        assert hidden == Hides.TENSOR | Hides.SYNC | gathers


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_dp_finds_the_enumerated_optimum_a_thousand_times(block: int) -> None:
    for seed in range(1000 + 50 * block, 1050 + 50 * block):
        tiny = draw(seed)
        check_outcome(tiny, search(tiny), structured_optimum(tiny))


@pytest.mark.parametrize("seeds", [range(1, 4), *slow([range(12)])], ids=len)
def test_bounds_hold_for_every_enumerated_plan_of_the_general_space(seeds: range) -> None:
    for seed in seeds:
        tiny = draw(seed)
        best = general_optimum(tiny)
        for row in bounds(tiny.instance, SolveOptions()):
            assert row["value"] <= best * (1 + 1e-9), (seed, row["name"])


@pytest.mark.parametrize("name", ["megatron-core", "torchtitan", "deepspeed", "axonn"])
def test_a_frameworks_space_hides_what_its_parameters_say(name: str) -> None:
    framework = parameter_set("nestopt-2").framework(name)
    space = PlanSpace.named(name)
    assert space.hides == (framework.hides,)
    assert space.overlap == (framework.overlap,)
    assert PlanSpace.parse(space.text) == space


@pytest.mark.parametrize("method", ["milp", "cpsat"])
def test_exact_models_refuse_what_is_not_linear(method: str) -> None:
    tiny = next(t for t in map(draw, range(100)) if t.options["hides"] == "sync")
    with pytest.raises(UsageError, match="the method dp has all three"):
        get_method("placement", method)(tiny.instance, SolveOptions())


@pytest.mark.parametrize("method", ["cpsat", *slow(["milp"])])
def test_exact_models_price_hidden_tensor_reduces(method: str) -> None:
    compared = 0
    for seed in range(2, 42, 5):
        tiny = draw(seed)
        if tiny.options["hides"] != "none,tensor":
            continue
        found = search(tiny)
        options = SolveOptions(set={"start": "none"}, time_limit=30.0)
        exact = get_method("placement", method)(tiny.instance, options)
        if found.plan is None:
            assert exact.objective is None
        else:
            assert exact.objective == pytest.approx(found.objective, rel=1e-5)
            compared += 1
    assert compared > 1
