"""The network of a collective: a directed multigraph of NPUs and switches with exact times.

A link has a latency `alpha_ps` (integer picoseconds) and a bandwidth (integer bytes/s); a chunk of
`s` bytes occupies it for ``ceil(s * 10**12 / bandwidth)`` picoseconds beside the latency. Parallel
links are separate entries. Failed NPUs and links are absent: `Topology.without` relabels the nodes
that remain and keeps their names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError
from nestopt.core.units import parse_bandwidth, parse_time_ps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["MOST_LINKS", "MOST_NODES", "SCHEMA", "Topology", "grouped", "serialization_ps"]

SCHEMA = "nestopt.topology/1"
MOST_NODES = 2_000_000
MOST_LINKS = 20_000_000
"""A file may not ask for more nodes or links: a slip of a digit should not fill the memory."""
_PS = 10**12
_INT64_MAX = 2**63 - 1


def serialization_ps(size_bytes: int, bandwidth: NDArray[np.int64]) -> NDArray[np.int64]:
    """Time that `size_bytes` need on links of the given bandwidths, rounded up to picoseconds.

    Parameters
    ----------
    size_bytes : int
    bandwidth : int64[E], bytes/s

    Returns
    -------
    int64[E], picoseconds
        ``ceil(size_bytes * 10**12 / bandwidth)``. The product exceeds 64 bits from 9.2 MB on, so
        it is formed in Python's integers, once for each different bandwidth.
    """
    values, inverse = np.unique(bandwidth, return_inverse=True)
    exact = [-(-int(size_bytes) * _PS // int(value)) for value in values]
    for value, duration in zip(values, exact):
        if duration > _INT64_MAX // 4:
            raise InputError(
                f"a chunk of {size_bytes} bytes needs {duration} ps on a link of {int(value)} "
                "bytes/s; times beyond 2**61 ps (26 days) cannot be represented"
            )
    return np.array(exact, dtype=np.int64)[inverse.reshape(-1)]


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """A directed multigraph of NPUs and switches.

    Attributes
    ----------
    name : str
    num_nodes : int
    is_switch : bool[num_nodes]
        A switch relays chunks; no postcondition holds on it.
    src, dst : int32[E]
        Ends of each link.
    alpha_ps : int64[E]
        Latency, picoseconds, at least 0.
    bandwidth : int64[E]
        Bytes/s, at least 1.
    multicast : bool[num_nodes]
        Whether a node may send on one received copy of a chunk more than once. Always true of an
        NPU; a switch without it forwards each copy that it received at most once.
    reduces : bool[num_nodes]
        Whether a node may merge partial sums. Always true of an NPU; a switch without it forwards
        each partial sum by itself.
    node_names : tuple of str
        Empty, or one name a node; the names survive `without`.
    """

    name: str
    num_nodes: int
    is_switch: NDArray[np.bool_]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    alpha_ps: NDArray[np.int64]
    bandwidth: NDArray[np.int64]
    multicast: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    reduces: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=np.bool_))
    node_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "num_nodes", int(self.num_nodes))
        set_(self, "is_switch", _flags(self.is_switch, self.num_nodes, "is_switch"))
        for name in ("multicast", "reduces"):
            given = np.asarray(getattr(self, name))
            flags = ~self.is_switch if given.size == 0 else _flags(given, self.num_nodes, name)
            set_(self, name, _frozen(flags | ~self.is_switch))
        for name in ("src", "dst", "alpha_ps", "bandwidth"):
            dtype = np.int32 if name in ("src", "dst") else np.int64
            set_(self, name, _integers(getattr(self, name), dtype, name))
        set_(self, "node_names", tuple(self.node_names))
        self._validate()

    def _validate(self) -> None:
        if self.num_nodes < 1 or self.is_switch.all():
            raise InputError("a topology needs at least one NPU", field="nodes")
        for name in ("dst", "alpha_ps", "bandwidth"):
            if len(getattr(self, name)) != self.num_links:
                raise InputError(
                    f"{len(getattr(self, name))} values for {self.num_links} links", field=name
                )
        for name in ("src", "dst"):
            ends = getattr(self, name)
            _refuse((ends < 0) | (ends >= self.num_nodes), ends, name, "is an unknown node")
        _refuse(self.src == self.dst, self.src, "src", "is a self loop: src and dst are one node")
        _refuse(self.alpha_ps < 0, self.alpha_ps, "alpha", "ps is a negative latency")
        too_late = self.alpha_ps > _INT64_MAX // 4
        _refuse(too_late, self.alpha_ps, "alpha", "ps is a latency beyond 2**61 ps (26 days)")
        _refuse(self.bandwidth == 0, self.bandwidth, "bandwidth", "is a zero bandwidth")
        _refuse(self.bandwidth < 0, self.bandwidth, "bandwidth", "bytes/s is negative")
        if self.node_names:
            if len(self.node_names) != self.num_nodes:
                raise InputError(
                    f"{len(self.node_names)} names for {self.num_nodes} nodes", field="nodes"
                )
            seen: dict[str, int] = {}
            for index, name in enumerate(self.node_names):
                if seen.setdefault(name, index) != index:
                    raise InputError(
                        f"duplicate id {name!r}, also of nodes[{seen[name]}]",
                        field=f"nodes[{index}].id",
                    )

    @classmethod
    def from_links(
        cls,
        name: str,
        num_nodes: int,
        links: Iterable[tuple[int, int, int | str, int | str]],
        *,
        switches: Sequence[int] = (),
        multicast: Sequence[int] = (),
        reduces: Sequence[int] = (),
        bidirectional: bool = False,
        node_names: Sequence[str] = (),
    ) -> Topology:
        """A topology from rows (src, dst, latency, bandwidth).

        A latency is whole picoseconds, or text with a unit ("0.7 us"); a bandwidth whole bytes/s,
        or text with a unit ("25 GB/s").
        `switches`, `multicast` and `reduces` list nodes; with `bidirectional` every row is two
        links, its reverse right behind it.
        """
        rows = [_link_row(index, row) for index, row in enumerate(links)]
        if bidirectional:
            rows = [each for a, b, *rest in rows for each in ((a, b, *rest), (b, a, *rest))]
        table = list(zip(*rows)) if rows else [()] * 4

        def flags(nodes: Sequence[int], field_: str) -> NDArray[np.bool_]:
            mask = np.zeros(num_nodes, dtype=np.bool_)
            for node in nodes:
                if not 0 <= node < num_nodes:
                    raise InputError(f"{node} is an unknown node", field=field_)
                mask[node] = True
            return mask

        return cls(
            name=name,
            num_nodes=num_nodes,
            is_switch=flags(switches, "switches"),
            src=np.asarray(table[0]),
            dst=np.asarray(table[1]),
            alpha_ps=np.asarray(table[2]),
            bandwidth=np.asarray(table[3]),
            multicast=flags(multicast, "multicast"),
            reduces=flags(reduces, "reduces"),
            node_names=tuple(node_names),
        )

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        *,
        bandwidth: str | float | None = None,
        latency: str | float | None = None,
        name: str | None = None,
    ) -> Topology:
        """A topology from a networkx graph.

        Every node is an NPU unless its attribute ``switch`` is true; nodes keep their names. An
        edge of an undirected graph is a link each way.

        Parameters
        ----------
        graph : networkx.Graph, DiGraph, MultiGraph or MultiDiGraph
            Edge attributes: ``bandwidth`` (text with a unit, or whole bytes/s), ``latency`` (text
            with a unit, or seconds) or ``alpha_ps`` (picoseconds), ``count`` (parallel links).
        bandwidth, latency : str or number, optional
            Of the edges that state none; a latency is 0 by default.
        name : str, optional
            The graph's name by default.

        Raises
        ------
        InputError
            Naming the edge, its attribute, the value and what was expected.
        """
        from nestopt.collective.model.graphs import from_networkx

        return from_networkx(graph, bandwidth=bandwidth, latency=latency, name=name)

    def to_networkx(self) -> Any:
        """The topology as a `networkx.MultiDiGraph`; `from_networkx` reads it back.

        Nodes have ``switch`` (a switch also ``multicast`` and ``reduce``), links their number as
        key, ``bandwidth`` (bytes/s) and ``alpha_ps`` (picoseconds).
        """
        from nestopt.collective.model.graphs import to_networkx

        return to_networkx(self)

    def _key(self) -> tuple[Any, ...]:
        return self.name, self.num_nodes, self.node_names, self.num_links

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self._key() == other._key() and all(
            np.array_equal(getattr(self, column), getattr(other, column))
            for column in (
                "is_switch", "src", "dst", "alpha_ps", "bandwidth", "multicast", "reduces",
            )
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        switches = int(self.is_switch.sum())
        return (
            f"<Topology {self.name}: {self.num_nodes - switches} NPUs, {switches} switches, "
            f"{self.num_links} links>"
        )

    @property
    def num_links(self) -> int:
        """Number of links."""
        return len(self.src)

    @property
    def npus(self) -> NDArray[np.int32]:
        """Nodes that are NPUs, ascending, int32."""
        return np.flatnonzero(~self.is_switch).astype(np.int32)

    def node_name(self, node: int) -> str:
        """A node's name; its number where it has none."""
        return self.node_names[node] if self.node_names else str(node)

    def link_name(self, link: int) -> str:
        """A link for people: ``"link 5 (0 -> 3)"``."""
        ends = f"{self.node_name(int(self.src[link]))} -> {self.node_name(int(self.dst[link]))}"
        return f"link {link} ({ends})"

    def duration_ps(self, size_bytes: int) -> NDArray[np.int64]:
        """Serialization time of a chunk on every link, int64[E], rounded up to picoseconds.

        The latency is not in it; see `CollectiveInstance.occupancy_ps`.
        """
        return serialization_ps(size_bytes, self.bandwidth)

    def out_links(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Links by source: ``links[ptr[v]:ptr[v + 1]]`` leave node v, ascending."""
        return _links_by(self.src, self.num_nodes)

    def in_links(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Links by destination: ``links[ptr[v]:ptr[v + 1]]`` enter node v, ascending."""
        return _links_by(self.dst, self.num_nodes)

    def reversed(self) -> Topology:
        """Every link turned round, ids kept; multicast and reduction change places."""
        return Topology(
            name=f"{self.name} reversed",
            num_nodes=self.num_nodes,
            is_switch=self.is_switch,
            src=self.dst,
            dst=self.src,
            alpha_ps=self.alpha_ps,
            bandwidth=self.bandwidth,
            multicast=self.reduces,
            reduces=self.multicast,
            node_names=self.node_names,
        )

    def without(
        self, npus: Iterable[int] = (), links: Iterable[int] = (), *, name: str | None = None
    ) -> Topology:
        """The topology after failures of nodes (NPUs or switches) and links.

        The nodes that remain are numbered anew, in their old order, and keep their names (their
        old numbers, where they had no names). Links of a failed node are gone.
        """
        dead_nodes, dead_links = sorted(set(npus)), sorted(set(links))
        alive = np.ones(self.num_nodes, dtype=np.bool_)
        for node in dead_nodes:
            if not 0 <= node < self.num_nodes:
                raise InputError(f"{node} is an unknown node", field="npus")
            alive[node] = False
        keep = alive[self.src] & alive[self.dst]
        for link in dead_links:
            if not 0 <= link < self.num_links:
                raise InputError(f"{link} is an unknown link", field="links")
            keep[link] = False
        label = np.cumsum(alive, dtype=np.int32) - np.int32(1)
        return Topology(
            name=name or f"{self.name} less {len(dead_nodes)} nodes, {len(dead_links)} links",
            num_nodes=int(alive.sum()),
            is_switch=self.is_switch[alive],
            src=label[self.src[keep]],
            dst=label[self.dst[keep]],
            alpha_ps=self.alpha_ps[keep],
            bandwidth=self.bandwidth[keep],
            multicast=self.multicast[alive],
            reduces=self.reduces[alive],
            node_names=tuple(self.node_name(int(v)) for v in np.flatnonzero(alive)),
        )

    def to_json(self) -> dict[str, Any]:
        """The versioned JSON object; links as columns, a column of equal values as one number."""
        data: dict[str, Any] = {"schema": SCHEMA, "name": self.name, "nodes": self.num_nodes}
        if self.node_names:
            data["names"] = list(self.node_names)
        if self.is_switch.any():
            switches = np.flatnonzero(self.is_switch)
            data["switches"] = switches.tolist()
            data["multicast"] = switches[self.multicast[switches]].tolist()
            data["reduce"] = switches[self.reduces[switches]].tolist()
        data["links"] = {
            "src": self.src.tolist(),
            "dst": self.dst.tolist(),
            "alpha_ps": _column(self.alpha_ps),
            "bandwidth": _column(self.bandwidth),
        }
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any], *, file: str | None = None) -> Topology:
        """Inverse of `to_json`; also reads links and nodes written by hand, one object each.

        Raises
        ------
        InputError
            Naming the file, the field, the value found and what was expected.
        """
        from nestopt.collective.model.files import topology_from_json

        return topology_from_json(data, file=file)


