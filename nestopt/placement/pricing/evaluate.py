"""The evaluator: what any plan of the general space costs, by the stage-cost module."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.placement.pricing.comm import (
    Network,
    families_of,
    family_profiles,
    lca_level,
    side_profiles,
)
from nestopt.placement.pricing.cost import StageCosts, grid_of, mode_of
from nestopt.placement.pricing.replicas import (
    best_shares,
    most_held,
    pipeline_time,
    types_by_replica,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.schedules import Weights
    from nestopt.placement.model.workload import Workload

    Floats = NDArray[np.float64]

__all__ = [
    "Evaluation", "StageFigures", "combine", "evaluate", "launchable", "reported",
    "stage_figures", "with_best_shares",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Prices of a plan.

    Attributes
    ----------
    seconds, sync, need, room : float arrays (s,)
        t_q, S_q, bytes needed and bytes usable (smallest of the stage's devices) by stage. Of a
        plan that states its shares, t_q is the slowest replica's, and the bytes needed are those of
        the largest share.
    iteration_time, bottleneck : float
        Both objectives, in seconds.
    fits : bool
        Whether every stage's memory suffices, in each replica.
    """

    seconds: Floats
    sync: Floats
    need: Floats
    room: Floats
    iteration_time: float
    bottleneck: float
    fits: bool

    def objective(self, kind: str) -> float:
        """The objective of a name."""
        return self.bottleneck if kind == "bottleneck" else self.iteration_time


def combine(seconds: Floats, sync: Floats, weights: Weights) -> float:
    """An objective from stage times (``MODEL.md``, section 6)."""
    return float(
        weights.total * seconds.sum() + weights.largest * seconds.max() + weights.sync * sync.max()
    )


@dataclass(frozen=True, eq=False)
class StageFigures:
    """What the stages of a plan cost, before any number of micro-batches is known.

    Attributes
    ----------
    seconds, sync, fixed, stored : float arrays (s,)
        t_q, S_q, and bytes whatever is in flight and for each micro-batch in flight.
    apart, rooms : float arrays (d, s)
        t and usable bytes of each replica's stages; `apart` is empty if it was not asked for.
    """

    seconds: Floats
    sync: Floats
    fixed: Floats
    stored: Floats
    apart: Floats
    rooms: Floats


