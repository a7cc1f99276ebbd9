"""The compiled loops of tree packing: maximum flow, splitting off switches, packing of trees.

Capacities are a dense matrix of whole numbers, a row and a column a node. The last node is the
*super source*: it has an arc to every root with the weight of that root's trees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue

__all__ = ["INFINITE", "Work", "feasible", "pack", "split_off", "workspace"]

INFINITE = np.int64(2**60)


class Work(NamedTuple):
    """Arrays that a maximum flow uses: int64[nodes] each, `path` one longer."""

    level: Any
    queue: Any
    cursor: Any
    path: Any


def workspace(nodes: int) -> Work:
    """Arrays for graphs of at most so many nodes."""
    return Work(*(np.empty(nodes + 1, dtype=np.int64) for _ in range(4)))


@njit(cache=True, nogil=True)
def _flow(cap: Any, nodes: int, source: int, sink: int, limit: Any, work: Any) -> Any:
    """Maximum flow by Dinic's algorithm among the first `nodes` nodes, `limit` at most.

    Changes `cap` to the residual capacities.
    """
    level, queue, cursor, path = work
    flow = np.int64(0)
    while flow < limit:
        if overdue():
            raise KernelStopped
        level[:nodes] = -1
        level[source] = 0
        queue[0] = source
        first, last = 0, 1
        while first < last and level[sink] < 0:
            u = queue[first]
            first += 1
            for v in range(nodes):
                if cap[u, v] > 0 and level[v] < 0:
                    level[v] = level[u] + 1
                    queue[last] = v
                    last += 1
        if level[sink] < 0:
            return flow
        cursor[:nodes] = 0
        depth, u = 0, source
        path[0] = source
        while True:
            if u == sink:
                amount = limit - flow
                for i in range(depth):
                    amount = min(amount, cap[path[i], path[i + 1]])
                flow += amount
                stop = depth
                for i in range(depth - 1, -1, -1):
                    a, b = path[i], path[i + 1]
                    cap[a, b] -= amount
                    cap[b, a] += amount
                    if cap[a, b] == 0:
                        stop = i
                if flow >= limit:
                    return flow
                depth = stop
                u = path[depth]
                continue
            advanced = False
            while cursor[u] < nodes:
                v = cursor[u]
                if cap[u, v] > 0 and level[v] == level[u] + 1:
                    depth += 1
                    path[depth] = v
                    u = v
                    advanced = True
                    break
                cursor[u] += 1
            if advanced:
                continue
            if depth == 0:
                break
            depth -= 1
            u = path[depth]
            cursor[u] += 1
    return flow


@njit(cache=True, nogil=True)
def feasible(cap: Any, terminals: Any, need: Any, work: Any) -> bool:
    """Whether the super source can send `need` to every terminal."""
    nodes = len(cap)
    trial = np.empty_like(cap)
    for v in terminals:
        trial[:] = cap
        if _flow(trial, nodes, nodes - 1, v, need, work) < need:
            return False
    return True


@njit(cache=True, nogil=True)
def _room(
    cap: Any, trial: Any, u: int, w: int, t: int, terminals: Any, need: Any, most: Any, work: Any
) -> Any:
    """How much of the arcs (u, w), (w, t) can become an arc (u, t), `most` at most."""
    nodes = len(cap)
    source = nodes - 1
    room = most
    for v in terminals:
        trial[:] = cap
        trial[u, source] = INFINITE
        trial[u, t] = INFINITE
        if v != w:
            trial[v, w] = INFINITE
        room = min(room, _flow(trial, nodes, u, w, need + room, work) - need)
        if room <= 0:
            return np.int64(0)
        trial[:] = cap
        trial[w, source] = INFINITE
        trial[u, t] = INFINITE
        if v != t:
            trial[v, t] = INFINITE
        room = min(room, _flow(trial, nodes, w, t, need + room, work) - need)
        if room <= 0:
            return np.int64(0)
    return room


@njit(cache=True, nogil=True)
def split_off(cap: Any, w: int, terminals: Any, need: Any, spread: int, work: Any) -> Any:
    """Replace a switch by arcs between its neighbours; the cuts stay as wide as they must be.

    Parameters
    ----------
    cap : int64[nodes, nodes]
        Capacities, in and out of the switch equal; changed.
    w : int
        The switch.
    terminals : int64[T]
    need : int
        What must reach every terminal.
    spread : int
        Over how many neighbours an arc into the switch is spread at first: more make shallow trees.
    work : Work

    Returns
    -------
    int64[n, 3]
        Amounts: row (u, t, amount): so much of (u, w), (w, t) has become (u, t).
    """
    nodes = len(cap) - 1
    trial = np.empty_like(cap)
    made = [(np.int64(0), np.int64(0), np.int64(0))]
    made.pop()
    for attempt in range(3):
        for t in range(nodes):
            share = cap[w, t]
            if attempt == 0:
                share = max(np.int64(1), -(-cap[w, t] // spread))
            for shift in range(1, nodes + 1):
                u = (t + shift) % nodes
                if cap[w, t] == 0:
                    break
                if (u == t) != (attempt == 2) or cap[u, w] == 0:
                    continue
                most = min(share, min(cap[u, w], cap[w, t]))
                amount = _room(cap, trial, u, w, t, terminals, need, most, work)
                if amount > 0:
                    cap[u, w] -= amount
                    cap[w, t] -= amount
                    if u != t:
                        cap[u, t] += amount
                        made.append((np.int64(u), np.int64(t), amount))
    cap[w, :] = 0
    cap[:, w] = 0
    table = np.empty((len(made), 3), dtype=np.int64)
    for i in range(len(made)):
        table[i, 0], table[i, 1], table[i, 2] = made[i]
    return table


@njit(cache=True, nogil=True)
def pack(cap: Any, roots: Any, weights: Any, length: Any, work: Any) -> Any:
    """Pack spanning out-trees: of root i so many as ``weights[i]``, edge-disjoint by capacity.

    Trees that are alike are one, with a weight. A tree takes an arc (x, y) as often as what is left
    still holds all the trees that are not finished.

    Parameters
    ----------
    cap : int64[nodes, nodes]
        Capacities between the nodes to span (no super source); changed to what is left over.
    roots, weights : int64[R]
    length : int64[nodes, nodes]
        Time that an arc takes: a tree grows by the arc that ends soonest, if it may have it.
    work : Work
        For graphs of at least ``len(cap) + MOST_PARTIAL`` nodes.

    Returns
    -------
    (weight int64[trees], root int64[trees], arcs int64[trees, nodes - 1, 2])
        In the order in which a tree grows. Trees of weight 0 mean that the packing failed.

    References
    ----------
    J. Edmonds, Edge-disjoint branchings (1973); K. Berczi, A. Frank, Packing arborescences (2010).
    """
    n = len(cap)
    done_weight, done_root = [np.int64(0)], [np.int64(0)]
    done_arcs = [np.empty((max(n - 1, 0), 2), dtype=np.int64)]
    done_weight.pop()
    done_root.pop()
    done_arcs.pop()
    most = len(work.level) - 1 - n
    trial = np.zeros((n + most, n + most), dtype=np.int64)
    for r in range(len(roots)):
        # trees of this root that are not finished: weight, nodes in order, arcs
        weight = [weights[r]]
        held = [np.full(n, roots[r], dtype=np.int64)]
        arcs = [np.empty((max(n - 1, 0), 2), dtype=np.int64)]
        sizes = [1]
        while len(weight) > 0:
            m, nodes, own, size = weight.pop(), held.pop(), arcs.pop(), sizes.pop()
            inside = np.zeros(n, dtype=np.bool_)
            when = np.zeros(n, dtype=np.int64)
            inside[roots[r]] = True
            for i in range(size - 1):
                inside[own[i, 1]] = True
                when[own[i, 1]] = when[own[i, 0]] + length[own[i, 0], own[i, 1]]
            refused = np.zeros((n, n), dtype=np.bool_)
            while size < n:
                x, y = _soonest(cap, inside, when, length, refused, nodes, size)
                if x < 0:
                    m = np.int64(0)
                    break
                amount = _left(cap, trial, x, y, m, roots, weights, r, weight, held, sizes, work)
                if amount < m and len(weight) >= most:
                    amount = np.int64(0)
                if amount <= 0:
                    refused[x, y] = True
                    continue
                if amount < m:
                    weight.append(m - amount)
                    held.append(nodes.copy())
                    arcs.append(own.copy())
                    sizes.append(size)
                    m = amount
                cap[x, y] -= amount
                own[size - 1, 0], own[size - 1, 1] = x, y
                nodes[size] = y
                inside[y] = True
                when[y] = when[x] + length[x, y]
                size += 1
                refused[:] = False
            done_weight.append(m)
            done_root.append(roots[r])
            done_arcs.append(own)
            if m == 0:
                return done_weight, done_root, done_arcs
    return done_weight, done_root, done_arcs


@njit(cache=True, nogil=True)
def _soonest(
    cap: Any, inside: Any, when: Any, length: Any, refused: Any, nodes: Any, size: int
) -> tuple[int, int]:
    """The arc out of a tree that ends soonest, refused ones left out; -1 without one."""
    best, chosen = INFINITE, (-1, -1)
    for i in range(size):
        x = nodes[i]
        for y in range(len(cap)):
            if inside[y] or cap[x, y] == 0 or refused[x, y]:
                continue
            end = when[x] + length[x, y]
            if end < best or (end == best and cap[x, y] > cap[chosen]):
                best, chosen = end, (x, y)
    return chosen


@njit(cache=True, nogil=True)
def _left(
    cap: Any,
    trial: Any,
    x: int,
    y: int,
    m: Any,
    roots: Any,
    weights: Any,
    r: int,
    weight: Any,
    held: Any,
    sizes: Any,
    work: Any,
) -> Any:
    """How many of `m` equal trees may take the arc (x, y)."""
    n = len(cap)
    nodes = n + len(weight)
    trial[:n, :n] = cap
    trial[:nodes, n:nodes] = 0
    trial[n:nodes, :nodes] = 0
    others = np.int64(0)
    for j in range(r + 1, len(roots)):
        others += weights[j]
        if roots[j] != x:
            trial[x, roots[j]] += weights[j]
    for k in range(len(weight)):
        others += weight[k]
        trial[x, n + k] = weight[k]
        for i in range(sizes[k]):
            trial[n + k, held[k][i]] = INFINITE
    wanted = min(m, cap[x, y])
    return min(wanted, _flow(trial, nodes, x, y, others + wanted, work) - others)
