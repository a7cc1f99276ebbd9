"""A network under construction: nodes, directed links, and which of them fail together.

A `Network` is a `Topology` plus what a generator knows and a solver need not: the
tier of every link (dimension, NVLink, uplink) and the groups of NPUs and switches
(node, rack, rail, cube) that heterogeneity and correlated failures act on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.model.topology import Topology
from nestopt.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from nestopt.instances.spec import LinkSpec

__all__ = ["Network", "NetworkBuilder", "network_of", "strongly_connected"]


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes and directed links, with tiers and groups.

    Attributes
    ----------
    name : str
    node_names : tuple of str
        One per node, unique.
    is_switch : bool array, shape (nodes,)
    src, dst : int32 array, shape (links,)
    bandwidth : int64 array, shape (links,)
        Bytes/s.
    alpha_ps : int64 array, shape (links,)
        Latency in picoseconds.
    tier : tuple of str
        One per link.
    groups : dict
        Kind (``"node"``, ``"rack"``, ``"rail"``, ``"cube"``) to tuples of node indices.
    multicast, reduces : bool array, shape (nodes,)
        As in `nestopt.collective.model.topology.Topology`; true of every NPU.
    """

    name: str
    node_names: tuple[str, ...]
    is_switch: NDArray[np.bool_]
    src: NDArray[np.int32]
    dst: NDArray[np.int32]
    bandwidth: NDArray[np.int64]
    alpha_ps: NDArray[np.int64]
    tier: tuple[str, ...]
    groups: Mapping[str, tuple[tuple[int, ...], ...]]
    multicast: NDArray[np.bool_]
    reduces: NDArray[np.bool_]

    @property
    def num_nodes(self) -> int:
        """Nodes, switches included."""
        return len(self.node_names)

    @property
    def num_links(self) -> int:
        """Directed links; parallel links count one each."""
        return len(self.src)

    @property
    def npus(self) -> NDArray[np.int64]:
        """Indices of the nodes that are no switches."""
        return np.flatnonzero(~self.is_switch)

    def topology(self) -> Topology:
        """The same network as the solvers see it."""
        return Topology(
            name=self.name,
            num_nodes=self.num_nodes,
            is_switch=self.is_switch,
            src=self.src,
            dst=self.dst,
            alpha_ps=self.alpha_ps,
            bandwidth=self.bandwidth,
            multicast=self.multicast,
            reduces=self.reduces,
            node_names=self.node_names,
        )

    def without(
        self, nodes: Iterable[int] = (), links: Iterable[int] = (), *, name: str | None = None
    ) -> Network:
        """The network without some nodes (and their links) and without some links.

        Nodes keep their names; indices are closed up in order.
        """
        alive = np.ones(self.num_nodes, dtype=bool)
        alive[list(nodes)] = False
        kept = np.ones(self.num_links, dtype=bool)
        kept[list(links)] = False
        kept &= alive[self.src] & alive[self.dst]
        index = np.cumsum(alive) - 1
        chosen = np.flatnonzero(kept)
        groups = {
            kind: tuple(
                shrunk
                for group in members
                if (shrunk := tuple(int(index[node]) for node in group if alive[node]))
            )
            for kind, members in self.groups.items()
        }
        return Network(
            name=name or self.name,
            node_names=tuple(n for n, lives in zip(self.node_names, alive) if lives),
            is_switch=self.is_switch[alive],
            src=index[self.src[chosen]].astype(np.int32),
            dst=index[self.dst[chosen]].astype(np.int32),
            bandwidth=self.bandwidth[chosen],
            alpha_ps=self.alpha_ps[chosen],
            tier=tuple(self.tier[link] for link in chosen),
            groups=groups,
            multicast=self.multicast[alive],
            reduces=self.reduces[alive],
        )

    def renamed(self, name: str) -> Network:
        """The same network under another name."""
        return replace(self, name=name)

    def with_switches(self, *, multicast: bool, reduces: bool) -> Network:
        """The same network whose switches all multicast or reduce, or none does."""
        return replace(
            self,
            multicast=~self.is_switch | multicast,
            reduces=~self.is_switch | reduces,
        )

    def cables(self) -> NDArray[np.int64]:
        """For every link, the number of its cable; shape (links,).

        The k-th link from u to v and the k-th from v to u are one cable, which fails and degrades
        as a whole. Cables are numbered in order of their first link.
        """
        number: dict[tuple[int, int, int], int] = {}
        seen: dict[tuple[int, int], int] = {}
        cables = np.empty(self.num_links, dtype=np.int64)
        for link, (u, v) in enumerate(zip(self.src.tolist(), self.dst.tolist())):
            copy = seen.get((u, v), 0)
            seen[u, v] = copy + 1
            key = (min(u, v), max(u, v), copy)
            cables[link] = number.setdefault(key, len(number))
        return cables


