"""Hops: what a chunk crosses from one node that multicasts to the next.

Between such nodes a hop is a link. A switch that cannot multicast forwards each copy that it
receives once, so that it is crossed, not visited: a hop then is a chain of links through one or
more of these switches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.event import heap_pop, heap_push, next_random

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.topology import Topology

__all__ = ["find_hops"]

MOST_HOPS = 1_000_000
VARIANTS = 4
_FAR = np.int64(2**62)


def find_hops(topology: Topology, transfer: NDArray[np.int64]) -> dict[str, Any]:
    """The hops of a topology, grouped by the link that they start on (the port).

    Up to four shortest hops, by `transfer` (int64[E]), are kept from each port to each node; ties
    are broken at random (fixed seed), which spreads them over equal paths. Where that makes too
    many, it is one, and each port keeps the nearest nodes and a random sample of the others.

    Returns
    -------
    dict
        ``port_ptr``, ``hop_src``, ``hop_dst``, ``hop_ptr``, ``hop_links``, ``node_ptr``,
        ``node_ports`` (int64 arrays) and ``plain`` (bool); see `Task`.
    """
    links = np.arange(topology.num_links, dtype=np.int64)
    crossed = ~topology.multicast
    if not crossed.any():
        ptr, out = topology.out_links()
        every = np.arange(topology.num_links + 1, dtype=np.int64)
        return {
            "port_ptr": every,
            "hop_src": topology.src.astype(np.int64),
            "hop_dst": topology.dst.astype(np.int64),
            "hop_ptr": every,
            "hop_links": links,
            "node_ptr": ptr,
            "node_ports": out.astype(np.int64),
            "plain": True,
        }
    ptr, out = topology.out_links()
    ports = links[~crossed[topology.src]]
    through = int(crossed[topology.dst[ports]].sum())
    keep = max(8, MOST_HOPS // max(through, 1))
    variants = int(np.clip(MOST_HOPS // (4 * max(through, 1) * topology.num_nodes), 1, VARIANTS))
    port_ptr, hop_dst, hop_ptr, hop_links = _trace(
        ports, topology.src, topology.dst, transfer, ptr, out, crossed, keep, variants
    )
    hop_src = np.repeat(topology.src[ports].astype(np.int64), np.diff(port_ptr))
    node_ptr = np.zeros(topology.num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(topology.src[ports], minlength=topology.num_nodes), out=node_ptr[1:])
    return {
        "port_ptr": port_ptr,
        "hop_src": hop_src,
        "hop_dst": hop_dst,
        "hop_ptr": hop_ptr,
        "hop_links": hop_links,
        "node_ptr": node_ptr,
        "node_ports": np.argsort(topology.src[ports], kind="stable"),
        "plain": False,
    }


@njit(cache=True, nogil=True)
def _trace(
    ports: Any,
    src: Any,
    dst: Any,
    transfer: Any,
    out_ptr: Any,
    out: Any,
    crossed: Any,
    keep: int,
    variants: int,
) -> tuple[Any, Any, Any, Any]:
    """Hops of every port by Dijkstra's algorithm through the crossed switches."""
    nodes, links = len(crossed), len(src)
    state = np.array([np.uint64(0x9E3779B97F4A7C15)])
    distance = np.full(nodes, _FAR)
    via = np.full(nodes, -1, dtype=np.int64)
    mark = np.zeros((variants, nodes), dtype=np.int64)
    key = np.empty(links + nodes + 1, dtype=np.int64)
    tie = np.empty(links + nodes + 1, dtype=np.int64)
    item = np.empty(links + nodes + 1, dtype=np.int64)
    port_ptr = np.zeros(len(ports) + 1, dtype=np.int64)
    hop_dst, hop_ptr, hop_links = [np.int64(0)], [np.int64(0)], [np.int64(0)]
    hop_dst.pop()
    hop_links.pop()
    for k in range(len(ports)):
        origin, first = src[ports[k]], ports[k]
        for variant in range(variants if crossed[dst[first]] else 1):
            reached = [np.int64(dst[first])]
            distance[dst[first]], via[dst[first]] = transfer[first], first
            size = heap_push(key, tie, item, 0, transfer[first], np.int64(0), np.int64(dst[first]))
            ends = [np.int64(0)]
            ends.pop()
            while size > 0:
                d, v = key[0], item[0]
                size = heap_pop(key, tie, item, size)
                if d > distance[v]:
                    continue
                if not crossed[v]:
                    ends.append(v)
                    continue
                ties = 1
                for index in range(out_ptr[v], out_ptr[v + 1]):
                    e = np.int64(out[index])
                    w, reach = np.int64(dst[e]), d + transfer[e]
                    if w == origin:
                        continue
                    if reach < distance[w]:
                        if distance[w] == _FAR:
                            reached.append(w)
                        distance[w], via[w] = reach, e
                        size = heap_push(key, tie, item, size, reach, next_random(state), w)
                    elif reach == distance[w]:
                        ties += 1
                        if next_random(state) % ties == 0:
                            via[w] = e
            if len(ends) > keep:
                # `ends` is in order of distance: keep the nearest half, sample the rest
                near = keep // 2
                for j in range(near, keep):
                    i = j + next_random(state) % (len(ends) - j)
                    ends[j], ends[i] = ends[i], ends[j]
                ends = ends[:keep]
            for w in ends:
                at: Any = w
                count, mark[variant, w] = 1, via[w]
                while via[at] != first:
                    at = np.int64(src[via[at]])
                    mark[variant, w] = mark[variant, w] * 1_000_003 + via[at]
                    count += 1
                if (mark[:variant, w] == mark[variant, w]).any():
                    continue
                begin = len(hop_links)
                for _ in range(count):
                    hop_links.append(np.int64(0))
                at = w
                for step in range(count - 1, -1, -1):
                    hop_links[begin + step] = via[at]
                    at = np.int64(src[via[at]])
                hop_dst.append(w)
                hop_ptr.append(np.int64(len(hop_links)))
            for w in reached:
                distance[w] = _FAR
        port_ptr[k + 1] = len(hop_dst)
    return port_ptr, np.array(hop_dst), np.array(hop_ptr), np.array(hop_links)
