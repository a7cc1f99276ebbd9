"""Tables of collectives by synthesis: nestopt's own schedules of every layout, checked."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.greedy.solve import synthesize
from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.collective import Collective
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.of_result import in_columns
from nestopt.core.options import SolveOptions
from nestopt.placement.model.collective_table import PATTERNS, CollectiveTable, Figures, Line, Row
from nestopt.placement.pricing.comm import (
    Network,
    all_gather,
    all_reduce,
    all_to_all,
    family_profiles,
)
from nestopt.placement.pricing.tables.layouts import layouts_on
from nestopt.placement.pricing.tables.lines import line_of
from nestopt.placement.pricing.tables.network import network_of_layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from nestopt.collective.model.topology import Topology
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.collective_table import Layout

    Floats = NDArray[np.float64]

__all__ = ["Comparison", "make_table"]

_CHUNK = 1 << 17
_MOST_CHUNKS = 8
_EFFORT = "0.2"
_PRICES = {"all-gather": all_gather, "all-reduce": all_reduce, "all-to-all": all_to_all}
_GRID = np.geomspace(1.0, 1e12, 481)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A schedule beside the formulas; seconds.

    Attributes
    ----------
    seconds : float
        As scheduled and checked.
    line : float
        What the table says.
    formulas : float
        The cheapest of the formulas.
    """

    pattern: str
    layout: Layout
    size: float
    seconds: float
    line: float
    formulas: float


def make_table(
    cluster: Cluster,
    sizes: Sequence[float],
    members: Sequence[int],
    *,
    seed: int = 0,
    time_limit: float = math.inf,
    progress: Callable[[int, int, Layout], None] | None = None,
) -> tuple[CollectiveTable, list[Comparison]]:
    """Synthesize every layout of a cluster for some sizes.

    Lines that the formulas are nowhere worse than are left out.

    Parameters
    ----------
    sizes : sequence of float
        Bytes, as ``MODEL.md`` counts them.
    members : sequence of int
        Members of a family group.
    time_limit : float
        Seconds; the layouts not reached by then, large ones, have no rows.
    progress : callable, optional
        Called with the layouts done, their number and the next one.
    """
    began = time.perf_counter()
    levels = tuple(Figures(v.latency, v.port, v.uplink) for v in cluster.levels)
    plain = Network.of(_plain(cluster))
    line = np.arange(cluster.num_devices, dtype=np.int64)
    start = np.zeros(1, dtype=np.int64)
    rows: list[Row] = []
    compared: list[Comparison] = []
    layouts = layouts_on(cluster, members)
    for done, (layout, family) in enumerate(layouts.items()):
        if time.perf_counter() - began > time_limit:
            break
        if progress is not None:
            progress(done, len(layouts), layout)
        topology, groups = network_of_layout(layout, levels)
        profile = family_profiles(plain, line, start, family)[0]
        for pattern in PATTERNS:
            lines = []
            for size in sizes:
                seconds, bytes_, found = _scheduled(topology, groups, pattern, size, seed)
                formulas = float(_price(pattern, layout, profile, np.array([bytes_]))[0])
                said = found.alpha + bytes_ * found.beta
                compared.append(Comparison(pattern, layout, bytes_, seconds, said, formulas))
                lines.append(found)
            kept = _useful(lines, _price(pattern, layout, profile, _GRID))
            if kept:
                rows.append(Row(pattern, layout, kept))
    return CollectiveTable(cluster.name, levels, tuple(rows)), compared


def _plain(cluster: Cluster) -> Cluster:
    """The cluster with its levels' figures everywhere, priced by the formulas."""
    return replace(cluster, overrides=(), collectives=None)


def _price(pattern: str, layout: Layout, profile: Floats, sizes: Floats) -> Floats:
    return _PRICES[pattern](layout.members, profile, sizes)


def _scheduled(
    topology: Topology, groups: Sequence[Sequence[int]], pattern: str, size: float, seed: int
) -> tuple[float, float, Line]:
    """Makespan of a checked schedule, the bytes that it really moves, and its line."""
    n = len(groups[0])
    chunks = int(np.clip(size / n / _CHUNK, 1, _MOST_CHUNKS))
    chunk = max(1, round(size / n / chunks))
    together = Collective.together(
        *(Collective.of(pattern, g, chunk_size=chunk, chunks_per_npu=chunks) for g in groups)
    )
    instance = CollectiveInstance(topology, together, "pipelined")
    found = synthesize(instance, SolveOptions(seed=seed, set={"effort": _EFFORT}))
    schedule = in_columns(instance, found.schedule)
    check_schedule(instance, schedule)
    moved = float(n * chunks * chunk)
    return schedule.makespan_ps / 1e12, moved, line_of(instance, schedule, moved)


def _useful(lines: Sequence[Line], formulas: Floats) -> tuple[Line, ...]:
    """The lines that are somewhere less than the formulas and than every other line."""
    kept = []
    best = formulas * (1 - 1e-6)
    for line in sorted(set(lines)):
        others = [o.alpha + _GRID * o.beta for o in lines if o != line]
        if (line.alpha + _GRID * line.beta < np.minimum.reduce([best, *others])).any():
            kept.append(line)
    return tuple(kept)
