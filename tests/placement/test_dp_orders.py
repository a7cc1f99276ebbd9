"""The dynamic program over orders of the axes, against enumeration and where they must matter."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from random_instances import TinyInstance, tiny_instance, tree_instance
from random_tables import families_on, random_table
from sampling import slow
from truth import check_outcome, search, structured_optimum

from nestopt.core.options import SolveOptions
from nestopt.placement.dp.solve import search_structured
from nestopt.placement.model.grid import Grid
from nestopt.placement.model.orders import families_in, orders_of, role_offsets
from nestopt.placement.model.structure import stage_order, structured_layouts
from nestopt.placement.pricing.comm import families_of
from nestopt.placement.pricing.evaluate import evaluate

if TYPE_CHECKING:
    from nestopt.placement.model.cluster import Cluster


def over(tiny: TinyInstance, structure: str) -> TinyInstance:
    return replace(tiny, options=tiny.options | {"structure": structure})


def agree(tiny: TinyInstance) -> tuple[bool, bool]:
    """Hold the dp to the enumeration over both structures; whether a plan is, and orders pay."""
    wide, narrow = (over(tiny, structure) for structure in ("structured", "contiguous"))
    truth, narrower = structured_optimum(wide), structured_optimum(narrow)
    check_outcome(wide, search(wide), truth)
    check_outcome(narrow, search(narrow), narrower)
    assert truth <= narrower
    return math.isfinite(truth), truth < narrower * (1 - 1e-6)


def agree_on(seeds: range, **size: int) -> tuple[int, int]:
    feasible = gained = 0
    for seed in seeds:
        tiny = tree_instance(np.random.default_rng(seed), **size)
        try:
            found, pays = agree(tiny)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {size}: {error}") from error
        feasible += found
        gained += pays
    return feasible, gained


@pytest.mark.parametrize("low", [7, *slow([22])])
def test_dp_finds_the_enumerated_optimum_over_orders(low):
    feasible, gained = agree_on(range(low, low + 8))
    assert feasible > 0
    assert gained > 0


def test_dp_finds_the_enumerated_optimum_over_orders_of_decompositions():
    feasible, gained = agree_on(range(116, 124), decomposed=True)
    assert feasible > 0
    assert gained > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_dp_finds_the_enumerated_optimum_over_orders_a_thousand_times(block):
    low = 1000 + 45 * block
    feasible, gained = agree_on(range(low, low + 45))
    assert feasible > 10
    assert gained > 5
    agree_on(range(5000 + 10 * block, 5010 + 10 * block), decomposed=True)


def test_dp_over_orders_with_a_table_of_collectives():
    """The lines of a table are prices of groups as well: strided ones have layouts of their own."""
    changed = gained = 0
    for seed in range(7, 11):
        rng = np.random.default_rng(seed)
        tiny = tree_instance(rng)
        table = random_table(rng, tiny.cluster, families_on(rng, tiny.cluster, 60))
        tabled = replace(tiny, cluster=tiny.cluster.with_collectives(table))
        gained += agree(tabled)[1]
        plain, other = (search(over(case, "structured")) for case in (tiny, tabled))
        changed += other.objective < plain.objective * (1 - 1e-9)
    assert changed > 0
    assert gained > 0


@pytest.mark.parametrize("seed", range(4))
def test_dp_over_orders_on_any_tiny_instance(seed):
    """Two types of devices, overrides, failures, DAGs: few gain, all agree."""
    agree(tiny_instance(np.random.default_rng(900 + seed), devices=4, operators=2, modes=1))


def test_on_an_even_tree_replicas_next_to_each_other_are_far_better():
    """One stage on 4 x 4 devices whose tensor groups are 0, 4, 8, 12; 1, 5, 9, 13; ..."""
    from nestopt.placement.problem import PROBLEM

    names = {"workload": "random-chain:4,batch=16,devices=16,seed=0", "cluster": "tree:4x4"}
    found = {}
    for structure in ("contiguous", "structured"):
        instance = PROBLEM.stated(PROBLEM.from_names(names, {}), None, f"default-1 {structure}", {})
        result = search_structured(instance, SolveOptions())
        found[structure] = result
        assert instance.space.admits(result.plan, instance.cluster) is None
    assert found["structured"].objective < 0.75 * found["contiguous"].objective
    # nearly all of what any plan could gain
    assert found["structured"].objective < 1.03 * found["structured"].general_bound
    (stage,) = found["structured"].plan.stages
    assert stage.devices[0].tolist() == [0, 4, 8, 12]


def _straight_stages(tiny: TinyInstance) -> int:
    """How often the usual order of one stage would do as well as another one that was chosen."""
    found = search(over(tiny, "structured"))
    if found.plan is None:
        return 0
    least = evaluate(tiny.workload, tiny.cluster, found.plan).objective(tiny.objective)
    needless = 0
    for q, stage in enumerate(found.plan.stages):
        order = stage_order(tiny.cluster, stage)
        rows = np.sort(stage.devices, axis=1)
        if "outer" not in structured_layouts(tiny.cluster, found.plan):
            rows = np.sort(stage.devices, axis=None).reshape(stage.devices.shape)
        stages = list(found.plan.stages)
        stages[q] = replace(stage, devices=rows)
        plan = replace(found.plan, stages=tuple(stages))
        assert over(tiny, "structured").space.admits(plan, tiny.cluster) is None
        value = evaluate(tiny.workload, tiny.cluster, plan).objective(tiny.objective)
        assert value >= least * (1 - 1e-12)
        needless += list(order) != sorted(order) and value <= least
    return needless


def test_no_stage_has_another_order_needlessly():
    """On a flat network all orders cost the same; without synchronisation in the objective some."""
    for seed in (21, 23, 24, 45):
        tiny = tree_instance(np.random.default_rng(seed))
        assert _straight_stages(tiny) == 0
        quiet = tuple(replace(o, tp_bytes=0.0) for o in tiny.workload.operators)
        workload = replace(tiny.workload, operators=quiet)
        options = tiny.options | {"tensor": "2"}
        other = replace(tiny, workload=workload, objective="bottleneck", options=options)
        assert _straight_stages(other) == 0
    for seed in range(20, 32):
        tiny = tree_instance(np.random.default_rng(seed))
        flat = replace(tiny, cluster=flattened(tiny.cluster))
        plan = search(over(flat, "structured")).plan
        assert plan is None or over(flat, "contiguous").space.admits(plan, flat.cluster) is None


def flattened(cluster: Cluster) -> Cluster:
    return replace(
        cluster, levels=cluster.levels[-1:], sizes=((cluster.num_devices,),), overrides=()
    )


def groups(order, grid, replicas, window):
    roles = role_offsets(order, grid, replicas, window)
    return tuple(
        frozenset(frozenset(row) for row in family.tolist() if len(row) > 1)
        for family in families_of(roles, *grid)
    )


@pytest.mark.parametrize("window", [0, 14])
def test_families_with_the_same_strides_have_the_same_groups(window):
    """And only those: profiles are found once for each."""
    grid = {}
    for c, e, y, z in [(1, 1, 12, 1), (2, 2, 3, 1), (2, 1, 3, 2), (1, 3, 4, 1), (1, 1, 3, 4)]:
        of = Grid(1, y, z, c, e)
        orders = list(orders_of(of, 3, windows=window > 0, free=True))
        split = sum(n > 1 for n in (c, e, y, z)) + (window == 0)
        assert len(orders) == len(set(orders)) == math.factorial(split)
        assert orders[0] == tuple(sorted(orders[0]))
        for order in orders:
            roles = role_offsets(order, of, 3, window)
            assert len(set(roles.ravel().tolist())) == roles.size
            for key, sets in zip(
                families_in(order, of, 3, window), groups(order, of, 3, window), strict=True
            ):
                assert grid.setdefault(key, sets) == sets
    assert len(set(grid.values())) == len(grid)
    if not window:
        assert sorted(roles.ravel().tolist()) == list(range(36))
