"""What a plan costs, worked out from workload, cluster and plan alone (``MODEL.md``, 5 to 7).

Where the page leaves room, this is the reading:

* the total of shared parameters that a stage holds twice is counted once in `P` (so in states,
  synchronisation and step); per-operator terms (traffic of weights, ZeRO 2 and 3 communication,
  the ZeRO 3 buffer) see each operator as it is;
* a boundary whose cut is empty still costs its latency;
* an operator in a stage of mixed device types takes the time of the type of which forward and
  backward, with what is exposed, take longest together, and its two parts are that type's.

The page has one time for both passes; `operator_time` says what is forward
and what backward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import CheckError
from nestopt.placement.judge.check.network import (
    Tree,
    UplinkLoad,
    boundary_seconds,
    family_of,
    uplink_load,
)
from nestopt.placement.judge.check.stage import StageModel
from nestopt.placement.judge.check.structure import check_structure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.workload import Workload

__all__ = ["Pricing", "ReplicaPrice", "StagePrice", "contended_syncs", "cuts", "price"]


@dataclass(frozen=True, slots=True)
class StagePrice:
    """One stage's figures, for one micro-batch unless said otherwise.

    Attributes
    ----------
    forward, backward : float
        Seconds of compute and communication without the boundaries.
    before, after : float
        Seconds of the boundary with the stage before and the one after, both ways, all chunks.
    sync : float
        Seconds of synchronisation and optimizer step, once an iteration.
    step : float
        The optimizer step's part of it.
    states, stored, working, buffers : float
        Bytes on each device; `stored` of one micro-batch.
    in_flight : float
        Micro-batches whose activations are held at once.
    usable : float
        Bytes that the smallest device present may use.
    smallest : int
        A device with that memory.
    """

    forward: float
    backward: float
    before: float
    after: float
    sync: float
    step: float
    states: float
    stored: float
    working: float
    buffers: float
    in_flight: float
    usable: float
    smallest: int

    @property
    def seconds(self) -> float:
        """t_q: how long the stage is busy with one micro-batch."""
        return self.forward + self.backward + self.before + self.after

    @property
    def memory(self) -> float:
        """Bytes that the stage needs on each of its devices."""
        return self.states + self.in_flight * self.stored + self.working + self.buffers


@dataclass(frozen=True, slots=True)
class ReplicaPrice:
    """One replica's figures, of a plan that states its shares.

    Attributes
    ----------
    share : int
        Micro-batches that it takes.
    forward, backward : tuple of float
        Seconds of one micro-batch by stage, as in `StagePrice`.
    memory, usable : tuple of float
        Bytes that each stage needs on a device of the replica, and has on the tightest.
    tightest : tuple of int
        A device with that memory.
    """

    share: int
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    memory: tuple[float, ...]
    usable: tuple[float, ...]
    tightest: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pricing:
    """What a plan costs.

    Attributes
    ----------
    stages : tuple of StagePrice
    boundaries : tuple of float
        Seconds of the boundary between stages q and q + 1, both ways, all chunks.
    microbatches, chunks : int
        The largest share's micro-batches, where shares are stated.
    replicas : tuple of ReplicaPrice
        Empty if the plan states no shares; the figures of its stages are then the slowest
        replica's, and the memory is that of the largest share.
    """

    stages: tuple[StagePrice, ...]
    boundaries: tuple[float, ...]
    microbatches: int
    chunks: int
    replicas: tuple[ReplicaPrice, ...] = ()

    @property
    def iteration_time(self) -> float:
        """Seconds an iteration, in closed form."""
        if self.replicas:
            last = max(self.replica_time(replica) for replica in self.replicas)
            return last + max(s.sync for s in self.stages)
        seconds = [s.seconds for s in self.stages]
        v = self.chunks
        return (
            sum(seconds) / v
            + (self.microbatches - 1 / v) * max(seconds)
            + max(s.sync for s in self.stages)
        )

    def replica_time(self, replica: ReplicaPrice) -> float:
        """Seconds until a replica has run all its micro-batches."""
        crossed = [stage.before + stage.after for stage in self.stages]
        busy = [sum(x) for x in zip(replica.forward, replica.backward, crossed, strict=True)]
        return sum(busy) + (replica.share - 1) * max(busy)

    def tightest(self, stage: int) -> tuple[float, float]:
        """Bytes that a stage needs and may use, where the former are most of the latter."""
        if not self.replicas:
            return self.stages[stage].memory, self.stages[stage].usable
        rows = [(r.memory[stage], r.usable[stage]) for r in self.replicas]
        return max(rows, key=lambda row: row[0] / row[1] if row[1] > 0 else 1.0)

    @property
    def bottleneck(self) -> float:
        """Seconds of the slowest stage."""
        return max(s.seconds for s in self.stages)

    def objective(self, kind: str) -> float:
        """The objective of a kind, ``iteration-time`` or ``bottleneck``."""
        if kind == "iteration-time":
            return self.iteration_time
        if kind == "bottleneck":
            return self.bottleneck
        raise CheckError(f"objective {kind!r}; expected iteration-time or bottleneck")


def cuts(workload: Workload, plan: Plan) -> list[float]:
    """Bytes per sample that leave the ideals I_0, ..., I_s of a plan, s + 1 figures."""
    stages = len(plan.stages)
    stage_of = {o: q for q, stage in enumerate(plan.stages) for o in stage.operators}
    leaving: dict[int, list[tuple[int, float]]] = {}
    for edge in workload.edges:
        if stage_of[edge.source] < stage_of[edge.target]:
            leaving.setdefault(edge.source, []).append((stage_of[edge.target], edge.bytes))
    total = [0.0] * (stages + 1)
    for source in sorted(leaving):
        largest = 0.0
        readers = sorted(leaving[source], reverse=True)
        # walk back from the last reader: each ideal sees the readers still outside it
        for ideal in range(readers[0][0], stage_of[source], -1):
            while readers and readers[0][0] >= ideal:
                largest = max(largest, readers.pop(0)[1])
            total[ideal] += largest
    return total


def price(workload: Workload, cluster: Cluster, plan: Plan) -> Pricing:
    """Price a plan.

    Raises
    ------
    CheckError
        If the plan is malformed (its memory is priced, not judged).
    """
    check_structure(workload, cluster, plan)
    tree = Tree.of(cluster)
    equal = workload.global_batch // (plan.replicas * plan.microbatch)
    m = max(plan.shares, default=equal)
    cut = cuts(workload, plan)
    boundaries = [
        plan.chunks
        * 2
        * boundary_seconds(tree, a.devices, b.devices, plan.microbatch * cut[index + 1])
        for index, (a, b) in enumerate(zip(plan.stages, plan.stages[1:]))
    ]
    stages = []
    models = [StageModel(workload, cluster, plan, stage, tree) for stage in plan.stages]
    for index, (stage, costs) in enumerate(zip(plan.stages, models, strict=True)):
        forward, backward = costs.forward_backward()
        sync, step = costs.sync()
        kinds, first = np.unique(cluster.type_of[stage.devices.ravel()], return_index=True)
        usable = [cluster.types[k].memory - cluster.types[k].reserve for k in kinds]
        tightest = int(np.argmin(usable))
        stages.append(
            StagePrice(
                forward=forward,
                backward=backward,
                before=boundaries[index - 1] if index else 0.0,
                after=boundaries[index] if index < len(boundaries) else 0.0,
                sync=sync,
                step=step,
                states=costs.states(),
                stored=costs.stored(),
                working=costs.working(),
                buffers=costs.buffers(cut[index] + cut[index + 1]),
                in_flight=_in_flight(plan, m, index),
                usable=usable[tightest],
                smallest=int(stage.devices.ravel()[first[tightest]]),
            )
        )
    replicas = tuple(
        _replica_price(cluster, plan, stages, models, row) for row in range(len(plan.shares))
    )
    return Pricing(tuple(stages), tuple(boundaries), m, plan.chunks, replicas)


def _replica_price(
    cluster: Cluster,
    plan: Plan,
    stages: list[StagePrice],
    models: list[StageModel],
    row: int,
) -> ReplicaPrice:
    """The figures of one replica: its own devices and share, the groups of all."""
    share = plan.shares[row]
    passes, memory, usable, tightest = [], [], [], []
    for index, (stage, costs) in enumerate(zip(stages, models, strict=True)):
        own = plan.stages[index].devices[row]
        kinds = [cluster.types[k] for k in cluster.type_of[own]]
        passes.append(costs.forward_backward([t for t in cluster.types if t in kinds]))
        held = _in_flight(plan, share, index)
        memory.append(stage.states + held * stage.stored + stage.working + stage.buffers)
        room = [kind.memory - kind.reserve for kind in kinds]
        usable.append(min(room))
        tightest.append(int(own[int(np.argmin(room))]))
    forward, backward = zip(*passes, strict=True)
    return ReplicaPrice(share, forward, backward, tuple(memory), tuple(usable), tuple(tightest))


def _in_flight(plan: Plan, m: int, index: int) -> float:
    s, v = len(plan.stages), plan.chunks
    if plan.schedule == "gpipe":
        return m
    if plan.schedule == "1f1b":
        return min(m, s - index)
    return min(m, (2 * (s - index - 1) + (v - 1) * s + 1) / v)


def contended_syncs(workload: Workload, cluster: Cluster, plan: Plan) -> list[float]:
    """Seconds of every stage's synchronisation and step if all stages synchronise at once.

    Same algorithms and sizes as in the closed form, but an uplink is shared by the groups of all
    stages, dense ones with dense ones and experts' with experts'.
    """
    tree = Tree.of(cluster)
    costs = [StageModel(workload, cluster, plan, stage, tree) for stage in plan.stages]

    def together(families: list[NDArray[np.int64]]) -> list[UplinkLoad] | None:
        total: list[UplinkLoad] | None = None
        for sets in families:
            load = uplink_load(tree, sets)
            total = load if total is None else [a + b for a, b in zip(total, load)]
        return total

    active = [c for c in costs if c.config.zero < 3]
    dense = together([c.dense_sets for c in active if c.dense_params()])
    experts = together([c.expert_sets for c in active if c.expert_params()])
    return [
        c.sync(family_of(tree, c.dense_sets, dense), family_of(tree, c.expert_sets, experts))[0]
        for c in costs
    ]
