"""Real machines: DGX-1V, NDv2, DGX A100 and H100, MI250, Perlmutter, Frontier, Alps, TPUv4.

Bandwidths are per direction and latencies are 0 unless ``alpha`` says otherwise: a time a tier, or
``alpha=hardware`` for `HARDWARE_ALPHA`. Of the machines'
networks beyond the nodes only the NICs are modelled: they meet in one non-blocking switch, or in a
rail-optimised leaf-spine with ``fabric=rail``.

References
----------
NVIDIA, DGX-1 With Tesla V100 System Architecture (2017); NVIDIA, DGX A100 and DGX H100 system
architecture papers (2020, 2022); Azure NDv2-series; Jouppi et al., TPU v4, ISCA 2023;
Pearson, Interconnect Bandwidth Heterogeneity on AMD MI250x and Infinity Fabric (2023); the user
guides of Perlmutter (NERSC), Frontier (OLCF) and Alps (CSCS).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from nestopt.instances.fabrics import add_rails
from nestopt.instances.grids import Dimension, product
from nestopt.instances.network import NetworkBuilder
from nestopt.instances.spec import LinkSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nestopt.instances.network import Network
    from nestopt.instances.spec import Spec

__all__ = [
    "DGX1V_LINKS",
    "HARDWARE_ALPHA",
    "alps",
    "dgx1v",
    "dgx_a100",
    "dgx_h100",
    "frontier",
    "mi250",
    "ndv2",
    "perlmutter",
    "tpuv4",
]

GB = 10**9
HARDWARE_ALPHA = {
    "nvlink": "0.7us",
    "nvswitch": "0.35us",
    "infiniband": "1.3us",
    "infiniband port": "0.65us",
    "infinity fabric": "1us",
    "slingshot port": "1us",
    "ici": "1us",
}
"""Latency of one link, by kind; a path through a switch has two links.

