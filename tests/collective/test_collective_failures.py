"""All-Gather after three NPUs have failed, beside a ring that is formed anew over the survivors.

``pytest -m slow -s tests/collective/test_collective_failures.py`` prints the tables.
"""

from __future__ import annotations

import numpy as np
import pytest
from collective_cases import greedy, instance

from nestopt.collective.baselines import baseline_schedule
from nestopt.collective.bounds import best_bound
from nestopt.collective.greedy.bound import quick_bound
from nestopt.collective.greedy.solve import synthesize
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.judge.check_steps import check_steps
from nestopt.collective.model.connectivity import find_separation
from nestopt.collective.model.steps import StepSchedule
from nestopt.core.options import SolveOptions
from nestopt.core.registry import named

FAILED, SEEDS = 3, 100


def after_failures(name: str, seeds: range) -> np.ndarray:
    """Rows (bound, greedy, ring) in sends one after the other, a row a seed.

    Failures that cut the network in two are left out.
    """
    whole = named("topology", name)
    rows = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        dead = rng.choice(whole.num_nodes, FAILED, replace=False).tolist()
        problem = instance(whole.without(npus=dead))
        if find_separation(problem) is not None:
            assert greedy(problem).infeasible_because
            continue
        bound = int(quick_bound(problem)["value"])
        made = synthesize(problem, SolveOptions(), target=bound).schedule
        if made.makespan_ps > bound:
            bound = best_bound(problem)["value"]
        ring = baseline_schedule(problem, "ring")
        if isinstance(made, StepSchedule):
            check_steps(problem, made)
        else:
            check_schedule(problem, made)
        check_schedule(problem, ring)
        step = int(problem.transfer_ps(problem.collective.chunk_size)[0])
        rows.append([bound / step, made.makespan_ps / step, ring.makespan_ps / step])
    return np.array(rows)


def described(name: str, rows: np.ndarray) -> str:
    bound, made, ring = rows.T
    gap, ratio = 1.0 - bound / made, ring / made
    return (
        f"{name}, {len(rows)} networks: greedy {made.mean():.1f} (bound {bound.mean():.1f}), gap "
        f"mean {100 * gap.mean():.2f} %, worst {100 * gap.max():.2f} %, none in "
        f"{(gap == 0).sum()}; ring {ring.mean():.1f}, ring / greedy geometric mean "
        f"{np.exp(np.log(ratio).mean()):.2f}, least {ratio.min():.2f}, most {ratio.max():.2f}"
    )


def judge(rows: np.ndarray, mean_gap: float = 0.01) -> None:
    bound, made, ring = rows.T
    assert (bound <= made).all()
    assert (made <= ring).all()
    assert (1.0 - bound / made).mean() <= mean_gap


@pytest.mark.parametrize("name", ["mesh2d:8x8", "torus2d:8x8"])
def test_greedy_is_shorter_than_the_ring_of_the_survivors(name: str) -> None:
    judge(after_failures(name, range(10)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mesh2d:8x8", "torus2d:8x8", "mesh2d:32x32", "torus2d:32x32"])
def test_a_hundred_failures_of_three_npus(name: str) -> None:
    rows = after_failures(name, range(SEEDS))
    print("\n" + described(name, rows))
    assert len(rows) >= 0.9 * SEEDS
    judge(rows, mean_gap=0.005)
