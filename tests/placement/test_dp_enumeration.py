"""The dynamic program against exhaustive enumeration, priced by the independent checker."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from random_instances import TinyInstance, tiny_instance
from sampling import slow
from truth import check_outcome, search, structured_optimum

from nestopt.placement.model.workload import Edge, Operator, Tied, Workload


def agree(tiny: TinyInstance) -> bool:
    """Hold the dynamic program to the enumeration; whether there is a plan at all."""
    truth = structured_optimum(tiny)
    check_outcome(tiny, search(tiny), truth)
    return math.isfinite(truth)


def agree_on(seeds: range, **size: int) -> int:
    feasible = 0
    for seed in seeds:
        tiny = tiny_instance(np.random.default_rng(seed), **size)
        try:
            feasible += agree(tiny)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {size}: {error}") from error
    return feasible


@pytest.mark.parametrize(
    ("low", "count", "modes"),
    [(0, 2, 2), (10, 8, 1), *slow((low, 10, 1 if low else 2) for low in range(0, 120, 10))],
)
def test_dp_finds_the_enumerated_optimum(low, count, modes):
    assert agree_on(range(low, low + count), devices=4, operators=3, modes=modes) > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_dp_finds_the_enumerated_optimum_a_thousand_times(block):
    for modes in (1, 2):
        low = 1000 * modes + 40 * block
        assert agree_on(range(low, low + 40), devices=4, operators=3, modes=modes) > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_dp_finds_the_enumerated_optimum_on_five_devices(block):
    assert agree_on(range(5000 + 10 * block, 5010 + 10 * block), devices=5, operators=4, modes=1)


def with_options(tiny: TinyInstance, **changes: str) -> TinyInstance:
    return replace(tiny, options=tiny.options | changes)


@pytest.mark.parametrize("seed", [*range(5), *slow(range(5, 15))])
def test_uniform_configurations(seed):
    tiny = tiny_instance(np.random.default_rng(seed), devices=4, operators=3)
    agree(with_options(tiny, uniform="true"))


@pytest.mark.parametrize("seed", [*range(4), *slow(range(4, 10))])
def test_gpipe(seed):
    tiny = tiny_instance(np.random.default_rng(700 + seed), devices=4, operators=3, modes=1)
    agree(with_options(tiny, schedule="gpipe"))


@pytest.mark.parametrize("layout", ["inner", "outer"])
@pytest.mark.parametrize("seed", [0, 1, *slow(range(2, 5))])
def test_one_layout_alone(seed, layout):
    tiny = tiny_instance(np.random.default_rng(800 + seed), devices=4, operators=3, modes=1)
    agree(with_options(tiny, layout=layout))


def doubled(workload: Workload) -> Workload:
    """Every operator twice in a row, so that two chunks divide the stages."""
    operators: list[Operator] = []
    edges = []
    for index, o in enumerate(workload.operators):
        operators += [replace(o, name=f"{o.name}.{half}") for half in "ab"]
        edges.append(Edge(2 * index, 2 * index + 1, 1e7))
    edges += [Edge(2 * e.source + 1, 2 * e.target, e.bytes) for e in workload.edges]
    tied = workload.tied and Tied(0, len(operators) - 1, workload.tied.params)
    return Workload("doubled", tuple(operators), tuple(edges), workload.global_batch, tied=tied)


def interleaved(seed: int) -> TinyInstance:
    tiny = tiny_instance(np.random.default_rng(seed), devices=4, operators=2, modes=1)
    changed = replace(tiny, workload=doubled(tiny.workload))
    return with_options(changed, schedule="interleaved", chunks="2")


@pytest.mark.parametrize(("low", "count"), [(0, 4), *slow((low, 8) for low in range(0, 40, 8))])
def test_interleaving(low, count):
    assert sum(agree(interleaved(seed)) for seed in range(low, low + count)) > 0


def test_interleaved_instances_have_pipelines():
    # else the test above would compare nothing but single stages
    longest = 0
    for seed in range(40):
        plan = search(interleaved(seed)).plan
        longest = max(longest, len(plan.stages) if plan else 0)
        if longest >= 2:
            break
    assert longest >= 2


@pytest.mark.parametrize("seed", [*range(4), *slow(range(4, 30))])
def test_a_gap_that_is_allowed_is_kept(seed):
    tiny = tiny_instance(np.random.default_rng(900 + seed), devices=4, operators=3, modes=1)
    exact, rough = search(tiny), search(tiny, rel_gap=0.2)
    assert rough.limit is None
    if exact.plan is None:
        assert rough.plan is None
        return
    assert exact.objective <= rough.objective <= exact.objective / (1 - 0.2) * (1 + 1e-12)
    assert rough.objective * (1 - 0.2) <= rough.bound <= exact.objective * (1 + 1e-12)


def test_the_random_instances_cover_what_they_should():
    seen: dict[str, set[object]] = {}
    for seed in range(200):
        tiny = tiny_instance(np.random.default_rng(seed), devices=4, operators=3)
        cluster, workload = tiny.cluster, tiny.workload
        uneven = any(len(set(sizes)) > 1 for sizes in cluster.sizes)
        for what, value in (
            ("levels", len(cluster.levels)),
            ("types", len({int(cluster.type_of[i]) for i in cluster.alive})),
            ("failures", len(cluster.failed)),
            ("devices", len(cluster.alive)),
            ("uneven", uneven),
            ("chain", workload.is_chain),
            ("objective", tiny.objective),
            ("schedule", str(tiny.space.schedules[0])),
            ("uniform", tiny.space.uniform),
            ("tied", workload.tied is not None),
            ("experts", any(o.experts for o in workload.operators)),
            ("measured", any(o.time_fwd for o in workload.operators)),
        ):
            seen.setdefault(what, set()).add(value)
    assert seen.pop("levels") == {1, 2, 3, 4}
    assert seen.pop("failures") == {0, 1, 2, 3}
    assert seen.pop("devices") == {1, 2, 3, 4}
    assert seen.pop("types") == {1, 2}
    assert seen.pop("objective") == {"iteration-time", "bottleneck"}
    assert seen.pop("schedule") == {"1f1b", "gpipe"}
    assert all(values == {True, False} for values in seen.values()), seen
