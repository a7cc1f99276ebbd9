"""The cluster as the exact placement models see it: alike devices, and the groups of the tree."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nestopt.placement.pricing.comm import Network

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.placement.model.cluster import Cluster

__all__ = ["Cell", "Tree", "TreeGroup"]


@dataclass(frozen=True, slots=True)
class Cell:
    """Alike devices: alive, in the same innermost group, of the same type."""

    index: int
    devices: tuple[int, ...]
    type: int
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TreeGroup:
    """A group of the cluster's tree that holds alive devices; `twin` is an alike sibling before it.

    Attributes
    ----------
    parent : int
        Index of the group around it, -1 at the top.
    cells : frozenset of int
    size : int
        Alive devices.
    latency, port_inverse, uplink_inverse : float
    twin : int
        Index of the sibling before it that is the same in everything, -1 if there is none.
    """

    index: int
    level: int
    parent: int
    cells: frozenset[int]
    size: int
    latency: float
    port_inverse: float
    uplink_inverse: float
    twin: int = -1


class Tree:
    """The alive devices of a cluster by cell, and the groups of its tree.

    Parameters
    ----------
    deadline : float
        When to give up preparing a model, as `time.perf_counter` counts.

    Attributes
    ----------
    cells : tuple of Cell
    cell_of : dict of int to int
        Cell of every alive device.
    groups : tuple of TreeGroup
        Innermost level first, in hierarchy order.
    known : dict
        What has been derived from the tree, for whoever derives it to find again.
    """

    def __init__(self, cluster: Cluster, deadline: float = math.inf) -> None:
        self.deadline = deadline
        self.cluster = cluster
        self.network = Network.of(cluster)
        self.alive = tuple(int(i) for i in cluster.alive)
        self.cells = _cells(cluster)
        self.cell_of = {i: cell.index for cell in self.cells for i in cell.devices}
        self.groups = _tree(self.network, self.cells)
        self.known: dict[Any, Any] = {}

    def check_time(self) -> None:
        """Raise `TimeoutError` once the deadline is over."""
        if time.perf_counter() > self.deadline:
            raise TimeoutError

    def parent(self, group: TreeGroup) -> TreeGroup | None:
        """The group around a group, None at the top."""
        return None if group.parent < 0 else self.groups[group.parent]


def _cells(cluster: Cluster) -> tuple[Cell, ...]:
    found: dict[tuple[int, int], list[int]] = {}
    for device in cluster.alive.tolist():
        key = (int(cluster.group_of[0, device]), int(cluster.type_of[device]))
        found.setdefault(key, []).append(device)
    return tuple(
        Cell(
            index,
            tuple(devices),
            key[1],
            tuple(int(g) for g in cluster.group_of[:, devices[0]]),
        )
        for index, (key, devices) in enumerate(found.items())
    )


def _tree(network: Network, cells: Sequence[Cell]) -> tuple[TreeGroup, ...]:
    """The groups with alive devices, with their alike siblings."""
    levels = len(network.latency)
    members: dict[tuple[int, int], list[Cell]] = {}
    for level in range(levels):
        for cell in cells:
            members.setdefault((level, cell.groups[level]), []).append(cell)
    number = {key: index for index, key in enumerate(members)}
    shape: dict[tuple[int, int], tuple[object, ...]] = {}
    last: dict[tuple[object, ...], int] = {}
    groups = []
    for (level, group), inside in members.items():
        latency = float(network.latency[level, group])
        port = float(network.port_inverse[level, group])
        uplink = float(network.uplink_inverse[level, group])
        if level == 0:
            children: list[object] = [*sorted((c.type, len(c.devices)) for c in inside)]
        else:
            below = dict.fromkeys(c.groups[level - 1] for c in inside)
            # siblings in the same order, so that swapping them keeps the order of the cells
            children = [shape[level - 1, g] for g in below]
        shape[level, group] = (latency, port, uplink, *children)
        parent = (level + 1, inside[0].groups[level + 1]) if level + 1 < levels else None
        twin = -1
        if parent is not None:
            key = (parent, shape[level, group])
            twin = last.get(key, -1)
            last[key] = number[level, group]
        groups.append(
            TreeGroup(
                number[level, group], level, number[parent] if parent else -1,
                frozenset(c.index for c in inside), sum(len(c.devices) for c in inside),
                latency, port, uplink, twin,
            )
        )  # fmt: skip
    return tuple(groups)
