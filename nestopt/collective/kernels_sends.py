"""Passes over given sends: dropping what nobody needs, and finding what waits for what."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["find_waits", "mark_needed"]


@njit(cache=True, nogil=True)
def mark_needed(
    chunk: Any,
    link: Any,
    by_start: Any,
    src: Any,
    dst: Any,
    multicast: Any,
    part_of: Any,
    wanted: Any,
    needed: Any,
) -> Any:
    """Which copies are needed, bool[S]: by a postcondition, or by a later send that is needed.

    `by_start` sorts the sends by start; `wanted` is bool[parts, nodes]; `needed` is int32[nodes,
    chunks], zeros. Goes through the sends backwards.
    """
    nodes, chunks = needed.shape
    for c in range(chunks):
        for v in range(nodes):
            if wanted[part_of[c], v]:
                needed[v, c] = 1
    keep = np.zeros(len(chunk), dtype=np.bool_)
    for k in range(len(chunk) - 1, -1, -1):
        i = by_start[k]
        c, v, u = chunk[i], dst[link[i]], src[link[i]]
        if needed[v, c] == 0:
            continue
        keep[i] = True
        # an NPU needs one copy, whatever it passes on; a switch may need one for each
        needed[v, c] -= 1
        if multicast[u]:
            needed[u, c] = 1
        else:
            needed[u, c] += 1
    return keep


@njit(cache=True, nogil=True)
def find_waits(
    chunk: Any,
    link: Any,
    start: Any,
    arrival: Any,
    phase: Any,
    src: Any,
    by_place: Any,
    place: Any,
    nodes: int,
    fill: bool,
    waits: Any,
    next_count: Any,
    nexts: Any,
) -> int:
    """Which sends each send waits for: arrivals of its chunk at its source by the time it starts.

    A copy waits for a copy where one has come, otherwise (it copies a finished sum) for partial
    sums; a partial sum waits for partial sums. Called twice: with `fill` False it counts
    (`waits`, `next_count`); with `fill` True it fills `nexts`, `next_count` then being where the
    entries of each send go.

    Parameters
    ----------
    by_place, place
        Sends sorted by (chunk, destination, arrival), and ``chunk * nodes + destination`` in that
        order.
    """
    total = 0
    for i in range(len(chunk)):
        spot = np.int64(chunk[i]) * nodes + src[link[i]]
        low = np.searchsorted(place, spot)
        for wanted in (0, 1):
            if wanted == 0 and phase[i] == 1:
                continue
            found = 0
            k = low
            while k < len(place) and place[k] == spot and arrival[by_place[k]] <= start[i]:
                j = by_place[k]
                if phase[j] == wanted:
                    found += 1
                    if fill:
                        nexts[next_count[j]] = i
                        next_count[j] += 1
                    else:
                        next_count[j] += 1
                        waits[i] += 1
                k += 1
            total += found
            if found > 0:
                break
    return total
