"""Any network into a cluster by widest-path clustering.

The width of a path is its least bandwidth. Removing links from the narrowest up splits the NPUs
into ever smaller groups that are joined by wide paths; each width at which the partition changes is
a level of the tree (a single-linkage dendrogram of the widest-path widths).
"""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import InputError
from nestopt.instances.network import strongly_connected
from nestopt.placement.model.cluster import Cluster, Level, Override

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.instances.network import Network
    from nestopt.placement.model.cluster import DeviceType

__all__ = ["cluster_of", "widest_path_partitions"]


def widest_path_partitions(
    network: Network, tolerance: float = 1.25, levels: int = 5
) -> list[tuple[int, list[tuple[int, ...]]]]:
    """Partitions of the NPUs by path width, finest first.

    Parameters
    ----------
    network : Network
    tolerance : float
        Widths within this ratio make one level.
    levels : int
        At most so many; the tolerance is raised until that holds.

    Returns
    -------
    list of (int, list of tuples of int)
        The width in bytes/s, and the groups of NPUs joined by paths at least that wide, in order of
        their first NPU. The last has one group. A cable's width is the smaller of its directions;
        parallel links add up.

    Raises
    ------
    InputError
        If the NPUs are not strongly connected.
    """
    if not strongly_connected(network):
        raise InputError("the NPUs do not all reach each other", field=network.name)
    widths = _widths(network)
    parent = list(range(network.num_nodes))
    merges = []
    for width, u, v in sorted(((w, u, v) for (u, v), w in widths.items()), reverse=True):
        if _find(parent, u) != _find(parent, v):
            parent[_find(parent, v)] = _find(parent, u)
            merges.append((width, u, v))
    while True:
        partitions = _partitions(network, merges, tolerance)
        if len(partitions) <= levels:
            return partitions
        tolerance *= 1.25


def _partitions(
    network: Network, merges: list[tuple[int, int, int]], tolerance: float
) -> list[tuple[int, list[tuple[int, ...]]]]:
    """The partition after every run of merges whose widths are within a factor `tolerance`."""
    npus = [(npu,) for npu in network.npus.tolist()]
    partitions: list[tuple[int, list[tuple[int, ...]]]] = []
    count = len(npus)
    widest = 0
    for position, (width, _, _) in enumerate(merges):
        widest = widest or width
        if position + 1 < len(merges) and merges[position + 1][0] * tolerance >= widest:
            continue
        widest = 0
        links = [(u, v) for _, u, v in merges[: position + 1]]
        groups = _joined(network.num_nodes, npus, links)
        if len(groups) < count:
            count = len(groups)
            partitions.append((width, groups))
    return partitions or [(1, [(int(network.npus[0]),)])]


def _widths(network: Network) -> dict[tuple[int, int], int]:
    total: dict[tuple[int, int], int] = {}
    for u, v, bandwidth in zip(
        network.src.tolist(), network.dst.tolist(), network.bandwidth.tolist()
    ):
        total[u, v] = total.get((u, v), 0) + bandwidth
    return {
        (u, v): min(forward, total[v, u])
        for (u, v), forward in total.items()
        if u < v and (v, u) in total
    }


def cluster_of(
    network: Network, device: DeviceType, *, tolerance: float = 1.25, levels: int = 5
) -> tuple[Cluster, tuple[int, ...]]:
    """A network as a cluster of one device type.

    A level's groups come from `widest_path_partitions`. The port of a device at a level is the
    bandwidth of its links that lead, over switches alone, to NPUs outside its group of the level
    below (the width of its widest path there, where others must relay); a group's uplink is the
    maximum flow out of it that no NPU outside relays; a level's latency the largest, over its child
    groups, of the least latency from the first one. What a group does not share with most of its
    level becomes an override.

    Returns
    -------
    (Cluster, tuple of int)
        The cluster, and for every device its NPU in the network.

    Raises
    ------
    InputError
        If the NPUs are not strongly connected.
    """
    partitions = _refined(network, widest_path_partitions(network, tolerance, levels))
    order = _hierarchy_order(partitions)
    place = {npu: i for i, npu in enumerate(order)}
    rows: list[Level] = []
    overrides: list[Override] = []
    sizes: list[tuple[int, ...]] = []
    below: list[tuple[int, ...]] = [(npu,) for npu in order]
    for depth, (width, unordered) in enumerate(partitions):
        groups = sorted(unordered, key=lambda group: min(place[npu] for npu in group))
        last = depth == len(partitions) - 1
        ports = _ports(network, groups, below, width)
        latencies = [_latency(network, group, below, width) for group in groups]
        uplinks = [math.inf] * len(groups) if last else _uplinks(network, groups)
        common = [_most_common(values) for values in (latencies, ports, uplinks)]
        rows.append(Level(f"level{depth}", *common))
        for group, row in enumerate(zip(latencies, ports, uplinks)):
            different = [None if a == b else a for a, b in zip(row, common)]
            if any(value is not None for value in different):
                overrides.append(Override(depth, group, *different))
        sizes.append(tuple(len(group) for group in groups))
        below = groups
    cluster = Cluster(
        network.name,
        tuple(rows),
        (device,),
        np.zeros(len(order), dtype=np.int64),
        tuple(sizes),
        (),
        tuple(overrides),
    )
    return cluster, tuple(order)


