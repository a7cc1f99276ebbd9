"""Seconds of one operator in a stage: compute, communication and what overlap hides.

``MODEL.md``, section 5, up to the boundaries. What an operator takes is split into a forward and a
backward part, which the page adds up:

* forward: ``fwd``, the forward reduces R and the gather of the weights G (with overlap what of it
  the forward pass does not hide), one context all-gather, two expert all-to-alls, one ZeRO 3
  gather;
* backward: everything else, so ``bwd + extra``, the recomputed forward reduces, the backward
  reduces R', the second gather G and the reduce-scatter G' (with overlap what is left of the
  three).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from nestopt.placement.model.plan import Hides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.placement.judge.check.network import Family
    from nestopt.placement.model.cluster import DeviceType
    from nestopt.placement.model.plan import StageConfig
    from nestopt.placement.model.workload import Operator, Workload

__all__ = ["Compute", "Families", "OperatorTime", "Split", "compute_time", "operator_time"]


@dataclass(frozen=True, slots=True)
class Split:
    """How a configuration splits a micro-batch and the operators.

    Attributes
    ----------
    x, y, z, c, e : int
        The degrees.
    b : int
        Samples of a micro-batch.
    u : float
        Samples that one device works on, were each a whole sequence: b/(c e z).
    h : int
        Parts of what lies outside the tensor-parallel region.
    """

    x: int
    y: int
    z: int
    c: int
    e: int
    b: int
    u: float
    h: int

    @classmethod
    def of(cls, config: StageConfig, b: int) -> Split:
        """The split of a configuration and a micro-batch."""
        x, y, z = config.tensor
        c, e = config.context, config.expert
        h = x * (y if config.sequence_parallel else 1)
        return cls(x, y, z, c, e, b, b / (c * e * z), h)

    @property
    def t(self) -> int:
        """Tensor degree."""
        return self.x * self.y * self.z

    def gathered(self, o: Operator) -> float:
        """W: an operator's parameters on a device once gathered over Z."""
        return o.params / (self.x * self.y) + o.params_expert / (self.x * self.y * self.e)


@dataclass(frozen=True, slots=True)
class Families:
    """What the collectives of a stage's groups cost, along each axis and for synchronisation."""

    x: Family
    y: Family
    z: Family
    context: Family
    expert: Family
    dense_sync: Family
    expert_sync: Family


class OperatorTime(NamedTuple):
    """Seconds of one operator and one micro-batch."""

    forward: float
    backward: float


def operator_time(
    workload: Workload,
    config: StageConfig,
    split: Split,
    families: Families,
    types: Sequence[DeviceType],
    o: Operator,
) -> OperatorTime:
    """The time of an operator of a stage, by the slowest of the types present."""
    reduces = _reduces(workload, config, split, families, o)
    replicas = _over_replicas(workload, config, split, families, o)
    passes = []
    for kind in types:
        compute = compute_time(workload, config, split, o, kind)
        shown = _with_exposed(config, compute, reduces)
        late = _late(config, compute, replicas)
        passes.append(OperatorTime(shown.forward + late.forward, shown.backward + late.backward))
    slowest = max(passes, key=sum)
    always = _always_exposed(config, split, families, o)
    return OperatorTime(slowest.forward + always.forward, slowest.backward + always.backward)


class Compute(NamedTuple):
    """Seconds of compute: the products with weights, the passes, what recompute adds."""

    gemm: float
    forward: float
    backward: float
    extra: float


def compute_time(
    workload: Workload, config: StageConfig, split: Split, o: Operator, kind: DeviceType
) -> Compute:
    """The compute of an operator and a micro-batch on a device type."""

    def product(flops: float) -> float:
        return (flops + kind.half_flops) / (kind.peak * kind.efficiency) if flops else 0.0

    x, y, u, rate = split.x, split.y, split.u, kind.memory_bandwidth
    if kind.name in o.time_fwd:
        share = split.b / (split.t * split.c * split.e)
        attention = 0.0
        forward, backward = o.time_fwd[kind.name] * share, o.time_bwd[kind.name] * share
        gemm = backward / 2
    else:
        weights = workload.bytes_weight * split.gathered(o)
        if o.flops_expert:
            gemm = _products_of_experts(workload, split, o, kind)
        else:
            gemm = max(product(o.flops * u / (x * y)), weights / rate) if o.flops else 0.0
        attention = product(o.flops_attn * u / y) + o.bytes_attn * u / y / rate
        forward = gemm + attention + u * (o.bytes_full / split.h + o.bytes_shard / y) / rate
        backward = 2 * forward
    extra = {"none": 0.0, "selective": attention, "full": forward}[config.recompute]
    return Compute(gemm, forward, backward, extra)


