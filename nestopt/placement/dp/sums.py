"""Least sums of stage times under limits, the bounds of the label search.

With a limit on every stage's time and one on every stage's synchronisation, the least sum of stage
times is a shortest path over (ideal, place): no labels are needed. What a stage's boundaries cost
depends on its neighbours; here each has the lowest level and the cheapest side that any neighbour
allows, so the sums are lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue
from nestopt.placement.dp.rows import distinct_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.dp.entries import Entries
    from nestopt.placement.dp.geometry import Geometry
    from nestopt.placement.dp.lattice import StageLattice
    from nestopt.placement.dp.tables import Batch

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Offers", "least_sums"]


@dataclass(frozen=True, eq=False)
class Offers:
    """What a stage can be had for at every place, apart from its block.

    Places are taken ``unit`` at a time: a cell. An *offer* is a spot with the least prices of the
    boundaries; a *kind* is the set of offers of one width in a cell.

    Attributes
    ----------
    cells : int
    widths : int array (W,)
    kind : int array (W, cells + 1)
        Kind of each cell, -1 where nothing of that width begins.
    kind_start : int array (W + 1,)
        Kinds of a width are numbered from ``kind_start[w]`` to the next.
    offer_start : int array (kinds + 1,)
    offer_spot : int array (offers,)
    prices : float array (offers, 4)
        Seconds, and seconds per byte of the cut, of the left and of the right boundary.
    left : float array (W, places + 1, 2)
        The same of the left boundary of every place.
    """

    cells: int
    widths: Ints
    kind: Ints
    kind_start: Ints
    offer_start: Ints
    offer_spot: Ints
    prices: Floats
    left: Floats

    def priced(self, batch: Batch) -> Offers:
        """The offers with what a batch sends: its crossings, each of a micro-batch."""
        factor = float(batch.schedule.crossings) * np.array([1.0, batch.microbatch])
        return replace(self, prices=self.prices * np.tile(factor, 2), left=self.left * factor)

    @classmethod
    def of(cls, geometry: Geometry) -> Offers:
        """The offers of a geometry, for one crossing of one sample (`priced`)."""
        unit, places = geometry.unit, geometry.places
        cells = places // unit
        left = np.zeros((len(geometry.width), places + 1, 2))
        kind = np.full((len(geometry.width), cells + 1), -1, dtype=np.int64)
        kind_start, offer_start = [0], [0]
        offers: list[Floats] = [np.zeros((0, 5))]
        for w in range(len(geometry.width)):
            here = np.flatnonzero(geometry.spot_of[w] >= 0)
            sides = _sides(geometry, w, here)
            left[w, here] = sides[0]
            rows = np.column_stack([geometry.spot_of[w, here], *sides])
            first, number = distinct_rows(rows)
            distinct = rows[first]
            held = np.full((cells + 1) * unit, -1, dtype=np.int64)
            held[here] = number
            cell = np.sort(held.reshape(cells + 1, unit))
            first, which = distinct_rows(cell)
            sets = cell[first]
            name = np.full(len(sets), -1, dtype=np.int64)
            for index, row in enumerate(sets):
                members = np.unique(row[row >= 0])
                if len(members):
                    name[index] = len(offer_start) - 1
                    offers.append(distinct[members])
                    offer_start.append(offer_start[-1] + len(members))
            kind[w] = name[which]
            kind_start.append(len(offer_start) - 1)
        joined = np.concatenate(offers)
        return cls(
            cells,
            geometry.width,
            kind,
            np.array(kind_start, dtype=np.int64),
            np.array(offer_start, dtype=np.int64),
            joined[:, 0].astype(np.int64),
            np.ascontiguousarray(joined[:, 1:]),
            left,
        )

    @property
    def work(self) -> int:
        """Steps that a table takes for each pair of ideals."""
        return len(self.offer_spot) + len(self.widths) * self.cells


def _sides(geometry: Geometry, index: int, here: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Seconds and seconds per byte (P, 2) of the left and right boundary of a width at places.

    A boundary's level is no lower than with the nearest and narrowest neighbour.
    """
    width, stride = int(geometry.width[0]), int(geometry.stride[0])
    group = geometry.group_of[:, geometry.line]
    last = len(geometry.line) - 1
    levels = [np.zeros(len(here), dtype=np.int64) for _ in range(2)]
    for r in range(geometry.replicas):
        first = here + r * int(geometry.stride[index])
        end = first + int(geometry.width[index]) - 1
        before = np.maximum(here - geometry.unit * width + r * stride, 0)
        behind = np.minimum(here + int(geometry.length[index]) + r * stride + width - 1, last)
        for side, (low, high) in enumerate(((before, end), (first, behind))):
            level = np.argmax(group[:, low] == group[:, high], axis=0)
            levels[side] = np.maximum(levels[side], level)
    row = np.arange(len(here))
    prices = [geometry.side[index, here][row, ::-1, level] for level in levels]
    return prices[0], prices[1]


