"""Where the nodes of a network go in a picture.

Grids lie as grids, machines as circles of GPUs around their switch, other networks as springs put
them. Positions depend on the network alone.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.topology import Topology

__all__ = ["link_paths", "places", "short_names"]

_COORDINATES = re.compile(r"npu(\d+)((?:\.\d+)*)")


def places(topology: Topology) -> NDArray[np.float64]:
    """Positions of the nodes in the plane, float64[nodes, 2]; neighbours are about 1 apart."""
    grid = _grid(topology)
    if grid is not None:
        return grid
    machines = _machines(topology)
    return machines if machines is not None else _springs(topology)


def _grid(topology: Topology) -> NDArray[np.float64] | None:
    """Places by the coordinates in the names ``npu2.3`` of nodes that are all NPUs.

    A third coordinate puts the layers side by side, a fourth below each other, and so on.
    """
    found = []
    for node in range(topology.num_nodes):
        match = _COORDINATES.fullmatch(topology.node_name(node))
        if match is None:
            return None
        found.append(tuple(int(c) for c in (match[1] + match[2]).split(".")))
    if len({len(c) for c in found}) != 1 or len(found[0]) < 2 or len(set(found)) != len(found):
        return None
    at = np.array(found, dtype=np.float64)
    place = np.stack([at[:, -1], -at[:, -2]], axis=1)
    for axis in range(at.shape[1] - 3, -1, -1):
        aside = (at.shape[1] - 3 - axis) % 2
        stride = float(np.ptp(place[:, aside])) + 2.0
        place[:, aside] += (1 - 2 * aside) * at[:, axis] * stride
        # aslant, so that links between layers do not lie upon those within them
        place[:, 1 - aside] += 0.23 * at[:, axis]
    return place


def _machines(topology: Topology) -> NDArray[np.float64] | None:
    """Places by names such as ``node0.gpu1``: one machine a name before the point.

    Machines with a switch inside stand in two rows, their GPUs in line towards the shared switches
    in the middle; machines whose GPUs are joined directly are circles in a grid.
    """
    hosts: dict[str, list[int]] = {}
    outside = []
    for node in range(topology.num_nodes):
        host, _, last = topology.node_name(node).rpartition(".")
        if host and not last.isdigit():
            hosts.setdefault(host, []).append(node)
        elif topology.is_switch[node]:
            outside.append(node)
        else:
            return None
    if not hosts or max(map(len, hosts.values())) < 2 or len(hosts) > 64:
        return None
    machines = list(hosts.values())
    if all(topology.is_switch[members].any() for members in machines):
        return _two_rows(topology, machines, outside)
    return _circles(topology, machines, outside)


def _two_rows(
    topology: Topology, machines: list[list[int]], outside: list[int]
) -> NDArray[np.float64]:
    place = np.zeros((topology.num_nodes, 2))
    pitch = max(map(len, machines)) + 0.8
    above = math.ceil(len(machines) / 2) if outside else len(machines)
    wide = pitch * above
    step = max(0.21 * wide, 1.5)
    for position, members in enumerate(machines):
        row, column = divmod(position, above)
        count = above if row == 0 else len(machines) - above
        centre = (column - (count - 1) / 2) * pitch
        side = 1 - 2 * row
        for inside, y in ((True, 1.8), (False, 1.0)):
            chosen = [v for v in members if topology.is_switch[v] == inside]
            spread = min(1.0, (pitch - 1) / max(1, len(chosen) - 1))
            for index, node in enumerate(chosen):
                x = centre + spread * (index - (len(chosen) - 1) / 2)
                place[node] = [x, side * step * y]
    for index, node in enumerate(outside):
        place[node] = [wide * ((index + 0.5) / len(outside) - 0.5), 0.0]
    return place


def _circles(
    topology: Topology, machines: list[list[int]], outside: list[int]
) -> NDArray[np.float64]:
    place = np.zeros((topology.num_nodes, 2))
    count = len(machines)
    radius = 0.35 + max(map(len, machines)) / (2 * math.pi)
    columns = math.ceil(math.sqrt(count * 1.6)) if count > 3 else count
    pitch = 2 * radius + 1.4
    above = (math.ceil(count / columns) + 1) // 2  # rows above the shared switches
    for position, members in enumerate(machines):
        row, column = divmod(position, columns)
        shift = (columns - min(count - row * columns, columns)) / 2
        y = -row * pitch - (1.6 if outside and row >= above else 0.0)
        for index, node in enumerate(members):
            angle = math.pi / 2 - 2 * math.pi * (index + 0.5) / len(members)
            place[node] = [
                (column + shift) * pitch + radius * math.cos(angle),
                y + radius * math.sin(angle),
            ]
    for index, node in enumerate(outside):
        x = (columns - 1) * pitch * (index + 1) / (len(outside) + 1)
        place[node] = [x, -(above - 1) * pitch - radius - 1.5]
    return place


def _springs(topology: Topology) -> NDArray[np.float64]:
    """Springs that pull links to one length; a square of nodes where there are too many."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(topology.num_nodes))
    graph.add_edges_from(zip(topology.src.tolist(), topology.dst.tolist()))
    if topology.num_nodes <= 150:
        place = nx.kamada_kawai_layout(graph)
    else:
        side = int(np.ceil(np.sqrt(topology.num_nodes)))
        start = {v: (v % side / side, v // side / side) for v in range(topology.num_nodes)}
        rounds = 30 if topology.num_nodes <= 1100 else 0
        place = nx.spring_layout(graph, pos=start, iterations=rounds, seed=0) if rounds else start
    found = np.array([place[v] for v in range(topology.num_nodes)], dtype=np.float64)
    along = found[topology.dst] - found[topology.src]
    length = float(np.median(np.hypot(along[:, 0], along[:, 1]))) if len(along) else 1.0
    return found / max(length, 1e-9)


def link_paths(topology: Topology, place: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each link as a line of three or nine points, float64[E, 3 or 9, 2].

    The two directions and parallel links lie side by side, to the right of who travels along. A
    link that skips over nodes of a grid, as those that close a torus do, is bent round them.
    """
    a, b = place[topology.src], place[topology.dst]
    along = b - a
    length = np.maximum(np.hypot(along[:, 0], along[:, 1]), 1e-12)[:, None]
    side = np.stack([along[:, 1], -along[:, 0]], axis=1) / length
    gap = 0.045 + 0.06 * _parallel_ranks(topology)[:, None]
    on_grid = _grid(topology) is not None
    bent = on_grid & (length > 1.5)
    near = np.minimum(0.11, 0.3 * length) / length
    shares = np.linspace(0, 1, 9 if bent.any() else 3)
    paths = np.stack([a + (near + share * (1 - 2 * near)) * along for share in shares], axis=1)
    paths += (side * gap)[:, None, :]
    rise = 4 * shares * (1 - shares)
    return np.asarray(paths + np.where(bent, 0.3 * side, 0.0)[:, None, :] * rise[None, :, None])


def _parallel_ranks(topology: Topology) -> NDArray[np.int64]:
    """How many earlier links join the same ends, of each link, int64[E]."""
    pair = topology.src.astype(np.int64) * topology.num_nodes + topology.dst
    order = np.argsort(pair, kind="stable")
    group = pair[order]
    first = np.append(True, group[1:] != group[:-1])[: len(group)]
    index = np.arange(len(group))
    rank = np.empty(len(group), dtype=np.int64)
    rank[order] = index - np.maximum.accumulate(np.where(first, index, 0))
    return rank


def short_names(topology: Topology) -> list[str]:
    """Names of the nodes for labels: ``n0 g3`` of ``node0.gpu3``, ``0.1`` of ``npu0.1``."""
    found = []
    for node in range(topology.num_nodes):
        name = topology.node_name(node)
        name = re.sub(r"^npu(?=\d)", "", name)
        found.append(re.sub(r"^node(\d+)\.(?:gpu|gcd)(\d+)$", r"\1.\2", name))
    return found
