"""GraphML, as networkx and other graph tools write it.

Nodes are NPUs unless an attribute ``switch`` is true or ``type`` is ``switch``. Edges need a
bandwidth: an attribute ``bandwidth`` that is text with a unit ("25 GB/s"), or ``LinkSpeedRaw`` in
bit/s (the Internet Topology Zoo's convention); a bare number in ``bandwidth`` needs the setting
``unit`` (``unit=1GB/s``). A latency is ``latency`` or ``alpha`` with its unit; without one it is 0.
Undirected edges are cables. A second edge between two nodes is an error unless the setting
``parallel=yes`` says that it is meant, or ``count`` on the edge says so.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from nestopt.core.errors import InputError
from nestopt.core.units import parse_bandwidth, parse_time_ps
from nestopt.instances.network import NetworkBuilder
from nestopt.instances.readers.base import MOST_PARALLEL, link_spec, whole
from nestopt.instances.readers.xml import parse_xml

if TYPE_CHECKING:
    from nestopt.instances.network import Network
    from nestopt.instances.readers.base import Reading, Source
    from nestopt.instances.readers.xml import Element
    from nestopt.instances.spec import LinkSpec

__all__ = ["read_graphml", "write_graphml"]


def read_graphml(source: Source) -> Reading:
    """Read the first graph of a file; settings ``unit`` and ``parallel``."""
    root = parse_xml(source)
    graphs = list(root.iter("graph"))
    if root.tag != "graphml" or not graphs:
        raise source.error("expected <graphml> with a <graph>", root.line, root.tag)
    keys: dict[str, str] = {}
    defaults: dict[str, dict[str, str]] = {"node": {}, "edge": {}}
    for key in root.iter("key"):
        name = key.attributes.get("attr.name", key.attributes.get("id", ""))
        keys[key.attributes.get("id", "")] = name
        for default in key.children:
            kind = key.attributes.get("for", "all")
            for target in defaults if kind == "all" else [kind] if kind in defaults else []:
                defaults[target][name] = default.text.strip()
    graph = graphs[0]
    unit = source.settings.option("unit")
    parallel = source.settings.flag("parallel")
    builder = NetworkBuilder()
    index: dict[str, int] = {}
    for node in graph.iter("node"):
        name = _attribute(source, node, "id")
        if name in index:
            raise source.error(f"duplicate node {name!r}", node.line, "node.id")
        values = {**defaults["node"], **_data(source, node, keys)}
        is_switch = values.get("switch", "").lower() in ("true", "1", "yes")
        is_switch |= values.get("type", "").lower() == "switch"
        index[name] = builder.switch(name) if is_switch else builder.npu(name)
    both = graph.attributes.get("edgedefault") != "directed"
    seen: dict[tuple[int, int], int] = {}
    for edge in graph.iter("edge"):
        ends = []
        for end in ("source", "target"):
            name = _attribute(source, edge, end)
            if name not in index:
                raise source.error(f"unknown node {name!r}", edge.line, f"edge.{end}")
            ends.append(index[name])
        a, b = ends
        directed = edge.attributes.get("directed", "false" if both else "true") == "true"
        if a == b:
            raise source.error("joins a node to itself", edge.line, "edge")
        for pair in [(a, b)] if directed else [(a, b), (b, a)]:
            if pair in seen and not parallel:
                raise source.error(
                    f"duplicate edge, also on line {seen[pair]}; parallel=yes if it is meant",
                    edge.line,
                    "edge",
                )
            seen[pair] = edge.line
        values = {**defaults["edge"], **_data(source, edge, keys)}
        count = whole(
            source, values.get("count", "1"), edge.line, "count", minimum=1, maximum=MOST_PARALLEL
        )
        spec = _link(source, values, unit, edge.line)
        if directed:
            builder.link(a, b, spec, "link", count)
        else:
            builder.cable(a, b, spec, "link", count)
    return source.reading(builder.build(source.name))


def _attribute(source: Source, element: Element, name: str) -> str:
    if name not in element.attributes:
        raise source.error("is missing", element.line, f"{element.tag}.{name}")
    return element.attributes[name]


def _data(source: Source, element: Element, keys: dict[str, str]) -> dict[str, str]:
    values = {}
    for data in element.children:
        if data.tag == "data":
            key = _attribute(source, data, "key")
            if key not in keys:
                raise source.error(f"undeclared key {key!r}", data.line, "data.key")
            values[keys[key]] = data.text.strip()
    return values


def _link(source: Source, values: dict[str, str], unit: str | None, line: int) -> LinkSpec:
    latency = values.get("latency", values.get("alpha", "0us"))
    try:
        alpha = parse_time_ps(latency)
    except InputError as error:
        raise source.error(str(error), line, "latency") from None
    if "bandwidth" in values:
        text = values["bandwidth"]
        try:
            number: object = Fraction(text)
        except ValueError:
            try:
                rate = parse_bandwidth(text)
            except InputError as error:
                raise source.error(str(error), line, "bandwidth") from None
            return link_spec(source, (rate, 1), (alpha, 1), line)
        if unit is None:
            raise source.error(
                f"{text!r} has no unit; give the setting unit (unit=1GB/s)", line, "bandwidth"
            )
        scale = Fraction(parse_bandwidth(unit, "unit"))
        return link_spec(source, (number, scale), (alpha, 1), line)
    if "LinkSpeedRaw" in values:
        raw = (values["LinkSpeedRaw"], Fraction(1, 8))
        return link_spec(source, raw, (alpha, 1), line, ("LinkSpeedRaw", "latency"))
    raise source.error("has no bandwidth", line, "edge")


def write_graphml(network: Network) -> str:
    """A network as directed GraphML; equal parallel links are one edge with a ``count``."""
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
        '  <key id="switch" for="node" attr.name="switch" attr.type="boolean"/>',
        '  <key id="bandwidth" for="edge" attr.name="bandwidth" attr.type="string"/>',
        '  <key id="latency" for="edge" attr.name="latency" attr.type="string"/>',
        '  <key id="count" for="edge" attr.name="count" attr.type="int"/>',
        '  <graph edgedefault="directed">',
    ]
    for name, switch in zip(network.node_names, network.is_switch.tolist()):
        data = '<data key="switch">true</data>' if switch else ""
        lines.append(f"    <node id={quoteattr(name)}>{data}</node>")
    counts: dict[tuple[int, int, int, int], int] = {}
    for row in zip(
        network.src.tolist(),
        network.dst.tolist(),
        network.bandwidth.tolist(),
        network.alpha_ps.tolist(),
    ):
        counts[row] = counts.get(row, 0) + 1
    for (u, v, bandwidth, alpha), count in counts.items():
        ends = (
            f"source={quoteattr(network.node_names[u])} target={quoteattr(network.node_names[v])}"
        )
        data = "".join(
            f'<data key="{key}">{escape(value)}</data>'
            for key, value in (
                ("bandwidth", f"{bandwidth} B/s"),
                ("latency", f"{alpha} ps"),
                ("count", str(count)),
            )
        )
        lines.append(f"    <edge {ends}>{data}</edge>")
    return "\n".join([*lines, "  </graph>", "</graphml>"]) + "\n"
