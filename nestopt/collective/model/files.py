"""The JSON forms of topologies and collectives, validated at the file boundary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictFloat, StrictInt

from nestopt.collective.model.collective import PATTERNS, Collective, Part
from nestopt.collective.model.collective import SCHEMA as COLLECTIVE_SCHEMA
from nestopt.collective.model.topology import MOST_LINKS, MOST_NODES, Topology
from nestopt.collective.model.topology import SCHEMA as TOPOLOGY_SCHEMA
from nestopt.core.errors import InputError, unknown_name
from nestopt.core.io import validate_model
from nestopt.core.units import parse_bandwidth, parse_bytes, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["collective_from_json", "topology_from_json"]

Whole: TypeAlias = StrictInt
Quantity: TypeAlias = StrictInt | StrictFloat | str
Count: TypeAlias = Annotated[int, Field(strict=True, ge=1, le=MOST_NODES)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Node(_Strict):
    id: str | Whole
    switch: StrictBool = False
    multicast: StrictBool = False
    reduce: StrictBool = False


class _Link(_Strict):
    src: str | Whole
    dst: str | Whole
    alpha: str | None = None
    alpha_ps: StrictInt | StrictFloat | None = None
    bandwidth: Quantity
    id: str | Whole | None = None
    count: Count = 1
    bidirectional: StrictBool = False


class _Columns(_Strict):
    src: list[Whole]
    dst: list[Whole]
    alpha_ps: Whole | list[Whole]
    bandwidth: Whole | list[Whole]


class _Network(_Strict):
    schema_: Literal["nestopt.topology/1"] = Field(alias="schema")
    name: str = "topology"
    switches: list[Whole] = []
    multicast: list[Whole] = []
    reduce: list[Whole] = []


class _ByColumns(_Network):
    nodes: Count
    names: list[str] = []
    links: _Columns


class _ByNumber(_Network):
    nodes: Count
    links: list[_Link]


class _ByName(_Strict):
    schema_: Literal["nestopt.topology/1"] = Field(alias="schema")
    name: str = "topology"
    nodes: list[_Node]
    links: list[_Link]


class _Range(_Strict):
    first: Annotated[int, Field(strict=True, ge=0, lt=MOST_NODES)]
    count: Count


class _Part(_Strict):
    pattern: str
    npus: list[Whole] | _Range
    chunk_size: Quantity
    chunks_per_npu: Whole = 1
    root: Whole | None = None
    chunks: Whole | None = None


class _Collective(_Strict):
    schema_: Literal["nestopt.collective/1"] = Field(alias="schema")
    name: str = ""
    parts: list[_Part]


def _at(file: str | None, field: str, build: Callable[[], Any]) -> Any:
    """`build()`, its `InputError` told where in which file it arose."""
    try:
        return build()
    except InputError as error:
        if error.file is not None:
            raise
        message = str(error).removeprefix(f"{error.field}: ") if error.field else str(error)
        where = field if not error.field or error.field == field else error.field
        if field and error.field and not error.field.startswith(field):
            where = f"{field}.{error.field}"
        raise InputError(message, file=file, field=where or None) from error


def topology_from_json(data: Any, *, file: str | None = None) -> Topology:
    """`Topology.from_json`: see there."""
    _expect_schema(data, TOPOLOGY_SCHEMA, file)
    # the form is told apart first, so that an error speaks of that form alone
    if isinstance(data.get("links"), dict):
        return _from_columns(validate_model(_ByColumns, data, file=file), file)
    if isinstance(data.get("nodes"), list):
        named = validate_model(_ByName, data, file=file)
        return _from_objects(named.name, named.nodes, named.links, file)
    model = validate_model(_ByNumber, data, file=file)
    nodes = [_Node(id=str(node)) for node in range(model.nodes)]
    for key in ("switches", "multicast", "reduce"):
        for node in getattr(model, key):
            if not 0 <= node < len(nodes):
                raise InputError(f"{node} is an unknown node", file=file, field=key)
            setattr(nodes[node], "switch" if key == "switches" else key, True)
    return _from_objects(model.name, nodes, model.links, file)


def _from_columns(model: _ByColumns, file: str | None) -> Topology:
    columns, num_nodes = model.links, model.nodes
    count = len(columns.src)

    def column(values: int | list[int]) -> list[int]:
        return [values] * count if isinstance(values, int) else values

    def build() -> Topology:
        return Topology(
            name=model.name,
            num_nodes=num_nodes,
            is_switch=_mask(model.switches, num_nodes, "switches"),
            src=np.array(columns.src, dtype=object),
            dst=np.array(columns.dst, dtype=object),
            alpha_ps=np.array(column(columns.alpha_ps), dtype=object),
            bandwidth=np.array(column(columns.bandwidth), dtype=object),
            multicast=_mask(model.multicast, num_nodes, "multicast"),
            reduces=_mask(model.reduce, num_nodes, "reduce"),
            node_names=tuple(model.names),
        )

    topology: Topology = _at(file, "", build)
    return topology


def _from_objects(name: str, nodes: list[_Node], links: list[_Link], file: str | None) -> Topology:
    index: dict[str, int] = {}
    for position, each in enumerate(nodes):
        if index.setdefault(str(each.id), position) != position:
            raise InputError(
                f"duplicate id {each.id!r}, also of nodes[{index[str(each.id)]}]",
                file=file,
                field=f"nodes[{position}].id",
            )
    total = sum(link.count * (2 if link.bidirectional else 1) for link in links)
    if total > MOST_LINKS:
        raise InputError(f"{total} links; at most {MOST_LINKS}", file=file, field="links")
    rows: list[tuple[int, int, int, int]] = []
    link_ids: dict[str, int] = {}
    for position, link in enumerate(links):
        field = f"links[{position}]"
        if link.id is not None and link_ids.setdefault(str(link.id), position) != position:
            raise InputError(
                f"duplicate id {link.id!r}, also of links[{link_ids[str(link.id)]}]",
                file=file,
                field=f"{field}.id",
            )
        ends = [_end(index, getattr(link, end), file, f"{field}.{end}") for end in ("src", "dst")]
        alpha, bandwidth = _times(link, file, field)
        if ends[0] == ends[1]:
            message = f"{link.src!r} is a self loop: src and dst are one node"
            raise InputError(message, file=file, field=f"{field}.src")
        if alpha < 0:
            message = f"{link.alpha or link.alpha_ps!r} is a negative latency"
            raise InputError(message, file=file, field=f"{field}.alpha")
        if bandwidth <= 0:
            what = "zero" if bandwidth == 0 else "negative"
            message = f"{link.bandwidth!r} is a {what} bandwidth"
            raise InputError(message, file=file, field=f"{field}.bandwidth")
        for _ in range(link.count):
            rows.append((ends[0], ends[1], alpha, bandwidth))
            if link.bidirectional:
                rows.append((ends[1], ends[0], alpha, bandwidth))
    names = [str(node.id) for node in nodes]
    numbered = names == [str(position) for position in range(len(names))]

    def build() -> Topology:
        return Topology.from_links(
            name,
            len(nodes),
            rows,
            switches=[v for v, node in enumerate(nodes) if node.switch],
            multicast=[v for v, node in enumerate(nodes) if node.multicast],
            reduces=[v for v, node in enumerate(nodes) if node.reduce],
            node_names=() if numbered else names,
        )

    topology: Topology = _at(file, "", build)
    return topology


def _end(index: dict[str, int], node: str | int, file: str | None, field: str) -> int:
    if str(node) not in index:
        raise InputError(f"{node!r} is an unknown node", file=file, field=field)
    return index[str(node)]


def _times(link: _Link, file: str | None, field: str) -> tuple[int, int]:
    if (link.alpha is None) == (link.alpha_ps is None):
        raise InputError("give one of 'alpha' (with a unit) and 'alpha_ps'", file=file, field=field)
    if link.alpha is not None:
        text = link.alpha
        alpha = _at(file, f"{field}.alpha", lambda: parse_time_ps(text))
    else:
        alpha = _whole(link.alpha_ps, file, f"{field}.alpha_ps", "picoseconds")
    rate = _at(file, f"{field}.bandwidth", lambda: parse_bandwidth(link.bandwidth))
    exact = link.bandwidth if isinstance(link.bandwidth, int) else rate
    return alpha, _whole(exact, file, f"{field}.bandwidth", "bytes/s")


def _whole(value: Any, file: str | None, field: str, unit: str) -> int:
    if value != value or value in (float("inf"), float("-inf")):
        raise InputError(f"{value} is not a finite number", file=file, field=field)
    if int(value) != value:
        raise InputError(f"{value} is not a whole number of {unit}", file=file, field=field)
    return int(value)


def _mask(nodes: list[int], num_nodes: int, field: str) -> Any:
    mask = np.zeros(max(num_nodes, 0), dtype=np.bool_)
    for node in nodes:
        if not 0 <= node < num_nodes:
            raise InputError(f"{node} is an unknown node", field=field)
        mask[node] = True
    return mask


def _expect_schema(data: Any, schema: str, file: str | None) -> None:
    found = data.get("schema") if isinstance(data, dict) else data
    if found != schema:
        raise InputError(f"{str(found)[:80]!r}; expected {schema!r}", file=file, field="schema")


def collective_from_json(data: Any, *, file: str | None = None) -> Collective:
    """`Collective.from_json`: see there."""
    _expect_schema(data, COLLECTIVE_SCHEMA, file)
    model = validate_model(_Collective, data, file=file)
    parts = []
    for position, row in enumerate(model.parts):
        field = f"parts[{position}]"
        if row.pattern not in PATTERNS:
            message = str(unknown_name("pattern", row.pattern, PATTERNS))
            raise InputError(message, file=file, field=f"{field}.pattern")
        npus = row.npus
        if isinstance(npus, _Range):
            group = np.arange(npus.first, npus.first + npus.count)
        else:
            group = np.array(npus, dtype=object)
        given = row.chunk_size

        def size(given: Quantity = given) -> float:
            return parse_bytes(given)

        exact = given if isinstance(given, int) else _at(file, f"{field}.chunk_size", size)
        chunk_size = _whole(exact, file, f"{field}.chunk_size", "bytes")

        def build(row: _Part = row, group: Any = group, chunk_size: int = chunk_size) -> Part:
            return Part(row.pattern, group, chunk_size, row.chunks_per_npu, row.root, row.chunks)

        parts.append(_at(file, field, build))
    name = model.name or "+".join(part.pattern for part in parts)
    collective: Collective = _at(file, "", lambda: Collective(name, tuple(parts)))
    return collective
