"""The lattice of order ideals (downsets) of a DAG, enumerated as bitsets.

A pipeline stage of a DAG workload is the difference of two nested ideals, so a dynamic program
over pipelines walks this lattice. A chain of n vertices has n + 1 ideals, n unrelated vertices
have 2**n.
"""

from __future__ import annotations

from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.core.errors import NestoptError
from nestopt.core.stop_kernel import KernelStopped, overdue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["IdealLattice", "TooManyIdealsError", "enumerate_ideals", "topological_order"]

_WORD = 64


class TooManyIdealsError(NestoptError):
    """The DAG has more ideals than the caller allows."""


@dataclass(frozen=True, slots=True, eq=False)
class IdealLattice:
    """All ideals of a DAG with n vertices, smallest first, and which covers which.

    Attributes
    ----------
    masks : uint64 array, (N, W)
        Bit ``v % 64`` of word ``v // 64`` of row i is set when ideal i contains vertex v. Row 0 is
        the empty ideal, row N - 1 the whole vertex set; sizes never decrease.
    sizes : int64 array, (N,)
        Number of vertices in each ideal.
    rank : int64 array, (n,)
        Position of each vertex in the topological order that the enumeration used.
    cover_start : int64 array, (N + 1,)
        Ideal i covers the entries ``cover_start[i]:cover_start[i + 1]`` of the two arrays below.
    cover_vertex, cover_below : int64 arrays, (M,)
        Removing the (maximal) vertex ``cover_vertex[e]`` from ideal i leaves ``cover_below[e]``;
        each ideal's entries come by increasing rank of the vertex.

    Notes
    -----
    Every ideal below i is reached from i exactly once by removing vertices in decreasing rank,
    which is how an interval can be walked without remembering where one has been.
    """

    masks: NDArray[np.uint64]
    sizes: NDArray[np.int64]
    rank: NDArray[np.int64]
    cover_start: NDArray[np.int64]
    cover_vertex: NDArray[np.int64]
    cover_below: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sizes)

    def members(self, index: int) -> list[int]:
        """The vertices of one ideal, in increasing order."""
        row = self.masks[index]
        return [v for v in range(len(self.rank)) if int(row[v // _WORD]) >> (v % _WORD) & 1]


def topological_order(predecessors: Sequence[Sequence[int]]) -> list[int]:
    """A topological order of a DAG.

    Raises
    ------
    NestoptError
        If there is a cycle (named), or a predecessor that is no vertex.
    """
    count = len(predecessors)
    for v, before in enumerate(predecessors):
        for u in before:
            if not 0 <= u < count:
                raise NestoptError(
                    f"vertex {v} has the predecessor {u}; vertices are 0..{count - 1}"
                )
    try:
        return list(TopologicalSorter(dict(enumerate(predecessors))).static_order())
    except CycleError as error:
        cycle = " -> ".join(str(v) for v in error.args[1])
        raise NestoptError(f"the graph has a cycle: {cycle}") from error


def _chain(order: NDArray[np.int64], rank: NDArray[np.int64], words: int) -> IdealLattice:
    """The ideals of a chain: its beginnings."""
    count = len(order)
    masks = np.zeros((count + 1, words), dtype=np.uint64)
    for i, v in enumerate(order.tolist()):
        masks[i + 1] = masks[i]
        masks[i + 1, v // _WORD] |= np.uint64(1) << np.uint64(v % _WORD)
    numbers = np.arange(count + 1, dtype=np.int64)
    start = np.concatenate([np.zeros(1, dtype=np.int64), numbers])
    return IdealLattice(masks, numbers, rank, start, order.copy(), numbers[:-1])


def enumerate_ideals(
    predecessors: Sequence[Sequence[int]], *, limit: int = 1_000_000
) -> IdealLattice:
    """Enumerate the ideals of a DAG.

    Parameters
    ----------
    predecessors : sequence of sequences of int
        ``predecessors[v]`` are the vertices with an edge into v.
    limit : int
        The largest number of ideals to hold; the empty and the full one count.

    Raises
    ------
    TooManyIdealsError
        If there are more than `limit`.
    NestoptError
        If the graph has a cycle.

    Notes
    -----
    Each ideal is generated once, by adding a vertex of higher rank than all it has: the vertex of
    highest rank of an ideal is always maximal in it. Time O(N (n + m)), memory O(N (W + width)).
    """
    count = len(predecessors)
    order = np.asarray(topological_order(predecessors), dtype=np.int64)
    rank = np.empty(count, dtype=np.int64)
    rank[order] = np.arange(count)
    successors: list[list[int]] = [[] for _ in range(count)]
    for v, before in enumerate(predecessors):
        for u in before:
            successors[u].append(v)
    before_start, before_list = _flatten(predecessors)
    after_start, after_list = _flatten(successors)
    words = max(1, -(-count // _WORD))
    # a chain needs no search, and so no kernel that would have to be compiled
    chain = all(int(u) in predecessors[v] for u, v in pairwise(order))
    if chain and count < limit:
        return _chain(order, rank, words)
    masks, sizes = _generate(order, before_start, before_list, words, limit)
    if len(sizes) > limit:
        raise TooManyIdealsError(
            f"the graph of {count} vertices has more than {limit} ideals; raise the limit, or "
            "merge vertices that belong together"
        )
    # Any keys do: a lookup compares whole masks, so a collision costs time, never correctness.
    keys = np.random.default_rng(0).integers(1, 2**63, size=count, dtype=np.uint64)
    start, vertex, below = _covers(masks, order, after_start, after_list, keys)
    return IdealLattice(masks, sizes, rank, start, vertex, below)


def _flatten(lists: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lists as (start offsets, concatenation)."""
    start = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in lists], out=start[1:])
    return start, np.fromiter((x for row in lists for x in row), dtype=np.int64, count=start[-1])


@njit(cache=True, nogil=True)
def _has(mask: Any, vertex: int) -> bool:
    return (mask[vertex >> 6] >> np.uint64(vertex & 63)) & np.uint64(1) != 0


@njit(cache=True, nogil=True)
def _generate(
    order: Any, before_start: Any, before_list: Any, words: int, limit: int
) -> tuple[Any, Any]:
    """Masks and sizes of all ideals, breadth first; stops at limit + 1 of them."""
    capacity = 1024
    masks = np.zeros((capacity, words), dtype=np.uint64)
    sizes = np.zeros(capacity, dtype=np.int64)
    last = np.full(capacity, -1, dtype=np.int64)
    made = 1
    done = 0
    while done < made and made <= limit:
        if overdue():
            raise KernelStopped
        for position in range(last[done] + 1, len(order)):
            v = order[position]
            ready = True
            for e in range(before_start[v], before_start[v + 1]):
                if not _has(masks[done], before_list[e]):
                    ready = False
                    break
            if not ready:
                continue
            if made == capacity:
                masks = np.concatenate((masks, np.zeros((capacity, words), dtype=np.uint64)))
                sizes = np.concatenate((sizes, np.zeros(capacity, dtype=np.int64)))
                last = np.concatenate((last, np.zeros(capacity, dtype=np.int64)))
                capacity *= 2
            masks[made] = masks[done]
            masks[made, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
            sizes[made] = sizes[done] + 1
            last[made] = position
            made += 1
            if made > limit:
                break
        done += 1
    return masks[:made].copy(), sizes[:made].copy()


@njit(cache=True, nogil=True)
def _covers(
    masks: Any, order: Any, after_start: Any, after_list: Any, keys: Any
) -> tuple[Any, Any, Any]:
    """The lower covers of every ideal, found through a hash table of all ideals."""
    total, words = masks.shape
    size = 4
    while size < 2 * total:
        size *= 2
    wrap = np.uint64(size - 1)
    table = np.full(size, -1, dtype=np.int64)
    hashes = np.zeros(total, dtype=np.uint64)
    for i in range(total):
        for v in order:
            if _has(masks[i], v):
                hashes[i] ^= keys[v]
        slot = hashes[i] & wrap
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & wrap
        table[slot] = i
    start = np.zeros(total + 1, dtype=np.int64)
    capacity = 4 * total
    vertex = np.empty(capacity, dtype=np.int64)
    below = np.empty(capacity, dtype=np.int64)
    made = 0
    target = np.empty(words, dtype=np.uint64)
    for i in range(total):
        if overdue():
            raise KernelStopped
        for v in order:
            if not _has(masks[i], v):
                continue
            maximal = True
            for e in range(after_start[v], after_start[v + 1]):
                if _has(masks[i], after_list[e]):
                    maximal = False
                    break
            if not maximal:
                continue
            target[:] = masks[i]
            target[v >> 6] ^= np.uint64(1) << np.uint64(v & 63)
            slot = (hashes[i] ^ keys[v]) & wrap
            while not np.array_equal(masks[table[slot]], target):
                slot = (slot + np.uint64(1)) & wrap
            if made == capacity:
                vertex = np.concatenate((vertex, np.empty(capacity, dtype=np.int64)))
                below = np.concatenate((below, np.empty(capacity, dtype=np.int64)))
                capacity *= 2
            vertex[made] = v
            below[made] = table[slot]
            made += 1
        start[i + 1] = made
    return start, vertex[:made].copy(), below[:made].copy()
