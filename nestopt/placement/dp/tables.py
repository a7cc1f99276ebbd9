"""What a scenario fixes of the batch, and bounds on the stages that a partial pipeline lacks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from nestopt.placement.dp.entries import merge_spots
from nestopt.placement.plan import in_flight

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.dp.entries import Entries
    from nestopt.placement.dp.lattice import StageLattice

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Batch", "Bounds", "Weights", "boundary_prices", "bounds"]

BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""In-flight counts at which bounds are tabulated; others take the next smaller one."""


class Weights(NamedTuple):
    """The objective ``total * sum_q t_q + largest * max_q t_q + sync * max_q S_q``."""

    total: float
    largest: float
    sync: float

    @classmethod
    def of(cls, objective: str, microbatches: int, chunks: int) -> Weights:
        """The weights of an objective's name (``MODEL.md``, section 6)."""
        if objective == "bottleneck":
            return cls(0.0, 1.0, 0.0)
        return cls(1.0 / chunks, microbatches - 1.0 / chunks, 1.0)


class Batch(NamedTuple):
    """What a scenario fixes of the batch: replicas, micro-batch, their number, the schedule."""

    replicas: int
    microbatch: int
    microbatches: int
    schedule: str
    chunks: int
    stages: int
    """Number of stages if the schedule needs it beforehand (interleaved), else 0."""

    def held(self, most: int) -> Floats:
        """``held[k]``: micro-batches in flight in a stage with ``k`` stages from it to the last."""
        return np.array(
            [0.0]
            + [
                in_flight(self.schedule, self.microbatches, k, self.stages, self.chunks)
                for k in range(1, most + 1)
            ]
        )


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lower bounds on the stages in front of a partial pipeline.

    Tables have a row for an ideal that those stages must cover and a column for the devices a
    replica that they may use. With weights (a, b, c) of sum, largest time and largest
    synchronisation, ``z = b t + c S`` of a stage:

    - ``total``, ``largest``, ``sync``, ``joint``: least sum of t, and least maximum of t, S, z.
    - ``fluid[h]``: least ``sum_q (a t_q + (1 - h) (w_q/u) z_q)`` with ``h`` = 0 and 1/2. The stages
      use at most u devices, so the largest z is at least the sum of the ``(w_q/u) z_q``.

    Attributes
    ----------
    bucket : int array (K + 1,)
        Which table to use for a partial pipeline of ``k`` stages.
    total, largest, sync, joint : tuples of float arrays (I, U + 1), one a bucket
    fluid : tuple of float arrays (2, I, C), one a bucket
    column : int array (U + 1,)
        Column of `fluid` for ``u`` devices.
    boundary : float array (widths, I)
        Least price of the boundary behind each ideal for a stage of each width.
    """

    bucket: Ints
    total: tuple[Floats, ...]
    largest: tuple[Floats, ...]
    sync: tuple[Floats, ...]
    joint: tuple[Floats, ...]
    fluid: tuple[Floats, ...]
    column: Ints
    boundary: Floats

    def floor(self, weights: Weights) -> Floats:
        """Bound on a whole pipeline by devices a replica, (U + 1,)."""
        total, largest = self.total[0][-1], self.largest[0][-1]
        fits = np.isfinite(total)
        value = np.full(len(total), math.inf)
        parts = weights.largest * largest[fits] + weights.sync * self.sync[0][-1, fits]
        value[fits] = weights.total * total[fits] + np.maximum(parts, self.joint[0][-1, fits])
        return np.maximum(value, self.fluid[0][0, -1, self.column])


@njit(cache=True, nogil=True)
def _least(
    start: Ints,
    seconds: Floats,
    sync: Floats,
    holds: Floats,
    grids: int,
    rows: int,
    levels: Floats,
    largest: float,
    weight: float,
) -> Floats:
    best = np.full((len(levels), 3, grids, rows), np.inf)
    for g in range(grids):
        for r in range(rows):
            for e in range(start[g * rows + r], start[g * rows + r + 1]):
                joint = largest * seconds[e] + weight * sync[e]
                for k in range(len(levels)):
                    if holds[e] >= levels[k]:
                        best[k, 0, g, r] = min(best[k, 0, g, r], seconds[e])
                        best[k, 1, g, r] = min(best[k, 1, g, r], sync[e])
                        best[k, 2, g, r] = min(best[k, 2, g, r], joint)
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
    return out


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
    level: float,
    widths: Ints,
    units: Ints,
    rows: int,
    w_total: float,
    w_largest: float,
    w_sync: float,
) -> Floats:
    ideals = len(start) - 1
    grids = len(widths)
    out = np.full((2, ideals, len(units)), np.inf)
    cost = np.empty((grids, rows))
    for half in range(2):
        keep = 1.0 - 0.5 * half
        for column in range(len(units)):
            out[half, 0, column] = 0.0
            for g in range(grids):
                share = keep * widths[g] / units[column]
                for r in range(rows):
                    least = np.inf
                    if widths[g] <= units[column]:
                        for e in range(ent_start[g * rows + r], ent_start[g * rows + r + 1]):
                            if holds[e] >= level:
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
                        rate = w_total + keep * widths[g] / units[column] * w_largest
                        value += rate * (boundary[g, i] + boundary[g, j])
                        least = min(least, out[half, j, column] + value)
                out[half, i, column] = least
    return out


def _unit_columns(units: int) -> tuple[Ints, Ints]:
    """Device counts that `fluid` is tabulated for, and the column of every count.

    A bound with more devices is valid with fewer; the counts are at most 2 % apart.
    """
    counts = [1]
    while counts[-1] < units:
        counts.append(min(units, max(counts[-1] + 1, int(counts[-1] * 1.02))))
    chosen = np.array(counts, dtype=np.int64)
    return chosen, np.searchsorted(chosen, np.arange(units + 1)).astype(np.int64)


def boundary_prices(lattice: StageLattice, batch: Batch, alpha: Floats, beta: Floats) -> Floats:
    """Prices of the boundary behind each ideal from seconds and seconds per byte by width."""
    volume = batch.microbatch * lattice.cut
    prices = 2 * batch.chunks * (alpha[:, None] + beta[:, None] * volume)
    prices[:, [0, -1]] = 0.0
    return prices


def bounds(
    lattice: StageLattice,
    entries: Entries,
    spot_width: Ints,
    widths: Ints,
    units: int,
    boundary: Floats,
    held: Floats,
    weights: Weights,
    *,
    buckets: bool = True,
) -> Bounds:
    """Tabulate lower bounds for `units` devices a replica.

    Parameters
    ----------
    spot_width : int array (spots,)
        Index of every spot's width.
    widths : int array (widths,)
    boundary : float array (widths, I)
        Least price of a boundary behind each ideal (0 for the empty and the full one).
    held : float array (K + 1,)
        In-flight micro-batches of a stage with k stages from it to the last.
    buckets : bool
        Whether to tabulate several in-flight counts or only the smallest.
    """
    rows = len(lattice.blocks.cut_in)
    grids = len(widths)
    most = len(held) - 1
    merged = merge_spots(entries, [np.flatnonzero(spot_width == w) for w in range(grids)], rows)
    chosen = [k for k in BUCKETS if k <= most] if buckets else [1]
    # Stages in front of a partial pipeline of k stages hold at least held[k + 1] micro-batches.
    kept: list[int] = []
    for k in chosen:
        if not kept or held[k] > held[kept[-1]]:
            kept.append(k)
    levels = np.array([held[k] for k in kept])
    best = _least(
        merged.start, merged.seconds, merged.sync, merged.holds, grids, rows, levels,
        weights.largest, weights.sync,
    )  # fmt: skip
    counts, column = _unit_columns(max(1, units))
    tables: list[tuple[Floats, Floats]] = []
    graph = (lattice.start, lattice.below, lattice.block, boundary)
    for k in range(len(levels)):
        if k and (best[k] == best[k - 1]).all():
            tables.append(tables[-1])
            continue
        exact = _fill(*graph, best[k], widths, units, weights.largest)
        fluid = _fluid(
            *graph, merged.start, merged.seconds, merged.sync, merged.holds, levels[k], widths,
            counts, rows, *weights,
        )  # fmt: skip
        tables.append((exact, fluid))
    bucket = np.zeros(most + 1, dtype=np.int64)
    for k in range(most + 1):
        bucket[k] = max(i for i, first in enumerate(kept) if first <= max(1, k + 1))
    exact_tables = [t[0] for t in tables]
    return Bounds(
        bucket,
        tuple(t[0] for t in exact_tables),
        tuple(t[1] for t in exact_tables),
        tuple(t[2] for t in exact_tables),
        tuple(t[3] for t in exact_tables),
        tuple(t[1] for t in tables),
        np.minimum(column, len(counts) - 1)[: units + 1],
        boundary,
    )
