"""A layout as a network: its family groups' devices and the switches of their part of the tree.

The network takes nothing that the tree does not have, so its schedules can run there. Every group
of the tree is a switch. A device sends into its innermost one at that level's port; what leaves the
group goes at the least of the ports further up. Where that is less than the innermost port, it goes
over a second switch, and what stays inside has only the rest of the innermost port. A message pays
the highest latency of the levels up to the one that it crosses once, half on the way up and half on
the way down. What holds a single device or part needs no switch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nestopt.collective.model.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.placement.model.collective_table import Figures, Layout

__all__ = ["network_of_layout"]

_PS = 1e12


class _End(NamedTuple):
    """Where a part of the network goes on: a node, bytes/s upwards, latency on the way so far."""

    node: int
    bandwidth: float
    latency: float


@dataclass(slots=True)
class _Builder:
    layout: Layout
    levels: Sequence[Figures]
    switch: list[bool] = field(default_factory=list)
    links: list[tuple[int, int, int, int]] = field(default_factory=list)
    members: dict[int, list[int]] = field(default_factory=dict)

    @property
    def span(self) -> int:
        """The level of the switch that joins all."""
        return len(self.layout.counts) - 1

    def _node(self, switch: bool) -> int:
        self.switch.append(switch)
        return len(self.switch) - 1

    def _join(self, node: int, switch: int, bandwidth: float, latency: float) -> None:
        """Two links, one each way; rounded so that they are no better than the figures."""
        each = max(1, int(bandwidth)), int(np.ceil(latency * _PS))
        self.links += [(node, switch, *each), (switch, node, *each)]

    def _half(self, level: int) -> float:
        """What the latency of a level adds to that of the levels below, one way."""
        until = list(accumulate((v.latency for v in self.levels[: level + 1]), max))
        return (until[level] - (until[level - 1] if level else 0.0)) / 2

    def innermost(self, groups: Sequence[int]) -> _End:
        """The devices of some family groups in one innermost group of the tree."""
        count = self.layout.counts[0]
        devices = [self._node(False) for _ in range(count * len(groups))]
        for index, device in enumerate(devices):
            self.members.setdefault(groups[index // count], []).append(device)
        port, latency = self.levels[0].port, self._half(0)
        if self.span == 0:
            return self._star(devices, port, latency, 0.0)
        away = min(level.port for level in self.levels[: self.span + 1])
        uplink = self.levels[0].uplink
        if len(devices) == 1:
            return _End(devices[0], min(away, uplink), latency)
        if count > 1 and away < port:
            self._star(devices, port - away, latency, 0.0)
        return self._star(devices, away, latency, uplink)

    def _star(self, ends: Sequence[int], bandwidth: float, latency: float, up: float) -> _End:
        switch = self._node(True)
        for node in ends:
            self._join(node, switch, bandwidth, latency)
        return _End(switch, up, 0.0)

    def group(self, level: int, groups: Sequence[int]) -> _End:
        """The part of a group of the tree that holds some family groups."""
        if level == 0:
            return self.innermost(groups)
        beside = self.layout.sharing[level - 1]
        parts = [
            self.group(level - 1, groups[first : first + beside])
            for first in range(0, len(groups), beside)
            for _ in range(self.layout.counts[level])
        ]
        uplink, latency = self.levels[level].uplink, self._half(level)
        if len(parts) == 1:
            end = parts[0]
            return _End(end.node, min(end.bandwidth, uplink), end.latency + latency)
        switch = self._node(True)
        for end in parts:
            self._join(end.node, switch, end.bandwidth, end.latency + latency)
        return _End(switch, uplink, 0.0)


def network_of_layout(
    layout: Layout, levels: Sequence[Figures]
) -> tuple[Topology, list[list[int]]]:
    """The network of a layout, and the devices of each family group in it."""
    builder = _Builder(layout, levels)
    count = layout.sharing[-1] if layout.sharing else 1
    builder.group(builder.span, range(count))
    src, dst, bandwidth, latency = zip(*builder.links, strict=True)
    topology = Topology(
        name="x".join(map(str, layout.counts)),
        num_nodes=len(builder.switch),
        is_switch=np.array(builder.switch),
        src=np.array(src),
        dst=np.array(dst),
        alpha_ps=np.array(latency),
        bandwidth=np.array(bandwidth),
    )
    return topology, [builder.members[group] for group in range(count)]
