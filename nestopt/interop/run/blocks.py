"""A part's chunks in the buffers that a library's own collective wants.

A library's buffers also hold the blocks that stay at home (of an All-to-All, and of the root of a
Scatter or Gather), which are no chunks. Rows of a buffer are chunks in the order of their numbers,
with the blocks that stay at home between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Collective, Part

__all__ = ["Rows", "filled", "given_rows", "kept_rows", "reduced_by"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Which chunks of a part lie where in a buffer.

    Attributes
    ----------
    height : int
        Rows of the buffer; 0 where the node has none.
    chunks, rows : tuple of int
        Chunks of the part, and the row of each.
    """

    height: int
    chunks: tuple[int, ...]
    rows: tuple[int, ...]


def _around(part: Part, node: int) -> tuple[int, ...]:
    """Rows of a buffer of a block a node, without the block of `node` itself."""
    n, k = len(part.npus), part.chunks_per_npu
    position = part.npus.tolist().index(node)
    return tuple(row for row in range(n * k) if row // k != position)


def given_rows(part: Part, node: int) -> Rows:
    """The library's input at a node of the group."""
    sources = part.sources()
    chunks = tuple(np.flatnonzero((sources == node) | (sources < 0)).tolist())
    n, k = len(part.npus), part.chunks_per_npu
    if part.pattern == "all-to-all" or (part.pattern == "scatter" and part.root == node):
        return Rows(n * k, chunks, _around(part, node))
    if part.pattern == "gather" and part.root == node:
        return Rows(k, (), ())
    return Rows(len(chunks), chunks, tuple(range(len(chunks))))


def kept_rows(part: Part, node: int) -> Rows:
    """The library's output at a node of the group."""
    targets = part.destinations()
    chunks = tuple(np.flatnonzero((targets == node) | (targets < 0)).tolist())
    n, k = len(part.npus), part.chunks_per_npu
    if part.pattern == "all-to-all" or (part.pattern == "gather" and part.root == node):
        return Rows(n * k, chunks, _around(part, node))
    if part.pattern == "scatter" and part.root == node:
        return Rows(k, (), ())
    return Rows(len(chunks), chunks, tuple(range(len(chunks))))


def filled(
    rows: Rows, cells: dict[int, NDArray[Any]], first: int, elements: int, dtype: Any
) -> NDArray[Any]:
    """A buffer with a node's cells in their rows, zeros elsewhere.

    Parameters
    ----------
    rows : Rows
    cells : dict
        By chunk of the collective.
    first : int
        The part's first chunk.
    elements : int
        Of a chunk.
    dtype : Any
    """
    buffer = np.zeros((rows.height, elements), dtype=dtype)
    for chunk, row in zip(rows.chunks, rows.rows):
        buffer[row] = cells[first + chunk]
    return buffer


def reduced_by(collective: Collective) -> dict[int, int]:
    """How many contributions each chunk that is a sum has."""
    counts: dict[int, int] = {}
    first = 0
    for part in collective.parts:
        if part.reduction:
            counts |= dict.fromkeys(range(first, first + part.num_chunks), len(part.npus))
        first += part.num_chunks
    return counts
