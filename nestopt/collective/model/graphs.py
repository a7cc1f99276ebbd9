"""Topologies and networkx graphs: one made of the other.

Of a networkx graph every node is an NPU unless its attribute ``switch`` is true (or ``type`` is
``"switch"``); of a switch, ``multicast`` and ``reduce`` say what it can. Every edge has
``bandwidth``, text with a unit ("25 GB/s") or a whole number of bytes/s, and may have ``latency``
or ``alpha`` (text with a unit, or a number of seconds; 0 by default), ``alpha_ps`` (whole
picoseconds) and ``count`` (parallel links). An edge of an undirected graph is a link each way.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.model.topology import Topology
from nestopt.core.errors import InputError
from nestopt.core.units import parse_bandwidth, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["from_networkx", "to_networkx"]

MOST_PARALLEL = 1024


def from_networkx(
    graph: Any,
    *,
    bandwidth: str | float | None = None,
    latency: str | float | None = None,
    name: str | None = None,
) -> Topology:
    """See `Topology.from_networkx`."""
    nodes = list(graph.nodes)
    index = {node: position for position, node in enumerate(nodes)}
    flags: dict[str, list[int]] = {"switch": [], "multicast": [], "reduce": []}
    for node, position in index.items():
        values = graph.nodes[node]
        if values.get("switch") or values.get("type") == "switch":
            flags["switch"].append(position)
            for key in ("multicast", "reduce"):
                if values.get(key):
                    flags[key].append(position)
    rows: list[tuple[int, int, int, int]] = []
    for source, target, values in _edges(graph):
        where = f"edge {source!r} -> {target!r}"
        if source == target:
            raise InputError("joins a node to itself", field=where)
        alpha, rate = _figures(values, bandwidth, latency, where)
        row = (index[source], index[target], alpha, rate)
        for _ in range(_count(values, where)):
            rows.append(row)
            if not graph.is_directed():
                rows.append((row[1], row[0], alpha, rate))
    names = [str(node) for node in nodes]
    return Topology.from_links(
        name or str(graph.name or f"graph of {len(nodes)} nodes"),
        len(nodes),
        rows,
        switches=flags["switch"],
        multicast=flags["multicast"],
        reduces=flags["reduce"],
        node_names=() if nodes == list(range(len(nodes))) else names,
    )


def _edges(graph: Any) -> list[tuple[Any, Any, Mapping[str, Any]]]:
    """The edges; in the order of their keys where these number them, as `to_networkx` does."""
    if graph.is_multigraph():
        keyed = list(graph.edges(keys=True, data=True))
        keys = [key for _, _, key, _ in keyed]
        if all(isinstance(key, int) for key in keys) and sorted(keys) == list(range(len(keys))):
            keyed.sort(key=lambda edge: int(edge[2]))
        return [(source, target, values) for source, target, _, values in keyed]
    return list(graph.edges(data=True))


def _figures(
    values: Mapping[str, Any],
    bandwidth: str | float | None,
    latency: str | float | None,
    where: str,
) -> tuple[int, int]:
    """Latency in picoseconds and bandwidth in bytes/s of an edge."""
    stated = [key for key in ("latency", "alpha", "alpha_ps") if key in values]
    if len(stated) > 1:
        raise InputError(f"has both {stated[0]} and {stated[1]}; give one", field=where)
    if stated == ["alpha_ps"]:
        alpha = parse_time_ps(values["alpha_ps"], f"{where}: alpha_ps")
    else:
        given = values[stated[0]] if stated else (0 if latency is None else latency)
        alpha = latency_ps(given, f"{where}: latency")
    rate = values.get("bandwidth", bandwidth)
    if rate is None:
        raise InputError(
            "has no bandwidth; give each edge one, or from_networkx(..., bandwidth='25 GB/s')",
            field=where,
        )
    return alpha, whole_bandwidth(rate, f"{where}: bandwidth")


def _count(values: Mapping[str, Any], where: str) -> int:
    count = values.get("count", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MOST_PARALLEL:
        raise InputError(
            f"{count!r}; expected a whole number from 1 to {MOST_PARALLEL}", field=f"{where}: count"
        )
    return count


def latency_ps(value: Any, where: str) -> int:
    """Whole picoseconds of text with a unit, or of a number of seconds (rounded to picoseconds)."""
    if isinstance(value, str):
        return parse_time_ps(value, where)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{value!r}; expected seconds, or text such as '0.7 us'", field=where)
    if not 0 <= value < 1e6:
        raise InputError(f"{value!r}; expected seconds from 0 to 1e6", field=where)
    return round(Fraction(float(value)) * 10**12)


def whole_bandwidth(value: Any, where: str) -> int:
    """Whole bytes/s of text with a unit, or of a number."""
    if not isinstance(value, (str, int, float, np.integer, np.floating)):
        raise InputError(f"{value!r}; expected bytes/s, or text such as '25 GB/s'", field=where)
    if isinstance(value, (str, float, np.floating)):
        rate = parse_bandwidth(value if isinstance(value, str) else float(value), where)
        if int(rate) != rate:
            raise InputError(f"{value!r} is not a whole number of bytes/s", field=where)
        value = int(rate)
    if isinstance(value, bool) or value <= 0:
        raise InputError(f"{value!r}; expected a bandwidth above zero", field=where)
    return int(value)


def to_networkx(topology: Topology) -> Any:
    """See `Topology.to_networkx`."""
    import networkx as nx

    graph = nx.MultiDiGraph(name=topology.name)
    for node in range(topology.num_nodes):
        label = topology.node_names[node] if topology.node_names else node
        values: dict[str, Any] = {"switch": bool(topology.is_switch[node])}
        if values["switch"]:
            values["multicast"] = bool(topology.multicast[node])
            values["reduce"] = bool(topology.reduces[node])
        graph.add_node(label, **values)
    labels = list(graph.nodes)
    for link in range(topology.num_links):
        graph.add_edge(
            labels[int(topology.src[link])],
            labels[int(topology.dst[link])],
            key=link,
            bandwidth=int(topology.bandwidth[link]),
            alpha_ps=int(topology.alpha_ps[link]),
        )
    return graph
