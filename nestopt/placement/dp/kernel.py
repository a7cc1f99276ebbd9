"""The label search: pipelines grown from the last stage to the first, on real places.

A label is a partial pipeline of ``k`` stages that covers everything behind an ideal, with its first
stage at a place. Its figures are the sum of stage times, the largest closed stage time, the time
of the first stage (still open: its left boundary is not known), and the largest synchronisation.
Labels at the same ideal, place and width that are no better in any figure are dropped, and so are
labels whose bound reaches the incumbent; both keep the search exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue
from nestopt.placement.dp.tables import CLOSE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["clear_heads", "expand", "keep_best"]


@njit(cache=True, nogil=True)
def _level(
    group_of: Ints,
    devices: Ints,
    left: int,
    left_stride: int,
    right: int,
    right_stride: int,
    right_width: int,
    replicas: int,
) -> int:
    """Level of the boundary between two stages: the highest over the replicas."""
    top = group_of.shape[0] - 1
    level = 0
    for r in range(replicas):
        low = devices[left + r * left_stride]
        high = devices[right + r * right_stride + right_width - 1]
        while group_of[level, low] != group_of[level, high]:
            level += 1
        if level == top:
            break
    return level


@njit(cache=True, nogil=True)
def _grow(array: Any, used: int) -> Any:
    larger = np.empty((2 * array.shape[0], array.shape[1]), array.dtype)
    # by hand: a slice brings a check of shapes that takes seconds to compile
    for row in range(used):
        for column in range(array.shape[1]):
            larger[row, column] = array[row, column]
    return larger


@njit(cache=True, nogil=True)
def expand(
    low: int,
    high: int,
    used: int,
    k: int,
    ints: Any,
    floats: Any,
    heads: Any,
    links: Any,
    # lattice
    start: Ints,
    below: Any,
    block: Any,
    cut: Floats,
    rows: int,
    # places
    group_of: Ints,
    devices: Ints,
    replicas: int,
    unit: int,
    length: Ints,
    width: Ints,
    stride: Ints,
    spot_of: Ints,
    side: Floats,
    better: Ints,
    longest: Ints,
    # entries
    ent_start: Ints,
    ent_seconds: Floats,
    ent_sync: Floats,
    ent_holds: Floats,
    held: float,
    # bounds
    sums: Floats,
    left: Floats,
    boundary_most: Floats,
    time_high: float,
    sync_high: float,
    # objective
    w_total: float,
    w_largest: float,
    w_sync: float,
    volume: float,
    crossings: int,
    incumbent: float,
    only_stages: int,
    most: int,
) -> tuple[int, float, int, Any, Any, Any]:
    """Expand the labels ``low..high-1`` (of ``k`` stages) by one stage in front.

    `ints` rows are (ideal, place, grid, parent, entry, alive), `floats` rows (sum, largest, open,
    sync, bound). `heads` (I, n + 1, widths) starts the list of new labels of a key. Returns
    the number of labels used, the best objective of a complete pipeline and its label (-1: none
    better than the incumbent), and the arrays, which may have grown.
    """
    best = incumbent
    best_label = -1
    grids = len(length)
    for index in range(low, high):
        if overdue():
            raise KernelStopped
        if ints[index, 5] == 0:
            continue
        if floats[index, 4] >= best * CLOSE:
            continue
        ideal = ints[index, 0]
        place = ints[index, 1]
        grid = ints[index, 2]
        root = grid < 0
        for g in range(grids):
            first = place - length[g]
            if first < 0:
                continue
            for p in range(first, max(-1, first - longest[g] - 1), -1):
                # A gap that reaches over a place at least as good never pays.
                if better[g, p] <= first:
                    continue
                c = spot_of[g, p]
                if c >= 0:
                    x = 0.0
                    if not root:
                        level = _level(
                            group_of,
                            devices,
                            p,
                            stride[g],
                            place,
                            stride[grid],
                            width[grid],
                            replicas,
                        )
                        beta = max(side[g, p, 0, level], side[grid, place, 0, level])
                        alpha = max(side[g, p, 1, level], side[grid, place, 1, level])
                        x = crossings * (alpha + volume * cut[ideal] * beta)
                    done_sum = floats[index, 0] + 2.0 * x
                    done_max = max(floats[index, 1], floats[index, 2] + x)
                    done_sync = floats[index, 3]
                    if done_max > time_high:
                        continue
                    most_others = best * CLOSE - w_largest * done_max - w_sync * done_sync
                    if w_total * done_sum < most_others:
                        cell = p // unit
                        for e in range(start[ideal], start[ideal + 1]):
                            lower = below[e]
                            if only_stages > 0 and (lower == 0) != (k + 1 == only_stages):
                                continue
                            x_min = 0.0
                            if lower > 0:
                                x_min = left[g, p, 0] + left[g, p, 1] * cut[lower]
                            rest = w_total * (done_sum + x_min + sums[lower, cell])
                            if not rest < most_others:
                                continue
                            row = c * rows + block[e]
                            for entry in range(ent_start[row], ent_start[row + 1]):
                                if ent_holds[entry] < held or ent_sync[entry] > sync_high:
                                    continue
                                t = ent_seconds[entry]
                                opened = t + x
                                if opened + x_min > time_high:
                                    continue
                                sync = max(done_sync, ent_sync[entry])
                                bound = (
                                    rest
                                    + w_total * t
                                    + w_largest * max(done_max, opened + x_min)
                                    + w_sync * sync
                                )
                                if bound >= best * CLOSE:
                                    continue
                                if lower == 0:
                                    value = (
                                        w_total * (done_sum + t)
                                        + w_largest * max(done_max, opened)
                                        + w_sync * sync
                                    )
                                    if value >= best:
                                        continue
                                    best = value
                                    best_label = used
                                    if used == ints.shape[0]:
                                        ints = _grow(ints, used)
                                        floats = _grow(floats, used)
                                        links = _grow(links, used)
                                    ints[used, 0] = 0
                                    ints[used, 1] = p
                                    ints[used, 2] = g
                                    ints[used, 3] = index
                                    ints[used, 4] = entry
                                    ints[used, 5] = 0
                                    used += 1
                                    continue
                                # An open time far under the closed maximum can never count.
                                opened = max(opened, done_max - boundary_most[lower])
                                new_sum = done_sum + t
                                seen = heads[lower, p, g]
                                before = -1
                                dominated = False
                                while seen >= 0:
                                    follow = links[seen, 0]
                                    if (
                                        floats[seen, 0] * CLOSE <= new_sum
                                        and floats[seen, 1] * CLOSE <= done_max
                                        and floats[seen, 2] * CLOSE <= opened
                                        and floats[seen, 3] * CLOSE <= sync
                                    ):
                                        dominated = True
                                        break
                                    if (
                                        new_sum <= floats[seen, 0]
                                        and done_max <= floats[seen, 1]
                                        and opened <= floats[seen, 2]
                                        and sync <= floats[seen, 3]
                                    ):
                                        ints[seen, 5] = 0
                                        if before < 0:
                                            heads[lower, p, g] = follow
                                        else:
                                            links[before, 0] = follow
                                    else:
                                        before = seen
                                    seen = follow
                                if dominated:
                                    continue
                                if used == ints.shape[0]:
                                    ints = _grow(ints, used)
                                    floats = _grow(floats, used)
                                    links = _grow(links, used)
                                ints[used, 0] = lower
                                ints[used, 1] = p
                                ints[used, 2] = g
                                ints[used, 3] = index
                                ints[used, 4] = entry
                                ints[used, 5] = 1
                                floats[used, 0] = new_sum
                                floats[used, 1] = done_max
                                floats[used, 2] = opened
                                floats[used, 3] = sync
                                floats[used, 4] = bound
                                links[used, 0] = heads[lower, p, g]
                                heads[lower, p, g] = used
                                used += 1
                                if used >= most:
                                    return used, best, best_label, ints, floats, links
    return used, best, best_label, ints, floats, links


@njit(cache=True, nogil=True)
def clear_heads(heads: Any, ints: Any, low: int, high: int) -> None:
    """Empty the lists that the labels ``low..high-1`` are in."""
    for index in range(low, high):
        heads[ints[index, 0], ints[index, 1], ints[index, 2]] = -1


def keep_best(ints: NDArray[np.int64], floats: Floats, low: int, high: int, beam: int) -> None:
    """Leave only the `beam` alive labels of smallest bound at each ideal (a heuristic run)."""
    alive = low + np.flatnonzero(ints[low:high, 5] == 1)
    order = alive[np.lexsort((floats[alive, 4], ints[alive, 0]))]
    ideal = ints[order, 0]
    first = np.searchsorted(ideal, ideal)
    ints[order[np.arange(len(order)) - first >= beam], 5] = 0
