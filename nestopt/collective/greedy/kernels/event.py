"""Event-driven matching of links and chunks: the kernel for unequal links.

The time-expanded network is never built. Its matching is made in the order in which transfers
*end*: of all transfers that could be added now, the one that arrives first is taken. A fast link
therefore claims every chunk that it can bring before a slow link would have brought its own, and
a send never arrives later than one of the same chunk to the same node that is already under way.

A *hop* is what one claim crosses: a link between nodes that multicast or, through switches that do
not, a chain of links. Hops that start on the same link share a *port*.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue

__all__ = ["INFINITE", "match_events"]

INFINITE = np.int64(2**62)


@njit(cache=True, nogil=True, inline="always")
def next_random(state: Any) -> Any:
    """Next value of a xorshift generator (`state`: uint64[1]), 32 random bits as int64."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64(x >> np.uint64(33))


@njit(cache=True, nogil=True, inline="always")
def uniform(state: Any) -> float:
    """A number from 0 up to 1."""
    return next_random(state) / 2147483648.0


@njit(cache=True, nogil=True)
def random_state(seed: int) -> Any:
    """The state of the generator (uint64[1]) that a seed starts."""
    state = np.empty(1, dtype=np.uint64)
    state[0] = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0xD1B54A32D192ED03)
    for _ in range(4):
        next_random(state)
    return state


@njit(cache=True, nogil=True)
def heap_push(key: Any, tie: Any, item: Any, size: int, k: Any, t: Any, i: Any) -> int:
    """Push (k, t, i) on a binary heap of `size` entries; returns the new size."""
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if key[up] < k or (key[up] == k and tie[up] <= t):
            break
        key[at], tie[at], item[at] = key[up], tie[up], item[up]
        at = up
    key[at], tie[at], item[at] = k, t, i
    return size + 1


@njit(cache=True, nogil=True)
def heap_pop(key: Any, tie: Any, item: Any, size: int) -> int:
    """Remove the root of a binary heap (read it first); returns the new size."""
    if overdue():
        raise KernelStopped
    size -= 1
    k, t, i = key[size], tie[size], item[size]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= size:
            break
        right = down + 1
        if right < size and (
            key[right] < key[down] or (key[right] == key[down] and tie[right] < tie[down])
        ):
            down = right
        if k < key[down] or (k == key[down] and t <= tie[down]):
            break
        key[at], tie[at], item[at] = key[down], tie[down], item[down]
        at = down
    key[at], tie[at], item[at] = k, t, i
    return size


@njit(cache=True, nogil=True)
def _best_hop(
    port: int,
    port_ptr: Any,
    hop_src: Any,
    hop_dst: Any,
    hop_ptr: Any,
    hop_links: Any,
    occupancy: Any,
    transfer: Any,
    size_of: Any,
    arrival: Any,
    order: Any,
    count: Any,
    cursor: Any,
    free: Any,
    bias: Any,
    state: Any,
) -> tuple[Any, int]:
    """The transfer of this port with the least end + bias: its end and hop; hop -1 without one."""
    best, best_end, best_hop, ties = INFINITE, INFINITE, -1, 1
    for hop in range(port_ptr[port], port_ptr[port + 1]):
        u, v = hop_src[hop], hop_dst[hop]
        at = cursor[hop]
        while at < count[u] and arrival[v, order[u, at]] < INFINITE:
            at += 1
        cursor[hop] = at
        if at == count[u]:
            continue
        c = order[u, at]
        end = arrival[u, c]
        for step in range(hop_ptr[hop], hop_ptr[hop + 1]):
            end = max(free[hop_links[step]], end) + transfer[size_of[c], hop_links[step]]
        if end + bias[hop] < best:
            best, best_end, best_hop, ties = end + bias[hop], end, hop, 1
        elif end + bias[hop] == best:
            ties += 1
            if next_random(state) % ties == 0:
                best_end, best_hop = end, hop
    return best_end, best_hop


