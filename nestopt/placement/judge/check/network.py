"""The checker's own reading of a cluster: groups, uplinks, collectives and boundaries.

Nothing here comes from the modules that find plans: the tree's tables are built again from the
cluster's levels, sizes and overrides, and every formula of ``MODEL.md``, sections 1, 2 and the
boundary of 5, is written anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.judge.check.table import TableReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster

__all__ = ["Family", "Tree", "UplinkLoad", "boundary_seconds", "family_of", "uplink_load"]


@dataclass(frozen=True, eq=False)
class Tree:
    """A cluster's tree, level by level, innermost first.

    Attributes
    ----------
    group : tuple of int arrays (N,)
        ``group[l][i]``, the group of device ``i`` at level ``l``.
    latency, port : tuple of float arrays (N,)
        What device ``i``'s group at level ``l`` says: seconds, bytes/s.
    uplink : tuple of float arrays, one figure a group
        Bytes/s from the group into the next level; infinite at the last level.
    table : TableReader
        The cluster's table of collectives, if it has one.
    """

    group: tuple[NDArray[np.int64], ...]
    latency: tuple[NDArray[np.float64], ...]
    port: tuple[NDArray[np.float64], ...]
    uplink: tuple[NDArray[np.float64], ...]
    table: TableReader

    @classmethod
    def of(cls, cluster: Cluster) -> Tree:
        """The tables of a cluster."""
        group, latency, port, uplink = [], [], [], []
        for index, (level, sizes) in enumerate(zip(cluster.levels, cluster.sizes, strict=True)):
            groups = len(sizes)
            figures = {
                "latency": np.full(groups, level.latency),
                "port": np.full(groups, level.port),
                "uplink": np.full(groups, level.uplink),
            }
            for override in cluster.overrides:
                for name, column in figures.items():
                    value = getattr(override, name)
                    if override.level == index and value is not None:
                        column[override.group] = value
            of_device = np.repeat(np.arange(groups), np.array(sizes))
            group.append(of_device)
            latency.append(figures["latency"][of_device])
            port.append(figures["port"][of_device])
            uplink.append(figures["uplink"])
        reader = TableReader.of(cluster)
        return cls(tuple(group), tuple(latency), tuple(port), tuple(uplink), reader)

    def span(self, sets: NDArray[np.int64]) -> int:
        """The highest lowest-common level of the rows of `sets`, each a set of devices."""
        for level, group in enumerate(self.group):
            rows = group[sets]
            if (rows == rows[:, :1]).all():
                return level
        return len(self.group) - 1


@dataclass(frozen=True, eq=False)
class UplinkLoad:
    """What family groups put on the uplinks of one level, by group of the tree.

    Attributes
    ----------
    cross : float array
        Family groups with members inside and outside.
    members : float array
        Members, inside, of those family groups.
    pairs : float array
        Sum of k (n - k) / n over them, k members of n being inside.
    """

    cross: NDArray[np.float64]
    members: NDArray[np.float64]
    pairs: NDArray[np.float64]

    def __add__(self, other: UplinkLoad) -> UplinkLoad:
        """The load of both at the same time."""
        return UplinkLoad(
            self.cross + other.cross, self.members + other.members, self.pairs + other.pairs
        )


def _inside(tree: Tree, level: int, sets: NDArray[np.int64]) -> NDArray[np.int64]:
    """For every member of every row, how many of its row share its group at `level`."""
    group = tree.group[level][sets]
    width = len(tree.uplink[level])
    keys = group + width * np.arange(len(sets))[:, None]
    _, where, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return counts[where].reshape(sets.shape)


def _sum_at(at: NDArray[np.int64], values: NDArray[np.float64], width: int) -> NDArray[np.float64]:
    total = np.zeros(width)
    np.add.at(total, at, values)
    return total


def uplink_load(tree: Tree, sets: NDArray[np.int64]) -> list[UplinkLoad]:
    """The load of a family on the uplinks of every level.

    Parameters
    ----------
    tree : Tree
    sets : int array (groups, n)
        The family's groups, one a row.
    """
    n = sets.shape[1]
    loads = []
    for level, group in enumerate(tree.group):
        inside = _inside(tree, level, sets)
        crossing = inside < n
        at = group[sets[crossing]]
        # each of the k members inside stands for 1/k of its family group
        k = inside[crossing].astype(np.float64)
        width = len(tree.uplink[level])
        loads.append(
            UplinkLoad(
                np.rint(_sum_at(at, 1 / k, width)),
                _sum_at(at, np.ones(at.shape), width),
                _sum_at(at, (n - k) / n, width),
            )
        )
    return loads


@dataclass(frozen=True, slots=True)
class Family:
    """What the collectives of one family cost: seconds, and seconds a byte.

    Attributes
    ----------
    n : int
        Members of each group.
    alpha, ring, direct : float
    steps_alpha, steps_beta : float
        The hierarchical algorithm's; infinite if the family is not regular.
    gathers, reduces, exchanges : tuple of (float, float)
        Seconds, and seconds a byte, of the algorithms that the cluster's table adds.
    """

    n: int
    alpha: float = 0.0
    ring: float = 0.0
    direct: float = 0.0
    steps_alpha: float = math.inf
    steps_beta: float = math.inf
    gathers: tuple[tuple[float, float], ...] = ()
    reduces: tuple[tuple[float, float], ...] = ()
    exchanges: tuple[tuple[float, float], ...] = ()

    def gather(self, size: float) -> float:
        """All-gather or reduce-scatter of a full buffer of `size` bytes."""
        n = self.n
        if n == 1 or size == 0:
            return 0.0
        return min(
            (n - 1) * self.alpha + (n - 1) / n * size * self.ring,
            self.alpha + size * self.direct,
            self.steps_alpha + size * self.steps_beta,
            *(a + size * b for a, b in self.gathers),
        )

    def reduce(self, size: float) -> float:
        """All-reduce of `size` bytes."""
        if self.n == 1 or size == 0:
            return 0.0
        depth = (self.n - 1).bit_length()
        tree = 2 * depth * self.alpha + 2 * size * self.ring
        return min(2 * self.gather(size), tree, *(a + size * b for a, b in self.reduces))

    def exchange(self, size: float) -> float:
        """All-to-all in which every member has `size` bytes, its own part included."""
        if self.n == 1 or size == 0:
            return 0.0
        direct = self.alpha + size * self.direct
        return min(direct, *(a + size * b for a, b in self.exchanges), math.inf)


def family_of(
    tree: Tree, sets: NDArray[np.int64], loads: Sequence[UplinkLoad] | None = None
) -> Family:
    """The cost of the collectives of a family.

    Parameters
    ----------
    tree : Tree
    sets : int array (groups, n)
    loads : sequence of UplinkLoad, optional
        The load of every level's uplinks; the family's own if not given. A larger one prices the
        family while others communicate too; a table does not know of these.
    """
    n = sets.shape[1]
    if n == 1:
        return Family(1)
    span = tree.span(sets)
    own = uplink_load(tree, sets)
    alone = loads is None or not _disturbed(tree, sets, span, own, loads)
    if loads is None:
        loads = own
    users = np.unique(sets)
    latency = [float(tree.latency[level][users].max()) for level in range(span + 1)]

    ring = direct = ports = steps_alpha = steps_beta = uplinks_by_members = 0.0
    held = 1  # members of a family group in each of its groups of the level before
    regular = True
    outside = np.full(sets.shape, n - 1.0)
    for level in range(span + 1):
        inverse = 1 / tree.port[level]
        ports = max(ports, float(inverse[users].max()))
        direct = max(direct, float((outside / n * inverse[sets]).max()))
        inside = _inside(tree, level, sets)
        outside = n - inside.astype(float)
        now = int(inside.flat[0])
        regular = regular and bool((inside == now).all())
        if regular:
            children = now // held
            steps_alpha += (children - 1) * latency[level]
            steps_beta += (children - 1) / now * max(ports, uplinks_by_members)
            held = now
        if level < span:
            up, load = tree.uplink[level], loads[level]
            ring = max(ring, float((load.cross / up).max()))
            direct = max(direct, float((load.pairs / up).max()))
            uplinks_by_members = max(uplinks_by_members, float((load.members / up).max()))
    if not regular:
        steps_alpha = steps_beta = math.inf
    layout = tree.table.layout(tree.group, sets, span) if tree.table.rows and alone else None
    return Family(
        n, max(latency), max(ring, ports), direct, steps_alpha, steps_beta,
        tree.table.lines("all-gather", layout),
        tree.table.lines("all-reduce", layout),
        tree.table.lines("all-to-all", layout),
    )  # fmt: skip


def _disturbed(
    tree: Tree,
    sets: NDArray[np.int64],
    span: int,
    own: Sequence[UplinkLoad],
    loads: Sequence[UplinkLoad],
) -> bool:
    """Whether others load an uplink that a family uses."""
    for level in range(span):
        used = np.unique(tree.group[level][sets])
        if (loads[level].members[used] > own[level].members[used]).any():
            return True
    return False


def boundary_seconds(
    tree: Tree, first: NDArray[np.int64], second: NDArray[np.int64], size: float
) -> float:
    """Seconds to move a micro-batch's tensors one way between two stages.

    Parameters
    ----------
    tree : Tree
    first, second : int arrays (d, w)
        Devices of the two stages, a replica a row.
    size : float
        Bytes of one micro-batch.
    """
    top = tree.span(np.concatenate([first, second], axis=1))
    latency = slowest = 0.0
    for devices in (first, second):
        width, used = devices.shape[1], devices.ravel()
        for level in range(top + 1):
            latency = max(latency, float(tree.latency[level][used].max()))
            slowest = max(slowest, float((1 / (width * tree.port[level][used])).max()))
            if level < top:
                up = tree.uplink[level]
                users = np.bincount(tree.group[level][used], minlength=len(up))
                slowest = max(slowest, float((users / (width * up)).max()))
    return latency + size * slowest
