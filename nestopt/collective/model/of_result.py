"""The instance and the schedule that a result holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.steps import StepSchedule
from nestopt.collective.model.store import load_solution
from nestopt.core.errors import CheckError, NestoptError

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.collective.model.schedule import Schedule
    from nestopt.collective.model.store import AnySchedule
    from nestopt.core.result import Result

__all__ = ["in_columns", "instance_of", "schedule_of"]


def instance_of(result: Result) -> CollectiveInstance:
    """The instance that a result holds.

    Raises
    ------
    CheckError
        If it holds none.
    """
    if "data" not in result.instance:
        raise CheckError("the result does not hold its instance")
    return CollectiveInstance.from_json(result.instance["data"])


def schedule_of(result: Result, directory: Path | None) -> AnySchedule:
    """The schedule of a result, read from its side file where it has one.

    Raises
    ------
    NestoptError
        If it has no schedule, or a damaged one.
    """
    if result.solution_json is None:
        raise NestoptError("the result has no schedule")
    return load_solution(result.solution_json, directory=directory)


def in_columns(instance: CollectiveInstance, schedule: AnySchedule) -> Schedule:
    """A schedule as columns of sends, whichever form it has."""
    if isinstance(schedule, StepSchedule):
        return schedule.to_schedule(instance.topology)
    return schedule
