"""Orders of the axes: which device of a run plays which role (``MODEL.md``, section 8).

A stage's devices have six axes: replica, expert, context, z, y, x. Its run of devices is dealt to
their ranks in mixed radix; which axis runs fastest is the *order*, outermost axis first. The order
in which the axes are named here is the contiguous one: every replica, and in it every tensor group,
is a run of its own.
"""

from __future__ import annotations

from itertools import permutations
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nestopt.placement.model.grid import Grid

    Ints = NDArray[np.int64]

__all__ = ["AXES", "Order", "families_in", "orders_of", "role_offsets"]

AXES = ("replica", "expert", "context", "z", "y", "x")
"""The axes of a stage, outermost first in the contiguous order."""

Order = tuple[int, ...]
"""Indices into `AXES` of those axes that have more than one rank, outermost first."""

_MEMBERS = ((5,), (4,), (3,), (2,), (1,), (0, 1, 2), (0, 2))
"""Axes over which the groups of each family run (``MODEL.md``, section 4)."""


def _sizes(grid: Grid, replicas: int) -> tuple[int, ...]:
    return replicas, grid.e, grid.c, grid.z, grid.y, grid.x


def orders_of(grid: Grid, replicas: int, *, windows: bool, free: bool) -> Iterator[Order]:
    """The orders of a stage's axes, the contiguous one first.

    Parameters
    ----------
    windows : bool
        Whether every replica has a window of its own (layout ``outer``): replicas stay outermost.
    free : bool
        Whether there are others than the contiguous one.
    """
    axes = tuple(a for a, n in enumerate(_sizes(grid, replicas)) if n > 1)
    if not free:
        yield axes
        return
    fixed = 1 if windows and axes[:1] == (0,) else 0
    for rest in permutations(axes[fixed:]):
        yield axes[:fixed] + rest


def _strides(order: Order, grid: Grid, replicas: int, window: int) -> tuple[int, ...]:
    sizes = _sizes(grid, replicas)
    strides, step = [0] * len(AXES), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= sizes[axis]
    if window:
        strides[0] = window
    return tuple(strides)


def role_offsets(order: Order, grid: Grid, replicas: int, window: int = 0) -> Ints:
    """Places (d, w), from a stage's first, of its replicas and ranks.

    Parameters
    ----------
    window : int
        Places from a replica to the next with layout ``outer``, 0 with ``inner``.
    """
    strides = _strides(order, grid, replicas, window)
    found = np.zeros((1,), dtype=np.int64)
    for size, stride in zip(_sizes(grid, replicas), strides, strict=True):
        found = (found[:, None] + np.arange(size, dtype=np.int64) * stride).reshape(-1)
    return found.reshape(replicas, -1)


def families_in(
    order: Order, grid: Grid, replicas: int, window: int = 0
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """By family, the (stride, members) of its axes: equal ones have the same groups in a run.

    Axes that follow each other without a gap count as one; a family of single devices has none.
    """
    sizes = _sizes(grid, replicas)
    strides = _strides(order, grid, replicas, window)
    found = []
    for axes in _MEMBERS:
        steps = sorted((strides[a], sizes[a]) for a in axes if sizes[a] > 1)
        joined: list[tuple[int, int]] = []
        for stride, size in steps:
            if joined and stride == prod(joined[-1]):
                joined[-1] = joined[-1][0], joined[-1][1] * size
            else:
                joined.append((stride, size))
        found.append(tuple(joined))
    return tuple(found)
