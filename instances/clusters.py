"""Named clusters, at any size: ``fattree-tpuv4-1024``, ``h100-spineleaf-1024``, and others.

Device types come from the parameter set in force (`nestopt.placement.pricing.parameters`).
Bandwidths are per direction. Networks: DGX-1V 6 x 25 GB/s NVLink a GPU, 12.5 GB/s a pair of GPUs;
DGX-A100 300 GB/s a GPU and 8 x 200 Gb/s; DGX-H100 450 GB/s and 8 x 400 Gb/s, 32 nodes a scalable
unit; Perlmutter 4 A100 and 4 x 25 GB/s a node; Frontier 8 GCDs, 200 GB/s in the package, 50 GB/s
across, 4 x 25 GB/s; Alps 4 GH200, 150 GB/s a pair, 4 x 25 GB/s; TPUv4 cubes of 64, 50 GB/s a link.
The fat-tree and spine-leaf clusters of the NEST paper are 8 x 4 x k devices with 900 / 100 / 400
and 900 / 12.5 / 50 GB/s: of a device in its node, of a node's uplink, of a rack's uplink.

A name may carry settings: ``h100-spineleaf-64,fail=3:17``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import InputError, unknown_name
from nestopt.placement.model.cluster import Cluster, Level
from nestopt.placement.pricing.parameters import current_set

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FAMILIES", "by_name", "names"]

_GB, _US = 1e9, 1e-6


def _levels(*rows: tuple[str, float, float, float | None]) -> tuple[Level, ...]:
    return tuple(
        Level(name, latency * _US, port * _GB, *(() if up is None else (up * _GB,)))
        for name, latency, port, up in rows
    )


def _tree(
    name: str, count: int, unit: tuple[int, ...], levels: tuple[Level, ...], device: str
) -> Cluster:
    """`count` devices in groups of ``unit[0]``, those in groups of ``unit[1]``, ..., one top group.

    Groups that `count` does not fill stay smaller, the last of each level.
    """
    sizes = []
    size = 1
    for children in unit:
        size *= children
        full, rest = divmod(count, size)
        sizes.append((size,) * full + ((rest,) if rest else ()))
    sizes.append((count,))
    while len(sizes) > 1 and len(sizes[-2]) == 1:
        sizes.pop()
    kept = list(levels[: len(sizes)])
    kept[-1] = Level(kept[-1].name, kept[-1].latency, kept[-1].port)
    return Cluster(
        name,
        tuple(kept),
        (current_set().device_type(device),),
        np.zeros(count, dtype=np.int64),
        tuple(sizes),
    )


def _fattree_tpuv4(name: str, count: int) -> Cluster:
    return _tree(
        name, count, (8, 4),
        _levels(("node", 0.5, 900, 100), ("rack", 1.0, 100, 400), ("cluster", 2.0, 100, None)),
        "tpuv4",
    )  # fmt: skip


def _h100_spineleaf(name: str, count: int) -> Cluster:
    return _tree(
        name, count, (8, 4),
        _levels(("node", 0.5, 900, 12.5), ("leaf", 2.0, 12.5, 50), ("spine", 4.0, 12.5, None)),
        "h100",
    )  # fmt: skip


def _dgx_1v(name: str, count: int) -> Cluster:
    levels = _levels(("node", 0.7, 150, 50), ("cluster", 1.3, 12.5, None))
    return _tree(name, count, (8,), levels, "v100")


def _dgx_a100(name: str, count: int) -> Cluster:
    levels = _levels(("node", 0.7, 300, 200), ("unit", 2.0, 25, 4000), ("cluster", 3.0, 25, None))
    return _tree(name, count, (8, 20), levels, "a100")


def _dgx_h100(name: str, count: int) -> Cluster:
    levels = _levels(("node", 0.7, 450, 400), ("unit", 2.0, 50, 12800), ("cluster", 3.0, 50, None))
    return _tree(name, count, (8, 32), levels, "h100")


def _perlmutter(name: str, count: int) -> Cluster:
    levels = _levels(("node", 0.7, 300, 100), ("cluster", 2.0, 25, None))
    return _tree(name, count, (4,), levels, "a100-40")


def _frontier(name: str, count: int) -> Cluster:
    levels = _levels(("package", 0.7, 200, 100), ("node", 1.0, 50, 100), ("cluster", 2.0, 25, None))
    return _tree(name, count, (2, 4), levels, "mi250x-gcd")


def _alps(name: str, count: int) -> Cluster:
    levels = _levels(("node", 0.7, 450, 100), ("cluster", 2.0, 25, None))
    return _tree(name, count, (4,), levels, "gh200")


def _tpuv4(name: str, count: int) -> Cluster:
    # A cube's torus seen as a tree: six links a chip inside, one face of 16 links per direction.
    levels = _levels(("cube", 1.0, 300, 4800), ("pod", 3.0, 300, None))
    return _tree(name, count, (64,), levels, "tpuv4")


FAMILIES: dict[str, tuple[Callable[[str, int], Cluster], str]] = {
    "fattree-tpuv4": (_fattree_tpuv4, "8 x 4 x k TPUv4-like, 900/100/400 GB/s (NEST's fat-tree)"),
    "h100-spineleaf": (_h100_spineleaf, "8 x 4 x k H100, 900/12.5/50 GB/s (NEST's spine-leaf)"),
    "dgx-1v": (_dgx_1v, "DGX-1V nodes of 8 V100"),
    "dgx-a100": (_dgx_a100, "DGX-A100 nodes of 8, units of 20 nodes"),
    "dgx-h100": (_dgx_h100, "DGX-H100 nodes of 8, scalable units of 32 nodes"),
    "perlmutter": (_perlmutter, "Perlmutter nodes of 4 A100 40 GB"),
    "frontier": (_frontier, "Frontier nodes of 8 MI250X GCDs, packages of 2"),
    "alps": (_alps, "Alps nodes of 4 GH200"),
    "tpuv4": (_tpuv4, "TPUv4 cubes of 64 chips"),
}
"""Families of named clusters; a name is ``FAMILY-COUNT``."""


def names() -> list[str]:
    """Patterns of the cluster names."""
    return [f"{family}-N" for family in sorted(FAMILIES)]


def by_name(name: str) -> Cluster:
    """The cluster of a name ``FAMILY-COUNT`` with settings after commas.

    Settings: ``fail=I:J:...`` (devices that failed).

    Raises
    ------
    UsageError
        If the family or a setting is unknown (with a suggestion).
    InputError
        If the count is not a positive integer.
    """
    head, *settings = name.split(",")
    match = re.fullmatch(r"(.+?)-(\d+)", head)
    if match is None or match.group(1) not in FAMILIES:
        raise unknown_name("cluster", head, [f"{f}-1024" for f in FAMILIES])
    count = int(match.group(2))
    if count < 1:
        raise InputError(f"{count} devices; expected at least 1", field=name)
    cluster = FAMILIES[match.group(1)][0](name, count)
    for setting in settings:
        key, _, text = setting.partition("=")
        if key != "fail":
            raise unknown_name("cluster setting", key, ["fail"])
        try:
            failed = [int(part) for part in text.split(":")]
        except ValueError as error:
            raise InputError(f"{text!r}; expected I:J:...", field=f"{name}: fail") from error
        cluster = cluster.fail(failed)
    return cluster
