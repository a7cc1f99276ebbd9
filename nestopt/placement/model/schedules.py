"""Pipeline schedules: in which order a stage runs its tasks, and all that follows from the order.

A stage runs one forward and one backward *task* for each micro-batch and chunk of its layers. A
`PipelineSchedule` states the order, and what the rest of the package needs to know of it: the
weights of the closed form (``MODEL.md``, section 6), the micro-batches in flight (section 7), how
often a boundary is crossed (section 5), and which plans it suits (section 4). Checker and simulator
have their own statement of the same; a new schedule is written here, in ``MODEL.md`` and there.

References
----------
Huang et al., GPipe, NeurIPS 2019. Narayanan et al., Efficient Large-Scale Language Model Training
on GPU Clusters Using Megatron-LM, SC 2021, section 2.2 (1F1B, interleaved 1F1B).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from nestopt.core.errors import InputError, unknown_name
from nestopt.core.integers import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = [
    "SCHEDULE_NAMES", "GPipe", "Interleaved", "OneForwardOneBackward", "PipelineSchedule", "Task",
    "Weights", "make_schedule",
]  # fmt: skip


class Weights(NamedTuple):
    """The objective ``total * sum_q t_q + largest * max_q t_q + sync * max_q S_q``."""

    total: float
    largest: float
    sync: float


class Task(NamedTuple):
    """One task of a stage: forward or backward, of a chunk (from 0), of a micro-batch (from 0)."""

    forward: bool
    chunk: int
    microbatch: int


@dataclass(frozen=True, slots=True)
class PipelineSchedule(ABC):
    """A pipeline schedule.

    Attributes
    ----------
    chunks : int
        Parts into which the layers of every stage are cut (v); 1 unless interleaved.
    name : str
        Its name in plans, settings and outputs.
    fixes_stages : bool
        Whether what fits depends on the number of stages, so that a search has to fix it first.
    """

    chunks: int = 1
    name: ClassVar[str]
    fixes_stages: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.chunks != 1:
            raise InputError(f"{self.chunks}; {self.name} has 1 chunk a stage", field="chunks")

    def __str__(self) -> str:
        return self.name

    @property
    def crossings(self) -> int:
        """How often a micro-batch crosses a boundary between two stages, both ways together."""
        return 2 * self.chunks

    def weights(self, objective: str, microbatches: int) -> Weights:
        """The weights of an objective's name (``MODEL.md``, section 6)."""
        if objective == "bottleneck":
            return Weights(0.0, 1.0, 0.0)
        return Weights(1.0 / self.chunks, microbatches - 1.0 / self.chunks, 1.0)

    @abstractmethod
    def in_flight(self, microbatches: int, stages_left: int, stages: int) -> float:
        """Micro-batches whose activations a stage holds at once; a fraction if cut in chunks.

        Parameters
        ----------
        microbatches : int
            m, of a replica in an iteration.
        stages_left : int
            Stages from this one to the last, itself included (s - q).
        stages : int
            All stages, s; matters only to schedules with `fixes_stages`.
        """

    def stage_counts(self, microbatches: int, most: int) -> tuple[int, ...]:
        """Numbers of stages to search one by one, up to `most`; (0,) where it need not be fixed."""
        return (0,)

    def suits(self, microbatches: int, stages: int) -> bool:
        """Whether a pipeline of `stages` can run `microbatches`."""
        return True

    def divides(self, counts: Ints, repeated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which stages can be cut into equal chunks, (R,).

        Parameters
        ----------
        counts : int array (R, K)
            Operators of each kind in each stage.
        repeated : bool array (K,)
            Kinds of which the workload has more than one.
        """
        return np.ones(len(counts), dtype=bool)

    @abstractmethod
    def warmup(self, stage: int, stages: int, microbatches: int) -> int:
        """Forward tasks that a stage runs before it alternates forward and backward ones."""

    def tasks(self, stage: int, stages: int, microbatches: int) -> Iterator[Task]:
        """The tasks of a stage in their order.

        First `warmup` forward tasks, then a forward and a backward one in turn, then the backward
        tasks that are left.
        """
        count = self.chunks * microbatches
        ahead = self.warmup(stage, stages, microbatches)
        for place in range(count + ahead):
            if place < count:
                yield self._task(place, stages, forward=True)
            if place >= ahead:
                yield self._task(place - ahead, stages, forward=False)

    def _task(self, number: int, stages: int, *, forward: bool) -> Task:
        """The task of a number, counted among the forward or the backward ones of a stage."""
        return Task(forward, 0, number)


class OneForwardOneBackward(PipelineSchedule):
    """1F1B: a backward task as soon as one can run; the fewest micro-batches in flight."""

    __slots__ = ()
    name = "1f1b"

    def in_flight(self, microbatches: int, stages_left: int, stages: int) -> float:
        """``min(m, s - q)``."""
        return min(microbatches, stages_left)

    def warmup(self, stage: int, stages: int, microbatches: int) -> int:
        """One for every stage behind."""
        return min(microbatches, stages - 1 - stage)


class GPipe(PipelineSchedule):
    """GPipe: all forward tasks, then all backward tasks."""

    __slots__ = ()
    name = "gpipe"

    def in_flight(self, microbatches: int, stages_left: int, stages: int) -> float:
        """All of them."""
        return microbatches

    def warmup(self, stage: int, stages: int, microbatches: int) -> int:
        """All forward tasks."""
        return microbatches


class Interleaved(PipelineSchedule):
    """Interleaved 1F1B: every stage holds `chunks` parts of the layers, which take turns.

    Micro-batches pass in groups of s through the first chunk of all stages, then the second, and so
    on; so s has to divide their number. A shorter fill is paid with more transfers.
    """

    __slots__ = ()
    name = "interleaved"
    fixes_stages = True

    def __post_init__(self) -> None:
        if self.chunks < 1:
            raise InputError(f"{self.chunks}; expected at least 1", field="chunks")

    def __str__(self) -> str:
        return f"{self.name} ({self.chunks} chunks)"

    def in_flight(self, microbatches: int, stages_left: int, stages: int) -> float:
        """The forward tasks before the first backward one, in micro-batches of v chunks."""
        tasks = 2 * (stages_left - 1) + (self.chunks - 1) * stages + 1
        return min(microbatches, tasks / self.chunks)

    def stage_counts(self, microbatches: int, most: int) -> tuple[int, ...]:
        """The divisors of the micro-batches."""
        return tuple(s for s in divisors(microbatches) if s <= most)

    def suits(self, microbatches: int, stages: int) -> bool:
        """Whether the stages divide the micro-batches."""
        return microbatches % stages == 0

    def divides(self, counts: Ints, repeated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether every repeated kind comes in a multiple of the chunks, and none is empty."""
        whole = ((counts[:, repeated] % self.chunks) == 0).all(axis=1)
        return np.asarray(whole & (counts.sum(axis=1) >= self.chunks))

    def warmup(self, stage: int, stages: int, microbatches: int) -> int:
        """Two for every stage behind, and all chunks but the last of the first s micro-batches."""
        ahead = 2 * (stages - 1 - stage) + (self.chunks - 1) * stages
        return min(self.chunks * microbatches, ahead)

    def _task(self, number: int, stages: int, *, forward: bool) -> Task:
        group, place = divmod(number, self.chunks * stages)
        chunk, member = divmod(place, stages)
        if not forward:
            chunk = self.chunks - 1 - chunk
        return Task(forward, chunk, group * stages + member)


_SCHEDULES: dict[str, type[PipelineSchedule]] = {
    kind.name: kind for kind in (OneForwardOneBackward, GPipe, Interleaved)
}
SCHEDULE_NAMES = tuple(_SCHEDULES)
"""The names of the schedules, in the order in which they are listed and searched."""


def make_schedule(name: str, chunks: int = 1) -> PipelineSchedule:
    """The schedule of a name.

    Raises
    ------
    UsageError
        If there is none of the name (with a suggestion).
    InputError
        If it does not have that many chunks a stage.
    """
    if name not in _SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULE_NAMES)
    return _SCHEDULES[name](chunks)
