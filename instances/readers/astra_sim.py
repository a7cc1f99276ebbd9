"""ASTRA-sim's network YAML: ``topology``, ``npus_count``, ``bandwidth``, ``latency``, by dimension.

Conventions of the format: bandwidths in GB/s with GB = 2^30 bytes, per link and direction;
latencies in nanoseconds per link; ``Ring`` both ways, ``FullyConnected``, ``Switch``; NPU numbers
with the first dimension varying fastest.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.instances.grids import Dimension, product
from nestopt.instances.readers.base import MOST, link_spec, whole

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
    try:
        yaml: Any = import_module("yaml")
    except ImportError as error:
        raise InputError(
            "reading YAML needs PyYAML: pip install pyyaml", file=source.path
        ) from error
    try:
        tree = yaml.compose(source.text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(source.text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise source.error(
            f"not YAML: {getattr(error, 'problem', error)}", mark.line + 1 if mark else None
        ) from error
    if not isinstance(values, dict):
        raise source.error("expected a mapping with topology, npus_count, bandwidth, latency", 1)
    line = {key.value: key.start_mark.line + 1 for key, _ in tree.value}
    if len(line) != len(tree.value):
        twice = [key.value for key, _ in tree.value]
        field = next(key for key in twice if twice.count(key) > 1)
        raise source.error("is given twice", line[field], field)
    for field in _FIELDS:
        if field not in values:
            raise source.error("is missing", None, field)
        if not isinstance(values[field], list):
            values[field] = [values[field]]
    return values, line
