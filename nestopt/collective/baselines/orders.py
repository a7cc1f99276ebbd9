"""What an algorithm lays over a network: a ring through the NPUs, dimensions, binary trees."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import stopped

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from nestopt.collective.model.topology import Topology

__all__ = ["binary_tree", "dimensions", "ring_order"]

_RING_SEARCH = 2500


def ring_order(distance: NDArray[np.int64]) -> NDArray[np.int64]:
    """A short closed tour through all ranks, int64[n], by nearest neighbours, 2-opt and Or-opt.

    Parameters
    ----------
    distance : int64[n, n]
        Time from rank to rank; the tour counts both directions of every edge.
    """
    n = len(distance)
    cost = (distance + distance.T).astype(np.float64)
    natural = np.arange(n)
    if n <= 3 or n > _RING_SEARCH:
        return natural
    starts = [_nearest(cost, start) for start in (0, n // 2)]
    tours = [_two_opt(tour.copy(), cost) for tour in [natural, *starts]]
    lengths = [float(cost[tour, np.roll(tour, -1)].sum()) for tour in [natural, *tours]]
    best = [natural, *tours][int(np.argmin(lengths))]
    return np.roll(best, -int(np.argmin(best)))


@njit(cache=True, nogil=True)
def _nearest(cost: Any, start: int) -> Any:
    n = len(cost)
    tour = np.empty(n, np.int64)
    used = np.zeros(n, np.bool_)
    here = start
    for position in range(n):
        tour[position] = here
        used[here] = True
        best = -1
        for v in range(n):
            if not used[v] and (best < 0 or cost[here, v] < cost[here, best]):
                best = v
        here = best
    return tour


@njit(cache=True, nogil=True)
def _two_opt(tour: Any, cost: Any) -> Any:
    """Reverse segments, and move runs of up to three ranks, while that shortens the tour."""
    n = len(tour)
    improved = True
    rounds = 0
    while improved and rounds < 200:
        improved = False
        rounds += 1
        for i in range(n - 1):
            if stopped():
                return tour
            for j in range(i + 2, n):
                a, b = tour[i], tour[i + 1]
                c, d = tour[j], tour[(j + 1) % n]
                if a == d:
                    continue
                if cost[a, c] + cost[b, d] < cost[a, b] + cost[c, d] - 1e-9:
                    tour[i + 1 : j + 1] = tour[i + 1 : j + 1][::-1].copy()
                    improved = True
        for length in range(1, min(4, n - 2)):
            for i in range(n - length):
                before, after = tour[i - 1], tour[(i + length) % n]
                first, last = tour[i], tour[i + length - 1]
                gain = cost[before, first] + cost[last, after] - cost[before, after]
                for j in range(n):
                    if i - 1 <= j < i + length or (i == 0 and j == n - 1):
                        continue
                    u, w = tour[j], tour[(j + 1) % n]
                    if (j + 1) % n == i:
                        continue
                    if cost[u, first] + cost[last, w] - cost[u, w] < gain - 1e-9:
                        run = tour[i : i + length].copy()
                        if j > i:
                            tour[i : j - length + 1] = tour[i + length : j + 1].copy()
                            tour[j - length + 1 : j + 1] = run
                        else:
                            tour[j + 1 + length : i + length] = tour[j + 1 : i].copy()
                            tour[j + 1 : j + 1 + length] = run
                        improved = True
                        break
    return tour


def dimensions(topology: Topology, npus: NDArray[np.int32]) -> list[NDArray[np.int64]]:
    """Nested groups of a network as digits of each NPU, from the outermost dimension inwards.

    Two NPUs are in one group if a path of links of at least some bandwidth joins them; the
    bandwidths that give nested groups of equal sizes make the dimensions. A network without such
    groups is folded into the two most nearly equal factors of its size, in order of its NPUs.

    Returns
    -------
    list of int64[n]
        One digit an NPU and dimension; their combination is unique.
    """
    n = len(npus)
    labels: list[NDArray[np.int64]] = []
    sizes = [n]
    for width in np.unique(topology.bandwidth):
        group = _joined(topology, int(width), npus)
        counts = np.bincount(group)
        if len(set(counts.tolist())) == 1 and 1 < counts[0] < sizes[-1]:
            labels.append(group)
            sizes.append(int(counts[0]))
    if not labels:
        inner = next((d for d in range(int(n**0.5), 1, -1) if n % d == 0), 1)
        labels = [np.arange(n) // inner] if inner > 1 else []
    digits = []
    outer = np.zeros(n, dtype=np.int64)
    for group in labels:
        digits.append(_rank_within(outer, group))
        outer = group
    digits.append(_rank_within(outer, np.arange(n)))
    return digits


def _rank_within(outer: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of each group among the groups of its outer group, in order of appearance."""
    seen: dict[int, dict[int, int]] = {}
    digit = np.empty(len(group), dtype=np.int64)
    for i, (out, own) in enumerate(zip(outer.tolist(), group.tolist())):
        table = seen.setdefault(out, {})
        digit[i] = table.setdefault(own, len(table))
    return digit


def _joined(topology: Topology, width: int, npus: NDArray[np.int32]) -> NDArray[np.int64]:
    """Groups of NPUs joined by links of at least `width`, numbered in order of their NPUs."""
    parent = list(range(topology.num_nodes))

    def find(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    for e in np.flatnonzero(topology.bandwidth >= width).tolist():
        parent[find(int(topology.src[e]))] = find(int(topology.dst[e]))
    table: dict[int, int] = {}
    return np.array([table.setdefault(find(int(v)), len(table)) for v in npus], dtype=np.int64)


def binary_tree(n: int, *, mirrored: bool = False) -> list[int]:
    """Parent of each rank in an in-order binary tree; -1 for the root.

    Rank 0 is the root with one child; of the others those with odd numbers are leaves. In the
    mirrored tree, which is turned by one rank if n is odd, they are inner nodes, so that over both
    trees every rank is a leaf about once.

    References
    ----------
    P. Sanders, J. Speck, J. Traeff, Two-tree algorithms for full bandwidth broadcast, reduction and
    scan, Parallel Computing 35 (2009).
    """
    parent = [-1] * n

    def hang(low: int, high: int, above: int) -> None:
        if low > high:
            return
        step = 1
        while step * 2 <= high - low + 1:
            step *= 2
        middle = low + step - 1
        parent[middle] = above
        hang(low, middle - 1, middle)
        hang(middle + 1, high, middle)

    hang(1, n - 1, 0)
    if not mirrored:
        return parent
    rename = [n - 1 - r if n % 2 == 0 else (r + 1) % n for r in range(n)]
    turned = [-1] * n
    for rank, above in enumerate(parent):
        turned[rename[rank]] = -1 if above < 0 else rename[above]
    return turned
