"""Plans: stages with their operators, configurations and devices (``MODEL.md``, section 4)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntFlag
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from nestopt.core.errors import InputError, NestoptError, unknown_name
from nestopt.core.io import validate_model
from nestopt.core.solution import Pictured, as_frame
from nestopt.placement.model.schedules import make_schedule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from pandas import DataFrame

    from nestopt.placement.economics.report import CostReport
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.schedules import PipelineSchedule
    from nestopt.placement.model.workload import Workload

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
    """A pipeline stage: operators (ascending), configuration, devices (d, w); equal by value."""

    operators: tuple[int, ...]
    config: StageConfig
    devices: NDArray[np.int64]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Stage):
            return NotImplemented
        return (
            self.operators == other.operators
            and self.config == other.config
            and np.array_equal(self.devices, other.devices)
        )

    def __hash__(self) -> int:
        return hash((self.operators, self.config, np.asarray(self.devices).tobytes()))

    def __repr__(self) -> str:
        first, last = self.operators[0], self.operators[-1]
        return (
            f"<Stage: operators {first} to {last}, {self.config.label()}, "
            f"{np.size(self.devices)} devices>"
        )


@dataclass(frozen=True, eq=False)
class Plan(Pictured):
    """A whole plan: iterate over its stages, print its `summary`, tabulate it, draw it.

    Two plans are equal if their stages, replicas, micro-batch, shares and schedule are.

    Attributes
    ----------
    stages : tuple of Stage
    replicas, microbatch : int
        Data-parallel replicas; samples of a micro-batch.
    schedule : str
        ``gpipe``, ``1f1b`` or ``interleaved``.
    chunks : int
        Chunks of a stage, of ``interleaved``.
    shares : tuple of int
        Micro-batches that each replica takes in an iteration, (d,); empty: as many each. A plan
        that states them is priced replica by replica, and the weights of the gradients follow the
        shares (``MODEL.md``, section 6).
    report : dict
        A solver's figures for people; never trusted.
    workload, cluster : Workload and Cluster, or None
        What the plan is for, where that is known; names and pictures need it.
    """

    views: ClassVar[str] = "nestopt.placement.show.tables"

    stages: tuple[Stage, ...]
    replicas: int
    microbatch: int
    schedule: str = "1f1b"
    chunks: int = 1
    report: dict[str, Any] = field(default_factory=dict)
    workload: Workload | None = None
    cluster: Cluster | None = None
    shares: tuple[int, ...] = ()

    def on(self, workload: Workload, cluster: Cluster) -> Plan:
        """The same plan, knowing what it is for."""
        return replace(self, workload=workload, cluster=cluster)

    def _key(self) -> tuple[Any, ...]:
        batch = self.replicas, self.microbatch, self.shares
        return self.stages, *batch, self.schedule, self.chunks

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Plan) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def __len__(self) -> int:
        return len(self.stages)

    def __repr__(self) -> str:
        used = sum(int(np.size(stage.devices)) for stage in self.stages)
        return (
            f"<Plan: {len(self.stages)} stages, {self.replicas} replicas, micro-batch "
            f"{self.microbatch}, {self.schedule}, {used} devices"
            f"{', unequal shares' if self.shares else ''}>"
        )

    def summary(self) -> str:
        """The plan for people: one line about the whole, then one line a stage."""
        return str(import_module(self.views).summary(self))

    def to_frame(self) -> DataFrame:
        """One row a stage: operators, degrees, modes, devices; needs pandas.

        Raises
        ------
        NestoptError
            If pandas is not installed.
        """
        return as_frame(import_module(self.views).rows(self))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the stages on the cluster's tree; needs matplotlib.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            New ones by default.

        Raises
        ------
        NestoptError
            If the plan does not know its cluster (see `on`), or matplotlib is not installed.
        """
        axes: Axes = import_module(self.views).draw(self, ax)
        return axes

    def cost(self, tokens: str | float, **terms: Any) -> CostReport:
        """What training with the plan takes: tokens/s, MFU, days, money, energy, goodput.

        Parameters
        ----------
        tokens : str or float
            How many the model is trained on: ``"15T"``, ``3e11``.
        **terms
            ``price`` (money for a device and hour), ``power`` (watts of a device used),
            ``failures`` (``"llama3"``, ``"rsc1"``, ``"rsc2"``, ``"tpuv4"``, or
            interruptions a device and day), ``checkpoint``, ``restart``, ``repair`` (seconds, or
            text with a unit) and ``spares`` (nodes); see `nestopt.placement.economics.terms.Terms`.

        Returns
        -------
        CostReport
            `summary()` for people, `to_json()` for programs.

        Raises
        ------
        NestoptError
            If the plan does not know its workload and cluster (see `on`).
        InputError, UsageError
            If a term is wrong, or the workload does not say how many tokens a sample has.
        """
        if self.workload is None or self.cluster is None:
            raise NestoptError(
                "the plan does not know what it is for; say plan.on(workload, cluster)"
            )
        made = import_module("nestopt.placement.economics.terms").Terms.of(tokens, **terms)
        report = import_module("nestopt.placement.economics.report")
        found: CostReport = report.cost_of(self.workload, self.cluster, self, made)
        return found

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
            **({"shares": list(self.shares)} if self.shares else {}),
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
            shares=tuple(model.shares),
        )
