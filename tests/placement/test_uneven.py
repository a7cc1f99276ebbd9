"""Unequal replicas: plans that say how many micro-batches each replica takes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from random_instances import tiny_instance
from uneven_plans import (
    compositions,
    price_of,
    uneven_instance,
    uneven_optimum,
    uneven_plans,
)

from nestopt.core.errors import CheckError, InputError, UsageError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method
from nestopt.placement.bounds.general import bounds
from nestopt.placement.dp.solve import search_space, search_structured, solve
from nestopt.placement.judge.check import check_plan, check_result, price
from nestopt.placement.judge.simulate import simulate
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Plan
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.words import Objective, Shares
from nestopt.placement.pricing.evaluate import evaluate, reported, with_best_shares
from nestopt.placement.pricing.replicas import best_shares


def _instance(seed, devices=None, operators=3):
    rng = np.random.default_rng(seed)
    return uneven_instance(rng, devices=devices or 4 + seed % 2, operators=operators)


def _stated(seed, most=40):
    """Some plans of an instance that state their shares."""
    return islice(uneven_plans(_instance(seed)), 0, 7 * most, 7)


def _matches(tiny):
    """Hold the search to the enumeration; whether the shares helped, or None without a plan."""
    equal, truth = uneven_optimum(tiny)
    found = search_space(tiny.instance, SolveOptions())
    assert found.limit is None
    if math.isinf(truth):
        assert found.plan is None and found.bound == math.inf
        return None
    assert found.plan is not None
    assert found.objective == pytest.approx(truth, rel=1e-9)
    assert found.bound == pytest.approx(found.objective, rel=1e-9)
    assert found.general_bound <= found.bound <= found.objective
    check_plan(tiny.workload, tiny.cluster, found.plan, found.objective)
    assert tiny.space.admits(found.plan, tiny.cluster) is None
    least = max(row["value"] for row in bounds(tiny.instance, SolveOptions()))
    assert least <= truth * (1 + 1e-9)
    return truth < equal * (1 - 1e-9)


def test_the_search_is_exact():
    helped = [_matches(_instance(seed, 4, 2)) for seed in (9, 13, 17, 19, 21, 26, 31, 37, 38)]
    assert helped.count(True) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16))
def test_the_search_is_exact_on_many(part):
    helped = [_matches(_instance(seed)) for seed in range(1000 + 20 * part, 1020 + 20 * part)]
    assert helped.count(None) < 15


def test_evaluator_and_checker_agree_on_every_share():
    seen = misfits = 0
    for seed in range(40, 52):
        tiny = _instance(seed)
        for plan in _stated(seed):
            ours = evaluate(tiny.workload, tiny.cluster, plan)
            theirs = price_of(tiny, plan)
            assert ours.fits == math.isfinite(theirs)
            priced = price(tiny.workload, tiny.cluster, plan)
            assert ours.iteration_time == pytest.approx(priced.iteration_time, rel=1e-12)
            misfits += not ours.fits
            seen += 1
    assert seen > 150
    assert 0 < misfits < seen


def test_the_best_shares_are_the_best_of_all():
    rng = np.random.default_rng(5)
    refused = 0
    for _ in range(300):
        d = int(rng.integers(1, 5))
        total = int(rng.integers(d, 9))
        first = rng.uniform(1, 9, d).round(1)
        each = np.where(rng.random(d) < 0.1, 0.0, rng.uniform(0.2, 4, d).round(1))
        most = rng.integers(1, total + 1, d)
        times = [
            float((first + (np.array(shares) - 1) * each).max())
            for shares in compositions(total, d)
            if (np.array(shares) <= most).all()
        ]
        seconds, shares = best_shares(first, each, most, total)
        assert seconds == pytest.approx(min(times, default=math.inf), rel=1e-12)
        refused += not times
        if times:
            assert sum(shares) == total and (np.array(shares) <= most).all()
    assert 0 < refused < 300


def test_best_shares_of_thousands_follow_the_speeds():
    first, each = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0, 4.0])
    seconds, shares = best_shares(first, each, np.array([10**6] * 3), 7000)
    assert shares == (4000, 2000, 1000)
    assert seconds == 4000.0
    # memory of the quick one leaves the others more to do
    seconds, shares = best_shares(first, each, np.array([1000, 10**6, 10**6]), 7000)
    assert shares == (1000, 4000, 2000)
    assert seconds == 8000.0


def test_the_simulation_of_unequal_replicas_keeps_the_documented_excess():
    seen = exact = 0
    for seed in range(50, 70):
        tiny = _instance(seed)
        for plan in _stated(seed, most=8):
            found = simulate(tiny.workload, tiny.cluster, plan)
            closed = found["closed_form"]
            for kind in ("", "_blocking"):
                latest = closed + found[f"documented_excess{kind}"]
                assert found[f"simulated{kind}"] <= latest * (1 + 1e-9)
            one_stage = len(plan.stages) == 1
            if one_stage:
                assert found["simulated"] == pytest.approx(closed, rel=1e-9)
            exact += one_stage
            seen += 1
    assert seen > 30 and exact > 5


@pytest.fixture(scope="module")
def solved():
    """An instance whose best plan states its shares, with its result."""
    tiny = _instance(2)
    result = solve(tiny.instance, SolveOptions())
    plan = Plan.from_json(result.solution_json)
    assert len(set(plan.shares)) > 1
    return tiny, result, plan


def test_a_result_with_shares_passes_the_checker_and_survives_its_file(solved):
    tiny, result, plan = solved
    assert result.gap == 0.0
    check_result(result)
    again = Plan.from_json(json.loads(json.dumps(plan.to_json())))
    assert again == plan and hash(again) == hash(plan)
    assert again != replace(plan, shares=())
    stored = json.loads(json.dumps(tiny.instance.to_json()))
    assert PlacementInstance.from_json(stored) == tiny.instance


def test_the_checker_refuses_forged_shares(solved):
    tiny, result, plan = solved
    shares = plan.shares
    moved = (shares[0] + 1, shares[1] - 1, *shares[2:])
    forged = {
        "expected one each": shares[:-1],
        "the global batch is": (shares[0] + 1, *shares[1:]),
        "is claimed": tuple(reversed(shares)) if shares != shares[::-1] else moved,
    }
    if min(moved) < 1:
        forged["takes 0 micro-batches"] = moved
    for message, wrong in forged.items():
        with pytest.raises(CheckError, match=message):
            check_plan(tiny.workload, tiny.cluster, replace(plan, shares=wrong), result.objective)
    stages = tuple(replace(s, config=replace(s.config, zero=2)) for s in plan.stages)
    with pytest.raises(CheckError, match="ZeRO 2, whose replicas meet in every micro-batch"):
        check_plan(tiny.workload, tiny.cluster, replace(plan, stages=stages, report={}))
    with pytest.raises(CheckError, match="interleaved schedule does not have"):
        interleaved = replace(plan, schedule="interleaved", chunks=2, report={})
        check_plan(tiny.workload, tiny.cluster, interleaved)


def test_a_space_of_equal_shares_refuses_stated_ones(solved):
    tiny, _, plan = solved
    plain = replace(tiny.space, shares=Shares.EQUAL)
    refusal = plain.admits(plan, tiny.cluster)
    assert refusal is not None and refusal.field == "shares"
    assert tiny.space.admits(plan, tiny.cluster) is None


def test_the_space_is_stated_in_text_and_file_and_only_where_it_is_not_the_default():
    space = PlanSpace.parse("default-1 shares=unequal")
    assert space.shares is Shares.UNEQUAL
    assert PlanSpace.parse(space.text) == space
    assert PlanSpace.from_json(space.to_json()) == space
    assert "unequal replicas" in str(space)
    assert "shares" not in PlanSpace.named("default-1").to_json()
    with pytest.raises(InputError, match="expected one of equal, unequal"):
        PlanSpace.parse("shares=fair")


def test_the_bottleneck_has_no_shares():
    tiny = _instance(2)
    with pytest.raises(InputError, match=r"space\.shares.*expected equal shares"):
        tiny.instance.over(objective=Objective.BOTTLENECK)


@pytest.mark.parametrize("method", ["milp", "cpsat"])
def test_exact_models_say_why_they_refuse(method):
    with pytest.raises(UsageError, match="multiplies two unknowns"):
        get_method("placement", method)(_instance(2).instance, SolveOptions())


def test_unequal_shares_are_never_slower_and_alike_devices_gain_by_odd_numbers_alone():
    gained = 0
    for seed in range(3):
        base = tiny_instance(np.random.default_rng(seed), devices=4, operators=3)
        tiny = replace(base, objective="iteration-time")
        equal = search_structured(tiny.instance, SolveOptions())
        space = replace(tiny.space, shares=Shares.UNEQUAL)
        free = search_space(tiny.instance.over(space), SolveOptions())
        assert free.objective <= equal.objective * (1 + 1e-12)
        gained += free.objective < equal.objective
    assert gained < 3


def test_lns_gives_its_plans_the_best_shares():
    tiny = _instance(2)
    options = SolveOptions(set={"iterations": "3"})
    found = get_method("placement", "lns")(tiny.instance, options)
    least = solve(tiny.instance, SolveOptions()).objective
    assert found.objective <= least * (1 + 1e-9)
    check_result(found)


def test_a_limit_leaves_a_plan_and_a_valid_bound():
    tiny = _instance(18)
    truth = search_space(tiny.instance, SolveOptions())
    found = search_space(tiny.instance, SolveOptions(time_limit=1e-3))
    assert found.limit == "time"
    assert found.bound <= truth.objective * (1 + 1e-12)
    assert found.objective >= truth.objective * (1 - 1e-12)


def test_shares_of_a_plan_never_make_it_slower():
    seen = 0
    for seed in range(60, 72):
        tiny = _instance(seed)
        for plan in _stated(seed, most=20):
            found = with_best_shares(tiny.workload, tiny.cluster, replace(plan, shares=()))
            value = price_of(tiny, plan)
            if math.isfinite(value):
                assert found is not None
                told, priced = reported(tiny.workload, tiny.cluster, found)
                check_plan(tiny.workload, tiny.cluster, told, priced.iteration_time)
                assert priced.iteration_time <= value * (1 + 1e-12)
                seen += 1
    assert seen > 15


def test_equal_shares_that_gain_nothing_are_not_stated():
    unstated = 0
    for seed in range(60, 72):
        tiny = _instance(seed)
        for plan in _stated(seed, most=20):
            found = with_best_shares(tiny.workload, tiny.cluster, replace(plan, shares=()))
            if found is not None and not found.shares:
                assert price_of(tiny, found) <= price_of(tiny, plan) * (1 + 1e-12)
                unstated += 1
            elif found is not None and len(set(found.shares)) == 1:
                plain = price_of(tiny, replace(found, shares=()))
                assert plain > price_of(tiny, found)
    assert unstated > 0