def least_sums(
    lattice: StageLattice,
    entries: Entries,
    offers: Offers,
    spots: int,
    held: float,
    time_limit: float,
    sync_limit: float,
) -> Floats:
    """Least sum of stage times (I, cells + 1) that covers each ideal in so many first cells.

    Every stage holds at least `held` micro-batches; ``inf`` where nothing fits.
    """
    rows = len(lattice.blocks.cut_in)
    best = _cheapest(
        entries.start, entries.seconds, entries.sync, entries.holds, rows, spots, held, sync_limit
    )
    return _fill(
        lattice.start, lattice.below, lattice.block, lattice.cut, best, offers.widths, offers.kind,
        offers.kind_start, offers.offer_start, offers.offer_spot, offers.prices, time_limit,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _cheapest(
    start: Ints,
    seconds: Floats,
    sync: Floats,
    holds: Floats,
    rows: int,
    spots: int,
    held: float,
    sync_limit: float,
) -> Floats:
    """Least seconds of each block at each spot, (R, S)."""
    best = np.full((rows, spots), np.inf)
    for s in range(spots):
        for r in range(rows):
            least = np.inf
            for e in range(start[s * rows + r], start[s * rows + r + 1]):
                if holds[e] >= held and sync[e] <= sync_limit:
                    least = min(least, seconds[e])
            best[r, s] = least
    return best


@njit(cache=True, nogil=True)
def _fill(
    start: Ints,
    below: Any,
    block: Any,
    cut: Floats,
    best: Floats,
    widths: Ints,
    kind: Ints,
    kind_start: Ints,
    offer_start: Ints,
    offer_spot: Ints,
    prices: Floats,
    limit: float,
) -> Floats:
    ideals = len(start) - 1
    cells = kind.shape[1] - 1
    out = np.full((ideals, cells + 1), np.inf)
    out[0] = 0.0
    begin = np.full(ideals, cells + 1, np.int64)
    begin[0] = 0
    fastest = np.empty(len(best))
    for r in range(len(best)):
        fastest[r] = best[r].min()
    cost = np.empty(kind_start[-1])
    for i in range(1, ideals):
        if overdue():
            raise KernelStopped
        inside = i < ideals - 1
        for e in range(start[i], start[i + 1]):
            j = below[e]
            if fastest[block[e]] > limit or begin[j] > cells:
                continue
            for w in range(len(widths)):
                first = begin[j] + widths[w]
                if first > cells:
                    continue
                least = np.inf
                for k in range(kind_start[w], kind_start[w + 1]):
                    time = np.inf
                    for o in range(offer_start[k], offer_start[k + 1]):
                        t = best[block[e], offer_spot[o]]
                        if j > 0:
                            t += prices[o, 0] + prices[o, 1] * cut[j]
                        if inside:
                            t += prices[o, 2] + prices[o, 3] * cut[i]
                        time = min(time, t)
                    if time > limit:
                        time = np.inf
                    cost[k] = time
                    least = min(least, time)
                if least == np.inf:
                    continue
                for p in range(first, cells + 1):
                    k = kind[w, p - widths[w]]
                    if k >= 0:
                        out[i, p] = min(out[i, p], out[j, p - widths[w]] + cost[k])
        for p in range(1, cells + 1):
            out[i, p] = min(out[i, p], out[i, p - 1])
        for p in range(cells + 1):
            if out[i, p] < np.inf:
                begin[i] = p
                break
    return out
