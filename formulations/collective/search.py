"""Where a search for the least makespan starts, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import UsageError
from nestopt.core.result import Limit

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.core.options import SolveOptions
    from nestopt.formulations.collective.grid import Send

__all__ = ["Search", "starting_schedule"]


def starting_schedule(
    instance: CollectiveInstance, options: SolveOptions, target: int, seconds: float
) -> Schedule:
    """The warm start's schedule, else a greedy one; checked.

    Parameters
    ----------
    target : int
        Picoseconds; the greedy search stops when it gets there.
    seconds : float
        Wall-clock time for the greedy search.
    """
    from nestopt.collective.greedy.solve import synthesize
    from nestopt.collective.judge.check import check_schedule
    from nestopt.collective.model.steps import StepSchedule
    from nestopt.collective.model.store import load_solution

    if options.warm_start is not None:
        if options.warm_start.solution_json is None:
            raise UsageError("the warm start holds no solution")
        found = load_solution(options.warm_start.solution_json)
    else:
        chosen = replace(options, set={}, time_limit=seconds)
        found = synthesize(instance, chosen, target=target).schedule
    if isinstance(found, StepSchedule):
        found = found.to_schedule(instance.topology)
    check_schedule(instance, found)
    return found


@dataclass(slots=True)
class Search:
    """State of a search over horizons, in ticks.

    Attributes
    ----------
    low : int
        No schedule is shorter than this.
    high : int or None
        Makespan of the best schedule.
    sends : list of Send
        That schedule.
    log : list of dict
        The horizons tried, with answer and seconds.
    limit : Limit
        What ended the search; none if it ran to the end.
    one_by_one : bool
        Whether every horizon has to be decided: where a shorter schedule need not fit a longer
        horizon.
    """

    low: int
    high: int | None = None
    sends: list[Send] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    limit: Limit = Limit.NONE
    one_by_one: bool = False

    def next_horizon(self) -> int:
        """Upwards one by one, then in growing strides, then halving what is between."""
        if self.one_by_one:
            return self.low
        tried = len(self.log)
        step = 0 if tried < 3 else 2 ** (tried - 2) - 1
        upward = self.low + step
        if self.high is None:
            return upward
        return min(upward, (self.low + self.high - 1) // 2 if tried >= 3 else self.high - 1)
