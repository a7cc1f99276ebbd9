"""Communication: what the layout of a family of groups makes collectives and boundaries cost.

Implements ``MODEL.md``, section 2 and the boundaries of section 5. The kernels take plain arrays;
a *profile* of a family is ``(alpha, ring, direct, hA, hB)``: seconds, s/byte, s/byte, seconds,
s/byte, the last two infinite for an irregular family. Where the cluster has a table of collectives,
the family's lines follow (`nestopt.placement.pricing.comm_table`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from nestopt.placement.pricing.comm_table import NEVER, TableEntries, lines_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = [
    "PROFILE",
    "Network",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "families_of",
    "family_profiles",
    "lca_level",
    "side_profiles",
]

PROFILE = 5
"""Entries of a profile, without those of a table."""

_GATHER, _REDUCE, _SWAP = range(3)


class Network(NamedTuple):
    """A cluster's tree as arrays: groups (L, N), latency, 1/port and 1/uplink (L, groups).

    `table` has what the cluster's table of collectives adds, None if there is none.
    """

    group_of: Ints
    latency: Floats
    port_inverse: Floats
    uplink_inverse: Floats
    table: TableEntries | None = None

    @classmethod
    def of(cls, cluster: Cluster) -> Network:
        """The arrays of a cluster."""
        port, uplink = 1.0 / cluster.port, 1.0 / cluster.uplink
        return cls(cluster.group_of, cluster.latency, port, uplink, TableEntries.of(cluster))

    @property
    def tree(self) -> tuple[Ints, Floats, Floats, Floats]:
        """The arrays alone."""
        return self.group_of, self.latency, self.port_inverse, self.uplink_inverse

    @property
    def entries(self) -> int:
        """Entries of a profile."""
        return PROFILE + (0 if self.table is None else self.table.width)


@njit(cache=True, nogil=True)
def _lca(group_of: Ints, low: int, high: int) -> int:
    """Lowest level at which one group holds all devices from `low` to `high`."""
    level = 0
    while group_of[level, low] != group_of[level, high]:
        level += 1
    return level


@njit(cache=True, nogil=True)
def _family(
    groups: Ints, group_of: Ints, latency: Floats, pinv: Floats, uinv: Floats, out: Floats
) -> None:
    count, n = groups.shape
    levels, width = latency.shape
    span = 0
    for index in range(count):
        low = groups[index].min()
        high = groups[index].max()
        span = max(span, _lca(group_of, low, high))
    alpha = np.zeros(levels)
    port = np.zeros(levels)
    for level in range(span + 1):
        for index in range(count):
            for member in groups[index]:
                group = group_of[level, member]
                alpha[level] = max(alpha[level], latency[level, group])
                port[level] = max(port[level], pinv[level, group])
        if level > 0:
            port[level] = max(port[level], port[level - 1])
    ring = port[span]
    direct = 0.0
    for index in range(count):
        for member in groups[index]:
            direct = max(direct, (n - 1) / n * pinv[0, group_of[0, member]])
    bdev = port.copy()
    per_group = np.zeros(levels, np.int64)
    regular = True
    inside = np.zeros(width, np.int64)
    cross = np.zeros(width, np.int64)
    dev = np.zeros(width, np.int64)
    volume = np.zeros(width)
    busiest = 0.0
    for level in range(span + 1):
        if level > 0:
            bdev[level] = max(bdev[level], busiest)
        cross[:] = 0
        dev[:] = 0
        volume[:] = 0.0
        for index in range(count):
            for member in groups[index]:
                inside[group_of[level, member]] += 1
            for member in groups[index]:
                group = group_of[level, member]
                if level < span:
                    k = inside[group]
                    upper = pinv[level + 1, group_of[level + 1, member]]
                    direct = max(direct, (n - k) / n * upper)
            for member in groups[index]:
                group = group_of[level, member]
                k = inside[group]
                if k == 0:
                    continue
                inside[group] = 0
                if per_group[level] == 0:
                    per_group[level] = k
                elif per_group[level] != k:
                    regular = False
                if k < n:
                    cross[group] += 1
                    dev[group] += k
                    volume[group] += k * (n - k) / n
        if level < span:
            for group in range(width):
                if cross[group] > 0:
                    ring = max(ring, cross[group] * uinv[level, group])
                    direct = max(direct, volume[group] * uinv[level, group])
                    busiest = max(busiest, dev[group] * uinv[level, group])
    out[0] = alpha[: span + 1].max()
    out[1] = ring
    out[2] = direct
    out[3] = math.inf
    out[4] = math.inf
    if regular:
        steps = 0.0
        rate = 0.0
        below = 1
        for level in range(span + 1):
            children = per_group[level] // below
            steps += (children - 1) * alpha[level]
            rate += (children - 1) / per_group[level] * bdev[level]
            below = per_group[level]
        out[3] = steps
        out[4] = rate


@njit(cache=True, nogil=True)
def _family_batch(
    devices: Ints,
    starts: Ints,
    offsets: Ints,
    group_of: Ints,
    latency: Floats,
    pinv: Floats,
    uinv: Floats,
) -> Floats:
    out = np.zeros((len(starts), 5))
    groups = np.empty(offsets.shape, np.int64)
    for row in range(len(starts)):
        for i in range(offsets.shape[0]):
            for j in range(offsets.shape[1]):
                groups[i, j] = devices[starts[row] + offsets[i, j]]
        _family(groups, group_of, latency, pinv, uinv, out[row])
    return out


@njit(cache=True, nogil=True)
def _side_batch(
    devices: Ints,
    starts: Ints,
    offsets: Ints,
    w: int,
    group_of: Ints,
    latency: Floats,
    pinv: Floats,
    uinv: Floats,
) -> Floats:
    levels, width = latency.shape
    out = np.zeros((len(starts), 2, levels))
    load = np.zeros(width, np.int64)
    for row in range(len(starts)):
        beta = 0.0
        alpha = 0.0
        for level in range(levels):
            if level > 0:
                load[:] = 0
                for offset in offsets:
                    load[group_of[level - 1, devices[starts[row] + offset]]] += 1
                for group in range(width):
                    if load[group] > 0:
                        beta = max(beta, load[group] / w * uinv[level - 1, group])
            for offset in offsets:
                group = group_of[level, devices[starts[row] + offset]]
                beta = max(beta, pinv[level, group] / w)
                alpha = max(alpha, latency[level, group])
            out[row, 0, level] = beta
            out[row, 1, level] = alpha
    return out


def lca_level(network: Network, devices: Ints) -> int:
    """The lowest level at which one group holds all of `devices`."""
    return int(_lca(network.group_of, int(devices.min()), int(devices.max())))


def family_profiles(network: Network, devices: Ints, starts: Ints, offsets: Ints) -> Floats:
    """Profiles of one family at many places.

    Parameters
    ----------
    devices : int array
        The line of devices that the family moves along (usually the alive ones).
    starts : int array (P,)
    offsets : int array (G, n)
        Group ``g`` of the family at place ``p`` is ``devices[starts[p] + offsets[g]]``.

    Returns
    -------
    float array (P, entries)
    """
    offsets = np.ascontiguousarray(offsets)
    found = _family_batch(devices, starts, offsets, *network.tree)
    if network.table is None:
        return found
    lines = network.table.of_families(devices, starts, offsets, network.group_of)
    return np.concatenate([found, lines], axis=1)


def side_profiles(network: Network, devices: Ints, starts: Ints, offsets: Ints, w: int) -> Floats:
    """What one side makes a boundary cost: (P, 2, L), s/byte and seconds by level of the boundary.

    `offsets` (K,) are all devices of the stage, `w` those of one replica.
    """
    return _side_batch(devices, starts, np.ascontiguousarray(offsets), w, *network.tree)


def families_of(devices: Ints, x: int, y: int, z: int, c: int, e: int) -> tuple[Ints, ...]:
    """The families of a stage's devices (d, w): X, Y, Z, context, expert, two syncs.

    Each is an int array (groups, members); see ``MODEL.md``, section 4.
    """
    d, t = devices.shape[0], x * y * z
    box = devices.reshape(d, e, c, z, y, x)
    cube = devices.reshape(d, e, c, t)
    return (
        box.reshape(-1, x),
        np.moveaxis(box, 4, -1).reshape(-1, y),
        np.moveaxis(box, 3, -1).reshape(-1, z),
        np.moveaxis(cube, 2, -1).reshape(-1, c),
        np.moveaxis(cube, 1, -1).reshape(-1, e),
        cube.transpose(3, 0, 1, 2).reshape(t, -1),
        cube.transpose(1, 3, 0, 2).reshape(e * t, -1),
    )


def _cheapest(n: int, profile: Floats, size: Floats, once: float, tree: bool) -> Floats:
    size = np.asarray(size, dtype=np.float64)
    if n == 1:
        return np.zeros(profile.shape[:-1] + size.shape)
    # An irregular family's hierarchical algorithm never is the cheapest.
    bounded = np.minimum(profile, NEVER)[..., None]
    alpha, ring, direct, steps, rate = (bounded[..., entry, :] for entry in range(PROFILE))
    best = np.minimum(
        once * ((n - 1) * alpha + (n - 1) / n * size * ring), once * (alpha + size * direct)
    )
    if tree:
        rounds = (n - 1).bit_length()
        best = np.minimum(best, 2 * rounds * alpha + 2 * size * ring)
    best = np.minimum(best, once * (steps + size * rate))
    best = _with_lines(best, profile, size, _REDUCE if tree else _GATHER)
    return np.where(size > 0, best, 0.0)


def _with_lines(best: Floats, profile: Floats, size: Floats, pattern: int) -> Floats:
    """The least of `best` and of a pattern's lines in the table."""
    for alpha, beta in lines_of(profile, pattern, PROFILE):
        best = np.minimum(best, alpha + size * beta)
    return best


def all_gather(n: int, profile: Floats, size: Floats) -> Floats:
    """Seconds of an all-gather (or reduce-scatter) of `size` bytes (the full buffer).

    Here and below: of profiles (..., entries) and sizes (K,), seconds (..., K).
    """
    return _cheapest(n, profile, size, 1.0, tree=False)


def all_reduce(n: int, profile: Floats, size: Floats) -> Floats:
    """Seconds of an all-reduce of `size` bytes."""
    return _cheapest(n, profile, size, 2.0, tree=True)


def all_to_all(n: int, profile: Floats, size: Floats) -> Floats:
    """Seconds of an all-to-all in which every device sends `size` bytes, its own part included."""
    size = np.asarray(size, dtype=np.float64)
    if n == 1:
        return np.zeros(profile.shape[:-1] + size.shape)
    direct = profile[..., 0, None] + size * profile[..., 2, None]
    return np.where(size > 0, _with_lines(direct, profile, size, _SWAP), 0.0)
