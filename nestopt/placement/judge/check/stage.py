"""What one stage costs: its groups, synchronisation and memory (``MODEL.md``, sections 4, 5, 7).

The time of its operators is in `nestopt.placement.judge.check.operator_time`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.judge.check.network import family_of
from nestopt.placement.judge.check.operator_time import (
    Families,
    OperatorTime,
    Split,
    compute_time,
    operator_time,
)
from nestopt.placement.model.plan import Hides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.judge.check.network import Family, Tree
    from nestopt.placement.model.cluster import Cluster, DeviceType
    from nestopt.placement.model.plan import Plan, Stage
    from nestopt.placement.model.workload import Operator, Workload

__all__ = ["StageModel"]


class StageModel:
    """The formulas of one stage; names follow ``MODEL.md``.

    Attributes
    ----------
    dense_sets, expert_sets : int arrays (groups, n)
        The groups that synchronise dense and experts' parameters, one a row.
    families : Families
    """

    def __init__(
        self, workload: Workload, cluster: Cluster, plan: Plan, stage: Stage, tree: Tree
    ) -> None:
        self.workload, self.config = workload, stage.config
        self.operators = [workload.operators[i] for i in stage.operators]
        self.members = stage.operators
        self.types = [cluster.types[k] for k in np.unique(cluster.type_of[stage.devices.ravel()])]
        self.split = split = Split.of(stage.config, plan.microbatch)
        d = plan.replicas
        self.dense_size, self.expert_size = d * split.c * split.e, d * split.c

        # the device of replica r, parts ie and ic, and iz, iy, ix of the tensor decomposition
        grid = stage.devices.reshape(d, split.e, split.c, split.z, split.y, split.x)

        def over(*axes: int) -> NDArray[np.int64]:
            """Groups whose members differ in these axes of the grid only, one a row."""
            rest = [axis for axis in range(grid.ndim) if axis not in axes]
            size = math.prod(grid.shape[axis] for axis in axes)
            return grid.transpose(*rest, *axes).reshape(-1, size)

        self.dense_sets, self.expert_sets = over(0, 1, 2), over(0, 2)
        self.families = Families(
            x=family_of(tree, over(5)),
            y=family_of(tree, over(4)),
            z=family_of(tree, over(3)),
            context=family_of(tree, over(2)),
            expert=family_of(tree, over(1)),
            dense_sync=family_of(tree, self.dense_sets),
            expert_sync=family_of(tree, self.expert_sets),
        )

    def forward_backward(self, kinds: Sequence[DeviceType] = ()) -> tuple[float, float]:
        """Forward and backward seconds of one micro-batch, boundaries left out.

        Computed on the slowest of `kinds`; of all device types of the stage if not given.
        """
        types = list(kinds) or self.types
        known: dict[str, OperatorTime] = {}
        forward = backward = 0.0
        for operator in self.operators:
            if operator.kind not in known:
                known[operator.kind] = operator_time(
                    self.workload, self.config, self.split, self.families, types, operator
                )
            forward += known[operator.kind].forward
            backward += known[operator.kind].backward
        return forward, backward

    def dense_params(self) -> float:
        """P: parameters of one device that are no expert's."""
        total = sum(o.params for o in self.operators)
        tied = self.workload.tied
        if tied is not None and tied.first in self.members and tied.second in self.members:
            total -= tied.params
        return total / self.split.t

    def expert_params(self) -> float:
        """Pe: parameters of one device that are experts'."""
        return sum(o.params_expert for o in self.operators) / (self.split.t * self.split.e)

    def sync(
        self, dense: Family | None = None, experts: Family | None = None
    ) -> tuple[float, float]:
        """Synchronisation + optimizer step, and the step alone.

        `dense` and `experts` are what to take for the costs of the two synchronisations; the
        stage's own families if not given.
        """
        dense, experts = dense or self.families.dense_sync, experts or self.families.expert_sync
        zero = self.config.zero
        bw, bg = self.workload.bytes_weight, self.workload.bytes_gradient
        reduced = gathered = 0.0
        for family, params in ((dense, self.dense_params()), (experts, self.expert_params())):
            if zero == 0:
                reduced += family.reduce(bg * params)
            elif zero == 1:
                reduced += family.gather(bg * params)
            if zero in (1, 2):
                gathered += family.gather(bw * params)
        total = reduced + gathered
        if self.config.hides & Hides.SYNC:
            total = max(
                max(0.0, reduced - back) + max(0.0, gathered - ahead)
                for ahead, back in map(self._passes, self.types)
            )
        moved = (2 * self.workload.bytes_optimizer + bg + bw) * self._held(zero >= 1)
        step = moved / min(kind.memory_bandwidth for kind in self.types)
        return total + step, step

    def _passes(self, kind: DeviceType) -> tuple[float, float]:
        """Compute of the forward and the backward pass of a micro-batch on a device type."""
        found = [
            compute_time(self.workload, self.config, self.split, o, kind) for o in self.operators
        ]
        return sum(c.forward for c in found), sum(c.backward + c.extra for c in found)

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
            return self.split.u * sum(o.act_input / self.split.h for o in self.operators)
        attention = self.config.recompute == "none"
        return self.split.u * sum(self._activations(o, attention) for o in self.operators)

    def _activations(self, o: Operator, attention: bool) -> float:
        kept = o.act_full / self.split.h + o.act_shard / self.split.y
        return kept + o.act_attn / self.split.y if attention else kept

    def working(self) -> float:
        """Bytes that exist while one operator is recomputed."""
        if self.config.recompute == "none":
            return 0.0
        if self.config.recompute == "selective":
            return self.split.u * max(o.act_attn / self.split.y for o in self.operators)
        return self.split.u * max(self._activations(o, True) for o in self.operators)

    def buffers(self, cut: float) -> float:
        """Bytes of communication buffers and logits; `cut` of both boundaries together."""
        total = 2 * self.split.u * cut / self.split.h
        total += 2 * self.split.u * sum(o.logits_bytes for o in self.operators) / self.split.y
        gathered = max(self.split.gathered(o) for o in self.operators)
        if self.config.zero == 3 or self.split.z > 1:
            total += 2 * self.workload.bytes_weight * gathered
        if self.split.z > 1:
            total += self.workload.bytes_gradient * gathered
        return total
