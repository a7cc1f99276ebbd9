"""Topology text files of SimAI and of the ns-3 RDMA simulators that it grew from.

The header is ``nodes gpus_per_server nvswitches switches links gpu_type`` (SimAI) or ``nodes
switches links`` (ns-3); then the ids of all switches, then one line a link, ``src dst rate delay
error_rate``, each a cable both ways. Conventions of the format: rates in Gb/s (10^9 bits; ``Gbps``
or ``Mbps``), delays with ``ms``, ``us`` or ``ns``. A header that counts too few or too many links
is a complaint; the links that are there are read. Two links between one pair are an error: the
simulators would route over one of them.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from nestopt.core.errors import InputError
from nestopt.instances.network import NetworkBuilder
from nestopt.instances.readers.base import link_spec, strip_suffix, whole

if TYPE_CHECKING:
    from nestopt.instances.network import Network
    from nestopt.instances.readers.base import Reading, Source

__all__ = ["read_ns3", "write_ns3"]

_RATES = {"Gbps": Fraction(10**9, 8), "Mbps": Fraction(10**6, 8)}
_DELAYS = {"ms": Fraction(10**9), "us": Fraction(10**6), "ns": Fraction(1000)}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def read_ns3(source: Source) -> Reading:
    """Read either format, told apart by the header's number of fields (3, or 6 and more)."""
    rows: list[tuple[int, list[str]]] = []
    for number, text in enumerate(source.text.splitlines(), start=1):
        if _CONTROL.search(text):
            where = "header" if not rows else "text"
            raise source.error("holds terminal or other control codes", number, where)
        if text.split():
            rows.append((number, text.split()))
    nodes, servers, switches, links, body = _header(source, rows)
    builder = NetworkBuilder()
    for node in range(nodes):
        if node in switches:
            builder.switch(f"switch{node}")
        else:
            builder.npu(f"npu{node}")
    seen: dict[tuple[int, int], int] = {}
    for number, row in body:
        a, b = _link(source, builder, row, number, nodes)
        pair = (min(a, b), max(a, b))
        if pair in seen:
            raise source.error(f"duplicate edge, also on line {seen[pair]}", number, f"{a} {b}")
        seen[pair] = number
    if len(body) != links:
        source.complain(
            f"the header counts {links} links, the file has {len(body)}; all {len(body)} were read",
            rows[0][0],
            "link_num",
        )
    hosts = [node for node in range(nodes) if node not in switches]
    for start in range(0, len(hosts), servers) if servers > 1 else ():
        builder.group("node", hosts[start : start + servers])
    return source.reading(builder.build(source.name))


def _header(
    source: Source, rows: list[tuple[int, list[str]]]
) -> tuple[int, int, set[int], int, list[tuple[int, list[str]]]]:
    line, fields = rows[0]
    if len(fields) == 3:
        names = ["node_num", "switch_num", "link_num"]
    elif len(fields) >= 6:
        names = ["node_num", "gpus_per_server", "nvswitch_num", "switch_num", "link_num"]
    else:
        raise source.error(
            f"header of {len(fields)} fields; expected 3 (ns-3) or at least 6 (SimAI)",
            line,
            "header",
        )
    head = {n: whole(source, t, line, n) for n, t in zip(names, fields)}
    wanted = head["switch_num"] + head.get("nvswitch_num", 0)
    switches: set[int] = set()
    position = 1
    while len(switches) < wanted:
        if position >= len(rows):
            raise source.error(f"{len(switches)} switch ids; expected {wanted}", rows[-1][0])
        number, row = rows[position]
        for text in row:
            switch = whole(source, text, number, "switch id")
            if switch >= head["node_num"]:
                raise source.error(
                    f"{switch}; nodes are 0 to {head['node_num'] - 1}", number, "switch id"
                )
            if switch in switches:
                raise source.error(f"{switch} is listed twice", number, "switch id")
            switches.add(switch)
        position += 1
    if len(switches) > wanted:
        raise source.error(
            f"{len(switches)} switch ids; expected {wanted}", rows[position - 1][0], "switch id"
        )
    body = rows[position:]
    return head["node_num"], head.get("gpus_per_server", 1), switches, head["link_num"], body


def _link(
    source: Source, builder: NetworkBuilder, row: list[str], line: int, nodes: int
) -> tuple[int, int]:
    names = ("src", "dst", "rate", "delay", "error_rate")
    if len(row) < 4:
        raise source.error(f"short row: {len(row)} fields; expected 5", line, names[len(row)])
    if len(row) > 5:
        raise source.error(f"{len(row)} fields; expected 5", line, row[5])
    a, b = (whole(source, text, line, name) for name, text in zip(names, row[:2]))
    for name, node in (("src", a), ("dst", b)):
        if node >= nodes:
            raise source.error(f"{node}; nodes are 0 to {nodes - 1}", line, name)
    if a == b:
        raise source.error(f"{a} is joined to itself", line, "dst")
    rate, rate_unit = strip_suffix(source, row[2], _RATES, line, "rate")
    delay, delay_unit = strip_suffix(source, row[3], _DELAYS, line, "delay")
    spec = link_spec(source, (rate, rate_unit), (delay, delay_unit), line, ("rate", "delay"))
    builder.cable(a, b, spec, "link")
    return a, b


def write_ns3(network: Network) -> str:
    """The ns-3 text of a network.

    Raises
    ------
    InputError
        If a link lacks an equal reverse or has a parallel one, which the format cannot say.
    """
    switches = [str(i) for i, switch in enumerate(network.is_switch.tolist()) if switch]
    rows = list(
        zip(
            network.src.tolist(),
            network.dst.tolist(),
            network.bandwidth.tolist(),
            network.alpha_ps.tolist(),
        )
    )
    forward = sorted(row for row in rows if row[0] < row[1])
    backward = sorted((v, u, b, a) for u, v, b, a in rows if u > v)
    if forward != backward:
        raise InputError(
            "has links without an equal reverse; the ns-3 format has cables only",
            field=network.name,
        )
    if len({row[:2] for row in forward}) != len(forward):
        raise InputError("has parallel links, which the ns-3 format lacks", field=network.name)
    lines = [f"{network.num_nodes} {len(switches)} {len(forward)}"]
    if switches:
        lines.append(" ".join(switches))
    for u, v, bandwidth, alpha in forward:
        rate, delay = Fraction(bandwidth * 8, 10**9), Fraction(alpha, 10**9)
        lines.append(f"{u} {v} {_decimal(rate)}Gbps {_decimal(delay)}ms 0")
    return "\n".join(lines) + "\n"


def _decimal(value: Fraction) -> str:
    """A fraction whose denominator divides a power of ten, exactly."""
    text = f"{value.numerator * 10**12 // value.denominator:013d}"
    return f"{text[:-12]}.{text[-12:]}".rstrip("0").rstrip(".")
