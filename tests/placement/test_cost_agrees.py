"""The stage-cost module against the independent pricing of the checker, on random plans."""

from __future__ import annotations

import numpy as np
import pytest
from plan_cases import random_case, roomy
from sampling import slow

from nestopt.placement.judge.check import check_plan, price
from nestopt.placement.pricing.evaluate import evaluate, reported

SCHEDULES = ("1f1b", "gpipe", "interleaved")


@pytest.mark.parametrize("decomposed", [False, True])
@pytest.mark.parametrize(
    ("low", "count"), [(0, 50), *slow((low, 200) for low in range(0, 2000, 200))]
)
def test_evaluator_and_checker_price_alike(low, count, decomposed):
    for seed in range(low, low + count):
        workload, cluster, plan = random_case(
            np.random.default_rng(seed), SCHEDULES, decomposed=decomposed
        )
        ours, theirs = evaluate(workload, cluster, plan), price(workload, cluster, plan)
        for name, figures, others in (
            ("seconds", ours.seconds, [s.seconds for s in theirs.stages]),
            ("sync", ours.sync, [s.sync for s in theirs.stages]),
            ("memory", ours.need, [s.memory for s in theirs.stages]),
            ("usable", ours.room, [s.usable for s in theirs.stages]),
            ("iteration time", ours.iteration_time, theirs.iteration_time),
            ("bottleneck", ours.bottleneck, theirs.bottleneck),
        ):
            np.testing.assert_allclose(
                figures, others, rtol=1e-12, atol=0, err_msg=f"{name} of seed {seed}"
            )
        assert ours.fits == all(s.memory <= s.usable for s in theirs.stages)
        assert ours.objective("bottleneck") == ours.bottleneck
        assert ours.objective("iteration-time") == ours.iteration_time


@pytest.mark.parametrize("seed", range(20))
def test_reported_figures_satisfy_the_checker(seed):
    workload, cluster, plan = random_case(np.random.default_rng(seed), SCHEDULES)
    big = roomy(cluster)
    shown, _ = reported(workload, big, plan)
    lines = check_plan(workload, big, shown)
    assert lines[-1] == (
        f"the {3 * len(plan.stages)} figures that the plan reports of its stages agree"
    )


@pytest.mark.parametrize("seed", range(20))
def test_iteration_time_is_the_formula(seed):
    """sum t_q / v + (m - 1/v) max t_q + max S_q, the sum included (nnScaler #30 left it out)."""
    workload, cluster, plan = random_case(np.random.default_rng(seed), SCHEDULES)
    priced = evaluate(workload, cluster, plan)
    m = workload.global_batch / (plan.replicas * plan.microbatch)
    t, v = priced.seconds, plan.chunks
    expected = sum(t) / v + (m - 1 / v) * max(t) + max(priced.sync)
    assert priced.iteration_time == pytest.approx(expected, rel=1e-12)
    assert priced.bottleneck == max(t)
