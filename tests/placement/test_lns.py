"""The method ``lns``: its prices, its layouts, what it finds and how it ends."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import nestopt
from nestopt.core.errors import UsageError
from nestopt.core.io import sha256_of
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method
from nestopt.core.stop import Watch
from nestopt.placement.judge.check import check_result
from nestopt.placement.lns.draft import Order
from nestopt.placement.lns.layouts import Roles, plain_lines, random_line
from nestopt.placement.lns.prices import Prices
from nestopt.placement.lns.skeletons import Skeletons
from nestopt.placement.model.grid import Grid
from nestopt.placement.model.words import Structure
from nestopt.placement.pricing.cost import StageCosts
from nestopt.placement.pricing.evaluate import evaluate
from tests.placement.enumerate_plans import best_plan, general_plans
from tests.placement.random_instances import tiny_instance

lns = get_method("placement", "lns")


def tree(cluster, job="random-chain:4,batch=16,devices=4,seed=4", space="default-1 general"):
    """A small instance of the library's generators."""
    return nestopt.instance(job, cluster, space=space)


def quick(**settings):
    return SolveOptions(set={key: str(value) for key, value in settings.items()})


# --- prices --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_prices_are_the_evaluators(seed):
    rng = np.random.default_rng(seed)
    instance = tiny_instance(rng, devices=4, operators=3, decomposed=seed % 2 == 0).instance
    plans = list(itertools.islice(
        general_plans(instance.workload, instance.cluster, instance.space), 4000
    ))  # fmt: skip
    prices = Prices(instance)
    for index in rng.integers(len(plans), size=min(25, len(plans))):
        plan = plans[int(index)]
        draft = prices.draft(plan)
        value = float(prices.price([draft])[0])
        found = evaluate(instance.workload, instance.cluster, plan, prices.costs)
        # the draft has the best modes, the plan some
        assert value <= (found.objective(instance.objective) if found.fits else math.inf) * (
            1 + 1e-12
        )
        best = prices.plan(draft)
        assert (best is None) == math.isinf(value)
        if best is not None:
            again = evaluate(instance.workload, instance.cluster, best, prices.costs)
            assert again.fits
            assert again.objective(instance.objective) == pytest.approx(value, rel=1e-12)
            assert instance.space.admits(best) is None


@pytest.mark.parametrize("seed", range(6))
def test_cuts_of_an_order_are_the_workloads(seed):
    rng = np.random.default_rng(seed)
    workload = tiny_instance(rng, devices=3, operators=6).instance.workload
    order = Order(workload, StageCosts(workload), range(workload.num_operators))
    for end in range(workload.num_operators + 1):
        assert order.cut(end) == workload.cut_bytes(range(end))


# --- layouts -------------------------------------------------------------------------------------


def test_roles_take_every_device_once_in_any_order():
    rng = np.random.default_rng(0)
    for grids in ([Grid(1, 4, 1, 1, 1)] * 2, [Grid(1, 2, 1, 2, 1), Grid(1, 1, 1, 1, 3)]):
        roles = Roles(6, grids)
        line = rng.permutation(roles.size + 3)
        seen = set()
        for order in [*roles.orders(rng), *(roles.mixed_order(rng) for _ in range(5))]:
            deal = roles.place(order, line)
            assert [part.shape for part in deal] == [(6, grid.width) for grid in grids]
            held = np.concatenate([part.ravel() for part in deal])
            assert sorted(held.tolist()) == sorted(line[: roles.size].tolist())
            seen.add(held.tobytes())
        assert len(seen) > 5


def test_a_strided_order_puts_ranks_into_different_nodes():
    roles = Roles(4, [Grid(1, 4, 1, 1, 1)])
    line = np.arange(16)
    replicas, ranks = roles.axes
    blocks, strided = roles.place([replicas, ranks], line), roles.place([ranks, replicas], line)
    assert blocks[0].tolist() == np.arange(16).reshape(4, 4).tolist()
    assert strided[0].tolist() == np.arange(16).reshape(4, 4).T.tolist()


@pytest.mark.parametrize("name", ["tree:3x4+fail-npus:3", "tree:2x4+mix:h100,a100", "tree:2x2x3"])
def test_lines_hold_every_alive_device_once(name):
    cluster = tree(name).cluster
    rng = np.random.default_rng(0)
    lines = [*plain_lines(cluster, 2), *(random_line(cluster, rng, 2) for _ in range(20))]
    assert len({line.tobytes() for line in lines}) > 5
    for line in lines:
        assert sorted(line.tolist()) == cluster.alive.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_skeletons_of_a_small_space_are_counted_and_estimated(seed):
    rng = np.random.default_rng(seed)
    instance = tiny_instance(rng, devices=4, operators=3).instance
    prices = Prices(instance)
    order = Order(instance.workload, prices.costs, range(instance.workload.num_operators))
    skeletons = Skeletons(prices, order, rng)
    rows = list(skeletons.all())
    assert len(set(rows)) == len(rows) <= skeletons.count(10**9)
    assert all(row.devices <= len(prices.alive) for row in rows)
    assert len(skeletons.estimate(rows)) == len(rows)


# --- what it finds -------------------------------------------------------------------------------


def optimum(instance):
    """The least price of all plans, by enumeration."""
    costs = StageCosts(instance.workload)

    def price(plan):
        found = evaluate(instance.workload, instance.cluster, plan, costs)
        return found.objective(instance.objective) if found.fits else math.inf

    plans = general_plans(instance.workload, instance.cluster, instance.space)
    return best_plan(plans, price)[0]


