"""Skeletons: all of a plan but its devices and modes, and what one may cost at best.

The estimate of a skeleton prices every stage on the best figures that any of some layouts gives its
families, each for itself, on one kind of device and without boundaries. It is no bound, but it puts
the skeletons into a good order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from nestopt.placement.lns.draft import Batch, Draft, Order, Site
from nestopt.placement.lns.layouts import Roles, plain_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nestopt.placement.lns.prices import Prices
    from nestopt.placement.model.grid import Grid

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["Skeleton", "Skeletons"]

_LINES = 3
_ORDERS = 12


@dataclass(frozen=True, slots=True)
class Skeleton:
    """A plan without devices and modes: batch, ends of the stages, their grids."""

    batch: Batch
    ends: tuple[int, ...]
    grids: tuple[Grid, ...]

    @property
    def devices(self) -> int:
        """How many devices it needs."""
        return self.batch.replicas * sum(grid.width for grid in self.grids)

    @classmethod
    def of(cls, draft: Draft) -> Skeleton:
        """The skeleton of a draft."""
        return cls(draft.batch, draft.ends, tuple(site.grid for site in draft.sites))


class Skeletons:
    """The skeletons of an instance: estimates, all of a small space, mutations of one."""

    def __init__(self, prices: Prices, order: Order, rng: np.random.Generator) -> None:
        self.prices, self.order, self.rng = prices, order, rng
        workload, alive = prices.workload, len(prices.alive)
        self.pipelines = prices.space.pipelines(workload)
        self.pairs = prices.space.batches(workload, alive)
        self.grids = prices.space.grids(workload, alive)
        self._ideal: dict[tuple[Grid, int], list[Site]] = {}

    def follow(self, order: Order) -> None:
        """Cut another order of the operators from now on."""
        self.order = order

    # --- estimates -------------------------------------------------------------------------------

    def estimate(self, skeletons: Sequence[Skeleton]) -> Floats:
        """What each may cost at best, inf where it is no plan or fits on no kind of device."""
        values = np.full(len(skeletons), math.inf)
        fitting = [i for i, s in enumerate(skeletons) if s.devices <= len(self.prices.alive)]
        for kind in range(len(self.prices.cluster.types)):
            drafts = []
            for i in fitting:
                s = skeletons[i]
                sites = tuple(self._ideals(grid, s.batch.replicas)[kind] for grid in s.grids)
                drafts.append(Draft(self.order, s.batch, s.ends, sites))
            if drafts:
                values[fitting] = np.minimum(values[fitting], self.prices.price(drafts))
        return values

    def _ideals(self, grid: Grid, d: int) -> list[Site]:
        """A site for each kind of device whose families have the best figures seen anywhere."""
        if (grid, d) not in self._ideal:
            roles = Roles(d, [grid])
            lines = plain_lines(self.prices.cluster, grid.width)[:_LINES]
            layouts = [
                roles.place(order, line)[0].ravel()
                for line in lines
                for order in roles.orders(np.random.default_rng(0), _ORDERS)
            ]
            profile = self.prices.profiles(grid, d, np.stack(layouts)).min(axis=0)
            levels = self.prices.network.group_of.shape[0]
            devices, side = np.zeros((d, grid.width), np.int64), np.zeros((2, levels))
            self._ideal[grid, d] = [
                Site(grid, devices, profile, (kind,), side)
                for kind in range(len(self.prices.cluster.types))
            ]
        return self._ideal[grid, d]

    # --- all of a small space --------------------------------------------------------------------

    def count(self, most: int) -> int:
        """How many skeletons there are, devices enough or not; `most` if no fewer."""
        total = 0
        cuts = len(self.order.operators) - 1
        for d, _ in self.pairs:
            for stages in range(1, min(cuts + 1, len(self.prices.alive) // d) + 1):
                total += math.comb(cuts, stages - 1) * len(self.grids) ** stages
                if total * len(self.pipelines) >= most:
                    return most
        return total * len(self.pipelines)

    def all(self) -> Iterator[Skeleton]:
        """Every skeleton that has devices enough."""
        alive, cuts = len(self.prices.alive), len(self.order.operators) - 1
        for schedule in self.pipelines:
            for d, b in self.pairs:
                m = self.prices.workload.global_batch // (d * b)
                for stages in range(1, min(cuts + 1, alive // d) + 1):
                    if not schedule.suits(m, stages):
                        continue
                    for inner in combinations(range(1, cuts + 1), stages - 1):
                        ends = (*inner, cuts + 1)
                        for grids in self._grids(ends, b, alive // d):
                            yield Skeleton(Batch(d, b, schedule), ends, grids)

    def _grids(self, ends: Sequence[int], b: int, budget: int) -> Iterator[tuple[Grid, ...]]:
        """All grids for stages that end there, within a number of devices."""
        begins = (0, *ends[:-1])

        def extend(q: int, left: int) -> Iterator[tuple[Grid, ...]]:
            if q == len(ends):
                yield ()
                return
            for grid in self.grids:
                if grid.width > left - (len(ends) - q - 1) or b % grid.sample_parts:
                    continue
                if not self.prices.suits(self.order, begins[q], ends[q], grid):
                    continue
                for rest in extend(q + 1, left - grid.width):
                    if not self.prices.space.uniform or not rest or rest[0] == grid:
                        yield (grid, *rest)

        return extend(0, budget)

    # --- at random -------------------------------------------------------------------------------

    def random(self) -> Skeleton | None:
        """A skeleton with one grid for all stages and balanced cuts, at random."""
        if not (self.pairs and self.grids and self.pipelines):
            return None
        alive, units = len(self.prices.alive), len(self.order.operators)
        d, b = self.pairs[self._draw(self.pairs)]
        fitting = [g for g in self.grids if d * g.width <= alive and b % g.sample_parts == 0]
        if not fitting:
            return None
        grid = fitting[self._draw(fitting)]
        schedule = self.pipelines[self._draw(self.pipelines)]
        most = min(alive // (d * grid.width), len(self.units(schedule.chunks)))
        stages = int(self.rng.integers(1, most + 1))
        if self.rng.random() < 0.5:
            # most good plans leave few devices idle
            stages = max(1, most - int(self.rng.integers(2)))
        ends = tuple(int(e) for e in np.linspace(0, units, stages + 1)[1:])
        return self.balanced(Skeleton(Batch(d, b, schedule), ends, (grid,) * stages))

    # --- neighbours of one -----------------------------------------------------------------------

    def mutation(self, s: Skeleton) -> Skeleton | None:
        """A skeleton near another, at random; None if the one drawn has too few devices."""
        changes = (
            self._other_batch, self._other_grid, self._other_grid, self._split, self._merge,
            self._moved_cut, self._other_schedule, self._regular,
        )  # fmt: skip
        for _ in range(1 + int(self.rng.random() < 0.4)):
            changed = changes[int(self.rng.integers(len(changes)))](s)
            if changed is None:
                return None
            s = changed
        return s if s.devices <= len(self.prices.alive) else self._shrunk(s)

    def _draw(self, rows: Sequence[object]) -> int:
        return int(self.rng.integers(len(rows)))

    def _other_batch(self, s: Skeleton) -> Skeleton:
        """Other replicas or another micro-batch; near ones more often."""
        d, b, schedule = s.batch
        far = np.array([abs(math.log2(x / d)) + abs(math.log2(y / b)) for x, y in self.pairs])
        chance = np.exp2(-far) * (far > 0) + 1e-9
        chosen = int(self.rng.choice(len(self.pairs), p=chance / chance.sum()))
        found = replace(s, batch=Batch(*self.pairs[chosen], schedule))
        if self.rng.random() < 0.7:
            # as many devices as before, if degrees allow it
            ratio = d / found.batch.replicas
            grids = tuple(self._nearest(grid, grid.width * ratio) for grid in s.grids)
            found = replace(found, grids=grids)
        return self.balanced(found) if self.rng.random() < 0.5 else found

    def _nearest(self, grid: Grid, width: float) -> Grid:
        """A grid of about a width, as much like another as may be."""

        def far(other: Grid) -> tuple[float, int]:
            unlike = sum(a != b for a, b in zip(grid, other, strict=True))
            return abs(math.log2(other.width / width)), unlike

        return min(self.grids, key=far)

    def _other_grid(self, s: Skeleton) -> Skeleton:
        """Another grid for one stage, for all, or for those of the same grid."""
        grid = self.grids[self._draw(self.grids)]
        q = self._draw(s.grids)
        which = self.rng.random()
        if self.prices.space.uniform or which < 0.3:
            grids = (grid,) * len(s.grids)
        elif which < 0.5:
            grids = tuple(grid if old == s.grids[q] else old for old in s.grids)
        else:
            grids = (*s.grids[:q], grid, *s.grids[q + 1 :])
        found = replace(s, grids=grids)
        return self.balanced(found) if self.rng.random() < 0.5 else found

    def _split(self, s: Skeleton) -> Skeleton | None:
        begins = (0, *s.ends[:-1])
        q = self._draw(s.grids)
        if s.ends[q] - begins[q] < 2:
            return None
        cut = int(self.rng.integers(begins[q] + 1, s.ends[q]))
        grid = s.grids[q]
        halves = (grid, grid)
        if not self.prices.space.uniform and self.rng.random() < 0.5:
            half = self._nearest(grid, max(1.0, grid.width / 2))
            halves = (half, half)
        found = replace(
            s,
            ends=(*s.ends[:q], cut, *s.ends[q:]),
            grids=(*s.grids[:q], *halves, *s.grids[q + 1 :]),
        )
        return self.balanced(found) if self.rng.random() < 0.5 else found

    def _merge(self, s: Skeleton) -> Skeleton | None:
        if len(s.grids) < 2:
            return None
        q = int(self.rng.integers(len(s.grids) - 1))
        first, second = s.grids[q], s.grids[q + 1]
        grid = first if self.rng.random() < 0.5 else second
        if not self.prices.space.uniform and self.rng.random() < 0.5:
            grid = self._nearest(grid, first.width + second.width)
        found = replace(
            s, ends=(*s.ends[:q], *s.ends[q + 1 :]), grids=(*s.grids[:q], grid, *s.grids[q + 2 :])
        )
        return self.balanced(found) if self.rng.random() < 0.5 else found

    def _moved_cut(self, s: Skeleton) -> Skeleton | None:
        if len(s.ends) < 2:
            return None
        if self.rng.random() < 0.3:
            return self.balanced(s)
        q = int(self.rng.integers(len(s.ends) - 1))
        low = s.ends[q - 1] + 1 if q else 1
        if s.ends[q + 1] <= low:
            return None
        cut = int(self.rng.integers(low, s.ends[q + 1]))
        return replace(s, ends=(*s.ends[:q], cut, *s.ends[q + 1 :]))

    def _other_schedule(self, s: Skeleton) -> Skeleton:
        schedule = self.pipelines[self._draw(self.pipelines)]
        return self.balanced(replace(s, batch=s.batch._replace(schedule=schedule)))

    def _regular(self, s: Skeleton) -> Skeleton | None:
        """Equal grids, and about as many stages as there are devices for."""
        d = s.batch.replicas
        grid = s.grids[self._draw(s.grids)]
        most = min(len(self.prices.alive) // (d * grid.width), len(self.order.operators))
        if most < 1:
            return None
        low = 1 if self.rng.random() < 0.5 else max(1, most - 2)
        stages = int(self.rng.integers(low, most + 1))
        ends = tuple(int(e) for e in np.linspace(0, len(self.order.operators), stages + 1)[1:])
        return self.balanced(Skeleton(s.batch, ends, (grid,) * stages))

    def _shrunk(self, s: Skeleton) -> Skeleton | None:
        """Narrower stages until there are devices enough."""
        grids = list(s.grids)
        for _ in range(4 * len(grids)):
            need = s.batch.replicas * sum(grid.width for grid in grids)
            if need <= len(self.prices.alive):
                return replace(s, grids=tuple(grids))
            q = int(np.argmax([grid.width * self.rng.random() for grid in grids]))
            smaller = self._nearest(grids[q], max(1.0, grids[q].width / 2))
            grids = [smaller] * len(grids) if self.prices.space.uniform else grids
            grids[q] = smaller
        return None

    def balanced(self, s: Skeleton) -> Skeleton:
        """The same with the cuts that make the slowest stage fastest, as far as estimates go."""
        d, b, schedule = s.batch
        order, count = self.order, len(self.order.operators)
        stages = len(s.grids)
        units = self.units(schedule.chunks)
        if d * max(grid.width for grid in s.grids) > len(self.prices.alive):
            return s
        if stages > len(units) or any(b % grid.sample_parts for grid in s.grids):
            return s
        each: dict[Grid, Floats] = {}
        for grid in set(s.grids):
            site = self._ideals(grid, d)[0]
            rates = self.prices.rates(self.prices.group(site, s.batch), site.profile)
            kinds = np.diff(order.counts, axis=0) @ rates.min(axis=1)
            each[grid] = np.concatenate([[0.0], np.cumsum(kinds)])[[*units, count]]
        ends = _balance(np.stack([each[grid] for grid in s.grids]))
        places = [*units, count]
        return replace(s, ends=tuple(places[int(end)] for end in ends))

    def units(self, chunks: int) -> list[int]:
        """First places of what stays together: as many of a repeated kind as chunks."""
        kinds = np.diff(self.order.counts, axis=0).argmax(axis=1).tolist()
        begins = [0]
        for place, kind in enumerate(kinds):
            begin = begins[-1]
            if place > begin and (kind != kinds[begin] or place - begin == chunks):
                begins.append(place)
        return begins


@njit(cache=True, nogil=True)
def _balance(before: Floats) -> Ints:
    """Ends of the split with the least slowest part, where parts have speeds of their own.

    Parameters
    ----------
    before : float array (s, n + 1)
        What the first i units take in each part; s is at most n.
    """
    stages, width = before.shape
    count = width - 1
    best = np.full((stages + 1, width), np.inf)
    begin = np.zeros((stages + 1, width), np.int64)
    best[0, 0] = 0.0
    for q in range(stages):
        row = before[q]
        for end in range(q + 1, count - (stages - q - 1) + 1):
            # the earlier parts' time rises with where this one begins, and its own falls
            for start in range(end - 1, q - 1, -1):
                own = row[end] - row[start]
                value = max(best[q, start], own)
                if value < best[q + 1, end]:
                    best[q + 1, end] = value
                    begin[q + 1, end] = start
                if own >= best[q + 1, end]:
                    break
    ends = np.zeros(stages, np.int64)
    end = count
    for q in range(stages, 0, -1):
        ends[q - 1] = end
        end = begin[q, end]
    return ends
