"""Bounds that count the chunks that must cross a cut: ingress, egress, bottleneck."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._kernels import (
    FAR,
    _cut_side,
    _max_flow,
    earliest_time,
    ingress_times,
)
from nestopt.collective.bounds._model import Network, crossing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from nestopt.collective.collective import Part
    from nestopt.collective.topology import Topology

__all__ = ["Bottleneck", "best_cut", "bottleneck_cut", "cut_bound", "ingress_bound"]

_CAPACITY = 2**62
_PS = 10**12


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


def _pair_cut(
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


def cut_bound(net: Network, inside: NDArray[np.bool_]) -> dict[str, Any] | None:
    """The bound of one cut: chunks that must leave `inside`, counted on the links that do.

    Link e can deliver its first chunk at head(e) + transfer(e), where head(e) is the earliest time
    at which anything can be at its source, and one more every occupancy(e). Chunks of different
    sizes are counted size by size, and together as bytes at the full bandwidth.
    """
    topology = net.topology
    links = np.flatnonzero(inside[topology.src] & ~inside[topology.dst])
    needs = {part: crossing(part, inside) for part in net.parts}
    if not any(needs.values()):
        return None
    active = [part for part in net.parts if needs[part]]
    heads = {part: net.heads(part)[topology.src[links]] for part in active}
    if not all((head < FAR).any() for head in heads.values()):
        return None
    best: dict[str, Any] = {"value": -1}
    for size in sorted({part.chunk_size for part in active}):
        same = [part for part in active if part.chunk_size == size]
        head = np.min([heads[part] for part in same], axis=0)
        usable = head < FAR
        release = head[usable] + net.transfer(size)[links[usable]]
        occupancy = net.occupancy(size)[links[usable]]
        need = sum(needs[part] for part in same)
        value = earliest_time(release, occupancy, need)
        if value > best["value"]:
            rate = sum((Fraction(1, int(o)) for o in occupancy), Fraction(0))
            best = {"value": value, "mode": "chunks", "size": size, "need": need}
            best["fluid"] = need / rate
    if len({part.chunk_size for part in active}) > 1:
        head = np.min([heads[part] for part in active], axis=0)
        usable = links[head < FAR]
        lag = head[head < FAR] + topology.alpha_ps[usable]
        need = sum(needs[part] * part.chunk_size for part in active)
        value = _earliest_bytes(lag, topology.bandwidth[usable], need)
        if value > best["value"]:
            best = {"value": value, "mode": "bytes", "need": need}
            best["fluid"] = Fraction(need * _PS, int(topology.bandwidth[usable].sum()))
    return best | {"kind": "cut", "inside": inside, "links": links}


def _earliest_bytes(lag: NDArray[np.int64], rate: NDArray[np.int64], need: int) -> int:
    """Least T with sum of rate * (T - lag) over links, where positive, at least need * 10**12."""
    order = np.argsort(lag, kind="stable")
    total, offset, best = 0, 0, FAR
    for i in order.tolist():
        total += int(rate[i])
        offset += int(rate[i]) * int(lag[i])
        best = min(best, -(-(need * _PS + offset) // total))
    return best


def ingress_bound(net: Network, budget: Budget | None = None) -> dict[str, Any] | None:
    """The best cut that shuts in one NPU, with the distances of what must get in.

    For every threshold d, the chunks that come from distance d or more cannot arrive before d, so
    the links into the NPU deliver them from d on only.
    """
    topology, budget = net.topology, budget or Budget()
    best: dict[str, Any] | None = None
    for part in net.parts:
        targets, need = _needs(part)
        if len(targets) == 0:
            continue
        head = net.heads(part)
        size = part.chunk_size
        release = head[topology.src] + net.transfer(size)
        release[head[topology.src] >= FAR] = FAR
        occupancy = net.occupancy(size)
        plain = ingress_times(*net.in_links, release, occupancy, targets, need)
        ptr, links = net.in_links
        affordable = len(targets) if len(targets) * topology.num_links <= 10**8 else 16
        order = np.argsort(-plain, kind="stable")
        for rank, index in enumerate(order.tolist()):
            v = int(targets[index])
            row = {"value": int(plain[index]), "threshold": 0, "need": int(need[index])}
            here = links[ptr[v] : ptr[v + 1]]
            if rank < affordable and not budget.used_up():
                arrivals = _arrivals(net, part, v)
                budget.spend(5e-8 * topology.num_links + 3e-6 * len(arrivals))
                for threshold, count in arrivals:
                    late = np.maximum(release[here], threshold)
                    value = earliest_time(late, occupancy[here], count)
                    if value > row["value"]:
                        row = {"value": value, "threshold": threshold, "need": count}
            elif best is not None:
                break
            if best is None or row["value"] > best["value"]:
                rate = sum((Fraction(1, int(o)) for o in occupancy[here]), Fraction(0))
                inside = np.ones(topology.num_nodes, dtype=np.bool_)
                inside[v] = False
                best = row | {
                    "kind": "cut",
                    "mode": "chunks",
                    "inside": inside,
                    "links": np.sort(here),
                    "node": v,
                    "size": size,
                    "part": net.instance.collective.parts.index(part),
                    "fluid": int(need[index]) / rate if rate else Fraction(0),
                }
    return best


def _needs(part: Part) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """NPUs that something must enter, and how many chunks at least."""
    n, k = len(part.npus), part.chunks_per_npu
    if part.pattern in ("reduce", "gather"):
        count = k if part.pattern == "reduce" else k * (n - 1)
        return np.array([part.root], dtype=np.int32), np.array([count], dtype=np.int64)
    targets = part.npus
    if part.root is not None:
        targets = targets[targets != part.root]
    count = {
        "all-gather": k * (n - 1),
        "all-to-all": k * (n - 1),
        "all-reduce": k * n,
        "reduce-scatter": k,
        "broadcast": k,
        "scatter": k,
    }[part.pattern]
    return targets, np.full(len(targets), count, dtype=np.int64)


def _arrivals(net: Network, part: Part, v: int) -> list[tuple[int, int]]:
    """Thresholds d and how many chunks cannot have entered v before d."""
    k, n = part.chunks_per_npu, len(part.npus)
    far = net.distances_to(np.array([v], np.int32), net.transfer(part.chunk_size))
    if part.pattern in ("broadcast", "scatter"):
        return [(int(far[part.root]), k)]
    others = np.sort(far[part.npus[part.npus != v]])[::-1]
    if part.pattern in ("reduce", "reduce-scatter", "all-reduce"):
        # the last message of every sum brings the farthest contribution
        return [(int(others[0]), k * n if part.pattern == "all-reduce" else k)]
    last = np.flatnonzero(np.diff(others, append=-1))
    return [(int(others[i]), k * (int(i) + 1)) for i in last]


def best_cut(net: Network, budget: Budget | None = None) -> dict[str, Any] | None:
    """The best bound over cuts found by minimum cuts, for each part by its own ratio.

    All-Gather and Gather: Dinkelbach's method, exact; Broadcast and All-Reduce: minimum cuts
    between pairs, exact; All-to-All: sweeps over orders of the nodes. Reductions and Scatter are
    found on the time-reversed instance. Every set that is found is priced for all parts together.
    """
    topology, budget = net.topology, budget or Budget()
    best: dict[str, Any] | None = None
    exact = True
    for part in net.parts:
        rates = [topology.bandwidth]
        occupancy = net.occupancy(part.chunk_size)
        if topology.alpha_ps.any():
            # where the latency counts, links are slower than their bandwidth says
            rates.append(np.maximum(1, min(10**15, 2**58 // len(occupancy)) // occupancy))
        for capacity in rates:
            sets, complete = candidates(topology, part, capacity, budget)
            exact &= complete
            for inside in sets:
                found = cut_bound(net, inside)
                if found is not None and (best is None or found["value"] > best["value"]):
                    best = found
    if best is not None:
        best["exact"] = exact
    return best


def candidates(
    topology: Topology, part: Part, capacity: NDArray[np.int64], budget: Budget
) -> tuple[list[NDArray[np.bool_]], bool]:
    """Sets whose cuts may be narrow for a part, at given rates; whether all were tried."""
    if part.pattern in ("all-gather", "gather"):
        sinks = None if part.root is None else [part.root]
        found = bottleneck_cut(topology, part.npus, capacity=capacity, sinks=sinks, budget=budget)
        return [found.inside], found.exact
    if part.pattern in ("broadcast", "all-reduce"):
        hub = int(part.npus[0] if part.root is None else part.root)
        pairs = [(hub, int(v)) for v in part.npus if v != hub]
        side, complete = _pair_cut(topology, pairs, capacity, budget)
        return [] if side is None else [side], complete
    if part.pattern == "all-to-all":
        return _sweeps(topology, part, capacity), False
    return [], True


def _sweeps(topology: Topology, part: Part, capacity: NDArray[np.int64]) -> list[NDArray[np.bool_]]:
    """Best prefix of a few orders of the nodes, by pairs separated per rate of the cut."""
    member = np.zeros(topology.num_nodes, dtype=np.int64)
    member[part.npus] = 1
    orders = [np.arange(topology.num_nodes)]
    spectral = _fiedler_order(topology, capacity)
    if spectral is not None:
        orders.append(spectral)
    sets = []
    for order in orders:
        position = np.empty(topology.num_nodes, dtype=np.int64)
        position[order] = np.arange(topology.num_nodes)
        start, end = position[topology.src], position[topology.dst]
        change = np.zeros(topology.num_nodes + 1)
        forward = start < end
        np.add.at(change, start[forward], capacity[forward])
        np.add.at(change, end[forward], -capacity[forward])
        rate = np.cumsum(change)[: topology.num_nodes]
        here = np.cumsum(member[order])
        pairs = here * (len(part.npus) - here)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(pairs > 0, pairs / rate, -1.0)
        inside = np.zeros(topology.num_nodes, dtype=np.bool_)
        inside[order[: int(np.argmax(ratio)) + 1]] = True
        sets.append(inside)
    return sets


def _fiedler_order(topology: Topology, capacity: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Nodes by the second eigenvector of the Laplacian; None where that is not affordable."""
    if not 3 <= topology.num_nodes <= 1500:
        return None
    weight = np.zeros((topology.num_nodes, topology.num_nodes))
    np.add.at(weight, (topology.src, topology.dst), capacity / capacity.max())
    weight = weight + weight.T
    _, vectors = np.linalg.eigh(np.diag(weight.sum(axis=1)) - weight)
    return np.argsort(vectors[:, 1], kind="stable")
