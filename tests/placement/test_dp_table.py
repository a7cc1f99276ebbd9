"""The dynamic program with tables of collectives: exact, and its bounds valid."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from random_instances import TinyInstance, tiny_instance
from random_tables import families_on, random_table
from sampling import slow
from truth import check_outcome, general_optimum, search, structured_optimum

from nestopt.core.options import SolveOptions
from nestopt.placement.bounds.general import bounds


def with_table(seed: int, *, even: bool = False, **size: int) -> TinyInstance:
    """A tiny instance whose cluster has a table; `even`: two nodes of half the devices."""
    rng = np.random.default_rng(seed)
    tiny = tiny_instance(rng, **size)
    cluster = tiny.cluster
    count = cluster.num_devices
    if even and count % 2 == 0 and len(cluster.levels) > 1:
        levels = (cluster.levels[0], cluster.levels[-1])
        cluster = replace(cluster, levels=levels, sizes=((count // 2,) * 2, (count,)), overrides=())
    table = random_table(rng, cluster, families_on(rng, cluster, 60))
    return replace(tiny, cluster=cluster.with_collectives(table))


def plain(tiny: TinyInstance) -> TinyInstance:
    return replace(tiny, cluster=tiny.cluster.with_collectives(None))


def agree_on(seeds: range, **size: int) -> tuple[int, int]:
    """Hold the dynamic program to the enumeration; how many have a plan, and another optimum."""
    feasible = changed = 0
    for seed in seeds:
        tiny = with_table(seed, even=seed % 2 == 0, **size)
        truth = structured_optimum(tiny)
        try:
            check_outcome(tiny, search(tiny), truth)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {size}: {error}") from error
        if math.isfinite(truth):
            feasible += 1
            changed += truth < search(plain(tiny)).objective * (1 - 1e-9)
    return feasible, changed


@pytest.mark.parametrize(("low", "count"), [(0, 8), *slow((low, 20) for low in range(0, 240, 20))])
def test_dp_with_a_table_finds_the_enumerated_optimum(low: int, count: int) -> None:
    feasible, changed = agree_on(range(low, low + count), devices=4, operators=3, modes=1)
    assert feasible > count // 4
    assert changed > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_dp_with_a_table_finds_the_enumerated_optimum_five_hundred_times(block: int) -> None:
    low = 1000 + 50 * block
    feasible, changed = agree_on(range(low, low + 50), devices=4, operators=3, modes=2)
    assert feasible > 20
    assert changed > 5


@pytest.mark.parametrize(
    ("low", "count"), [(3000, 4), *slow((low, 8) for low in range(3000, 3040, 8))]
)
def test_dp_with_a_table_is_exact_with_decompositions(low: int, count: int) -> None:
    size = {"devices": 4, "operators": 2, "modes": 1, "decomposed": True}
    feasible, _ = agree_on(range(low, low + count), **size)
    assert feasible > count // 4


def bounds_hold(seed: int, **size: int) -> tuple[float, float]:
    tiny = with_table(seed, even=seed % 2 == 0, **size)
    truth = general_optimum(tiny)
    found = search(tiny)
    assert found.general_bound <= truth * (1 + 1e-9), f"seed {seed}"
    assert truth <= found.objective * (1 + 1e-9), f"seed {seed}"
    instance = tiny.instance
    options = SolveOptions()
    for row in bounds(instance, options):
        assert row["value"] <= truth * (1 + 1e-9), f"seed {seed}: {row['name']}"
    return found.general_bound, truth


@pytest.mark.parametrize(("low", "count"), [(0, 6), *slow((low, 10) for low in range(0, 60, 10))])
def test_bounds_with_a_table_are_below_the_enumerated_general_optimum(low: int, count: int) -> None:
    pairs = [
        bounds_hold(seed, devices=3 + low // 10 % 2, operators=2, modes=1)
        for seed in range(low, low + count)
    ]
    assert any(math.isfinite(truth) for _, truth in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_bounds_with_a_table_hold_on_four_devices(block: int) -> None:
    for seed in range(2000 + 15 * block, 2015 + 15 * block):
        bounds_hold(seed, devices=4, operators=3, modes=1)


@pytest.mark.parametrize("count", [12, *slow([60])])
def test_bounds_with_a_table_are_often_close(count: int) -> None:
    ratios = []
    for seed in range(count):
        found = search(with_table(seed, even=True, devices=5, operators=4, modes=1))
        if found.plan is not None:
            ratios.append(found.general_bound / found.objective)
    assert np.median(ratios) > 0.9
