"""Which NPU sends which chunk to which: the known algorithms as tables of messages.

An algorithm spreads chunks that each start at one NPU to all NPUs of the group, or carries chunks
from one NPU to one other. Reductions are spreads backwards in time. Ranks are positions in the
group; a message is a row (step, chunk, from, to), and messages are issued in order of their steps,
those of one step in order of their chunks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.baselines.orders import binary_tree
from nestopt.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["ALGORITHMS", "Group", "Journeys"]


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


@dataclass(frozen=True, slots=True, eq=False)
class Journeys:
    """Where chunks 0, 1, ... of a part start, and where they go.

    Attributes
    ----------
    start : int64[chunks]
        Ranks.
    goal : int64[chunks] or None
        Ranks; None: every chunk goes to all.
    """

    start: NDArray[np.int64]
    goal: NDArray[np.int64] | None


def _rows(step: Any, chunk: Any, origin: Any, goal: Any) -> NDArray[np.int64]:
    """Messages from columns of one shape (or that broadcast to one), int64[M, 4]."""
    columns = np.broadcast_arrays(step, chunk, origin, goal)
    return np.stack([np.asarray(c, dtype=np.int64).reshape(-1) for c in columns], axis=1)


def _by_chunk(*tables: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tables one after the other, then in order of their chunks."""
    table = np.concatenate(tables)
    return table[np.argsort(table[:, 1], kind="stable")]


def _direct(group: Group, journeys: Journeys) -> NDArray[np.int64]:
    """Straight to every destination, the next rank first."""
    start, n = journeys.start, group.size
    chunk = np.arange(len(start))
    if journeys.goal is not None:
        return _rows((journeys.goal - start) % n, chunk, start, journeys.goal)
    ahead = np.arange(1, n)[None, :]
    return _rows(ahead, chunk[:, None], start[:, None], (start[:, None] + ahead) % n)


def _direct_by_level(group: Group, journeys: Journeys) -> NDArray[np.int64]:
    """Straight to every destination, in rounds: by the same offset of the digits from every rank.

    Between nodes behind one switch every round is a permutation, and so is what each node sends to
    each other one: no port waits for another.
    """
    keys = np.stack(group.digits, axis=1)
    sizes = keys.max(axis=0) + 1
    scale = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
    start, n = journeys.start, group.size
    chunk = np.arange(len(start))
    if journeys.goal is not None:
        step = ((keys[journeys.goal] - keys[start]) % sizes) @ scale
        return _rows(step, chunk, start, journeys.goal)
    step = np.zeros((len(start), n), dtype=np.int64)
    for axis, size in enumerate(sizes.tolist()):
        away = keys[None, :, axis] - keys[start, None, axis]
        step += away % size * int(scale[axis])
    goal = np.broadcast_to(np.arange(n), step.shape)
    table = _rows(step, chunk[:, None], start[:, None], goal)
    return table[table[:, 2] != table[:, 3]]


def _shortest(group: Group, journeys: Journeys) -> NDArray[np.int64]:
    """Along shortest paths to every destination, the nearest first."""
    start, n = journeys.start, group.size
    chunk = np.arange(len(start))
    if journeys.goal is not None:
        return _rows(group.distance[start, journeys.goal], chunk, start, journeys.goal)
    goal = np.broadcast_to(np.arange(n), (len(start), n))
    table = _rows(group.distance[start], chunk[:, None], start[:, None], goal)
    return table[table[:, 2] != table[:, 3]]


def _along(
    tours: NDArray[np.int64],
    at: NDArray[np.int64],
    chunk: NDArray[np.int64],
    hops: NDArray[np.int64],
    direction: Any,
    step: int = 0,
) -> NDArray[np.int64]:
    """Along tours from rank to rank: row i of `tours` from place ``at[i]``, ``hops[i]`` times."""
    length = tours.shape[1]
    row = np.repeat(np.arange(len(hops)), hops)
    first = np.cumsum(hops) - hops
    hop = np.arange(len(row)) - first[row]
    turned = np.broadcast_to(direction, hops.shape)[row]
    here = (at[row] + turned * hop) % length
    there = (at[row] + turned * (hop + 1)) % length
    return _rows(step + hop, chunk[row], tours[row, here], tours[row, there])


