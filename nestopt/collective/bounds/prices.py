"""Bounds from prices on links: work, multicommodity flow, and the degree bound of All-Reduce.

Let every link have a non-negative integer price y per picosecond of its occupancy. Moving a chunk
from its source to its destination costs at least the shortest path under the lengths
y * occupancy, and by time T a link sells at most y * T, less the time before anything can have come
to it, and the time in which nothing that it carries could still get where it must end. So T is at
least the cost of all chunks over the sum of the prices. Any prices give a valid bound; those of the
dual of the multicommodity flow problem give the best of this kind, and rounding them costs quality
but not validity.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds._kernels import FAR, total_distance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.bounds._model import Network
    from nestopt.collective.model.collective import Part

__all__ = ["exact_fluid", "flow_bound", "flow_prices", "price_bound", "time_to_sell", "work_bound"]

_UNICAST = ("all-to-all", "scatter", "gather")
_LP_VARIABLES = 60_000
_PRICE_UNIT = 10**4


def price_bound(net: Network, prices: NDArray[np.int64]) -> dict[str, Any] | None:
    """The bound that integer prices prove; None if they prove nothing or leave int64.

    Parameters
    ----------
    prices : int64[E]
        At least 0.
    """
    dearest = int(prices.max(initial=0))
    if any(dearest * int(net.occupancy(size).max(initial=0)) >= FAR for size in net.sizes):
        return None
    costs = [_part_cost(net, part, prices * net.occupancy(part.chunk_size)) for part in net.parts]
    if None in costs:
        return None
    total = sum(cost or 0 for cost in costs)
    sold = int(prices.sum())
    if total == 0 or sold == 0:
        return None
    sizes = {part.chunk_size for part, cost in zip(net.parts, costs) if cost}
    size = sizes.pop() if len(sizes) == 1 else None
    value = time_to_sell(net, prices, total, size)
    return {
        "kind": "prices",
        "value": value,
        "prices": prices,
        "cost": total,
        "sold": sold,
        "size": size,
        "fluid": Fraction(total, sold),
    }


def time_to_sell(net: Network, prices: NDArray[np.int64], total: int, size: int | None) -> int:
    """Least time by which the links can have sold a total at these prices, ps.

    Parameters
    ----------
    size : int or None
        Bytes of every chunk, if all have the same: a link then sells whole chunks only.
    """
    used = np.flatnonzero(prices)
    lag = net.idle[used]
    if net.instance.latency == "pipelined":
        lag = lag + net.topology.alpha_ps[used]
    whole = None if size is None else net.occupancy(size)[used]
    return _least_time(prices[used], lag, whole, total)


def exact_fluid(net: Network, prices: NDArray[np.int64]) -> Fraction | None:
    """``fluid`` of `price_bound` from the input's own numbers, not from rounded picoseconds.

    None where the numbers are too large for it.
    """
    links = np.flatnonzero(prices)
    total = Fraction(0)
    for part in net.parts:
        exact = [
            int(price) * time
            for price, time in zip(prices[links], net.exact_occupancy(part.chunk_size, links))
        ]
        scale = lcm(*(time.denominator for time in exact))
        whole = [int(time * scale) for time in exact]
        unit = gcd(*whole) or 1
        if max(whole, default=0) // unit >= FAR:
            return None
        length = np.zeros(net.topology.num_links, dtype=np.int64)
        length[links] = [time // unit for time in whole]
        cost = _part_cost(net, part, length)
        if cost is None:
            return None
        total += Fraction(cost * unit, scale)
    return total / int(prices.sum())


def _least_time(
    prices: NDArray[np.int64],
    lag: NDArray[np.int64],
    occupancy: NDArray[np.int64] | None,
    total: int,
) -> int:
    """Least T by which the links can sell `total`; whole chunks only, if `occupancy` is given."""
    rows = list(zip(prices.tolist(), lag.tolist(), [1] * len(lag)))
    if occupancy is not None:
        rows = list(zip(prices.tolist(), lag.tolist(), occupancy.tolist()))
    groups: dict[tuple[int, int], int] = {}
    for price, late, whole in rows:
        groups[late, whole] = groups.get((late, whole), 0) + price

    def sold(moment: int) -> int:
        return sum(
            price * ((moment - late) // whole * whole)
            for (late, whole), price in groups.items()
            if moment > late
        )

    low, high = 0, 1
    while sold(high) < total:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if sold(middle) >= total else (middle, high)
    return high


def _part_cost(net: Network, part: Part, length: NDArray[np.int64]) -> int | None:
    """Least cost of a part under link lengths; None if unreachable or beyond int64."""
    topology = net.topology
    # of an All-Reduce `_unit_cost` prices one chunk, of the others one an NPU (or pair)
    k = part.num_chunks if part.pattern == "all-reduce" else part.chunks_per_npu
    unit = max(1, int(np.gcd.reduce(length)))
    if int(length.max(initial=0)) // unit * topology.num_nodes * len(part.npus) >= FAR:
        return None
    cost = _unit_cost(net, part, length // unit)
    return None if cost is None else k * unit * cost


def _unit_cost(net: Network, part: Part, length: NDArray[np.int64]) -> int | None:
    """`_part_cost` of one chunk an NPU (or pair)."""
    topology = net.topology
    if part.pattern in _UNICAST:
        src, ptr, dst = _demands(part)
        found = total_distance(
            *net.out_links, topology.dst, topology.src, length, (src, ptr, dst), None
        )
        return None if found < 0 else found
    # a switch that neither multicasts nor reduces passes on piece by piece: it is on the way
    ends = np.flatnonzero(topology.multicast | topology.reduces).astype(np.int32)
    before = net.distances_from(ends, length)[topology.src]
    behind = net.distances_to(ends, length)[topology.dst]
    enter = _cheapest(topology.dst, length + before, topology.num_nodes)[part.npus]
    leave = _cheapest(topology.src, length + behind, topology.num_nodes)[part.npus]
    if (enter >= FAR).any() or (leave >= FAR).any():
        return None
    n = len(part.npus)
    # every NPU but the one where the chunk starts (or the sum is formed) takes links of its own
    if part.pattern == "all-gather":
        return (n - 1) * int(enter.sum())
    if part.pattern == "reduce-scatter":
        return (n - 1) * int(leave.sum())
    if part.pattern == "all-reduce":
        both = enter + leave
        return int(both.sum() - both.max())
    root = part.npus == part.root
    return int((enter if part.pattern == "broadcast" else leave)[~root].sum())


def _cheapest(ends: NDArray[np.int32], length: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    cheapest = np.full(nodes, FAR, dtype=np.int64)
    np.minimum.at(cheapest, ends, length)
    return cheapest


def _demands(part: Part) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int32]]:
    """Source, pointer and destination of the pairs of a part, one chunk each."""
    n = len(part.npus)
    if part.pattern == "scatter":
        others = part.npus[part.npus != part.root]
        return np.array([part.root], np.int32), np.array([0, n - 1]), others
    if part.pattern == "gather":
        others = part.npus[part.npus != part.root]
        return others, np.arange(n), np.full(n - 1, part.root, dtype=np.int32)
    grid = np.broadcast_to(part.npus, (n, n))
    return part.npus, np.arange(n + 1) * (n - 1), grid[~np.eye(n, dtype=bool)]


def work_bound(net: Network) -> dict[str, Any] | None:
    """Chunks times shortest distance over total capacity, with distances in hops and in time."""
    best = None
    for prices in _uniform_prices(net):
        found = price_bound(net, prices)
        if found is not None and (best is None or found["value"] > best["value"]):
            best = found
    return best


def _uniform_prices(net: Network) -> list[NDArray[np.int64]]:
    """Prices by which every link costs the same a picosecond, and the same a chunk."""
    ones = np.ones(net.topology.num_links, dtype=np.int64)
    occupancy = net.occupancy(net.sizes[-1]).astype(np.float64)
    a_chunk = occupancy.max() / occupancy
    if a_chunk.max() <= 1.0:
        return [ones]
    exact = np.round(a_chunk)
    scaled = exact if np.allclose(exact, a_chunk, rtol=1e-9) else np.round(a_chunk * 1000)
    return [ones, scaled.astype(np.int64)]


def flow_bound(net: Network, budget: Budget | None = None) -> dict[str, Any] | None:
    """The multicommodity-flow bound: the best prices that are found within the budget.

    The linear program is solved where it is small, else the prices are improved by multiplicative
    weights (a price grows with the load that shortest paths put on its link). All-Reduce has its
    own linear program over the degree bound. Whatever comes out is rounded to integers and priced
    exactly.
    """
    budget = budget or Budget()
    found: list[NDArray[np.int64]] = []
    unicast = [part for part in net.parts if part.pattern in _UNICAST]
    if unicast:
        columns = sum(len(np.unique(part.destinations())) for part in unicast)
        if columns * net.topology.num_links <= _LP_VARIABLES:
            prices = flow_prices(net)
            if prices is not None:
                found += _integer_prices(prices)
        else:
            found += _weighted_prices(net, unicast, budget)
    elif any(part.pattern == "all-reduce" for part in net.parts):
        prices = _degree_prices(net)
        if prices is not None:
            found += _integer_prices(prices)
    best = None
    for candidate in found:
        row = price_bound(net, candidate)
        if row is None:
            continue
        if best is None or (row["value"], row["fluid"]) > (best["value"], best["fluid"]):
            best = row
    return best


def _integer_prices(prices: NDArray[np.float64]) -> list[NDArray[np.int64]]:
    """Integer versions of real prices: as small fractions of the largest, and finely rounded."""
    scaled = np.maximum(prices, 0.0) / prices.max()
    scaled[scaled < 1e-9] = 0.0
    versions = []
    fractions = [Fraction(x).limit_denominator(60) for x in np.unique(scaled)]
    denominator = lcm(*(fraction.denominator for fraction in fractions))
    if denominator <= 10**6:
        table = dict(zip(np.unique(scaled).tolist(), fractions))
        versions.append(np.array([int(table[x] * denominator) for x in scaled.tolist()]))
    versions.append(np.round(scaled * _PRICE_UNIT))
    versions.append(np.round(scaled * _PRICE_UNIT * 100))
    return [version.astype(np.int64) for version in versions]


def flow_prices(net: Network) -> NDArray[np.float64] | None:
    """Dual prices of the multicommodity-flow linear program, commodities by destination.

    minimize T such that for every destination the flow is conserved at every other node, and for
    every link the flows times the occupancy are at most T.

    Returns
    -------
    float64[E] or None
        None if the program has no solution.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    topology = net.topology
    v, e = topology.num_nodes, topology.num_links
    commodities: dict[tuple[int, int], NDArray[np.float64]] = {}
    for part in net.parts:
        if part.pattern not in _UNICAST:
            continue
        for source, target in zip(part.sources().tolist(), part.destinations().tolist()):
            supply = commodities.setdefault((target, part.chunk_size), np.zeros(v))
            supply[source] += 1.0
    unit = float(max(net.occupancy(size).max() for size in net.sizes))
    rows: list[int] = []
    cols: list[int] = []
    vals: list[float] = []
    rhs: list[float] = []
    cap_rows: list[int] = []
    cap_cols: list[int] = []
    cap_vals: list[float] = []
    for index, ((target, size), supply) in enumerate(commodities.items()):
        first = 1 + index * e
        keep = np.flatnonzero(topology.src != target)
        row = np.full(v, -1)
        nodes = np.flatnonzero(np.arange(v) != target)
        row[nodes] = len(rhs) + np.arange(v - 1)
        rows += row[topology.src[keep]].tolist()
        cols += (first + keep).tolist()
        vals += [1.0] * len(keep)
        inner = keep[topology.dst[keep] != target]
        rows += row[topology.dst[inner]].tolist()
        cols += (first + inner).tolist()
        vals += [-1.0] * len(inner)
        rhs += supply[nodes].tolist()
        cap_rows += list(range(e))
        cap_cols += (first + np.arange(e)).tolist()
        cap_vals += (net.occupancy(size) / unit).tolist()
    width = 1 + len(commodities) * e
    cap_rows += list(range(e))
    cap_cols += [0] * e
    cap_vals += [-1.0] * e
    cost = np.zeros(width)
    cost[0] = 1.0
    found = linprog(
        cost,
        A_ub=coo_matrix((cap_vals, (cap_rows, cap_cols)), shape=(e, width)).tocsr(),
        b_ub=np.zeros(e),
        A_eq=coo_matrix((vals, (rows, cols)), shape=(len(rhs), width)).tocsr(),
        b_eq=np.array(rhs),
        method="highs",
    )
    if found.status != 0:
        return None
    prices = -np.asarray(found.ineqlin.marginals)
    return prices if prices.max(initial=0.0) > 0 else None