def evaluate(
    workload: Workload, cluster: Cluster, plan: Plan, costs: StageCosts | None = None
) -> Evaluation:
    """Price a plan that is feasible but for memory (the checker judges feasibility)."""
    found = stage_figures(workload, cluster, plan, costs, apart=bool(plan.shares))
    pipeline, stages = plan.pipeline, len(plan.stages)
    shares = plan.shares or (workload.global_batch // (plan.replicas * plan.microbatch),)
    held = np.array(
        [[pipeline.in_flight(m, stages - q, stages) for q in range(stages)] for m in shares]
    )
    needs = found.fixed + held * found.stored
    if plan.shares:
        time = pipeline_time(found.apart, shares, pipeline) + float(found.sync.max())
    else:
        weights = pipeline.weights("iteration-time", shares[0])
        time = combine(found.seconds, found.sync, weights)
    return Evaluation(
        found.seconds, found.sync, needs.max(axis=0), found.rooms.min(axis=0), time,
        float(found.seconds.max()), bool((needs <= found.rooms).all()),
    )  # fmt: skip


def stage_figures(
    workload: Workload,
    cluster: Cluster,
    plan: Plan,
    costs: StageCosts | None = None,
    *,
    apart: bool = False,
) -> StageFigures:
    """What each stage of a plan costs; with `apart`, each replica's too."""
    costs = costs or StageCosts(workload)
    network = Network.of(cluster)
    line = np.arange(cluster.num_devices, dtype=np.int64)
    start = np.zeros(1, dtype=np.int64)
    blocks = costs.blocks([stage.operators for stage in plan.stages])
    stages = len(plan.stages)
    b, d = plan.microbatch, plan.replicas
    seconds, sync, fixed, stored = (np.zeros(stages) for _ in range(4))
    alone = np.zeros((d if apart else 0, stages))
    usable = np.array([t.usable for t in cluster.types])
    rooms = np.zeros((d, stages))
    # Many stages of a plan are alike but for their place in it.
    known: dict[tuple[Any, ...], tuple[float, float, float, float]] = {}
    for q, stage in enumerate(plan.stages):
        config = stage.config
        grid, mode = grid_of(config), mode_of(config)
        devices = np.asarray(stage.devices, dtype=np.int64)
        profiles = np.concatenate(
            [family_profiles(network, line, start, f) for f in families_of(devices, *grid)]
        )
        present = np.unique(cluster.type_of[devices])
        types = [cluster.types[i] for i in present]
        one = blocks.row(q)
        key = (
            config, profiles.tobytes(), present.tobytes(), one.counts.tobytes(),
            one.cut_in[0], one.cut_out[0], one.shared[0],
        )  # fmt: skip
        if key not in known:
            rates = costs.rates(grid, [mode], b, d, profiles, types)[:, 0]
            memory = costs.memory(one, grid, [mode], b, d)
            known[key] = (
                float(one.counts[0] @ rates),
                float(costs.sync(one, grid, [mode], b, d, profiles, types)[0, 0]),
                float(memory.fixed[0, 0]),
                float(memory.stored[0, 0]),
            )
        seconds[q], sync[q], fixed[q], stored[q] = known[key]
        rooms[:, q] = usable[cluster.type_of[devices]].min(axis=1)
        if apart:
            kinds = types_by_replica(cluster, devices)
            times = {}
            for kind in set(kinds):
                found = [cluster.types[i] for i in kind]
                rates = costs.rates(grid, [mode], b, d, profiles, found)[:, 0]
                times[kind] = float(one.counts[0] @ rates)
            alone[:, q] = [times[kind] for kind in kinds]
    crossed = _boundaries(network, plan, b * blocks.cut_out)
    return StageFigures(seconds + crossed, sync, fixed, stored, alone + crossed, rooms)


def _boundaries(network: Network, plan: Plan, volumes: Floats) -> Floats:
    """Seconds of the boundaries of each stage, (s,), of the bytes behind each."""
    line = np.arange(network.group_of.shape[1], dtype=np.int64)
    start = np.zeros(1, dtype=np.int64)
    sides = [
        side_profiles(network, line, start, np.asarray(s.devices, np.int64).ravel(), s.config.width)
        for s in plan.stages
    ]
    seconds = np.zeros(len(plan.stages))
    for q in range(len(plan.stages) - 1):
        left, right = (np.asarray(s.devices, dtype=np.int64) for s in plan.stages[q : q + 2])
        both = np.concatenate([left, right], axis=1)
        level = max(lca_level(network, row) for row in both)
        alpha = max(sides[q][0, 1, level], sides[q + 1][0, 1, level])
        beta = max(sides[q][0, 0, level], sides[q + 1][0, 0, level])
        seconds[q : q + 2] += plan.pipeline.crossings * (alpha + volumes[q] * beta)
    return seconds


def with_best_shares(
    workload: Workload, cluster: Cluster, plan: Plan, costs: StageCosts | None = None
) -> Plan | None:
    """The plan with the shares that make it fastest; None if it may not state any that fit.

    Without any where equal ones are best and need not be stated.

    Exact: the stages, configurations and devices stay (`best_shares`). A plan that may state its
    shares has several replicas, no ZeRO stage above 1 and no chunks (``MODEL.md``, section 6).
    """
    configs = {stage.config for stage in plan.stages}
    several = plan.replicas > 1 and plan.schedule != "interleaved"
    if not several or max(config.zero for config in configs) > 1:
        return None
    found = stage_figures(workload, cluster, plan, costs, apart=True)
    total = workload.global_batch // plan.microbatch
    stages = len(plan.stages)
    most = np.array(
        [
            min(
                most_held(plan.pipeline, found.fixed[q], found.stored[q], room, stages - q, total)
                for q, room in enumerate(row)
            )
            for row in found.rooms
        ]
    )
    seconds, shares = best_shares(found.apart.sum(axis=1), found.apart.max(axis=1), most, total)
    if seconds == float("inf"):
        return None
    return launchable(workload, cluster, replace(plan, shares=shares), costs)


def launchable(
    workload: Workload, cluster: Cluster, plan: Plan, costs: StageCosts | None = None
) -> Plan:
    """The plan without its shares, where they are equal and the plan costs no more without."""
    if len(set(plan.shares)) != 1:
        return plan
    plain = replace(plan, shares=())
    stated, found = (evaluate(workload, cluster, each, costs) for each in (plan, plain))
    as_good = found.iteration_time <= stated.iteration_time * (1 + 1e-12)
    return plain if found.fits and as_good else plan


def reported(
    workload: Workload, cluster: Cluster, plan: Plan, costs: StageCosts | None = None
) -> tuple[Plan, Evaluation]:
    """The plan with its figures in the report, and its prices."""
    priced = evaluate(workload, cluster, plan, costs)
    rows = zip(priced.seconds, priced.sync, priced.need, strict=True)
    stages = [{"seconds": float(t), "sync": float(s), "memory": float(n)} for t, s, n in rows]
    return replace(plan, report={"stages": stages}), priced
