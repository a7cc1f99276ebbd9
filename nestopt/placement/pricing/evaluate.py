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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.schedules import Weights
    from nestopt.placement.model.workload import Workload

    Floats = NDArray[np.float64]

__all__ = ["Evaluation", "combine", "evaluate", "reported"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Prices of a plan.

    Attributes
    ----------
    seconds, sync, need, room : float arrays (s,)
        t_q, S_q, bytes needed and bytes usable (smallest of the stage's devices) by stage.
    iteration_time, bottleneck : float
        Both objectives, in seconds.
    fits : bool
        Whether every stage's memory suffices.
    """

    seconds: Floats
    sync: Floats
    need: Floats
    room: Floats
    iteration_time: float
    bottleneck: float

    @property
    def fits(self) -> bool:
        """Whether every stage's memory suffices."""
        return bool((self.need <= self.room).all())

    def objective(self, kind: str) -> float:
        """The objective of a name."""
        return self.bottleneck if kind == "bottleneck" else self.iteration_time


def combine(seconds: Floats, sync: Floats, weights: Weights) -> float:
    """An objective from stage times (``MODEL.md``, section 6)."""
    return float(
        weights.total * seconds.sum() + weights.largest * seconds.max() + weights.sync * sync.max()
    )


def evaluate(
    workload: Workload, cluster: Cluster, plan: Plan, costs: StageCosts | None = None
) -> Evaluation:
    """Price a plan that is feasible but for memory (the checker judges feasibility)."""
    costs = costs or StageCosts(workload)
    network = Network.of(cluster)
    line = np.arange(cluster.num_devices, dtype=np.int64)
    start = np.zeros(1, dtype=np.int64)
    blocks = costs.blocks([stage.operators for stage in plan.stages])
    stages = len(plan.stages)
    b, d, pipeline = plan.microbatch, plan.replicas, plan.pipeline
    m = workload.global_batch // (d * b)
    seconds, sync, need, room = (np.zeros(stages) for _ in range(4))
    sides = []
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
        seconds[q], sync[q], fixed, stored = known[key]
        need[q] = fixed + pipeline.in_flight(m, stages - q, stages) * stored
        room[q] = min(t.usable for t in types)
        sides.append(side_profiles(network, line, start, devices.ravel(), grid.width)[0])
    for q in range(stages - 1):
        left, right = plan.stages[q].devices, plan.stages[q + 1].devices
        level = max(lca_level(network, np.concatenate([left[r], right[r]])) for r in range(d))
        volume = b * blocks.cut_out[q]
        alpha = max(sides[q][1, level], sides[q + 1][1, level])
        beta = max(sides[q][0, level], sides[q + 1][0, level])
        x = pipeline.crossings * (alpha + volume * beta)
        seconds[q] += x
        seconds[q + 1] += x
    time = combine(seconds, sync, pipeline.weights("iteration-time", m))
    return Evaluation(seconds, sync, need, room, time, float(seconds.max()))


def reported(
    workload: Workload, cluster: Cluster, plan: Plan, costs: StageCosts | None = None
) -> tuple[Plan, Evaluation]:
    """The plan with its figures in the report, and its prices."""
    priced = evaluate(workload, cluster, plan, costs)
    rows = zip(priced.seconds, priced.sync, priced.need, strict=True)
    stages = [{"seconds": float(t), "sync": float(s), "memory": float(n)} for t, s, n in rows]
    return replace(plan, report={"stages": stages}), priced
