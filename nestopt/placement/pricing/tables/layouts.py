"""The layouts that families of structured plans have on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.pricing.comm_table import layouts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.collective_table import Layout

    Ints = NDArray[np.int64]

__all__ = ["layouts_on"]


def layouts_on(cluster: Cluster, members: Sequence[int]) -> dict[Layout, Ints]:
    """Layouts of families of equally spaced groups, each with such a family (groups, n).

    The members of a group are a power of two, or the devices of a group of the tree, apart, and
    so is the number of groups beside one another. Overrides and failures are left aside.
    """
    plain = np.ones(cluster.latency.shape, dtype=np.bool_)
    line = np.arange(cluster.num_devices, dtype=np.int64)
    found: dict[Layout, Ints] = {}
    for n in sorted(set(members)):
        for stride, beside in _spacings(cluster, n):
            offsets = np.arange(beside)[:, None] + stride * np.arange(n)[None, :]
            starts = _starts(cluster, int(offsets[-1, -1]) + 1)
            layouts = layouts_of(line, starts, offsets, cluster.group_of, plain)
            for start, layout in zip(starts.tolist(), layouts, strict=True):
                if layout is not None:
                    found.setdefault(layout, start + offsets)
    return dict(sorted(found.items(), key=lambda row: (row[0].members, row[1].size)))


def _spacings(cluster: Cluster, n: int) -> Iterator[tuple[int, int]]:
    """Distances between the members, and how many groups lie beside one another."""
    count = cluster.num_devices
    powers = {2**k for k in range(count.bit_length())}
    sizes = sorted(powers | {size for level in cluster.sizes for size in level})
    for stride in sizes:
        if stride * (n - 1) < count:
            yield from ((stride, b) for b in sizes if stride % b == 0)


def _starts(cluster: Cluster, length: int) -> Ints:
    """Begins of innermost groups, one of several that are the same in an even tree."""
    begins = np.cumsum([0, *cluster.sizes[0][:-1]]).astype(np.int64)
    if all(len(set(level)) == 1 for level in cluster.sizes):
        begins = begins[:1]
    return begins[begins + length <= cluster.num_devices]
