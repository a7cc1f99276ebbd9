"""The simulated time against the closed form: by how much it may be longer, and is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pipeline_cases import order_of, pipeline, random_pipeline
from plan_cases import random_case, tiny_plan
from sampling import slow

from nestopt.placement.judge.check import price
from nestopt.placement.judge.simulate import Pipeline, pipeline_of, run, simulate
from nestopt.placement.judge.simulate_bound import latest_end

SCHEDULES = ("1f1b", "gpipe", "interleaved")
BLOCKING = pytest.mark.parametrize("blocking", [False, True])


def times(pipe: Pipeline, blocking: bool = False) -> tuple[float, float, float]:
    """Closed form, simulated time and documented excess."""
    excess = pipe.documented_excess(blocking=blocking)
    return pipe.closed_form(), run(pipe, blocking=blocking).seconds, excess


# --- by hand ------------------------------------------------------------------------------------


@BLOCKING
def test_smallest_underestimates(blocking):
    """As the simulator documents: forward and backward slow on different stages."""
    assert times(pipeline([1, 0, 0], [0, 1, 0], None, 2), blocking) == (3, 4, 1)
    assert times(pipeline([1, 0], [0, 1], None, 2, "gpipe"), blocking) == (3, 4, 1)
    # Stage 0 warms up with all its forward tasks, 0-4. Stage 1 has B0 after F2, 3-4, B1 after F3
    # and two more: 4-7
    assert times(pipeline([1, 0], [0, 1], None, 2, "interleaved", 2), blocking) == (5, 7, 2)


@BLOCKING
def test_the_slowest_stage_may_come_early_and_late(blocking):
    # Forward tasks take no time. Stage 3 ends B3 at 4 and can run F8, which returns to stage 0 as
    # F12; there F12 comes before B2, and B2-B15 take until 18. Mirrored for slow forward tasks
    slow = [1, 0, 0, 1]
    assert times(pipeline([0] * 4, slow, None, 8, "interleaved", 2), blocking) == (17, 18, 1)
    assert times(pipeline(slow, [0] * 4, None, 8, "interleaved", 2), blocking) == (17, 18, 1)


def test_transfers_round_to_the_first_stage():
    # Stage 0 has F0 0-1, F1 1-2, waits a second for F0 from stage 1 (1-2), F2 3-4, F3 4-5; stage 1:
    # F2 4-5, B0 5-6; stage 0: B0 6-7; stage 1 waits until 8 for it: B2 8-9, and all ends 2 s later
    pipe = pipeline([1, 1], [1, 1], [0, 1], 2, "interleaved", 2)
    assert times(pipe) == (10, 12, 2)
    # stage 1 is busy with two transfers there and two back for a second each
    assert times(pipe, blocking=True) == (10, 14, 4)


@BLOCKING
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("s", "v", "m"), [(1, 1, 3), (2, 2, 4), (4, 2, 4), (4, 3, 12), (8, 2, 64)])
def test_nothing_to_document_if_stages_are_equal(schedule, blocking, s, v, m):
    v = v if schedule == "interleaved" else 1
    pipe = pipeline([0.1] * s, [0.2] * s, None, m, schedule, v)
    assert pipe.documented_excess(blocking=blocking) == 0
    assert run(pipe, blocking=blocking).seconds == pytest.approx(pipe.closed_form())


# --- at random ----------------------------------------------------------------------------------


@BLOCKING
@pytest.mark.parametrize("count", [1000, *slow([3000])])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_never_beyond_the_documented_excess(schedule, blocking, count):
    rng = np.random.default_rng(2)
    under, closest = 0, 0.0
    for _ in range(count):
        pipe = random_pipeline(rng, schedule)
        closed, seconds, excess = times(pipe, blocking)
        assert seconds <= (closed + excess) * (1 + 1e-12)
        if seconds > closed * (1 + 1e-6):
            under += 1
            closest = max(closest, (seconds - closed) / excess)
    assert under > count // 300  # the excess is real, not only allowed for
    assert closest == pytest.approx(1)


@BLOCKING
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_search_gets_beyond_the_documented_excess(schedule, blocking):
    """Climbing from random pipelines, one figure at a time, towards the bound."""
    rng = np.random.default_rng(3)
    reached = []
    for _ in range(25):
        pipe = random_pipeline(rng, schedule)
        best = 0.0
        for _ in range(80):
            name = str(rng.choice(["forward", "backward", "hop"]))
            figures = getattr(pipe, name).copy()
            q = int(rng.integers(len(figures)))
            figures[q] = rng.choice([0, figures.max(), figures[q] * rng.uniform(0.5, 2), 1])
            changed = replace(pipe, **{name: figures})
            bound = latest_end(changed, blocking=blocking)
            ratio = run(changed, blocking=blocking).seconds / bound if bound else 0.0
            if ratio >= best:
                pipe, best = changed, ratio
        reached.append(best)
    assert max(reached) == pytest.approx(1, rel=1e-12)


@BLOCKING
def test_gpipe_takes_as_long_as_documented(blocking):
    rng = np.random.default_rng(4)
    for _ in range(500):
        pipe = random_pipeline(rng, "gpipe")
        latest = latest_end(pipe, blocking=blocking)
        assert run(pipe, blocking=blocking).seconds == pytest.approx(latest)


@BLOCKING
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_no_underestimate_if_stages_divide_their_time_alike(schedule, blocking):
    rng = np.random.default_rng(1)
    for _ in range(1500):
        s, m, share = int(rng.integers(1, 7)), int(rng.integers(1, 13)), rng.random()
        seconds = rng.random(s) * rng.integers(0, 2, s)
        pipe = pipeline(share * seconds, (1 - share) * seconds, None, m, schedule)
        assert pipe.documented_excess(blocking=blocking) == 0
        assert run(pipe, blocking=blocking).seconds <= pipe.closed_form() * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(60))
def test_what_waits_stands_in_a_later_slot(seed):
    """The slots of interleaving in the derivation of the bound, against the order of tasks."""
    rng = np.random.default_rng(seed)
    s, v = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    m = s * int(rng.integers(1, 4))
    pipe = pipeline([1] * s, [1] * s, None, m, "interleaved", v)
    slots: dict[tuple[int, bool, int, int], int] = {}
    for q in range(s):
        previous = None
        counts = {True: 0, False: 0}
        for forward, c, i in order_of(pipe, q):
            start = q if forward else s - 1 - q + v * s - 1
            slots[q, forward, c, i] = slot = start + counts[forward]
            counts[forward] += 1
            if previous is not None:
                assert slot - previous[1] >= int(forward or not previous[0])
            previous = forward, slot
    assert (min(slots.values()), max(slots.values())) == (0, v * m + s + v * s - 3)
    for (q, forward, c, i), slot in slots.items():
        if forward:
            following = (q + 1, c) if q < s - 1 else (0, c + 1)
        else:
            following = (q - 1, c) if q else (s - 1, c - 1)
        if 0 <= following[1] < v:
            assert slots[following[0], forward, following[1], i] > slot
    for i in range(m):
        assert slots[s - 1, False, v - 1, i] >= slots[s - 1, True, v - 1, i]


# --- random plans -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [20, *slow([200])])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_random_plans_against_the_closed_form(schedule, count, record_property):
    """None beyond its excess; asynchronous 1F1B and interleaving not underestimated here."""
    differences: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(count * (2 if schedule == "interleaved" else 1)):
        workload, cluster, plan = random_case(
            np.random.default_rng(seed), (schedule,), decomposed=seed % 2 == 1
        )
        pricing = price(workload, cluster, plan)
        pipe = pipeline_of(workload, cluster, plan, pricing)
        closed = pricing.iteration_time
        assert pipe.closed_form() == pytest.approx(closed, rel=1e-12)
        busiest = max(s.forward + s.backward for s in pricing.stages)
        for blocking in (False, True):
            _, seconds, excess = times(pipe, blocking)
            assert pricing.microbatches * busiest * (1 - 1e-12) <= seconds
            assert seconds <= (closed + excess) * (1 + 1e-12)
            differences[blocking].append(seconds / closed - 1)
    for blocking, found in differences.items():
        name = "blocking" if blocking else "asynchronous"
        record_property(f"relative_difference_{name}", (min(found), max(found)))
        print(f"{schedule}, {name}: {min(found):+.1%} to {max(found):+.1%}")
    assert -0.7 < min(differences[False]) < -0.1
    if schedule != "gpipe":
        assert max(differences[False]) < 1e-12
    if schedule == "gpipe":
        assert max(differences[True]) > 0.1
    elif schedule == "interleaved" and count == 200:
        # stages have at least as many operators as chunks, and so short transfers here
        assert max(differences[True]) > 0.01


def test_simulation_states_both_excesses():
    workload, cluster, plan = tiny_plan()
    figures = simulate(workload, cluster, plan)
    assert figures["documented_excess"] == figures["documented_excess_blocking"] == 0
    chunked = replace(plan, schedule="interleaved", chunks=2)
    figures = simulate(workload, cluster, chunked)
    assert figures["documented_excess"] == 0
    limit = figures["closed_form"] + figures["documented_excess_blocking"]
    assert figures["closed_form"] < figures["simulated_blocking"] <= limit
