"""The checker's own reading of a cluster's table of collectives (``MODEL.md``, section 2)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster

    Layout = tuple[tuple[int, ...], tuple[int, ...]]

__all__ = ["TableReader"]


@dataclass(frozen=True, slots=True)
class TableReader:
    """A cluster's table, and the groups of the tree for which it does not hold.

    Attributes
    ----------
    rows : dict
        By pattern, counts and sharing: pairs (seconds, seconds a byte).
    changed : frozenset of (int, int)
        Level and group of every override.
    """

    rows: dict[tuple[str, Layout], tuple[tuple[float, float], ...]]
    changed: frozenset[tuple[int, int]]

    @classmethod
    def of(cls, cluster: Cluster) -> TableReader:
        """The table of a cluster; without one, a table without rows."""
        rows = () if cluster.collectives is None else cluster.collectives.rows
        return cls(
            {(r.pattern, (r.layout.counts, r.layout.sharing)): r.lines for r in rows},
            frozenset((o.level, o.group) for o in cluster.overrides),
        )

    def lines(self, pattern: str, layout: Layout | None) -> tuple[tuple[float, float], ...]:
        """The lines of a row; none if there is no such row."""
        return () if layout is None else self.rows.get((pattern, layout), ())

    def layout(
        self, group: Sequence[NDArray[np.int64]], sets: NDArray[np.int64], span: int
    ) -> Layout | None:
        """The layout of a family, None if it has none.

        Parameters
        ----------
        group : sequence of int arrays (N,)
            The tree: every device's group, by level.
        sets : int array (groups, n)
            The family's groups, one a row.
        span : int
            The highest of their lowest common levels.
        """
        counts: list[int] = []
        sharing: list[int] = []
        whole = 1
        for level in range(span + 1):
            held = [Counter(row) for row in group[level][sets].tolist()]
            if any((level, place) in self.changed for row in held for place in row):
                return None
            if len({count for row in held for count in row.values()}) > 1:
                return None
            now = next(iter(held[0].values()))
            counts.append(now // whole)
            whole = now
            if level < span:
                # family groups with the same places, by these places
                alike = Counter(frozenset(row) for row in held)
                if sum(map(len, alike)) > len(frozenset().union(*alike)):
                    return None
                if len(set(alike.values())) > 1:
                    return None
                sharing.append(next(iter(alike.values())))
        return tuple(counts), tuple(sharing)
