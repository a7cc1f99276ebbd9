"""Schedules of equal steps in their compact form.

On equal links a schedule is, for each node, the chunks that it receives in their order and, for
each step and node, which of its in-links deliver. For an All-Gather over N nodes that is 2 or 4
bytes a send and one byte a node and step, against 17 bytes a send in `Schedule`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.model.schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.topology import Topology

__all__ = ["StepSchedule"]


@dataclass(frozen=True, slots=True, eq=False)
class StepSchedule:
    """A schedule of copies in equal steps, without pauses.

    Attributes
    ----------
    step_ps : int
        Length of a step; a send of step t starts at t * step_ps and arrives one step later.
    order : uint16 or int32[nodes, chunks]
        ``order[v, :received[v]]``: what v starts with, ascending, then what it receives, in order
        of step, then of in-link.
    initial, received : int64[nodes]
        How many chunks each node holds at the beginning and at the end.
    masks : tuple of unsigned[steps of the block, nodes]
        Blocks of consecutive steps; bit j of an entry is set if the node's in-link j (of
        `Topology.in_links`) delivers in that step.
    """

    step_ps: int
    order: NDArray[Any]
    initial: NDArray[np.int64]
    received: NDArray[np.int64]
    masks: tuple[NDArray[Any], ...]

    @property
    def num_steps(self) -> int:
        """Number of steps."""
        return sum(len(block) for block in self.masks)

    @property
    def makespan_ps(self) -> int:
        """When the last chunk has arrived."""
        return self.num_steps * self.step_ps

    @property
    def num_sends(self) -> int:
        """Number of sends."""
        return int((self.received - self.initial).sum())

    def to_schedule(self, topology: Topology) -> Schedule:
        """The same schedule as columns of sends."""
        from nestopt.collective.greedy.kernels.sync import expand

        in_ptr, in_links = topology.in_links()
        chunk = np.empty(self.num_sends, dtype=np.int32)
        link = np.empty(self.num_sends, dtype=np.int32)
        start = np.empty(self.num_sends, dtype=np.int64)
        position = self.initial.copy()
        done = step = 0
        for block in self.masks:
            done += expand(
                in_ptr,
                in_links,
                self.order,
                block,
                self.step_ps,
                step,
                position,
                chunk[done:],
                link[done:],
                start[done:],
            )
            step += len(block)
        return Schedule.of(chunk, link, start, self.makespan_ps)