def _refined(
    network: Network, partitions: list[tuple[int, list[tuple[int, ...]]]]
) -> list[tuple[int, list[tuple[int, ...]]]]:
    """Partitions with further levels where switches are oversubscribed.

    Oversubscribed uplinks can be as wide as the ports below them. The groups that are joined by
    switches at most k hops from an NPU become a level where one's uplink carries less than its
    ports do together.
    """
    height = _heights(network)
    pairs = _pair_bandwidth(network)
    below: list[tuple[int, ...]] = [(npu,) for npu in network.npus.tolist()]
    result: list[tuple[int, list[tuple[int, ...]]]] = []
    for width, groups in partitions:
        for k in range(1, max(height, default=0)):
            links = [
                (u, v)
                for (u, v), bandwidth in pairs.items()
                if bandwidth >= width and max(height[u], height[v]) <= k
            ]
            finer = _joined(network.num_nodes, below, links)
            if len(groups) < len(finer) < len(below):
                ports = _ports(network, groups, finer, width)
                port = dict(zip((npu for group in groups for npu in group), _each(ports, groups)))
                short = (
                    uplink < len(group) * port[group[0]]
                    for group, uplink in zip(finer, _uplinks(network, finer))
                )
                if any(short):
                    result.append((width, finer))
                    below = finer
        result.append((width, groups))
        below = groups
    return result


def _each(values: Sequence[float], groups: Sequence[tuple[int, ...]]) -> list[float]:
    return [value for value, group in zip(values, groups) for _ in group]


def _heights(network: Network) -> list[int]:
    """For every switch its hops to the nearest NPU; 0 for an NPU."""
    neighbours: list[list[int]] = [[] for _ in range(network.num_nodes)]
    for u, v in zip(network.src.tolist(), network.dst.tolist()):
        neighbours[u].append(v)
    height = [-1 if switch else 0 for switch in network.is_switch.tolist()]
    front = network.npus.tolist()
    while front:
        reached = []
        for node in front:
            for other in neighbours[node]:
                if height[other] < 0:
                    height[other] = height[node] + 1
                    reached.append(other)
        front = reached
    return [max(h, 0) for h in height]


