"""Bounds that count the chunks that must cross a cut: ingress, egress, bottleneck."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._kernels import FAR, earliest_time, ingress_times
from nestopt.collective.bounds._model import Network, crossing
from nestopt.collective.bounds.bottleneck import bottleneck_cut, pair_cut

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.topology import Topology

__all__ = ["best_cut", "candidates", "cut_bound", "fiedler_order", "ingress_bound"]

_PS = 10**12


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
            exact = net.exact_occupancy(size, links[usable])
            rate = sum((1 / o for o in exact), Fraction(0))
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
                rate = sum((1 / o for o in net.exact_occupancy(size, here)), Fraction(0))
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
        "all-reduce": part.num_chunks,
        "reduce-scatter": k,
        "broadcast": k,
        "scatter": k,
    }[part.pattern]
    return targets, np.full(len(targets), count, dtype=np.int64)


def _arrivals(net: Network, part: Part, v: int) -> list[tuple[int, int]]:
    """Thresholds d and how many chunks cannot have entered v before d."""
    k = part.chunks_per_npu
    far = net.distances_to(np.array([v], np.int32), net.transfer(part.chunk_size))
    if part.pattern in ("broadcast", "scatter"):
        return [(int(far[part.root]), k)]
    others = np.sort(far[part.npus[part.npus != v]])[::-1]
    if part.pattern in ("reduce", "reduce-scatter", "all-reduce"):
        # the last message of every sum brings the farthest contribution
        return [(int(others[0]), part.num_chunks if part.pattern == "all-reduce" else k)]
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
        side, complete = pair_cut(topology, pairs, capacity, budget)
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
    return fiedler_order(topology.num_nodes, topology.src, topology.dst, capacity)


def fiedler_order(
    nodes: int, src: NDArray[Any], dst: NDArray[Any], capacity: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Nodes by the second eigenvector of the Laplacian of a network with at least one link."""
    weight = np.zeros((nodes, nodes))
    np.add.at(weight, (src, dst), capacity / capacity.max())
    weight = weight + weight.T
    _, vectors = np.linalg.eigh(np.diag(weight.sum(axis=1)) - weight)
    return np.argsort(vectors[:, 1], kind="stable")
