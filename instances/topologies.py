"""The network families by name: ``mesh2d:8x8``, ``fat-tree:8``, ``dgx-a100:2x8``, ...

Every family takes ``bw`` and ``alpha`` for its links, one value or one per dimension or tier
separated by colons (``3d-rfs:2x4x8,bw=200GB/s:100GB/s:50GB/s,alpha=0.5us``), and ``multicast=yes``
and ``reduce=yes`` for its switches. Latencies default to 0, bandwidths of the abstract families to
1 GB/s and of the machines to what was published.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from instances import fabrics, grids, machines
from instances.spec import parse_spec
from nestopt.errors import unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from instances.network import Network
    from instances.spec import Spec
    from nestopt.collective.topology import Topology

__all__ = ["FAMILIES", "by_name", "network_by_name"]

FAMILIES: dict[str, Callable[[Spec], Network]] = {
    "ring": grids.ring,
    "line": grids.line,
    "star": grids.star,
    "mesh": grids.mesh,
    "torus": grids.torus,
    "grid": grids.grid,
    "hypercube": grids.hypercube,
    "fully-connected": grids.clique,
    "3d-rfs": grids.rfs,
    "random-regular": grids.random_regular,
    "uneven4": grids.uneven4,
    "switch": fabrics.one_switch,
    "fat-tree": fabrics.fat_tree,
    "leaf-spine": fabrics.leaf_spine,
    "dragonfly": fabrics.dragonfly,
    "dgx1v": machines.dgx1v,
    "ndv2": machines.ndv2,
    "dgx-a100": machines.dgx_a100,
    "dgx-h100": machines.dgx_h100,
    "mi250": machines.mi250,
    "perlmutter": machines.perlmutter,
    "frontier": machines.frontier,
    "alps": machines.alps,
    "tpuv4": machines.tpuv4,
}
_GRID = re.compile(r"^(mesh|torus)(\d+)d$")


def network_by_name(name: str) -> Network:
    """The network of a name, with the tiers and groups that failures act on.

    Raises
    ------
    UsageError
        If there is no such family (with a suggestion).
    InputError
        If the family's parameters are wrong.
    """
    spec = parse_spec(name)
    sized = _GRID.match(spec.family)
    multicast, reduces = spec.flag("multicast"), spec.flag("reduce")
    if sized:
        family = grids.mesh if sized[1] == "mesh" else grids.torus
        network = family(spec, int(sized[2]))
    elif spec.family in FAMILIES:
        network = FAMILIES[spec.family](spec)
    else:
        raise unknown_name("topology", spec.family, [*FAMILIES, "mesh2d", "mesh3d", "torus2d"])
    if multicast or reduces:
        network = network.with_switches(multicast=multicast, reduces=reduces)
    return network


def by_name(name: str) -> Topology:
    """The topology of a name; see `network_by_name`."""
    return network_by_name(name).topology()
