"""A portfolio: several solvers of one kind of work, each with when it applies and why it is there.

A table of entries is played from the top. Each entry gets the `Job` with the best schedule so far;
what it returns is kept if it is shorter. The play ends at the target or when the clock says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from nestopt.collective.greedy.network import make_task
from nestopt.core.stop import noticed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nestopt.collective.greedy.match import Effort
    from nestopt.collective.greedy.network import Task
    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.store import AnySchedule
    from nestopt.collective.model.topology import Topology

__all__ = ["Entry", "Found", "Job", "always", "play", "tuned"]


@dataclass(frozen=True, slots=True)
class Found:
    """A schedule, and how it came about (for the result's ``stats``)."""

    schedule: AnySchedule
    stats: dict[str, Any] = field(default_factory=dict)


@dataclass
class Job:
    """What the entries of a portfolio work on.

    Attributes
    ----------
    instance : CollectiveInstance
    effort : Effort
    best : Found or None
        The shortest schedule so far.
    tried : list of Found
        Everything that entries have returned, in order.
    """

    instance: CollectiveInstance
    effort: Effort
    best: Found | None = None
    tried: list[Found] = field(default_factory=list)

    @property
    def topology(self) -> Topology:
        """The instance's network."""
        return self.instance.topology

    @property
    def parts(self) -> tuple[Part, ...]:
        """The collective's parts."""
        return self.instance.collective.parts

    @property
    def claims(self) -> int:
        """At most how many times a node can receive a chunk: the size of the work."""
        return self.topology.num_nodes * self.instance.collective.num_chunks

    @cached_property
    def task(self) -> Task:
        """The chunks as copies from one source each to a group."""
        return make_task(self.topology, self.parts, self.instance.latency)

    @property
    def done(self) -> bool:
        """Whether the target is reached, or time is up and there is a schedule."""
        return self.best is not None and (self.near(1) or self.effort.clock.stop())

    def near(self, factor: float) -> bool:
        """Whether there is a schedule whose makespan is at most `factor` times the target."""
        if self.best is None:
            return False
        return self.best.schedule.makespan_ps <= factor * self.effort.target

    def consider(self, found: Found | None) -> None:
        """Keep a schedule if it is the shortest."""
        if found is None:
            return
        self.tried.append(found)
        if self.best is None or found.schedule.makespan_ps < self.best.schedule.makespan_ps:
            self.best = found


@dataclass(frozen=True, slots=True)
class Entry:
    """One solver of a portfolio.

    Attributes
    ----------
    name : str
    solve : callable
        ``solve(job)`` returns what it finds, or None.
    when : callable
        ``when(job)``: whether it applies.
    why : str
        What it is good for.
    """

    name: str
    solve: Callable[[Job], Found | None]
    when: Callable[[Job], bool]
    why: str


def always(job: Job) -> bool:
    """For entries that apply to everything."""
    return True


def tuned(job: Job) -> bool:
    """Whether the user has not asked for one policy or a number of restarts of the matching."""
    return job.effort.policy is None and job.effort.restarts is None


def play(entries: Sequence[Entry], job: Job) -> Found | None:
    """The shortest schedule that the entries which apply find, played in their order."""
    for entry in entries:
        if job.done:
            break
        if not entry.when(job):
            continue
        try:
            job.consider(entry.solve(job))
        except KeyboardInterrupt:
            noticed()
            job.effort.clock.interrupted = True
            if job.best is None:
                raise
    return job.best
