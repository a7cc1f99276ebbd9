"""Layouts: which device a role gets when roles and devices each stand in a line.

A plan's roles are told apart by stage, replica and the ranks along the axes of a stage. Sorted by
these in some order, outermost first, they take the devices of a line one by one. The order
(stage, replica, rank) gives contiguous blocks, (replica, stage, rank) windows, and (rank, replica)
groups that stride. An axis may also be split into its prime factors, each of them at a place of its
own: a tensor group of four may lie half in one node and half in another.
"""

from __future__ import annotations

import math
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.grid import Grid

    Ints = NDArray[np.int64]

__all__ = ["Roles", "plain_lines", "random_line", "sorted_devices"]

_MOST_ORDERS = 24


class Roles:
    """The roles of stages with given grids, as columns to sort them by.

    Parameters
    ----------
    replicas : int
    grids : sequence of Grid
        Of the stages.
    """

    def __init__(self, replicas: int, grids: Sequence[Grid]) -> None:
        self.shapes = [(replicas, grid.width) for grid in grids]
        parts = []
        for q, (x, y, z, c, e) in enumerate(grids):
            index = np.indices((replicas, e, c, z, y, x)).reshape(6, -1)
            parts.append(np.concatenate([np.full((1, index.shape[1]), q), index]))
        rows = np.concatenate(parts, axis=1)
        lengths = [len(grids), replicas, *([0] * 5)]
        if len(set(grids)) == 1:
            x, y, z, c, e = grids[0]
            lengths[2:] = [e, c, z, y, x]
        self.axes = [row for row in rows if row.max() > 0]
        self.digits: list[Ints] = []
        for row, length in zip(rows, lengths, strict=True):
            if row.max() > 0:
                self.digits += _digits(row, length)
        self.size = rows.shape[1]

    def orders(self, rng: np.random.Generator, most: int = _MOST_ORDERS) -> list[list[Ints]]:
        """Orders of whole axes, outermost first: all of them, or `most` at random."""
        count = len(self.axes)
        if math.factorial(count) <= most:
            return [list(order) for order in permutations(self.axes)]
        chosen = [list(self.axes)]
        while len(chosen) < most:
            chosen.append([self.axes[i] for i in rng.permutation(count)])
        return chosen

    def mixed_order(self, rng: np.random.Generator) -> list[Ints]:
        """An order of the axes' prime factors at random."""
        return [self.digits[i] for i in rng.permutation(len(self.digits))]

    def place(self, order: Sequence[Ints], line: Ints) -> list[Ints]:
        """The devices (d, w) of every stage when the sorted roles take those of a line.

        `line` has at least as many devices as there are roles.
        """
        taken = np.empty(self.size, np.int64)
        rank = np.lexsort(tuple(reversed(order))) if order else np.arange(self.size)
        taken[rank] = line[: self.size]
        out, begin = [], 0
        for d, w in self.shapes:
            out.append(taken[begin : begin + d * w].reshape(d, w))
            begin += d * w
        return out


def _digits(row: Ints, length: int) -> list[Ints]:
    """The coordinates of an axis in mixed radix of its length's prime factors, highest first."""
    factors, rest, prime = [], length, 2
    while rest > 1:
        while rest % prime == 0:
            factors.append(prime)
            rest //= prime
        prime += 1
        if prime * prime > rest > 1:
            factors.append(rest)
            break
    if len(factors) < 2:
        return [row]
    below, out = length, []
    for factor in factors:
        below //= factor
        out.append(row // below % factor)
    return out


def sorted_devices(cluster: Cluster, keys: Sequence[Ints]) -> Ints:
    """The alive devices in the order of some keys (N,), the first the most important."""
    alive = cluster.alive
    columns = [np.asarray(key)[alive] for key in reversed(keys)]
    return np.asarray(alive[np.lexsort((alive, *columns))])


def plain_lines(cluster: Cluster, unit: int = 1) -> list[Ints]:
    """Lines of the alive devices that are worth a try, each once.

    In hierarchy order; with groups that have failures or slow links behind all others; by speed,
    each kind in hierarchy order; with the devices that do not fill a unit in their innermost group
    behind; one device of every innermost group after another.

    Parameters
    ----------
    unit : int
        Devices that should lie in one innermost group.
    """
    group = cluster.group_of
    levels, count = group.shape
    alive = np.zeros(count, np.int64)
    alive[cluster.alive] = 1
    hierarchy = list(group[::-1])
    worse: list[Ints] = []
    for level in range(levels - 1, -1, -1):
        members = np.bincount(group[level], alive)
        bad = members < np.bincount(group[level])
        for item in cluster.overrides:
            if item.level == level:
                bad[item.group] = True
        worse += [bad[group[level]].astype(np.int64), group[level]]
    speed = np.array([-t.peak * t.efficiency for t in cluster.types])
    kinds = np.argsort(np.argsort(speed, kind="stable"), kind="stable")[cluster.type_of]
    place = np.zeros(count, np.int64)
    for node in np.split(cluster.alive, np.flatnonzero(np.diff(group[0, cluster.alive])) + 1):
        place[node] = np.arange(len(node))
    filled = np.bincount(group[0], alive).astype(np.int64)[group[0]] // unit * unit
    loose = (place >= filled).astype(np.int64)
    found = [
        cluster.alive,
        sorted_devices(cluster, [loose, *worse]),
        sorted_devices(cluster, [kinds, *hierarchy]),
        sorted_devices(cluster, [-kinds, *hierarchy]),
        sorted_devices(cluster, worse),
        sorted_devices(cluster, [loose, *hierarchy]),
        sorted_devices(cluster, [place, *hierarchy]),
    ]
    return list({line.tobytes(): line for line in found}.values())


def random_line(cluster: Cluster, rng: np.random.Generator, unit: int = 1) -> Ints:
    """The alive devices with the groups of every level in random order among their siblings.

    Now and then the devices that do not fill a unit come last, and kinds of device are kept apart.
    """
    group = cluster.group_of
    keys = [rng.permutation(int(row.max()) + 1)[row] for row in group[::-1]]
    if len(cluster.types) > 1 and rng.random() < 0.5:
        keys.insert(0, rng.permutation(len(cluster.types))[cluster.type_of])
    if rng.random() < 0.5:
        base = plain_lines(cluster, unit)
        line = base[int(rng.integers(len(base)))]
        rank = np.empty(cluster.num_devices, np.int64)
        rank[line] = np.arange(len(line))
        if rng.random() < 0.5:
            # a rotation of a plain line: another device begins
            return np.roll(line, -int(rng.integers(len(line))))
        level = int(rng.integers(group.shape[0]))
        width = int(group[level].max()) + 1
        return sorted_devices(cluster, [rng.permutation(width)[group[level]], rank])
    return sorted_devices(cluster, keys)
