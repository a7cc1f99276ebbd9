"""Laws of the checker's prices on random plans, with any tensor decomposition too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plan_cases import random_case, with_overlap
from sampling import slow

from nestopt.placement.judge.check import price
from nestopt.placement.model.cluster import Level

DECOMPOSED = pytest.mark.parametrize("decomposed", [False, True])


@DECOMPOSED
@pytest.mark.parametrize("seed", [*range(20), *slow(range(20, 60))])
def test_a_slower_link_never_lowers_the_cost(seed, decomposed):
    rng = np.random.default_rng(seed)
    workload, cluster, plan = random_case(rng, decomposed=decomposed)
    before = price(workload, cluster, plan).iteration_time
    level = int(rng.integers(len(cluster.levels)))
    for change in ("port", "latency", "uplink"):
        figure = getattr(cluster.levels[level], change)
        slower = replace(
            cluster.levels[level], **{change: figure * 3 if change == "latency" else figure / 3}
        )
        levels = (*cluster.levels[:level], slower, *cluster.levels[level + 1 :])
        after = price(workload, replace(cluster, levels=levels), plan).iteration_time
        assert after >= before * (1 - 1e-12)


@DECOMPOSED
@pytest.mark.parametrize("seed", [*range(20), *slow(range(20, 60))])
def test_doubling_all_times_doubles_the_cost(seed, decomposed):
    workload, cluster, plan = random_case(
        np.random.default_rng(seed), ("1f1b", "gpipe", "interleaved"), decomposed=decomposed
    )
    slow = replace(
        cluster,
        levels=tuple(
            Level(v.name, 2 * v.latency, v.port / 2, v.uplink / 2) for v in cluster.levels
        ),
        overrides=tuple(
            replace(
                o,
                latency=None if o.latency is None else 2 * o.latency,
                port=None if o.port is None else o.port / 2,
                uplink=None if o.uplink is None else o.uplink / 2,
            )
            for o in cluster.overrides
        ),
        types=tuple(
            replace(t, peak=t.peak / 2, memory_bandwidth=t.memory_bandwidth / 2)
            for t in cluster.types
        ),
    )
    timed = replace(
        workload,
        operators=tuple(
            replace(
                o,
                time_fwd={k: 2 * v for k, v in o.time_fwd.items()},
                time_bwd={k: 2 * v for k, v in o.time_bwd.items()},
            )
            for o in workload.operators
        ),
    )
    once, twice = price(workload, cluster, plan), price(timed, slow, plan)
    assert twice.iteration_time == pytest.approx(2 * once.iteration_time, rel=1e-13)
    assert twice.bottleneck == pytest.approx(2 * once.bottleneck, rel=1e-13)


@DECOMPOSED
@pytest.mark.parametrize("seed", range(30))
def test_the_order_of_replicas_does_not_matter(seed, decomposed):
    workload, cluster, plan = random_case(np.random.default_rng(seed), decomposed=decomposed)
    order = np.random.default_rng(seed).permutation(plan.replicas)
    turned = replace(plan, stages=tuple(replace(s, devices=s.devices[order]) for s in plan.stages))
    one, other = price(workload, cluster, plan), price(workload, cluster, turned)
    assert other.iteration_time == pytest.approx(one.iteration_time, rel=1e-12)


@pytest.mark.parametrize("seed", [*range(20), *slow(range(20, 60))])
def test_overlap_hides_at_most_what_there_is(seed):
    """Between the plan without overlap and the one whose network costs nothing."""
    workload, cluster, plan = random_case(np.random.default_rng(seed), decomposed=True)
    free = replace(
        cluster,
        levels=tuple(Level(v.name, 0.0, 1e30, v.uplink * 1e20) for v in cluster.levels),
        overrides=(),
    )
    off, on = (price(workload, cluster, with_overlap(plan, o)).stages for o in (False, True))
    least = price(workload, free, plan).stages
    for most, hidden, compute in zip(off, on, least):
        seconds = [x.forward + x.backward for x in (compute, hidden, most)]
        assert seconds[0] <= seconds[1] * (1 + 1e-12)
        assert seconds[1] <= seconds[2] * (1 + 1e-12)
        assert hidden.memory == most.memory


@pytest.mark.parametrize("seed", [*range(20), *slow(range(20, 60))])
def test_the_order_along_an_axis_does_not_matter(seed):
    """Parts of x, y and z may be renumbered, the same way in every group."""
    rng = np.random.default_rng(seed)
    workload, cluster, plan = random_case(rng, decomposed=True)
    stages = []
    for stage in plan.stages:
        x, y, z = stage.config.tensor
        box = stage.devices.reshape(-1, z, y, x)
        box = box[:, rng.permutation(z)][:, :, rng.permutation(y)][..., rng.permutation(x)]
        stages.append(replace(stage, devices=box.reshape(stage.devices.shape)))
    before = price(workload, cluster, plan)
    after = price(workload, cluster, replace(plan, stages=tuple(stages)))
    assert after.iteration_time == pytest.approx(before.iteration_time, rel=1e-12)