def _products_of_experts(workload: Workload, split: Split, o: Operator, kind: DeviceType) -> float:
    """Ordinary products, then one grouped product of the experts on the device."""
    parts = split.x * split.y

    def seconds(flops: float, parameters: float) -> float:
        products = (flops + kind.half_flops) / (kind.peak * kind.efficiency)
        return max(products, workload.bytes_weight * parameters / kind.memory_bandwidth)

    here = o.experts // split.e
    # tiles have 128 rows: an expert fills one at least, and leaves half of one empty on average
    rows_of_one = max(o.rows * split.u / here + 64, 128.0)
    experts = seconds(
        here * rows_of_one * (o.flops_expert / o.rows) / parts, o.params_expert / (parts * split.e)
    )
    rest = (o.flops - o.flops_expert) * split.u / parts
    return experts + (seconds(rest, o.params / parts) if rest else 0.0)


class _Reduces(NamedTuple):
    """Seconds of the collectives over X, Y and Z.

    Attributes
    ----------
    forward, backward : float
        Reduces of outputs (R) and of input gradients (R').
    gather, scatter : float
        One all-gather of the weights (G) and the reduce-scatter of their gradients (G').
    """

    forward: float
    backward: float
    gather: float
    scatter: float


def _reduces(
    workload: Workload, config: StageConfig, split: Split, families: Families, o: Operator
) -> _Reduces:
    size = o.tp_bytes * split.u / split.x
    over_y = families.y.reduce(size)
    if config.sequence_parallel:
        over_y = 2 * families.y.gather(size)

    def over_x(sizes: Sequence[float]) -> float:
        return sum(families.x.reduce(size * split.u / split.y) for size in sizes)

    weights = split.gathered(o)
    return _Reduces(
        o.tp_fwd * over_y + over_x(o.x_fwd),
        o.tp_bwd * over_y + over_x(o.x_bwd),
        families.z.gather(workload.bytes_weight * weights),
        families.z.gather(workload.bytes_gradient * weights),
    )


def _with_exposed(config: StageConfig, compute: Compute, reduces: _Reduces) -> OperatorTime:
    """The two passes with what is exposed of X, Y and Z."""
    back = compute.backward + compute.extra
    again = reduces.forward if config.recompute == "full" else 0.0
    gather, scatter = reduces.gather, reduces.scatter
    if config.hides & Hides.TENSOR:  # x = z = 1: no weights are gathered
        shown = max(0.0, reduces.forward - compute.gemm)
        again = shown if config.recompute == "full" else 0.0
        left = max(0.0, reduces.backward - 2 * compute.gemm)
        return OperatorTime(compute.forward + shown, back + again + left)
    if not config.overlap:
        return OperatorTime(
            compute.forward + reduces.forward + gather,
            back + again + reduces.backward + gather + scatter,
        )
    hidden = reduces.backward / 2 if config.sequence_parallel else reduces.backward
    left = max(0.0, hidden - compute.gemm, gather + scatter + hidden - back)
    return OperatorTime(
        compute.forward + reduces.forward + max(0.0, gather - compute.forward),
        back + again + (reduces.backward - hidden) + left,
    )


def _always_exposed(
    config: StageConfig, split: Split, families: Families, o: Operator
) -> OperatorTime:
    """Context and expert traffic."""
    again = 1 if config.recompute == "full" else 0
    once = families.context.gather(o.cp_bytes * split.b / (split.e * split.z * split.y))
    forward, backward = once, (2 + again) * once

    once = families.expert.exchange(o.ep_bytes * split.u / split.h)
    forward += 2 * once
    backward += (2 + 2 * again) * once
    return OperatorTime(forward, backward)


def _over_replicas(
    workload: Workload, config: StageConfig, split: Split, families: Families, o: Operator
) -> OperatorTime:
    """What ZeRO 2 and 3 send in the two passes."""

    def over_sync(size: float) -> float:
        dense, experts = o.params / split.t, o.params_expert / (split.t * split.e)
        return families.dense_sync.gather(size * dense) + families.expert_sync.gather(
            size * experts
        )

    gradients = over_sync(workload.bytes_gradient) if config.zero >= 2 else 0.0
    weights = over_sync(workload.bytes_weight) if config.zero == 3 else 0.0
    return OperatorTime(weights, weights + gradients)


def _late(config: StageConfig, compute: Compute, replicas: OperatorTime) -> OperatorTime:
    """What of it the passes of an operator alike do not hide."""
    if not config.hides & Hides.GATHERS:
        return replicas
    return OperatorTime(
        max(0.0, replicas.forward - compute.forward),
        max(0.0, replicas.backward - compute.backward - compute.extra),
    )
