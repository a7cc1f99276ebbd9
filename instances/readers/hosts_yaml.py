"""The YAML forms of scheduler files: SLURM's topology.yaml, topograph's models.

`nestopt.instances.readers.hosts` describes the formats and the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.instances.readers.fabric import Fabric, Switch, expand_hostlist, reading_of
from nestopt.instances.readers.yaml import load_yaml

if TYPE_CHECKING:
    from nestopt.instances.readers.base import Reading, Source

__all__ = ["read_slurm_yaml", "read_topograph_yaml"]

_LEVEL_0 = "level-0"


def _rows(source: Source, value: Any, where: str) -> list[dict[str, Any]]:
    """A list of mappings."""
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise source.error("expected a list of mappings", None, where)
    return value


def _text(source: Source, row: dict[str, Any], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, (str, int)) or isinstance(value, bool) or value == "":
        raise source.error(f"{value!r}; expected a name", None, f"{where}.{key}")
    return str(value)


def _names(source: Source, value: Any, where: str) -> list[str]:
    """Names from a hostlist or a list of hostlists; nothing is none."""
    if value is None:
        return []
    parts = value if isinstance(value, list) else [value]
    found: list[str] = []
    for part in parts:
        if not isinstance(part, (str, int)) or isinstance(part, bool):
            raise source.error(f"{part!r}; expected names", None, where)
        found += expand_hostlist(source, str(part), None, where)
    return found


def _refuse_others(source: Source, row: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in row:
        if key not in known:
            raise source.error(f"is unknown; expected {', '.join(known)}", None, f"{where}.{key}")


def _tell_others(source: Source, row: dict[str, Any], known: tuple[str, ...]) -> None:
    for key in row:
        if key not in known:
            source.complain("is not used", None, str(key))


def read_slurm_yaml(source: Source) -> Reading:
    """Read SLURM's topology.yaml."""
    value, _ = load_yaml(source)
    rows = _rows(source, value, "topologies")
    names = [_text(source, row, "topology", f"[{i}]") for i, row in enumerate(rows)]
    row = rows[_chosen(source, rows, names)]
    name = str(row["topology"])
    _refuse_others(source, row, ("topology", "cluster_default", "tree", "block", "flat"), name)
    kinds = [kind for kind in ("tree", "block", "flat") if row.get(kind)]
    if len(kinds) != 1:
        raise source.error("expected exactly one of tree, block and flat", None, name)
    if kinds[0] == "flat":
        raise source.error("a flat topology lists no hosts", None, f"{name}.flat")
    body = row[kinds[0]]
    if not isinstance(body, dict):
        raise source.error("expected a mapping", None, f"{name}.{kinds[0]}")
    tree = kinds[0] == "tree"
    fabric = _slurm_tree(source, body, name) if tree else _slurm_blocks(source, body, name)
    return reading_of(source, fabric)


def _chosen(source: Source, rows: list[dict[str, Any]], names: list[str]) -> int:
    """The index of the topology to read."""
    if not names:
        raise source.error("holds no topology", 1)
    wanted = source.settings.option("topology")
    if wanted is not None:
        if wanted not in names:
            raise source.error(
                f"no topology {wanted!r}; there are {', '.join(names)}", None, "setting topology"
            )
        return names.index(wanted)
    default = [i for i, row in enumerate(rows) if row.get("cluster_default") is True]
    index = default[0] if default else 0
    if len(names) > 1:
        source.complain(
            f"{len(names)} topologies; read {names[index]} (the setting topology names another)"
        )
    return index


def _slurm_tree(source: Source, body: dict[str, Any], name: str) -> Fabric:
    _refuse_others(source, body, ("switches",), f"{name}.tree")
    fabric = Fabric()
    for i, row in enumerate(_rows(source, body.get("switches"), f"{name}.tree.switches")):
        where = f"{name}.tree.switches[{i}]"
        _refuse_others(source, row, ("switch", "children", "nodes"), where)
        switch = _text(source, row, "switch", where)
        if switch in fabric.switches:
            raise source.error(f"duplicate switch {switch!r}", None, where)
        children = _names(source, row.get("children"), f"{where}.children")
        hosts = _names(source, row.get("nodes"), f"{where}.nodes")
        if not children and not hosts:
            raise source.error("needs nodes or children", None, where)
        fabric.switches[switch] = Switch(None, children, hosts)
    return fabric


