"""Where the chunks of one collective lie in a rank's input, output and scratch buffers.

The layouts are those of NCCL, MSCCL and MSCCL++: blocks of `chunks_per_npu` chunks in the order of
the ranks. What is written first goes to the output where it must end there, else to scratch; the
input is read only. Several collectives at once, subgroups and relays outside the group have no such
buffers, and are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nestopt.core.errors import InputError

if TYPE_CHECKING:
    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.interop.program import Program

__all__ = ["UNROOTED", "Layout", "Place", "layout_of"]

UNROOTED = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Layout:
    """The buffers of one collective over all ranks.

    Attributes
    ----------
    part : Part
    ranks : int
    """

    part: Part
    ranks: int

    @property
    def chunks(self) -> int:
        """Chunks of a block."""
        return self.part.chunks_per_npu

    @property
    def input_chunks(self) -> int:
        """Chunks of a rank's input."""
        return self.chunks * (1 if self.part.pattern == "all-gather" else self.ranks)

    @property
    def output_chunks(self) -> int:
        """Chunks of a rank's output."""
        return self.chunks * (1 if self.part.pattern == "reduce-scatter" else self.ranks)

    def _ends(self, chunk: int) -> tuple[int, int, int]:
        """Source and destination rank of an All-to-All's chunk, and its place in the block."""
        pair, local = divmod(chunk, self.chunks)
        source, other = divmod(pair, self.ranks - 1)
        return source, other + (other >= source), local

    def source(self, rank: int, chunk: int) -> Place | None:
        """Where a rank holds a chunk (or its part of the sum) at the start; None: it does not."""
        if self.part.pattern == "all-gather":
            owner, local = divmod(chunk, self.chunks)
            return ("i", local) if owner == rank else None
        if self.part.pattern == "all-to-all":
            source, target, local = self._ends(chunk)
            return ("i", target * self.chunks + local) if source == rank else None
        return "i", chunk

    def target(self, rank: int, chunk: int) -> Place | None:
        """Where a rank must hold a chunk at the end; None: it must not."""
        if self.part.pattern == "all-to-all":
            source, target, local = self._ends(chunk)
            return ("o", source * self.chunks + local) if target == rank else None
        if self.part.pattern == "reduce-scatter":
            owner, local = divmod(chunk, self.chunks)
            return ("o", local) if owner == rank else None
        return "o", chunk

    def kept(self, rank: int) -> list[tuple[Place, Place]]:
        """Copies from input to output of what never travels: (from, to)."""
        k = self.chunks
        if self.part.pattern == "all-gather":
            return [(("i", x), ("o", rank * k + x)) for x in range(k)]
        if self.part.pattern == "all-to-all":
            return [(("i", rank * k + x), ("o", rank * k + x)) for x in range(k)]
        if self.ranks == 1:
            return [(("i", x), ("o", x)) for x in range(k)]
        return []


def layout_of(instance: CollectiveInstance, program: Program, form: str) -> Layout:
    """The buffers of an instance's one collective.

    Parameters
    ----------
    instance : CollectiveInstance
    program : Program
    form : str
        The format that asks, for the errors.

    Raises
    ------
    InputError
        If the format cannot say it: several collectives, a rooted pattern, relays outside the
        group.
    """
    parts = instance.collective.parts
    if len(parts) > 1:
        raise InputError(f"{len(parts)} collectives at once; {form} says one", field="parts")
    part = parts[0]
    if part.pattern not in UNROOTED:
        raise InputError(
            f"{part.pattern}; {form} does not say which rank is the root", field="pattern"
        )
    outside = sorted(set(program.npus) - set(part.npus.tolist()))
    if outside:
        name = instance.topology.node_name(outside[0])
        raise InputError(
            f"NPU {name} relays and is not in the group; {form} knows the group's ranks alone",
            field="npus",
        )
    return Layout(part, program.ranks)
