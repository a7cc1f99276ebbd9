"""Boxes: a scenario cut by its largest stage time and its largest synchronisation.

A box is a range of both. Its plans cost at least the least sum of stage times under the upper ends
(`sums`) plus the lower ends, weighted. Boxes whose bound reaches the incumbent are dropped; the
others are halved until they are small beside the distance of their bound from the incumbent, and
only those are searched with labels.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.placement.dp.sums import least_sums
from nestopt.placement.dp.tables import CLOSE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from nestopt.placement.dp.entries import Entries
    from nestopt.placement.dp.lattice import StageLattice
    from nestopt.placement.dp.sums import Offers
    from nestopt.placement.model.schedules import Weights

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Box", "Boxes"]

_WORK = 1.5e9
"""Steps that the tables of a scenario may take."""
_TABLES = (4, 400)
_SHARE, _SMALL = 0.5, 1e-3
"""A box is searched once its ends cost no more than this share of what its bound leaves, or of the
incumbent."""
_FINE = 1e-4
"""The same share of the incumbent where there is no search."""
_LEVELS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Stages behind at which a box has tables; in between, those of the next smaller count hold."""
_MEMORY = 1 << 25
"""Numbers that the tables of a box may hold."""


class Box(NamedTuple):
    """A range of the largest time and of the largest synchronisation.

    Attributes
    ----------
    limits : (float, float)
        Upper ends under which `sums` were computed.
    sums : float array (cells + 1,)
        Least sum of stage times under `limits` by devices a replica.
    """

    bound: float
    time: tuple[float, float]
    sync: tuple[float, float]
    limits: tuple[float, float]
    sums: Floats


@dataclass(eq=False)
class Boxes:
    """The boxes of a scenario.

    Attributes
    ----------
    held : float array (K + 1,)
        In-flight micro-batches of a stage with k stages from it to the last.
    most : (float, float)
        More than any stage's time and synchronisation.
    incumbent : float
    stop : callable
        Raises when a limit is reached.
    """

    lattice: StageLattice
    entries: Entries
    offers: Offers
    spots: int
    weights: Weights
    held: Floats
    most: tuple[float, float]
    incumbent: float
    stop: Callable[[], None]
    tables: int = field(default=0, init=False)

    def table(self, held: float, time: float, sync: float) -> Floats:
        """Least sums under limits, (I, cells + 1)."""
        self.stop()
        self.tables += 1
        # Rounding must not cut off a stage that is as long as the limit.
        return least_sums(
            self.lattice, self.entries, self.offers, self.spots, held, time / CLOSE, sync / CLOSE
        )

    def _box(self, time: tuple[float, float], sync: tuple[float, float]) -> Box:
        sums = self.table(float(self.held[1]), time[1], sync[1])[-1]
        limits = (time[1], sync[1])
        return Box(self._bound(sums, time[0], sync[0]), time, sync, limits, sums)

    def _bound(self, sums: Floats, time: float, sync: float) -> float:
        w, total = self.weights, float(sums[-1])
        return math.inf if math.isinf(total) else w.total * total + w.largest * time + w.sync * sync

    def _root(self) -> Box:
        return self._box((0.0, self.most[0]), (0.0, self.most[1]))

    def _shrunk(self, box: Box, incumbent: float) -> Box:
        """The box without ends that alone cost more than the incumbent."""
        w = self.weights
        rest = incumbent - w.total * float(box.sums[-1])
        time, sync = box.time, box.sync
        if w.largest > 0:
            time = (time[0], min(time[1], (rest - w.sync * sync[0]) / w.largest))
        if w.sync > 0:
            sync = (sync[0], min(sync[1], (rest - w.largest * time[0]) / w.sync))
        return box._replace(time=time, sync=sync)

    def _parts(self, box: Box, incumbent: float, size: float) -> list[Box]:
        """The box cut smaller: shrunk, else halved; none if it is at most of a size already."""
        w = self.weights
        box = self._shrunk(box, incumbent)
        (low, high), (least, most) = box.time, box.sync
        if w.largest * (high - low) + w.sync * (most - least) <= size:
            return []
        if (high, most) != box.limits:
            return [self._box(box.time, box.sync)]
        if w.largest * (high - low) >= w.sync * (most - least):
            middle = (low + high) / 2
            bound = self._bound(box.sums, middle, least)
            upper = box._replace(bound=bound, time=(middle, high))
            return [self._box((low, middle), box.sync), upper]
        middle = (least + most) / 2
        bound = self._bound(box.sums, low, middle)
        upper = box._replace(bound=bound, sync=(middle, most))
        return [self._box(box.time, (least, middle)), upper]

    def _affordable(self) -> int:
        work = len(self.lattice.below) * self.offers.work
        return int(min(max(_WORK / work, _TABLES[0]), _TABLES[1]))

    def open(self) -> Iterator[Box]:
        """Boxes that may hold a plan better than the incumbent, the least bound first.

        The incumbent may fall from one box to the next.
        """
        count = 0
        heap = [(0.0, count, self._root())]
        tables = self._affordable()
        while heap:
            _, _, box = heapq.heappop(heap)
            value = self.incumbent
            if box.bound >= value * CLOSE:
                return
            parts: list[Box] = []
            if math.isfinite(value) and self.tables < tables:
                size = max(_SHARE * (value - box.bound), _SMALL * value)
                parts = self._parts(box, value, size)
            if not parts:
                yield box if math.isinf(value) else self._shrunk(box, value)
            for part in parts:
                count += 1
                heapq.heappush(heap, (part.bound, count, part))

    def floor(self) -> Floats:
        """Bound by devices a replica, (cells + 1,), at most the incumbent.

        No labels are made, so it may stay a little below what they would prove.
        """
        w, incumbent = self.weights, self.incumbent
        count = 0
        heap = [(0.0, count, self._root())]
        floor = np.full(self.offers.cells + 1, incumbent)
        tables = self._affordable()
        while heap:
            _, _, box = heapq.heappop(heap)
            parts: list[Box] = []
            if box.bound < incumbent * CLOSE and self.tables < tables:
                parts = self._parts(box, incumbent, _FINE * incumbent)
            for part in parts:
                count += 1
                heapq.heappush(heap, (part.bound, count, part))
            if not parts:
                ends = w.largest * box.time[0] + w.sync * box.sync[0]
                fits = np.isfinite(box.sums)
                floor[fits] = np.minimum(floor[fits], w.total * box.sums[fits] + ends)
        return floor

    def levels(self, box: Box) -> tuple[Ints, list[Floats]]:
        """Tables of a box for the label search.

        Returns
        -------
        bucket : int array (K + 1,)
            Which table to use for a partial pipeline of ``k`` stages.
        tables : list of float arrays (I, cells + 1)
        """
        most = len(self.held) - 1
        room = max(1, _MEMORY // (self.lattice.ideals * (self.offers.cells + 1)))
        # Stages in front of a partial pipeline of k stages hold at least held[k + 1] micro-batches.
        kept: list[int] = []
        for k in _LEVELS:
            if k <= most and len(kept) < room and (not kept or self.held[k] > self.held[kept[-1]]):
                kept.append(k)
        tables = [self.table(float(self.held[k]), box.time[1], box.sync[1]) for k in kept]
        stages = np.maximum(1, np.arange(most + 1) + 1)
        return np.searchsorted(kept, stages, side="right") - 1, tables
