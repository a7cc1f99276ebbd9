"""Local search around the greedy decoder, for instances of up to a few thousand sends.

The decoder repeatedly takes the transfer (link, chunk) with the least

    start + (1 - eagerness[link]) * duration + rare * holders[chunk] + bias[link, chunk]

among all that could be added: with no eagerness this is the earliest end first, with full
eagerness the earliest start first; the rest decides between transfers that compete. The search
perturbs eagerness and bias and keeps what is no worse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.event import INFINITE, next_random, random_state, uniform
from nestopt.core.stop_kernel import KernelStopped, overdue, stopped

__all__ = ["decode", "search"]


@njit(cache=True, nogil=True)
def decode(
    src: Any,
    dst: Any,
    near_ptr: Any,
    near: Any,
    occupancy: Any,
    transfer: Any,
    size_of: Any,
    source: Any,
    part_of: Any,
    member: Any,
    eager: Any,
    rare: float,
    bias: Any,
    limit: Any,
    target: Any,
    arrival: Any,
    free: Any,
    holders: Any,
    best_key: Any,
    best_chunk: Any,
    out_chunk: Any,
    out_link: Any,
    out_start: Any,
) -> tuple[Any, int, float]:
    """One greedy schedule: (makespan, sends, lateness), makespan `INFINITE` if it reaches `limit`.

    `near` lists, for each node, the links that enter or leave it. The lateness is the sum of the
    times by which arrivals miss `target`. The unnamed arrays are scratch space.
    """
    links, chunks, nodes = len(src), len(source), arrival.shape[0]
    arrival[:] = INFINITE
    free[:] = 0
    holders[:] = 1
    lateness = 0.0
    remaining = 0
    for c in range(chunks):
        arrival[source[c], c] = 0
        for v in range(nodes):
            if member[part_of[c], v] and v != source[c]:
                remaining += 1
    best_chunk[:] = -2
    sends, makespan = 0, np.int64(0)
    touched = -1
    while remaining > 0:
        if overdue():
            raise KernelStopped
        first = 0 if touched < 0 else near_ptr[touched]
        stop = links if touched < 0 else near_ptr[touched + 1]
        for at in range(first, stop):
            e = at if touched < 0 else near[at]
            u, v = src[e], dst[e]
            key, chosen = np.inf, -1
            for c in range(chunks):
                if arrival[u, c] < INFINITE and arrival[v, c] == INFINITE:
                    t = transfer[size_of[c], e]
                    begin = max(free[e], arrival[u, c])
                    k = begin + (1.0 - eager[e]) * t + rare * holders[c] + bias[e, c]
                    if k < key and begin + t < limit:
                        key, chosen = k, c
            best_key[e], best_chunk[e] = key, chosen
        link, key = -1, np.inf
        for e in range(links):
            if best_chunk[e] >= 0 and best_key[e] < key:
                link, key = e, best_key[e]
        if link < 0:
            return INFINITE, sends, lateness
        c = best_chunk[link]
        u, v = src[link], dst[link]
        begin = max(free[link], arrival[u, c])
        out_chunk[sends], out_link[sends], out_start[sends] = c, link, begin
        sends += 1
        free[link] = begin + occupancy[size_of[c], link]
        end = begin + transfer[size_of[c], link]
        arrival[v, c] = end
        holders[c] += 1
        if member[part_of[c], v]:
            remaining -= 1
            makespan = max(makespan, end)
            if end > target:
                lateness += end - target
        touched = v
    return makespan, sends, lateness


@njit(cache=True, nogil=True)
def search(
    src: Any,
    dst: Any,
    near_ptr: Any,
    near: Any,
    occupancy: Any,
    transfer: Any,
    size_of: Any,
    source: Any,
    part_of: Any,
    member: Any,
    rounds: int,
    target: Any,
    seed: int,
    out_chunk: Any,
    out_link: Any,
    out_start: Any,
) -> tuple[Any, int, int]:
    """Best schedule of `rounds` decodings; (makespan, sends, decodings done).

    Stops early at a makespan of `target`. The first third of the rounds starts afresh each time,
    the rest perturbs the best so far.
    """
    links, chunks, nodes = len(src), len(source), member.shape[1]
    state = random_state(seed)
    arrival = np.empty((nodes, chunks), dtype=np.int64)
    free = np.empty(links, dtype=np.int64)
    holders = np.empty(chunks, dtype=np.int32)
    best_key = np.empty(links, dtype=np.float64)
    best_chunk = np.empty(links, dtype=np.int64)
    chunk, link = np.empty_like(out_chunk), np.empty_like(out_link)
    start = np.empty_like(out_start)
    unit = transfer.mean()
    eager, bias = np.zeros(links), np.zeros((links, chunks))
    rare = 0.3 * unit
    kept_eager, kept_bias, kept_rare = eager.copy(), bias.copy(), rare
    kept_chunk, kept_link = chunk.copy(), link.copy()
    late, kept_late = np.empty(len(chunk), dtype=np.int64), 0
    best, best_cost, best_sends = INFINITE, np.inf, 0
    done = 0
    for step in range(rounds):
        if step > 0 and stopped():
            break
        fresh = step * 3 < rounds
        if fresh:
            common = 0.0 if step % 4 == 0 else uniform(state)
            spread = 0.0 if step % 2 == 0 else 0.5 * uniform(state)
            scale = unit * (0.01 + 0.5 * uniform(state) * (step % 3))
            rare = unit * (0.0 if step % 5 == 4 else uniform(state))
            for e in range(links):
                eager[e] = common + spread * (uniform(state) - 0.5)
                for c in range(chunks):
                    bias[e, c] = scale * uniform(state)
        else:
            eager[:], bias[:], rare = kept_eager, kept_bias, kept_rare
            kind = next_random(state) % 8
            if kind == 0:
                rare = max(0.0, rare + unit * (uniform(state) - 0.5))
            if kind <= 2:
                e = next_random(state) % links
                eager[e] += uniform(state) - 0.5
            for _ in range(1 + next_random(state) % 4):
                e, c = next_random(state) % links, next_random(state) % chunks
                bias[e, c] += 2.0 * unit * (uniform(state) - 0.5)
            if kind >= 4 and kept_late > 0:
                # favour a chunk that came too late, where it came and one hop before
                i = late[next_random(state) % kept_late]
                c = kept_chunk[i]
                for v in (dst[kept_link[i]], src[kept_link[i]]):
                    favour = unit * uniform(state)
                    for at in range(near_ptr[v], near_ptr[v + 1]):
                        if dst[near[at]] == v:
                            bias[near[at], c] -= favour
        # a schedule that ends as late as the best may still be kept, one that ends later is not
        limit = min(best + np.int64(1), INFINITE)
        makespan, sends, lateness = decode(
            src, dst, near_ptr, near, occupancy, transfer, size_of, source, part_of, member,
            eager, rare, bias, limit, target, arrival, free, holders, best_key, best_chunk,
            chunk, link, start,
        )  # fmt: skip
        done += 1
        if makespan == INFINITE:
            continue
        # of equal makespans the one with less to mend
        cost = float(makespan) + lateness / (nodes * chunks)
        if cost <= best_cost:
            if makespan < best:
                out_chunk[:sends] = chunk[:sends]
                out_link[:sends] = link[:sends]
                out_start[:sends] = start[:sends]
                best_sends = sends
            best, best_cost = makespan, cost
            kept_eager[:], kept_bias[:], kept_rare = eager, bias, rare
            kept_chunk[:sends], kept_link[:sends] = chunk[:sends], link[:sends]
            kept_late = 0
            for i in range(sends):
                if start[i] + transfer[size_of[chunk[i]], link[i]] > target:
                    late[kept_late] = i
                    kept_late += 1
        if best <= target:
            break
    return best, best_sends, done
