"""Candidate stages: pairs of nested ideals, grouped into blocks that cost the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import NestoptError
from nestopt.placement.model.ideals import enumerate_ideals
from nestopt.placement.pricing.cost import Blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nestopt.placement.model.workload import Tied, Workload
    from nestopt.placement.pricing.cost import StageCosts

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["StageLattice", "build_lattice"]


@dataclass(frozen=True, eq=False)
class StageLattice:
    """Every stage that a workload's pipelines can have.

    Attributes
    ----------
    members : bool array (I, operators)
        The ideals, smallest first; row 0 is empty, row I - 1 is everything.
    cut : float array (I,)
        Bytes per sample that leave each ideal.
    start : int array (I + 1,)
        Ideal ``i`` can end a stage that begins behind each ideal of
        ``below[start[i]:start[i + 1]]``, largest first; the stage costs as block
        ``block[...]`` of the same place.
    below, block : int arrays (P,)
    blocks : Blocks
        The distinct blocks (R of them).
    """

    members: NDArray[np.bool_]
    cut: Floats
    start: Ints
    below: NDArray[np.int32]
    block: NDArray[np.int32]
    blocks: Blocks

    @property
    def ideals(self) -> int:
        """How many ideals."""
        return len(self.cut)

    def operators(self, below: int, ideal: int) -> tuple[int, ...]:
        """The operators of the stage between two nested ideals."""
        inside = self.members[ideal] & ~self.members[below]
        return tuple(int(i) for i in np.flatnonzero(inside))


def _cuts(workload: Workload, members: NDArray[np.bool_], stop: Callable[[], None]) -> Floats:
    by_source: dict[int, dict[float, list[int]]] = {}
    for edge in workload.edges:
        by_source.setdefault(edge.source, {}).setdefault(edge.bytes, []).append(edge.target)
    cut = np.zeros(len(members))
    for source in sorted(by_source):
        stop()
        largest = np.zeros(len(members))
        for size, targets in by_source[source].items():
            outside = ~members[:, targets].all(axis=1)
            largest = np.maximum(largest, np.where(outside, size, 0.0))
        cut += np.where(members[:, source], largest, 0.0)
    return cut


def _holds_both(
    members: NDArray[np.bool_],
    tied: Tied,
    lower: NDArray[np.signedinteger[Any]],
    upper: NDArray[np.signedinteger[Any]] | int,
) -> NDArray[np.bool_]:
    """Whether both tied operators lie between ideals."""
    ends = (tied.first, tied.second)
    first, second = (members[upper, i] & ~members[lower, i] for i in ends)
    both: NDArray[np.bool_] = first & second
    return both


class _Names:
    """Many signatures, of which few are distinct: numbered a part at a time."""

    _PART = 1 << 20

    def __init__(self) -> None:
        self._rows: list[NDArray[np.uint64]] = []
        self._waiting = self._done = 0
        self._distinct: list[NDArray[np.uint64]] = []
        self._first: list[Ints] = []
        self._number: list[NDArray[np.int32]] = []

    def add(self, signatures: NDArray[np.uint64]) -> None:
        """More signatures, behind all others."""
        self._rows.append(signatures)
        self._waiting += len(signatures)
        if self._waiting >= self._PART:
            self._close()

    def _close(self) -> None:
        rows = np.concatenate([np.zeros(0, dtype=np.uint64), *self._rows])
        distinct, first, number = np.unique(rows, return_index=True, return_inverse=True)
        self._distinct.append(distinct)
        self._first.append(self._done + first)
        self._number.append(number.astype(np.int32))
        self._done += len(rows)
        self._rows, self._waiting = [], 0

    def numbered(self, stop: Callable[[], None]) -> tuple[Ints, NDArray[np.int32]]:
        """Where each distinct signature is first, in ascending order, and every one's number."""
        self._close()
        known, part = np.unique(np.concatenate(self._distinct), return_index=True)
        parts = []
        for distinct, number in zip(self._distinct, self._number, strict=True):
            stop()
            parts.append(np.searchsorted(known, distinct).astype(np.int32)[number])
        return np.concatenate(self._first)[part], np.concatenate(parts)


def build_lattice(
    workload: Workload,
    costs: StageCosts,
    stop: Callable[[], None] = lambda: None,
    limit: int = 20_000,
) -> StageLattice:
    """All ideals of the workload's graph and all pairs of nested ones.

    Parameters
    ----------
    stop : callable
        Called often; raises when a limit is reached.

    Raises
    ------
    NestoptError
        If there are more than `limit` ideals.
    """
    count = workload.num_operators
    lattice = enumerate_ideals(workload.predecessors, limit=limit)
    members = np.unpackbits(
        lattice.masks.view(np.uint8).reshape(len(lattice), -1), axis=1, bitorder="little"
    )[:, :count].astype(bool)
    stop()
    cut = _cuts(workload, members, stop)
    totals = np.stack(
        [members[:, costs.kind_of == k].sum(axis=1) for k in range(len(costs.kinds))], axis=1
    )
    tied = workload.tied
    key = np.random.default_rng(0).integers(1, 2**62, size=len(costs.kinds) + 1, dtype=np.uint64)
    _, cut_id = np.unique(cut, return_inverse=True)
    start = np.zeros(len(lattice) + 1, dtype=np.int64)
    below_rows = []
    names = _Names()
    packed = lattice.masks
    sums = totals.astype(np.uint64) @ key[:-1]
    for ideal in range(len(lattice)):
        stop()
        if workload.is_chain:
            smaller = np.arange(ideal - 1, -1, -1)
        else:
            nested = ((packed[:ideal] & ~packed[ideal]) == 0).all(axis=1)
            smaller = np.flatnonzero(nested)[::-1]
        start[ideal + 1] = start[ideal] + len(smaller)
        both = np.zeros(len(smaller), dtype=np.bool_)
        if tied is not None:
            both = _holds_both(members, tied, smaller, ideal)
        below_rows.append(smaller.astype(np.int32))
        signature = sums[ideal] - sums[smaller] + both.astype(np.uint64) * key[-1]
        signature = signature * np.uint64(0x9E3779B97F4A7C15) + cut_id[smaller].astype(np.uint64)
        signature = signature * np.uint64(0xC2B2AE3D27D4EB4F) + np.uint64(cut_id[ideal])
        names.add(signature)
    below: NDArray[np.int32] = np.concatenate(below_rows)
    first, block = names.numbered(stop)
    owner = np.repeat(np.arange(len(lattice)), np.diff(start))
    upper, lower = owner[first], below[first]
    counts = totals[upper] - totals[lower]
    for ideal in range(len(lattice)):
        stop()
        rows = slice(start[ideal], start[ideal + 1])
        same = totals[ideal] - totals[below[rows]] == counts[block[rows]]
        if not same.all():
            raise NestoptError("two different blocks have the same hash")
    shared = np.zeros(len(first))
    if tied is not None:
        shared = np.where(_holds_both(members, tied, lower, upper), tied.params, 0.0)
    blocks = Blocks(counts, cut[lower], cut[upper], shared)
    return StageLattice(members, cut, start, below, block, blocks)
