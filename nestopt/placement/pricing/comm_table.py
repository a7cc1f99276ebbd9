"""A cluster's table of collectives, as further entries of the profiles of families.

Implements the table of ``MODEL.md``, section 2. Behind its own five entries a profile then has,
for all-gather, all-reduce and all-to-all, the seconds and the seconds per byte of `count` lines
each; lines that are not there are huge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.placement.model.collective_table import PATTERNS, Layout, Line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = ["NEVER", "TableEntries", "layouts_of", "lines_of"]

NEVER = 1e200
"""Instead of infinity, so that zero bytes cost nothing."""


@dataclass(frozen=True, eq=False)
class TableEntries:
    """Lines by layout.

    Attributes
    ----------
    plain : bool array (L, groups)
        Groups without an override.
    count : int
        Lines that a pattern has at most.
    lines : dict
        By layout, the lines of each of the `PATTERNS`.
    entries : dict
        The same as the entries of a profile, float arrays (width,).
    """

    plain: Flags
    count: int
    lines: dict[Layout, tuple[tuple[Line, ...], ...]]
    entries: dict[Layout, Floats]

    @property
    def width(self) -> int:
        """Entries that a profile has of the table."""
        return 2 * len(PATTERNS) * self.count

    @classmethod
    def of(cls, cluster: Cluster) -> TableEntries | None:
        """The entries of a cluster's table; None if it has none."""
        table = cluster.collectives
        if table is None:
            return None
        plain = np.ones(cluster.latency.shape, dtype=np.bool_)
        for item in cluster.overrides:
            plain[item.level, item.group] = False
        rows = {(row.pattern, row.layout): row.lines for row in table.rows}
        lines: dict[Layout, tuple[tuple[Line, ...], ...]] = {}
        for layout in dict.fromkeys(row.layout for row in table.rows):
            gather, reduce, swap = (rows.get((pattern, layout), ()) for pattern in PATTERNS)
            both = *reduce, *(Line(2 * alpha, 2 * beta) for alpha, beta in gather)
            lines[layout] = _best(gather), _best(both), _best(swap)
        count = max((len(each) for row in lines.values() for each in row), default=0)
        return cls(plain, count, lines, {k: _entries(row, count) for k, row in lines.items()})

    def of_families(self, devices: Ints, starts: Ints, offsets: Ints, group_of: Ints) -> Floats:
        """Entries (P, width) of a family at many places; see `comm.family_profiles`."""
        keys = _layouts(devices, starts, offsets, group_of, self.plain)
        distinct, which = np.unique(keys, axis=0, return_inverse=True)
        none = np.full(self.width, NEVER)
        rows = [self.entries.get(_layout_of(key), none) for key in distinct]
        return np.stack(rows)[which.reshape(-1)]

    def least(self, suits: Callable[[Layout], bool]) -> Floats:
        """Entries that cost no more than any layout that suits, (width,)."""
        chosen = [row for layout, row in self.lines.items() if suits(layout)]
        together = [_best(line for row in chosen for line in row[p]) for p in range(len(PATTERNS))]
        return _entries([_merged(lines, self.count) for lines in together], self.count)


def layouts_of(
    devices: Ints, starts: Ints, offsets: Ints, group_of: Ints, plain: Flags
) -> list[Layout | None]:
    """The layouts of a family at many places; see `comm.family_profiles`."""
    keys = _layouts(devices, starts, np.ascontiguousarray(offsets), group_of, plain)
    return [_layout_of(key) if key[0] else None for key in keys]


def _layout_of(key: Ints) -> Layout:
    """The layout of a row of `_layouts`; without counts for a family that has none."""
    counts, sharing = key.reshape(2, -1)
    return Layout(tuple(counts[counts > 0].tolist()), tuple(sharing[sharing > 0].tolist()))


def lines_of(profile: Floats, pattern: int, first: int) -> Iterator[tuple[Floats, Floats]]:
    """Seconds and seconds per byte, (..., 1), of the lines of one of the `PATTERNS`.

    `first` is the number of a profile's own entries; one without a table has no more than these.
    """
    count = (profile.shape[-1] - first) // (2 * len(PATTERNS))
    at = first + 2 * count * pattern
    for k in range(at, at + count):
        yield profile[..., k, None], profile[..., k + count, None]


def _best(lines: Iterable[Line]) -> tuple[Line, ...]:
    """The lines that no other one is at most as large as in both respects, by increasing alpha."""
    kept: list[Line] = []
    for line in sorted(lines):
        if not kept or line.beta < kept[-1].beta:
            kept.append(line)
    return tuple(kept)


def _merged(lines: tuple[Line, ...], count: int) -> tuple[Line, ...]:
    """At most `count` lines that are nowhere above the least of `lines`."""
    if len(lines) <= count:
        return lines
    return *lines[: count - 1], Line(lines[count - 1].alpha, lines[-1].beta)


def _entries(lines: Iterable[tuple[Line, ...]], count: int) -> Floats:
    table = np.full((len(PATTERNS), 2, count), NEVER)
    for pattern, row in enumerate(lines):
        for k, line in enumerate(row):
            table[pattern, :, k] = line
    return table.ravel()


@njit(cache=True, nogil=True)
def _layout(groups: Ints, group_of: Ints, plain: Any, out: Ints) -> None:
    """Write counts and sharing of a family, L entries each; zeros if it has no layout."""
    families, n = groups.shape
    levels, width = plain.shape
    out[:] = 0
    if n == 1:
        return
    inside = np.zeros(width, np.int64)
    held = np.zeros(width, np.int64)
    owner = np.full(width, -1, np.int64)
    below = 1
    for level in range(levels):
        held[:] = 0
        owner[:] = -1
        each = 0
        regular = True
        aligned = True
        for index in range(families):
            first = -1
            for member in groups[index]:
                inside[group_of[level, member]] += 1
            for member in groups[index]:
                group = group_of[level, member]
                if inside[group] == 0:
                    continue
                if each == 0:
                    each = inside[group]
                regular &= inside[group] == each and plain[level, group]
                # Those that share a place of the tree have the same first one in all their places.
                if owner[group] < 0:
                    owner[group] = index
                if first < 0:
                    first = owner[group]
                aligned &= owner[group] == first
                inside[group] = 0
                held[group] += 1
        share = held.max()
        for group in range(width):
            aligned &= held[group] == 0 or held[group] == share
        if not regular or (each < n and not aligned):
            out[:] = 0
            return
        out[level] = each // below
        below = each
        if each == n:
            return
        out[levels + level] = share


@njit(cache=True, nogil=True)
def _layouts(devices: Ints, starts: Ints, offsets: Ints, group_of: Ints, plain: Any) -> Ints:
    out = np.zeros((len(starts), 2 * len(group_of)), np.int64)
    groups = np.empty(offsets.shape, np.int64)
    for row in range(len(starts)):
        for i in range(offsets.shape[0]):
            for j in range(offsets.shape[1]):
                groups[i, j] = devices[starts[row] + offsets[i, j]]
        _layout(groups, group_of, plain, out[row])
    return out
