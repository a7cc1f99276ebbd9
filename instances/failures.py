"""Failures of NPUs, links and groups: random, correlated, or at published rates.

Every choice is a prefix of one random order that depends on the seed alone, so that the failures
of a study are nested: the set of k + 1 failures contains the set of k, and the set after 30 days
the set after 10. What fails is removed; nothing is repaired.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.model.topology import Topology
from nestopt.core.errors import InputError, unknown_name
from nestopt.instances.network import strongly_connected
from nestopt.instances.streams import stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.instances.network import Network
    from nestopt.placement.model.cluster import Cluster

__all__ = [
    "RATES", "FailureModel", "Failures", "Rates", "draw_failures", "fail", "failed_by_number",
]  # fmt: skip

MAX_DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class Rates:
    """Failures per component and day.

    Attributes
    ----------
    npu, cable, nic : float
        Per NPU: of the NPU itself, of one of its cables (or the switch port behind it), of its NIC.
    node : float
        Per group of kind ``node``.
    every_cable : float
        Per cable, whatever it joins.
    source : str
    """

    npu: float = 0.0
    cable: float = 0.0
    nic: float = 0.0
    node: float = 0.0
    every_cable: float = 0.0
    source: str = ""


RATES: dict[str, Rates] = {
    "llama3": Rates(
        npu=3.03e-4,
        cable=3.96e-5,
        nic=7.9e-6,
        source="Llama 3 herd of models (2024), table 5: 16,384 H100 for 54 days",
    ),
    "rsc1": Rates(node=6.50e-3, source="Kokolis et al. (2024), Meta RSC-1, per node-day"),
    "rsc2": Rates(node=2.34e-3, source="Kokolis et al. (2024), Meta RSC-2, per node-day"),
    "tpuv4": Rates(
        node=8e-4,
        every_cable=5e-5,
        source="Zu et al., Resiliency at Scale, NSDI 2024: machines and cables a day",
    ),
}


@dataclass(frozen=True, slots=True)
class FailureModel:
    """What shall fail.

    Attributes
    ----------
    npus, cables : int
        How many, at random.
    groups : tuple of (str, int)
        Kind and number of groups (``("node", 2)``). A group of kind ``rail`` loses its switches or,
        where it has none, its NPUs' NIC links; ``switch`` is every switch by itself; any other
        group loses all its members.
    rates : str or None
        Name in `RATES`.
    days : float
        Of exposure at these rates.
    """

    npus: int = 0
    cables: int = 0
    groups: tuple[tuple[str, int], ...] = ()
    rates: str | None = None
    days: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("npus", self.npus), ("links", self.cables), *self.groups):
            if value < 0:
                raise InputError(f"{value}; expected at least 0", field=f"fail {name}")
        if not 0 <= self.days < float("inf"):
            raise InputError(f"{self.days}; expected a number of at least 0", field="days")
        if self.rates is not None and self.rates not in RATES:
            raise unknown_name("failure rates", self.rates, RATES)
        if self.days and self.rates is None:
            raise InputError("days without rates", field="days")

    @property
    def empty(self) -> bool:
        """Whether nothing can fail."""
        return not (self.npus or self.cables or self.groups or (self.rates and self.days))


@dataclass(frozen=True, slots=True)
class Failures:
    """What failed: node indices (NPUs and switches) and link indices, ascending."""

    nodes: tuple[int, ...]
    links: tuple[int, ...]


def _prefix(total: int, count: int, rng: np.random.Generator, what: str) -> list[int]:
    if count > total:
        raise InputError(f"{count} shall fail; there are {total}", field=f"fail {what}")
    return [int(i) for i in rng.permutation(total)[:count]]


def draw_failures(network: Network, model: FailureModel, seed: int, attempt: int = 0) -> Failures:
    """Draw what fails; `attempt` numbers independent draws of one seed.

    Raises
    ------
    InputError
        If more shall fail than there is, or the network has no groups of the kind.
    """
    nodes: set[int] = set()
    links: set[int] = set()
    npus = network.npus.tolist()
    chosen = _prefix(len(npus), model.npus, stream(seed, "fail npus", attempt), "npus")
    nodes.update(npus[i] for i in chosen)
    if model.cables:
        cables = network.cables()
        cut = _prefix(
            int(cables.max(initial=-1)) + 1,
            model.cables,
            stream(seed, "fail links", attempt),
            "links",
        )
        links.update(np.flatnonzero(np.isin(cables, cut)).tolist())
    for kind, count in model.groups:
        groups = _groups(network, kind)
        rng = stream(seed, f"fail group {kind}", attempt)
        for i in _prefix(len(groups), count, rng, kind):
            _fail_group(network, kind, groups[i], nodes, links)
    if model.rates is not None and model.days:
        _draw_rates(network, RATES[model.rates], model.days, seed, attempt, nodes, links)
    return Failures(tuple(sorted(nodes)), tuple(sorted(links)))


def fail(
    network: Network,
    model: FailureModel,
    seed: int,
    *,
    connected: bool = False,
    name: str | None = None,
) -> tuple[Network, Failures, int]:
    """The network after failures, what failed, and how often was drawn.

    Parameters
    ----------
    connected : bool
        Draw again until the NPUs that are left reach each other.

    Raises
    ------
    InputError
        If no NPU is left, or 10,000 draws leave no connected network.
    """
    for attempt in range(MAX_DRAWS if connected else 1):
        failures = draw_failures(network, model, seed, attempt)
        left = network.without(failures.nodes, failures.links, name=name)
        if not len(left.npus):
            if not connected:
                raise InputError(f"all {len(network.npus)} NPUs fail", field=network.name)
        elif not connected or strongly_connected(left):
            return left, failures, attempt + 1
    raise InputError(
        f"{MAX_DRAWS} draws of these failures left no connected network", field=network.name
    )


def _groups(network: Network, kind: str) -> Sequence[tuple[int, ...]]:
    if kind == "switch":
        groups: Sequence[tuple[int, ...]] = [(int(s),) for s in np.flatnonzero(network.is_switch)]
    else:
        groups = network.groups.get(kind, ())
    if not groups:
        known = sorted({*network.groups, *(["switch"] if network.is_switch.any() else [])})
        raise InputError(
            f"no group of kind {kind!r}; there are: {', '.join(known) or 'none'}",
            field=network.name,
        )
    return groups


def _fail_group(
    network: Network, kind: str, group: Sequence[int], nodes: set[int], links: set[int]
) -> None:
    if kind != "rail":
        nodes.update(group)
        return
    switches = [node for node in group if network.is_switch[node]]
    nodes.update(switches)
    if not switches:
        links.update(_nic_links(network, group))


def _nic_links(network: Network, npus: Sequence[int]) -> list[int]:
    members = set(npus)
    return [
        link
        for link, tier in enumerate(network.tier)
        if tier == "nic"
        and (int(network.src[link]) in members or int(network.dst[link]) in members)
    ]


def _draw_rates(
    network: Network,
    rates: Rates,
    days: float,
    seed: int,
    attempt: int,
    nodes: set[int],
    links: set[int],
) -> None:
    """Every component fails after an exponential time; those before `days` are added."""
    npus = network.npus.tolist()
    cables = network.cables()

    def failing(purpose: str, count: int, rate: float) -> list[int]:
        if not rate:
            return []
        uniform = stream(seed, f"rates {purpose}", attempt).random(count)
        return np.flatnonzero(uniform < -np.expm1(-rate * days)).tolist()

    nodes.update(npus[i] for i in failing("npu", len(npus), rates.npu))
    picks = stream(seed, "rates which cable", attempt).random(len(npus)).tolist()
    for i in failing("cable", len(npus), rates.cable):
        own = cables[np.flatnonzero(network.src == npus[i])]
        if len(own):
            cable = own[int(picks[i] * len(own))]
            links.update(np.flatnonzero(cables == cable).tolist())
    for i in failing("nic", len(npus), rates.nic):
        nics = _nic_links(network, [npus[i]])
        links.update(nics)
        if not nics:
            nodes.add(npus[i])
    if rates.node:
        groups = _groups(network, "node")
        for i in failing("node", len(groups), rates.node):
            nodes.update(groups[i])
    count = int(cables.max(initial=-1)) + 1
    cut = failing("every cable", count, rates.every_cable)
    links.update(np.flatnonzero(np.isin(cables, cut)).tolist())


def failed_by_number(place: Cluster | Topology, text: str) -> Cluster | Topology:
    """A cluster or topology of which the devices (NPUs) of these numbers have failed.

    Raises
    ------
    InputError
        If the text holds no numbers, or there is no such device.
    """
    from nestopt.instances.options import numbers_of

    numbers = numbers_of(text, place.name)
    if isinstance(place, Topology):
        for number in numbers:
            if number >= place.num_nodes or place.is_switch[number]:
                raise InputError(f"{number} is no NPU of {place.name}", field="fail")
        return place.without(numbers)
    return place.fail(numbers)
