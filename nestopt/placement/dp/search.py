"""One scenario: the exact search over stages, configurations and places.

A scenario fixes replicas, micro-batch, layout and window (and the number of stages where the
schedule needs it). It is cut into boxes, and those that their bounds leave open are searched with
labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.dp.boxes import Boxes
from nestopt.placement.dp.entries import Entries, build_entries, divisible_blocks, spots_by_width
from nestopt.placement.dp.geometry import place_stages, relaxed_places
from nestopt.placement.dp.kernel import clear_heads, expand, keep_best
from nestopt.placement.dp.reduced import Pricer
from nestopt.placement.dp.relaxed import best_sides, relaxed_classes
from nestopt.placement.dp.sums import Offers
from nestopt.placement.dp.tables import CLOSE
from nestopt.placement.model.clock import SearchStopped
from nestopt.placement.model.plan import Plan, Stage
from nestopt.placement.model.schedules import OneForwardOneBackward
from nestopt.placement.model.words import Structure
from nestopt.placement.pricing.cost import config_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    from nestopt.placement.dp.boxes import Box
    from nestopt.placement.dp.entries import PlaceClass
    from nestopt.placement.dp.geometry import Geometry, Line
    from nestopt.placement.dp.lattice import StageLattice
    from nestopt.placement.dp.relaxed import Best
    from nestopt.placement.dp.tables import Batch
    from nestopt.placement.model.schedules import PipelineSchedule
    from nestopt.placement.model.space import PlanSpace
    from nestopt.placement.pricing.cost import Grid, Mode, StageCosts

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Search", "Stats"]

_CHUNK = 512
_FIRST_LABELS = 1 << 14
_BEAM_BOXES = 8
_MOST_ENTRIES = 4_000_000
_MOST_PLACED = 32


@dataclass(slots=True)
class Stats:
    """Counts of a run.

    Cases and scenarios known, scenarios whose boxes were searched with labels, tables of sums made,
    boxes so searched, and their labels.
    """

    cases: int = 0
    scenarios: int = 0
    searched: int = 0
    tables: int = 0
    boxes: int = 0
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
    space: PlanSpace
    objective: str
    stop: Callable[[], None]
    label_limit: int = 40_000_000
    stats: Stats = field(default_factory=Stats)
    pricer: Pricer = field(init=False)
    _priced: dict[Hashable, Entries] = field(default_factory=dict, init=False)
    _held: int = field(default=0, init=False)
    """Entries that are kept."""
    _offered: tuple[Geometry, Offers] | None = field(default=None, init=False)
    _last: dict[Hashable, Entries] = field(default_factory=dict, init=False)
    _placed: dict[Hashable, Geometry] = field(default_factory=dict, init=False)
    _divisible: dict[PipelineSchedule, NDArray[np.bool_] | None] = field(
        default_factory=dict, init=False
    )

    def __post_init__(self) -> None:
        workload, space = self.costs.workload, self.space
        grids = tuple(space.grids(workload, len(self.line.devices)))
        modes = tuple(
            self.costs.modes(
                g, space.zero, space.recompute, space.sequence, space.overlap, space.hides
            )
            for g in grids
        )
        self.pricer = Pricer(self.costs, self.line.cluster, self.best, grids, modes)
        pipelines = space.pipelines(workload)
        self.has_plain_schedule = any(isinstance(p, OneForwardOneBackward) for p in pipelines)
        self.free = space.structure is not Structure.CONTIGUOUS
        self.whole = all(p.chunks == 1 for p in pipelines)

    def divisible(self, schedule: PipelineSchedule) -> NDArray[np.bool_] | None:
        """Blocks that a schedule can cut into equal chunks, None if it does not cut them."""
        if schedule not in self._divisible:
            self._divisible[schedule] = divisible_blocks(self.lattice, schedule)
        return self._divisible[schedule]

    def entries(
        self,
        grids: Sequence[Grid],
        modes: Sequence[tuple[Mode, ...]],
        classes: Sequence[PlaceClass],
        spots: Sequence[tuple[int, ...]],
        batch: Batch,
    ) -> Entries:
        """Prices of all blocks at spots; what was priced before with these arguments is kept.

        Prices do not depend on the schedule: what it cannot cut, and parts of a micro-batch in
        flight that it never holds, are taken out of those that all schedules share.
        """
        return self._fitted(self._shared(grids, modes, classes, spots, batch), len(spots), batch)

    def _fitted(self, shared: Entries, spots: int, batch: Batch) -> Entries:
        """What a schedule can take of the prices at so many spots."""
        if self.whole:
            return shared
        rows = len(self.lattice.blocks.cut_in)
        kept = self.divisible(batch.schedule)
        if kept is None:
            kept = np.ones(rows, dtype=np.bool_)
        return shared.cut(kept, spots, batch.schedule.chunks)

    def _shared(
        self,
        grids: Sequence[Grid],
        modes: Sequence[tuple[Mode, ...]],
        classes: Sequence[PlaceClass],
        spots: Sequence[tuple[int, ...]],
        batch: Batch,
    ) -> Entries:
        offered = (batch.replicas, batch.microbatch, tuple(grids), tuple(modes))
        names = [(c.grid, c.types, c.profiles.tobytes()) for c in classes]
        keys = [(offered, tuple(names[i] for i in spot)) for spot in spots]
        if self._held > _MOST_ENTRIES:
            self._priced.clear()
            self._held = 0
        new = {k: s for k, s in zip(keys, spots, strict=True) if k not in self._priced}
        if new:
            used = sorted({i for spot in new.values() for i in spot})
            place = {i: n for n, i in enumerate(used)}
            built = build_entries(
                self.costs, self.lattice, grids, modes, [classes[i] for i in used],
                [[place[i] for i in spot] for spot in new.values()], batch, self.whole,
            )  # fmt: skip
            self._priced |= zip(new, built.by_spot(len(new)), strict=True)
            self._held += len(built.seconds)
        return Entries.joined([self._priced[k] for k in keys])

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
        geometry = self._places(tuple(grids), layout, batch.replicas, window)
        if not geometry.spots:
            return incumbent, None
        key = tuple(grids), tuple(modes), batch.replicas, batch.microbatch, layout, window
        if key not in self._last:
            # the next scenario is often of the same places, with another schedule
            self._last = {key: self._shared(grids, modes, geometry.classes, geometry.spots, batch)}
        entries = self._fitted(self._last[key], len(geometry.spots), batch)
        return self._boxed(geometry, entries, batch, incumbent, beam, self.label_limit)

    def _places(self, grids: tuple[Grid, ...], layout: str, replicas: int, window: int) -> Geometry:
        """The places of a scenario; those of the last few are kept."""
        key = grids, layout, replicas, window
        if key not in self._placed:
            if len(self._placed) >= _MOST_PLACED:
                self._placed.pop(next(iter(self._placed)))
            self._placed[key] = place_stages(self.line, grids, layout, replicas, window, self.free)
        return self._placed[key]

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
        geometry, entries = self._relaxed(grids, modes, batch)
        limit = label_limit or self.label_limit
        return self._boxed(geometry, entries, batch, incumbent, beam, limit)

    def relaxed_floor(
        self,
        grids: Sequence[Grid],
        modes: Sequence[tuple[Mode, ...]],
        batch: Batch,
        incumbent: float,
        apart: int = 0,
        layout: str = "",
    ) -> Floats:
        """Bounds on the position-free relaxation by devices a replica, without labels.

        Below level `apart` no place holds the same rank of two replicas; `layout` is what
        `best_sides` may know of places.
        """
        geometry, entries = self._relaxed(grids, modes, batch, apart, layout)
        boxes = self._boxes(geometry, entries, batch, incumbent)
        if boxes is None:
            return np.full(geometry.places + 1, math.inf)
        floor = boxes.floor()
        self.stats.tables += boxes.tables
        return floor

    def _relaxed(
        self,
        grids: Sequence[Grid],
        modes: Sequence[tuple[Mode, ...]],
        batch: Batch,
        apart: int = 0,
        layout: str = "",
    ) -> tuple[Geometry, Entries]:
        cluster = self.line.cluster
        alive = len(self.line.devices)
        units = min(
            alive // batch.replicas,
            self.costs.workload.num_operators * max(g.width for g in grids),
        )
        classes = relaxed_classes(cluster, self.best, grids, batch.replicas, apart)
        widths, spots = spots_by_width(grids, classes)
        entries = self.entries(grids, modes, classes, spots, batch)
        alpha, beta = best_sides(self.best, widths, batch.replicas, layout)
        return relaxed_places(widths, classes, spots, units, alpha, beta), entries

    def _boxes(
        self, geometry: Geometry, entries: Entries, batch: Batch, incumbent: float
    ) -> Boxes | None:
        units = geometry.places // geometry.unit
        most = min(self.costs.workload.num_operators, units)
        if most == 0 or not len(entries.seconds):
            return None
        longest = float(entries.seconds.max() + 2 * self._dearest(geometry, batch).max())
        return Boxes(
            self.lattice,
            entries,
            self._offers(geometry).priced(batch),
            len(geometry.spots),
            batch.schedule.weights(self.objective, batch.microbatches),
            batch.held(most),
            (longest, float(entries.sync.max())),
            incumbent,
            self.stop,
        )

    def _offers(self, geometry: Geometry) -> Offers:
        """The offers of a geometry; those of the last one are kept."""
        if self._offered is None or self._offered[0] is not geometry:
            self._offered = geometry, Offers.of(geometry)
        return self._offered[1]

    def _dearest(self, geometry: Geometry, batch: Batch) -> Floats:
        """Most that the boundary behind each ideal can cost, (I,)."""
        top = geometry.side[:, :, :, -1].max(axis=(0, 1))
        prices = batch.schedule.crossings * (top[1] + batch.microbatch * self.lattice.cut * top[0])
        prices[0] = 0.0
        return np.asarray(prices)

    def _boxed(
        self,
        geometry: Geometry,
        entries: Entries,
        batch: Batch,
        incumbent: float,
        beam: int,
        label_limit: int,
    ) -> tuple[float, Plan | None]:
        boxes = self._boxes(geometry, entries, batch, incumbent)
        if boxes is None:
            return incumbent, None
        plan = None
        searched = False
        for count, box in enumerate(boxes.open()):
            if beam and count == _BEAM_BOXES:
                break
            searched = True
            boxes.incumbent, found = self._labels(
                geometry, entries, boxes, box, batch, beam, label_limit
            )
            plan = found or plan
        self.stats.searched += searched
        self.stats.tables += boxes.tables
        return boxes.incumbent, plan

    def _labels(
        self,
        geometry: Geometry,
        entries: Entries,
        boxes: Boxes,
        box: Box,
        batch: Batch,
        beam: int,
        label_limit: int,
    ) -> tuple[float, Plan | None]:
        """The best plan of a box that beats the incumbent, or (incumbent, None).

        A plan below the box is priced as at its lower ends.
        """
        self.stats.boxes += 1
        lattice, weights, held = self.lattice, boxes.weights, boxes.held
        bucket, tables = boxes.levels(box)
        rows = len(lattice.blocks.cut_in)
        widths = len(geometry.width)
        dearest = self._dearest(geometry, batch)
        heads = np.full((lattice.ideals, geometry.places + 1, widths), -1, dtype=np.int64)
        ints = np.zeros((_FIRST_LABELS, 6), dtype=np.int64)
        floats = np.zeros((_FIRST_LABELS, 5))
        links = np.full((_FIRST_LABELS, 1), -1, dtype=np.int64)
        ints[0] = (lattice.ideals - 1, geometry.places, -1, -1, -1, 1)
        floats[0] = (0.0, box.time[0], 0.0, box.sync[0], box.bound)
        used, low = 1, 0
        best, best_label = boxes.incumbent, -1
        for k in range(len(held) - 1):
            high = used
            for first in range(low, high, _CHUNK):
                used, best, found, ints, floats, links = expand(
                    first, min(first + _CHUNK, high), used, k, ints, floats, heads, links,
                    lattice.start, lattice.below, lattice.block, lattice.cut, rows,
                    geometry.group_of, geometry.line, geometry.replicas,
                    geometry.unit, geometry.length, geometry.width, geometry.stride,
                    geometry.spot_of, geometry.side, geometry.better, geometry.longest,
                    entries.start, entries.seconds, entries.sync, entries.holds, held[k + 1],
                    tables[bucket[k]], boxes.offers.left, dearest, box.time[1] / CLOSE,
                    box.sync[1] / CLOSE, weights.total, weights.largest, weights.sync,
                    float(batch.microbatch), batch.schedule.crossings, best, batch.stages,
                    label_limit,
                )  # fmt: skip
                if found >= 0:
                    best_label = found
                self.stop()
                if used >= label_limit:
                    raise SearchStopped("memory")
            clear_heads(heads, ints, high, used)
            if beam:
                keep_best(ints, floats, high, used, beam)
            if used == high:
                break
            low = high
        self.stats.labels += used
        if best_label < 0:
            return best, None
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
            grid, mode = entries.choices[entries.choice[entry]]
            stages.append(
                Stage(
                    self.lattice.operators(lower, upper),
                    config_of(grid, mode),
                    geometry.devices(width, place, grid, int(entries.member[entry])),
                )
            )
            label = parent
        schedule = batch.schedule
        return Plan(tuple(stages), batch.replicas, batch.microbatch, schedule.name, schedule.chunks)
