"""Costs of all possible stages of Piper's problem, computed when first asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nestopt.placement.model.ideals import enumerate_ideals

if TYPE_CHECKING:
    from nestopt.placement.model.ideals import IdealLattice
    from nestopt.placement.partitioning.piper.model import PiperProblem

__all__ = ["StageCosts"]

# (memory, time, variants of the layers in the order in which they are removed)
_Label = tuple[float, float, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Total:
    """Sums over a stage's layers at a tensor degree.

    Bytes over cut edges (one way) and of parameters; time and memory with the fastest variants;
    a lower bound on the memory with any.
    """

    moved: float
    parameters: float
    fast_time: float
    fast_stored: float
    fast_fixed: float
    least_stored: float
    least_fixed: float


class StageCosts:
    """Least time of each difference of two nested ideals, for each shape and depth.

    Ideals are numbered as in `lattice`, layers by their position in the problem. A pair
    (upper, lower) stands for the stage of the layers in `upper` but not in `lower`.
    """

    def __init__(self, problem: PiperProblem, *, limit: int) -> None:
        self.problem = problem
        position = {layer.id: i for i, layer in enumerate(problem.layers)}
        before: list[list[int]] = [[] for _ in problem.layers]
        for u, v, _ in problem.edges:
            before[position[v]].append(position[u])
        self.lattice: IdealLattice = enumerate_ideals(before, limit=limit)
        self.degrees = sorted(set.intersection(*(set(x.variants) for x in problem.layers)))
        self.below: list[list[int]] = [[] for _ in range(len(self.lattice))]
        # How each pair comes from a smaller one: by removing one more layer
        self._step: dict[tuple[int, int], tuple[int, int]] = {}
        self._walk()
        self._labels: dict[tuple[int, int, int, int], list[_Label]] = {}
        self._totals: dict[tuple[int, int, int], _Total] = {}

    def _walk(self) -> None:
        """All pairs, each reached once by removing layers in decreasing rank."""
        lattice = self.lattice
        for upper in range(len(lattice)):
            stack = [(upper, len(lattice.rank))]
            while stack:
                here, top = stack.pop()
                for e in range(lattice.cover_start[here], lattice.cover_start[here + 1]):
                    layer = int(lattice.cover_vertex[e])
                    rank = int(lattice.rank[layer])
                    if rank < top:
                        lower = int(lattice.cover_below[e])
                        self._step[upper, lower] = (here, layer)
                        self.below[upper].append(lower)
                        stack.append((lower, rank))

    def layers(self, upper: int, lower: int) -> list[int]:
        """Positions of a stage's layers, in the order in which they are removed."""
        removed: list[int] = []
        while lower != upper:
            lower, layer = self._step[upper, lower]
            removed.append(layer)
        return removed[::-1]

    def labels(self, upper: int, lower: int, tensor: int, in_flight: int) -> list[_Label]:
        """Pareto-optimal choices of variants: less memory, or less time; within the memory."""
        if upper == lower:
            return [(0.0, 0.0, ())]
        key = (upper, lower, tensor, in_flight)
        known = self._labels.get(key)
        if known is not None:
            return known
        middle, layer = self._step[upper, lower]
        limit = self.problem.memory
        options = [
            (v.stored * in_flight + v.fixed, v.time, k)
            for k, v in enumerate(self.problem.layers[layer].variants[tensor])
        ]
        joined = sorted(
            (memory + more, time + longer, (*chosen, k))
            for memory, time, chosen in self.labels(upper, middle, tensor, in_flight)
            for more, longer, k in options
            if memory + more <= limit
        )
        kept: list[_Label] = []
        for label in joined:
            if not kept or label[1] < kept[-1][1]:
                kept.append(label)
        self._labels[key] = kept
        return kept

    def time(self, upper: int, lower: int, tensor: int, data: int, in_flight: int) -> float:
        """Least seconds per sample of a stage; inf if it does not fit."""
        total = self._total(upper, lower, tensor)
        memory = self.problem.memory
        if total.fast_stored * in_flight + total.fast_fixed <= memory:
            compute = total.fast_time
        elif total.least_stored * in_flight + total.least_fixed > memory:
            return math.inf
        else:
            labels = self.labels(upper, lower, tensor, in_flight)
            if not labels:
                return math.inf
            compute = labels[-1][1]
        return (compute + self._overhead(total, data)) / data

    def least_time(self, upper: int, lower: int, tensor: int, data: int) -> float:
        """Lower bound on `time` for any number of samples in flight: memory left aside."""
        total = self._total(upper, lower, tensor)
        return (total.fast_time + self._overhead(total, data)) / data

    def _overhead(self, total: _Total, data: int) -> float:
        """Transfers and parameter exchange, seconds, times the data degree."""
        problem = self.problem
        exchange = 4 * (data - 1) * total.parameters / problem.micro_batches
        return (2 * total.moved + exchange) / problem.bandwidth

    def _total(self, upper: int, lower: int, tensor: int) -> _Total:
        key = (upper, lower, tensor)
        known = self._totals.get(key)
        if known is not None:
            return known
        inside = {i.id: i for i in (self.problem.layers[k] for k in self.layers(upper, lower))}
        moved = 0.0
        for u, v, size in self.problem.edges:
            if u not in inside and v in inside:
                moved += size + inside[v].reshard_in[tensor].get(u, 0.0)
            elif u in inside and v not in inside:
                moved += size + inside[u].reshard_out[tensor].get(v, 0.0)
        rows = [layer.variants[tensor] for layer in inside.values()]
        fast = [min(row, key=lambda v: (v.time, v.stored)) for row in rows]
        known = _Total(
            moved=moved,
            parameters=sum(layer.parameters[tensor] for layer in inside.values()),
            fast_time=sum(v.time for v in fast),
            fast_stored=sum(v.stored for v in fast),
            fast_fixed=sum(v.fixed for v in fast),
            least_stored=sum(min(v.stored for v in row) for row in rows),
            least_fixed=sum(min(v.fixed for v in row) for row in rows),
        )
        self._totals[key] = known
        return known
