"""Prices for the dynamic program: classes of places, entries of stages, bounds on what is left.

A *class* is a set of places at which a grid's families have the same profiles on the same device
types, so a block costs the same there. An *entry* is a price of a block in a class: seconds, sync
seconds, the micro-batches in flight that its memory allows, and the mode; only entries that no
other one beats in all three figures are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from nestopt.placement.plan import in_flight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.cluster import DeviceType
    from nestopt.placement.cost import Grid, Mode, StageCosts
    from nestopt.placement.dp.lattice import StageLattice
    from nestopt.placement.space import SpaceSettings

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Batch", "Bounds", "Entries", "PlaceClass", "Weights", "bounds", "build_entries"]

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


class PlaceClass(NamedTuple):
    """A class of places of one grid: profiles (families, 5) and the device types present."""

    grid: int
    profiles: Floats
    types: tuple[DeviceType, ...]


@dataclass(frozen=True, eq=False)
class Entries:
    """Prices of all blocks in all classes.

    Attributes
    ----------
    start : int array (C * R + 1,)
        Entries of class ``c`` and block ``r`` are ``start[c * R + r]`` to the next.
    seconds, sync, holds : float arrays
        Seconds per micro-batch without boundaries; seconds of synchronisation; largest number of
        micro-batches in flight.
    mode : int array
        Index into `modes`.
    modes : tuple of tuples of Mode
        By grid.
    """

    start: Ints
    seconds: Floats
    sync: Floats
    holds: Floats
    mode: NDArray[np.int32]
    modes: tuple[tuple[Mode, ...], ...]


@njit(cache=True, nogil=True)
def _pareto(seconds: Floats, sync: Floats, holds: Floats) -> NDArray[np.bool_]:
    rows, modes = seconds.shape
    keep = np.zeros((rows, modes), np.bool_)
    for r in range(rows):
        for i in range(modes):
            if holds[r, i] < 1.0:
                continue
            good = True
            for j in range(modes):
                if j == i or holds[r, j] < holds[r, i]:
                    continue
                if seconds[r, j] > seconds[r, i] or sync[r, j] > sync[r, i]:
                    continue
                equal = (
                    seconds[r, j] == seconds[r, i]
                    and sync[r, j] == sync[r, i]
                    and holds[r, j] == holds[r, i]
                )
                if not equal or j < i:
                    good = False
                    break
            keep[r, i] = good
    return keep


def _capacity(fixed: Floats, stored: Floats, room: float, whole: bool) -> Floats:
    """Largest k with ``fixed + k * stored <= room``, rounded as the evaluator sums it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        holds = np.where(stored > 0, (room - fixed) / stored, math.inf)
    holds = np.where(fixed > room, 0.0, holds)
    if whole:
        finite = np.isfinite(holds)
        k = np.floor(np.where(finite, holds, 0.0))
        k = k + ((fixed + (k + 1) * stored) <= room)
        k = k - ((fixed + k * stored) > room)
        holds = np.where(finite, k, holds)
    return holds


