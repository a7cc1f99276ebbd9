"""Spanning out-trees at the best rate that the network's cuts allow, in exact whole numbers.

The rate is that of the bottleneck cut: no schedule brings more, since every set of NPUs must send
all its data out. Trees that reach it are found in three steps: capacities are scaled to whole
numbers, so that every root has a whole number of trees; switches are split off, arc pair by arc
pair, with no cut getting narrower than it must be; the arcs between NPUs that remain are packed
with trees. Every arc remembers the links that it stands for.

References
----------
L. Zhao et al., "ForestColl: Throughput-Optimal Collective Communications on Heterogeneous Network
Fabrics", 2024. J. Edmonds, "Edge-disjoint branchings", 1973. K. Berczi, A. Frank, "Packing
arborescences", 2010.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.bounds._budget import Budget
from nestopt.collective.bounds.bottleneck import bottleneck_cut, pair_cut
from nestopt.collective.trees.kernels import feasible, pack, split_off, workspace
from nestopt.core.errors import SolverError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.topology import Topology

__all__ = ["SHAPES", "Forest", "Tree", "best_rate", "find_forest"]

# Shapes of trees that are tried: over how many neighbours an arc into a switch is spread at first
# (many make trees shallow inside a node, few across nodes, whose switch has a port for each NPU),
# and whether trees grow by time (False) or by hops (True). Which is best depends on the network.
SHAPES = ((2, False), (8, False), (2, True))
# into how many pieces the greatest common divisor of all rates may be cut to balance switches
SHARES = 1000
# unfinished trees of one root that are kept at a time
MOST_PARTIAL = 200

Route = tuple[int, ...]
"""Nodes from one NPU to another, the switches between them included."""


@dataclass(frozen=True, slots=True)
class Tree:
    """Trees that span a group in the same way.

    Attributes
    ----------
    root : int
    weight : int
        How many of a root's trees they are.
    arcs : list of (int, int)
        From NPU to NPU, in the order in which the tree grows.
    routes : list of list of (Route, int)
        For each arc the routes that it takes and how many of the trees take each.
    """

    root: int
    weight: int
    arcs: list[tuple[int, int]]
    routes: list[list[tuple[Route, int]]]


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees of all roots.

    Attributes
    ----------
    ratio : Fraction
        Seconds for a byte of every root at the rate of the trees: ``1/x``.
    optimal : bool
        Whether a cut of the network proves that rate to be the best.
    copies : int
        Trees a root: the weights of a root's trees add up to it.
    unit : Fraction
        Bytes/s of one tree.
    trees : list of Tree
    """

    ratio: Fraction
    optimal: bool
    copies: int
    unit: Fraction
    trees: list[Tree]


def best_rate(
    topology: Topology, group: NDArray[np.int32], root: int | None = None
) -> tuple[Fraction, NDArray[np.bool_], bool]:
    """The bottleneck: seconds a byte of every root, the side of the cut, whether it is exact.

    Parameters
    ----------
    group : int32[n]
        NPUs that must get everything.
    root : int, optional
        The only NPU that has something; all of the group by default.
    """
    if root is None:
        cut = bottleneck_cut(topology, group)
        return cut.ratio, cut.inside, cut.exact
    pairs = [(root, int(v)) for v in group if v != root]
    side, complete = pair_cut(topology, pairs, topology.bandwidth, Budget())
    assert side is not None
    width = int(topology.bandwidth[side[topology.src] & ~side[topology.dst]].sum())
    return Fraction(1, width), side, complete


