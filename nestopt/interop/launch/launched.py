"""A job as its launch file states it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nestopt.placement.model.transformer import Transformer

__all__ = ["Launched"]


@dataclass(frozen=True, slots=True)
class Launched:
    """A job as its launch file states it.

    Attributes
    ----------
    name, framework : str
    model : Transformer
    arguments : dict
        The framework's arguments that bear on the plan, for comparison with better ones.
    batch, microbatch : int
        Sequences of an iteration, and of a micro-batch on one data-parallel rank.
    tensor, pipeline, context, expert, data : int
        Degrees; `data` counts every data-parallel rank, the expert ones included.
    shard : int
        Size of a group over which weights are sharded at rest; 1 unless stated.
    virtual : int
    schedule, recompute : str
    sequence_parallel : bool
    zero : int
    layers : tuple of int
        Blocks of each pipeline rank.
    pipeline_before_data : bool
        Whether ranks go tensor, context, pipeline, data instead of data before pipeline.
    remarks : tuple of str
        What the file states that the plan model has no words for, and how it is priced.
    """

    name: str
    framework: str
    model: Transformer
    arguments: dict[str, Any]
    batch: int
    microbatch: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    data: int
    shard: int
    virtual: int
    schedule: str
    recompute: str
    sequence_parallel: bool
    zero: int
    layers: tuple[int, ...]
    pipeline_before_data: bool
    remarks: tuple[str, ...]

    @property
    def world(self) -> int:
        """Processes."""
        return self.tensor * self.context * self.data * self.pipeline
