"""Plans: stages with their operators, configurations and devices (``MODEL.md``, section 4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import unknown_name
from nestopt.placement.model.schedules import make_schedule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from nestopt.placement.model.schedules import PipelineSchedule

__all__ = ["PLAN_SCHEMA", "RECOMPUTE", "Plan", "Stage", "StageConfig", "Hides"]

PLAN_SCHEMA = "nestopt.plan/1"
RECOMPUTE = ("none", "selective", "full")


class Hides(IntFlag):
    """Communication that a stage's framework runs behind computation (``MODEL.md``, section 5).

    ``TENSOR``: the reduces of tensor parallelism behind the products of their operator (ring
    exchange). ``SYNC``: the synchronisation of the replicas behind the last backward pass, and the
    gather of updated weights behind the next forward pass. ``GATHERS``: what ZeRO 2 and 3 send for
    each micro-batch behind the pass of an operator alike (prefetch).
    """

    NONE = 0
    TENSOR = 1
    SYNC = 2
    GATHERS = 4

    @property
    def words(self) -> tuple[str, ...]:
        """What is hidden, in words: ``("tensor", "sync")``."""
        return tuple(str(flag.name).lower() for flag in Hides if flag in self)

    @classmethod
    def of_words(cls, words: Iterable[str]) -> Hides:
        """Inverse of `words`.

        Raises
        ------
        UsageError
            If a word is unknown (with a suggestion).
        """
        known = {str(flag.name).lower(): flag for flag in cls}
        found = cls.NONE
        for word in words:
            if word not in known:
                raise unknown_name("communication to hide", word, known)
            found |= known[word]
        return found


@dataclass(frozen=True, slots=True, order=True)
class StageConfig:
    """How a stage is split over the devices of one replica.

    Attributes
    ----------
    tensor : (int, int, int)
        (Gx, Gy, Gz), AxoNN's decomposition; Megatron's one-dimensional tensor parallelism of degree
        t is (1, t, 1).
    context, expert : int
    sequence_parallel : bool
    zero : int
        ZeRO stage 0 to 3.
    recompute : str
        ``none``, ``selective`` or ``full``.
    overlap : bool
        Whether the decomposition's communication runs behind computation where it can (AxoNN's
        three overlaps).
    hides : Hides
        What other communication runs behind computation.
    """

    tensor: tuple[int, int, int] = (1, 1, 1)
    context: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    zero: int = 0
    recompute: str = "none"
    overlap: bool = False
    hides: Hides = Hides.NONE

    @property
    def t(self) -> int:
        """Tensor-parallel degree, Gx Gy Gz."""
        return self.tensor[0] * self.tensor[1] * self.tensor[2]

    @property
    def width(self) -> int:
        """Devices of one replica."""
        return self.t * self.context * self.expert

    def to_json(self) -> dict[str, Any]:
        """The configuration as JSON."""
        return {
            "tensor": list(self.tensor),
            "context": self.context,
            "expert": self.expert,
            "sequence_parallel": self.sequence_parallel,
            "zero": self.zero,
            "recompute": self.recompute,
            "overlap": self.overlap,
            **({"hides": list(self.hides.words)} if self.hides else {}),
        }

    def label(self) -> str:
        """A short name: ``t8 sp z1 selective``, or ``t2x4x1 ov z1`` for Gx = 2 and Gy = 4."""
        x, y, z = self.tensor
        parts = [f"t{y}" if x == z == 1 else f"t{x}x{y}x{z}"]
        if self.context > 1:
            parts.append(f"c{self.context}")
        if self.expert > 1:
            parts.append(f"e{self.expert}")
        if self.sequence_parallel:
            parts.append("sp")
        if self.overlap:
            parts.append("ov")
        if self.hides:
            parts.append("hides-" + "+".join(self.hides.words))
        parts.append(f"z{self.zero}")
        if self.recompute != "none":
            parts.append(self.recompute)
        return " ".join(parts)


@dataclass(frozen=True, eq=False)
class Stage:
    """A pipeline stage: operators (ascending), configuration, devices (d, w)."""

    operators: tuple[int, ...]
    config: StageConfig
    devices: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Plan:
    """A whole plan; `report` holds a solver's figures for people and is never trusted."""

    stages: tuple[Stage, ...]
    replicas: int
    microbatch: int
    schedule: str = "1f1b"
    chunks: int = 1
    report: dict[str, Any] = field(default_factory=dict)

    @property
    def pipeline(self) -> PipelineSchedule:
        """The schedule as an object."""
        return make_schedule(self.schedule, self.chunks)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON (schema ``nestopt.plan/1``)."""
        return {
            "schema": PLAN_SCHEMA,
            "replicas": self.replicas,
            "microbatch": self.microbatch,
            "schedule": self.schedule,
            "chunks": self.chunks,
            "stages": [
                {
                    "operators": list(s.operators),
                    "config": s.config.to_json(),
                    "devices": s.devices.tolist(),
                }
                for s in self.stages
            ],
            "report": self.report,
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> Plan:
        """A plan from its JSON form (shape and types only; the checker judges it)."""
        from nestopt.core.errors import InputError
        from nestopt.core.io import validate_model
        from nestopt.placement.model.files import PlanFile

        model = validate_model(PlanFile, data, file=file)
        stages = []
        for index, entry in enumerate(model.stages):
            if len({len(row) for row in entry.devices}) != 1:
                raise InputError(
                    "every replica needs the same number of devices",
                    file=file,
                    field=f"stages[{index}].devices",
                )
            config = entry.config
            stages.append(
                Stage(
                    tuple(entry.operators),
                    StageConfig(
                        config.tensor,
                        config.context,
                        config.expert,
                        config.sequence_parallel,
                        config.zero,
                        config.recompute,
                        config.overlap,
                        Hides.of_words(config.hides),
                    ),
                    np.array(entry.devices, dtype=np.int64),
                )
            )
        return cls(
            tuple(stages),
            model.replicas,
            model.microbatch,
            model.schedule,
            model.chunks,
            dict(model.report),
        )
