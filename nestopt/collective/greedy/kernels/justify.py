"""Shifting the sends of packed trees: all to the end, then all to the beginning, and so on.

Each pass is a list scheduling in the order of the pass before, so that no pass makes the schedule
longer; gaps that one pass leaves are closed by the next one.

References
----------
.. [1] Li and Willis, "An iterative scheduling technique for resource-constrained project
   scheduling", European Journal of Operational Research 56(3), 1992: forward and backward passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.list import list_schedule
from nestopt.core.stop_kernel import stopped

__all__ = ["justify", "shift_early"]


@njit(cache=True, nogil=True)
def _successors(
    link: Any,
    first: Any,
    middle: Any,
    stop: Any,
    root: Any,
    src: Any,
    dst: Any,
    multicast: Any,
    reduces: Any,
) -> tuple[Any, Any]:
    """Which sends wait for each send's arrival, as (pointer, sends).

    Copies of a chunk stand in the order of their hop, partial sums in the opposite one.
    """
    sends = len(link)
    ptr = np.zeros(sends + 1, dtype=np.int64)
    nexts = np.empty(0, dtype=np.int64)
    leaves = np.empty(len(multicast), dtype=np.int64)
    enters = np.empty(len(multicast), dtype=np.int64)
    for fill in (False, True):
        if fill:
            ptr[1:] = np.cumsum(ptr[1:])
            nexts = np.empty(ptr[sends], dtype=np.int64)
            at = ptr[:-1].copy()
        for c in range(len(first)):
            for i in range(first[c], middle[c]):
                leaves[src[link[i]]] = i
            for i in range(middle[c], stop[c]):
                enters[dst[link[i]]] = i
            for i in range(first[c], stop[c]):
                e = link[i]
                summed = i < middle[c]
                if summed:
                    v = dst[e]
                    before, after = i, i - 1 if not reduces[v] else leaves[v]
                    if v == root[c]:
                        continue
                else:
                    v = src[e]
                    before, after = i - 1 if not multicast[v] else enters[v], i
                if not summed and v == root[c]:
                    for j in range(first[c], middle[c]):
                        if dst[link[j]] == v:
                            if fill:
                                nexts[at[j]] = i
                                at[j] += 1
                            else:
                                ptr[j + 1] += 1
                elif fill:
                    nexts[at[before]] = after
                    at[before] += 1
                else:
                    ptr[before + 1] += 1
    return ptr, nexts


@njit(cache=True, nogil=True)
def _turned(ptr: Any, nexts: Any) -> tuple[Any, Any]:
    """The same relation the other way round."""
    back = np.zeros_like(ptr)
    for j in nexts:
        back[j + 1] += 1
    back = np.cumsum(back)
    at, before = back[:-1].copy(), np.empty_like(nexts)
    for i in range(len(ptr) - 1):
        for k in range(ptr[i], ptr[i + 1]):
            before[at[nexts[k]]] = i
            at[nexts[k]] += 1
    return back, before


@njit(cache=True, nogil=True)
def shift_early(
    link: Any, occupancy: Any, transfer: Any, ptr: Any, nexts: Any, links: int, start: Any
) -> Any:
    """Start every send as early as the order of the sends on each link allows; the makespan."""
    free, ready = np.zeros(links, dtype=np.int64), np.zeros(len(start), dtype=np.int64)
    makespan = np.int64(0)
    for i in np.argsort(start):
        start[i] = max(free[link[i]], ready[i])
        free[link[i]] = start[i] + occupancy[i]
        arrival = start[i] + transfer[i]
        makespan = max(makespan, arrival)
        for k in range(ptr[i], ptr[i + 1]):
            ready[nexts[k]] = max(ready[nexts[k]], arrival)
    return makespan


@njit(cache=True, nogil=True)
def justify(
    link: Any,
    occupancy: Any,
    transfer: Any,
    first: Any,
    middle: Any,
    stop: Any,
    root: Any,
    src: Any,
    dst: Any,
    multicast: Any,
    reduces: Any,
    rounds: int,
    start: Any,
) -> Any:
    """Shift sends to the beginning, then to and fro while that helps; the makespan.

    Parameters
    ----------
    link, occupancy, transfer : int64[S]
        Of each send, as `pack_trees` puts them.
    first, middle, stop, root : int64[chunks]
        Where the sends of each chunk, and its copies, begin, where they end, and the tree's root.
    src, dst, multicast, reduces
        As in `Topology`.
    rounds : int
        At most so many times to and fro.
    start : int64[S]
        Starts; changed.
    """
    nexts_ptr, nexts = _successors(
        link, first, middle, stop, root, src, dst, multicast, reduces
    )  # fmt: skip
    before_ptr, before = _turned(nexts_ptr, nexts)
    waits, back_waits = np.diff(before_ptr), np.diff(nexts_ptr)
    makespan = shift_early(link, occupancy, transfer, nexts_ptr, nexts, len(src), start)
    moved = np.empty_like(start)
    for _ in range(rounds):
        if stopped():
            break
        back = list_schedule(
            link, occupancy, transfer, makespan - start - transfer, before_ptr, before,
            back_waits.copy(), len(src), moved,
        )  # fmt: skip
        late = back - moved - transfer
        now = list_schedule(
            link, occupancy, transfer, late, nexts_ptr, nexts, waits.copy(), len(src), moved
        )
        if now >= makespan:
            break
        makespan = now
        start[:] = moved
    return makespan
