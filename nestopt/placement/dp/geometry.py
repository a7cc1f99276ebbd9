"""Places: where a stage can stand on the line of alive devices, and what that makes it cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue
from nestopt.placement.dp.arrangements import Arranged, spots_at_least_as_good
from nestopt.placement.model.orders import role_offsets
from nestopt.placement.pricing.comm import side_profiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.dp.entries import PlaceClass
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.pricing.comm import Network
    from nestopt.placement.pricing.cost import Grid

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_NEVER = 1 << 60
_FARTHEST = 256
_MOST_ARRANGED = 512

__all__ = ["Geometry", "Line", "place_stages", "relaxed_places"]


@dataclass(frozen=True, eq=False)
class Line:
    """The alive devices in hierarchy order.

    Attributes
    ----------
    devices, type_of : int arrays (A,)
    period : int
        Shifting by this many places changes nothing but the ends; 0 if no shift does.
    """

    cluster: Cluster
    network: Network
    devices: Ints
    type_of: Ints
    period: int
    _arranged: dict[tuple[int, int, bool, int], Arranged] = field(
        default_factory=dict, init=False, repr=False
    )

    def arranged(
        self, replicas: int, window: int, free: bool, width: int, starts: Ints
    ) -> Arranged:
        """The orders of stages of a width at all their places; the last ones made are kept.

        Other micro-batches offer other grids there, mostly the same.
        """
        key = replicas, window, free, width
        if key not in self._arranged:
            if len(self._arranged) >= _MOST_ARRANGED:
                self._arranged.pop(next(iter(self._arranged)))
            self._arranged[key] = Arranged(self, replicas, window, free, starts)
        return self._arranged[key]

    @classmethod
    def of(cls, cluster: Cluster, network: Network) -> Line:
        """The line of a cluster."""
        devices = cluster.alive
        even = all(len(set(sizes)) == 1 for sizes in cluster.sizes)
        same = len(set(cluster.type_of.tolist())) == 1
        regular = even and same and not cluster.failed and not cluster.overrides
        inner = cluster.sizes[-2][0] if len(cluster.sizes) > 1 else 1
        return cls(cluster, network, devices, cluster.type_of[devices], inner if regular else 0)


@dataclass(frozen=True, eq=False)
class Geometry:
    """Places of one layout, replica count and window.

    Attributes
    ----------
    places : int
        n; a stage at place p occupies ``[p, p + length[g])``.
    unit : int
        Places that one device a replica takes (d for inner, 1 for outer).
    length, width, stride : int arrays (widths,)
        Places a stage occupies; devices a replica; places from a replica to the next.
    spot_of : int array (widths, n + 1)
        Spot of each place, -1 where the stage does not fit.
    side : float array (widths, n + 1, 2, L)
        Seconds per byte, and seconds, that a stage there makes a boundary of each level cost.
    line : int array
        Device of every place.
    group_of : int array (L, devices)
        Groups of the devices.
    window, free, ground
        What the classes were made of (`Arranged`); of relaxed places there is no line.
    better : int array (widths, n + 1)
        The nearest place to the right that is at least as good; a gap that reaches over it never
        pays.
    longest : int array (widths,)
        Longer gaps in front of a stage never pay.
    classes : tuple of PlaceClass
    spots : tuple of tuples of int
        The classes of each spot.
    spot_width : int array (spots,)
        Index of every spot's width.
    """

    replicas: int
    places: int
    unit: int
    length: Ints
    width: Ints
    stride: Ints
    spot_of: Ints
    side: Floats
    better: Ints
    longest: Ints
    classes: tuple[PlaceClass, ...]
    spots: tuple[tuple[int, ...], ...]
    spot_width: Ints
    line: Ints
    group_of: Ints
    window: int = 0
    free: bool = False
    ground: Line | None = None

    def devices(self, width: int, place: int, grid: Grid, member: int) -> Ints:
        """Devices (d, w) of a stage that has a class of its spot."""
        if self.ground is None:
            replica = np.arange(self.replicas, dtype=np.int64)[:, None] * self.stride[width]
            return self.line[place + replica + np.arange(self.width[width], dtype=np.int64)]
        wanted = self.classes[self.spots[self.spot_of[width, place]][member]]
        start = place % self.ground.period if self.ground.period else place
        arranged = Arranged(
            self.ground, self.replicas, self.window, self.free, np.array([start], dtype=np.int64)
        )
        order = arranged.order_of(grid, wanted.profiles)
        return self.line[place + role_offsets(order, grid, self.replicas, self.window)]


def _type_masks(line: Line, starts: Ints, offsets: Ints, width: int) -> Ints:
    """Bit mask of the device types under the runs ``starts + offsets``."""
    masks = np.zeros(len(starts), dtype=np.int64)
    for index in range(len(line.cluster.types)):
        before = np.concatenate([[0], np.cumsum(line.type_of == index)])
        for offset in offsets:
            low = starts + offset
            masks |= np.where(before[low + width] > before[low], 1 << index, 0)
    return masks


def place_stages(
    line: Line, grids: Sequence[Grid], layout: str, replicas: int, window: int, free: bool
) -> Geometry:
    """Classes, spots and boundary prices of all places of all widths.

    Parameters
    ----------
    layout : str
        ``inner`` or ``outer``.
    window : int
        Places: alive devices (inner), or devices of a replica's window (outer).
    free : bool
        Whether the axes of a stage may have any order.
    """
    levels = len(line.cluster.levels)
    width = np.unique([g.width for g in grids]).astype(np.int64)
    count = len(width)
    inner = layout == "inner"
    length = width * replicas if inner else width
    stride = width.copy() if inner else np.full(count, window, dtype=np.int64)
    spot_of = np.full((count, window + 1), -1, dtype=np.int64)
    side = np.zeros((count, window + 1, 2, levels))
    classes: list[PlaceClass] = []
    spots: list[tuple[int, ...]] = []
    spot_width: list[int] = []
    better = np.full((count, window + 1), _NEVER, dtype=np.int64)
    longest = np.zeros(count, dtype=np.int64)
    for index, w in enumerate(width.tolist()):
        places = window - int(length[index]) + 1
        if places <= 0:
            continue
        distinct = min(places, line.period) if line.period else places
        starts = np.arange(distinct, dtype=np.int64)
        base = np.arange(replicas, dtype=np.int64)[:, None] * stride[index]
        offsets = base + np.arange(w, dtype=np.int64)
        masks = _type_masks(line, starts, base[:, 0], w)
        labels = []
        arranged = line.arranged(replicas, 0 if inner else window, free, w, starts)
        for g, grid in enumerate(grids):
            if grid.width == w:
                found, which = arranged.classes(g, grid, masks)
                labels.append(np.sort(np.where(which >= 0, len(classes) + which, -1), axis=1))
                classes += found
        rows, spot = np.unique(np.concatenate(labels, axis=1), axis=0, return_inverse=True)
        members = [tuple(sorted(row[row >= 0].tolist())) for row in rows]
        repeat = np.arange(places) % distinct
        spot_of[index, :places] = (len(spots) + spot.reshape(-1))[repeat]
        spots += members
        spot_width += [index] * len(members)
        sides = side_profiles(line.network, line.devices, starts, offsets.ravel(), w)
        side[index, :places] = sides[repeat]
        neighbour = base[:, 0] - width[0]
        if inner:
            neighbour = -width[0] * np.arange(replicas, 0, -1)
        better[index, :places] = _better_to_the_right(
            line, spot.reshape(-1)[repeat], side[index, :places],
            spots_at_least_as_good(classes, members), neighbour, base[:, 0] + w - 1,
        )  # fmt: skip
        jumps = better[index, :places] - np.arange(places)
        longest[index] = min(int(jumps.max()), line.period - 1 if line.period else window)
    return Geometry(
        replicas,
        window,
        replicas if inner else 1,
        length,
        width,
        stride,
        spot_of,
        side,
        better,
        longest,
        tuple(classes),
        tuple(spots),
        np.array(spot_width, dtype=np.int64),
        line.devices,
        line.network.group_of,
        0 if inner else window,
        free,
        line,
    )


def relaxed_places(
    widths: Ints,
    classes: Sequence[PlaceClass],
    spots: Sequence[tuple[int, ...]],
    units: int,
    alpha: Floats,
    beta: Floats,
) -> Geometry:
    """Places that only count devices: `units` a replica, every boundary at its best.

    Parameters
    ----------
    spots : sequence of tuples of int
        One for each width, in order.
    alpha, beta : float arrays (widths,)
        Least seconds, and seconds per byte, of a boundary next to a stage of each width.
    """
    count = len(widths)
    place = np.arange(units + 1)
    fits = place[None, :] + widths[:, None] <= units
    side = np.empty((count, units + 1, 2, 1))
    side[:, :, 0, 0] = beta[:, None]
    side[:, :, 1, 0] = alpha[:, None]
    return Geometry(
        1,
        units,
        1,
        widths,
        widths,
        widths,
        np.where(fits, np.arange(count)[:, None], -1),
        side,
        np.full((count, units + 1), _NEVER, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        tuple(classes),
        tuple(spots),
        np.arange(count, dtype=np.int64),
        np.arange(units + 1, dtype=np.int64),
        np.zeros((1, units + 1), dtype=np.int64),
    )


def _better_to_the_right(
    line: Line,
    spot_of: NDArray[np.intp],
    side: Floats,
    spot_better: NDArray[np.bool_],
    starts: Ints,
    ends: Ints,
) -> Ints:
    """For every place the nearest one to its right that is at least as good, or a huge number.

    Moving a stage right into a gap never raises the level of its right boundary. Its own prices do
    not rise if the new classes and side are no worse, whatever its grid. Its left boundary, whose
    level is the highest over the replicas, rises only if a replica's last device enters a group
    whose level is above what that boundary has anyway; the latter is at least the level for the
    nearest and narrowest left neighbour.

    Parameters
    ----------
    spot_better : bool array (spots, spots)
        `spots_at_least_as_good`.
    starts, ends : int arrays (d,)
        Where, from the stage's place, the nearest left neighbour's replicas begin and the stage's
        replicas end.
    """
    places = len(spot_of)
    group = line.network.group_of[:, line.devices]
    last = len(line.devices) - 1
    step = _levels_between(group, np.arange(last), np.arange(1, last + 1))
    index = np.arange(places)
    least = np.zeros(places, dtype=np.int64)
    for start, end in zip(starts, ends, strict=True):
        left = np.maximum(index + start, 0)
        least = np.maximum(least, _levels_between(group, left, index + end))
    rows, side_of = np.unique(side.reshape(places, -1), axis=0, return_inverse=True)
    side_of = side_of.reshape(-1)
    side_better = (rows[:, None] <= rows[None, :]).all(axis=2)
    crossed = np.zeros(places, dtype=np.int64)
    for end in ends:
        crossed = np.maximum(crossed, step[np.minimum(index + end, last - 1)] if last else 0)
    return _nearest_better(spot_of, side_of, spot_better, side_better, least, crossed, _FARTHEST)


@njit(cache=True, nogil=True)
def _nearest_better(
    spot_of: Ints,
    side_of: Ints,
    spot_better: Any,
    side_better: Any,
    least: Ints,
    crossed: Ints,
    farthest: int,
) -> Ints:
    places = len(spot_of)
    result = np.full(places, _NEVER, np.int64)
    for p in range(places):
        if overdue():
            raise KernelStopped
        top = 0
        for there in range(p + 1, min(places, p + farthest)):
            top = max(top, crossed[there - 1])
            if top > least[p]:
                break
            if spot_better[spot_of[there], spot_of[p]] and side_better[side_of[there], side_of[p]]:
                result[p] = there
                break
    return result


def _levels_between(group: Ints, left: Ints, right: Ints) -> Ints:
    """Lowest level that has both devices of each pair in one group."""
    return np.argmax(group[:, left] == group[:, right], axis=0)
