"""Prices of blocks at places, only those that can be part of a best plan.

A *class* is a set of places at which a grid's families have the same profiles on the same device
types, so a block costs the same there. A *spot* is a set of places of one width, given by the
classes that the grids of that width have there. An *entry* is a price of a block at a spot:
seconds, sync seconds, the micro-batches in flight that its memory allows, and the grid and mode
that it takes; only entries that no other one beats in all three figures are kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.dp.lattice import StageLattice
    from nestopt.placement.dp.tables import Batch
    from nestopt.placement.model.cluster import DeviceType
    from nestopt.placement.model.schedules import PipelineSchedule
    from nestopt.placement.pricing.cost import Grid, Mode, StageCosts

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = [
    "Entries", "PlaceClass", "build_entries", "divisible_blocks", "merge_spots", "spots_by_width",
]  # fmt: skip

_MOST_PRICES = 4_000_000


class PlaceClass(NamedTuple):
    """A class of places of one grid: profiles (families, entries) and the device types present."""

    grid: int
    profiles: Floats
    types: tuple[DeviceType, ...]


@dataclass(frozen=True, eq=False)
class Entries:
    """Prices of all blocks at all spots.

    Attributes
    ----------
    start : int array (S * R + 1,)
        Entries of spot ``s`` and block ``r`` are ``start[s * R + r]`` to the next.
    seconds, sync, holds : float arrays
        Seconds per micro-batch without boundaries; seconds of synchronisation; largest number of
        micro-batches in flight.
    choice : int array
        Index into `choices`.
    member : int array
        Which of the classes of its spot an entry is of.
    choices : tuple of (Grid, Mode)
    """

    start: Ints
    seconds: Floats
    sync: Floats
    holds: Floats
    choice: NDArray[np.int32]
    member: NDArray[np.int32]
    choices: tuple[tuple[Grid, Mode], ...]

    def by_spot(self, spots: int) -> list[Entries]:
        """The entries of each spot alone."""
        rows = (len(self.start) - 1) // max(1, spots)
        parts = []
        for s in range(spots):
            start = self.start[s * rows : (s + 1) * rows + 1]
            held = slice(start[0], start[-1])
            figures = (self.seconds[held], self.sync[held], self.holds[held])
            which = (self.choice[held], self.member[held])
            parts.append(Entries(start - start[0], *figures, *which, self.choices))
        return parts

    def cut(self, kept: NDArray[np.bool_], spots: int, chunks: int) -> Entries:
        """The entries of the blocks kept, of which micro-batches are held in so many chunks."""
        order, start, holds = _cut(
            self.start, self.seconds, self.sync, self.holds, kept, spots, chunks
        )
        return Entries(
            start, self.seconds[order], self.sync[order], holds, self.choice[order],
            self.member[order], self.choices,
        )  # fmt: skip

    @classmethod
    def joined(cls, parts: Sequence[Entries]) -> Entries:
        """The entries of several spots, which have the same choices, as one."""
        counts = [np.diff(p.start) for p in parts]
        return cls(
            np.cumsum(np.concatenate([np.zeros(1, dtype=np.int64), *counts])),
            np.concatenate([p.seconds for p in parts]),
            np.concatenate([p.sync for p in parts]),
            np.concatenate([p.holds for p in parts]),
            np.concatenate([p.choice for p in parts]),
            np.concatenate([p.member for p in parts]),
            parts[0].choices,
        )


def spots_by_width(
    grids: Sequence[Grid], classes: Sequence[PlaceClass]
) -> tuple[Ints, list[tuple[int, ...]]]:
    """The distinct widths, and for each the spot that has all classes of its grids."""
    widths = np.unique([g.width for g in grids]).astype(np.int64)
    of_class = [grids[c.grid].width for c in classes]
    return widths, [tuple(i for i, w in enumerate(of_class) if w == width) for width in widths]


def build_entries(
    costs: StageCosts,
    lattice: StageLattice,
    grids: Sequence[Grid],
    modes: Sequence[tuple[Mode, ...]],
    classes: Sequence[PlaceClass],
    spots: Sequence[Sequence[int]],
    batch: Batch,
    whole: bool,
) -> Entries:
    """Price every block at every spot.

    Parameters
    ----------
    spots : sequence of sequences of int
        The classes of each spot.
    whole : bool
        Whether every schedule holds whole micro-batches alone.
    """
    rows = len(lattice.blocks.cut_in)
    alike: dict[tuple[int, tuple[DeviceType, ...]], list[int]] = {}
    for index, place in enumerate(classes):
        alike.setdefault((place.grid, place.types), []).append(index)
    choices = tuple((g, m) for g, offered in zip(grids, modes, strict=True) for m in offered)
    before = np.concatenate([[0], np.cumsum([len(offered) for offered in modes])])
    position = np.empty(len(classes), dtype=np.int64)
    counts = [np.zeros(1, dtype=np.int64)]
    parts: list[tuple[Floats, Floats, Floats, NDArray[np.int32]]] = []
    done = 0
    for (g, types), members in alike.items():
        position[members] = done + np.arange(len(members))
        done += len(members)
        columns = _columns(modes[g])
        offered = [modes[g][i] for i in columns]
        allowed = _allowed(costs, lattice, grids[g], batch)
        if not allowed.any() or not offered:
            counts.append(np.zeros(len(members) * rows, dtype=np.int64))
            continue
        b, d = batch.microbatch, batch.replicas
        fixed, stored = costs.memory(lattice.blocks, grids[g], offered, b, d)
        room = min(t.usable for t in types)
        holds = _capacity(fixed, stored, room, whole)
        holds[~allowed] = 0.0
        chunk = max(1, _MOST_PRICES // holds.size)
        for first in range(0, len(members), chunk):
            profiles = np.stack([classes[i].profiles for i in members[first : first + chunk]])
            rates = costs.rates(grids[g], offered, b, d, profiles, types)
            seconds = lattice.blocks.counts @ rates
            sync = costs.sync(lattice.blocks, grids[g], offered, b, d, profiles, types)
            keep = _pareto(seconds, sync, holds)
            counts.append(keep.sum(axis=2).ravel())
            _, row, column = np.nonzero(keep)
            chosen = (before[g] + np.array(columns, dtype=np.int64)[column]).astype(np.int32)
            parts.append((seconds[keep], sync[keep], holds[row, column], chosen))
    empty = np.zeros(0)
    joined = [np.concatenate([p[i] for p in parts]) if parts else empty for i in range(4)]
    priced = Entries(
        np.cumsum(np.concatenate(counts)), joined[0], joined[1], joined[2],
        joined[3].astype(np.int32), np.zeros(len(joined[0]), dtype=np.int32), choices,
    )  # fmt: skip
    return merge_spots(priced, [position[list(spot)] for spot in spots], rows)


@lru_cache(maxsize=4096)
def _columns(modes: tuple[Mode, ...]) -> list[int]:
    """The modes worth pricing: to hide more is never slower and takes no memory."""

    def beaten(mode: Mode) -> bool:
        return any(
            other != mode
            and other[:3] == mode[:3]
            and other.overlap >= mode.overlap
            and other.hides & mode.hides == mode.hides
            for other in modes
        )

    return [index for index, mode in enumerate(modes) if not beaten(mode)]


def _allowed(
    costs: StageCosts,
    lattice: StageLattice,
    grid: Grid,
    batch: Batch,
) -> NDArray[np.bool_]:
    """Which blocks a grid may hold."""
    counts = lattice.blocks.counts
    allowed: NDArray[np.bool_] = counts[:, ~costs.allowed(grid)].sum(axis=1) == 0
    if grid.e > 1:
        allowed &= (counts[:, costs.expert_kinds()] > 0).any(axis=1)
    if batch.microbatch % grid.sample_parts:
        allowed[:] = False
    return allowed


def _capacity(fixed: Floats, stored: Floats, room: float, whole: bool) -> Floats:
    """Largest k with ``fixed + k * stored <= room``; of whole ones, as the evaluator sums it.

    With `whole` k is rounded down.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        holds = np.where(stored > 0, (room - fixed) / stored, math.inf)
    holds = np.where(fixed > room, 0.0, holds)
    finite = np.isfinite(holds)
    k = np.floor(np.where(finite, holds, 0.0))
    k = k + ((fixed + (k + 1) * stored) <= room)
    k = k - ((fixed + k * stored) > room)
    if not whole:
        k = np.minimum(np.maximum(holds, k), np.nextafter(k + 1, 0.0))
    return np.where(finite, k, holds)