def _weighted_prices(net: Network, parts: list[Part], budget: Budget) -> list[NDArray[np.int64]]:
    """Prices by multiplicative weights, the best few by exact value."""
    topology = net.topology
    prices = np.ones(topology.num_links)
    demands = [(part, _demands(part)) for part in parts]
    average = np.zeros(topology.num_links)
    best: list[tuple[float, NDArray[np.int64]]] = []
    origins = sum(len(demand[0]) for _, demand in demands)
    cost_a_step = 4e-8 * origins * topology.num_links
    for step in range(int(np.clip(20.0 / cost_a_step, 1, 60))):
        integer = np.maximum(1, np.round(prices / prices.max() * _PRICE_UNIT)).astype(np.int64)
        busy = np.zeros(topology.num_links)
        cost = 0
        for part, demand in demands:
            load = np.zeros(topology.num_links, dtype=np.int64)
            occupancy = net.occupancy(part.chunk_size)
            found = total_distance(
                *net.out_links, topology.dst, topology.src, integer * occupancy, demand, load
            )
            if found < 0:
                return []
            cost += part.chunks_per_npu * found
            busy += part.chunks_per_npu * load * occupancy.astype(float)
        best.append((cost / float(integer.sum()), integer))
        best = sorted(best, key=lambda row: -row[0])[:2]
        average += (busy - average) / (step + 1)
        budget.spend(cost_a_step)
        if budget.used_up():
            break
        prices = np.exp(12.0 * np.minimum(1.0, average / average.max()) - 12.0)
    return [row[1] for row in best]


