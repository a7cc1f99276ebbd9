"""Ring collectives on real arrays among emulated ranks, every byte counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.fourd.decomposition import offset

if TYPE_CHECKING:
    from nestopt.fourd.decomposition import Grid

    Array = np.ndarray[Any, np.dtype[np.float64]]

__all__ = ["Communicator", "Tag"]

Tag = tuple[str, str, str]
"""Layer, phase and tensor of a collective."""


class Communicator:
    """Runs the collectives of all groups of an axis and counts what every rank sends.

    Attributes
    ----------
    grid : Grid
    sent : dict
        (layer, phase, kind, axis, tensor) to bytes sent by each rank, int64 of shape (ranks,).
    buffers : dict
        The same keys to the full buffer's elements in each rank's group.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.sent: dict[tuple[str, str, str, str, str], np.ndarray[Any, np.dtype[np.int64]]] = {}
        self.buffers: dict[tuple[str, str, str, str, str], np.ndarray[Any, np.dtype[np.int64]]] = {}

    def all_gather(self, parts: list[Array], sizes: list[int], axis: str, tag: Tag) -> list[Array]:
        """Each rank's flat full buffer of `sizes[rank]` elements from its chunk of it."""

        def run(group: tuple[int, ...]) -> tuple[list[Array], list[int]]:
            return _gather([parts[r] for r in group], sizes[group[0]])

        return self._each(run, "all-gather", axis, tag, sizes)

    def reduce_scatter(self, parts: list[Array], axis: str, tag: Tag) -> list[Array]:
        """Each rank's flat chunk of its group's sum."""

        def run(group: tuple[int, ...]) -> tuple[list[Array], list[int]]:
            return _scatter([parts[r].ravel() for r in group], np.add)

        return self._each(run, "reduce-scatter", axis, tag, [p.size for p in parts])

    def all_reduce(
        self, parts: list[Array], axis: str, tag: Tag, reduction: np.ufunc = np.add
    ) -> list[Array]:
        """Each rank's copy of its group's reduced array, in the shape of its part."""

        def run(group: tuple[int, ...]) -> tuple[list[Array], list[int]]:
            flat = [parts[r].ravel() for r in group]
            chunks, first = _scatter(flat, reduction)
            full, second = _gather(chunks, flat[0].size)
            return full, [a + b for a, b in zip(first, second)]

        reduced = self._each(run, "all-reduce", axis, tag, [p.size for p in parts])
        return [full.reshape(part.shape) for full, part in zip(reduced, parts)]

    def _each(self, run: Any, kind: str, axis: str, tag: Tag, sizes: list[int]) -> list[Array]:
        grid = self.grid
        result: list[Array] = [np.empty(0)] * grid.ranks
        sent = np.zeros(grid.ranks, dtype=np.int64)
        for rank in range(grid.ranks):
            if grid.coordinate(rank, axis) == 0:
                group = grid.group(rank, axis)
                arrays, counts = run(group)
                for member, array, count in zip(group, arrays, counts):
                    result[member] = array
                    sent[member] = count
        if grid.size(axis) > 1:
            layer, phase, tensor = tag
            key = (layer, phase, kind, axis, tensor)
            self.sent[key] = self.sent.get(key, 0) + sent
            self.buffers[key] = self.buffers.get(key, 0) + np.array(sizes, dtype=np.int64)
        return result


def _chunks(size: int, group: int) -> list[slice]:
    return [slice(offset(size, group, i), offset(size, group, i + 1)) for i in range(group)]


def _scatter(parts: list[Array], reduction: np.ufunc) -> tuple[list[Array], list[int]]:
    """Ring reduce-scatter: after group - 1 steps member i holds chunk i reduced."""
    group = len(parts)
    chunks = _chunks(parts[0].size, group)
    work = [part.copy() for part in parts]
    sent = [0] * group
    for step in range(group - 1):
        moved = [work[i][chunks[(i - 1 - step) % group]].copy() for i in range(group)]
        for i, payload in enumerate(moved):
            sent[i] += payload.nbytes
            target = work[(i + 1) % group][chunks[(i - 1 - step) % group]]
            reduction(target, payload, out=target)
    return [work[i][chunks[i]] for i in range(group)], sent


def _gather(parts: list[Array], size: int) -> tuple[list[Array], list[int]]:
    """Ring all-gather: in each step a member passes on the chunk that it received last."""
    group = len(parts)
    chunks = _chunks(size, group)
    full = [np.zeros(size) for _ in parts]
    for i, part in enumerate(parts):
        full[i][chunks[i]] = part
    sent = [0] * group
    for step in range(group - 1):
        moved = [full[i][chunks[(i - step) % group]].copy() for i in range(group)]
        for i, payload in enumerate(moved):
            sent[i] += payload.nbytes
            full[(i + 1) % group][chunks[(i - step) % group]] = payload
    return full, sent
