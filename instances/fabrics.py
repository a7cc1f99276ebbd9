"""Switched networks: one switch, fat-tree, leaf-spine with and without rails, dragonfly.

The default NPU link is the unit link of `grids` (1 GB/s, no latency); uplinks default
to what makes the fabric non-blocking and are divided by ``oversub``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nestopt.instances.grids import UNIT
from nestopt.instances.network import NetworkBuilder

if TYPE_CHECKING:
    from nestopt.instances.network import Network
    from nestopt.instances.spec import LinkSpec, Spec

__all__ = [
    "add_rails",
    "add_spines",
    "dragonfly",
    "fat_tree",
    "leaf_spine",
    "one_switch",
    "rail_leaf_spine",
]


def one_switch(spec: Spec) -> Network:
    """``switch:N``: N NPUs on one switch."""
    size = spec.integer(0, "the number of NPUs", minimum=2)
    links = spec.links([UNIT])
    spec.finish()
    builder = NetworkBuilder()
    npus = [builder.npu(f"npu{i}") for i in range(size)]
    switch = builder.switch("switch0")
    for npu in npus:
        builder.cable(npu, switch, links[0], "port")
    return builder.build(spec.text)


def fat_tree(spec: Spec) -> Network:
    """``fat-tree:K``: the three-tier fat-tree of K-port switches with K^3/4 NPUs.

    K pods of K/2 edge and K/2 aggregation switches, (K/2)^2 core switches; core switch (i, j) is
    joined to aggregation switch i of every pod. Tiers of ``bw`` and ``alpha``: NPU, edge, core.

    References
    ----------
    Al-Fares, Loukissas, Vahdat: A Scalable, Commodity Data Center Network Architecture, SIGCOMM
    2008, section 3.
    """
    ports = spec.integer(0, "the number of switch ports", minimum=2)
    if ports % 2:
        raise spec.error(f"the number of switch ports is {ports}; expected an even number")
    npu_link, edge_link, core_link = spec.links([UNIT] * 3)
    spec.finish()
    half = ports // 2
    builder = NetworkBuilder()
    npus = [builder.npu(f"npu{i}") for i in range(ports * half * half)]
    edges = [[builder.switch(f"edge{p}.{e}") for e in range(half)] for p in range(ports)]
    tops = [[builder.switch(f"agg{p}.{a}") for a in range(half)] for p in range(ports)]
    cores = [[builder.switch(f"core{i}.{j}") for j in range(half)] for i in range(half)]
    for position, npu in enumerate(npus):
        pod, rest = divmod(position, half * half)
        builder.cable(npu, edges[pod][rest // half], npu_link, "npu")
    for pod in range(ports):
        for edge in range(half):
            for top in range(half):
                builder.cable(edges[pod][edge], tops[pod][top], edge_link, "edge")
            first = (pod * half + edge) * half
            builder.group("rack", [*npus[first : first + half], edges[pod][edge]])
        for i in range(half):
            for core in cores[i]:
                builder.cable(tops[pod][i], core, core_link, "core")
        span = half * half
        builder.group("pod", [*npus[pod * span : (pod + 1) * span], *edges[pod], *tops[pod]])
    return builder.build(spec.text)


def _uplink(spec: Spec, port: LinkSpec, ports: int, spines: int) -> LinkSpec:
    """The link to each spine that divides the sum of `ports` ports by ``oversub``."""
    oversub = spec.option_number("oversub", 1.0, minimum=1e-3)
    bandwidth = round(port.bandwidth * ports / (spines * oversub))
    if bandwidth < 1:
        raise spec.error(f"oversub={oversub:g} leaves no uplink bandwidth")
    return replace(port, bandwidth=bandwidth)


def add_spines(builder: NetworkBuilder, leaves: list[int], spines: int, link: LinkSpec) -> None:
    """Join every leaf to each of `spines` new spine switches."""
    tops = [builder.switch(f"spine{i}") for i in range(spines)]
    for leaf in leaves:
        for top in tops:
            builder.cable(leaf, top, link, "uplink")


def leaf_spine(spec: Spec) -> Network:
    """``leaf-spine:LxH[,spines=S][,oversub=F]`` or, with ``rails=yes``, rails.

    L leaves with H NPUs each and S spines (default 2); the uplinks of a leaf together have the
    bandwidth of its ports divided by F (default 1). With ``rails=yes`` see `rail_leaf_spine`.
    """
    if spec.flag("rails"):
        return rail_leaf_spine(spec)
    leaves, ports = spec.shape("leaves and NPUs a leaf", dimensions=2)
    spines = spec.option_integer("spines", 2)
    port = spec.links([UNIT])[0]
    uplink = _uplink(spec, port, ports, spines)
    spec.finish()
    builder = NetworkBuilder()
    npus = [builder.npu(f"npu{i}") for i in range(leaves * ports)]
    tops = [builder.switch(f"leaf{i}") for i in range(leaves)]
    for position, npu in enumerate(npus):
        builder.cable(npu, tops[position // ports], port, "port")
    for leaf, top in enumerate(tops):
        builder.group("rack", [*npus[leaf * ports : (leaf + 1) * ports], top])
    add_spines(builder, tops, spines, uplink)
    return builder.build(spec.text)


def rail_leaf_spine(spec: Spec) -> Network:
    """``leaf-spine:NxG,rails=yes[,unit=32][,spines=S][,oversub=F]``: a rail-optimised fabric.

    N nodes of G NPUs; the NPUs of a node share an in-node switch; in each scalable unit of
    ``unit`` nodes the j-th NPUs of all nodes share rail leaf j. With more than one unit every
    leaf is joined to all spines. Tiers of ``bw`` and ``alpha``: in-node port, NIC.
    """
    nodes, width = spec.shape("nodes and NPUs a node", dimensions=2)
    unit = spec.option_integer("unit", 32)
    spines = spec.option_integer("spines", 2)
    port, nic = spec.links([replace(UNIT, bandwidth=10 * UNIT.bandwidth), UNIT])
    uplink = _uplink(spec, nic, min(unit, nodes), spines)
    spec.finish()
    builder = NetworkBuilder()
    npus = [[builder.npu(f"node{n}.npu{j}") for j in range(width)] for n in range(nodes)]
    for n, members in enumerate(npus):
        inside = builder.switch(f"node{n}.switch")
        for npu in members:
            builder.cable(npu, inside, port, "port")
        builder.group("node", [*members, inside])
    add_rails(builder, npus, unit, nic, spines, uplink)
    return builder.build(spec.text)


def add_rails(
    builder: NetworkBuilder,
    npus: list[list[int]],
    unit: int,
    nic: LinkSpec,
    spines: int,
    uplink: LinkSpec,
) -> None:
    """Join NPU j of every node to rail leaf j of its unit, and the leaves to the spines."""
    leaves = []
    for start in range(0, len(npus), unit):
        block = npus[start : start + unit]
        for j in range(len(npus[0])):
            leaf = builder.switch(f"unit{start // unit}.rail{j}")
            leaves.append(leaf)
            members = [node[j] for node in block]
            for npu in members:
                builder.cable(npu, leaf, nic, "nic")
            builder.group("rail", [*members, leaf])
        builder.group("rack", [npu for node in block for npu in node])
    if len(npus) > unit:
        add_spines(builder, leaves, spines, uplink)


def dragonfly(spec: Spec) -> Network:
    """``dragonfly:AxPxH[,groups=G]``: A routers a group, P NPUs and H global cables a router.

    Routers of a group form a clique. With G groups (default A*H + 1, the largest) every pair of
    groups has floor(A*H / (G - 1)) cables; the ports are dealt out to the groups at distance 1, 2,
    ... in turn. Tiers of ``bw`` and ``alpha``: NPU, local, global.

    References
    ----------
    Kim, Dally, Scott, Abts: Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA 2008,
    section 3.1.
    """
    routers, width, ports = spec.shape("routers, NPUs and global cables", dimensions=3)
    groups = spec.option_integer("groups", routers * ports + 1, minimum=2)
    npu_link, local_link, global_link = spec.links([UNIT] * 3)
    spec.finish()
    copies = routers * ports // (groups - 1)
    if copies == 0:
        raise spec.error(
            f"groups={groups}; expected at most {routers * ports + 1}, one more than the "
            f"{routers * ports} global ports of a group"
        )
    builder = NetworkBuilder()
    npus = [builder.npu(f"npu{i}") for i in range(groups * routers * width)]
    tops = [[builder.switch(f"router{g}.{r}") for r in range(routers)] for g in range(groups)]
    for position, npu in enumerate(npus):
        group, rest = divmod(position, routers * width)
        builder.cable(npu, tops[group][rest // width], npu_link, "npu")
    for group, members in enumerate(tops):
        for r, first in enumerate(members):
            for second in members[r + 1 :]:
                builder.cable(first, second, local_link, "local")
        span = routers * width
        builder.group("rack", [*npus[group * span : (group + 1) * span], *members])
    for group in range(groups):
        for other in range(group + 1, groups):
            for copy in range(copies):
                here = copy * (groups - 1) + other - group - 1
                there = copy * (groups - 1) + groups - (other - group) - 1
                builder.cable(
                    tops[group][here // ports], tops[other][there // ports], global_link, "global"
                )
    return builder.build(spec.text)
