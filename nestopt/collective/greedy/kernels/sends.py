"""Passes over given sends: dropping what nobody needs, and finding what waits for what."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["find_waits", "mark_needed"]


@njit(cache=True, nogil=True)
def mark_needed(
    chunk: Any, link: Any, src: Any, dst: Any, multicast: Any, part_of: Any, wanted: Any
) -> Any:
    """Which sends are needed, bool[S]: by a postcondition, or by a later send that is needed.

    The sends are in an order in which each node receives a chunk once, before it passes it on, and
    the links of a hop stand together; `wanted` is bool[parts, nodes].
    """
    needed = np.zeros((wanted.shape[1], len(part_of)), dtype=np.bool_)
    for c in range(len(part_of)):
        for v in range(wanted.shape[1]):
            needed[v, c] = wanted[part_of[c], v]
    keep = np.zeros(len(chunk), dtype=np.bool_)
    last = len(chunk) - 1
    while last >= 0:
        first = last
        while not multicast[src[link[first]]]:
            first -= 1
        if needed[dst[link[last]], chunk[last]]:
            keep[first : last + 1] = True
            needed[src[link[first]], chunk[first]] = True
        last = first - 1
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
    turn: Any,
    fill: bool,
    waits: Any,
    next_count: Any,
    nexts: Any,
) -> int:
    """Which sends each send waits for: arrivals of its chunk at its source by the time it starts.

    A copy waits for a copy where one has come, otherwise (it copies a finished sum) for partial
    sums; a partial sum waits for partial sums. With ``turn[i] >= 0`` send i waits for that one
    arrival of its kind only, counted from 0 (the source is a switch that forwards what it receives
    piece by piece). Called twice: with `fill` False it counts
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
            found, seen = 0, 0
            k = low
            while k < len(place) and place[k] == spot and arrival[by_place[k]] <= start[i]:
                j = by_place[k]
                seen += phase[j] == wanted
                if phase[j] == wanted and (turn[i] < 0 or turn[i] == seen - 1):
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
