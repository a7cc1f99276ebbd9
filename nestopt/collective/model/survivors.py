"""A collective on what a failure has left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.model.collective import Collective
from nestopt.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["survivors"]


def survivors(
    instance: CollectiveInstance, nodes: Iterable[int] = (), links: Iterable[int] = ()
) -> CollectiveInstance:
    """The instance after failures of nodes and links.

    Groups lose their failed NPUs; chunks keep their size. A part whose group has fewer than two
    NPUs left has nothing to do and goes.

    Parameters
    ----------
    nodes : iterable of int
        Nodes of the topology (NPUs or switches) by number.
    links : iterable of int
        Links by number.

    Raises
    ------
    InputError
        If a number is unknown, a root has failed, or no part is left.
    """
    gone = set(nodes)
    topology = instance.topology.without(gone, links)
    alive = np.ones(instance.topology.num_nodes, dtype=bool)
    alive[sorted(gone)] = False
    label = np.cumsum(alive) - 1
    parts = []
    for index, part in enumerate(instance.collective.parts):
        kept = part.npus[alive[part.npus]]
        if part.root is not None and not alive[part.root]:
            raise InputError(
                f"the root {part.root} has failed; name another", field=f"parts[{index}].root"
            )
        if len(kept) < 2:
            continue
        root = None if part.root is None else int(label[part.root])
        parts.append(replace(part, npus=label[kept], root=root))
    if not parts:
        raise InputError("no group has two NPUs left", field="parts")
    return replace(
        instance, topology=topology, collective=Collective(instance.collective.name, tuple(parts))
    )