def build_entries(
    costs: StageCosts,
    lattice: StageLattice,
    grids: Sequence[Grid],
    modes: Sequence[tuple[Mode, ...]],
    classes: Sequence[PlaceClass],
    batch: Batch,
    divisible: NDArray[np.bool_] | None,
) -> Entries:
    """Price every block in every class.

    Parameters
    ----------
    divisible : bool array (R,) or None
        Blocks that interleaving can cut into equal chunks; None if it does not matter.
    """
    blocks = lattice.blocks
    rows = len(blocks.cut_in)
    b, d = batch.microbatch, batch.replicas
    counts = np.zeros(len(classes) * rows + 1, dtype=np.int64)
    parts: list[tuple[Floats, Floats, Floats, NDArray[np.int32]]] = []
    whole = batch.schedule != "interleaved"
    cache: dict[int, tuple[Floats, Floats]] = {}
    experts = costs.expert_kinds()
    for index, place in enumerate(classes):
        grid = grids[place.grid]
        offered = modes[place.grid]
        forbidden = blocks.counts[:, ~costs.allowed(grid)]
        allowed: NDArray[np.bool_] = np.asarray(forbidden.sum(axis=1) == 0)
        if grid.e > 1:
            allowed &= (blocks.counts[:, experts] > 0).any(axis=1)
        if b % grid.sample_parts:
            allowed[:] = False
        if divisible is not None:
            allowed &= divisible
        if not allowed.any() or not offered:
            continue
        rates = costs.rates(grid, offered, b, d, place.profiles, place.types)
        seconds = blocks.counts @ rates
        sync = costs.sync(blocks, grid, offered, d, place.profiles, place.types)
        if place.grid not in cache:
            cache[place.grid] = costs.memory(blocks, grid, offered, b, d)
        fixed, stored = cache[place.grid]
        room = min(t.usable for t in place.types)
        holds = _capacity(fixed, stored, room, whole)
        holds[~allowed] = 0.0
        keep = _pareto(seconds, sync, holds)
        counts[index * rows + 1 : (index + 1) * rows + 1] = keep.sum(axis=1)
        row, column = np.nonzero(keep)
        parts.append(
            (seconds[row, column], sync[row, column], holds[row, column], column.astype(np.int32))
        )
    empty = np.zeros(0)
    joined = [np.concatenate([p[i] for p in parts]) if parts else empty for i in range(4)]
    return Entries(
        np.cumsum(counts), joined[0], joined[1], joined[2], joined[3].astype(np.int32), tuple(modes)
    )


def merge_classes(
    entries: Entries, classes: Sequence[PlaceClass], grids: int, rows: int
) -> Entries:
    """The entries with all classes of a grid made one: the best of them, wherever it is had."""
    grid_of = np.array([c.grid for c in classes], dtype=np.int64)
    order, start = _merged(
        entries.start, entries.seconds, entries.sync, entries.holds, grid_of, grids, rows
    )
    return Entries(
        start, entries.seconds[order], entries.sync[order], entries.holds[order],
        entries.mode[order], entries.modes,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _merged(
    start: Ints, seconds: Floats, sync: Floats, holds: Floats, grid_of: Ints, grids: int, rows: int
) -> tuple[Ints, Ints]:
    order = np.empty(len(seconds), np.int64)
    merged = np.zeros(grids * rows + 1, np.int64)
    used = 0
    for g in range(grids):
        for r in range(rows):
            first = used
            for index in range(len(grid_of)):
                if grid_of[index] != g:
                    continue
                for e in range(start[index * rows + r], start[index * rows + r + 1]):
                    dominated = False
                    for place in range(first, used):
                        o = order[place]
                        if seconds[o] <= seconds[e] and sync[o] <= sync[e] and holds[o] >= holds[e]:
                            dominated = True
                            break
                    if not dominated:
                        order[used] = e
                        used += 1
            merged[g * rows + r + 1] = used
    return order[:used].copy(), merged


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
    boundary : float array (grids, I)
        Least price of the boundary behind each ideal for a stage of each grid.
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
    """Prices of the boundary behind each ideal from seconds and seconds per byte by grid."""
    volume = batch.microbatch * lattice.cut
    prices = 2 * batch.chunks * (alpha[:, None] + beta[:, None] * volume)
    prices[:, [0, -1]] = 0.0
    return prices


def bounds(
    lattice: StageLattice,
    entries: Entries,
    classes: Sequence[PlaceClass],
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
    widths : int array (grids,)
    boundary : float array (grids, I)
        Least price of a boundary behind each ideal (0 for the empty and the full one).
    held : float array (K + 1,)
        In-flight micro-batches of a stage with k stages from it to the last.
    buckets : bool
        Whether to tabulate several in-flight counts or only the smallest.
    """
    rows = len(lattice.blocks.cut_in)
    grids = len(widths)
    most = len(held) - 1
    merged = merge_classes(entries, classes, grids, rows)
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


def divisible_blocks(lattice: StageLattice, settings: SpaceSettings) -> NDArray[np.bool_] | None:
    """Blocks that ``interleaved`` can cut into equal chunks, or None for other schedules."""
    if settings.schedule != "interleaved":
        return None
    counts = lattice.blocks.counts
    repeated = counts.max(axis=0) > 1
    return ((counts[:, repeated] % settings.chunks) == 0).all(axis=1)
