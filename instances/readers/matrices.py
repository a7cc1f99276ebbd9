"""Formats that are matrices of links: SCCL/MSCCL and TACCL JSON, TE-CCL-style CSV.

SCCL and MSCCL: ``links[dst][src]`` (destination-major) is the number of chunks a link carries a
round, without a unit, so that the setting ``link`` says what 1 is worth (``link=25GB/s``); k is
read as k parallel links. Of ``switches`` only the form that means a switch is read: for every node
of a group one constraint on what it sends to the others and one on what it receives from them.

TACCL: ``betas[dst][src]`` in microseconds for the chunk size that the file was profiled for, which
is not in the file (setting ``size=1MB``), ``alpha`` in microseconds. Files that give
``node_betas_list`` instead need ``topo=ndv2`` or ``topo=dgx2``. With ``nodes=N`` the nodes are
joined by ``nics_per_node`` NICs of ``remote_beta`` and ``remote_alpha`` on one switch.

TE-CCL: matrices ``capacity[src][dst]`` in GB/s (10^9 bytes) and, with the setting ``alpha=FILE``,
latencies in seconds; 0 or nothing is no link. ``switches=8:9`` lists switches by number.
"""

from __future__ import annotations

import csv
import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.core.units import parse_bytes, parse_time_ps
from nestopt.instances.machines import DGX1V_LINKS
from nestopt.instances.network import NetworkBuilder
from nestopt.instances.readers.base import MOST_PARALLEL, Source, link_spec, whole
from nestopt.instances.spec import LinkSpec

if TYPE_CHECKING:
    from nestopt.instances.network import Network
    from nestopt.instances.readers.base import Reading

__all__ = ["load_json", "read_sccl", "read_taccl", "read_teccl", "write_sccl", "write_teccl"]


