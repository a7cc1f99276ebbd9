"""Scheduler files that list hosts under switches: SLURM's topology files and topograph's models.

Neither says what is in a host or how fast a link is, so these are settings: ``gpus`` (a host),
``nvlink`` (a GPU's bandwidth inside its host or NVLink domain; needed if there is more than one
GPU), ``nic`` (a GPU's own link to the switch above its host) and ``uplink`` (every link between two
switches; needed if there are any), with latencies ``alpha`` for the three, separated by colons.

SLURM's topology.conf: ``SwitchName=`` with ``Nodes=`` or ``Switches=``, hostlists expanded, keys
without regard to case; ``LinkSpeed`` has no unit there, so it is not used, with a remark.
``BlockName=`` lines are NVLink domains whose hosts meet in one switch. SLURM's topology.yaml: a
list of topologies, each a ``tree`` of ``{switch, children, nodes}`` or a ``block`` list of
``{block, nodes}``; of several, the setting ``topology`` names one; otherwise the one with
``cluster_default`` or the first is read, with a remark.

topograph's JSON: ``{"switches": {NAME: {"switches": [...], "nodes": [{"node_id": ...,
"accelerated_network_id": ...}]}}}``; hosts of one accelerated network are an NVLink domain. Its
YAML models, older: ``switches`` as a list of ``{name, switches, capacity_blocks}`` with
``capacity_blocks`` of ``{name, nvlink, nodes}``; newer: ``switches`` by name, with ``blocks`` of
``{switch, nodes, labels}``, whose label ``.../level-0`` names the NVLink domain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nestopt.core.units import parse_time_ps
from nestopt.instances.network import NetworkBuilder
from nestopt.instances.readers.matrices import load_json
from nestopt.instances.spec import LinkSpec

if TYPE_CHECKING:
    from nestopt.instances.readers.base import Reading, Source

__all__ = ["Fabric", "Switch", "expand_hostlist", "read_slurm", "read_topograph", "reading_of"]

_KEYS = ("switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes")


@dataclass(slots=True)
class Switch:
    """A switch: the line that states it, and the switches and hosts below it."""

    line: int | None
    switches: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Fabric:
    """Switches by name, and the NVLink domain of every host that is in one."""

    switches: dict[str, Switch] = field(default_factory=dict)
    domain: dict[str, str] = field(default_factory=dict)


def expand_hostlist(source: Source, text: str, line: int | None, where: str) -> list[str]:
    """The names of a hostlist, ``tux[0-3,12],gpu7``; zero padding is kept."""
    names: list[str] = []
    for part in re.findall(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*", text):
        if part:
            names += _expand(source, part, line, where)
    if text.count("[") != text.count("]") or not names:
        raise source.error(f"{text!r} is no hostlist", line, where)
    return names


def _expand(source: Source, part: str, line: int | None, where: str) -> list[str]:
    match = re.search(r"\[([^\]]*)\]", part)
    if match is None:
        return [part]
    result = []
    for piece in match[1].split(","):
        low, dash, high = piece.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise source.error(f"{piece!r} in {part!r} is no range", line, where)
        last = int(high) if dash else int(low)
        if last < int(low) or last - int(low) > 10**6:
            raise source.error(f"{piece!r} in {part!r} is no range", line, where)
        for number in range(int(low), last + 1):
            name = f"{part[: match.start()]}{number:0{len(low)}d}{part[match.end() :]}"
            result += _expand(source, name, line, where)
    return result


def read_slurm(source: Source) -> Reading:
    """Read topology.conf or topology.yaml (topology/tree or topology/block)."""
    if re.search(r"(?m)^\s*-\s*topology\s*:", source.text):
        from nestopt.instances.readers.hosts_yaml import read_slurm_yaml

        return read_slurm_yaml(source)
    source.settings.option("topology")
    fabric = Fabric()
    blocks: list[str] = []
    for line, text in _lines(source):
        row: dict[str, str] = {}
        for token in text.split():
            key, equals, value = token.partition("=")
            if not equals or key.lower() not in _KEYS:
                raise source.error(f"unknown entry {token!r}", line, key)
            if key.lower() in row:
                raise source.error("is given twice", line, key)
            row[key.lower()] = value
        if "linkspeed" in row:
            source.complain("has no unit in this format and is not used", line, "LinkSpeed")
        if "switchname" in row:
            _slurm_switch(source, fabric, row, line)
        elif "blockname" in row:
            name = row["blockname"]
            hosts = expand_hostlist(source, row.get("nodes", ""), line, "Nodes")
            for host in hosts:
                if host in fabric.domain:
                    raise source.error(f"host {host} is in two blocks", line, "Nodes")
                fabric.domain[host] = name
            blocks += hosts
        elif "blocksizes" not in row:
            raise source.error("needs SwitchName or BlockName", line, text.split()[0])
    if blocks and not fabric.switches:
        fabric.switches["core"] = Switch(None, hosts=blocks)
    return reading_of(source, fabric)


def _lines(source: Source) -> list[tuple[int, str]]:
    """Numbered lines without comments, continuation lines joined to their first."""
    rows: list[tuple[int, str]] = []
    joining = False
    for number, raw in enumerate(source.text.splitlines(), start=1):
        text = raw.partition("#")[0].strip()
        more = text.endswith("\\")
        text = text.rstrip("\\").strip()
        if joining:
            rows[-1] = (rows[-1][0], f"{rows[-1][1]} {text}")
        elif text or more:
            rows.append((number, text))
        joining = more
    return [row for row in rows if row[1]]


def _slurm_switch(source: Source, fabric: Fabric, row: dict[str, str], line: int) -> None:
    for name in expand_hostlist(source, row["switchname"], line, "SwitchName"):
        if name in fabric.switches:
            raise source.error(f"duplicate switch {name!r}", line, "SwitchName")
        switch = Switch(line)
        if "switches" in row:
            switch.switches = expand_hostlist(source, row["switches"], line, "Switches")
        if "nodes" in row:
            switch.hosts = expand_hostlist(source, row["nodes"], line, "Nodes")
        if not switch.switches and not switch.hosts:
            raise source.error("needs Nodes or Switches", line, "SwitchName")
        fabric.switches[name] = switch


def read_topograph(source: Source) -> Reading:
    """Read topograph's JSON or YAML model of switches and nodes."""
    if not source.text.lstrip().startswith("{"):
        from nestopt.instances.readers.hosts_yaml import read_topograph_yaml

        return read_topograph_yaml(source)
    data = load_json(source)
    table = data.get("switches")
    if not isinstance(table, dict) or not table:
        raise source.error("expected an object of switches", None, "switches")
    fabric = Fabric()
    for name, entry in table.items():
        where = f"switches.{name}"
        if not isinstance(entry, dict) or not set(entry) <= {"switches", "nodes"} or not entry:
            raise source.error("expected 'switches' or 'nodes'", None, where)
        children, nodes = entry.get("switches", []), entry.get("nodes", [])
        if not isinstance(children, list) or not all(isinstance(c, str) for c in children):
            raise source.error("expected a list of names", None, f"{where}.switches")
        if not isinstance(nodes, list):
            raise source.error("expected a list of nodes", None, f"{where}.nodes")
        switch = fabric.switches[name] = Switch(None, children)
        for index, node in enumerate(nodes):
            field_ = f"{where}.nodes[{index}]"
            if not isinstance(node, dict) or not isinstance(node.get("node_id"), str):
                raise source.error("expected an object with node_id", None, field_)
            host = node["node_id"]
            switch.hosts.append(host)
            domain = node.get("accelerated_network_id")
            if domain:
                fabric.domain[host] = str(domain)
    return reading_of(source, fabric)


