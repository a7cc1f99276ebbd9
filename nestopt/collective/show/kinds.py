"""The links of a network by kind: NVLink and NIC, or what their ends' names and figures say.

A kind is links that are alike to a reader: one word, one direction through a switch, one bandwidth
(of up to four; a range beyond). Pictures, pages and terminal charts draw one band a kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.registry import link_tiers
from nestopt.core.units import format_rate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.collective.model.topology import Topology

__all__ = ["LinkKind", "busy_ps", "idle_share", "in_rows", "link_kinds", "occupancy", "short_link"]

MOST_RATES = 4
"""Links of one word but of more bandwidths than these are one kind with a range."""

_WORDS = {
    "nvlink": "NVLink",
    "nic": "NIC",
    "package": "in the package",
    "fabric": "Infinity Fabric",
    "pcie": "PCIe",
    "port": "port",
}
_NETWORK = re.compile(r"nic|ib|core|spine|leaf|rail|tor|net")


@dataclass(frozen=True, slots=True, eq=False)
class LinkKind:
    """Links that are alike to a reader.

    Attributes
    ----------
    name : str
        Such as ``NVLink to the switch``.
    rate : str
        Bandwidth of one link, or the range of them.
    links : int64[n]
        Numbers of the links, by their ends.
    """

    name: str
    rate: str
    links: NDArray[np.int64]

    @property
    def label(self) -> str:
        """Name and bandwidth: ``NVLink to the switch, 300 GB/s``."""
        return f"{self.name}, {self.rate}"


def link_kinds(topology: Topology) -> list[LinkKind]:
    """The kinds of a network's links, in order of their first link.

    Parameters
    ----------
    topology : Topology
        Of the library's machines the tier of each link is known; of other networks the names of
        the nodes tell (``node0.gpu1``, ``node0.nvswitch``, ``leaf3``).

    Returns
    -------
    list of LinkKind
        Every link is in exactly one.
    """
    words = link_tiers(topology) or _words_of_ends(topology)
    found: dict[str, list[int]] = {}
    for link, word in enumerate(words):
        way = "" if " to " in word else _direction(topology, link)
        found.setdefault(_WORDS.get(word, word) + way, []).append(link)
    kinds = []
    for name, members in found.items():
        links = np.array(members, dtype=np.int64)
        links = links[np.lexsort((links, topology.dst[links], topology.src[links]))]
        rates = np.unique(topology.bandwidth[links])
        if len(rates) > MOST_RATES:
            both = f"{format_rate(int(rates[0]))} to {format_rate(int(rates[-1]))}"
            kinds.append(LinkKind(name, both, links))
            continue
        for rate in rates[::-1].tolist():
            chosen = links[topology.bandwidth[links] == rate]
            kinds.append(LinkKind(name, format_rate(int(rate)), chosen))
    return kinds


def _direction(topology: Topology, link: int) -> str:
    """Whether a link leads to a switch or from one; nothing between two of a kind."""
    from_switch = bool(topology.is_switch[topology.src[link]])
    to_switch = bool(topology.is_switch[topology.dst[link]])
    if from_switch == to_switch:
        return ""
    return " to the switch" if to_switch else " from the switch"


def _words_of_ends(topology: Topology) -> list[str]:
    """A word for each link by the names of its ends."""
    names = [topology.node_name(v) for v in range(topology.num_nodes)]
    roles = [re.sub(r"[\d.*_-]+$", "", name).rpartition(".")[2].lower() for name in names]
    hosts = [
        host if not last.isdigit() else ""
        for host, _, last in (name.rpartition(".") for name in names)
    ]
    return [
        _word(roles[a], roles[b], hosts[a], hosts[b])
        for a, b in zip(topology.src.tolist(), topology.dst.tolist())
    ]


def _word(first: str, second: str, host: str, other: str) -> str:
    one, two = sorted((first, second))
    if "nvswitch" in (one, two):
        return "nvlink"
    if one != two and one and two:
        if {one, two} & {"gpu", "gcd", "npu"} and any(map(_NETWORK.fullmatch, (one, two))):
            return "nic"
        return f"{first} to {second}"
    if one == two and host and other:
        return "inside a node" if host == other else "between nodes"
    return "link"


def short_link(topology: Topology, link: int) -> str:
    """A link for people without its number: ``node0.gpu1 → core``."""
    source, target = int(topology.src[link]), int(topology.dst[link])
    return f"{topology.node_name(source)} → {topology.node_name(target)}"


def in_rows(kinds: list[LinkKind], num_links: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The links in order of their kinds, and the row of each link; both int64[E]."""
    order = np.concatenate([kind.links for kind in kinds]) if kinds else np.empty(0, np.int64)
    row = np.empty(num_links, dtype=np.int64)
    row[order] = np.arange(len(order))
    return order, row


def occupancy(instance: CollectiveInstance, schedule: Schedule) -> NDArray[np.int64]:
    """How long each send occupies its link, picoseconds, int64[S]."""
    lasts = np.zeros(schedule.num_sends, dtype=np.int64)
    sizes = instance.collective.chunk_sizes[schedule.chunk]
    for size in np.unique(sizes).tolist():
        rows = sizes == size
        lasts[rows] = instance.occupancy_ps(size)[schedule.link[rows]]
    return lasts


def busy_ps(instance: CollectiveInstance, schedule: Schedule) -> NDArray[np.int64]:
    """How long each link is occupied altogether, picoseconds, int64[E]."""
    busy = np.zeros(instance.topology.num_links, dtype=np.int64)
    np.add.at(busy, schedule.link, occupancy(instance, schedule))
    return busy


def idle_share(kind: LinkKind, busy: NDArray[np.int64], makespan_ps: int) -> float:
    """Share of the makespan for which a kind's links are idle, on average."""
    return 1.0 - float(busy[kind.links].mean()) / max(makespan_ps, 1)