NVLink and InfiniBand, GPU to GPU, as published for DGX-1V and its clusters; behind a switch each of
the two links has half of it. Infinity Fabric, Slingshot and TPU links are
round figures of the order that is reported, not measurements: give ``alpha`` where it matters.
"""
DGX1V_LINKS = (
    (0, 1, 2),
    (0, 2, 1),
    (0, 3, 1),
    (0, 4, 2),
    (1, 2, 1),
    (1, 3, 2),
    (1, 5, 1),
    (2, 3, 2),
    (2, 6, 2),
    (3, 7, 1),
    (4, 5, 2),
    (4, 6, 1),
    (4, 7, 1),
    (5, 6, 1),
    (5, 7, 2),
    (6, 7, 2),
)
"""NVLink cables of a DGX-1V: GPU, GPU, number of 25 GB/s links."""

_FRONTIER_LINKS = (
    (0, 1, 4),
    (2, 3, 4),
    (4, 5, 4),
    (6, 7, 4),
    (0, 6, 2),
    (1, 7, 2),
    (2, 4, 2),
    (3, 5, 2),
    (0, 2, 1),
    (1, 3, 1),
    (4, 6, 1),
    (5, 7, 1),
)
"""Infinity Fabric of a Frontier node: GCD, GCD, number of 50 GB/s links."""


def _alphas(*kinds: str) -> list[str]:
    return [HARDWARE_ALPHA[kind] for kind in kinds]


def _dgx1v_node(builder: NetworkBuilder, node: int, nvlink: LinkSpec) -> list[int]:
    gpus = [builder.npu(f"node{node}.gpu{i}") for i in range(8)]
    for a, b, count in DGX1V_LINKS:
        builder.cable(gpus[a], gpus[b], nvlink, "nvlink", count)
    builder.group("node", gpus)
    return gpus


def dgx1v(spec: Spec) -> Network:
    """``dgx1v``: 8 V100, 6 NVLinks of 25 GB/s each; a double link is two parallel links."""
    links = spec.links([LinkSpec(25 * GB)], hardware=_alphas("nvlink"))
    spec.finish()
    builder = NetworkBuilder()
    _dgx1v_node(builder, 0, links[0])
    return builder.build(spec.text)


def ndv2(spec: Spec) -> Network:
    """``ndv2:K``: K DGX-1V with one 12.5 GB/s InfiniBand NIC each.

    Two chassis are joined by one cable from GPU 0 of the first to GPU 1 of the second; of more,
    each GPU 0 is joined to one switch. Tiers of ``bw`` and ``alpha``: NVLink, InfiniBand.
    """
    chassis = spec.integer(0, "the number of chassis", default=2)
    nvlink, nic = spec.links(
        [LinkSpec(25 * GB), LinkSpec(25 * GB // 2)], hardware=_alphas("nvlink", "infiniband")
    )
    spec.finish()
    builder = NetworkBuilder()
    nodes = [_dgx1v_node(builder, node, nvlink) for node in range(chassis)]
    if chassis == 2:
        builder.cable(nodes[0][0], nodes[1][1], nic, "nic")
    elif chassis > 2:
        switch = builder.switch("ib")
        for gpus in nodes:
            builder.cable(gpus[0], switch, nic, "nic")
    return builder.build(spec.text)


def _pod(spec: Spec, width: int, port: LinkSpec, nic: LinkSpec, default: str) -> Network:
    """``NxG`` nodes of NVSwitch-connected GPUs with one NIC each."""
    nodes, gpus = spec.shape("nodes and GPUs a node", dimensions=2, default=default)
    if gpus > width:
        raise spec.error(f"{gpus} GPUs a node; expected at most {width}")
    port, nic = spec.links([port, nic], hardware=_alphas("nvswitch", "infiniband port"))
    fabric = spec.choice("fabric", ("switch", "rail"), "switch")
    unit = spec.option_integer("unit", 32) if fabric == "rail" else 32
    spines = spec.option_integer("spines", gpus) if fabric == "rail" else gpus
    spec.finish()
    builder = NetworkBuilder()
    members = [[builder.npu(f"node{n}.gpu{i}") for i in range(gpus)] for n in range(nodes)]
    for n, node in enumerate(members):
        inside = builder.switch(f"node{n}.nvswitch")
        for gpu in node:
            builder.cable(gpu, inside, port, "nvlink")
        builder.group("node", [*node, inside])
    if nodes > 1 and fabric == "rail":
        uplink = replace(nic, bandwidth=nic.bandwidth * min(unit, nodes) // spines)
        add_rails(builder, members, unit, nic, spines, uplink)
    elif nodes > 1:
        core = builder.switch("core")
        for gpu in itertools.chain.from_iterable(members):
            builder.cable(gpu, core, nic, "nic")
        for i in range(gpus):
            builder.group("rail", [node[i] for node in members])
    return builder.build(spec.text)


def dgx_a100(spec: Spec) -> Network:
    """``dgx-a100:NxG``: 300 GB/s a GPU into the NVSwitch, a 25 GB/s NIC a GPU.

    Options ``fabric=switch|rail``, ``unit``, ``spines``; tiers of ``bw``, ``alpha``: NVLink, NIC.
    """
    return _pod(spec, 8, LinkSpec(300 * GB), LinkSpec(25 * GB), "1x8")


def dgx_h100(spec: Spec) -> Network:
    """``dgx-h100:NxG``: 450 GB/s a GPU into the NVSwitch, a 50 GB/s NIC a GPU; else `dgx_a100`."""
    return _pod(spec, 8, LinkSpec(450 * GB), LinkSpec(50 * GB), "1x8")


def _nodes_on_core(
    spec: Spec, nodes: int, wire: Callable[[NetworkBuilder, int], Sequence[int]], nic: LinkSpec
) -> Network:
    """Nodes made by `wire`, which returns the NPUs or switches that have a NIC each."""
    builder = NetworkBuilder()
    ends = [wire(builder, node) for node in range(nodes)]
    if nodes > 1:
        core = builder.switch("core")
        for end in itertools.chain.from_iterable(ends):
            builder.cable(end, core, nic, "nic")
    return builder.build(spec.text)


def mi250(spec: Spec) -> Network:
    """``mi250:Nx16``: 16 GCDs with 7 links of 50 GB/s each, 4 in the package and 3 outside.

    The published counts leave the layout open; here GCD s of package p is joined to GCD s of the
    three packages p ^ 1, p ^ 2 and p ^ 4, so that six cables leave each package. Nodes are joined
    by a 25 GB/s NIC a GCD. Tiers of ``bw`` and ``alpha``: Infinity Fabric, NIC.
    """
    nodes, width = spec.shape("nodes and GCDs a node", dimensions=2, default="1x16")
    if width != 16:
        raise spec.error(f"{width} GCDs a node; expected 16")
    fabric, nic = spec.links(
        [LinkSpec(50 * GB), LinkSpec(25 * GB)],
        hardware=_alphas("infinity fabric", "slingshot port"),
    )
    spec.finish()

    def wire(builder: NetworkBuilder, node: int) -> Sequence[int]:
        gcds = [builder.npu(f"node{node}.gcd{i}") for i in range(16)]
        for package in range(8):
            builder.cable(gcds[2 * package], gcds[2 * package + 1], fabric, "package", 4)
            builder.group("package", gcds[2 * package : 2 * package + 2])
        for package, bit, side in itertools.product(range(8), (1, 2, 4), (0, 1)):
            other = package ^ bit
            if other > package:
                builder.cable(gcds[2 * package + side], gcds[2 * other + side], fabric, "fabric")
        builder.group("node", gcds)
        return gcds

    return _nodes_on_core(spec, nodes, wire, nic)


def _clique_node(
    builder: NetworkBuilder, node: int, gpus: int, link: LinkSpec, count: int
) -> Sequence[int]:
    members = [builder.npu(f"node{node}.gpu{i}") for i in range(gpus)]
    for a, b in itertools.combinations(members, 2):
        builder.cable(a, b, link, "nvlink", count)
    builder.group("node", members)
    return members


def perlmutter(spec: Spec) -> Network:
    """``perlmutter:N``: N nodes of 4 A100, 4 NVLinks of 25 GB/s a pair, a 25 GB/s NIC a GPU."""
    nodes = spec.integer(0, "the number of nodes", default=1)
    nvlink, nic = spec.links(
        [LinkSpec(25 * GB), LinkSpec(25 * GB)], hardware=_alphas("nvlink", "slingshot port")
    )
    spec.finish()
    return _nodes_on_core(
        spec, nodes, lambda builder, node: _clique_node(builder, node, 4, nvlink, 4), nic
    )


def alps(spec: Spec) -> Network:
    """``alps:N``: N nodes of 4 GH200, 150 GB/s a pair, a 25 GB/s NIC a GPU."""
    nodes = spec.integer(0, "the number of nodes", default=1)
    nvlink, nic = spec.links(
        [LinkSpec(150 * GB), LinkSpec(25 * GB)], hardware=_alphas("nvlink", "slingshot port")
    )
    spec.finish()
    return _nodes_on_core(
        spec, nodes, lambda builder, node: _clique_node(builder, node, 4, nvlink, 1), nic
    )


def frontier(spec: Spec) -> Network:
    """``frontier:N``: N nodes of 8 GCDs in 4 packages, a 25 GB/s NIC a package.

    200 GB/s in the package, 100 or 50 GB/s across; the NIC of a package is a switch that both of
    its GCDs reach with 50 GB/s. Tiers of ``bw`` and ``alpha``: one Infinity Fabric link, NIC.
    """
    nodes = spec.integer(0, "the number of nodes", default=1)
    fabric, nic = spec.links(
        [LinkSpec(50 * GB), LinkSpec(25 * GB)],
        hardware=_alphas("infinity fabric", "slingshot port"),
    )
    spec.finish()

    def wire(builder: NetworkBuilder, node: int) -> Sequence[int]:
        gcds = [builder.npu(f"node{node}.gcd{i}") for i in range(8)]
        for a, b, count in _FRONTIER_LINKS:
            builder.cable(gcds[a], gcds[b], fabric, "package" if count == 4 else "fabric", count)
        builder.group("node", gcds)
        if nodes == 1:
            return gcds
        ports = []
        for package in range(4):
            port = builder.switch(f"node{node}.nic{package}")
            for gcd in gcds[2 * package : 2 * package + 2]:
                builder.cable(gcd, port, fabric, "nic-port")
            ports.append(port)
        return ports

    return _nodes_on_core(spec, nodes, wire, nic)


def tpuv4(spec: Spec) -> Network:
    """``tpuv4:XxYxZ``: a slice of a TPUv4 pod with 50 GB/s a link.

    Slices whose sides are all multiples of 4 are made of 4x4x4 cubes and wrap around (optical
    switches join the cubes' faces); smaller ones are meshes. ``wrap=yes|no`` overrides.
    """
    sizes = spec.shape("the slice's sides", dimensions=3)
    whole = all(size % 4 == 0 for size in sizes)
    wrap = spec.flag("wrap", whole)
    links = spec.links([LinkSpec(50 * GB)] * 3, hardware=_alphas("ici", "ici", "ici"))
    spec.finish()
    kind = "ring" if wrap else "line"
    network = product(spec.text, [Dimension(kind, s, link) for s, link in zip(sizes, links)])
    cubes: dict[tuple[int, ...], list[int]] = {}
    racks: dict[tuple[int, ...], list[int]] = {}
    for npu, place in enumerate(itertools.product(*(range(size) for size in sizes))):
        cubes.setdefault(tuple(c // 4 for c in place), []).append(npu)
        racks.setdefault((place[0] // 2, place[1] // 2, place[2]), []).append(npu)
    groups = {
        "node": tuple(map(tuple, racks.values())),
        "cube": tuple(map(tuple, cubes.values())),
        **network.groups,
    }
    return replace(network, groups=groups)
