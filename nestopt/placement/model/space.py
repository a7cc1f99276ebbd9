"""The space of plans that a method searches: which degrees, modes, batches and layouts.

Parsed from ``--set KEY=VALUE``; the dynamic program, the exact models and the baselines share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nestopt.core.errors import InputError
from nestopt.core.integers import divisors
from nestopt.placement.model.grid import Grid
from nestopt.placement.model.plan import RECOMPUTE
from nestopt.placement.model.schedules import SCHEDULE_NAMES, Interleaved, make_schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nestopt.placement.model.schedules import PipelineSchedule
    from nestopt.placement.model.workload import Workload

__all__ = ["SPACE_SETTINGS", "SpaceSettings", "divisors"]

SPACE_SETTINGS = (
    "tensor", "context", "expert", "zero", "recompute", "sequence", "microbatch", "replicas",
    "layout", "schedule", "chunks", "uniform", "decomposition", "overlap",
)  # fmt: skip
"""The ``--set`` keys that describe the space."""


def _powers(limit: int) -> tuple[int, ...]:
    return tuple(2**k for k in range(limit.bit_length()) if 2**k <= limit)


@dataclass(frozen=True, slots=True)
class SpaceSettings:
    """A space of plans.

    Attributes
    ----------
    tensor, expert : tuple of int or None
        Degrees offered; None: powers of two (tensor up to 16, expert up to the experts and 64).
    context : tuple of int
    zero : tuple of int
    recompute : tuple of str
    sequence : tuple of bool
        Sequence parallelism off, on or both (stages without tensor parallelism are always off).
    microbatch, replicas : tuple of int or None
        None: every divisor that leaves a whole number of micro-batches.
    layouts : tuple of str
        ``inner`` and ``outer`` (structured space).
    schedule : str
    chunks : int
        Virtual stages of ``interleaved``.
    uniform : bool
        One configuration for all stages.
    decomposition : str
        ``megatron``: a tensor degree t is (1, t, 1); ``4d``: every (Gx, Gy, Gz) of product t.
    overlap : tuple of bool
        Overlap of the decomposition's communication off, on or both (stages without tensor
        parallelism are always off). By default off for ``megatron`` and both for ``4d``.
    """

    tensor: tuple[int, ...] | None = None
    context: tuple[int, ...] = (1,)
    expert: tuple[int, ...] | None = None
    zero: tuple[int, ...] = (0, 1, 2, 3)
    recompute: tuple[str, ...] = RECOMPUTE
    sequence: tuple[bool, ...] = (False, True)
    microbatch: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    layouts: tuple[str, ...] = ("inner", "outer")
    schedule: str = "1f1b"
    chunks: int = 1
    uniform: bool = False
    decomposition: str = "megatron"
    overlap: tuple[bool, ...] = (False,)

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> SpaceSettings:
        """The space of ``--set`` pairs; keys that do not describe the space are passed over.

        Raises
        ------
        InputError
            If a value is not of its key's form.
        """
        values: dict[str, object] = {}
        for key in ("tensor", "context", "expert", "microbatch", "replicas"):
            if key in settings:
                values[key] = _integers(key, settings[key], low=1)
        if "zero" in settings:
            values["zero"] = _integers("zero", settings["zero"], low=0, high=3)
        if "recompute" in settings:
            values["recompute"] = _words("recompute", settings["recompute"], RECOMPUTE)
        if "sequence" in settings:
            numbers = _integers("sequence", settings["sequence"], low=0, high=1)
            values["sequence"] = tuple(bool(x) for x in numbers)
        if "decomposition" in settings:
            schemes = ("megatron", "4d")
            (word,) = _words("decomposition", settings["decomposition"], schemes, single=True)
            values["decomposition"] = word
            values["overlap"] = (False,) if word == "megatron" else (False, True)
        if "overlap" in settings:
            numbers = _integers("overlap", settings["overlap"], low=0, high=1)
            values["overlap"] = tuple(bool(x) for x in numbers)
        if "layout" in settings:
            values["layouts"] = _words("layout", settings["layout"], ("inner", "outer"))
        if "uniform" in settings:
            (word,) = _words("uniform", settings["uniform"], ("true", "false"), single=True)
            values["uniform"] = word == "true"
        if "schedule" in settings:
            (values["schedule"],) = _words(
                "schedule", settings["schedule"], SCHEDULE_NAMES, single=True
            )
        if "chunks" in settings:
            (values["chunks"],) = _integers("chunks", settings["chunks"], low=1, single=True)
        interleaved = values.get("schedule") == Interleaved.name
        if interleaved and values.get("chunks", 1) == 1:
            raise InputError("interleaving needs chunks=2 or more", field="--set chunks")
        if not interleaved and values.get("chunks", 1) != 1:
            raise InputError("chunks needs schedule=interleaved", field="--set chunks")
        return cls(**values)  # type: ignore[arg-type]

    @property
    def pipeline(self) -> PipelineSchedule:
        """The schedule as an object."""
        return make_schedule(self.schedule, self.chunks)

    def grids(self, workload: Workload, devices: int) -> list[Grid]:
        """The grids that suit at least one operator and `devices` devices."""
        experts = max((o.experts for o in workload.operators), default=0)
        found = []
        for x, y, z in self.tensors():
            for c in self.context:
                for e in self.expert or _powers(max(1, min(experts, 64))):
                    grid = Grid(x, y, z, c, e)
                    if grid.width <= devices and any(
                        o.allows(*grid) and (e == 1 or o.experts) for o in workload.operators
                    ):
                        found.append(grid)
        return sorted(set(found), key=lambda g: (g.width, g.t, g.x * g.z, g))

    def tensors(self) -> list[tuple[int, int, int]]:
        """The tensor decompositions (Gx, Gy, Gz) offered, Megatron's first of each degree."""
        found = []
        for t in self.tensor or _powers(16):
            found.append((1, t, 1))
            if self.decomposition == "4d":
                splits = ((x, y, t // x // y) for x in divisors(t) for y in divisors(t // x))
                found += [split for split in splits if split != (1, t, 1)]
        return found

    def batches(self, workload: Workload, devices: int) -> list[tuple[int, int]]:
        """Pairs (replicas, micro-batch) that divide the global batch, replicas ascending."""
        pairs = []
        for d in divisors(workload.global_batch):
            if d > devices or (self.replicas is not None and d not in self.replicas):
                continue
            for b in divisors(workload.global_batch // d):
                if self.microbatch is None or b in self.microbatch:
                    pairs.append((d, b))
        return pairs


def _integers(
    key: str, text: str, *, low: int, high: int | None = None, single: bool = False
) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError as error:
        raise InputError(
            f"{text!r}; expected integers separated by commas", field=f"--set {key}"
        ) from error
    span = f"at least {low}" if high is None else f"from {low} to {high}"
    if any(n < low or (high is not None and n > high) for n in numbers):
        raise InputError(f"{text!r}; expected integers {span}", field=f"--set {key}")
    if single and len(numbers) != 1:
        raise InputError(f"{text!r}; expected one integer", field=f"--set {key}")
    return numbers


def _words(key: str, text: str, known: tuple[str, ...], *, single: bool = False) -> tuple[str, ...]:
    words = tuple(text.split(","))
    if any(w not in known for w in words) or (single and len(words) != 1):
        one = "one of" if single else "some of"
        raise InputError(f"{text!r}; expected {one} {', '.join(known)}", field=f"--set {key}")
    return tuple(w for w in known if w in words)