@njit(cache=True, nogil=True)
def _pareto(seconds: Floats, sync: Floats, holds: Floats) -> NDArray[np.bool_]:
    places, rows, modes = seconds.shape
    keep = np.zeros((places, rows, modes), np.bool_)
    for p in range(places):
        if overdue():
            raise KernelStopped
        for r in range(rows):
            for i in range(modes):
                if holds[r, i] < 1.0:
                    continue
                good = True
                for j in range(modes):
                    if j == i or holds[r, j] < holds[r, i]:
                        continue
                    if seconds[p, r, j] > seconds[p, r, i] or sync[p, r, j] > sync[p, r, i]:
                        continue
                    equal = (
                        seconds[p, r, j] == seconds[p, r, i]
                        and sync[p, r, j] == sync[p, r, i]
                        and holds[r, j] == holds[r, i]
                    )
                    if not equal or j < i:
                        good = False
                        break
                keep[p, r, i] = good
    return keep


def merge_spots(entries: Entries, spots: Sequence[Ints], rows: int) -> Entries:
    """The entries with each of the given sets of spots made one: the best, wherever it is had."""
    members = np.concatenate([np.zeros(0, dtype=np.int64), *spots]).astype(np.int64)
    ends = np.cumsum([0, *(len(spot) for spot in spots)]).astype(np.int64)
    order, start = _merged(
        entries.start, entries.seconds, entries.sync, entries.holds, members, ends, rows
    )
    # An entry belongs to the last class that starts no later.
    owner = np.searchsorted(entries.start[:-1:rows], order, side="right") - 1
    place = np.zeros((len(entries.start) - 1) // rows, dtype=np.int64)
    member = np.zeros(len(order), dtype=np.int32)
    for spot, low, high in zip(spots, start[:-1:rows], start[rows::rows], strict=True):
        place[spot] = np.arange(len(spot))
        member[low:high] = place[owner[low:high]]
    return Entries(
        start, entries.seconds[order], entries.sync[order], entries.holds[order],
        entries.choice[order], member, entries.choices,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _merged(
    start: Ints, seconds: Floats, sync: Floats, holds: Floats, members: Ints, ends: Ints, rows: int
) -> tuple[Ints, Ints]:
    spots = len(ends) - 1
    total = 0
    for member in members:
        total += start[(member + 1) * rows] - start[member * rows]
    order = np.empty(total, np.int64)
    merged = np.zeros(spots * rows + 1, np.int64)
    used = 0
    for s in range(spots):
        if overdue():
            raise KernelStopped
        for r in range(rows):
            first = used
            for member in members[ends[s] : ends[s + 1]]:
                for e in range(start[member * rows + r], start[member * rows + r + 1]):
                    dominated = False
                    for place in range(first, used):
                        o = order[place]
                        if seconds[o] <= seconds[e] and sync[o] <= sync[e] and holds[o] >= holds[e]:
                            dominated = True
                            break
                    if dominated:
                        continue
                    kept = first
                    for place in range(first, used):
                        o = order[place]
                        if seconds[e] > seconds[o] or sync[e] > sync[o] or holds[e] < holds[o]:
                            order[kept] = o
                            kept += 1
                    order[kept] = e
                    used = kept + 1
            merged[s * rows + r + 1] = used
    return order[:used].copy(), merged


@njit(cache=True, nogil=True)
def _cut(
    start: Ints,
    seconds: Floats,
    sync: Floats,
    holds: Floats,
    kept: NDArray[np.bool_],
    spots: int,
    chunks: int,
) -> tuple[Ints, Ints, Floats]:
    rows = len(kept)
    order = np.empty(len(seconds), np.int64)
    room = np.empty(len(seconds))
    ends = np.zeros(spots * rows + 1, np.int64)
    used = 0
    for s in range(spots):
        for r in range(rows):
            first = used
            if kept[r]:
                for e in range(start[s * rows + r], start[s * rows + r + 1]):
                    held = holds[e]
                    if held < np.inf:
                        tasks = np.floor(held * chunks)
                        if (tasks + 1) / chunks <= held:
                            tasks += 1
                        elif tasks / chunks > held:
                            tasks -= 1
                        held = tasks / chunks
                    dominated = False
                    for place in range(first, used):
                        o = order[place]
                        if seconds[o] <= seconds[e] and sync[o] <= sync[e] and room[place] >= held:
                            dominated = True
                            break
                    if dominated:
                        continue
                    last = first
                    for place in range(first, used):
                        o = order[place]
                        if seconds[e] > seconds[o] or sync[e] > sync[o] or held < room[place]:
                            order[last] = o
                            room[last] = room[place]
                            last += 1
                    order[last] = e
                    room[last] = held
                    used = last + 1
            ends[s * rows + r + 1] = used
    return order[:used].copy(), ends, room[:used].copy()


def divisible_blocks(lattice: StageLattice, schedule: PipelineSchedule) -> NDArray[np.bool_] | None:
    """Blocks that a schedule can cut into equal chunks, or None if it does not cut them."""
    if schedule.chunks == 1:
        return None
    counts = lattice.blocks.counts
    return schedule.divides(counts, counts.max(axis=0) > 1)