@njit(cache=True, nogil=True)
def match_events(
    port_ptr: Any,
    hop_src: Any,
    hop_dst: Any,
    hop_ptr: Any,
    hop_links: Any,
    node_ptr: Any,
    node_ports: Any,
    occupancy: Any,
    transfer: Any,
    size_of: Any,
    source: Any,
    part_of: Any,
    member: Any,
    relays: bool,
    distance: Any,
    window: int,
    weight_rare: float,
    weight_far: float,
    weight_random: float,
    patience: float,
    spread: float,
    seed: int,
    out_chunk: Any,
    out_link: Any,
    out_start: Any,
) -> tuple[Any, int]:
    """Match until every member of each chunk's group holds it.

    Parameters
    ----------
    port_ptr, hop_src, hop_dst, hop_ptr, hop_links
        Hops of each port, ends of each hop, links of each hop.
    node_ptr, node_ports
        Ports that leave each node.
    occupancy, transfer : int64[sizes, links]
    size_of, source, part_of : int32[chunks]
    member : bool[parts, nodes]
    relays : bool
        Whether a node may receive chunks that it does not need, to pass them on.
    distance : float64[nodes, nodes] or [1, 1]
        For the critical-path policy; unread where `weight_far` is 0.
    window : int
        How many unclaimed chunks a policy looks at.
    weight_rare, weight_far, weight_random : float
        The chunk with the least ``rare * holders - far * distance still to go + random * U(0, 1)``
        is taken; all 0 is first in, first out.
    patience : float
        How long a link may be held for a chunk that has not arrived yet, in transfer times.
    spread : float
        Where a port has several hops, up to how many transfer times of random, fixed bias decide
        between them.
    seed : int
    out_chunk, out_link, out_start : arrays to fill, one entry a send

    Returns
    -------
    (makespan, sends)
        Makespan `INFINITE` if the matching gave up.
    """
    nodes, chunks, ports = len(node_ptr) - 1, len(source), len(port_ptr) - 1
    state = random_state(seed)
    arrival = np.full((nodes, chunks), INFINITE, dtype=np.int64)
    order = np.empty((nodes, chunks), dtype=np.int32)
    count = np.zeros(nodes, dtype=np.int64)
    holders = np.ones(chunks, dtype=np.int32)
    cursor = np.zeros(len(hop_src), dtype=np.int64)
    free = np.zeros(occupancy.shape[1], dtype=np.int64)
    held = np.full(ports, -1, dtype=np.int64)
    version = np.zeros(ports, dtype=np.int64)
    dormant = np.zeros(ports, dtype=np.bool_)
    scored = weight_rare != 0.0 or weight_far != 0.0 or weight_random != 0.0
    bias = np.zeros(len(hop_src), dtype=np.int64)
    if spread > 0.0:
        scale = spread * transfer.mean() / 2147483648.0
        for hop in range(len(hop_src)):
            bias[hop] = np.int64(scale * next_random(state))
    remaining = 0
    for c in range(chunks):
        arrival[source[c], c] = 0
        order[source[c], count[source[c]]] = c
        count[source[c]] += 1
        for v in range(nodes):
            if member[part_of[c], v] and v != source[c]:
                remaining += 1
            elif not relays and v != source[c]:
                # as good as claimed: nobody will bring it
                arrival[v, c] = INFINITE - 1
    capacity = 4 * ports + 64
    key = np.empty(capacity, dtype=np.int64)
    tie = np.empty(capacity, dtype=np.int64)
    item = np.empty(capacity, dtype=np.int64)
    size = 0
    for port in range(ports):
        end, hop = _best_hop(
            port, port_ptr, hop_src, hop_dst, hop_ptr, hop_links, occupancy, transfer, size_of,
            arrival, order, count, cursor, free, bias, state,
        )  # fmt: skip
        if hop < 0:
            dormant[port] = True
        else:
            size = heap_push(key, tie, item, size, end, next_random(state), port)
    makespan, sends = np.int64(0), 0
    while remaining > 0:
        if size == 0:
            return INFINITE, sends
        popped = key[0]
        port = item[0] % ports
        stale = item[0] // ports != version[port]
        size = heap_pop(key, tie, item, size)
        if stale:
            continue
        end, hop = _best_hop(
            port, port_ptr, hop_src, hop_dst, hop_ptr, hop_links, occupancy, transfer, size_of,
            arrival, order, count, cursor, free, bias, state,
        )  # fmt: skip
        if hop < 0:
            dormant[port] = True
            held[port] = -1
            continue
        if held[port] >= 0:
            c = held[port]
            if arrival[hop_dst[hop], c] < INFINITE:
                held[port] = -1
        if held[port] < 0 and end > popped:
            size = heap_push(
                key, tie, item, size, end, next_random(state), version[port] * ports + port
            )
            continue
        u, v = hop_src[hop], hop_dst[hop]
        first = hop_links[hop_ptr[hop]]
        chosen = order[u, cursor[hop]]
        begin = max(free[first], arrival[u, chosen])
        if held[port] >= 0:
            chosen = held[port]
            begin = max(free[first], arrival[u, chosen])
            held[port] = -1
        elif scored:
            reach = begin
            if patience > 0.0 and port_ptr[port + 1] - port_ptr[port] == 1:
                reach += np.int64(patience * (end - begin))
            best, seen, at = np.inf, 0, cursor[hop]
            cls = size_of[chosen]
            while at < count[u] and seen < window:
                c = order[u, at]
                at += 1
                if arrival[u, c] > reach:
                    break
                if arrival[v, c] < INFINITE or size_of[c] != cls:
                    continue
                seen += 1
                score = weight_rare * holders[c]
                if weight_random != 0.0:
                    score += weight_random * uniform(state)
                if weight_far != 0.0:
                    far = 0.0
                    for w in range(nodes):
                        if member[part_of[c], w] and arrival[w, c] == INFINITE:
                            far = max(far, distance[v, w])
                    score -= weight_far * far
                if patience > 0.0 and arrival[u, c] > begin:
                    score += (arrival[u, c] - begin) / (end - begin)
                if score < best:
                    best, chosen = score, c
            if arrival[u, chosen] > begin:
                # the link waits for a chunk on its way to u
                held[port] = chosen
                end += arrival[u, chosen] - begin
                size = heap_push(
                    key, tie, item, size, end, next_random(state), version[port] * ports + port
                )
                continue
        here = begin
        for step in range(hop_ptr[hop], hop_ptr[hop + 1]):
            link = hop_links[step]
            here = max(free[link], here)
            out_chunk[sends], out_link[sends], out_start[sends] = chosen, link, here
            sends += 1
            free[link] = here + occupancy[size_of[chosen], link]
            here += transfer[size_of[chosen], link]
        arrival[v, chosen] = here
        order[v, count[v]] = chosen
        count[v] += 1
        holders[chosen] += 1
        if member[part_of[chosen], v]:
            remaining -= 1
            makespan = max(makespan, here)
        for which in range(-1, node_ptr[v + 1] - node_ptr[v]):
            # the port that was used, then those that leave v and may have something new to send
            each = port if which < 0 else node_ports[node_ptr[v] + which]
            single = port_ptr[each + 1] - port_ptr[each] == 1
            if which >= 0 and not dormant[each] and (single or held[each] >= 0):
                continue
            end, next_hop = _best_hop(
                each, port_ptr, hop_src, hop_dst, hop_ptr, hop_links, occupancy, transfer,
                size_of, arrival, order, count, cursor, free, bias, state,
            )  # fmt: skip
            if next_hop < 0:
                dormant[each] = True
                continue
            if which >= 0 and not dormant[each]:
                version[each] += 1
            dormant[each] = False
            if size + 1 >= len(key):
                key = np.concatenate((key, np.empty_like(key)))
                tie = np.concatenate((tie, np.empty_like(tie)))
                item = np.concatenate((item, np.empty_like(item)))
            size = heap_push(
                key, tie, item, size, end, next_random(state), version[each] * ports + each
            )
    return makespan, sends
