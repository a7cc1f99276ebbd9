"""The network families by name: ``mesh2d:8x8``, ``fat-tree:8``, ``dgx-a100:2x8``, ...

Every family takes ``bw`` and ``alpha`` for its links, one value or one per dimension or tier
separated by colons (``3d-rfs:2x4x8,bw=200GB/s:100GB/s:50GB/s,alpha=0.5us``), and ``multicast=yes``
and ``reduce=yes`` for its switches. Latencies default to 0 (of machines
``alpha=hardware`` gives those of their links), bandwidths of the abstract families to
1 GB/s and of the machines to what was published. A suffix makes the network uneven or removes parts
of it: ``torus2d:8x8+log-uniform:0.5,2+fail-npus:3+seed:1`` (see `nestopt.instances.options`).
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING

from nestopt.core.errors import InputError, NestoptError, unknown_name
from nestopt.instances import fabrics, grids, machines
from nestopt.instances.failures import Failures, fail
from nestopt.instances.heterogeneity import RECIPES, apply_heterogeneity
from nestopt.instances.options import split_name
from nestopt.instances.spec import parse_spec
from nestopt.instances.streams import stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.collective.model.topology import Topology
    from nestopt.instances.network import Network
    from nestopt.instances.options import Options
    from nestopt.instances.spec import Spec

__all__ = ["FAMILIES", "by_name", "family_network", "network_by_name", "perturbed", "tiers_of"]

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


def family_network(name: str) -> Network:
    """The network of a family's name without a suffix, with its tiers and groups.

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
        family_of = spec.family.partition(",")[0].strip()
        if family_of in FAMILIES or _GRID.match(family_of):
            rest = name.partition(",")[2]
            raise InputError(f"use a colon before the options: {family_of}:{rest}", field=name)
        raise unknown_name("topology", spec.family, [*FAMILIES, "mesh2d", "mesh3d", "torus2d"])
    if multicast or reduces:
        network = network.with_switches(multicast=multicast, reduces=reduces)
    return network


def perturbed(network: Network, options: Options) -> tuple[Network, Failures, int]:
    """A network made uneven and then failed, what failed, and how often failures were drawn.

    The result is named by the network's name and the options' suffix. What fails does not depend
    on the heterogeneity, nor the speeds of what is left on the failures.
    """
    name = network.name + options.suffix()
    for position, recipe in enumerate(options.heterogeneity):
        rng = stream(options.seed, "heterogeneity", position)
        network = apply_heterogeneity(network, recipe, rng)
    if options.failed:
        network = _without(network, options.failed)
    model = options.failure_model()
    if model.empty and not options.connected:
        return network.renamed(name), Failures((), ()), 1
    return fail(network, model, options.seed, connected=options.connected, name=name)


def _without(network: Network, failed: tuple[int, ...]) -> Network:
    """The network without these NPUs, by the number of the node."""
    npus = set(network.npus.tolist())
    for number in failed:
        if number not in npus:
            raise InputError(f"{number} is no NPU of {network.name}", field="fail")
    return network.without(failed)


def network_by_name(name: str) -> Network:
    """The network of a name with or without a suffix (see `nestopt.instances.options`).

    Raises
    ------
    UsageError
        If the family or a part of the suffix is unknown (with a suggestion).
    InputError
        If parameters are wrong.
    """
    base, options = split_name(name, RECIPES)
    return perturbed(family_network(base), options)[0].renamed(name)


def by_name(name: str) -> Topology:
    """The topology of a name; see `network_by_name`."""
    return network_by_name(name).topology()


def tiers_of(topology: Topology) -> tuple[str, ...] | None:
    """The tier of every link of a machine that the topology's name makes anew; None if it does not.

    A topology knows its links' figures only; what they are (``nvlink``, ``nic``) is known to the
    recipe that its name states. A name that promises more nodes than there are is not tried.
    """
    family, _, shape = topology.name.partition("+")[0].partition(",")[0].partition(":")
    recipe = FAMILIES.get(family)
    promised = prod(int(number) for number in re.findall(r"\d+", shape)[:4])
    if recipe is None or recipe.__module__ != machines.__name__ or promised > topology.num_nodes:
        return None
    try:
        network = network_by_name(topology.name)
    except NestoptError:
        return None
    return network.tier if network.topology() == topology else None
