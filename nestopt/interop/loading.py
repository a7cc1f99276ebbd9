"""Schedules and plans out of the result files that `nestopt solve` writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nestopt.core.errors import InputError, naming
from nestopt.core.io import read_json
from nestopt.core.result import Result

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.workload import Workload

__all__ = ["Placed", "Synthesized", "plan_in", "read_schedule", "read_solution", "schedule_in"]


@dataclass(frozen=True, slots=True)
class Synthesized:
    """A schedule with the instance that it is for.

    Attributes
    ----------
    instance : CollectiveInstance
    schedule : Schedule
    name : str
        Of the instance, or of its file.
    """

    instance: CollectiveInstance
    schedule: Schedule
    name: str


@dataclass(frozen=True, slots=True)
class Placed:
    """A plan with what it places and where.

    Attributes
    ----------
    workload : Workload
    cluster : Cluster
    plan : Plan
    name : str
        Of the instance.
    """

    workload: Workload
    cluster: Cluster
    plan: Plan
    name: str


def read_solution(file: str | Path) -> Result:
    """The result in a file, which holds a plan or a schedule.

    Raises
    ------
    InputError
        If the file cannot be read, is no result, or holds no solution.
    """
    result = Result.from_json(read_json(file), file=str(file))
    if result.solution_json is None:
        raise InputError("is null; expected a plan or a schedule", file=str(file), field="solution")
    return result


def read_schedule(file: str | Path, *, at_most: int | None = None) -> Synthesized:
    """The schedule in a result file, side files included.

    Parameters
    ----------
    file : str or Path
    at_most : int, optional
        How many sends are allowed.

    Raises
    ------
    InputError
        If the file cannot be read, or holds no schedule or too large a one.
    """
    result = read_solution(file)
    if result.problem != "collective":
        raise InputError(
            f"{result.problem!r}; expected 'collective', the problem of schedules",
            file=str(file),
            field="problem",
        )
    return schedule_in(result, Path(file), at_most=at_most)


def schedule_in(result: Result, file: Path, *, at_most: int | None = None) -> Synthesized:
    """The schedule of a result that was read from `file`; see `read_schedule`."""
    from nestopt.collective.model.of_result import in_columns, instance_of, schedule_of

    with naming(str(file)):
        instance = instance_of(result)
        found = schedule_of(result, file.parent)
        if at_most is not None and found.num_sends > at_most:
            raise InputError(
                f"{found.num_sends} sends; at most {at_most} can be run or exported",
                field="solution.num_sends",
            )
        return Synthesized(instance, in_columns(instance, found), instance.name)


def plan_in(result: Result, file: Path) -> Placed:
    """The plan of a result that was read from `file`.

    Raises
    ------
    InputError
        If it does not hold its instance, or one of another model.
    """
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan

    data = result.instance.get("data")
    if not isinstance(data, dict) or "workload" not in data or "cluster" not in data:
        raise InputError(
            "is no plan of stages on a cluster (max-load and piper results are not exported)",
            file=str(file),
            field="instance.data",
        )
    with naming(str(file)):
        instance = PlacementInstance.from_json(data)
        assert result.solution_json is not None
        plan = Plan.from_json(result.solution_json)
    return Placed(instance.workload, instance.cluster, plan, instance.name)
