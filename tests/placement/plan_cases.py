"""Random and tiny clusters, workloads and plans for the tests of checker and simulator."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.io import sha256_of
from nestopt.core.result import Reason, Result, Termination
from nestopt.placement.judge.check import price
from nestopt.placement.model.cluster import Cluster, DeviceType, Level, Override
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Hides, Plan, Stage, StageConfig
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.words import Objective
from nestopt.placement.model.workload import Edge, Operator, Tied, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "random_case",
    "random_cluster",
    "random_workload",
    "result_of",
    "roomy",
    "tiny_cluster",
    "tiny_plan",
    "with_overlap",
]


def _log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def random_cluster(rng: np.random.Generator, devices: int) -> Cluster:
    """One to four levels, uneven groups, one or two types, overrides, some failures."""
    depth = int(rng.integers(1, 5))
    if rng.random() < 0.5:  # even groups, so that hierarchical collectives come up
        shape = [int(rng.choice([1, 2, 3, 4])) for _ in range(depth - 1)]
        shape.append(max(1, devices // math.prod(shape)))
        devices = math.prod(shape)
        widths = np.cumprod(shape)
        sizes = [(int(width),) * (devices // int(width)) for width in widths]
    else:
        ends = {devices}
        sizes = [(devices,)]
        for _ in range(depth - 1):
            extra = rng.integers(1, devices + 1, size=int(rng.integers(1, 4)))
            ends |= {int(e) for e in extra}
            cut = sorted(ends)
            sizes.insert(0, tuple(b - a for a, b in zip([0, *cut], cut)))
    slowest = float(rng.choice([1e-4, 1e-2]))
    levels = []
    for index in range(depth):
        top = index == depth - 1
        levels.append(
            Level(
                f"level{index}",
                _log_uniform(rng, 1e-7, slowest),
                _log_uniform(rng, 1e9, 1e12),
                math.inf if top else _log_uniform(rng, 1e9, 1e12),
            )
        )
    types = tuple(
        DeviceType(
            f"type{k}",
            _log_uniform(rng, 1e13, 1e15),
            _log_uniform(rng, 1e10, 1e11),
            _log_uniform(rng, 1e11, 4e12),
            efficiency=float(rng.uniform(0.4, 1)),
            half_flops=float(rng.choice([0.0, 1e10])),
            reserve=float(rng.choice([0.0, 1e9])),
        )
        for k in range(int(rng.integers(1, 3)))
    )
    overrides = []
    for _ in range(int(rng.integers(0, 3))):
        level = int(rng.integers(depth))
        overrides.append(
            Override(
                level,
                int(rng.integers(len(sizes[level]))),
                latency=_log_uniform(rng, 1e-7, 1e-4) if rng.random() < 0.5 else None,
                port=_log_uniform(rng, 1e9, 1e12) if rng.random() < 0.5 else None,
                uplink=_log_uniform(rng, 1e9, 1e12)
                if level < depth - 1 and rng.random() < 0.5
                else None,
            )
        )
    failed = rng.choice(devices, size=int(rng.integers(0, 4)), replace=False) if devices > 8 else ()
    return Cluster(
        "random",
        tuple(levels),
        types,
        np.sort(rng.integers(0, len(types), size=devices)),
        tuple(sizes),
        tuple(int(f) for f in failed),
        tuple(overrides),
    )


def _random_kind(
    rng: np.random.Generator, kind: str, types: Sequence[str], decomposed: bool
) -> dict[str, object]:
    def maybe(low: float, high: float) -> float:
        return _log_uniform(rng, low, high) if rng.random() < 0.8 else 0.0

    fields: dict[str, object] = {
        "kind": kind,
        "flops": maybe(1e9, 1e13),
        "flops_attn": maybe(1e9, 1e12),
        "bytes_full": maybe(1e6, 1e9),
        "bytes_shard": maybe(1e6, 1e9),
        "bytes_attn": maybe(1e6, 1e9),
        "params": maybe(1e6, 1e9),
        "params_expert": maybe(1e6, 1e9),
        "act_full": maybe(1e6, 1e8),
        "act_shard": maybe(1e6, 1e8),
        "act_attn": maybe(1e6, 1e8),
        "act_input": maybe(1e6, 1e8),
        "tp_bytes": maybe(1e6, 1e8),
        "tp_fwd": int(rng.integers(0, 3)),
        "tp_bwd": int(rng.integers(0, 3)),
        "cp_bytes": maybe(1e6, 1e8),
        "ep_bytes": maybe(1e6, 1e8),
        "logits_bytes": maybe(1e6, 1e8),
        "tensor_divides": (24, 48),
        "context_divides": 12,
        "experts": int(rng.choice([0, 4, 8])),
    }
    if rng.random() < 0.2:
        timed = list(types)[: int(rng.integers(1, len(types) + 1))]
        fields["time_fwd"] = {name: _log_uniform(rng, 1e-4, 1e-1) for name in timed}
        fields["time_bwd"] = {name: _log_uniform(rng, 1e-4, 1e-1) for name in timed}
    if decomposed:
        for name in ("x_fwd", "x_bwd"):
            count = int(rng.integers(0, 4))
            fields[name] = tuple(_log_uniform(rng, 1e5, 1e8) for _ in range(count))
        fields["x_divides"] = (12, 24)
    return fields


def random_workload(
    rng: np.random.Generator, operators: int, types: Sequence[str], *, decomposed: bool = False
) -> Workload:
    """A chain or a DAG of operators of a few kinds, sometimes with tied parameters.

    With `decomposed` the operators have collectives over X too.
    """
    count = int(rng.integers(1, 4))
    kinds = [_random_kind(rng, f"kind{k}", types, decomposed) for k in range(count)]
    chosen = [Operator(f"op{i}", **kinds[int(rng.integers(len(kinds)))]) for i in range(operators)]  # type: ignore[arg-type]
    pairs = {(i, i + 1) for i in range(operators - 1) if rng.random() < 0.9}
    for _ in range(int(rng.integers(0, operators))):
        a, b = sorted(int(x) for x in rng.choice(operators, 2, replace=operators < 2))
        if a < b:
            pairs.add((a, b))
    edges = tuple(Edge(a, b, _log_uniform(rng, 1e5, 1e8)) for a, b in sorted(pairs))
    tied = None
    if operators > 1 and rng.random() < 0.3 and chosen[-1].params:
        tied = Tied(0, operators - 1, min(chosen[0].params, chosen[-1].params))
    return Workload(
        "random",
        tuple(chosen),
        edges,
        int(rng.choice([8, 24, 48, 96])),
        bytes_weight=float(rng.choice([2, 4])),
        bytes_gradient=float(rng.choice([2, 4])),
        bytes_optimizer=float(rng.choice([8, 12])),
        tied=tied,
    )


def _random_order(rng: np.random.Generator, workload: Workload) -> list[int]:
    """A random topological order."""
    waiting = {i: set(p) for i, p in enumerate(workload.predecessors)}
    order: list[int] = []
    while waiting:
        ready = sorted(i for i, p in waiting.items() if not p)
        pick = int(rng.choice(ready))
        order.append(pick)
        del waiting[pick]
        for rest in waiting.values():
            rest.discard(pick)
    return order


def random_case(
    rng: np.random.Generator,
    schedules: Sequence[str] = ("1f1b", "gpipe"),
    *,
    decomposed: bool = False,
) -> tuple[Workload, Cluster, Plan]:
    """A random instance and a random plan of its general space, memory left aside.

    With `decomposed` stages have any (x, y, z), with and without overlap.
    """
    while True:
        cluster = random_cluster(rng, int(rng.integers(1, 40)))
        names = [t.name for t in cluster.types]
        count = int(rng.integers(1, 12))
        workload = random_workload(rng, count, names, decomposed=decomposed)
        schedule = str(rng.choice(list(schedules)))
        plan = _random_plan(rng, workload, cluster, schedule, decomposed)
        if plan is not None:
            return workload, cluster, plan


def _random_plan(
    rng: np.random.Generator,
    workload: Workload,
    cluster: Cluster,
    schedule: str,
    decomposed: bool,
) -> Plan | None:
    order = _random_order(rng, workload)
    count = len(order)
    s = int(rng.integers(1, min(count, 6) + 1))
    cut = sorted(rng.choice(np.arange(1, count), s - 1, replace=False).tolist()) if s > 1 else []
    parts = [order[a:b] for a, b in zip([0, *cut], [*cut, count])]
    batch = workload.global_batch
    pairs = [
        (d, b)
        for d in (1, 2, 3, 4)
        for b in (1, 2, 4)
        if batch % (d * b) == 0 and (schedule != "interleaved" or (batch // (d * b)) % s == 0)
    ]
    if not pairs:
        return None
    d, b = pairs[int(rng.integers(len(pairs)))]
    draw = _random_decomposition if decomposed else _random_config
    configs = [draw(rng, [workload.operators[i] for i in part], b) for part in parts]
    need = d * sum(c.width for c in configs)
    alive = cluster.alive
    if need > len(alive):
        return None
    chunks = 1
    if schedule == "interleaved":
        chunks = int(rng.integers(1, 4))
        kinds = [o.kind for o in workload.operators]
        for part in parts:
            held = [kinds[i] for i in part]
            if len(part) < chunks:
                return None
            if any(kinds.count(k) > 1 and held.count(k) % chunks for k in held):
                return None
    dice = rng.random()
    if dice < 0.4:
        used = alive[:need]
    elif dice < 0.7:  # hierarchy order, devices left out here and there
        used = np.sort(rng.choice(alive, need, replace=False))
    else:
        used = rng.permutation(alive)[:need]
    stages, at = [], 0
    for part, config in zip(parts, configs):
        devices = used[at : at + d * config.width].reshape(d, config.width)
        stages.append(Stage(tuple(sorted(part)), config, devices.astype(np.int64)))
        at += d * config.width
    stages = [replace(stage, config=_hiding(rng, stage.config)) for stage in stages]
    return Plan(tuple(stages), d, b, schedule, chunks)


def _hiding(rng: np.random.Generator, config: StageConfig) -> StageConfig:
    """The configuration with some of the communication hidden that it can hide."""
    hides = Hides(int(rng.integers(0, 8)))
    _, y, _ = config.tensor
    if config.tensor != (1, y, 1) or y == 1 or config.overlap:
        hides &= ~Hides.TENSOR
    if config.zero < 2:
        hides &= ~Hides.GATHERS
    return replace(config, hides=hides)


def _random_config(
    rng: np.random.Generator, operators: Sequence[Operator], microbatch: int
) -> StageConfig:
    t = int(rng.choice([1, 1, 2, 3, 4]))
    c = int(rng.choice([1, 1, 2, 3]))
    e = 1
    if any(o.experts for o in operators):
        e = int(rng.choice([x for x in (1, 2, 4) if microbatch % x == 0]))
    return StageConfig(
        (1, t, 1),
        c,
        e,
        bool(rng.random() < 0.5) and t > 1,
        int(rng.integers(0, 4)),
        str(rng.choice(["none", "selective", "full"])),
    )


def _random_decomposition(
    rng: np.random.Generator, operators: Sequence[Operator], microbatch: int
) -> StageConfig:
    """A configuration with another (x, y, z), perhaps with overlap."""
    plain = _random_config(rng, operators, microbatch)
    x, y = int(rng.choice([1, 1, 2, 3])), plain.t
    z = int(rng.choice([k for k in (1, 2, 4) if microbatch % (plain.expert * k) == 0]))
    return replace(
        plain,
        tensor=(x, y, z),
        sequence_parallel=plain.sequence_parallel and x == 1,
        overlap=x * y * z > 1 and bool(rng.random() < 0.6),
    )


def tiny_cluster(**changes: float) -> Cluster:
    """Two nodes of two devices; every figure a round number.

    Node: latency 1 s, 100 B/s a port, 150 B/s uplink. Top: 10 s, 50 B/s a port.
    """
    figures = {"latency": 1.0, "port": 100.0, "uplink": 150.0} | changes
    return Cluster.regular(
        "tiny",
        (2, 2),
        (Level("node", **figures), Level("top", 10.0, 50.0)),
        (DeviceType("gpu", 1000.0, 500.0, 400.0),),
    )


def tiny_plan(**config: object) -> tuple[Workload, Cluster, Plan]:
    """Four equal operators on two stages of two replicas, one device each."""
    block = {"kind": "block", "flops": 500.0, "params": 10.0, "act_full": 7.0}
    workload = Workload.chain(
        "tiny",
        [Operator(f"b{i}", **block) for i in range(4)],  # type: ignore[arg-type]
        30.0,
        global_batch=8,
    )
    one = StageConfig(**config)  # type: ignore[arg-type]
    stages = (
        Stage((0, 1), one, np.array([[0], [1]])),
        Stage((2, 3), one, np.array([[2], [3]])),
    )
    return workload, tiny_cluster(), Plan(stages, 2, 1)


def roomy(cluster: Cluster) -> Cluster:
    """The same cluster with memory for everything."""
    return cluster.with_types([replace(t, memory=1e18, reserve=0.0) for t in cluster.types])


def result_of(
    workload: Workload,
    cluster: Cluster,
    plan: Plan,
    *,
    space: str = "4d general",
    kind: str = "iteration-time",
    **changes: object,
) -> Result:
    """A result that claims a plan optimal, with the checker's own objective."""
    instance = PlacementInstance(workload, cluster, PlanSpace.parse(space), Objective(kind))
    data = instance.to_json()
    value = price(workload, cluster, plan).objective(kind)
    fields: dict[str, object] = {
        "problem": "placement",
        "instance": {"name": "case", "sha256": sha256_of(data), "data": data},
        "method": "dp",
        "termination": Termination(Reason.OPTIMAL),
        "objective": value,
        "bound": value,
        "seconds": 1.5,
        "solution_json": plan.to_json(),
        "witness": {"bound": "exhausted structured space"},
    }
    return Result(**(fields | changes))  # type: ignore[arg-type]


def with_overlap(plan: Plan, overlap: bool) -> Plan:
    """A plan with overlap on or off in every stage that can have it.

    Either way no stage hides its tensor reduces as a framework does, which excludes overlap.
    """
    stages = [
        replace(
            s,
            config=replace(
                s.config,
                overlap=overlap and s.config.t > 1,
                hides=s.config.hides & ~Hides.TENSOR,
            ),
        )
        for s in plan.stages
    ]
    return replace(plan, stages=tuple(stages))
