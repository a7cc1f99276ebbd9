"""Position-free relaxation: what a stage costs at best, wherever its devices are.

Valid for the general space. Let each X group stay inside a group of level ``tau_x`` (but not all
inside lower ones), and likewise Y and Z. From level ``tau_x`` upwards a place that holds one rank
holds its whole X group, so ``x`` members of ``x`` different groups of every other family; when
such a group is too large for a group of the level, all ``x`` cross its uplink. So each
``(tau_x, tau_y, tau_z)`` is a class with its own best-case profiles, and a stage costs at least the
least over the classes and over the device types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.placement.dp.entries import PlaceClass
from nestopt.placement.pricing.comm import PROFILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.collective_table import Layout
    from nestopt.placement.pricing.comm import Network
    from nestopt.placement.pricing.comm_table import TableEntries
    from nestopt.placement.pricing.cost import Grid

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Best", "best_sides", "relaxed_classes"]


@dataclass(frozen=True, eq=False)
class Best:
    """The best figures of each level over groups with alive devices.

    Attributes
    ----------
    latency, port_inverse, uplink_inverse : float arrays (L,)
    most, least : int arrays (L,)
        Alive devices of the level's largest group, and of its smallest that has any.
    groups : int array (L,)
        Groups with alive devices.
    table : TableEntries or None
        The cluster's table of collectives.
    profiles : dict
        Least profiles found so far, by grid, replicas and `apart` of `relaxed_classes`.
    """

    latency: Floats
    port_inverse: Floats
    uplink_inverse: Floats
    most: Ints
    least: Ints
    groups: Ints
    table: TableEntries | None = None
    profiles: dict[tuple[Grid, int, int], list[Floats]] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster, network: Network) -> Best:
        """The figures of a cluster."""
        rows = []
        for level in range(len(cluster.levels)):
            present, counts = np.unique(network.group_of[level][cluster.alive], return_counts=True)
            rows.append(
                (
                    network.latency[level, present].min(),
                    network.port_inverse[level, present].min(),
                    network.uplink_inverse[level, present].min(),
                    counts.max(),
                    counts.min(),
                    len(present),
                )
            )
        columns = [np.array(c) for c in zip(*rows, strict=True)]
        latency, port, uplink, most, least, groups = columns
        return cls(latency, port, uplink, most, least, groups, network.table)

    def level_for(self, devices: int) -> int:
        """Lowest level of which one group has that many alive devices."""
        return int(np.argmax(self.most >= devices)) if (self.most >= devices).any() else -1


class _Family(NamedTuple):
    """What is known of a family's groups of `n`, wherever they are.

    For each `(level, count)` in `together`: from that level upwards so many groups have a member
    wherever one of them has (for several, their product). Below level `apart` no place holds more
    than `cap` members of one group.
    """

    n: int
    together: tuple[tuple[int, int], ...]
    apart: int
    cap: int

    def share(self, level: int) -> int:
        """How many groups have a member wherever one has."""
        return math.prod(count for within, count in self.together if level >= within)

    def most(self, best: Best, level: int) -> int:
        """The most members of one group in a place of a level."""
        held = int(best.most[level]) // self.share(level)
        return min(held, self.cap) if level < self.apart else held

    def span(self, best: Best) -> int:
        """The lowest level at which a group fits in one place, -1 for none."""
        for level in range(len(best.most)):
            if self.most(best, level) >= self.n:
                return level
        return -1


def _profile(best: Best, family: _Family, span: int) -> Floats:
    """Least profile of a family with a group that reaches at least level `span`."""
    n = family.n
    if n == 1:
        return np.zeros(PROFILE + (0 if best.table is None else best.table.width))
    alpha = best.latency[: span + 1].max()
    port = np.maximum.accumulate(best.port_inverse)
    ring = port[span]
    direct = (n - 1) / n * best.port_inverse[0]
    rate = (n - 1) / n * port[0]
    for level in range(span):
        share = family.share(level)
        most = min(family.most(best, level), n - 1)
        if most < 1:
            continue
        uplink = best.uplink_inverse[level]
        ring = max(ring, share * uplink)
        volume = share * min(n - 1, most * (n - most)) / n
        direct = max(direct, volume * uplink)
        direct = max(direct, (n - most) / n * best.port_inverse[level + 1])
        beyond = 1 - most / n
        rate = max(rate, beyond / most * port[level + 1], beyond * share * uplink)
    # Some level at or above the span has two children, so the hierarchical algorithm steps there.
    steps = best.latency[span:].min()
    formulas = np.array([alpha, ring, direct, steps, rate])
    if best.table is None:
        return formulas
    lines = best.table.least(lambda layout: _possible(best, family, span, layout))
    return np.concatenate([formulas, lines])


def _possible(best: Best, family: _Family, span: int, layout: Layout) -> bool:
    """Whether a family with a group that reaches at least level `span` can have a layout."""
    if layout.members != family.n or len(layout.counts) <= span:
        return False
    members = 1
    for level, (count, share) in enumerate(zip(layout.counts, layout.sharing)):
        members *= count
        if share < family.share(level) or members > family.most(best, level):
            return False
        if share * members > int(best.most[level]):
            return False
    return True


def relaxed_classes(
    cluster: Cluster, best: Best, grids: Sequence[Grid], replicas: int, apart: int = 0
) -> list[PlaceClass]:
    """Best-case classes of all grids: for the levels that X, Y and Z may span.

    Parameters
    ----------
    apart : int
        Below this level no place holds the same rank of two replicas (0: nothing is known). It
        holds for windows at least as long as the places of the levels below.
    """
    present = sorted(set(cluster.type_of[cluster.alive].tolist()))
    classes = []
    for g, grid in enumerate(grids):
        key = grid, replicas, apart
        if key not in best.profiles:
            best.profiles[key] = _least_profiles(_all_profiles(best, *key))
        for profiles in best.profiles[key]:
            classes += [PlaceClass(g, profiles, (cluster.types[y],)) for y in present]
    return classes


def _all_profiles(best: Best, grid: Grid, replicas: int, apart: int) -> Iterator[Floats]:
    """Least profiles of a grid for all levels that X, Y and Z may span."""
    lowest = best.level_for(grid.t)
    if lowest < 0 or best.most[-1] < grid.width * replicas:
        return
    levels = len(best.most)
    ranges = [range(best.level_for(n), levels) if n > 1 else range(1) for n in grid[:3]]
    for taus in product(*ranges):
        # Three families inside lower places would keep the whole tensor group there.
        if max(taus) >= lowest or grid.t == 1:
            profiles = _best_profiles(best, grid, replicas, taus, apart)
            if profiles is not None:
                yield profiles


def _best_profiles(
    best: Best, grid: Grid, replicas: int, taus: tuple[int, ...], apart: int
) -> Floats | None:
    """Least profiles of a grid's families when X, Y and Z span these levels; None if impossible."""
    sizes = grid.family_sizes(replicas)
    caps = (*sizes[:5], grid.c * grid.e, grid.c)
    rows = []
    for index, n in enumerate(sizes):
        together = tuple((taus[a], sizes[a]) for a in range(3) if a != index)
        family = _Family(n, together, apart, caps[index])
        span = family.span(best)
        if span < 0 or (index < 3 and n > 1 and span > taus[index]):
            return None
        rows.append(_profile(best, family, taus[index] if index < 3 else span))
    return np.stack(rows)


