"""How the groups of a family can be spread over a cluster, up to what no price depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.core.errors import NestoptError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nestopt.formulations.placement.tree import Tree

    Ints = NDArray[np.int64]

__all__ = ["Reach", "spread_families", "spreads_of_group"]

_MOST_ROWS = 30_000_000
_MOST_SPREADS = 100_000
_CHUNK = 1_000_000


class Reach(NamedTuple):
    """What the family groups placed so far have at most, uplinks left aside."""

    span: int
    counts: tuple[int, ...] | None
    latency: tuple[float, ...]
    port: tuple[float, ...]
    away: float

    def join(self, other: Reach) -> Reach:
        """Both together."""
        counts = other.counts
        if self.counts is None or (self.counts[0] and self.counts != other.counts):
            counts = None
        return Reach(
            max(self.span, other.span),
            counts,
            tuple(map(max, self.latency, other.latency)),
            tuple(map(max, self.port, other.port)),
            max(self.away, other.away),
        )


def spreads_of_group(tree: Tree, size: int, groups: int) -> list[tuple[int, ...]]:
    """All ways to spread the members of one group of a family over the cells.

    Raises
    ------
    NestoptError
        If there are too many for `groups` such groups.
    """
    if _count_spreads(tree, size) * groups > _MOST_SPREADS:
        raise NestoptError(
            f"a group of {size} devices can be spread over this cluster in more than "
            f"{_MOST_SPREADS} ways; the exact models are for small clusters"
        )
    return list(_spreads(tree, size))


def _count_spreads(tree: Tree, size: int) -> int:
    """In how many ways `size` members of one group can be spread over the cells."""
    ways = [1] + [0] * size
    for cell in tree.cells:
        room = len(cell.devices)
        ways = [sum(ways[max(0, k - room) : k + 1]) for k in range(size + 1)]
    return ways[size]


def _spreads(tree: Tree, size: int) -> Iterator[tuple[int, ...]]:
    """All ways to spread `size` members of one group over the cells."""
    room = [len(cell.devices) for cell in tree.cells]

    def fill(cell: int, rest: int) -> Iterator[tuple[int, ...]]:
        if cell == len(room) - 1:
            if rest <= room[cell]:
                yield (rest,)
            return
        for k in range(min(rest, room[cell]) + 1):
            for later in fill(cell + 1, rest - k):
                yield (k, *later)

    return fill(0, size)


def spread_families(
    tree: Tree, spreads: Sequence[Sequence[int]], groups: int
) -> Iterator[tuple[Reach, Ints, Ints, tuple[int, ...]]]:
    """What families add up to: reach, crossing groups and volume by tree group, an example.

    The families are built group by group; those that differ only by swaps of alike siblings of
    the tree, or by what no price depends on, are taken once. That the devices suffice is left to
    the model.
    """
    singles = [_single(tree, members) for members in spreads]
    count = len(singles)
    packing = groups * max(sum(s) for s in spreads) ** 2 + 1
    codes = np.array([np.array(c) * packing + np.array(v) for _, c, v in singles], dtype=np.int64)
    levels = len(tree.cluster.levels)
    flat = (0.0,) * levels
    reaches = _Numbered([Reach(0, (0,) * levels, flat, flat, 0.0)])
    single = np.array([reaches.number(r) for r, _, _ in singles], dtype=np.int64)
    orders = _alike(tree)
    rows = np.zeros((1, 1 + len(tree.groups)), dtype=np.int64)
    history: list[tuple[Ints, Ints]] = []
    for _ in range(groups):
        if len(rows) * count > _MOST_ROWS:
            raise NestoptError(
                f"{groups} groups of {sum(spreads[0])} devices can be spread over this cluster in "
                "too many ways to enumerate; the exact models are for small clusters"
            )
        parts, firsts = [], []
        for low in range(0, len(rows), max(1, _CHUNK // count)):
            tree.check_time()
            some = rows[low : low + max(1, _CHUNK // count)]
            joined = np.empty((len(some), count, rows.shape[1]), dtype=np.int64)
            joined[:, :, 0] = reaches.join(some[:, 0], single)
            joined[:, :, 1:] = some[:, None, 1:] + codes
            flat_rows = joined.reshape(-1, rows.shape[1])
            _sort_alike(flat_rows, orders)
            part, first = np.unique(flat_rows, axis=0, return_index=True)
            parts.append(part)
            firsts.append(first + low * count)
        rows, where = np.unique(np.concatenate(parts), axis=0, return_index=True)
        first = np.concatenate(firsts)[where]
        history.append((first // count, first % count))
    for index, row in enumerate(rows):
        chosen, at = [], index
        for parent, option in reversed(history):
            chosen.append(int(option[at]))
            at = int(parent[at])
        yield reaches.items[row[0]], row[1:] // packing, row[1:] % packing, tuple(chosen)


class _Numbered:
    """Reaches by number, and the numbers of their unions."""

    def __init__(self, items: list[Reach]) -> None:
        self.items = items
        self._index = {item: i for i, item in enumerate(items)}
        self._joined: dict[tuple[int, int], int] = {}

    def number(self, item: Reach) -> int:
        """The number of a reach."""
        if item not in self._index:
            self._index[item] = len(self.items)
            self.items.append(item)
        return self._index[item]

    def join(self, left: Ints, right: Ints) -> Ints:
        """Numbers of the unions of all pairs, (left, right)."""
        rows, row_of = np.unique(left, return_inverse=True)
        columns, column_of = np.unique(right, return_inverse=True)
        table = np.empty((len(rows), len(columns)), dtype=np.int64)
        for i, a in enumerate(rows.tolist()):
            for j, b in enumerate(columns.tolist()):
                if (a, b) not in self._joined:
                    self._joined[a, b] = self.number(self.items[a].join(self.items[b]))
                table[i, j] = self._joined[a, b]
        return table[row_of.reshape(-1)[:, None], column_of.reshape(-1)[None, :]]


def _single(tree: Tree, members: Sequence[int]) -> tuple[Reach, tuple[int, ...], tuple[int, ...]]:
    """One family group: its reach; whether it crosses, and its volume, by tree group."""
    n = sum(members)
    levels = len(tree.cluster.levels)
    inside = [sum(members[c] for c in g.cells) for g in tree.groups]
    span = min(g.level for g, k in zip(tree.groups, inside) if k == n)
    counts: list[int] | None = []
    latency, port = [], []
    away = 0.0
    for level in range(levels):
        used = [(g, k) for g, k in zip(tree.groups, inside) if g.level == level and k]
        latency.append(max(g.latency for g, _ in used))
        port.append(max(g.port_inverse for g, _ in used))
        if counts is not None:
            counts = [*counts, used[0][1]] if len({k for _, k in used}) == 1 else None
        for g, k in used:
            if level == 0:
                away = max(away, (n - 1) / n * g.port_inverse)
            if k < n:
                away = max(away, (n - k) / n * tree.groups[g.parent].port_inverse)
    even = None if counts is None else tuple(counts)
    reach = Reach(span, even, tuple(latency), tuple(port), away)
    return reach, tuple(int(0 < k < n) for k in inside), tuple(k * (n - k) for k in inside)


def _alike(tree: Tree) -> list[Ints]:
    """Sets of alike siblings: the tree groups of each one's subtree, (siblings, groups).

    Alike siblings have alike subtrees in the same order, so columns correspond.
    """
    subtree: dict[int, list[int]] = {}
    sets: dict[int, list[int]] = {}
    leader: dict[int, int] = {}
    for group in tree.groups:
        subtree[group.index] = [group.index]
        for child in tree.groups:
            if child.parent == group.index:
                subtree[group.index] += subtree[child.index]
        leader[group.index] = leader.get(group.twin, group.index)
        sets.setdefault(leader[group.index], []).append(group.index)
    return [np.array([subtree[g] for g in row]) for row in sets.values() if len(row) > 1]


def _sort_alike(rows: Ints, orders: Sequence[Ints]) -> None:
    """Bring rows that differ by swaps of alike siblings into one order, in place."""
    for columns in orders:
        blocks = rows[:, 1 + columns]
        # any weights do: equal keys of unequal blocks cost time, never correctness
        weights = np.array([pow(1_000_003, k, 1 << 62) for k in range(columns.shape[1])])
        order = np.argsort((blocks * weights).sum(axis=2), axis=1, kind="stable")
        rows[:, 1 + columns] = np.take_along_axis(blocks, order[:, :, None], axis=1)
