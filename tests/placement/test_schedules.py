"""Pipeline schedules: order, micro-batches in flight and closed form, against the judges' own."""

from __future__ import annotations

import numpy as np
import pytest

from nestopt.core.errors import InputError, UsageError
from nestopt.placement.judge.simulate import Pipeline
from nestopt.placement.model.schedules import SCHEDULE_NAMES, PipelineSchedule, make_schedule
from tests.placement.pipeline_cases import order_of, random_pipeline

SIZES = [(s, v, m) for s in (1, 2, 3, 5) for v in (1, 2, 3) for m in (1, 2, 3, 4, 6, 10, 15)]


def _cases() -> list[tuple[PipelineSchedule, int, int]]:
    """Every schedule with stages and micro-batches that suit it."""
    found = []
    for name in SCHEDULE_NAMES:
        for s, v, m in SIZES:
            if name != "interleaved" and v > 1:
                continue
            schedule = make_schedule(name, v)
            if schedule.suits(m, s):
                found.append((schedule, s, m))
    return found


def test_the_order_of_tasks_is_that_of_the_papers() -> None:
    for schedule, s, m in _cases():
        idle = np.zeros(s)
        pipe = Pipeline(idle, idle, idle, idle, m, schedule.chunks, schedule.name)
        for q in range(s):
            tasks = [tuple(task) for task in schedule.tasks(q, s, m)]
            assert tasks == order_of(pipe, q), (schedule, s, m, q)


def test_in_flight_is_the_most_that_the_order_keeps() -> None:
    for schedule, s, m in _cases():
        for q in range(s):
            held = most = 0
            for task in schedule.tasks(q, s, m):
                held += 1 if task.forward else -1
                most = max(most, held)
            claimed = schedule.in_flight(m, s - q, s)
            assert claimed * schedule.chunks == pytest.approx(most), (schedule, s, m, q)
            assert held == 0


@pytest.mark.parametrize("name", SCHEDULE_NAMES)
def test_the_weights_are_the_simulators_closed_form(name: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        pipe = random_pipeline(rng, name)
        schedule = make_schedule(name, pipe.chunks)
        around = np.concatenate([[0.0], pipe.hop[:-1], [0.0]])
        crossed = schedule.crossings * (around[1:] + around[:-1])
        seconds = schedule.chunks * (pipe.forward + pipe.backward) + crossed
        weights = schedule.weights("iteration-time", pipe.microbatches)
        value = weights.total * seconds.sum() + weights.largest * seconds.max()
        value += weights.sync * pipe.sync.max()
        assert value == pytest.approx(pipe.closed_form(), rel=1e-12)
        assert tuple(schedule.weights("bottleneck", pipe.microbatches)) == (0.0, 1.0, 0.0)


def test_what_a_schedule_suits() -> None:
    assert make_schedule("1f1b").stage_counts(12, 8) == (0,)
    assert make_schedule("interleaved", 2).stage_counts(12, 8) == (1, 2, 3, 4, 6)
    assert not make_schedule("interleaved", 2).suits(12, 5)
    counts = np.array([[1, 4, 0], [0, 3, 1], [0, 0, 0]])
    repeated = np.array([False, True, False])
    cuts = make_schedule("interleaved", 2).divides(counts, repeated)
    # a stage without operators cannot be cut in two
    assert cuts.tolist() == [True, False, False]
    assert make_schedule("gpipe").divides(counts, repeated).all()


def test_names_and_chunks_are_judged() -> None:
    with pytest.raises(UsageError, match="did you mean 'gpipe'"):
        make_schedule("gpip")
    with pytest.raises(InputError, match="1f1b has 1 chunk"):
        make_schedule("1f1b", 2)
    with pytest.raises(InputError, match="expected at least 1"):
        make_schedule("interleaved", 0)
    assert make_schedule("interleaved", 2) == make_schedule("interleaved", 2)
    assert make_schedule("gpipe") != make_schedule("1f1b")
    assert str(make_schedule("interleaved", 6)) == "interleaved (6 chunks)"
