"""Position-free relaxation: what a stage costs at best, wherever its devices are.

Valid for the general space. For a grid whose tensor groups each stay inside a group of level
``tau`` (but not all inside lower ones), every place that holds one of them holds ``t`` members of
``t`` different synchronisation groups; when such a group is too large for a group of the level,
all ``t`` cross its uplink. So each ``tau`` is a class with its own best-case profiles, and a stage
costs at least the least over the classes and over the device types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.comm import PROFILE
from nestopt.placement.dp.tables import PlaceClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.cluster import Cluster
    from nestopt.placement.comm import Network
    from nestopt.placement.cost import Grid

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Best", "best_sides", "relaxed_classes"]


@dataclass(frozen=True, eq=False)
class Best:
    """The best figures of each level over groups with alive devices.

    Attributes
    ----------
    latency, port_inverse, uplink_inverse : float arrays (L,)
    most : int array (L,)
        Alive devices of the level's largest group.
    groups : int array (L,)
        Groups with alive devices.
    """

    latency: Floats
    port_inverse: Floats
    uplink_inverse: Floats
    most: Ints
    groups: Ints

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
                    len(present),
                )
            )
        columns = [np.array(c) for c in zip(*rows, strict=True)]
        return cls(columns[0], columns[1], columns[2], columns[3], columns[4])

    def level_for(self, devices: int) -> int:
        """Lowest level of which one group has that many alive devices."""
        return int(np.argmax(self.most >= devices)) if (self.most >= devices).any() else -1


def _profile(best: Best, n: int, span: int, together: int, within: int) -> Floats:
    """Least profile of a family whose groups of `n` reach at least level `span`.

    `together` groups have a member wherever one of them has, from level `within` upwards.
    """
    if n == 1:
        return np.zeros(PROFILE)
    alpha = best.latency[: span + 1].max()
    port = np.maximum.accumulate(best.port_inverse)
    ring = port[span]
    direct = (n - 1) / n * best.port_inverse[0]
    rate = (n - 1) / n * port[0]
    for level in range(span):
        share = together if level >= within else 1
        most = min(int(best.most[level]) // share, n - 1)
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
    return np.array([alpha, ring, direct, steps, rate])


def relaxed_classes(
    cluster: Cluster, best: Best, grids: Sequence[Grid], replicas: int
) -> list[PlaceClass]:
    """Best-case classes of all grids: one for each level that the tensor groups may span."""
    levels = len(best.most)
    present = sorted(set(cluster.type_of[cluster.alive].tolist()))
    classes = []
    for g, grid in enumerate(grids):
        lowest = best.level_for(grid.t)
        if lowest < 0 or best.most[-1] < grid.width * replicas:
            continue
        sizes = grid.sync_sizes(replicas)
        for tau in range(lowest, levels if grid.t > 1 else lowest + 1):
            rows = []
            for family, n in enumerate(sizes):
                together = grid.t if family >= 1 else 1
                span = tau if family == 0 else _span(best, n, together, tau)
                if span < 0:
                    break
                rows.append(_profile(best, n, span, together, tau))
            if len(rows) < len(sizes):
                continue
            profiles = np.stack(rows)
            classes += [PlaceClass(g, profiles, (cluster.types[y],)) for y in present]
    return classes


def _span(best: Best, n: int, together: int, tau: int) -> int:
    """Lowest level at which a group of `n` fits when `together` of them lie side by side."""
    for level, most in enumerate(best.most):
        share = together if level >= tau else 1
        if int(most) // share >= n:
            return level
    return -1


def best_sides(best: Best, grids: Sequence[Grid], replicas: int) -> tuple[Floats, Floats]:
    """Least latency, and seconds per byte, of a boundary next to a stage of each grid."""
    # No boundary at all where two stages do not fit.
    alpha, beta = np.full(len(grids), math.inf), np.zeros(len(grids))
    narrowest = min(g.width for g in grids)
    for g, grid in enumerate(grids):
        level = best.level_for(grid.width + narrowest)
        if level < 0:
            continue
        alpha[g] = best.latency[: level + 1].max()
        beta[g] = np.maximum.accumulate(best.port_inverse)[level] / grid.width
        for lower in range(level):
            inside = max(1, math.ceil(replicas * grid.width / int(best.groups[lower])))
            beta[g] = max(beta[g], inside / grid.width * float(best.uplink_inverse[lower]))
    return alpha, beta
