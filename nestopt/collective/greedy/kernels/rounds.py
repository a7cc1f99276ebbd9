"""Matching in equal steps, as many links as possible in each: the kernel for small equal networks.

Within a step every node takes its own decision: a maximum matching of its in-links with the chunks
that they could bring, found with augmenting paths, which tries chunks in order of priority. Where
every link must be busy all the time, as on a torus, a greedy choice leaves links idle that a
maximum matching does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.event import INFINITE, next_random, random_state
from nestopt.core.stop_kernel import KernelStopped, overdue

__all__ = ["match_rounds"]


@njit(cache=True, nogil=True)
def match_rounds(
    in_ptr: Any,
    in_links: Any,
    src: Any,
    dst: Any,
    source: Any,
    part_of: Any,
    member: Any,
    weight_random: float,
    most_steps: int,
    seed: int,
    out_chunk: Any,
    out_link: Any,
    out_step: Any,
) -> tuple[Any, int]:
    """Match until every member of each chunk's group holds it.

    A chunk's priority is ``holders + weight_random * U(0, 1)``, the least first. Fills one entry a
    send; returns (steps, sends), with steps `INFINITE` if `most_steps` do not suffice.
    """
    nodes, chunks = len(in_ptr) - 1, len(source)
    state = random_state(seed)
    has = np.zeros((nodes, chunks), dtype=np.bool_)
    holders = np.ones(chunks, dtype=np.float64)
    remaining = 0
    for c in range(chunks):
        has[source[c], c] = True
        for v in range(nodes):
            if member[part_of[c], v] and v != source[c]:
                remaining += 1
    degree = (in_ptr[1:] - in_ptr[:-1]).max()
    link_of = np.empty(chunks, dtype=np.int64)
    chunk_of = np.empty(degree, dtype=np.int64)
    parent = np.empty(chunks, dtype=np.int64)
    queue = np.empty(degree, dtype=np.int64)
    turn = np.empty(degree, dtype=np.int64)
    useful = np.empty(chunks, dtype=np.int64)
    key = np.empty(chunks, dtype=np.float64)
    sends, begun = 0, 0
    for step in range(most_steps):
        if overdue():
            raise KernelStopped
        for v in range(nodes):
            first = in_ptr[v]
            links = in_ptr[v + 1] - first
            count = 0
            for c in range(chunks):
                if not has[v, c]:
                    key[count] = holders[c] + weight_random * (next_random(state) / 2147483648.0)
                    useful[count] = c
                    count += 1
            if count == 0:
                continue
            order = useful[:count][np.argsort(key[:count])]
            link_of[order] = -1
            for j in range(links):
                chunk_of[j], turn[j] = -1, j
            for k in range(links - 1, 0, -1):
                j = next_random(state) % (k + 1)
                turn[k], turn[j] = turn[j], turn[k]
            for k in range(links):
                # breadth-first search for an augmenting path from in-link turn[k]
                parent[order] = -1
                queue[0], head, tail, found = turn[k], 0, 1, -1
                while head < tail and found < 0:
                    j = queue[head]
                    head += 1
                    u = src[in_links[first + j]]
                    for i in range(count):
                        c = order[i]
                        if parent[c] >= 0 or not has[u, c]:
                            continue
                        parent[c] = j
                        if link_of[c] < 0:
                            found = c
                            break
                        queue[tail] = link_of[c]
                        tail += 1
                while found >= 0:
                    j = parent[found]
                    before = chunk_of[j]
                    link_of[found], chunk_of[j] = j, found
                    found = before
            for j in range(links):
                if chunk_of[j] >= 0:
                    out_chunk[sends], out_link[sends] = chunk_of[j], in_links[first + j]
                    out_step[sends] = step
                    sends += 1
        # what is sent in a step can be passed on from the next one on
        for i in range(begun, sends):
            c, v = out_chunk[i], dst[out_link[i]]
            has[v, c] = True
            holders[c] += 1.0
            if member[part_of[c], v]:
                remaining -= 1
        begun = sends
        if remaining == 0:
            return np.int64(step + 1), sends
    return INFINITE, sends