def _degree_prices(net: Network) -> NDArray[np.float64] | None:
    """Prices that make the degree bound of All-Reduce largest, by a linear program.

    Every NPU but the one where a sum is formed sends at least one partial sum and receives at
    least one copy, each on links of its own up to the next node that multicasts or reduces:
    maximize over prices of sum 1 the sum of the cheapest ways out and in, less those of the
    dearest NPU.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    parts = [part for part in net.parts if part.pattern == "all-reduce"]
    topology = net.topology
    e = topology.num_links
    if e > 20_000:
        return None
    unit = float(net.occupancy(net.sizes[0]).max())
    pure = ~(topology.multicast | topology.reduces)
    crossed = np.flatnonzero(pure)
    cost = np.zeros(e)
    rows: list[int] = []
    cols: list[int] = []
    vals: list[float] = []
    height, width = 0, e
    weights: list[float] = []
    for part in parts:
        occupancy = net.occupancy(part.chunk_size) / unit
        chunks = float(part.num_chunks)
        places = np.concatenate([part.npus, crossed]).tolist()
        enter = {v: width + i for i, v in enumerate(places)}
        leave = {v: width + len(places) + i for i, v in enumerate(places)}
        dearest = width + 2 * len(places)
        width = dearest + 1
        wanted = [-chunks] * len(part.npus) + [0.0] * len(crossed)
        weights += wanted * 2 + [chunks]
        for link, (u, w) in enumerate(zip(topology.src.tolist(), topology.dst.tolist())):
            for way, end, other in ((leave, u, w), (enter, w, u)):
                if end not in way:
                    continue
                rows += [height, height]
                cols += [way[end], link]
                vals += [1.0, -float(occupancy[link])]
                if pure[other]:
                    rows.append(height)
                    cols.append(way[other])
                    vals.append(-1.0)
                height += 1
        for v in part.npus.tolist():
            rows += [height] * 3
            cols += [enter[v], leave[v], dearest]
            vals += [1.0, 1.0, -1.0]
            height += 1
    cost = np.concatenate([cost, weights])
    total = coo_matrix((np.ones(e), (np.zeros(e, int), np.arange(e))), shape=(1, width))
    found = linprog(
        cost,
        A_ub=coo_matrix((vals, (rows, cols)), shape=(height, width)).tocsr(),
        b_ub=np.zeros(height),
        A_eq=total.tocsr(),
        b_eq=np.array([1.0]),
        method="highs",
    )
    if found.status != 0:
        return None
    prices = np.asarray(found.x[:e])
    return prices if prices.max(initial=0.0) > 0 else None
