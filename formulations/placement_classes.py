"""Communication classes: the finitely many prices that a family of groups can have on a cluster.

A class is a profile with the conditions under which a family costs no more: how far its groups
reach (``span``), how many of them cross an uplink, how their members are spread. The
conditions are linear in the numbers of members that each family group has in each group of the
tree, so a model that derives those numbers from its devices can charge the exact price. The classes
are enumerated group by group; what a price does not depend on is dropped from the conditions
(which merges most classes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nestopt.errors import NestoptError
from nestopt.placement.comm import family_profiles

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from numpy.typing import NDArray

    from formulations.placement_data import PlacementData, TreeGroup

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["TALLIES", "FamilyClass", "family_classes"]

_LARGE = 1e30
_SLACK = 1 + 1e-9
_MOST_ROWS = 30_000_000
_MOST_SPREADS = 100_000
_CHUNK = 1_000_000


TALLIES: dict[str, Callable[[int, int], int]] = {
    "cross": lambda inside, size: 1,
    "inside": lambda inside, size: inside,
    "volume": lambda inside, size: inside * (size - inside),
}
"""What a family group that crosses an uplink adds to a sum, by its members inside and in all."""


@dataclass(frozen=True, eq=False)
class FamilyClass:
    """A profile and the conditions that guarantee it; None: no condition.

    Attributes
    ----------
    size : int
        Members of a family group, n.
    profile : float array (5,)
        As in `nestopt.placement.comm`; entries that no price needs are huge or infinite.
    span : int
        No family group reaches beyond a group of this level.
    alpha, ring, direct : float or None
        Bounds on these entries of the profile.
    counts : tuple of int or None
        By level, the members that a group of the tree has of each family group it touches.
    latency, rate : tuple of float
        With `counts`: bounds, by level, on latency and on seconds per byte (bdev).
    """

    size: int
    profile: Floats
    span: int
    alpha: float | None
    ring: float | None
    direct: float | None
    counts: tuple[int, ...] | None
    latency: tuple[float, ...]
    rate: tuple[float, ...]

    def allows_group(self, group: TreeGroup) -> bool:
        """Whether the family may have members in a group of the tree."""
        if group.level > self.span:
            return True
        n, pinv = self.size, group.port_inverse
        limits: list[tuple[float, float | None]] = [
            (group.latency, self.alpha),
            (pinv, self.ring),
            ((n - 1) / n * pinv if group.level == 0 else 0.0, self.direct),
        ]
        if self.counts is not None:
            limits += [(group.latency, self.latency[group.level]), (pinv, self.rate[group.level])]
        return all(limit is None or value <= limit * _SLACK for value, limit in limits)

    def allows_count(self, group: TreeGroup, parent: TreeGroup | None, members: int) -> bool:
        """Whether a family group may have so many members (1 to n) in a group of the tree."""
        if group.level > self.span or parent is None:
            return True
        if self.counts is not None and members != self.counts[group.level]:
            return False
        if members == self.size:
            return True
        if group.level == self.span:
            return False
        away = (self.size - members) / self.size * parent.port_inverse
        return self.direct is None or away <= self.direct * _SLACK

    def most(self, group: TreeGroup, what: str) -> float:
        """Bound on a sum over the family groups that cross the uplink of a group of the tree.

        `what` is ``cross`` (their number), ``inside`` (their members inside) or ``volume`` (members
        inside times members outside), as in `TALLIES`.
        """
        limit: float | None
        if what == "cross":
            limit = self.ring
        elif what == "volume":
            limit = None if self.direct is None else self.direct * self.size
        else:
            below = self.counts is not None and group.level < self.span
            limit = self.rate[group.level + 1] if below else None
        if limit is None or group.uplink_inverse == 0 or limit >= _LARGE:
            return math.inf
        return math.floor(limit / group.uplink_inverse * _SLACK)


class _Reach(NamedTuple):
    """What the family groups placed so far have at most, uplinks left aside."""

    span: int
    counts: tuple[int, ...] | None
    latency: tuple[float, ...]
    port: tuple[float, ...]
    away: float

    def join(self, other: _Reach) -> _Reach:
        """Both together."""
        counts = other.counts
        if self.counts is None or (self.counts[0] and self.counts != other.counts):
            counts = None
        return _Reach(
            max(self.span, other.span),
            counts,
            tuple(map(max, self.latency, other.latency)),
            tuple(map(max, self.port, other.port)),
            max(self.away, other.away),
        )


def family_classes(
    data: PlacementData, groups: int, size: int, signature: Callable[[Floats], Hashable]
) -> tuple[FamilyClass, ...]:
    """All classes of families of `groups` groups of `size` members.

    Parameters
    ----------
    signature : callable
        What a profile costs; profiles of equal signature are the same to the model.

    Raises
    ------
    NestoptError
        If the family can be spread in too many ways to enumerate.
    """
    if _count_spreads(data, size) * groups > _MOST_SPREADS:
        raise NestoptError(
            f"a group of {size} devices can be spread over this cluster in more than "
            f"{_MOST_SPREADS} ways; the exact models are for small clusters"
        )
    spreads = list(_spreads(data, size))
    found: dict[Hashable, FamilyClass] = {}
    for reach, crossing, volume, chosen in _spread_families(data, spreads, groups):
        tags = _conditions(data, size, reach, crossing, volume)
        if tags not in found:
            devices = [
                [data.cells[c].devices[0] for c, k in enumerate(spreads[i]) for _ in range(k)]
                for i in chosen
            ]
            line = np.arange(data.cluster.num_devices, dtype=np.int64)
            start = np.zeros(1, dtype=np.int64)
            profile = family_profiles(data.network, line, start, np.array(devices))[0]
            found[tags] = FamilyClass(size, profile, *tags)
    kept: dict[Hashable, list[FamilyClass]] = {}
    # the loosest first: what they imply need not be looked at
    for tight in sorted(found.values(), key=lambda c: (-c.span, -c.profile[1], -c.profile[2])):
        data.check_time()
        price = signature(tight.profile)
        same = kept.setdefault(price, [])
        if not any(_implies(data, tight, other) for other in same):
            lifted = _lift(tight, price, signature)
            same[:] = [k for k in same if not _implies(data, k, lifted)] + [lifted]
    return tuple(k for same in kept.values() for k in same)


def _count_spreads(data: PlacementData, size: int) -> int:
    """In how many ways `size` members of one group can be spread over the cells."""
    ways = [1] + [0] * size
    for cell in data.cells:
        room = len(cell.devices)
        ways = [sum(ways[max(0, k - room) : k + 1]) for k in range(size + 1)]
    return ways[size]


def _spreads(data: PlacementData, size: int) -> Iterator[tuple[int, ...]]:
    """All ways to spread `size` members of one group over the cells."""
    room = [len(cell.devices) for cell in data.cells]

    def fill(cell: int, rest: int) -> Iterator[tuple[int, ...]]:
        if cell == len(room) - 1:
            if rest <= room[cell]:
                yield (rest,)
            return
        for k in range(min(rest, room[cell]) + 1):
            for later in fill(cell + 1, rest - k):
                yield (k, *later)

    return fill(0, size)


def _spread_families(
    data: PlacementData, spreads: Sequence[Sequence[int]], groups: int
) -> Iterator[tuple[_Reach, Ints, Ints, tuple[int, ...]]]:
    """What families add up to: reach, crossing groups and volume by tree group, an example.

    The families are built group by group; those that differ only by swaps of alike siblings of
    the tree, or by what no price depends on, are taken once. That the devices suffice is left to
    the model.
    """
    singles = [_single(data, members) for members in spreads]
    count = len(singles)
    packing = groups * max(sum(s) for s in spreads) ** 2 + 1
    codes = np.array([np.array(c) * packing + np.array(v) for _, c, v in singles], dtype=np.int64)
    levels = len(data.cluster.levels)
    flat = (0.0,) * levels
    reaches = _Numbered([_Reach(0, (0,) * levels, flat, flat, 0.0)])
    single = np.array([reaches.number(r) for r, _, _ in singles], dtype=np.int64)
    orders = _alike(data)
    rows = np.zeros((1, 1 + len(data.groups)), dtype=np.int64)
    history: list[tuple[Ints, Ints]] = []
    for _ in range(groups):
        if len(rows) * count > _MOST_ROWS:
            raise NestoptError(
                f"{groups} groups of {sum(spreads[0])} devices can be spread over this cluster in "
                "too many ways to enumerate; the exact models are for small clusters"
            )
        parts, firsts = [], []
        for low in range(0, len(rows), max(1, _CHUNK // count)):
            data.check_time()
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

    def __init__(self, items: list[_Reach]) -> None:
        self.items = items
        self._index = {item: i for i, item in enumerate(items)}
        self._joined: dict[tuple[int, int], int] = {}

    def number(self, item: _Reach) -> int:
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


def _single(
    data: PlacementData, members: Sequence[int]
) -> tuple[_Reach, tuple[int, ...], tuple[int, ...]]:
    """One family group: its reach; whether it crosses, and its volume, by tree group."""
    n = sum(members)
    levels = len(data.cluster.levels)
    inside = [sum(members[c] for c in g.cells) for g in data.groups]
    span = min(g.level for g, k in zip(data.groups, inside) if k == n)
    counts: list[int] | None = []
    latency, port = [], []
    away = 0.0
    for level in range(levels):
        used = [(g, k) for g, k in zip(data.groups, inside) if g.level == level and k]
        latency.append(max(g.latency for g, _ in used))
        port.append(max(g.port_inverse for g, _ in used))
        if counts is not None:
            counts = [*counts, used[0][1]] if len({k for _, k in used}) == 1 else None
        for g, k in used:
            if level == 0:
                away = max(away, (n - 1) / n * g.port_inverse)
            if k < n:
                away = max(away, (n - k) / n * data.groups[g.parent].port_inverse)
    even = None if counts is None else tuple(counts)
    reach = _Reach(span, even, tuple(latency), tuple(port), away)
    return reach, tuple(int(0 < k < n) for k in inside), tuple(k * (n - k) for k in inside)


def _alike(data: PlacementData) -> list[Ints]:
    """Sets of alike siblings: the tree groups of each one's subtree, (siblings, groups).

    Alike siblings have alike subtrees in the same order, so columns correspond.
    """
    subtree: dict[int, list[int]] = {}
    sets: dict[int, list[int]] = {}
    leader: dict[int, int] = {}
    for group in data.groups:
        subtree[group.index] = [group.index]
        for child in data.groups:
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


def _conditions(
    data: PlacementData, size: int, reach: _Reach, crossing: Ints, volume: Ints
) -> tuple[Any, ...]:
    """The fields of `FamilyClass` behind its profile (``MODEL.md``, section 2)."""
    span = reach.span
    rates, port, busiest = [], 0.0, 0.0
    ring, direct = max(reach.port[: span + 1]), reach.away
    for level in range(span + 1):
        port = max(port, reach.port[level])
        rates.append(max(port, busiest))
        for g in data.groups:
            if g.level == level < span:
                across = int(crossing[g.index])
                ring = max(ring, across * g.uplink_inverse)
                direct = max(direct, int(volume[g.index]) / size * g.uplink_inverse)
                if reach.counts is not None:
                    busiest = max(busiest, reach.counts[level] * across * g.uplink_inverse)
    counts = reach.counts
    return (
        span, max(reach.latency[: span + 1]), ring, direct,
        None if counts is None else counts[: span + 1],
        () if counts is None else reach.latency[: span + 1],
        () if counts is None else tuple(rates),
    )  # fmt: skip


def _lift(
    found: FamilyClass, wanted: Hashable, signature: Callable[[Floats], Hashable]
) -> FamilyClass:
    """The class without the conditions that its price does not depend on."""
    profile = found.profile.copy()

    def lifted(entries: Sequence[int], value: float) -> bool:
        nonlocal profile
        trial = profile.copy()
        trial[list(entries)] = value
        if signature(trial) == wanted:
            profile = trial
            return True
        return False

    hierarchical = math.isfinite(profile[3]) and not lifted((3, 4), math.inf)
    direct = None if lifted((2,), _LARGE) else found.direct
    ring = None if lifted((1,), _LARGE) else found.ring
    alpha = None if lifted((0,), _LARGE) else found.alpha
    return FamilyClass(
        found.size, profile, found.span, alpha, ring, direct,
        found.counts if hierarchical else None,
        found.latency if hierarchical else (),
        found.rate if hierarchical else (),
    )  # fmt: skip


def _implies(data: PlacementData, tight: FamilyClass, loose: FamilyClass) -> bool:
    """Whether families that keep the conditions of `tight` keep those of `loose`."""
    if tight.span > loose.span or loose.counts is not None:
        return False
    for a, b in (
        (tight.alpha, loose.alpha),
        (tight.ring, loose.ring),
        (tight.direct, loose.direct),
    ):
        if b is not None and (a is None or a > b):
            return False
    between = [g for g in data.groups if tight.span < g.level <= loose.span]
    return all(loose.allows_group(g) for g in between)
