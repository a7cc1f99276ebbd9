"""Which NPU sends which chunk to which: the known algorithms as lists of messages.

An algorithm spreads chunks that each start at one NPU to all NPUs of the group, or carries chunks
from one NPU to one other. Reductions are spreads backwards in time. Ranks are positions in the
group; a message is (step, chunk, from, to), and messages are issued in order of their steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.baselines.orders import binary_tree
from nestopt.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["ALGORITHMS", "Group", "Message"]

Message = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of a part and what is laid over them.

    Attributes
    ----------
    size : int
    ring : sequence of int
        A tour of the ranks.
    digits : sequence of int arrays
        Dimensions, the outermost first.
    distance : int64[size, size]
        Time of a chunk from rank to rank without contention, picoseconds.
    """

    size: int
    ring: Sequence[int]
    digits: Sequence[NDArray[np.int64]]
    distance: NDArray[np.int64]


def _direct(group: Group, chunk: int, start: int, goal: int | None) -> list[Message]:
    """Straight to every destination, the next rank first."""
    if goal is not None:
        return [((goal - start) % group.size, chunk, start, goal)]
    return [(s, chunk, start, (start + s) % group.size) for s in range(1, group.size)]


def _shortest(group: Group, chunk: int, start: int, goal: int | None) -> list[Message]:
    """Along shortest paths to every destination, the nearest first."""
    row = group.distance[start].tolist()
    goals = range(group.size) if goal is None else [goal]
    return [(row[v], chunk, start, v) for v in goals if v != start]


def _along(
    tour: Sequence[int], chunk: int, start: int, hops: int, direction: int, step: int = 0
) -> list[Message]:
    """Along a tour, from rank to rank."""
    n, at = len(tour), list(tour).index(start)
    stops = [tour[(at + direction * i) % n] for i in range(hops + 1)]
    return [(step + i, chunk, a, b) for i, (a, b) in enumerate(pairwise(stops))]


def _ring(group: Group, chunk: int, start: int, goal: int | None) -> list[Message]:
    """Once round the ring, or along it to the destination."""
    if goal is None:
        return _along(group.ring, chunk, start, group.size - 1, 1)
    ring = list(group.ring)
    hops = (ring.index(goal) - ring.index(start)) % group.size
    return _along(ring, chunk, start, hops, 1)


def _two_way_ring(group: Group, chunk: int, start: int, goal: int | None) -> list[Message]:
    """Half round the ring in each direction, or the shorter way to the destination."""
    if goal is None:
        there = group.size // 2
        back = group.size - 1 - there
        return [
            *_along(group.ring, chunk, start, there, 1),
            *_along(group.ring, chunk, start, back, -1),
        ]
    ring = list(group.ring)
    hops = (ring.index(goal) - ring.index(start)) % group.size
    if 2 * hops > group.size:
        return _along(ring, chunk, start, group.size - hops, -1)
    return _along(ring, chunk, start, hops, 1)


def _rhd(group: Group, chunk: int, start: int, goal: int | None) -> list[Message]:
    """Recursive doubling: in step t to the rank that differs in bit t.

    Ranks beyond the largest power of two hand over to, and are served by, the rank that lacks
    their highest bit.
    """
    bits = group.size.bit_length() - 1
    power = 1 << bits
    messages: list[Message] = []
    holder = start
    if start >= power:
        holder = start - power
        if goal != start:
            messages.append((0, chunk, start, holder))
    if goal is not None:
        last = goal - power if goal >= power else goal
        for bit in range(bits):
            if (holder ^ last) >> bit & 1:
                messages.append((bit + 1, chunk, holder, holder ^ (1 << bit)))
                holder ^= 1 << bit
        if goal != last and holder != goal:
            messages.append((bits + 1, chunk, last, goal))
        return messages
    have = [holder]
    for bit in range(bits):
        new = [(rank, rank ^ (1 << bit)) for rank in have]
        messages += [(bit + 1, chunk, a, b) for a, b in new]
        have += [b for _, b in new]
    extra = [r for r in range(power, group.size) if r != start]
    return messages + [(bits + 1, chunk, r - power, r) for r in extra]


def _dbt(group: Group, chunk: int, start: int, goal: int | None) -> list[Message]:
    """Down a binary tree; odd chunks take the mirrored one."""
    if goal is not None:
        raise InputError("double binary trees broadcast and reduce; use another baseline")
    parent = binary_tree(group.size, mirrored=bool(chunk % 2))
    root = parent.index(-1)
    messages: list[Message] = [] if root == start else [(0, chunk, start, root)]
    order = sorted(range(group.size), key=lambda r: _depth(parent, r))
    for rank in order:
        above = parent[rank]
        if above < 0:
            continue
        if rank != start:
            messages.append((_depth(parent, rank), chunk, above, rank))
    return messages


def _depth(parent: Sequence[int], rank: int) -> int:
    depth = 0
    while parent[rank] >= 0:
        rank, depth = parent[rank], depth + 1
    return depth


def _hierarchical(group: Group, chunk: int, start: int, goal: int | None) -> list[Message]:
    """Dimension by dimension, the outermost first, round a ring in each."""
    keys = np.stack(group.digits, axis=1)
    rank_of = {tuple(row): rank for rank, row in enumerate(keys.tolist())}
    messages: list[Message] = []
    have = [start]
    step = 0
    for axis in range(keys.shape[1]):
        added = []
        longest = 0
        for rank in have:
            tour = _line(keys, rank_of, rank, axis)
            if goal is not None:
                end = _with_digit(keys, rank_of, rank, axis, int(keys[goal, axis]))
                if end != rank:
                    messages.append((step, chunk, rank, end))
                    have = [end]
                continue
            there = len(tour) // 2
            for direction, hops in ((1, there), (-1, len(tour) - 1 - there)):
                leg = _along(tour, chunk, rank, hops, direction, step)
                messages += leg
                added += [b for _, _, _, b in leg]
                longest = max(longest, hops)
        have = have + added
        step += longest + 1
    return messages


def _line(
    keys: NDArray[np.int64], rank_of: dict[tuple[int, ...], int], rank: int, axis: int
) -> list[int]:
    """The ranks that differ from one in one digit only, in order of that digit."""
    digits = sorted(set(keys[:, axis].tolist()))
    return [_with_digit(keys, rank_of, rank, axis, digit) for digit in digits]


def _with_digit(
    keys: NDArray[np.int64],
    rank_of: dict[tuple[int, ...], int],
    rank: int,
    axis: int,
    digit: int,
) -> int:
    wanted = keys[rank].tolist()
    wanted[axis] = digit
    return rank_of[tuple(wanted)]


ALGORITHMS: dict[str, list[Callable[[Group, int, int, int | None], list[Message]]]] = {
    "ring": [_ring, _two_way_ring],
    "direct": [_direct],
    "rhd": [_rhd],
    "dbt": [_dbt],
    "hierarchical": [_hierarchical],
    "shortest-path": [_shortest],
}
