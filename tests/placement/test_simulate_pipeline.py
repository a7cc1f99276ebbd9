"""The event simulator: by hand and by its own rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pipeline_cases import order_of, pipeline
from plan_cases import random_case, tiny_plan

from nestopt.placement.judge.check import contended_syncs, price
from nestopt.placement.judge.simulate import pipeline_of, run, simulate
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.workload import Operator, Workload


def test_two_stages_by_hand():
    # stage 0: F0 0-1, F1 1-2, B0 4-6, B1 7-9; stage 1: F0 1-2, B0 2-4, F1 4-5, B1 5-7
    line = run(pipeline([1, 1], [2, 2], None, 2))
    assert line.forward_end[:, 0].tolist() == [[1, 2], [2, 5]]
    assert line.backward_end[:, 0].tolist() == [[6, 9], [4, 7]]
    assert line.seconds == 9
    assert line.idle.tolist() == [3 / 9, 1 / 7]


def test_transfers_by_hand():
    # half a second each way. Asynchronous: stage 1: F0 1.5-2.5, B0 -4.5, F1 -5.5, B1 -7.5;
    # stage 0: B0 5-7, B1 8-10. Blocking: stage 0 sends F0 1-1.5, runs F1 1.5-2.5, sends it -3;
    # stage 1 receives F0 1-1.5, F0 -2.5, B0 -4.5, sends -5, receives F1 -5.5, F1 -6.5, B1 -8.5,
    # sends -9; stage 0 receives B0 4.5-5, B0 -7, receives B1 8.5-9, B1 -11
    pipe = pipeline([1, 1], [2, 2], [0.5, 0], 2)
    assert run(pipe).seconds == 10
    assert run(pipe, blocking=True).seconds == 11
    assert pipe.closed_form() == 2 * 4 + 1 * 4


def test_a_link_carries_one_transfer_at_a_time():
    # GPipe, F 1, transfer 3: arrivals at 4, 7, 10; stage 1: F2 10-11, then B0, B1, B2, 1 s each,
    # 11-14, sent back by 15, 18, 21, and stage 0's last B 21-22
    line = run(pipeline([1, 1], [1, 1], [3, 0], 3, "gpipe"))
    assert line.forward_end[1, 0].tolist() == [5, 8, 11]
    assert line.seconds == 22


def test_synchronisation_follows_a_stages_last_task():
    line = run(pipeline([1, 1], [2, 2], None, 2, sync=[1, 5]))
    assert line.sync_start.tolist() == [9, 7]
    assert line.seconds == 12


def test_interleaving_by_hand():
    # Two stages of two chunks, F = B = 1, m = 2. Warm-up of stage 0: 2*1 + 1*2 = 4 tasks, all
    # forward ones: chunk 0 of 0, 1 (0-2), chunk 1 of 0, 1 (2-4). Stage 1 warms up with 2: chunk 0
    # of 0, 1 (1-3); then chunk 1 of 0 (3-4), its backward (4-5), chunk 1 of 1 (5-6), backward
    # (6-7); then backward of chunk 0. Stage 0: backward chunk 1 of 0 (5-6), of 1 (7-8); stage 1:
    # backward chunk 0 of 0 (7-8), of 1 (8-9); stage 0: (8-9), (9-10).
    line = run(pipeline([1, 1], [1, 1], None, 2, "interleaved", 2))
    assert line.forward_end[0].tolist() == [[1, 2], [3, 4]]
    assert line.forward_end[1].tolist() == [[2, 3], [4, 6]]
    assert line.backward_end[1].tolist() == [[8, 9], [5, 7]]
    assert line.backward_end[0].tolist() == [[9, 10], [6, 8]]
    assert line.seconds == 10


def even_interleaved(s, v, rounds):
    return pipeline([1] * s, [2] * s, None, rounds * s, "interleaved", v)


@pytest.mark.parametrize("s", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("v", [1, 2, 3])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_interleaving_of_equal_stages_meets_the_closed_form(s, v, rounds):
    # work m v (F + B) and a bubble of (s - 1) (F + B), as Narayanan et al. say
    pipe = even_interleaved(s, v, rounds)
    seconds = 3 * (rounds * s * v + s - 1)
    assert run(pipe).seconds == pytest.approx(seconds)
    assert pipe.closed_form() == pytest.approx(seconds)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("s", "m"), [(1, 1), (1, 9), (2, 1), (4, 4), (4, 3), (7, 20), (16, 64)])
def test_equal_stages_meet_the_closed_form(schedule, s, m):
    pipe = pipeline([1.0] * s, [2.0] * s, None, m, schedule)
    assert run(pipe).seconds == pytest.approx(3 * (m + s - 1))
    assert run(pipe, blocking=True).seconds == pytest.approx(pipe.closed_form())


# --- the rules of the event system --------------------------------------------------------------


@pytest.mark.parametrize("seed", range(80))
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved"])
def test_tasks_start_as_soon_as_stage_and_input_allow(seed, schedule):
    rng = np.random.default_rng(seed)
    s, v = int(rng.integers(1, 6)), int(rng.integers(1, 4)) if schedule == "interleaved" else 1
    m = s * int(rng.integers(1, 4)) if schedule == "interleaved" else int(rng.integers(1, 9))
    pipe = pipeline(
        rng.random(s), rng.random(s), list(rng.random(s) * rng.choice([0, 0.2, 2])), m, schedule, v
    )
    line = run(pipe)
    arrivals: dict[tuple[bool, int, int, int], float] = {}
    for forward, ends in ((True, line.forward_end), (False, line.backward_end)):
        for q in range(s):
            free = 0.0
            for up, c, i in order_of(pipe, q):
                ending = (q, c) == ((s - 1, v - 1) if forward else (0, 0))
                if up is not forward or ending:
                    continue
                # the link carries this stage's outputs in the order in which they are made
                free = max(free, ends[q, c, i]) + pipe.hop[q if forward else q - 1]
                to = (q + 1) % s if forward else (q - 1) % s
                chunk = c + (q == s - 1) if forward else c - (q == 0)
                arrivals[forward, to, chunk, i] = free
    for q in range(s):
        free = 0.0
        for forward, c, i in order_of(pipe, q):
            ready = arrivals.get((forward, q, c, i), 0.0)
            length = pipe.forward[q] if forward else pipe.backward[q]
            end = (line.forward_end if forward else line.backward_end)[q, c, i]
            assert end == pytest.approx(max(free, ready) + length)
            free = end


def test_many_micro_batches():
    m = 6400
    pipe = pipeline([1] * 64, [2] * 64, None, m)
    assert run(pipe).seconds == pytest.approx(3 * (m + 63))
    # 1F1B has 64 micro-batches on the way, so transfers do not hide behind work: 64 micro-batches
    # take a round trip of 64 * 3 + 63 * 2 * 0.1; closed form: a stage of 3 + 4 * 0.1 each
    pipe = pipeline([1] * 64, [2] * 64, [0.1] * 63 + [0], m)
    assert run(pipe).seconds == pytest.approx((64 * 3 + 63 * 0.2) / 64 * m, rel=0.02)
    assert pipe.closed_form() == pytest.approx(64 * 3.4 - 0.4 + (m - 1) * 3.4)


def test_simulation_of_a_plan():
    figures = simulate(*tiny_plan())
    # F 1, B 2, a hop of 10.6 each way, m 4, two stages, sync 4.3. Forward ends at 1, 2; stage 1:
    # inputs at 11.6, 22.2: F0 -12.6, B0 -14.6, F1 -23.2, B1 -25.2; back at 25.2, 35.8; stage 0:
    # B0 -27.2, F2 -28.2, B1 -37.8, F3 -38.8; stage 1: inputs at 38.8, 49.4: F2 -39.8, B2 -41.8,
    # F3 -50.4, B3 -52.4; back at 52.4, 63: stage 0: B2 -54.4, B3 -65; and 4.3
    assert figures["simulated"] == pytest.approx(69.3)
    assert figures["closed_form"] == pytest.approx(125.3)
    assert figures["simulated"] < figures["simulated_blocking"] <= figures["closed_form"]
    assert figures["relative_difference"] == pytest.approx(figures["simulated"] / 125.3 - 1)
    assert figures["sync_contended"] == pytest.approx(4.3)
    assert figures["simulated_contended"] == figures["simulated"]
    assert figures["tasks"] == 16


def interleaved_tiny():
    workload, cluster, plan = tiny_plan()
    return workload, cluster, replace(plan, schedule="interleaved", chunks=2)


def test_chunks_return_to_the_first_stage_over_the_same_network():
    workload, cluster, plan = interleaved_tiny()
    pipe = pipeline_of(workload, cluster, plan, price(workload, cluster, plan))
    # each way 10 + 30/50 s, and as much from the last stage back to the first
    assert pipe.hop.tolist() == pytest.approx([10.6, 10.6])
    assert pipe.forward.tolist() == pytest.approx([0.5, 0.5])


def test_stages_that_share_an_uplink_slow_each_other_down():
    # Two nodes of two devices, 30 B/s up; both stages have a replica in each node. Alone each
    # stage crosses an uplink once: ring max(1/50, 1/30), direct 1/2 / 30; together twice.
    # P = 10: all-reduce of 40 B: 2 * (10 + 40 * 1/2 * 1/30) alone, 2 * (10 + 40 / 30) together
    cluster = Cluster.regular(
        "two", (2, 2), (Level("node", 1.0, 100.0, 30.0), Level("top", 10.0, 50.0)),
        (DeviceType("gpu", 1000.0, 1e6, 400.0),),
    )  # fmt: skip
    workload = Workload.chain("two", [Operator("a", params=10), Operator("b", params=10)], 1.0, 4)
    stages = (
        Stage((0,), StageConfig(), np.array([[0], [2]])),
        Stage((1,), StageConfig(), np.array([[1], [3]])),
    )
    plan = Plan(stages, 2, 1)
    step = 30 * 10 / 400
    alone = [s.sync for s in price(workload, cluster, plan).stages]
    assert alone == pytest.approx([2 * (10 + 40 / 60) + step] * 2)
    assert contended_syncs(workload, cluster, plan) == pytest.approx(
        [2 * (10 + 40 / 30) + step] * 2
    )
    # a stage that does not synchronise leaves the uplink to the other
    quiet = replace(plan, stages=(stages[0], replace(stages[1], config=StageConfig(zero=3))))
    assert contended_syncs(workload, cluster, quiet)[0] == pytest.approx(alone[0])


@pytest.mark.parametrize("seed", range(40))
def test_contention_never_helps(seed):
    workload, cluster, plan = random_case(np.random.default_rng(seed))
    pricing = price(workload, cluster, plan)
    for stage, contended in zip(pricing.stages, contended_syncs(workload, cluster, plan)):
        assert contended >= stage.sync * (1 - 1e-12)
