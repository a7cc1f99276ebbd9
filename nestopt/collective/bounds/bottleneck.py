"""Narrow cuts of a network by minimum cuts: the bottleneck cut, and the least cut between pairs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._kernels import _cut_side, _max_flow

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from nestopt.collective.model.topology import Topology

__all__ = ["Bottleneck", "bottleneck_cut", "pair_cut"]

_CAPACITY = 2**62


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The bottleneck cut of a topology.

    Attributes
    ----------
    ratio : Fraction
        ``1/x* = max |S and NPUs| / B(out of S)``, NPUs per byte/s: an All-Gather of m bytes an NPU
        needs at least ``m * ratio`` seconds.
    inside : bool[num_nodes]
        The set S.
    exact : bool
        Whether every NPU was tried as the one that S leaves out, in exact arithmetic.
    """

    ratio: Fraction
    inside: NDArray[np.bool_]
    exact: bool


class _FlowNetwork:
    """A topology with one arc from a new source node to every NPU of a group."""

    def __init__(self, topology: Topology, npus: NDArray[np.int32]) -> None:
        v = topology.num_nodes
        self.source = v
        tails = np.concatenate([topology.src, np.full(len(npus), v)]).astype(np.int64)
        heads = np.concatenate([topology.dst, npus]).astype(np.int64)
        self.to = np.empty(2 * len(tails), dtype=np.int64)
        self.to[0::2], self.to[1::2] = heads, tails
        start = np.empty_like(self.to)
        start[0::2], start[1::2] = tails, heads
        self.arcs = np.argsort(start, kind="stable")
        self.ptr = np.zeros(v + 2, dtype=np.int64)
        np.cumsum(np.bincount(start, minlength=v + 1), out=self.ptr[1:])
        self.num_links, self.npus = topology.num_links, npus
        self.work = [np.empty(v + 2, dtype=np.int64) for _ in range(4)]
        # what the last minimum cut took, nominally
        self.seconds = 0.0

    def min_cut(
        self, links: NDArray[np.int64], supply: int, source: int, sink: int
    ) -> tuple[int, NDArray[np.bool_]]:
        """Minimum cut between two nodes; `supply` is the capacity of the arcs to the NPUs."""
        residual = np.zeros(len(self.to), dtype=np.int64)
        residual[0 : 2 * self.num_links : 2] = links
        supplies = np.where(self.npus == sink, 0, supply)
        residual[2 * self.num_links :: 2] = supplies
        level, queue, cursor, path = self.work
        nodes = len(self.ptr) - 1
        flow, scanned = _max_flow(
            self.ptr,
            self.arcs,
            self.to,
            residual,
            source,
            sink,
            level[:nodes],
            queue,
            cursor[:nodes],
            path,
        )
        self.seconds = 3e-5 + 4e-9 * (scanned + 2 * len(self.to))
        seen = np.empty(nodes, dtype=np.bool_)
        _cut_side(self.ptr, self.arcs, self.to, residual, source, seen, queue)
        return int(flow), seen[:-1]


def bottleneck_cut(
    topology: Topology,
    npus: NDArray[np.int32] | None = None,
    *,
    capacity: NDArray[np.int64] | None = None,
    sinks: Iterable[int] | None = None,
    budget: Budget | None = None,
) -> Bottleneck:
    """The cut with the most NPUs behind the least bandwidth, as an exact fraction.

    Dinkelbach's method: for a ratio a/b, a minimum cut with capacity b from a source to every NPU
    and a * B on every link finds a set with a larger ratio, or shows that none leaves the sink
    out. Every NPU is the sink once; the ratio only grows.

    Parameters
    ----------
    npus : int32 array, optional
        The group; all NPUs by default.
    capacity : int64[E], optional
        Rates of the links; the bandwidths by default.
    sinks : iterable of int, optional
        NPUs that S must leave out, one at a time; the whole group by default.
    budget : Budget, optional
        Where it is used up, the rest is skipped (and `exact` is False).

    References
    ----------
    W. Dinkelbach, On nonlinear fractional programming, Management Science 13 (1967); the bottleneck
    cut is that of ForestColl (Zhao et al., 2024), section 4.
    """
    budget = budget or Budget()
    group = topology.npus if npus is None else np.asarray(npus, dtype=np.int32)
    rates = topology.bandwidth if capacity is None else capacity
    exact = True
    unit = int(np.gcd.reduce(rates))
    rates = rates // unit
    total = int(rates.sum()) * (len(group) + 1)
    shift = 1
    while total // shift * 2 >= _CAPACITY:
        shift *= 2
    if shift > 1:
        exact = False
        rates = np.maximum(1, rates // shift)
    chosen = list(group.tolist() if sinks is None else sinks)
    into = np.bincount(topology.dst, weights=rates.astype(float), minlength=topology.num_nodes)
    chosen.sort(key=lambda v: (into[v], v))
    network = _FlowNetwork(topology, group)
    inside = np.ones(topology.num_nodes, dtype=np.bool_)
    inside[chosen[0]] = False

    def measure(side: NDArray[np.bool_]) -> tuple[int, int]:
        return int(side[group].sum()), int(rates[side[topology.src] & ~side[topology.dst]].sum())

    a, b = measure(inside)
    for sink in chosen:
        while b > 0:
            if budget.used_up():
                exact = False
                break
            common = gcd(a, b)
            p, q = a // common, b // common
            flow, side = network.min_cut(p * rates, q, network.source, sink)
            budget.spend(network.seconds)
            if flow >= (len(group) - 1) * q:
                break
            inside = side
            a, b = measure(side)
        if b == 0 or budget.used_up():
            break
    full = topology.bandwidth if capacity is None else capacity
    out = int(full[inside[topology.src] & ~inside[topology.dst]].sum())
    ratio = Fraction(a, out) if out else Fraction(_CAPACITY)
    return Bottleneck(ratio, inside, exact)


def pair_cut(
    topology: Topology,
    pairs: Iterable[tuple[int, int]],
    capacity: NDArray[np.int64],
    budget: Budget,
) -> tuple[NDArray[np.bool_] | None, bool]:
    """The source side of the least cut over pairs (source, sink); whether all were tried."""
    network = _FlowNetwork(topology, topology.npus[:0])
    best, side = _CAPACITY, None
    for source, sink in pairs:
        if budget.used_up():
            return side, False
        flow, found = network.min_cut(capacity, 0, source, sink)
        budget.spend(network.seconds)
        if flow < best:
            best, side = flow, found
    return side, True