def agree(seeds, devices, operators, rounds, start):
    """On how many instances the search finds the best of all plans; none may be beaten."""
    found = solvable = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        tiny = tiny_instance(rng, devices=devices, operators=operators, modes=1)
        instance = tiny.instance.over(replace(tiny.space, structure=Structure.GENERAL))
        best = optimum(instance)
        result = lns(instance, quick(iterations=rounds, start=start))
        check_result(result)
        if math.isinf(best):
            assert result.objective is None
            continue
        solvable += 1
        assert result.objective is not None
        assert result.objective >= best * (1 - 1e-9)
        assert result.bound <= best * (1 + 1e-9)
        assert "refuted_bound" not in result.stats
        found += result.objective <= best * (1 + 1e-9)
    return found, solvable


def test_it_finds_the_best_of_all_plans_on_tiny_instances():
    found, solvable = agree(range(12), 3, 3, 50, "none")
    assert solvable >= 8
    assert found == solvable


@pytest.mark.slow
def test_it_finds_the_best_of_all_plans_on_small_instances():
    found, solvable = agree(range(100, 160), 4, 3, 400, "dp")
    assert solvable >= 40
    assert found == solvable


def test_it_beats_contiguous_plans_where_groups_should_stride():
    instance = tree("tree:2x4", job="random-chain:4,batch=16,devices=4,seed=2")
    usual = instance.over(replace(instance.space, structure=Structure.CONTIGUOUS))
    dp = get_method("placement", "dp")(usual, SolveOptions())
    for start in ("dp", "none"):
        result = lns(instance, quick(iterations=40, start=start))
        assert result.objective < 0.9 * dp.objective
    assert dp.stats["general_bound"] <= lns(instance, quick(iterations=1)).bound * (1 + 1e-9)


@pytest.mark.parametrize(
    "space",
    [
        "default-1 general uniform=true",
        "default-1 tensor=2 zero=1 recompute=full sequence=0",
        "full replicas=2 microbatch=2 schedule=interleaved chunks=2 context=1",
        "megatron-core tensor=1,2",
    ],
)
def test_plans_keep_to_the_space_and_pass_the_checker(space):
    instance = tree("tree:2x3+fail-npus:1", space=space)
    result = lns(instance, quick(iterations=40, start="megatron"))
    assert result.objective is not None
    assert "lies in the space" in " ".join(check_result(result).verified)
    assert result.instance["data"]["space"]["structure"] == "general"
    used = {d for stage in result.solution.stages for d in stage.devices.ravel().tolist()}
    assert not used & set(instance.cluster.failed)


def test_it_is_never_worse_than_its_start():
    instance = tree("tree:2x3+uplink:0.1,1", space="default-1")
    base = get_method("placement", "random")(instance, quick(iterations=200))
    result = lns(instance, replace(quick(iterations=1, start="none"), warm_start=base))
    assert result.objective <= base.objective * (1 + 1e-12)


def test_the_same_seed_gives_the_same_bytes():
    instance = tree("tree:2x3")
    runs = [lns(instance, quick(iterations=30, start="megatron")) for _ in range(2)]
    assert sha256_of(runs[0].solution_json) == sha256_of(runs[1].solution_json)
    assert runs[0].stats == runs[1].stats


def test_graphs_are_cut_along_other_orders():
    rng = np.random.default_rng(5)
    instance = next(
        tiny.instance
        for tiny in (tiny_instance(rng, devices=4, operators=4) for _ in range(100))
        if not tiny.workload.is_chain and math.isfinite(optimum_of_one(tiny.instance))
    )
    result = lns(instance, quick(iterations=80, start="none"))
    check_result(result)
    assert result.objective is not None


def optimum_of_one(instance):
    """What the dynamic program finds, to see whether there is a plan."""
    found = get_method("placement", "dp")(instance, SolveOptions())
    return math.inf if found.objective is None else found.objective


# --- how it ends ---------------------------------------------------------------------------------


def test_a_limit_keeps_the_incumbent():
    instance = tree("tree:2x3")
    with Watch(0.0):
        result = lns(instance, SolveOptions(time_limit=0.0))
    assert result.termination.reason.value in ("no-solution", "feasible")
    assert result.termination.limit.value == "time"
    found = nestopt.solve(
        "random-chain:4,batch=16,devices=4,seed=4", "tree:2x3", method="lns", time_limit=1.0,
        start="megatron",
    )  # fmt: skip
    assert found.objective is not None
    assert found.termination.limit.value in ("time", "iterations")


def test_what_interrupts_the_search_leaves_the_best_plan(monkeypatch):
    from nestopt.placement.lns.moves import Moves

    def interrupted(self, draft):
        raise KeyboardInterrupt

    for name in ("exchange", "rearrange", "redeal", "recut", "regrid", "renumber", "rebuild"):
        monkeypatch.setattr(Moves, name, interrupted)
    result = lns(tree("tree:2x3"), quick(start="megatron"))
    assert result.objective is not None
    assert result.termination.limit.value == "interrupted"
    check_result(result)


def test_without_devices_or_memory_it_says_so():
    instance = tree("tree:1x2")
    nothing = replace(instance, cluster=instance.cluster.fail([0, 1]))
    tight = replace(
        instance,
        cluster=instance.cluster.with_types(
            [replace(t, memory=1.0, reserve=0.0) for t in instance.cluster.types]
        ),
    )
    for each in (nothing, tight):
        result = lns(each, SolveOptions())
        assert result.termination.reason.value == "infeasible"
        assert result.infeasible_because


def test_a_warm_start_that_is_no_plan_is_refused():
    small, large = tree("tree:1x2"), tree("tree:2x3")
    result = get_method("placement", "megatron")(large, SolveOptions())
    with pytest.raises(UsageError, match="warm start"):
        lns(small, SolveOptions(warm_start=result))
    with pytest.raises(UsageError, match="start"):
        lns(small, quick(start="nothing"))
