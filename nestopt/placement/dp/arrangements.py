"""What the orders of a stage's axes make its groups cost at a place.

Whatever the order, a stage's run of devices is the same, and so are its neighbours': the boundary
between two stages is priced by their runs alone. (Level of a boundary: replica r of the left stage
begins ``r s`` places into its run and that of the right one ends ``(d - 1 - r) s'`` places before
the end of its run; the first and the last replica's devices together lie in no smaller group than
both runs, since both cross the border.) So an order changes the profiles of the families alone, and
of a stage only the orders matter that no other one beats in every profile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue
from nestopt.placement.dp.entries import PlaceClass
from nestopt.placement.dp.rows import distinct_rows
from nestopt.placement.model.orders import families_in, orders_of, role_offsets
from nestopt.placement.pricing.comm import families_of, family_profiles
from nestopt.placement.pricing.cost import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nestopt.placement.dp.geometry import Line
    from nestopt.placement.model.cluster import DeviceType
    from nestopt.placement.model.grid import Grid
    from nestopt.placement.model.orders import Order

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    # profiles and device types of each class, and which ones each place has
    _Classes = tuple[tuple[tuple[Floats, tuple[DeviceType, ...]], ...], Ints]

__all__ = ["Arranged", "spots_at_least_as_good"]

_MOST_COMPARED = 1 << 24


@dataclass(eq=False)
class Arranged:
    """The orders of the stages of one width at some places, and their profiles.

    Attributes
    ----------
    starts : int array (P,)
        First places of the runs, on the line.
    window : int
        Places from a replica to the next with layout ``outer``; 0 with ``inner``.
    free : bool
        Whether axes may have any order.
    """

    line: Line
    replicas: int
    window: int
    free: bool
    starts: Ints
    _found: dict[tuple[tuple[int, int], ...], Floats] = field(default_factory=dict)
    _classes: dict[Grid, _Classes] = field(default_factory=dict)

    def orders(self, grid: Grid) -> Iterator[tuple[Order, Floats]]:
        """The orders with their profiles (P, families, entries)."""
        for order in orders_of(grid, self.replicas, windows=self.window > 0, free=self.free):
            yield order, self._profiles(order, grid)

    def _profiles(self, order: Order, grid: Grid) -> Floats:
        network = self.line.network
        keys = families_in(order, grid, self.replicas, self.window)
        profiles = np.zeros((len(self.starts), len(FAMILIES), network.entries))
        wanted = [key for key in keys if key and key not in self._found]
        if wanted:
            offsets = role_offsets(order, grid, self.replicas, self.window)
            for key, family in zip(keys, families_of(offsets, *grid), strict=True):
                if key in wanted:
                    self._found[key] = family_profiles(
                        network, self.line.devices, self.starts, family
                    )
        for index, key in enumerate(keys):
            if key:
                profiles[:, index] = self._found[key]
        return profiles

    def classes(self, number: int, grid: Grid, masks: Ints) -> tuple[list[PlaceClass], Ints]:
        """The classes of a grid, and which ones each place has: (P, orders), -1 for none.

        Parameters
        ----------
        number : int
            Index of the grid.
        masks : int array (P,)
            Bit masks of the device types under each place.
        """
        if grid not in self._classes:
            self._classes[grid] = self._classes_afresh(grid, masks)
        rows, which = self._classes[grid]
        return [PlaceClass(number, *row) for row in rows], which

    def _classes_afresh(self, grid: Grid, masks: Ints) -> _Classes:
        arrays = [profiles for _, profiles in self.orders(grid)]
        table = np.stack(arrays).reshape(len(arrays), len(self.starts), -1)
        best = _unbeaten(table) if len(arrays) > 1 else np.ones(table.shape[:2], dtype=np.bool_)
        order, place = np.nonzero(best)
        rows = np.concatenate([table[order, place], masks[place, None]], axis=1)
        # Classes of earlier orders come first, so of equal prices theirs are taken.
        first, label = distinct_rows(rows)
        which = np.full(best.shape, -1, dtype=np.int64)
        which[order, place] = label
        found = []
        for row in first:
            mask = int(masks[place[row]])
            types = tuple(t for i, t in enumerate(self.line.cluster.types) if mask >> i & 1)
            # a copy: the rest of the array need not be kept
            found.append((arrays[order[row]][place[row]].copy(), types))
        return tuple(found), which.T

    def order_of(self, grid: Grid, profiles: Floats) -> Order:
        """The first order that has these profiles at the only place."""
        return next(o for o, found in self.orders(grid) if np.array_equal(found[0], profiles))


@njit(cache=True, nogil=True)
def _unbeaten(table: Any) -> Any:
    """Which of the orders (O, P, figures) at each place no other one beats; the first of equals."""
    orders, places, figures = table.shape
    best = np.zeros((orders, places), np.bool_)
    for p in range(places):
        if overdue():
            raise KernelStopped
        for o in range(orders):
            beaten = False
            for other in range(orders):
                if other == o or (other < o and not best[other, p]):
                    continue
                no_worse = True
                equal = True
                for f in range(figures):
                    if table[other, p, f] > table[o, p, f]:
                        no_worse = False
                        break
                    if table[other, p, f] < table[o, p, f]:
                        equal = False
                if no_worse and (not equal or other < o):
                    beaten = True
                    break
            best[o, p] = not beaten
    return best


def spots_at_least_as_good(
    classes: Sequence[PlaceClass], spots: Sequence[tuple[int, ...]]
) -> NDArray[np.bool_]:
    """Whether each spot is no worse than each other one, whatever is placed there; (S, S).

    It has no other device types, and of every grid for each class one that is nowhere larger.
    """
    has = np.zeros((len(spots), len(classes)), dtype=np.float32)
    for index, spot in enumerate(spots):
        has[index, list(spot)] = 1.0
    names = [{t.name for t in classes[spot[0]].types} for spot in spots]
    better = np.array([[a <= b for b in names] for a in names])
    by_grid: dict[int, list[int]] = {}
    for i in np.flatnonzero(has.any(axis=0)).tolist():
        by_grid.setdefault(classes[i].grid, []).append(i)
    for here in by_grid.values():
        rows = np.stack([classes[i].profiles.ravel() for i in here])
        part = max(1, _MOST_COMPARED // rows.size)
        least = np.concatenate(
            [
                (rows[low : low + part, None] <= rows[None, :]).all(axis=2)
                for low in range(0, len(rows), part)
            ]
        )
        covered = has[:, here] @ least.astype(np.float32) > 0
        better &= (~covered).astype(np.float32) @ has[:, here].T == 0
    return better