def network_of(topology: Topology) -> Network:
    """A topology as a network of one tier without groups."""
    return Network(
        name=topology.name,
        node_names=topology.node_names or tuple(f"npu{i}" for i in range(topology.num_nodes)),
        is_switch=np.asarray(topology.is_switch, dtype=bool),
        src=np.asarray(topology.src, dtype=np.int32),
        dst=np.asarray(topology.dst, dtype=np.int32),
        bandwidth=np.asarray(topology.bandwidth, dtype=np.int64),
        alpha_ps=np.asarray(topology.alpha_ps, dtype=np.int64),
        tier=("link",) * len(topology.src),
        groups={},
        multicast=np.asarray(topology.multicast, dtype=bool),
        reduces=np.asarray(topology.reduces, dtype=bool),
    )


def strongly_connected(network: Network) -> bool:
    """Whether every NPU reaches every other (switches that lead nowhere do not matter)."""
    npus = network.npus
    if len(npus) <= 1:
        return len(npus) == 1
    return all(
        bool(_reached(network.num_nodes, tail, head, int(npus[0]))[npus].all())
        for tail, head in ((network.src, network.dst), (network.dst, network.src))
    )


def _reached(
    num_nodes: int, tail: NDArray[np.int32], head: NDArray[np.int32], start: int
) -> NDArray[np.bool_]:
    order = np.argsort(tail, kind="stable")
    heads = head[order]
    first = np.searchsorted(tail[order], np.arange(num_nodes + 1))
    seen = np.zeros(num_nodes, dtype=bool)
    seen[start] = True
    stack = [start]
    while stack:
        node = stack.pop()
        for neighbour in heads[first[node] : first[node + 1]].tolist():
            if not seen[neighbour]:
                seen[neighbour] = True
                stack.append(neighbour)
    return seen


@dataclass(slots=True)
class NetworkBuilder:
    """Collects nodes and links in order."""

    names: list[str] = field(default_factory=list)
    switches: list[bool] = field(default_factory=list)
    src: list[int] = field(default_factory=list)
    dst: list[int] = field(default_factory=list)
    bandwidth: list[int] = field(default_factory=list)
    alpha_ps: list[int] = field(default_factory=list)
    tier: list[str] = field(default_factory=list)
    groups: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)

    def npu(self, name: str) -> int:
        """Add an NPU; its index."""
        return self._node(name, False)

    def switch(self, name: str) -> int:
        """Add a switch; its index."""
        return self._node(name, True)

    def link(self, src: int, dst: int, spec: LinkSpec, tier: str, count: int = 1) -> None:
        """Add `count` parallel directed links."""
        for _ in range(count):
            self.src.append(src)
            self.dst.append(dst)
            self.bandwidth.append(spec.bandwidth)
            self.alpha_ps.append(spec.alpha_ps)
            self.tier.append(tier)

    def cable(self, a: int, b: int, spec: LinkSpec, tier: str, count: int = 1) -> None:
        """Add `count` links each way."""
        for _ in range(count):
            self.link(a, b, spec, tier)
            self.link(b, a, spec, tier)

    def name_of(self, node: int) -> str:
        """The name of a node."""
        return self.names[node]

    def group(self, kind: str, members: Sequence[int]) -> None:
        """Record nodes that share a fate."""
        self.groups.setdefault(kind, []).append(tuple(members))

    def build(self, name: str) -> Network:
        """The finished network.

        Raises
        ------
        InputError
            If two nodes have one name.
        """
        if len(set(self.names)) != len(self.names):
            twice = next(n for i, n in enumerate(self.names) if n in self.names[:i])
            raise InputError(f"two nodes are called {twice!r}", field=name)
        is_switch = np.array(self.switches, dtype=bool)
        return Network(
            name=name,
            node_names=tuple(self.names),
            is_switch=is_switch,
            src=np.array(self.src, dtype=np.int32),
            dst=np.array(self.dst, dtype=np.int32),
            bandwidth=np.array(self.bandwidth, dtype=np.int64),
            alpha_ps=np.array(self.alpha_ps, dtype=np.int64),
            tier=tuple(self.tier),
            groups={kind: tuple(members) for kind, members in self.groups.items()},
            multicast=~is_switch,
            reduces=~is_switch,
        )

    def _node(self, name: str, switch: bool) -> int:
        self.names.append(name)
        self.switches.append(switch)
        return len(self.names) - 1