def _slurm_blocks(source: Source, body: dict[str, Any], name: str) -> Fabric:
    _refuse_others(source, body, ("blocks", "block_sizes"), f"{name}.block")
    fabric = Fabric()
    blocks: list[str] = []
    for i, row in enumerate(_rows(source, body.get("blocks"), f"{name}.block.blocks")):
        where = f"{name}.block.blocks[{i}]"
        _refuse_others(source, row, ("block", "nodes"), where)
        block = _text(source, row, "block", where)
        for host in _names(source, row.get("nodes"), f"{where}.nodes"):
            if host in fabric.domain:
                raise source.error(f"host {host} is in two blocks", None, f"{where}.nodes")
            fabric.domain[host] = block
            blocks.append(host)
    fabric.switches["core"] = Switch(None, hosts=blocks)
    return fabric


def read_topograph_yaml(source: Source) -> Reading:
    """Read a YAML model of topograph, either form."""
    value, _ = load_yaml(source)
    if not isinstance(value, dict) or "switches" not in value:
        raise source.error("expected a mapping with switches", None, "switches")
    if isinstance(value["switches"], dict):
        return reading_of(source, _topograph_blocks(source, value))
    return reading_of(source, _topograph_capacity(source, value))


def _topograph_capacity(source: Source, value: dict[str, Any]) -> Fabric:
    """Switches that name capacity blocks, which list hosts and an NVLink domain."""
    _tell_others(source, value, ("topology", "switches", "capacity_blocks"))
    fabric = Fabric()
    blocks: dict[str, dict[str, Any]] = {}
    for i, row in enumerate(_rows(source, value.get("capacity_blocks", []), "capacity_blocks")):
        blocks[_text(source, row, "name", f"capacity_blocks[{i}]")] = row
    for i, row in enumerate(_rows(source, value["switches"], "switches")):
        where = f"switches[{i}]"
        name = _text(source, row, "name", where)
        if name in fabric.switches:
            raise source.error(f"duplicate switch {name!r}", None, where)
        switch = fabric.switches[name] = Switch(
            None, _names(source, row.get("switches"), f"{where}.switches")
        )
        for block in _names(source, row.get("capacity_blocks"), f"{where}.capacity_blocks"):
            if block not in blocks:
                raise source.error(f"unknown block {block!r}", None, f"{where}.capacity_blocks")
            hosts = _names(source, blocks[block].get("nodes"), f"capacity_blocks {block}.nodes")
            switch.hosts += hosts
            domain = blocks[block].get("nvlink")
            if domain is not None:
                fabric.domain |= dict.fromkeys(hosts, str(domain))
    return fabric


def _topograph_blocks(source: Source, value: dict[str, Any]) -> Fabric:
    """Switches by name, and blocks of hosts below them."""
    _tell_others(source, value, ("topology", "switches", "blocks", "labels"))
    fabric = Fabric()
    for name, row in value["switches"].items():
        where = f"switches.{name}"
        if row is not None and not isinstance(row, dict):
            raise source.error("expected a mapping", None, where)
        below = _names(source, (row or {}).get("switches"), f"{where}.switches")
        fabric.switches[str(name)] = Switch(None, below)
    for i, row in enumerate(_rows(source, value.get("blocks", []), "blocks")):
        where = f"blocks[{i}]"
        hosts = _names(source, row.get("nodes"), f"{where}.nodes")
        above = _text(source, row, "switch", where)
        # leaves are named by their blocks alone
        fabric.switches.setdefault(above, Switch(None)).hosts += hosts
        labels = row.get("labels") or {}
        if not isinstance(labels, dict):
            raise source.error("expected a mapping", None, f"{where}.labels")
        for label, domain in labels.items():
            if str(label).endswith(_LEVEL_0):
                fabric.domain |= dict.fromkeys(hosts, str(domain))
    return fabric