def _places(group: Group, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places of ranks on the ring."""
    place = np.empty(group.size, dtype=np.int64)
    place[np.asarray(group.ring)] = np.arange(group.size)
    return place[ranks]


def _round(
    group: Group, journeys: Journeys, hops: NDArray[np.int64], direction: Any
) -> NDArray[np.int64]:
    """Along the ring, every chunk for so many hops."""
    tour = np.asarray(group.ring, dtype=np.int64)
    tours = np.broadcast_to(tour, (len(hops), group.size))
    chunk = np.arange(len(hops))
    return _along(tours, _places(group, journeys.start), chunk, hops, direction)


def _ring(group: Group, journeys: Journeys) -> NDArray[np.int64]:
    """Once round the ring, or along it to the destination."""
    n, count = group.size, len(journeys.start)
    hops = np.full(count, n - 1)
    if journeys.goal is not None:
        hops = (_places(group, journeys.goal) - _places(group, journeys.start)) % n
    return _round(group, journeys, hops, 1)


def _two_way_ring(group: Group, journeys: Journeys) -> NDArray[np.int64]:
    """Half round the ring in each direction, or the shorter way to the destination."""
    n, count = group.size, len(journeys.start)
    if journeys.goal is None:
        there = n // 2
        return _by_chunk(
            _round(group, journeys, np.full(count, there), 1),
            _round(group, journeys, np.full(count, n - 1 - there), -1),
        )
    hops = (_places(group, journeys.goal) - _places(group, journeys.start)) % n
    back = 2 * hops > n
    return _round(group, journeys, np.where(back, n - hops, hops), np.where(back, -1, 1))


def _rhd(group: Group, journeys: Journeys) -> NDArray[np.int64]:
    """Recursive doubling: in step t to the rank that differs in bit t.

    Ranks beyond the largest power of two hand over to, and are served by, the rank that lacks
    their highest bit.
    """
    n, start = group.size, journeys.start
    bits = n.bit_length() - 1
    power = 1 << bits
    chunk = np.arange(len(start))
    beyond = start >= power
    holder = np.where(beyond, start - power, start)
    if journeys.goal is not None:
        return _rhd_to_one(group, journeys, bits)
    tables = [_rows(0, chunk[beyond], start[beyond], holder[beyond])]
    for bit in range(bits):
        have = holder[:, None] ^ np.arange(1 << bit)[None, :]
        tables.append(_rows(bit + 1, chunk[:, None], have, have ^ (1 << bit)))
    extra = np.broadcast_to(np.arange(power, n), (len(start), n - power))
    last = _rows(bits + 1, chunk[:, None], extra - power, extra)
    tables.append(last[last[:, 3] != start[last[:, 1]]])
    return _by_chunk(*tables)


def _rhd_to_one(group: Group, journeys: Journeys, bits: int) -> NDArray[np.int64]:
    """Recursive doubling from one rank to one other, bit by bit."""
    assert journeys.goal is not None
    start, goal, power = journeys.start, journeys.goal, 1 << bits
    chunk = np.arange(len(start))
    first = (start >= power) & (goal != start)
    holder = np.where(start >= power, start - power, start)
    last = np.where(goal >= power, goal - power, goal)
    tables = [_rows(0, chunk[first], start[first], holder[first])]
    for bit in range(bits):
        turns = (holder ^ last) >> bit & 1 == 1
        here = holder[turns]
        tables.append(_rows(bit + 1, chunk[turns], here, here ^ (1 << bit)))
        holder = np.where(turns, holder ^ (1 << bit), holder)
    final = (goal != last) & (goal != start)
    tables.append(_rows(bits + 1, chunk[final], last[final], goal[final]))
    return _by_chunk(*tables)


def _dbt(group: Group, journeys: Journeys) -> NDArray[np.int64]:
    """Down a binary tree; odd chunks take the mirrored one."""
    if journeys.goal is not None:
        raise InputError("double binary trees broadcast and reduce; use another baseline")
    start = journeys.start
    chunk = np.arange(len(start))
    tables = []
    for mirrored in (False, True):
        parent = binary_tree(group.size, mirrored=mirrored)
        depth = _depths(parent)
        own = chunk[chunk % 2 == int(mirrored)]
        root = int(np.argmin(depth))
        away = own[start[own] != root]
        tables.append(_rows(0, away, start[away], root))
        order = np.argsort(depth, kind="stable")[1:]
        rows = _rows(depth[order], own[:, None], np.asarray(parent)[order], order)
        tables.append(rows[rows[:, 3] != start[rows[:, 1]]])
    return _by_chunk(*tables)


def _depths(parent: Sequence[int]) -> NDArray[np.int64]:
    depth = np.zeros(len(parent), dtype=np.int64)
    for rank in range(len(parent)):
        above = parent[rank]
        while above >= 0:
            depth[rank] += 1
            above = parent[above]
    return depth


def _hierarchical(group: Group, journeys: Journeys) -> NDArray[np.int64]:
    """Dimension by dimension, the outermost first, round a ring in each."""
    start, goal = journeys.start, journeys.goal
    chunk = np.arange(len(start))
    keys = np.stack(group.digits, axis=1)
    have = start[:, None]
    tables = []
    step = 0
    for axis in range(keys.shape[1]):
        lines, place = _lines(keys, axis)
        if goal is not None:
            end = lines[have[:, 0], place[goal]]
            moves = end != have[:, 0]
            tables.append(_rows(step, chunk[moves], have[moves, 0], end[moves]))
            have = end[:, None]
            step += 1
            continue
        there = lines.shape[1] // 2
        hops = np.array([there, lines.shape[1] - 1 - there])
        shape = (*have.shape, 2)
        ranks = np.broadcast_to(have[:, :, None], shape).reshape(-1)
        leg = _along(
            lines[ranks],
            place[ranks],
            np.broadcast_to(chunk[:, None, None], shape).reshape(-1),
            np.broadcast_to(hops, shape).reshape(-1),
            np.broadcast_to(np.array([1, -1]), shape).reshape(-1),
            step,
        )
        tables.append(leg)
        have = np.concatenate([have, leg[:, 3].reshape(len(start), -1)], axis=1)
        step += int(hops.max()) + 1
    return _by_chunk(*tables)


def _lines(keys: NDArray[np.int64], axis: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each rank those that differ from it in one digit only, and its own place among them."""
    others = np.delete(keys, axis, axis=1)
    _, line = np.unique(others, axis=0, return_inverse=True)
    line = line.reshape(-1)
    _, place = np.unique(keys[:, axis], return_inverse=True)
    place = place.reshape(-1)
    table = np.empty((int(line.max()) + 1, int(place.max()) + 1), dtype=np.int64)
    table[line, place] = np.arange(len(keys))
    return table[line], place


ALGORITHMS: dict[str, list[Callable[[Group, Journeys], NDArray[np.int64]]]] = {
    "ring": [_ring, _two_way_ring],
    "direct": [_direct, _direct_by_level],
    "rhd": [_rhd],
    "dbt": [_dbt],
    "hierarchical": [_hierarchical],
    "shortest-path": [_shortest],
}
"""Each baseline's variants, of which the better one counts."""
