"""Synchronous matching on equal links: the kernel for large networks.

When every transfer takes the same time, the time-expanded network has equal steps. Each link keeps
a cursor into the order in which its source received its chunks and moves past those that its
destination has: amortised O(1) a link and chunk. Nodes are independent within a step, so that
ranges of nodes can be advanced by different threads with the same outcome.

A link may also *look ahead* for a chunk that no other neighbour of its destination holds. Where few
links lead into a part of the network, as beside failed nodes, two of them then seldom bring the
same chunk. Such a step asks what other nodes have got in it, so one thread must do it.

The schedule comes out in its most compact form: for each node the chunks it received, in order
(`order`), and for each step and node a bit mask of the in-links that delivered one (`mask`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue

__all__ = ["advance", "expand", "hold_initially"]

_ONE = np.uint64(1)


@njit(cache=True, nogil=True)
def hold_initially(source: Any, order: Any, seen: Any, count: Any) -> None:
    """Give every chunk to its source (`seen`: uint64 bit sets of chunks, a row a node)."""
    for c in range(len(source)):
        v = source[c]
        order[v, count[v]] = c
        count[v] += 1
        seen[v, c >> 6] |= _ONE << np.uint64(c & 63)


@njit(cache=True, nogil=True)
def _holds(seen: Any, v: int, c: int) -> bool:
    return (seen[v, c >> 6] >> np.uint64(c & 63)) & _ONE != 0


@njit(cache=True, nogil=True)
def _scarce(first: int, degree: int, own: int, in_src: Any, offered: Any, seen: Any, v: int) -> Any:
    """The first chunk on offer that node v lacks and no other source of its in-links holds.

    The first one on offer, if all are held.
    """
    for c in offered:
        if _holds(seen, v, c):
            continue
        for j in range(degree):
            if j != own and _holds(seen, in_src[first + j], c):
                break
        else:
            return c
    return offered[0]


@njit(cache=True, nogil=True)
def advance(
    low: int,
    high: int,
    step: int,
    seed: int,
    in_ptr: Any,
    in_src: Any,
    order: Any,
    seen: Any,
    cursor: Any,
    now: Any,
    then: Any,
    mask: Any,
    wanted: Any,
    ahead: int,
) -> int:
    """One step of the nodes `low` to `high` - 1.

    Parameters
    ----------
    in_ptr, in_src
        In-links of each node, by their sources; `cursor` has an entry for each.
    now, then : int32[nodes]
        How many chunks each node holds before and after the step.
    mask : unsigned[nodes]
        Filled: bit j is set if in-link j delivers.
    wanted : bool[nodes]
        Whether what a node receives counts towards the goal.
    ahead : int
        How far links look ahead; 0 for the first chunk that the destination lacks.

    Returns
    -------
    int
        Chunks delivered to wanted nodes.
    """
    chunks = order.shape[1]
    claimed = np.empty(64, dtype=np.int64)
    delivered = 0
    for v in range(low, high):
        have = now[v]
        if overdue():
            raise KernelStopped
        mask[v] = 0
        if have == chunks:
            then[v] = have
            continue
        first = in_ptr[v]
        degree = in_ptr[v + 1] - first
        # a different in-link has the first choice in each node and step
        mixed = (np.int64(v) * 40503 + step * 30011 + seed * 24097) & 0x7FFFFFFF
        turn = (mixed >> 4) % degree if degree > 0 else 0
        bits = np.uint64(0)
        for k in range(degree):
            j = k + turn
            if j >= degree:
                j -= degree
            u = in_src[first + j]
            at, stop = cursor[first + j], now[u]
            while at < stop and _holds(seen, v, order[u, at]):
                at += 1
            if at < stop:
                c = order[u, at]
                if ahead > 0:
                    near = order[u, at : min(stop, at + ahead)]
                    c = _scarce(first, degree, j, in_src, near, seen, v)
                if c == order[u, at]:
                    at += 1
                seen[v, c >> 6] |= _ONE << np.uint64(c & 63)
                claimed[j] = c
                bits |= _ONE << np.uint64(j)
            cursor[first + j] = at
        if bits:
            mask[v] = bits
            for j in range(degree):
                if bits >> np.uint64(j) & _ONE:
                    order[v, have] = claimed[j]
                    have += 1
            if wanted[v]:
                delivered += have - now[v]
        then[v] = have
    return delivered


@njit(cache=True, nogil=True)
def expand(
    in_ptr: Any,
    in_links: Any,
    order: Any,
    mask: Any,
    step_ps: Any,
    first_step: Any,
    position: Any,
    chunk: Any,
    link: Any,
    start: Any,
) -> int:
    """The sends of the steps `mask` (rows), in order of step and link; their number.

    `position` is each node's place in `order` and moves on.
    """
    carried = np.full(len(in_links), -1, dtype=np.int64)
    sends = 0
    for row in range(mask.shape[0]):
        for v in range(mask.shape[1]):
            bits = np.uint64(mask[row, v])
            j = in_ptr[v]
            while bits:
                if bits & _ONE:
                    carried[in_links[j]] = order[v, position[v]]
                    position[v] += 1
                bits >>= _ONE
                j += 1
        for e in range(len(in_links)):
            if carried[e] >= 0:
                chunk[sends] = carried[e]
                link[sends] = e
                start[sends] = (first_step + row) * step_ps
                sends += 1
                carried[e] = -1
    return sends
