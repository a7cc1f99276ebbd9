"""Random tables of collectives for the families that plans of a cluster have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.judge.check import Tree, family_of
from nestopt.placement.model.collective_table import (
    PATTERNS,
    CollectiveTable,
    Figures,
    Layout,
    Line,
    Row,
)
from nestopt.placement.pricing.comm import families_of
from nestopt.placement.pricing.cost import grid_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan

    Ints = NDArray[np.int64]

__all__ = ["families_in", "families_on", "layout_of", "random_table", "table_of"]


def table_of(cluster: Cluster, rows: list[Row]) -> CollectiveTable:
    """A table for the levels of a cluster."""
    levels = tuple(Figures(v.latency, v.port, v.uplink) for v in cluster.levels)
    return CollectiveTable("made up", levels, tuple(rows))


def layout_of(cluster: Cluster, sets: Ints) -> Layout | None:
    """The layout of a family as the checker reads it."""
    tree = Tree.of(cluster)
    found = tree.table.layout(tree.group, sets, tree.span(sets))
    return None if found is None else Layout(*found)


def families_in(plan: Plan) -> Iterator[Ints]:
    """The families of a plan's stages with more than one member."""
    for stage in plan.stages:
        for sets in families_of(np.asarray(stage.devices), *grid_of(stage.config)):
            if sets.shape[1] > 1:
                yield sets


def families_on(rng: np.random.Generator, cluster: Cluster, count: int) -> Iterator[Ints]:
    """Families of equal distances on the line of alive devices, as structured plans have them."""
    alive = cluster.alive
    for _ in range(count):
        n, stride = int(rng.integers(2, 5)), int(rng.integers(1, 5))
        beside = int(rng.integers(1, stride + 1))
        length = (n - 1) * stride + beside
        if length > len(alive):
            continue
        start = int(rng.integers(len(alive) - length + 1))
        yield alive[start + np.arange(beside)[:, None] + stride * np.arange(n)[None, :]]


def random_table(
    rng: np.random.Generator, cluster: Cluster, families: Iterator[Ints], *, keep: float = 0.8
) -> CollectiveTable:
    """Rows of most of the layouts of some families, from far faster to slower than the formulas."""
    rows: dict[tuple[str, Layout], Row] = {}
    tree = Tree.of(cluster)
    speed = float(np.exp(rng.uniform(np.log(0.02), np.log(3))))
    for sets in families:
        layout = layout_of(cluster, sets)
        if layout is None or rng.random() > keep:
            continue
        formulas = family_of(tree, sets)
        for pattern in PATTERNS:
            if rng.random() < 0.2:
                continue
            lines = []
            for _ in range(int(rng.integers(1, 4))):
                alpha, beta = speed * np.exp(rng.uniform(-2, 2, size=2))
                lines.append(Line(float(alpha * formulas.alpha), float(beta * formulas.direct)))
            rows[pattern, layout] = Row(pattern, layout, tuple(lines))
    return table_of(cluster, list(rows.values()))
