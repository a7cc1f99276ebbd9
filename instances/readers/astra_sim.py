"""ASTRA-sim's network YAML: ``topology``, ``npus_count``, ``bandwidth``, ``latency``, by dimension.

Conventions of the format: bandwidths in GB/s with GB = 2^30 bytes, per link and direction;
latencies in nanoseconds per link; ``Ring`` both ways, ``FullyConnected``, ``Switch``; NPU numbers
with the first dimension varying fastest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nestopt.instances.grids import Dimension, product
from nestopt.instances.readers.base import MOST, link_spec, whole
from nestopt.instances.readers.yaml import load_yaml

if TYPE_CHECKING:
    from nestopt.instances.readers.base import Reading, Source

__all__ = ["read_astra_sim"]

_KINDS = {"Ring": "ring", "FullyConnected": "clique", "Switch": "switch"}
_FIELDS = ("topology", "npus_count", "bandwidth", "latency")


def read_astra_sim(source: Source) -> Reading:
    """Read the YAML; needs PyYAML."""
    rows, line = _load(source)
    count = len(rows["topology"])
    for field in _FIELDS[1:]:
        if len(rows[field]) != count:
            raise source.error(
                f"{len(rows[field])} values for {count} dimensions", line[field], field
            )
    dimensions = []
    for axis in range(count):
        kind = rows["topology"][axis]
        where = f"topology[{axis}]"
        if not isinstance(kind, str) or kind not in _KINDS:
            raise source.error(
                f"unknown link type {kind!r}; known: {', '.join(_KINDS)}", line["topology"], where
            )
        size = whole(
            source, rows["npus_count"][axis], line["npus_count"], f"npus_count[{axis}]", minimum=1
        )
        link = link_spec(
            source,
            (rows["bandwidth"][axis], 2**30),
            (rows["latency"][axis], 1000),
            line["bandwidth"],
            (f"bandwidth[{axis}]", f"line {line['latency']}, latency[{axis}]"),
        )
        dimensions.append(Dimension(_KINDS[kind], size, link))
    if math.prod(dimension.size for dimension in dimensions) > MOST:
        raise source.error(f"more than {MOST} NPUs", line["npus_count"], "npus_count")
    return source.reading(product(source.name, dimensions, first_fastest=True))


def _load(source: Source) -> tuple[dict[str, list[Any]], dict[str, int]]:
    values, line = load_yaml(source)
    if not isinstance(values, dict):
        raise source.error("expected a mapping with topology, npus_count, bandwidth, latency", 1)
    for field in _FIELDS:
        if field not in values:
            raise source.error("is missing", None, field)
        if not isinstance(values[field], list):
            values[field] = [values[field]]
    return values, line
