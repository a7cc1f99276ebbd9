"""Where the devices of a cluster go in a picture: nested boxes, one for each group."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nestopt.placement.model.cluster import Cluster

__all__ = ["Box", "TreePicture", "lay_out"]

GAP = (0.0, 0.5, 1.2, 2.2)
"""Free space around the children of a group, by level; a device is 1 x 1."""

MARGIN = 0.2
"""Free space between an innermost group's box and its devices."""


@dataclass(frozen=True, slots=True)
class Box:
    """A group's rectangle: level, group, lower left corner, size."""

    level: int
    group: int
    x: float
    y: float
    width: float
    height: float


@dataclass(slots=True)
class TreePicture:
    """A cluster laid out.

    Attributes
    ----------
    width, height : float
        In devices.
    x, y : dict of int to float
        Lower left corner of every device.
    boxes : list of Box
        Innermost first within each group.
    """

    width: float
    height: float
    x: dict[int, float] = field(default_factory=dict)
    y: dict[int, float] = field(default_factory=dict)
    boxes: list[Box] = field(default_factory=list)

    def put(self, other: TreePicture, x: float, y: float) -> None:
        """Add another picture, its lower left corner at (x, y)."""
        self.x |= {device: x + at for device, at in other.x.items()}
        self.y |= {device: y + at for device, at in other.y.items()}
        self.boxes += [
            Box(b.level, b.group, x + b.x, y + b.y, b.width, b.height) for b in other.boxes
        ]


def _columns(count: int, width: float, height: float, aspect: float) -> int:
    """Columns of `count` cells so that the whole is about `aspect` times as wide as high."""

    def misfit(columns: int) -> tuple[float, int]:
        rows = math.ceil(count / columns)
        holes = columns * rows - count
        return abs(math.log(columns * width / (rows * height) / aspect)) + 2 * holes / count, rows

    return min(range(1, count + 1), key=misfit)


def lay_out(cluster: Cluster, aspect: float = 2.4) -> TreePicture:
    """Lay out a cluster's tree; reading order is hierarchy order.

    Parameters
    ----------
    cluster : Cluster
    aspect : float
        Width over height of the whole, about.
    """
    depth = len(cluster.sizes)
    ends = [np.cumsum(sizes) for sizes in cluster.sizes]

    def group(level: int, index: int) -> TreePicture:
        last = int(ends[level][index])
        first = last - cluster.sizes[level][index]
        if level == 0:
            parts = []
            for device in range(first, last):
                part = TreePicture(1.0, 1.0)
                part.x[device] = part.y[device] = 0.0
                parts.append(part)
        else:
            inner = ends[level - 1]
            low, high = np.searchsorted(inner, [first, last], side="right").tolist()
            parts = [group(level - 1, child) for child in range(low, high)]
            if first == last - cluster.sizes[level - 1][low]:  # a single child: one box will do
                parts[0].boxes.append(Box(level, index, 0, 0, parts[0].width, parts[0].height))
                return parts[0]
        gap = GAP[min(level, len(GAP) - 1)]
        width = max(p.width for p in parts) + gap
        height = max(p.height for p in parts) + gap
        wanted = aspect if level == depth - 1 else 1.8
        columns = _columns(len(parts), width, height, wanted)
        rows = math.ceil(len(parts) / columns)
        edge = gap or MARGIN
        whole = TreePicture(columns * width - gap + 2 * edge, rows * height - gap + 2 * edge)
        for position, part in enumerate(parts):
            row, column = divmod(position, columns)
            whole.put(part, edge + column * width, whole.height - edge - row * height - part.height)
        whole.boxes.append(Box(level, index, 0, 0, whole.width, whole.height))
        return whole

    return group(depth - 1, 0)