def load_json(source: Source) -> dict[str, Any]:
    """The JSON object of a file; a key given twice is an error."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in items]
        for key in keys:
            if keys.count(key) > 1:
                raise source.error("is given twice", None, key)
        return dict(items)

    def constant(text: str) -> float:
        raise source.error(f"{text} is not a finite number")

    try:
        data = json.loads(source.text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise source.error(
            f"not JSON: {error.msg}", error.lineno, f"column {error.colno}"
        ) from None
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise source.error(f"not JSON that can be read: {error}") from error
    if not isinstance(data, dict):
        raise source.error("expected an object", 1)
    return data


def _square(source: Source, data: dict[str, Any], field: str) -> list[list[Any]]:
    rows = data.get(field)
    if not isinstance(rows, list) or not rows:
        raise source.error("expected a square matrix", None, field)
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != len(rows):
            found = len(row) if isinstance(row, list) else row
            raise source.error(
                f"short row: {found} values; expected {len(rows)}", None, f"{field}[{index}]"
            )
    return rows


def read_sccl(source: Source) -> Reading:
    """Read SCCL or MSCCL JSON; settings ``link`` (bandwidth of multiplicity 1), ``alpha``."""
    data = load_json(source)
    if isinstance(data.get("topology"), dict):
        data = data["topology"]
    kind = data.get("msccl_type", data.get("sccl_type", "topology"))
    if kind != "topology":
        raise source.error(f"{kind!r}; expected 'topology'", None, "msccl_type")
    rows = _square(source, data, "links")
    rate = source.rate("link", "what a multiplicity of 1 is worth")
    alpha = parse_time_ps(source.settings.option("alpha") or "0us", "alpha")
    link = LinkSpec(rate, alpha)
    builder = NetworkBuilder()
    for node in range(len(rows)):
        builder.npu(f"npu{node}")
    switches = data.get("switches") or []
    if not isinstance(switches, list):
        raise source.error(f"{switches!r}; expected a list", None, "switches")
    joined = _sccl_switches(source, builder, switches, rows, link)
    for dst, row in enumerate(rows):
        for src, value in enumerate(row):
            where = f"links[{dst}][{src}]"
            count = whole(source, value, None, where, maximum=MOST_PARALLEL)
            if count and src == dst:
                raise source.error("joins a node to itself", None, where)
            if (src, dst) not in joined:
                builder.link(src, dst, link, "link", count)
    return source.reading(builder.build(str(data.get("name", source.name))))


def _sccl_switches(
    source: Source,
    builder: NetworkBuilder,
    switches: list[Any],
    rows: list[list[Any]],
    link: LinkSpec,
) -> set[tuple[int, int]]:
    """Add the switches; the pairs of NPUs whose links they replace."""
    send: dict[tuple[int, frozenset[int]], int] = {}
    receive: dict[tuple[int, frozenset[int]], int] = {}
    for index, row in enumerate(switches):
        where = f"switches[{index}]"
        if not isinstance(row, list) or len(row) != 4:
            raise source.error("expected [sources, destinations, bandwidth, name]", None, where)
        sources, destinations, bandwidth, _ = row
        if not isinstance(sources, list) or not isinstance(destinations, list):
            raise source.error("expected lists of sources and destinations", None, where)
        count = whole(source, bandwidth, None, f"{where}[2]", minimum=1, maximum=MOST_PARALLEL)
        if not all(isinstance(n, int) and 0 <= n < len(rows) for n in (*sources, *destinations)):
            raise source.error(f"{sources} and {destinations} are not all nodes", None, where)
        group = frozenset((*sources, *destinations))
        if len(sources) == 1 and len(destinations) == len(group) - 1:
            send[sources[0], group] = count
        elif len(destinations) == 1 and len(sources) == len(group) - 1:
            receive[destinations[0], group] = count
        else:
            raise source.error(
                "a constraint that is no port of a switch cannot be read", None, where
            )
    joined: set[tuple[int, int]] = set()
    for number, group in enumerate(
        sorted({g for _, g in send} | {g for _, g in receive}, key=sorted)
    ):
        switch = builder.switch(f"switch{number}")
        for node in sorted(group):
            if (node, group) not in send or (node, group) not in receive:
                raise source.error(f"node {node} lacks its port each way", None, "switches")
            builder.link(node, switch, link, "switch", send[node, group])
            builder.link(switch, node, link, "switch", receive[node, group])
            joined.update((node, other) for other in group if other != node)
    for src, dst in sorted(joined):
        if not rows[dst][src]:
            raise source.error(
                "no link where a switch joins the two nodes", None, f"links[{dst}][{src}]"
            )
    return joined


def write_sccl(network: Network) -> str:
    """SCCL JSON of a network without switches; 1 is its slowest link.

    Raises
    ------
    InputError
        If it has switches, or a bandwidth is no multiple of the slowest.
    """
    if network.is_switch.any():
        raise InputError("has switches, which are written only by hand", field=network.name)
    count = network.num_nodes
    rows = [[0] * count for _ in range(count)]
    unit = int(network.bandwidth.min()) if network.num_links else 1
    for u, v, bandwidth in zip(
        network.src.tolist(), network.dst.tolist(), network.bandwidth.tolist()
    ):
        if bandwidth % unit:
            raise InputError(
                f"{bandwidth} bytes/s is no multiple of the slowest link's {unit}",
                field=network.name,
            )
        rows[v][u] += bandwidth // unit
    data = {"msccl_type": "topology", "name": network.name, "switches": [], "links": rows}
    return json.dumps(data) + "\n"


def read_taccl(source: Source) -> Reading:
    """Read TACCL JSON; settings ``size``, ``nodes`` and, without matrices, ``topo``."""
    data = load_json(source)
    size = Fraction(parse_bytes(source.needed("size", "for which chunk size it holds"), "size"))
    microsecond = 10**6
    count = whole(source, data.get("gpus_per_node"), None, "gpus_per_node", minimum=1, maximum=1000)
    alpha = data.get("alpha", 0)
    builder = NetworkBuilder()
    nodes = source.settings.option_integer("nodes", 1)
    members = [[builder.npu(f"node{n}.gpu{i}") for i in range(count)] for n in range(nodes)]
    topo = source.settings.choice("topo", ("custom", "ndv2", "dgx2"), "custom")

    def link(beta: Any, latency: Any, where: str, where_latency: str) -> LinkSpec:
        # a time per chunk: its inverse is the rate
        probe = link_spec(
            source, (beta, 10**6), (latency, microsecond), None, (where, where_latency)
        )
        rate = size * 10**6 / Fraction(str(beta))
        return LinkSpec(round(rate), probe.alpha_ps)

    if topo == "custom":
        if "links" not in data:
            raise source.error(
                "is missing; a file with node_betas_list needs topo=ndv2 or topo=dgx2",
                None,
                "links",
            )
        rows, betas = _square(source, data, "links"), _square(source, data, "betas")
        if len(rows) != count or len(betas) != count:
            raise source.error(f"{len(rows)} rows for {count} GPUs", None, "links")
        for dst, row in enumerate(rows):
            for src, value in enumerate(row):
                where = f"[{dst}][{src}]"
                if whole(source, value, None, f"links{where}"):
                    spec = link(betas[dst][src], alpha, f"betas{where}", "alpha")
                    for node in members:
                        builder.link(node[src], node[dst], spec, "link")
    else:
        _known_taccl(source, builder, data, members, topo, link)
    for node in members:
        builder.group("node", node)
    if nodes > 1:
        _taccl_nics(source, builder, data, members, link)
    return source.reading(builder.build(str(data.get("name", source.name))))


def _known_taccl(
    source: Source,
    builder: NetworkBuilder,
    data: dict[str, Any],
    members: list[list[int]],
    topo: str,
    link: Any,
) -> None:
    betas = data.get("node_betas_list")
    size, kinds = (8, 2) if topo == "ndv2" else (16, 1)
    if not isinstance(betas, list) or len(betas) != kinds:
        raise source.error(f"{betas!r}; expected {kinds} values", None, "node_betas_list")
    if len(members[0]) != size:
        raise source.error(f"{len(members[0])}; {topo} has {size}", None, "gpus_per_node")
    alpha = data.get("alpha", 0)
    specs = [link(beta, alpha, f"node_betas_list[{i}]", "alpha") for i, beta in enumerate(betas)]
    for n, node in enumerate(members):
        if topo == "ndv2":
            # betas in increasing order: a double link first, then a single one
            for a, b, count in DGX1V_LINKS:
                builder.cable(node[a], node[b], specs[0 if count == 2 else 1], "nvlink")
        else:
            switch = builder.switch(f"node{n}.nvswitch")
            for gpu in node:
                builder.cable(gpu, switch, specs[0], "nvlink")


def _taccl_nics(
    source: Source,
    builder: NetworkBuilder,
    data: dict[str, Any],
    members: list[list[int]],
    link: Any,
) -> None:
    nics = whole(source, data.get("nics_per_node"), None, "nics_per_node", minimum=1)
    if "remote_beta" not in data:
        raise source.error("is missing", None, "remote_beta")
    spec = link(data["remote_beta"], data.get("remote_alpha", 0), "remote_beta", "remote_alpha")
    if len(members[0]) % nics:
        raise source.error(f"{nics} NICs for {len(members[0])} GPUs", None, "nics_per_node")
    core = builder.switch("core")
    share = len(members[0]) // nics
    for n, node in enumerate(members):
        for k in range(nics):
            nic = builder.switch(f"node{n}.nic{k}")
            for gpu in node[k * share : (k + 1) * share]:
                builder.cable(gpu, nic, LinkSpec(spec.bandwidth), "nic-port")
            builder.link(nic, core, spec, "nic")
            builder.link(core, nic, LinkSpec(spec.bandwidth), "nic")


def read_teccl(source: Source) -> Reading:
    """Read a capacity matrix; settings ``alpha`` (a file), ``switches``."""
    capacity = _csv(source)
    alpha_file = source.settings.option("alpha")
    alphas: list[list[str]] | None = None
    other = source
    if alpha_file is not None:
        other = Source.open(alpha_file, {})
        alphas = _csv(other)
        if len(alphas) != len(capacity):
            raise other.error(f"{len(alphas)} rows; {source.path} has {len(capacity)}")
    switches = set()
    listed = source.settings.option("switches")
    for text in listed.split(":") if listed else []:
        switch = whole(source, text, None, "setting switches")
        if switch >= len(capacity):
            raise source.error(f"{switch}; nodes are 0 to {len(capacity) - 1}", None, "switches")
        switches.add(switch)
    builder = NetworkBuilder()
    for node in range(len(capacity)):
        if node in switches:
            builder.switch(f"switch{node}")
        else:
            builder.npu(f"npu{node}")
    for src, row in enumerate(capacity):
        for dst, cell in enumerate(row):
            delay = (alphas[src][dst].strip() or "0") if alphas else "0"
            where = f"column {dst + 1}"
            if _empty(cell):
                continue
            if src == dst:
                raise source.error(f"{cell!r} joins a node to itself", src + 1, where)
            spec = link_spec(source, (cell, 10**9), ("0", 1), src + 1, (where, where))
            latency = link_spec(other, ("1", 1), (delay, 10**12), src + 1, (where, where))
            builder.link(src, dst, LinkSpec(spec.bandwidth, latency.alpha_ps), "link")
    return source.reading(builder.build(source.name))


def _empty(cell: str) -> bool:
    text = cell.strip()
    try:
        return not text or float(text) == 0
    except ValueError:
        return False


def _csv(source: Source) -> list[list[str]]:
    rows = [
        row for row in csv.reader(source.text.splitlines()) if any(cell.strip() for cell in row)
    ]
    for index, row in enumerate(rows):
        if len(row) != len(rows):
            kind = "short row" if len(row) < len(rows) else "long row"
            raise source.error(
                f"{kind}: {len(row)} values; expected {len(rows)}", index + 1, f"row {index}"
            )
    return rows


def write_teccl(network: Network) -> tuple[str, str]:
    """The capacity (GB/s) and alpha (s) matrices of a network as CSV.

    Raises
    ------
    InputError
        If it has parallel links, which the format cannot say.
    """
    count = network.num_nodes
    capacity = [["0"] * count for _ in range(count)]
    alpha = [["0"] * count for _ in range(count)]
    for u, v, bandwidth, delay in zip(
        network.src.tolist(),
        network.dst.tolist(),
        network.bandwidth.tolist(),
        network.alpha_ps.tolist(),
    ):
        if capacity[u][v] != "0":
            raise InputError("has parallel links, which the format lacks", field=network.name)
        capacity[u][v] = repr(bandwidth / 10**9)
        alpha[u][v] = repr(delay / 10**12)
    texts = ["\n".join(",".join(row) for row in rows) + "\n" for rows in (capacity, alpha)]
    return texts[0], texts[1]
