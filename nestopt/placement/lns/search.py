"""The loop: from a few good drafts through neighbourhoods to better ones.

First every skeleton of a small space (or a sample of a large one) gets its estimate, and the most
promising ones their best layout among a few. Then, round by round, a draft of the pool is taken and
one of its neighbourhoods priced; the best candidate replaces it if it is better, or seldom if it is
only a little worse. Neighbourhoods that have led to better plans are taken more often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.core.stop import check
from nestopt.placement.lns.draft import Draft, Order, shuffled
from nestopt.placement.lns.moves import Moves
from nestopt.placement.lns.skeletons import Skeleton, Skeletons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nestopt.placement.lns.prices import Prices

__all__ = ["Pool", "Search"]

_POOL = 8
_MOST_SKELETONS = 20_000
"""A space of fewer is surveyed whole."""
_DRAWN = 2000
_ORDERS = 8
"""Skeletons, and orders of a graph's operators, that stand for those of a larger space."""
_CHUNK = 128
_SMALL = 64
"""Devices up to which a skeleton is laid out in every way that `Moves.built` knows."""
_PATIENCE = 30
"""Rounds without a better draft until another one of the pool is taken."""
_WORSE = (0.0, 0.0, 0.003, 0.01, 0.03)
"""By how much a draft may be worse than the one that it replaces; one of these is drawn."""
_CLOSE = 1.0 - 1e-9


class _Row(NamedTuple):
    """A skeleton of the survey; ascending by estimate."""

    estimate: float
    number: int
    skeleton: Skeleton
    order: Order


@dataclass(slots=True)
class Pool:
    """The best drafts, one of each skeleton; ascending by value."""

    rows: list[tuple[float, Draft]] = field(default_factory=list)

    @property
    def best(self) -> float:
        """The least value."""
        return self.rows[0][0] if self.rows else math.inf

    def add(self, value: float, draft: Draft) -> None:
        """Keep a draft if it is among the best, or the best of its skeleton."""
        if not math.isfinite(value):
            return
        mine = Skeleton.of(draft)
        for index, (other, held) in enumerate(self.rows):
            if Skeleton.of(held) == mine:
                if other <= value:
                    return
                del self.rows[index]
                break
        self.rows.append((value, draft))
        self.rows.sort(key=lambda row: row[0])
        del self.rows[_POOL:]


class Search:
    """A search from some drafts.

    Parameters
    ----------
    prices : Prices
    order : Order
        Of the operators; that of the start.
    rng : numpy.random.Generator
    better : callable
        ``better(draft)`` for every draft below `goal` so far; whether it stood the evaluator.
    """

    def __init__(
        self,
        prices: Prices,
        order: Order,
        rng: np.random.Generator,
        better: Callable[[Draft, float], None],
    ) -> None:
        self.prices, self.rng, self.better = prices, rng, better
        self.skeletons = Skeletons(prices, order, rng)
        self.moves = Moves(prices, self.skeletons, rng)
        self.pool = Pool()
        self.rounds = 0
        self.priced = 0

    def offer(self, value: float, draft: Draft) -> None:
        """Tell a draft; the pool and whoever waits for better ones take note."""
        if value < self.pool.best * _CLOSE:
            self.better(draft, value)
        self.pool.add(value, draft)

    # --- first drafts ----------------------------------------------------------------------------

    def survey(self, most: int) -> Iterator[None]:
        """Build the skeletons of the least estimates, `most` of them; yields now and then."""
        rows: list[_Row] = []
        for order in self._orders():
            self.skeletons.follow(order)
            skeletons = self._sample()
            while batch := list(islice(skeletons, _CHUNK)):
                check()
                for skeleton, value in zip(
                    batch, self.skeletons.estimate(batch).tolist(), strict=True
                ):
                    if value < self.pool.best:
                        rows.append(_Row(value, len(rows), skeleton, order))
                yield
        for row in sorted(rows)[:most]:
            if row.estimate >= self.pool.best:
                break
            self._build(row.skeleton, row.order)
            yield

    def _build(self, skeleton: Skeleton, order: Order) -> None:
        self.skeletons.follow(order)
        draft, value = self.moves.built(skeleton, few=len(self.prices.alive) > _SMALL)
        self.priced += 1
        if draft is not None:
            self.offer(value, draft)

    def _orders(self) -> list[Order]:
        """The start's order; of a graph, some others at random."""
        workload, first = self.prices.workload, self.skeletons.order
        found = {first.operators: first}
        if not workload.is_chain:
            for _ in range(_ORDERS - 1):
                mixed = shuffled(workload, first.operators, self.rng)
                found.setdefault(mixed, Order(workload, self.prices.costs, mixed))
        return list(found.values())

    def _sample(self) -> Iterator[Skeleton]:
        """All skeletons of a small space; of a large one some around the best, and regular ones."""
        if self.skeletons.count(_MOST_SKELETONS) < _MOST_SKELETONS:
            yield from self.skeletons.all()
            return
        seen: set[Skeleton] = set()
        for index in range(_DRAWN):
            if index % 2 and self.pool.rows:
                drawn = self.skeletons.mutation(Skeleton.of(self.pool.rows[0][1]))
            else:
                drawn = self.skeletons.random()
            if drawn is not None and drawn not in seen:
                seen.add(drawn)
                yield drawn

    # --- rounds ----------------------------------------------------------------------------------

    def improve(self, rounds: int) -> Iterator[None]:
        """Rounds from the pool; yields after each."""
        while self.rounds < rounds and not self.pool.rows:
            # nothing has fitted yet
            self.rounds += 1
            drawn = self.skeletons.random()
            if drawn is not None:
                self._build(drawn, self.skeletons.order)
            yield
        if not self.pool.rows:
            return
        moves = self.moves.all
        weights = np.ones(len(moves))
        current, value, idle = self._pick()
        while self.rounds < rounds:
            self.rounds += 1
            chance = weights / weights.sum()
            which = int(self.rng.choice(len(moves), p=chance))
            drafts = moves[which][1](current)
            weights[which] = max(0.25, 0.97 * weights[which])
            idle += 1
            if drafts:
                found = self.prices.price(drafts)
                self.priced += len(drafts)
                best = int(np.argmin(found))
                if found[best] < value * _CLOSE:
                    idle = 0
                    weights[which] = min(6.0, weights[which] + 0.5)
                margin = _WORSE[int(self.rng.integers(len(_WORSE)))]
                if found[best] < value * (1.0 + margin):
                    current, value = drafts[best], float(found[best])
                    self.offer(value, current)
            if idle > _PATIENCE:
                current, value, idle = self._pick()
            yield

    def _pick(self) -> tuple[Draft, float, int]:
        """A draft of the pool; the better ones more often."""
        last = len(self.pool.rows) - 1
        index = min(int(self.rng.geometric(0.35)) - 1, last)
        value, draft = self.pool.rows[index]
        return draft, value, 0