def _find(parent: list[int], node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


def _joined(
    num_nodes: int, groups: Sequence[tuple[int, ...]], links: Sequence[tuple[int, int]]
) -> list[tuple[int, ...]]:
    """The groups joined where links connect them, in order of their first NPU."""
    parent = list(range(num_nodes))
    for group in groups:
        for npu in group[1:]:
            parent[_find(parent, npu)] = _find(parent, group[0])
    for u, v in links:
        parent[_find(parent, u)] = _find(parent, v)
    members: dict[int, list[int]] = {}
    for npu in sorted(npu for group in groups for npu in group):
        members.setdefault(_find(parent, npu), []).append(npu)
    return [tuple(group) for group in members.values()]


def _most_common(values: Sequence[float]) -> float:
    return max(sorted(set(values)), key=lambda value: (values.count(value), value))


def _hierarchy_order(partitions: list[tuple[int, list[tuple[int, ...]]]]) -> list[int]:
    """NPUs such that every group of every level is a run; within a group by first NPU."""
    keys: dict[int, list[int]] = {}
    for _, groups in reversed(partitions):
        for group in groups:
            for npu in group:
                keys.setdefault(npu, []).append(min(group))
    return sorted(keys, key=lambda npu: (*keys[npu], npu))


def _ports(
    network: Network, groups: list[tuple[int, ...]], below: list[tuple[int, ...]], width: int
) -> list[float]:
    """The least port of a device of each group."""
    child = np.full(network.num_nodes, -1)
    for index, members in enumerate(below):
        child[list(members)] = index
    group_of = np.full(network.num_nodes, -1)
    for index, members in enumerate(groups):
        group_of[list(members)] = index
    leads = _switch_reach(network, child, group_of, width)
    total = np.zeros(network.num_nodes, dtype=np.int64)
    pairs = _pair_bandwidth(network)
    for link, (u, v) in enumerate(zip(network.src.tolist(), network.dst.tolist())):
        if group_of[u] < 0 or pairs[u, v] < width:
            continue
        direct = group_of[v] == group_of[u] and child[v] != child[u]
        if direct or leads[v].get(int(group_of[u]), set()) - {int(child[u])}:
            total[u] += network.bandwidth[link]
    return [float(min(int(total[npu]) or width for npu in members)) for members in groups]


def _pair_bandwidth(network: Network) -> dict[tuple[int, int], int]:
    total: dict[tuple[int, int], int] = {}
    for u, v, bandwidth in zip(
        network.src.tolist(), network.dst.tolist(), network.bandwidth.tolist()
    ):
        total[u, v] = total.get((u, v), 0) + bandwidth
    return total


def _switch_reach(
    network: Network, child: NDArray[np.int64], group_of: NDArray[np.int64], width: int
) -> list[dict[int, set[int]]]:
    """For every switch, by group: up to two child groups whose NPUs it reaches over switches.

    Two are enough to know whether it reaches another one than the asking device's own.
    """
    reach: list[dict[int, set[int]]] = [{} for _ in range(network.num_nodes)]
    into: list[list[int]] = [[] for _ in range(network.num_nodes)]
    widest = _pair_bandwidth(network)
    for u, v in widest:
        if network.is_switch[u] and widest[u, v] >= width:
            into[v].append(u)
    work = [
        (switch, int(group_of[npu]), int(child[npu]))
        for npu in network.npus.tolist()
        for switch in into[npu]
    ]
    while work:
        switch, group, member = work.pop()
        known = reach[switch].setdefault(group, set())
        if member in known or len(known) >= 2:
            continue
        known.add(member)
        work += [(other, group, member) for other in into[switch]]
    return reach


def _uplinks(network: Network, groups: list[tuple[int, ...]]) -> list[float]:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    pairs = _pair_bandwidth(network)
    unit = math.gcd(*pairs.values())
    while sum(pairs.values()) // unit >= 2**31:
        unit *= 2
    tails = np.array([u for u, _ in pairs], dtype=np.int64)
    heads = np.array([v for _, v in pairs], dtype=np.int64)
    capacity = np.array([value // unit for value in pairs.values()], dtype=np.int32)
    source, sink = network.num_nodes, network.num_nodes + 1
    npu = ~network.is_switch
    result = []
    for group in groups:
        inside = np.zeros(network.num_nodes, dtype=bool)
        inside[list(group)] = True
        tail = np.where(inside[tails], source, np.where(npu[tails], -1, tails))
        head = np.where(inside[heads], -1, np.where(npu[heads], sink, heads))
        kept = (tail >= 0) & (head >= 0)
        graph = csr_array(
            (capacity[kept], (tail[kept], head[kept])), shape=(sink + 1, sink + 1), dtype=np.int32
        )
        result.append(float(maximum_flow(graph, source, sink).flow_value * unit))
    return result


def _latency(
    network: Network, group: tuple[int, ...], below: list[tuple[int, ...]], width: int
) -> float:
    """Seconds from the first NPU's child group to the farthest other child group."""
    members = set(group)
    children = [child for child in below if child[0] in members]
    pairs = _pair_bandwidth(network)
    neighbours: dict[int, list[tuple[int, int]]] = {}
    for u, v, alpha in zip(network.src.tolist(), network.dst.tolist(), network.alpha_ps.tolist()):
        if pairs[u, v] >= width:
            neighbours.setdefault(u, []).append((v, alpha))
    distance: dict[int, int] = dict.fromkeys(children[0], 0)
    heap = [(0, npu) for npu in children[0]]
    while heap:
        so_far, node = heapq.heappop(heap)
        if so_far > distance[node]:
            continue
        for other, alpha in neighbours.get(node, ()):
            if so_far + alpha < distance.get(other, 2**62):
                distance[other] = so_far + alpha
                heapq.heappush(heap, (so_far + alpha, other))
    reached = [min(distance.get(npu, 0) for npu in child) for child in children]
    return max(reached) / 1e12