def _least_profiles(found: Iterable[Floats]) -> list[Floats]:
    """Those that no other one is at most as large as in every entry, the first of equal ones."""
    kept: list[Floats] = []
    for profiles in found:
        if not any((other <= profiles).all() for other in kept):
            kept = [other for other in kept if not (profiles <= other).all()] + [profiles]
    return kept


def best_sides(best: Best, widths: Ints, replicas: int, layout: str = "") -> tuple[Floats, Floats]:
    """Least latency, and seconds per byte, of a boundary next to a stage of each width.

    Parameters
    ----------
    layout : str
        ``inner`` or ``outer`` where stages are runs of the line of alive devices; otherwise they
        may be anywhere. A run in three groups fills the one in the middle, and in two it has half
        of its devices in one of them. In ``inner`` all replicas of a stage are one run: one next to
        it is in the same group only if the group holds both.
    """
    # No boundary at all where two stages do not fit.
    alpha, beta = np.full(len(widths), math.inf), np.zeros(len(widths))
    narrowest = int(widths.min())
    for index, width in enumerate(widths.tolist()):
        both = (width + narrowest) * (replicas if layout == "inner" else 1)
        level = best.level_for(both)
        if level < 0:
            continue
        alpha[index] = best.latency[: level + 1].max()
        beta[index] = np.maximum.accumulate(best.port_inverse)[level] / width
        for lower in range(level):
            inside = max(1, math.ceil(replicas * width / int(best.groups[lower])))
            if layout:
                run = width * (replicas if layout == "inner" else 1)
                inside = max(inside, min(math.ceil(run / 2), int(best.least[lower])))
            beta[index] = max(beta[index], inside / width * float(best.uplink_inverse[lower]))
    return alpha, beta