def _link_row(index: int, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row of `Topology.from_links` with texts read."""
    if len(row) != 4:
        raise InputError(
            f"{row!r}; expected (src, dst, latency, bandwidth)", field=f"links[{index}]"
        )
    source, target, alpha, rate = row
    if isinstance(alpha, str):
        alpha = parse_time_ps(alpha, f"links[{index}].alpha")
    if isinstance(rate, str):
        rate = parse_bandwidth(rate, f"links[{index}].bandwidth")
    return source, target, alpha, rate


def grouped(
    ends: NDArray[np.integer[Any]], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What ends at each node: ``items[ptr[v]:ptr[v + 1]]`` have the end v, ascending."""
    ptr = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(ends, minlength=num_nodes), out=ptr[1:])
    return ptr, np.argsort(ends, kind="stable")


def _links_by(
    ends: NDArray[np.int32], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    ptr, links = grouped(ends, num_nodes)
    return ptr, links.astype(np.int32)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


def _flags(values: Any, length: int, field_: str) -> NDArray[np.bool_]:
    array = np.array(values, dtype=np.bool_)
    if array.shape != (length,):
        raise InputError(f"shape {array.shape} for {length} nodes", field=field_)
    return _frozen(array)


def _integers(values: Any, dtype: Any, field_: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"shape {array.shape}; expected one value a link", field=field_)
    if array.size == 0:
        return _frozen(np.empty(0, dtype=dtype))
    if array.dtype.kind not in "iufO":
        raise InputError(f"values of type {array.dtype}; expected integers", field=field_)
    for index, value in enumerate(array.tolist()) if array.dtype.kind in "fO" else ():
        if value != value or value in (float("inf"), float("-inf")):
            raise InputError(f"{value} is not a finite number", field=f"links[{index}].{field_}")
        if int(value) != value:
            raise InputError(f"{value} is not a whole number", field=f"links[{index}].{field_}")
    info = np.iinfo(dtype)
    _refuse(
        np.asarray((array < info.min) | (array > info.max), dtype=np.bool_),
        array,
        field_,
        f"does not fit {np.dtype(dtype)}",
    )
    return _frozen(array.astype(dtype))


def _refuse(bad: NDArray[np.bool_], values: NDArray[Any], field_: str, what: str) -> None:
    if bad.any():
        index = int(np.argmax(bad))
        raise InputError(f"{values[index]} {what}", field=f"links[{index}].{field_}")


def _column(values: NDArray[np.int64]) -> int | list[int]:
    if len(values) and (values == values[0]).all():
        return int(values[0])
    return [int(value) for value in values]