def reading_of(source: Source, fabric: Fabric) -> Reading:
    """The network of switches and hosts, with the settings that say what is in a host."""
    settings = source.settings
    source.needed("gpus", "how many GPUs a host has")
    gpus = settings.option_integer("gpus", 1)
    texts = (settings.option("alpha") or "0us").split(":")
    alphas = [parse_time_ps(text, "alpha") for text in (texts * 3 if len(texts) == 1 else texts)]
    if len(alphas) != 3 or min(alphas) < 0:
        raise source.error("expected three latencies, not negative", None, "setting alpha")

    def link(key: str, meaning: str, tier: int) -> LinkSpec:
        return LinkSpec(source.rate(key, meaning), alphas[tier])

    nic = link("nic", "how fast a GPU's NIC is", 1)
    builder = NetworkBuilder()
    above = {host: name for name, switch in fabric.switches.items() for host in switch.hosts}
    members = {host: [builder.npu(f"{host}.gpu{i}") for i in range(gpus)] for host in above}
    domains: dict[str, list[int]] = {}
    for host, npus in members.items():
        builder.group("node", npus)
        domains.setdefault(fabric.domain.get(host, f"host {host}"), []).extend(npus)
    if any(len(npus) > 1 for npus in domains.values()):
        nvlink = link("nvlink", "how fast GPUs of a host reach each other", 0)
        for name, npus in domains.items():
            switch = builder.switch(f"nvlink {name}")
            for npu in npus:
                builder.cable(npu, switch, nvlink, "nvlink")
    else:
        settings.option("nvlink")
    index = {name: builder.switch(name) for name in fabric.switches}
    uplink = None
    placed: dict[str, str] = {}
    for name, row in fabric.switches.items():
        for host in row.hosts:
            if host in placed:
                raise source.error(
                    f"host {host} is already under {placed[host]}", row.line, f"switch {name}"
                )
            placed[host] = name
            for npu in members[host]:
                builder.cable(npu, index[name], nic, "nic")
        builder.group("rack", [index[name], *(n for host in row.hosts for n in members[host])])
        for child in row.switches:
            if child not in index:
                raise source.error(f"unknown switch {child!r}", row.line, f"switch {name}")
            if row.switches.count(child) > 1 or child == name:
                raise source.error(f"duplicate edge to {child!r}", row.line, f"switch {name}")
            uplink = uplink or link("uplink", "how fast links between switches are", 2)
            builder.cable(index[name], index[child], uplink, "uplink")
    if uplink is None:
        settings.option("uplink")
    for host in fabric.domain:
        if host not in placed:
            raise source.error(f"host {host} is under no switch", None, "blocks")
    return source.reading(builder.build(source.name))
