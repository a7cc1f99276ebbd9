"""The words of the placement problem: what an option of a plan, or of its space, may be called."""

from __future__ import annotations

from enum import Enum, StrEnum

__all__ = [
    "ALL", "All", "Decomposition", "Degrees", "Layout", "Objective", "Recompute", "ScheduleName",
    "Shares", "Structure",
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
    """Which devices a stage may have (``MODEL.md``, section 8).

    ``contiguous``: runs of the alive devices in hierarchy order, of which every replica is a run of
    its own. ``structured``: the same runs, and in each any order of the axes. ``general``: any.
    """

    CONTIGUOUS = "contiguous"
    STRUCTURED = "structured"
    GENERAL = "general"

    @property
    def recorded(self) -> tuple[str, str]:
        """How files state it, as a structure and its orders (empty where there is none).

        Files older than the orders of axes call the contiguous structure ``structured``. They keep
        their meaning and their hash: only with ``any`` orders it is the wider one.
        """
        if self is Structure.STRUCTURED:
            return "structured", "any"
        return ("structured" if self is Structure.CONTIGUOUS else str(self)), ""

    @classmethod
    def of_record(cls, structure: str, orders: str) -> Structure:
        """Inverse of `recorded`.

        Raises
        ------
        ValueError
            If there is no such structure.
        """
        if structure == "structured" and orders != "any":
            return cls.CONTIGUOUS
        return cls(structure)


class Layout(StrEnum):
    """Where the replicas of a stage lie in the structured space (``MODEL.md``, section 8)."""

    INNER = "inner"
    OUTER = "outer"


class Shares(StrEnum):
    """How the micro-batches of an iteration are dealt to the replicas (``MODEL.md``, section 6).

    ``equal``: as many to each. ``unequal``: the plan may say how many each one takes.
    """

    EQUAL = "equal"
    UNEQUAL = "unequal"


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
