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
from typing import TYPE_CHECKING

from nestopt.instances.readers.fabric import Fabric, Switch, expand_hostlist, reading_of
from nestopt.instances.readers.hosts_yaml import read_slurm_yaml, read_topograph_yaml
from nestopt.instances.readers.matrices import load_json

if TYPE_CHECKING:
    from nestopt.instances.readers.base import Reading, Source

__all__ = ["read_slurm", "read_topograph"]

_KEYS = ("switchname", "switches", "nodes", "linkspeed", "blockname", "blocksizes")


def read_slurm(source: Source) -> Reading:
    """Read topology.conf or topology.yaml (topology/tree or topology/block)."""
    if re.search(r"(?m)^\s*-\s*topology\s*:", source.text):
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
