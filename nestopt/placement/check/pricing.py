"""What a plan costs, worked out from workload, cluster and plan alone (``MODEL.md``, 5 to 7).

Where the page leaves room, this is the reading:

* the total of shared parameters that a stage holds twice is counted once in `P` (so in states,
  synchronisation and step); per-operator terms (traffic of weights, ZeRO 2 and 3 communication,
  the ZeRO 3 buffer) see each operator as it is;
* a boundary whose cut is empty still costs its latency;
* a stage of mixed device types is as slow as the type with the largest forward + backward, and
  its forward and backward parts are that type's;
* forward communication is ``tp_fwd`` tensor collectives, one context all-gather, two expert
  all-to-alls and one ZeRO 3 gather; everything else belongs to the backward part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestopt.errors import CheckError
from nestopt.placement.check.network import (
    Family,
    Tree,
    UplinkLoad,
    boundary_seconds,
    family_of,
    uplink_load,
)
from nestopt.placement.check.structure import check_structure

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.cluster import Cluster, DeviceType
    from nestopt.placement.plan import Plan, Stage
    from nestopt.placement.workload import Operator, Workload

__all__ = ["Pricing", "StagePrice", "contended_syncs", "cuts", "price"]


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
class Pricing:
    """What a plan costs.

    Attributes
    ----------
    stages : tuple of StagePrice
    boundaries : tuple of float
        Seconds of the boundary between stages q and q + 1, both ways, all chunks.
    microbatches, chunks : int
    """

    stages: tuple[StagePrice, ...]
    boundaries: tuple[float, ...]
    microbatches: int
    chunks: int

    @property
    def iteration_time(self) -> float:
        """Seconds an iteration, in closed form."""
        seconds = [s.seconds for s in self.stages]
        v = self.chunks
        return (
            sum(seconds) / v
            + (self.microbatches - 1 / v) * max(seconds)
            + max(s.sync for s in self.stages)
        )

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
    m = workload.global_batch // (plan.replicas * plan.microbatch)
    cut = cuts(workload, plan)
    boundaries = [
        plan.chunks
        * 2
        * boundary_seconds(tree, a.devices, b.devices, plan.microbatch * cut[index + 1])
        for index, (a, b) in enumerate(zip(plan.stages, plan.stages[1:]))
    ]
    stages = []
    for index, stage in enumerate(plan.stages):
        costs = _StageCosts(workload, cluster, plan, stage, tree)
        forward, backward = costs.forward_backward()
        sync, step = costs.sync(costs.dense, costs.experts)
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
    return Pricing(tuple(stages), tuple(boundaries), m, plan.chunks)


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
    costs = [_StageCosts(workload, cluster, plan, stage, tree) for stage in plan.stages]

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


class _StageCosts:
    """The formulas of one stage; names follow ``MODEL.md``."""

    def __init__(
        self, workload: Workload, cluster: Cluster, plan: Plan, stage: Stage, tree: Tree
    ) -> None:
        config = stage.config
        self.workload, self.config = workload, config
        self.operators = [workload.operators[i] for i in stage.operators]
        self.members = stage.operators
        self.types = [cluster.types[k] for k in np.unique(cluster.type_of[stage.devices.ravel()])]
        self.b = plan.microbatch
        d = plan.replicas
        self.t, self.c, self.e = config.tensor[1], config.context, config.expert
        self.w = self.t * self.c * self.e
        self.u = self.b / (self.c * self.e)
        self.full_shard = self.t if config.sequence_parallel else 1

        # device of replica r, expert part ie, context part ic, tensor part it
        grid = stage.devices.reshape(d, self.e, self.c, self.t)
        self.tensor_sets = grid.reshape(-1, self.t)
        self.dense_sets = grid.transpose(3, 0, 1, 2).reshape(-1, d * self.e * self.c)
        self.expert_sets = grid.transpose(1, 3, 0, 2).reshape(-1, d * self.c)
        self.tensor = family_of(tree, self.tensor_sets)
        self.context = family_of(tree, grid.transpose(0, 1, 3, 2).reshape(-1, self.c))
        self.expert = family_of(tree, grid.transpose(0, 2, 3, 1).reshape(-1, self.e))
        self.dense = family_of(tree, self.dense_sets)
        self.experts = family_of(tree, self.expert_sets)
        self.dense_size, self.expert_size = d * self.c * self.e, d * self.c

    def forward_backward(self) -> tuple[float, float]:
        """Forward and backward seconds of one micro-batch, boundaries left out."""
        known: dict[str, tuple[float, float]] = {}
        forward = backward = 0.0
        for operator in self.operators:
            if operator.kind not in known:
                compute = max((self._compute(operator, y) for y in self.types), key=sum)
                talk = self._communication(operator)
                known[operator.kind] = (compute[0] + talk[0], compute[1] + talk[1])
            forward += known[operator.kind][0]
            backward += known[operator.kind][1]
        return forward, backward

    def _compute(self, o: Operator, y: DeviceType) -> tuple[float, float]:
        def product(flops: float) -> float:
            return (flops + y.half_flops) / (y.peak * y.efficiency) if flops else 0.0

        u, t = self.u, self.t
        if y.name in o.time_fwd:
            attention = 0.0
            forward = o.time_fwd[y.name] * self.b / self.w
            backward = o.time_bwd[y.name] * self.b / self.w
        else:
            weights = self.workload.bytes_weight * (o.params / t + o.params_expert / (t * self.e))
            dense = max(product(o.flops * u / t), weights / y.memory_bandwidth) if o.flops else 0.0
            attention = product(o.flops_attn * u / t) + o.bytes_attn * u / t / y.memory_bandwidth
            moved = u * (o.bytes_full / self.full_shard + o.bytes_shard / t)
            forward = dense + attention + moved / y.memory_bandwidth
            backward = 2 * forward
        again = {"none": 0.0, "selective": attention, "full": forward}[self.config.recompute]
        return forward, backward + again

    def _communication(self, o: Operator) -> tuple[float, float]:
        again = 1 if self.config.recompute == "full" else 0
        u, t, e = self.u, self.t, self.e

        size = o.tp_bytes * u
        once = self.tensor.reduce(size)
        if self.config.sequence_parallel:
            once = 2 * self.tensor.gather(size)
        forward = o.tp_fwd * once
        backward = (again * o.tp_fwd + o.tp_bwd) * once

        once = self.context.gather(o.cp_bytes * self.b / (e * t))
        forward += once
        backward += (2 + again) * once

        once = self.expert.exchange(o.ep_bytes * u / self.full_shard)
        forward += 2 * once
        backward += (2 + 2 * again) * once

        dense, experts = o.params / t, o.params_expert / (t * e)
        if self.config.zero >= 2:
            size = self.workload.bytes_gradient
            backward += self.dense.gather(size * dense) + self.experts.gather(size * experts)
        if self.config.zero == 3:
            size = self.workload.bytes_weight
            once = self.dense.gather(size * dense) + self.experts.gather(size * experts)
            forward += once
            backward += once
        return forward, backward

    def dense_params(self) -> float:
        """P: parameters of one device that are no expert's."""
        total = sum(o.params for o in self.operators)
        tied = self.workload.tied
        if tied is not None and tied.first in self.members and tied.second in self.members:
            total -= tied.params
        return total / self.t

    def expert_params(self) -> float:
        """Pe: parameters of one device that are experts'."""
        return sum(o.params_expert for o in self.operators) / (self.t * self.e)

    def sync(self, dense: Family, experts: Family) -> tuple[float, float]:
        """Synchronisation + optimizer step, and the step alone."""
        zero = self.config.zero
        bw, bg = self.workload.bytes_weight, self.workload.bytes_gradient
        total = 0.0
        for family, params in ((dense, self.dense_params()), (experts, self.expert_params())):
            if zero == 0:
                total += family.reduce(bg * params)
            elif zero == 1:
                total += family.gather(bg * params) + family.gather(bw * params)
            elif zero == 2:
                total += family.gather(bw * params)
        moved = (2 * self.workload.bytes_optimizer + bg + bw) * self._held(zero >= 1)
        step = moved / min(y.memory_bandwidth for y in self.types)
        return total + step, step

    def _held(self, sharded: bool) -> float:
        """Parameters whose weights, gradients or optimizer state one device holds."""
        dense, experts = self.dense_params(), self.expert_params()
        if sharded:
            return dense / self.dense_size + experts / self.expert_size
        return dense + experts

    def states(self) -> float:
        """Bytes of weights, gradients and optimizer state."""
        zero = self.config.zero
        return (
            self.workload.bytes_weight * self._held(zero >= 3)
            + self.workload.bytes_gradient * self._held(zero >= 2)
            + self.workload.bytes_optimizer * self._held(zero >= 1)
        )

    def stored(self) -> float:
        """Bytes of activations stored of one micro-batch."""
        if self.config.recompute == "full":
            return self.u * sum(o.act_input / self.full_shard for o in self.operators)
        attention = self.config.recompute == "none"
        return self.u * sum(self._activations(o, attention) for o in self.operators)

    def _activations(self, o: Operator, attention: bool) -> float:
        kept = o.act_full / self.full_shard + o.act_shard / self.t
        return kept + o.act_attn / self.t if attention else kept

    def working(self) -> float:
        """Bytes that exist while one operator is recomputed."""
        if self.config.recompute == "none":
            return 0.0
        if self.config.recompute == "selective":
            return self.u * max(o.act_attn / self.t for o in self.operators)
        return self.u * max(self._activations(o, True) for o in self.operators)

    def buffers(self, cut: float) -> float:
        """Bytes of communication buffers and logits; `cut` of both boundaries together."""
        total = 2 * self.u * cut / self.full_shard
        total += 2 * self.u * sum(o.logits_bytes for o in self.operators) / self.t
        if self.config.zero == 3:
            largest = max(
                o.params / self.t + o.params_expert / (self.t * self.e) for o in self.operators
            )
            total += 2 * self.workload.bytes_weight * largest
        return total
