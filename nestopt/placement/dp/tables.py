"""What a scenario fixes of the batch, and a first bound on whole pipelines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.dp.entries import Entries
    from nestopt.placement.dp.lattice import StageLattice
    from nestopt.placement.model.schedules import PipelineSchedule, Weights

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["CLOSE", "Batch", "boundary_prices", "floors"]

CLOSE = 1.0 - 1e-12
"""A bound at or above this share of the incumbent closes: rounding is not an improvement."""


class Batch(NamedTuple):
    """What a scenario fixes of the batch: replicas, micro-batch, their number, the schedule."""

    replicas: int
    microbatch: int
    microbatches: int
    schedule: PipelineSchedule
    stages: int
    """Number of stages if the schedule needs it beforehand, 0 if it does not or it is open."""

    def held(self, most: int) -> Floats:
        """``held[k]``: micro-batches in flight in a stage with ``k`` stages from it to the last.

        Where the schedule needs the number of stages and it is open, they are k.
        """
        return np.array(
            [0.0]
            + [
                self.schedule.in_flight(self.microbatches, k, self.stages or k)
                for k in range(1, most + 1)
            ]
        )


@njit(cache=True, nogil=True)
def _least(
    start: Ints,
    seconds: Floats,
    sync: Floats,
    holds: Floats,
    grids: int,
    rows: int,
    held: float,
    largest: float,
    weight: float,
) -> Floats:
    best = np.full((3, grids, rows), np.inf)
    for g in range(grids):
        for r in range(rows):
            for e in range(start[g * rows + r], start[g * rows + r + 1]):
                if holds[e] >= held:
                    joint = largest * seconds[e] + weight * sync[e]
                    best[0, g, r] = min(best[0, g, r], seconds[e])
                    best[1, g, r] = min(best[1, g, r], sync[e])
                    best[2, g, r] = min(best[2, g, r], joint)
    return best


@njit(cache=True, nogil=True)
def _fill(
    start: Ints,
    below: NDArray[np.int32],
    block: NDArray[np.int32],
    boundary: Floats,
    best: Floats,
    widths: Ints,
    units: int,
    weight: float,
) -> Floats:
    ideals = len(start) - 1
    out = np.full((4, ideals, units + 1), np.inf)
    out[:, 0] = 0.0
    for i in range(1, ideals):
        if overdue():
            raise KernelStopped
        for e in range(start[i], start[i + 1]):
            j = below[e]
            for g in range(len(widths)):
                t = best[0, g, block[e]]
                if t == np.inf:
                    continue
                x = boundary[g, i] + boundary[g, j]
                t += x
                s = best[1, g, block[e]]
                z = best[2, g, block[e]] + weight * x
                w = widths[g]
                for u in range(w, units + 1):
                    out[0, i, u] = min(out[0, i, u], out[0, j, u - w] + t)
                    out[1, i, u] = min(out[1, i, u], max(out[1, j, u - w], t))
                    out[2, i, u] = min(out[2, i, u], max(out[2, j, u - w], s))
                    out[3, i, u] = min(out[3, i, u], max(out[3, j, u - w], z))
        for u in range(1, units + 1):
            for table in range(4):
                out[table, i, u] = min(out[table, i, u], out[table, i, u - 1])
    return out[:, -1]


@njit(cache=True, nogil=True)
def _fluid(
    start: Ints,
    below: NDArray[np.int32],
    block: NDArray[np.int32],
    boundary: Floats,
    ent_start: Ints,
    seconds: Floats,
    sync: Floats,
    holds: Floats,
    held: float,
    widths: Ints,
    units: Ints,
    rows: int,
    w_total: float,
    w_largest: float,
    w_sync: float,
) -> Floats:
    ideals = len(start) - 1
    grids = len(widths)
    out = np.full((len(units), ideals), np.inf)
    cost = np.empty((grids, rows))
    for column in range(len(units)):
        if overdue():
            raise KernelStopped
        out[column, 0] = 0.0
        for g in range(grids):
            share = widths[g] / units[column]
            for r in range(rows):
                least = np.inf
                if widths[g] <= units[column]:
                    for e in range(ent_start[g * rows + r], ent_start[g * rows + r + 1]):
                        if holds[e] >= held:
                            value = (w_total + share * w_largest) * seconds[e]
                            value += share * w_sync * sync[e]
                            least = min(least, value)
                cost[g, r] = least
        for i in range(1, ideals):
            least = np.inf
            for e in range(start[i], start[i + 1]):
                j = below[e]
                for g in range(grids):
                    value = cost[g, block[e]]
                    if value == np.inf:
                        continue
                    rate = w_total + widths[g] / units[column] * w_largest
                    value += rate * (boundary[g, i] + boundary[g, j])
                    least = min(least, out[column, j] + value)
            out[column, i] = least
    return out[:, -1]


def _unit_columns(units: int) -> tuple[Ints, Ints]:
    """Device counts that `fluid` is tabulated for, and the column of every count.

    A bound with more devices is valid with fewer; the counts are at most 2 % apart near the end
    and 10 % further down.
    """
    counts = [1]
    while counts[-1] < units:
        step = 1.1 if counts[-1] < units // 2 else 1.02
        counts.append(min(units, max(counts[-1] + 1, int(counts[-1] * step))))
    chosen = np.array(counts, dtype=np.int64)
    return chosen, np.searchsorted(chosen, np.arange(units + 1)).astype(np.int64)


def boundary_prices(lattice: StageLattice, batch: Batch, alpha: Floats, beta: Floats) -> Floats:
    """Prices of the boundary behind each ideal from seconds and seconds per byte by width."""
    volume = batch.microbatch * lattice.cut
    prices = batch.schedule.crossings * (alpha[:, None] + beta[:, None] * volume)
    prices[:, [0, -1]] = 0.0
    return prices


def floors(
    lattice: StageLattice,
    entries: Entries,
    widths: Ints,
    units: int,
    boundary: Floats,
    held: float,
    weights: Weights,
) -> Floats:
    """Bound on a whole pipeline by devices a replica, (units + 1,).

    With weights (a, b, c) of sum, largest time and largest synchronisation, let ``z = b t + c S``
    of a stage. One bound adds the least sum of t to the larger of the least maxima of t and S and
    the least maximum of z. The other is the least ``sum_q (a t_q + (w_q/u) z_q)``: the stages use
    at most u devices, so the largest z is at least the sum of the ``(w_q/u) z_q``.

    Parameters
    ----------
    entries : Entries
        Of one spot for each width.
    widths : int array (widths,)
    boundary : float array (widths, I)
        Least price of a boundary behind each ideal (0 for the empty and the full one).
    held : float
        Least micro-batches in flight.
    """
    rows = len(lattice.blocks.cut_in)
    graph = (lattice.start, lattice.below, lattice.block, boundary)
    prices = (entries.start, entries.seconds, entries.sync, entries.holds)
    best = _least(*prices, len(widths), rows, held, weights.largest, weights.sync)
    total, largest, sync, joint = _fill(*graph, best, widths, units, weights.largest)
    counts, column = _unit_columns(max(1, units))
    fluid = _fluid(*graph, *prices, held, widths, counts, rows, *weights)
    fits = np.isfinite(total)
    value = np.full(units + 1, math.inf)
    parts = weights.largest * largest[fits] + weights.sync * sync[fits]
    value[fits] = weights.total * total[fits] + np.maximum(parts, joint[fits])
    return np.maximum(value, fluid[np.minimum(column, len(counts) - 1)[: units + 1]])
