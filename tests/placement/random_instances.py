"""Tiny random instances whose best plan depends on everything the model prices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.model.cluster import Cluster, DeviceType, Level, Override
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.words import Objective
from nestopt.placement.model.workload import Edge, Operator, Tied, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TinyInstance", "tiny_instance", "tree_instance"]


@dataclass(frozen=True, eq=False)
class TinyInstance:
    """An instance whose space is ``default-1`` changed by `options` (keys of a space's text)."""

    workload: Workload
    cluster: Cluster
    objective: str
    options: dict[str, str]

    @property
    def space(self) -> PlanSpace:
        """The plan space."""
        return PlanSpace.parse(self.options, PlanSpace.named("default-1"))

    @property
    def instance(self) -> PlacementInstance:
        """The whole problem."""
        return PlacementInstance(self.workload, self.cluster, self.space, Objective(self.objective))


def tiny_instance(
    rng: np.random.Generator,
    *,
    devices: int = 5,
    operators: int = 4,
    modes: int = 2,
    decomposed: bool = False,
) -> TinyInstance:
    """A random instance small enough for enumeration.

    Chains and DAGs, one to four levels, uneven groups, one or two device types, zero to three
    failures, memory from ample to too little, both objectives.

    Parameters
    ----------
    devices, operators : int
        The most of each.
    modes : int
        About how many of the ZeRO stages and of the recompute modes are offered.
    decomposed : bool
        Whether stages may take any tensor decomposition (x, y, z), with overlap or without.
    """
    cluster = _cluster(rng, int(rng.integers(1, devices + 1)))
    workload = _workload(rng, int(rng.integers(1, operators + 1)), cluster.types, decomposed)
    memory = _middling_memory(rng, workload)
    cluster = cluster.with_types(
        [
            DeviceType(
                t.name, t.peak, memory * (1 if i == 0 else rng.uniform(0.7, 1.5)),
                t.memory_bandwidth, t.efficiency, t.half_flops, memory * rng.choice([0, 0.05]),
            )
            for i, t in enumerate(cluster.types)
        ]
    )  # fmt: skip
    zero = sorted(rng.choice(4, size=modes, replace=False).tolist())
    recompute = sorted(rng.choice(["none", "selective", "full"], size=modes, replace=False))
    options = {
        "tensor": "1,2,3" if rng.random() < 0.2 else "1,2",
        "context": "1,2" if rng.random() < 0.3 else "1",
        "expert": "1,2" if rng.random() < 0.5 else "1",
        "zero": ",".join(map(str, zero)),
        "recompute": ",".join(recompute),
        "sequence": str(rng.choice(["0", "1", "0,1"])),
        "uniform": "true" if rng.random() < 0.1 else "false",
    }
    if rng.random() < 0.2:
        options["schedule"] = "gpipe"
    if decomposed:
        options["decomposition"] = "4d"
        options["tensor"] = str(rng.choice(["2", "1,2", "1,2,4", "1,4"]))
        options["overlap"] = str(rng.choice(["0", "1", "1", "0,1"]))
    if workload.global_batch > 4:
        options["microbatch"] = "1,2"
    objective = "bottleneck" if rng.random() < 0.3 else "iteration-time"
    return TinyInstance(workload, cluster, objective, options)


def tree_instance(
    rng: np.random.Generator, *, devices: int = 8, operators: int = 2, decomposed: bool = False
) -> TinyInstance:
    """A random instance on a tree with slow uplinks, where the order of the axes often matters.

    Six to `devices` devices, mostly in even groups of two to four, some of them failed; few
    operators, one mode and few degrees, so that enumeration stays short.
    """
    sizes = [(2, 4), (4, 2), (2, 2, 2), (2, 3), (3, 2), (4, 2)]
    shape = sizes[int(rng.integers(len(sizes)))]
    cluster = _tree(rng, [n for n in shape if n > 1], devices)
    workload = _workload(rng, int(rng.integers(1, operators + 1)), cluster.types, decomposed)
    batch = int(rng.choice([2, 4, 6]))
    # much to send and little to compute
    heavy = float(rng.choice([1, 4]))
    moved = [
        replace(
            o, flops=o.flops * 0.1, flops_attn=o.flops_attn * 0.1, tp_bytes=o.tp_bytes * 10,
            params=o.params * heavy,
        )
        for o in workload.operators
    ]  # fmt: skip
    workload = replace(workload, operators=tuple(moved), global_batch=batch, tied=None)
    memory = _middling_memory(rng, workload)
    types = [replace(t, memory=memory * 1.5, reserve=0.0) for t in cluster.types]
    options = {
        "tensor": str(rng.choice(["1,2", "2", "2,4", "1,2,3"])),
        "context": str(rng.choice(["1", "1", "2", "1,2"])),
        "expert": str(rng.choice(["1", "1,2"])),
        "zero": str(rng.integers(4)),
        "recompute": "none",
        "sequence": str(rng.integers(2)),
        "replicas": str(rng.choice(["2", "all"])),
        "microbatch": str(rng.choice(["1", "1,2"])),
    }
    if decomposed:
        options |= {"decomposition": "4d", "tensor": "4", "context": "1", "overlap": "0"}
        options["microbatch"] = "2"
    objective = "bottleneck" if rng.random() < 0.2 else "iteration-time"
    return TinyInstance(workload, cluster.with_types(types), objective, options)


def _tree(rng: np.random.Generator, shape: Sequence[int], devices: int) -> Cluster:
    """A tree of this shape (outermost first), sometimes with an uneven node or a failure."""
    count = int(np.prod(shape))
    sizes = [(count,)]
    size = count
    for branches in shape[:-1]:
        size //= branches
        sizes.insert(0, (size,) * (count // size))
    if rng.random() < 0.3:  # the last node lacks a device
        sizes = [(*row[:-1], row[-1] - 1) if row[-1] > 1 else row[:-1] for row in sizes]
        count -= 1
    levels = []
    latency, port = 1e-6, _log_uniform(rng, 1e11, 1e12)
    for level in range(len(sizes)):
        uplink = math.inf if level == len(sizes) - 1 else port * rng.uniform(0.1, 1)
        levels.append(Level(f"level{level}", latency, port, uplink))
        latency *= rng.uniform(1, 10)
        port *= rng.uniform(0.1, 0.7)
    kind = DeviceType("type0", _log_uniform(rng, 1e14, 4e14), 1.0, 2e12, efficiency=0.8)
    failed = [int(rng.integers(count))] if rng.random() < 0.3 or count > devices else []
    types = np.zeros(count, dtype=np.int64)
    return Cluster("tree", tuple(levels), (kind,), types, tuple(sizes), tuple(failed))


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _cluster(rng: np.random.Generator, alive: int) -> Cluster:
    failures = int(rng.integers(0, 4)) if rng.random() < 0.5 else 0
    devices = alive + failures
    depth = int(rng.integers(1, 5))
    ends = {devices}
    sizes = [(devices,)]
    step = int(rng.integers(1, 4))
    for level in range(depth - 1):
        if rng.random() < 0.5:  # even groups, from the outer level to the inner
            ends |= set(range(0, devices, max(1, step * (depth - 1 - level)))) - {0}
        else:
            ends |= {int(x) for x in rng.integers(1, devices + 1, size=2)}
        cut = sorted(ends)
        sizes.insert(0, tuple(b - a for a, b in zip([0, *cut], cut)))
    latency, port = _log_uniform(rng, 1e-6, 1e-3), _log_uniform(rng, 1e10, 1e12)
    levels = []
    for level in range(depth):
        top = level == depth - 1
        uplink = float("inf") if top else port * rng.uniform(0.2, 4)
        levels.append(Level(f"level{level}", latency, port, uplink))
        latency *= rng.uniform(1, 10)
        port *= rng.uniform(0.1, 1)
    types = tuple(
        DeviceType(
            f"type{k}",
            _log_uniform(rng, 1e14, 4e14),
            1.0,
            _log_uniform(rng, 1e12, 4e12),
            efficiency=float(rng.uniform(0.5, 1)),
            half_flops=float(rng.choice([0.0, 1e9])),
        )
        for k in range(1 if rng.random() < 0.6 else 2)
    )
    overrides = []
    if rng.random() < 0.4:
        level = int(rng.integers(depth))
        group = int(rng.integers(len(sizes[level])))
        slow = rng.uniform(0.2, 0.9)
        uplink = None if level == depth - 1 else min(1e13, levels[level].uplink) * slow
        overrides.append(Override(level, group, None, levels[level].port * slow, uplink))
    return Cluster(
        "tiny",
        tuple(levels),
        types,
        rng.integers(0, len(types), size=devices),
        tuple(sizes),
        tuple(int(f) for f in rng.choice(devices, size=failures, replace=False)),
        tuple(overrides),
    )


def _kind(
    rng: np.random.Generator, name: str, types: Sequence[DeviceType], decomposed: bool
) -> dict[str, object]:
    def often(low: float, high: float) -> float:
        return _log_uniform(rng, low, high) if rng.random() < 0.8 else 0.0

    kind: dict[str, object] = {
        "kind": name,
        "flops": _log_uniform(rng, 1e11, 1e13),
        "flops_attn": often(1e10, 1e12),
        "bytes_full": often(1e7, 1e9),
        "bytes_shard": often(1e7, 1e9),
        "bytes_attn": often(1e7, 1e9),
        "params": often(1e8, 1e9),
        "act_full": often(1e8, 1e9),
        "act_shard": often(1e8, 1e9),
        "act_attn": often(1e8, 1e9),
        "act_input": often(1e7, 1e8),
        "tp_bytes": often(1e6, 1e8),
        "tp_fwd": int(rng.integers(1, 3)),
        "tp_bwd": int(rng.integers(1, 3)),
        "cp_bytes": often(1e6, 1e8),
        "logits_bytes": _log_uniform(rng, 1e8, 1e9) if rng.random() < 0.2 else 0.0,
        "tensor_divides": (6, 12) if rng.random() < 0.9 else (),
        "context_divides": 12 if rng.random() < 0.9 else 0,
    }
    if rng.random() < 0.3:
        kind |= {
            "experts": 4,
            "params_expert": _log_uniform(rng, 1e8, 1e9),
            "ep_bytes": _log_uniform(rng, 1e6, 1e8),
        }
    if rng.random() < 0.15:
        kind["time_fwd"] = {t.name: _log_uniform(rng, 1e-3, 1e-1) for t in types[:1]}
        kind["time_bwd"] = {t.name: _log_uniform(rng, 1e-3, 1e-1) for t in types[:1]}
    if decomposed:
        # large enough that compute hides a part of them
        kind["tp_bytes"] = _log_uniform(rng, 1e7, 1e9)
        for reduces in ("x_fwd", "x_bwd"):
            number = int(rng.integers(0, 3))
            kind[reduces] = tuple(_log_uniform(rng, 1e7, 1e9) for _ in range(number))
        kind["x_divides"] = (12,) if rng.random() < 0.9 else ()
    return kind


def _workload(
    rng: np.random.Generator, count: int, types: Sequence[DeviceType], decomposed: bool
) -> Workload:
    number = int(rng.integers(1, 4))
    kinds = [_kind(rng, f"kind{k}", types, decomposed) for k in range(number)]
    operators = [
        Operator(f"op{i}", **kinds[int(rng.integers(len(kinds)))])  # type: ignore[arg-type]
        for i in range(count)
    ]
    pairs = {(i, i + 1) for i in range(count - 1)}
    if rng.random() < 0.4:  # a DAG
        pairs = {p for p in pairs if rng.random() < 0.6}
        pairs |= {(a, b) for a in range(count) for b in range(a + 2, count) if rng.random() < 0.3}
    edges = tuple(Edge(a, b, _log_uniform(rng, 1e6, 1e8)) for a, b in sorted(pairs))
    tied = None
    if count > 1 and rng.random() < 0.2:
        first, last = operators[0].params, operators[-1].params
        tied = Tied(0, count - 1, min(first, last))
    # only an even micro-batch can be split over z
    batch = int(rng.choice([2, 4, 6, 12, 16] if decomposed else [1, 2, 4, 6, 12, 16]))
    return Workload("tiny", tuple(operators), edges, batch, tied=tied)


def _middling_memory(rng: np.random.Generator, workload: Workload) -> float:
    """Bytes between what the largest operator's parameters need and more than the whole model."""
    states = workload.bytes_weight + workload.bytes_gradient + workload.bytes_optimizer
    sizes = [
        states * (o.params + o.params_expert) + o.act_full + o.act_shard + o.act_attn
        for o in workload.operators
    ]
    return float(_log_uniform(rng, 0.5 * max(1.0, *sizes), 1.5 * max(1.0, sum(sizes))))