def balanced(topology: Topology, group: NDArray[np.int32]) -> NDArray[np.int64]:
    """Rates of the links, less what a node that only forwards could not use; int64[E], bytes/s.

    What enters such a node must leave it. Of all whole rates with that property those are taken
    whose least share of a link's rate is greatest, and of these the greatest in all.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix, hstack, identity

    links, nodes = topology.num_links, topology.num_nodes
    # whole units of which every link has many, where its rate is a round number
    unit = int(np.gcd.reduce(topology.bandwidth))
    unit //= gcd(unit, SHARES)
    rate = topology.bandwidth // unit
    inner = np.ones(nodes, dtype=np.bool_)
    inner[group] = False
    ends = np.concatenate([topology.src, topology.dst])
    signs = np.concatenate([-np.ones(links), np.ones(links)])
    matrix = coo_matrix((signs, (ends, np.tile(np.arange(links), 2))), shape=(nodes, links))
    matrix = matrix.tocsr()[inner]
    if not (matrix @ rate.astype(float)).any():
        return topology.bandwidth
    # shares s of the rates, and the least of them, t
    scaled = matrix.multiply(rate[None, :]).tocsr()
    none = coo_matrix((scaled.shape[0], 1))
    least = hstack([-identity(links), coo_matrix(np.ones((links, 1)))])
    found = linprog(
        np.append(-np.full(links, 1e-3 / links), -1.0),
        A_ub=least,
        b_ub=np.zeros(links),
        A_eq=hstack([scaled, none]) if scaled.shape[0] else None,
        b_eq=np.zeros(scaled.shape[0]) if scaled.shape[0] else None,
        bounds=[(0, 1)] * (links + 1),
    )
    if found.status != 0:
        raise SolverError(f"rates of switches could not be balanced: {found.message}")
    low = np.maximum(0, np.floor(float(found.x[-1]) * rate * (1 - 1e-9)).astype(np.int64))
    # a vertex of the polytope of flows is whole
    whole = linprog(
        -np.ones(links),
        A_eq=matrix,
        b_eq=np.zeros(matrix.shape[0]),
        bounds=np.stack([low, rate], axis=1),
    )
    if whole.status == 0:
        flow = np.rint(whole.x).astype(np.int64)
        kept = not (matrix @ flow.astype(float)).any() and (flow >= low).all()
        if kept and (flow <= rate).all():
            return flow * unit
    raise SolverError("rates of switches could not be balanced in whole numbers")


def find_forest(
    topology: Topology,
    group: NDArray[np.int32],
    root: int | None = None,
    *,
    shape: tuple[int, bool] = SHAPES[0],
) -> Forest:
    """Trees from every NPU of a group (or from one root) to the group, at the best rate.

    NPUs outside the group, and switches, forward without copying.

    Parameters
    ----------
    group : int32[n]
    root : int, optional
    shape : (int, bool)
        One of `SHAPES`.

    Raises
    ------
    SolverError
        If the packing fails, which no network with whole capacities should make it do.
    """
    full, _, exact = best_rate(topology, group, root)
    rates = balanced(topology, group)
    ratio, complete = full, exact
    if (rates != topology.bandwidth).any():
        used = np.flatnonzero(rates)
        evened = replace(
            topology,
            src=topology.src[used],
            dst=topology.dst[used],
            alpha_ps=topology.alpha_ps[used],
            bandwidth=rates[used],
        )
        ratio, _, complete = best_rate(evened, group, root)
    scale, copies, capacity = whole_capacities(topology, rates, ratio)
    pools = _pools(topology, capacity)
    work = _split_all(topology, group, root, capacity, copies, pools, shape[0])
    slowness = _slowness(topology, by_hops=shape[1])
    trees = _pack_all(group, root, work, copies, pools, slowness)
    optimal = exact and complete and ratio == full
    return Forest(ratio, optimal, copies, Fraction(1, scale), trees)


def _slowness(topology: Topology, *, by_hops: bool) -> dict[tuple[int, int], int]:
    """Picoseconds that a megabyte takes from node to node on the fastest link; or 1."""
    if by_hops:
        return dict.fromkeys(zip(topology.src.tolist(), topology.dst.tolist()), 1)
    found: dict[tuple[int, int], int] = {}
    times = topology.duration_ps(10**6).tolist()
    for pair, each in zip(zip(topology.src.tolist(), topology.dst.tolist()), times):
        found[pair] = min(each, found.get(pair, each))
    return found


def whole_capacities(
    topology: Topology, rates: NDArray[np.int64], ratio: Fraction
) -> tuple[Fraction, int, NDArray[np.int64]]:
    """Trees a byte/s, trees a root, and how many trees each pair of nodes can carry.

    With ``1/x = p/q`` the least whole scale is ``p / gcd(q, rates)``; capacities are int64[V, V].
    """
    p, q = ratio.numerator, ratio.denominator
    common = gcd(q, int(np.gcd.reduce(rates)))
    scale = Fraction(p, common)
    copies = q // common
    capacity = np.zeros((topology.num_nodes, topology.num_nodes), dtype=np.int64)
    np.add.at(capacity, (topology.src, topology.dst), rates // common * p)
    return scale, copies, capacity


Pools = dict[tuple[int, int], deque[tuple[Route, int]]]


def _pools(topology: Topology, capacity: NDArray[np.int64]) -> Pools:
    """What every arc stands for: at first, itself."""
    rows, columns = np.nonzero(capacity)
    return {
        (a, b): deque([((a, b), int(capacity[a, b]))])
        for a, b in zip(rows.tolist(), columns.tolist())
    }


def _take(pool: deque[tuple[Route, int]], amount: int) -> list[tuple[Route, int]]:
    """So much of what an arc stands for, removed from it."""
    taken = []
    while amount > 0:
        route, here = pool.popleft()
        part = min(here, amount)
        taken.append((route, part))
        if here > part:
            pool.appendleft((route, here - part))
        amount -= part
    return taken


def _without_loops(route: Route) -> Route:
    """The route without what lies between two visits of the same node."""
    direct: dict[int, None] = {}
    for v in route:
        if v in direct:
            # back at v: forget what came after it
            while next(reversed(direct)) != v:
                direct.popitem()
        direct[v] = None
    return tuple(direct)


def _join(
    first: list[tuple[Route, int]], second: list[tuple[Route, int]]
) -> list[tuple[Route, int]]:
    """Routes of equal total amounts, one behind the other, without the loops this may close."""
    joined = []
    left, right = deque(first), deque(second)
    while left:
        (a, m), (b, n) = left.popleft(), right.popleft()
        part = min(m, n)
        joined.append((_without_loops(a + b[1:]), part))
        if m > part:
            left.appendleft((a, m - part))
        if n > part:
            right.appendleft((b, n - part))
    return joined


def _split_all(
    topology: Topology,
    group: NDArray[np.int32],
    root: int | None,
    capacity: NDArray[np.int64],
    copies: int,
    pools: Pools,
    most: int,
) -> NDArray[np.int64]:
    """Capacities between the nodes of the group once all others are split off."""
    nodes = topology.num_nodes
    cap = np.zeros((nodes + 1, nodes + 1), dtype=np.int64)
    cap[:nodes, :nodes] = capacity
    roots = group if root is None else np.array([root])
    cap[nodes, roots] = copies
    need = copies * len(roots)
    work = workspace(nodes + 1)
    terminals = group.astype(np.int64)
    if not feasible(cap, terminals, need, work):
        raise SolverError("the rate of the cut is not reached by flows")
    inner = np.ones(nodes, dtype=np.bool_)
    inner[group] = False
    # switches with few neighbours first: they leave fewer arcs for the others
    degree = (capacity > 0).sum(axis=1)
    for w in sorted(np.flatnonzero(inner).tolist(), key=lambda v: (degree[v], v)):
        spread = min(most, max(1, int((cap[w] > 0).sum()) - 1))
        for u, t, amount in split_off(cap, w, terminals, need, spread, work).tolist():
            routes = _join(_take(pools[u, w], amount), _take(pools[w, t], amount))
            pools.setdefault((u, t), deque()).extend(routes)
    if not feasible(cap, terminals, need, work):
        raise SolverError("splitting off a switch has narrowed a cut")
    between: NDArray[np.int64] = cap[np.ix_(group, group)].copy()
    np.fill_diagonal(between, 0)
    return between


def _pack_all(
    group: NDArray[np.int32],
    root: int | None,
    capacity: NDArray[np.int64],
    copies: int,
    pools: Pools,
    slowness: dict[tuple[int, int], int],
) -> list[Tree]:
    n = len(group)
    roots = np.arange(n) if root is None else np.flatnonzero(group == root)
    weights = np.full(len(roots), copies, dtype=np.int64)
    length = np.zeros((n, n), dtype=np.int64)
    for i, j in zip(*(ends.tolist() for ends in np.nonzero(capacity))):
        route = pools[int(group[i]), int(group[j])][0][0]
        length[i, j] = sum(slowness[pair] for pair in pairwise(route))
    found = pack(capacity, roots, weights, length, workspace(n + MOST_PARTIAL))
    trees = []
    for weight, start, arcs in zip(*found):
        if weight == 0:
            raise SolverError("a tree could not be finished")
        ends = group[arcs].tolist()
        pairs = [(int(a), int(b)) for a, b in ends]
        routes = [_take(pools[pair], int(weight)) for pair in pairs]
        trees.append(Tree(int(group[start]), int(weight), pairs, routes))
    return trees
