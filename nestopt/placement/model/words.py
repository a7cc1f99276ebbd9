"""The words of the placement problem: what an option of a plan, or of its space, may be called."""

from __future__ import annotations

from enum import Enum, StrEnum

__all__ = [
    "ALL", "All", "Decomposition", "Degrees", "Layout", "Objective", "Recompute", "ScheduleName",
    "Structure",
]  # fmt: skip


class All(Enum):
    """The type of `ALL`."""

    ALL = "all"

    def __repr__(self) -> str:
        return "ALL"


ALL = All.ALL
"""Every value that the operators, the batch or the devices allow."""

Degrees = tuple[int, ...] | All
"""Degrees offered: `ALL`, or some positive integers, ascending."""


class Objective(StrEnum):
    """What a placement minimizes (``MODEL.md``, section 6)."""

    ITERATION_TIME = "iteration-time"
    BOTTLENECK = "bottleneck"


class Structure(StrEnum):
    """Which devices a stage may have (``MODEL.md``, section 8)."""

    STRUCTURED = "structured"
    GENERAL = "general"


class Layout(StrEnum):
    """Where the replicas of a stage lie in the structured space (``MODEL.md``, section 8)."""

    INNER = "inner"
    OUTER = "outer"


class Recompute(StrEnum):
    """What the backward pass computes again."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


class ScheduleName(StrEnum):
    """Pipeline schedules."""

    ONE_F_ONE_B = "1f1b"
    GPIPE = "gpipe"
    INTERLEAVED = "interleaved"


class Decomposition(StrEnum):
    """Tensor decompositions: Megatron's (1, t, 1) alone, or every (x, y, z) as in AxoNN."""

    MEGATRON = "megatron"
    FOUR_D = "4d"
