"""A cluster as a network of devices and switches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.instances.network import NetworkBuilder
from nestopt.instances.spec import LinkSpec

if TYPE_CHECKING:
    from nestopt.instances.network import Network
    from nestopt.placement.model.cluster import Cluster

__all__ = ["network_of_cluster"]


def network_of_cluster(cluster: Cluster) -> Network:
    """The alive devices of a cluster and its switches.

    Every group is a switch. A device is joined to the switch of its innermost group with that
    level's port. Where the next level's port is smaller (a NIC beside NVLink), it is joined with
    that port to a second switch of the group, which has the group's uplink into the next level;
    else the group's switch has the uplink itself. An uplink is at most what its devices' ports of
    the next level carry together, so that smaller ports further up hold for groups as a whole. A
    level's latency is halved over the way up and the way down; those of the levels on a way add up.
    """
    builder = NetworkBuilder()
    device = {int(i): builder.npu(f"device{i}") for i in cluster.alive}
    top = len(cluster.levels) - 1
    inside: list[dict[int, int]] = []
    for level in range(top + 1):
        present = sorted({int(g) for g in cluster.group_of[level][cluster.alive]})
        name = cluster.levels[level].name
        inside.append({g: builder.switch(f"{name}.{g}") for g in present})
        for g in present:
            members = np.flatnonzero(cluster.group_of[level] == g).tolist()
            builder.group(name, [*(device[i] for i in members if i in device), inside[level][g]])
    for i, npu in device.items():
        group = int(cluster.group_of[0, i])
        builder.cable(
            npu, inside[0][group], _link(cluster, 0, group, cluster.port[0, group]), "port"
        )
    for level in range(top):
        for group, switch in inside[level].items():
            members = [
                i for i in np.flatnonzero(cluster.group_of[level] == group).tolist() if i in device
            ]
            above = int(cluster.group_of[level + 1, members[0]])
            port = float(cluster.port[level + 1, above])
            gate = switch
            if level == 0 and port < cluster.port[0, group]:
                gate = builder.switch(f"{cluster.levels[0].name}.{group}.nic")
                for i in members:
                    builder.cable(device[i], gate, LinkSpec(int(port)), "nic")
            uplink = min(float(cluster.uplink[level, group]), len(members) * port)
            builder.cable(
                gate, inside[level + 1][above], _link(cluster, level + 1, above, uplink), "uplink"
            )
    return builder.build(cluster.name)


def _link(cluster: Cluster, level: int, group: int, bandwidth: float) -> LinkSpec:
    return LinkSpec(int(bandwidth), round(float(cluster.latency[level, group]) * 1e12 / 2))
