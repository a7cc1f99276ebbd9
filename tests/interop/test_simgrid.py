"""SimGrid's clock beside ours: schedules and pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from interop_cases import problem, solved, without_send
from sampling import slow

from nestopt.core.errors import NestoptError
from nestopt.interop.simgrid_clock import find_python, plan_job, play_schedule, schedule_job

if TYPE_CHECKING:
    from nestopt.interop.simgrid_clock import Job

try:
    find_python()
    MISSING = ""
except NestoptError as error:
    MISSING = str(error)
needs_simgrid = pytest.mark.skipif(bool(MISSING), reason=MISSING)

CASES = [
    ("all-gather", "torus2d:3x3", "blocking"),
    ("all-gather:chunks=2", "dgx1v", "pipelined"),
    ("all-gather", "dgx-h100:2x4", "blocking"),
    ("reduce-scatter", "mesh2d:3x3+fail-npus:1+seed:1", "blocking"),
    ("all-reduce", "switch:6,alpha=1us", "pipelined"),
    ("all-reduce", "torus2d:2x3,alpha=0.7us", "blocking"),
    ("all-to-all", "mesh2d:2x3,alpha=3us", "pipelined"),
    ("all-to-all", "dgx-a100:2x4", "blocking"),
    ("broadcast:chunks=3", "hypercube:3", "blocking"),
    ("reduce:chunks=2", "mesh2d:3x3", "pipelined"),
    ("gather", "ring:6,alpha=1us", "blocking"),
    ("all-gather:npus=half", "mesh2d:3x4", "blocking"),
]


@needs_simgrid
@pytest.mark.parametrize(("job", "network", "latency"), [*CASES[::2], *slow(CASES[1::2])])
def test_simgrid_takes_as_long_as_the_schedule_says(job: str, network: str, latency: str) -> None:
    instance = problem(job, network, latency)
    _, schedule = solved(instance)
    answer = play_schedule(instance, schedule)
    # a picosecond is rounded up on every link of a chain of sends; floats have 15 digits
    hops = schedule.num_sends
    assert answer["foreign"] == pytest.approx(schedule.makespan_ps, rel=1e-9, abs=hops)
    assert answer["foreign_difference"] < 1e-9


@needs_simgrid
def test_a_schedule_with_pauses_ends_sooner_there_and_a_hole_is_noticed() -> None:
    from nestopt.collective.model.schedule import Schedule

    instance = problem("all-gather", "ring:4")
    _, schedule = solved(instance)
    late = Schedule.of(
        schedule.chunk, schedule.link, schedule.start_ps * 2, schedule.makespan_ps * 2
    )
    answer = play_schedule(instance, late)
    assert answer["foreign"] == pytest.approx(schedule.makespan_ps, rel=1e-9)
    assert answer["foreign_difference"] == pytest.approx(-0.5, abs=1e-9)
    shorter = schedule_job(instance, without_send(schedule, schedule.num_sends - 1))
    assert sum(len(worker["do"]) for worker in shorter) == schedule.num_sends - 1


def _job_seconds(job: Job) -> float:
    from nestopt.interop import simgrid_clock

    return simgrid_clock._play(job)


@needs_simgrid
@pytest.mark.parametrize(
    ("schedule", "stages", "chunks"), [("1f1b", 4, 1), ("gpipe", 3, 1), ("interleaved", 2, 2)]
)
def test_pipelines_take_as_long_as_in_our_simulator(
    schedule: str, stages: int, chunks: int
) -> None:
    from nestopt.placement.judge.simulate import Pipeline, run

    rng = np.random.default_rng(stages)
    pipeline = Pipeline(
        forward=rng.uniform(0.5, 1.5, stages),
        backward=rng.uniform(1.0, 3.0, stages),
        hop=rng.uniform(0.05, 0.2, stages),
        sync=rng.uniform(0.1, 0.5, stages),
        microbatches=2 * stages,
        chunks=chunks,
        schedule=schedule,
    )
    timeline = run(pipeline)
    seconds = _job_seconds(plan_job(pipeline, timeline))
    assert seconds == pytest.approx(timeline.seconds, rel=1e-7)


def test_without_simgrid_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from nestopt.interop import simgrid_clock

    monkeypatch.setattr(simgrid_clock.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(simgrid_clock.Path, "exists", lambda self: False)
    with pytest.raises(NestoptError, match="apt install python3-simgrid"):
        find_python()
