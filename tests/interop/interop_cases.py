"""Schedules that the tests of exports and runs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.baselines.solve import baseline_schedule
from nestopt.collective.greedy.solve import solve
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.of_result import in_columns
from nestopt.collective.model.schedule import Schedule
from nestopt.collective.model.store import load_solution
from nestopt.core.options import SolveOptions
from nestopt.core.registry import named

if TYPE_CHECKING:
    from nestopt.core.result import Result

PATTERNS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")


def problem(job: str, network: str, latency: str = "blocking") -> CollectiveInstance:
    """The instance of two names."""
    topology = named("topology", network)
    return CollectiveInstance(topology, named("collective", job).on(topology), latency)


def solved(instance: CollectiveInstance, method: str = "greedy") -> tuple[Result | None, Schedule]:
    """A checked schedule: of the greedy matcher, with its result, or of a baseline."""
    if method != "greedy":
        schedule = baseline_schedule(instance, method)
        check_schedule(instance, schedule)
        return None, schedule
    result = solve(instance, SolveOptions())
    assert result.solution_json is not None
    schedule = in_columns(instance, load_solution(result.solution_json))
    check_schedule(instance, schedule)
    return result, schedule


def without_send(schedule: Schedule, index: int) -> Schedule:
    """The same schedule with one send left out."""
    keep = np.arange(schedule.num_sends) != index
    return Schedule.of(
        schedule.chunk[keep],
        schedule.link[keep],
        schedule.start_ps[keep],
        schedule.makespan_ps,
        schedule.phase[keep],
    )
