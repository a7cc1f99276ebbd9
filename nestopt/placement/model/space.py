"""The plan space: which plans count. It is part of the problem, of its hash and of every answer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, unknown_name
from nestopt.core.integers import divisors
from nestopt.placement.model.grid import Grid, grid_of, hidden
from nestopt.placement.model.plan import Hides
from nestopt.placement.model.schedules import make_schedule
from nestopt.placement.model.structure import structured_layouts
from nestopt.placement.model.words import (
    ALL,
    Decomposition,
    Degrees,
    Layout,
    Recompute,
    ScheduleName,
    Shares,
    Structure,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from enum import StrEnum

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan, StageConfig
    from nestopt.placement.model.schedules import PipelineSchedule
    from nestopt.placement.model.workload import Workload

__all__ = ["SPACE_NAMES", "PlanSpace", "Refusal", "possible_chunks"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a space does not admit a plan.

    Attributes
    ----------
    field : str
        The field of `PlanSpace`.
    found, offered : str
        What the plan has, and what the space offers.
    """

    field: str
    found: str
    offered: str

    def __str__(self) -> str:
        return f"{self.field}: {self.found}; the space offers {self.offered}"


@dataclass(frozen=True, slots=True)
class PlanSpace:
    """Which plans count (``MODEL.md``, sections 4 and 8).

    By default everything that the model allows, but for 4D decompositions and overlap, which
    ``PlanSpace.named("4d")`` adds. Two spaces are two problems.

    Attributes
    ----------
    tensor, context, expert : Degrees
        Degrees of a stage. `ALL`: each that divides what some operator says.
    zero : tuple of int
        ZeRO stages.
    recompute : tuple of Recompute
    sequence : tuple of bool
        Sequence parallelism off, on or both (stages without tensor parallelism are always off).
    microbatch, replicas : Degrees
        Samples of a micro-batch; data-parallel replicas. `ALL`: each divisor of the global batch
        that leaves a whole number of micro-batches for each replica (with unequal shares any
        number of replicas that has a micro-batch each).
    layouts : tuple of Layout
        Of the contiguous and the structured space.
    schedules : tuple of ScheduleName
    chunks : Degrees
        Chunks a stage of ``interleaved``. `ALL`: every number above 1 that can divide the
        operators.
    uniform : bool
        Whether all stages have one configuration.
    decomposition : Decomposition
    overlap : tuple of bool
        Overlap of tensor communication off, on or both (stages without tensor parallelism are
        always off).
    hides : tuple of Hides
        What the framework hides behind computation; a stage has of each what it can hide.
    structure : Structure
    shares : Shares
        Whether the replicas may take unequal numbers of micro-batches.

    Raises
    ------
    InputError
        Naming the field, the value and what was expected.
    """

    tensor: Degrees = ALL
    context: Degrees = ALL
    expert: Degrees = ALL
    zero: tuple[int, ...] = (0, 1, 2, 3)
    recompute: tuple[Recompute, ...] = tuple(Recompute)
    sequence: tuple[bool, ...] = (False, True)
    microbatch: Degrees = ALL
    replicas: Degrees = ALL
    layouts: tuple[Layout, ...] = tuple(Layout)
    schedules: tuple[ScheduleName, ...] = tuple(ScheduleName)
    chunks: Degrees = ALL
    uniform: bool = False
    decomposition: Decomposition = Decomposition.MEGATRON
    overlap: tuple[bool, ...] = (False,)
    hides: tuple[Hides, ...] = (Hides.NONE,)
    structure: Structure = Structure.STRUCTURED
    shares: Shares = Shares.EQUAL

    def __post_init__(self) -> None:
        for name in ("tensor", "context", "expert", "microbatch", "replicas"):
            object.__setattr__(self, name, _degrees(name, getattr(self, name), 1))
        object.__setattr__(self, "chunks", _degrees("chunks", self.chunks, 2))
        zero = _integers("zero", self.zero, 0)
        if zero[-1] > 3:
            raise InputError(f"{zero[-1]}; expected ZeRO stages from 0 to 3", field="zero")
        object.__setattr__(self, "zero", zero)
        for name, kind in _WORDS.items():
            object.__setattr__(self, name, _words(name, getattr(self, name), kind))
        for name in ("sequence", "overlap"):
            object.__setattr__(self, name, _switches(name, getattr(self, name)))
        if not isinstance(self.uniform, bool):
            raise InputError(f"{self.uniform!r}; expected True or False", field="uniform")
        object.__setattr__(
            self, "decomposition", _word("decomposition", self.decomposition, Decomposition)
        )
        object.__setattr__(self, "hides", _hides(self.hides))
        object.__setattr__(self, "structure", _word("structure", self.structure, Structure))
        object.__setattr__(self, "shares", _word("shares", self.shares, Shares))
        if self.chunks is not ALL and ScheduleName.INTERLEAVED not in self.schedules:
            raise InputError(
                f"{list(self.chunks)}, but the schedules are {', '.join(self.schedules)}; "
                "expected none, since only interleaved cuts stages into chunks",
                field="chunks",
            )

    # --- names and text --------------------------------------------------------------------------

    @classmethod
    def named(cls, name: str) -> PlanSpace:
        """The space of a name; `SPACE_NAMES` lists them.

        Raises
        ------
        UsageError
            If there is none (with a suggestion).
        """
        if name not in SPACE_NAMES:
            raise unknown_name("plan space", name, SPACE_NAMES)
        return SPACE_NAMES[name]

    @classmethod
    def parse(cls, text: str | Mapping[str, str], base: PlanSpace | None = None) -> PlanSpace:
        """The space of a text such as ``"megatron-core tensor=1,2 structure=general"``.

        See `nestopt.placement.model.space_text.parse_space`.
        """
        from nestopt.placement.model.space_text import parse_space

        return parse_space(text, base)

    @property
    def name(self) -> str:
        """The space's name, whatever its structure; empty if it has none."""
        named = (n for n, s in SPACE_NAMES.items() if s == replace(self, structure=s.structure))
        return next(named, "")

    @property
    def text(self) -> str:
        """The text that `parse` reads back: a name, then what differs from it."""
        from nestopt.placement.model.space_text import space_text

        return space_text(self)

    @property
    def plans_text(self) -> str:
        """`text` without the structure."""
        from nestopt.placement.model.space_text import space_text

        return space_text(self, structure=False)

    @property
    def label(self) -> str:
        """How outputs call the space: ``'full' (structured)``."""
        return f"'{self.plans_text}' ({self.structure})"

    def __str__(self) -> str:
        from nestopt.placement.model.space_text import describe_space

        return describe_space(self)

    def to_json(self) -> dict[str, Any]:
        """The space as JSON: every field, `ALL` as ``"all"``.

        The structure is written as `Structure.recorded`.
        """
        structure, orders = self.structure.recorded
        return {
            "tensor": _plain(self.tensor),
            "context": _plain(self.context),
            "expert": _plain(self.expert),
            "zero": list(self.zero),
            "recompute": [str(word) for word in self.recompute],
            "sequence": list(self.sequence),
            "microbatch": _plain(self.microbatch),
            "replicas": _plain(self.replicas),
            "layouts": [str(word) for word in self.layouts],
            "schedules": [str(word) for word in self.schedules],
            "chunks": _plain(self.chunks),
            "uniform": self.uniform,
            "decomposition": str(self.decomposition),
            "overlap": list(self.overlap),
            "hides": [list(flags.words) for flags in self.hides],
            "structure": structure,
            **({"orders": orders} if orders else {}),
            **({} if self.shares is Shares.EQUAL else {"shares": str(self.shares)}),
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> PlanSpace:
        """Inverse of `to_json`; a text is parsed, and a field left out has its default.

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        from nestopt.placement.model.space_text import space_from_json

        return space_from_json(data, file=file)

    # --- what is in the space --------------------------------------------------------------------

    def grids(self, workload: Workload, devices: int) -> list[Grid]:
        """The grids that suit at least one operator and `devices` devices."""
        operators = list({o.kind: o for o in workload.operators}.values())
        contexts = _offered(self.context, (o.context_divides for o in operators))
        experts = _offered(self.expert, (o.experts for o in operators))
        found = set()
        for x, y, z in self._tensors(operators, workload.global_batch, devices):
            for c in contexts:
                for e in experts:
                    grid = Grid(x, y, z, c, e)
                    if grid.width <= devices and any(
                        o.allows(*grid) and (e == 1 or o.experts) for o in operators
                    ):
                        found.add(grid)
        return sorted(found, key=lambda g: (g.width, g.t, g.x * g.z, g))

    def _tensors(
        self, operators: Sequence[Any], batch: int, devices: int
    ) -> list[tuple[int, int, int]]:
        """The tensor decompositions (Gx, Gy, Gz) that some operators may allow."""
        ys = _offered(ALL, (math.gcd(*o.tensor_divides) for o in operators))
        xs, zs = [1], [1]
        if self.decomposition is Decomposition.FOUR_D:
            xs = _offered(ALL, (math.gcd(*o.x_divides) for o in operators))
            zs = divisors(batch)
        return [
            (x, y, z)
            for x in xs
            for y in ys
            for z in zs
            if x * y * z <= devices and (self.tensor is ALL or x * y * z in self.tensor)
        ]

    def batches(self, workload: Workload, devices: int) -> list[tuple[int, int]]:
        """Pairs (replicas, micro-batch) that divide the global batch, replicas ascending."""
        return [
            (d, b)
            for d in divisors(workload.global_batch)
            if d <= devices and (self.replicas is ALL or d in self.replicas)
            for b in divisors(workload.global_batch // d)
            if self.microbatch is ALL or b in self.microbatch
        ]

    def uneven_batches(self, workload: Workload, devices: int) -> list[tuple[int, int]]:
        """Pairs (replicas, micro-batch) with a micro-batch or more for each of several replicas.

        The replicas need not divide the micro-batches: those of plans that state their shares.
        Empty unless the space has such plans.
        """
        if self.shares is Shares.EQUAL:
            return []
        return [
            (d, b)
            for b in divisors(workload.global_batch)
            if self.microbatch is ALL or b in self.microbatch
            for d in range(2, min(devices, workload.global_batch // b) + 1)
            if self.replicas is ALL or d in self.replicas
        ]

    def pairs(self, workload: Workload, devices: int) -> list[tuple[int, int]]:
        """All pairs (replicas, micro-batch), with equal shares or unequal ones."""
        equal = self.batches(workload, devices)
        return list(dict.fromkeys([*equal, *self.uneven_batches(workload, devices)]))

    def pipelines(self, workload: Workload) -> list[PipelineSchedule]:
        """Schedules to search, with every number of chunks that can divide the operators.

        ``gpipe`` is left out where ``1f1b`` is offered: a plan costs the same with both, and 1F1B
        never holds more micro-batches.
        """
        found: list[PipelineSchedule] = []
        for schedule in self.schedules:
            chunks = [1]
            if schedule is ScheduleName.GPIPE and found:
                continue
            if schedule is ScheduleName.INTERLEAVED:
                chunks = [v for v in possible_chunks(workload) if _in(v, self.chunks)]
            found += [make_schedule(schedule, v) for v in chunks]
        return found

    def admits(self, plan: Plan, cluster: Cluster | None = None) -> Refusal | None:
        """Why a plan is outside the space; None if it is inside.

        Whether the plan is one at all (degrees divide the operators, devices are distinct) is the
        checker's to say. With `cluster` the places are judged too: without it, structure and
        layouts are not.
        """
        for field, value, offered in (
            ("replicas", plan.replicas, self.replicas),
            ("microbatch", plan.microbatch, self.microbatch),
        ):
            if not _in(value, offered):
                return Refusal(field, str(value), _shown(offered))
        if plan.schedule not in self.schedules:
            return Refusal("schedules", plan.schedule, ", ".join(self.schedules))
        if plan.schedule == ScheduleName.INTERLEAVED and not _in(plan.chunks, self.chunks):
            return Refusal("chunks", str(plan.chunks), _shown(self.chunks))
        if plan.shares and self.shares is Shares.EQUAL:
            return Refusal("shares", "the plan states them", str(self.shares))
        for index, stage in enumerate(plan.stages):
            refusal = self._refuses(stage.config)
            if refusal is not None:
                return replace(refusal, found=f"stage {index} has {refusal.found}")
        configs = {stage.config for stage in plan.stages}
        if self.uniform and len(configs) > 1:
            labels = ", ".join(sorted(c.label() for c in configs))
            return Refusal("uniform", f"{len(configs)} configurations ({labels})", "one")
        return None if cluster is None else self._misplaced(plan, cluster)

    def _refuses(self, config: StageConfig) -> Refusal | None:
        for field, value, offered in (
            ("tensor", config.t, self.tensor),
            ("context", config.context, self.context),
            ("expert", config.expert, self.expert),
        ):
            if not _in(value, offered):
                return Refusal(field, str(value), _shown(offered))
        x, _, z = config.tensor
        if self.decomposition is Decomposition.MEGATRON and x * z > 1:
            return Refusal("decomposition", f"{config.tensor}", "(1, t, 1) alone")
        if config.zero not in self.zero:
            return Refusal("zero", str(config.zero), _shown(self.zero))
        if config.recompute not in self.recompute:
            return Refusal("recompute", config.recompute, ", ".join(self.recompute))
        splits = config.tensor[1] > 1 and x == 1
        for field, on, possible, switch in (
            ("sequence", config.sequence_parallel, splits, self.sequence),
            ("overlap", config.overlap, config.t > 1, self.overlap),
        ):
            if possible and on not in switch:
                return Refusal(field, str(on).lower(), _shown(switch))
        grid = grid_of(config)
        able = {hidden(grid, config.zero, config.overlap, flags) for flags in self.hides}
        if config.hides not in able:
            words = " or ".join("+".join(flags.words) or "none" for flags in sorted(able))
            return Refusal("hides", "+".join(config.hides.words) or "none", words)
        return None

    def _misplaced(self, plan: Plan, cluster: Cluster) -> Refusal | None:
        if self.structure is Structure.GENERAL:
            return None
        wide = structured_layouts(cluster, plan)
        found = wide
        if self.structure is Structure.CONTIGUOUS:
            found = structured_layouts(cluster, plan, orders=False)
        if not found:
            what = "the stages are no contiguous runs of alive devices in hierarchy order"
            if wide:
                what = "a stage's axes run in another order than replica, expert, context, z, y, x"
            return Refusal("structure", what, str(self.structure))
        if plan.replicas > 1 and not found & set(self.layouts):
            return Refusal("layouts", " and ".join(sorted(found)), ", ".join(self.layouts))
        return None


def possible_chunks(workload: Workload) -> list[int]:
    """Numbers of chunks above 1 into which the stages of some pipeline can be cut.

    Every stage holds the operators of each repeated kind in multiples of the chunks, so their
    number is one too; a stage has no fewer operators than chunks.
    """
    counts: dict[str, int] = {}
    for operator in workload.operators:
        counts[operator.kind] = counts.get(operator.kind, 0) + 1
    repeated = [n for n in counts.values() if n > 1]
    if not repeated:
        return list(range(2, workload.num_operators + 1))
    return [v for v in divisors(math.gcd(*repeated)) if v > 1]


def _in(value: int, offered: Degrees) -> bool:
    return offered is ALL or value in offered


def _offered(wanted: Degrees, divided: Iterable[int]) -> list[int]:
    """Degrees wanted, or all divisors of some numbers, and 1."""
    if wanted is not ALL:
        return list(wanted)
    return sorted({1, *(k for number in set(divided) if number > 0 for k in divisors(number))})


def _plain(degrees: Degrees) -> str | list[int]:
    return "all" if degrees is ALL else list(degrees)


def _shown(offered: Degrees | tuple[bool, ...]) -> str:
    return "all" if offered is ALL else ", ".join(str(x).lower() for x in offered)


def _integers(name: str, values: Any, low: int) -> tuple[int, ...]:
    try:
        found = tuple(values)
    except TypeError:
        raise InputError(f"{values!r}; expected some integers", field=name) from None
    for value in found:
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise InputError(f"{value!r}; expected integers from {low}", field=name)
    if not found:
        raise InputError("is empty; expected at least one", field=name)
    return tuple(sorted(set(found)))


def _degrees(name: str, values: Any, low: int) -> Degrees:
    return ALL if values is ALL else _integers(name, values, low)


def _word(name: str, value: Any, kind: type[StrEnum]) -> StrEnum:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise InputError(f"{value!r}; expected one of {known}", field=name) from None


def _words(name: str, values: Any, kind: type[StrEnum]) -> tuple[StrEnum, ...]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise InputError(f"{values!r}; expected some of {', '.join(kind)}", field=name)
    found = {_word(name, value, kind) for value in values}
    if not found:
        raise InputError(f"is empty; expected some of {', '.join(kind)}", field=name)
    return tuple(word for word in kind if word in found)


def _hides(values: Any) -> tuple[Hides, ...]:
    found = list(values) if hasattr(values, "__iter__") and not isinstance(values, str) else []
    if not found or not all(isinstance(value, Hides) for value in found):
        raise InputError(f"{values!r}; expected some of Hides", field="hides")
    return tuple(sorted(set(found)))


def _switches(name: str, values: Any) -> tuple[bool, ...]:
    found = list(values) if hasattr(values, "__iter__") and not isinstance(values, str) else []
    if not found or not all(isinstance(value, bool) for value in found):
        raise InputError(f"{values!r}; expected False, True or both", field=name)
    return tuple(sorted({bool(value) for value in found}))


_WORDS: dict[str, type[StrEnum]] = {
    "recompute": Recompute, "layouts": Layout, "schedules": ScheduleName,
}  # fmt: skip

_DOUBLING = (1, 2, 4, 8, 16, 32, 64)

SPACE_NAMES: dict[str, PlanSpace] = {
    "full": PlanSpace(),
    "default": PlanSpace(),
    "4d": PlanSpace(decomposition=Decomposition.FOUR_D, overlap=(False, True)),
    "megatron-core": PlanSpace(
        zero=(0, 1),
        schedules=(ScheduleName.ONE_F_ONE_B, ScheduleName.INTERLEAVED),
        uniform=True,
        hides=(Hides.TENSOR | Hides.SYNC,),
        structure=Structure.CONTIGUOUS,
    ),
    "torchtitan": PlanSpace(
        zero=(0, 2, 3),
        sequence=(True,),
        layouts=(Layout.INNER,),
        uniform=True,
        hides=(Hides.TENSOR | Hides.SYNC | Hides.GATHERS,),
        structure=Structure.CONTIGUOUS,
    ),
    "deepspeed": PlanSpace(
        context=(1,),
        sequence=(False,),
        schedules=(ScheduleName.ONE_F_ONE_B,),
        uniform=True,
        hides=(Hides.SYNC | Hides.GATHERS,),
        structure=Structure.CONTIGUOUS,
    ),
    "axonn": PlanSpace(
        context=(1,),
        expert=(1,),
        zero=(0,),
        recompute=(Recompute.NONE, Recompute.FULL),
        sequence=(False,),
        schedules=(ScheduleName.ONE_F_ONE_B,),
        uniform=True,
        decomposition=Decomposition.FOUR_D,
        overlap=(True,),
        hides=(Hides.SYNC,),
        structure=Structure.CONTIGUOUS,
    ),
    "default-1": PlanSpace(
        tensor=_DOUBLING[:5],
        context=(1,),
        expert=_DOUBLING,
        schedules=(ScheduleName.ONE_F_ONE_B,),
        structure=Structure.CONTIGUOUS,
    ),
}
"""Spaces by name.

``full`` (also ``default``) is everything that the model allows but 4D decompositions and overlap,
``4d`` adds these. ``megatron-core`` and ``torchtitan`` are what those frameworks run: one
configuration for all stages; the distributed optimizer (ZeRO 1), or fully sharded data parallelism
(ZeRO 2 or 3, sequence parallelism wherever tensor parallelism is, replicas inside a stage's block).
``deepspeed`` and ``axonn`` are those two frameworks' (ZeRO without sequence parallelism; 4D
decompositions with AxoNN's overlaps). These four hide what the parameter sets say of them
(`nestopt.placement.pricing.parameters`).
``default-1`` is the default of instances of schema 1: degrees in powers of two, no context
parallelism, 1F1B. ``full`` and ``4d`` are structured; the others are contiguous, as frameworks deal
ranks out and as plans were before axes had an order.
"""
