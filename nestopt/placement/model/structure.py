"""Which layouts of the structured space a plan's places have (``MODEL.md``, section 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.model.words import Layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan

__all__ = ["structured_layout", "structured_layouts"]


def structured_layouts(cluster: Cluster, plan: Plan) -> set[Layout]:
    """The layouts of the structured space that a plan has; none if it is outside."""
    count = len(cluster.type_of)
    failed = set(cluster.failed)
    alive = [i for i in range(count) if i not in failed]
    rank = np.full(count, -1)
    rank[alive] = np.arange(len(alive))
    places = [rank[stage.devices] for stage in plan.stages]
    found = set()
    if _in_order(run.ravel() for run in places):
        found.add(Layout.INNER)
    if _is_outer(places, plan.replicas, len(alive)):
        found.add(Layout.OUTER)
    return found


def structured_layout(cluster: Cluster, plan: Plan) -> Layout | None:
    """One layout that a plan has, ``inner`` if it has both, None if it is outside."""
    found = structured_layouts(cluster, plan)
    return next((layout for layout in Layout if layout in found), None)


def _is_outer(places: list[np.ndarray], replicas: int, alive: int) -> bool:
    """Whether every replica has the same offsets in a window of its own, all of equal width n."""
    if not _in_order(run[0] for run in places):
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
    return fits and int(places[-1][0, -1]) < n and n * replicas <= alive


def _in_order(runs: Iterable[np.ndarray]) -> bool:
    """Whether each run is contiguous and ascending and starts after the one before."""
    last = -1
    for run in runs:
        if run[0] <= last or (np.diff(run) != 1).any():
            return False
        last = run[-1]
    return True
