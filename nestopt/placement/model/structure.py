"""Which layouts of the structured space a plan's places have (``MODEL.md``, section 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.model.grid import grid_of
from nestopt.placement.model.words import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.orders import Order
    from nestopt.placement.model.plan import Plan, Stage

    Ints = NDArray[np.int64]

__all__ = ["stage_order", "structured_layout", "structured_layouts"]


def structured_layouts(cluster: Cluster, plan: Plan, *, orders: bool = True) -> set[Layout]:
    """The layouts of the structured space that a plan has; none if it is outside.

    Parameters
    ----------
    orders : bool
        Whether a stage's axes may have any order; if not, it is the contiguous space.
    """
    count = len(cluster.type_of)
    failed = set(cluster.failed)
    alive = [i for i in range(count) if i not in failed]
    rank = np.full(count, -1)
    rank[alive] = np.arange(len(alive))
    places = [rank[stage.devices] for stage in plan.stages]
    if not all(_dealt(run, stage, orders) for run, stage in zip(places, plan.stages, strict=True)):
        return set()
    found = set()
    if _in_order(np.sort(run, axis=None) for run in places):
        found.add(Layout.INNER)
    if _is_outer(places, plan.replicas, len(alive)):
        found.add(Layout.OUTER)
    return found


def stage_order(cluster: Cluster, stage: Stage) -> Order | None:
    """The order of a stage's axes on the alive devices, outermost first; None if it has none.

    Replicas count as an axis by the distance of the first two.
    """
    alive = np.full(len(cluster.type_of), True)
    alive[list(cluster.failed)] = False
    rank = np.where(alive, np.cumsum(alive) - 1, -1)
    return _order(rank[stage.devices], stage)


def _order(run: Ints, stage: Stage) -> Order | None:
    """The order in which the places (d, w) of a stage are dealt to its axes."""
    grid = grid_of(stage.config)
    sizes = (len(run), grid.e, grid.c, grid.z, grid.y, grid.x)
    box = run.reshape(sizes)
    origin = box[0, 0, 0, 0, 0, 0]
    steps = [0 if n == 1 else int(np.take(box, 1, axis).flat[0] - origin)
             for axis, n in enumerate(sizes)]  # fmt: skip
    expected = sum(
        np.arange(n).reshape([-1 if a == axis else 1 for a in range(6)]) * step
        for axis, (n, step) in enumerate(zip(sizes, steps, strict=True))
    )
    if min(steps) < 0 or not np.array_equal(box, origin + np.asarray(expected)):
        return None
    used = [a for a, n in enumerate(sizes) if n > 1]
    return tuple(sorted(used, key=lambda a: -steps[a]))


def _dealt(run: Ints, stage: Stage, orders: bool) -> bool:
    """Whether a stage's places follow one order of the axes (the contiguous one alone)."""
    order = _order(run, stage)
    return order is not None and (orders or list(order) == sorted(order))


def structured_layout(cluster: Cluster, plan: Plan) -> Layout | None:
    """One layout that a plan has, ``inner`` if it has both, None if it is outside."""
    found = structured_layouts(cluster, plan)
    return next((layout for layout in Layout if layout in found), None)


def _is_outer(places: list[np.ndarray], replicas: int, alive: int) -> bool:
    """Whether every replica has the same offsets in a window of its own, all of equal width n."""
    if not _in_order(np.sort(run[0]) for run in places):
        return False
    widths = {int(run[r + 1, 0] - run[r, 0]) for run in places for r in range(len(run) - 1)}
    if replicas == 1:
        return True
    if len(widths) != 1:
        return False
    n = widths.pop()
    fits = all(
        run[r].tolist() == (run[0] + r * n).tolist() for run in places for r in range(len(run))
    )
    # Any offset may begin the first window, but not one that leaves the last without room.
    return fits and int(places[-1][0].max()) < n and n * replicas <= alive


def _in_order(runs: Iterable[np.ndarray]) -> bool:
    """Whether each run is contiguous and ascending and starts after the one before."""
    last = -1
    for run in runs:
        if run[0] <= last or (np.diff(run) != 1).any():
            return False
        last = run[-1]
    return True
