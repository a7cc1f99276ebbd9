"""One scenario: the exact search over stages, configurations and places.

A scenario fixes replicas, micro-batch, layout and window (and the number of stages where the
schedule needs it); the label search does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.cost import config_of
from nestopt.placement.dp.entries import build_entries, divisible_blocks, spots_by_width
from nestopt.placement.dp.geometry import place_stages, relaxed_places
from nestopt.placement.dp.kernel import clear_heads, expand, keep_best
from nestopt.placement.dp.relaxed import best_sides, relaxed_classes
from nestopt.placement.dp.tables import Weights, boundary_prices, bounds
from nestopt.placement.plan import Plan, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from nestopt.placement.cost import Grid, Mode, StageCosts
    from nestopt.placement.dp.entries import Entries
    from nestopt.placement.dp.geometry import Geometry, Line
    from nestopt.placement.dp.lattice import StageLattice
    from nestopt.placement.dp.relaxed import Best
    from nestopt.placement.dp.tables import Batch, Bounds
    from nestopt.placement.space import SpaceSettings

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Search", "SearchStopped", "Stats"]

_CHUNK = 512
_FIRST_LABELS = 1 << 14
_FEW_LABELS = 10_000


class SearchStopped(Exception):
    """A limit was reached in the middle of a scenario."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


@dataclass(slots=True)
class Stats:
    """Counts of a run: cases and scenarios known, those searched, labels made."""

    cases: int = 0
    scenarios: int = 0
    searched: int = 0
    labels: int = 0


@dataclass(eq=False)
class Search:
    """What all scenarios of a run share.

    Attributes
    ----------
    stop : callable
        Raises `SearchStopped` when a limit is reached.
    label_limit : int
        Labels that one scenario may hold.
    """

    costs: StageCosts
    lattice: StageLattice
    line: Line
    best: Best
    settings: SpaceSettings
    objective: str
    stop: Callable[[], None]
    label_limit: int = 40_000_000
    stats: Stats = field(default_factory=Stats)

    def run(
        self,
        grids: Sequence[Grid],
        modes: Sequence[tuple[Mode, ...]],
        batch: Batch,
        layout: str,
        window: int,
        incumbent: float,
        beam: int = 0,
    ) -> tuple[float, Plan | None]:
        """The best plan of a scenario that beats `incumbent`, or (incumbent, None).

        With `beam` > 0 only so many labels of each stage count are expanded: quick, not exact.
        """
        geometry = place_stages(self.line, grids, layout, batch.replicas, window)
        entries = build_entries(
            self.costs, self.lattice, grids, modes, geometry.classes, geometry.spots, batch,
            divisible_blocks(self.lattice, self.settings),
        )  # fmt: skip
        alpha, beta = best_sides(self.best, geometry.width, batch.replicas)
        return self._bounded(geometry, entries, batch, alpha, beta, incumbent, beam)

    def run_relaxed(
        self,
        grids: Sequence[Grid],
        modes: Sequence[tuple[Mode, ...]],
        batch: Batch,
        incumbent: float,
        beam: int = 0,
        label_limit: int | None = None,
    ) -> tuple[float, Plan | None]:
        """The least value of the position-free relaxation below `incumbent` (`beam`: as in `run`).

        Raises `SearchStopped` with the limit ``memory`` when more labels than `label_limit` are
        needed.

        The stages of the plan returned have no real devices: they only tell which relaxed pipeline
        the bound is the value of.
        """
        cluster = self.line.cluster
        alive = len(self.line.devices)
        units = min(
            alive // batch.replicas,
            self.costs.workload.num_operators * max(g.width for g in grids),
        )
        classes = relaxed_classes(cluster, self.best, grids, batch.replicas)
        widths, spots = spots_by_width(grids, classes)
        entries = build_entries(
            self.costs, self.lattice, grids, modes, classes, spots, batch,
            divisible_blocks(self.lattice, self.settings),
        )  # fmt: skip
        alpha, beta = best_sides(self.best, widths, batch.replicas)
        geometry = relaxed_places(widths, classes, spots, units, alpha, beta)
        return self._bounded(geometry, entries, batch, alpha, beta, incumbent, beam, label_limit)

    def _bounded(
        self,
        geometry: Geometry,
        entries: Entries,
        batch: Batch,
        alpha: Floats,
        beta: Floats,
        incumbent: float,
        beam: int,
        label_limit: int | None = None,
    ) -> tuple[float, Plan | None]:
        lattice = self.lattice
        weights = Weights.of(self.objective, batch.microbatches, batch.chunks)
        operators = self.costs.workload.num_operators
        units = geometry.places // geometry.unit
        most = min(operators, units)
        if most == 0 or not len(entries.seconds):
            return incumbent, None
        useful = min(units, operators * int(geometry.width.max()))
        held = batch.held(most)
        prices = boundary_prices(lattice, batch, alpha, beta)
        closed = incumbent * (1 - 1e-12)
        # One table of bounds closes most scenarios, at once or with few labels; the others need one
        # for each in-flight count.
        for buckets in (False, True):
            table = bounds(
                lattice, entries, geometry.spot_width, geometry.width, useful, prices, held,
                weights, buckets=buckets,
            )  # fmt: skip
            if not table.floor(weights)[useful] < closed:
                return incumbent, None
            few = label_limit if buckets else min(_FEW_LABELS, label_limit or self.label_limit)
            try:
                found = self._labels(
                    geometry, entries, table, batch, weights, held, incumbent, beam, few
                )
            except SearchStopped as stopped:
                if buckets or stopped.limit != "memory":
                    raise
            else:
                break
        self.stats.searched += 1
        return found

    def _labels(
        self,
        geometry: Geometry,
        entries: Entries,
        table: Bounds,
        batch: Batch,
        weights: Weights,
        held: Floats,
        incumbent: float,
        beam: int,
        label_limit: int | None = None,
    ) -> tuple[float, Plan | None]:
        lattice = self.lattice
        label_limit = label_limit or self.label_limit
        rows = len(lattice.blocks.cut_in)
        widths, width_index = np.unique(geometry.width, return_inverse=True)
        top = geometry.side.shape[3] - 1
        volume = float(batch.microbatch)
        worst_alpha = geometry.side[:, :, 1, top].max()
        worst_beta = geometry.side[:, :, 0, top].max()
        boundary_most = 2 * batch.chunks * (worst_alpha + volume * lattice.cut * worst_beta)
        boundary_most[0] = 0.0
        heads = np.full((lattice.ideals, geometry.places + 1, len(widths)), -1, dtype=np.int64)
        ints = np.zeros((_FIRST_LABELS, 6), dtype=np.int64)
        floats = np.zeros((_FIRST_LABELS, 5))
        links = np.full((_FIRST_LABELS, 1), -1, dtype=np.int64)
        ints[0] = (lattice.ideals - 1, geometry.places, -1, -1, -1, 1)
        used, low = 1, 0
        best, best_label = incumbent, -1
        for k in range(len(held) - 1):
            high = used
            row = table.bucket[k + 1]
            for first in range(low, high, _CHUNK):
                used, best, found, ints, floats, links = expand(
                    first, min(first + _CHUNK, high), used, k, ints, floats, heads, links,
                    lattice.start, lattice.below, lattice.block, lattice.cut, rows,
                    geometry.group_of, geometry.line, geometry.replicas,
                    geometry.unit, geometry.length, geometry.width, geometry.stride, width_index,
                    geometry.spot_of, geometry.side, geometry.better, geometry.longest,
                    entries.start, entries.seconds, entries.sync,
                    entries.holds, held[k + 1], table.total[row], table.largest[row],
                    table.sync[row], table.joint[row], table.fluid[row], table.column,
                    table.boundary, boundary_most, weights.total, weights.largest, weights.sync,
                    volume, batch.chunks, best, batch.stages, label_limit,
                )  # fmt: skip
                if found >= 0:
                    best_label = found
                self.stop()
                if used >= label_limit:
                    raise SearchStopped("memory")
            clear_heads(heads, ints, high, used, width_index)
            if beam:
                keep_best(ints, floats, high, used, beam)
            if used == high:
                break
            low = high
        self.stats.labels += used
        if best_label < 0:
            return incumbent, None
        return best, self._plan(geometry, entries, batch, ints, best_label)

    def _plan(
        self,
        geometry: Geometry,
        entries: Entries,
        batch: Batch,
        ints: Ints,
        label: int,
    ) -> Plan:
        stages = []
        while ints[label, 3] >= 0:
            lower, place, width, parent, entry, _ = (int(x) for x in ints[label])
            upper = int(ints[parent, 0])
            stages.append(
                Stage(
                    self.lattice.operators(lower, upper),
                    config_of(*entries.choices[entries.choice[entry]]),
                    geometry.devices(width, place),
                )
            )
            label = parent
        return Plan(tuple(stages), batch.replicas, batch.microbatch, batch.schedule, batch.chunks)
