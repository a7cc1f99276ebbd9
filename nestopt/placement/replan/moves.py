"""What each device holds of a model's state, and how many bytes a new plan makes it fetch.

A stage's parameters are cut in shards: by expert rank, tensor rank and Z rank, and further over the
data-parallel group where the ZeRO stage says so. A shard is an interval of the operator's
parameters, in order of these ranks, so that what two plans have in common on a device is the
overlap of two intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.workload import Workload

__all__ = ["Moves", "moves_between", "renumbered"]


@dataclass(frozen=True, slots=True)
class Moves:
    """What a change of plan makes move.

    Attributes
    ----------
    bytes : float
        Fetched by all devices together: parameters and optimizer state that they need and do not
        hold.
    most : float
        The largest share of one device.
    kept : float
        Bytes that are already where the new plan needs them.
    devices : int
        Devices that fetch something.
    lost : tuple of int
        Operators of which no surviving device holds a whole copy: they come from a checkpoint.
    """

    bytes: float
    most: float
    kept: float
    devices: int
    lost: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Holding:
    """Shards of one kind of state on one device: an interval per operator of a stage."""

    operators: tuple[int, ...]
    low: float
    high: float
    kind: str


def _ranks(plan: Plan, stage: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Device, replica, expert, context and tensor rank (Z slow, Y, then X fast) of a stage."""
    config = plan.stages[stage].config
    for replica, row in enumerate(plan.stages[stage].devices.tolist()):
        for place, device in enumerate(row):
            outer, tensor = divmod(place, config.t)
            expert, context = divmod(outer, config.context)
            yield int(device), replica, expert, context, tensor


def _holdings(plan: Plan) -> dict[int, list[_Holding]]:
    """What every device of a plan holds: dense and expert weights, and optimizer state of both."""
    held: dict[int, list[_Holding]] = {}
    for q, stage in enumerate(plan.stages):
        config = stage.config
        t, e, c = config.t, config.expert, config.context
        group, expert_group = plan.replicas * c * e, plan.replicas * c
        for device, replica, expert, context, tensor in _ranks(plan, q):
            dense = (tensor / t, (tensor + 1) / t)
            place = (expert * t + tensor) / (e * t)
            routed = (place, place + 1 / (e * t))
            rank = (replica * e + expert) * c + context
            expert_rank = replica * c + context
            rows = held.setdefault(device, [])
            for kind, interval, index, size in (
                ("dense", dense, rank, group),
                ("expert", routed, expert_rank, expert_group),
            ):
                weights = _part(interval, index, size) if config.zero == 3 else interval
                state = _part(interval, index, size) if config.zero >= 1 else interval
                rows.append(_Holding(stage.operators, *weights, f"{kind} weights"))
                rows.append(_Holding(stage.operators, *state, f"{kind} optimizer"))
    return held


def _part(interval: tuple[float, float], index: int, parts: int) -> tuple[float, float]:
    low, high = interval
    width = (high - low) / parts
    return low + index * width, low + (index + 1) * width


class _Bytes:
    """Sizes of operators' state by kind, with sums that are asked for again and again."""

    def __init__(self, workload: Workload) -> None:
        dense = np.array([o.params for o in workload.operators], dtype=float)
        routed = np.array([o.params_expert for o in workload.operators], dtype=float)
        weight, state = workload.bytes_weight, workload.bytes_optimizer
        self.of = {
            "dense weights": dense * weight,
            "dense optimizer": dense * state,
            "expert weights": routed * weight,
            "expert optimizer": routed * state,
        }
        self._sums: dict[tuple[str, tuple[int, ...], tuple[int, ...]], float] = {}

    def common(self, kind: str, one: tuple[int, ...], other: tuple[int, ...]) -> float:
        """Bytes of the operators that are in both."""
        key = (kind, one, other)
        if key not in self._sums:
            both = one if one == other else tuple(set(one) & set(other))
            self._sums[key] = float(self.of[kind][list(both)].sum()) if both else 0.0
        return self._sums[key]

    def whole(self, row: _Holding) -> float:
        """Bytes of a row."""
        return self.common(row.kind, row.operators, row.operators) * (row.high - row.low)

    def kept(self, rows: list[_Holding], had: list[_Holding]) -> float:
        """Bytes of `rows` that are among `had`; a device has one row of each kind."""
        by_kind = {row.kind: row for row in had}
        total = 0.0
        for row in rows:
            other = by_kind.get(row.kind)
            if other is not None:
                share = min(row.high, other.high) - max(row.low, other.low)
                if share > 0:
                    total += share * self.common(row.kind, row.operators, other.operators)
        return total


def moves_between(old: Plan, new: Plan, workload: Workload, failed: set[int]) -> Moves:
    """Bytes that the devices of `new` fetch when they come from `old`.

    Parameters
    ----------
    old, new : Plan
        Plans of the same workload.
    workload : Workload
    failed : set of int
        Devices that are gone with what they held.
    """
    sizes = _Bytes(workload)
    before = {d: rows for d, rows in _holdings(old).items() if d not in failed}
    fetched: list[float] = []
    kept = 0.0
    for device, rows in _holdings(new).items():
        here = sizes.kept(rows, before.get(device, []))
        fetched.append(max(sum(sizes.whole(row) for row in rows) - here, 0.0))
        kept += here
    tiny = 1e-9 * max(sum(fetched), 1.0)
    return Moves(
        float(sum(fetched)),
        max(fetched, default=0.0),
        kept,
        sum(value > tiny for value in fetched),
        _lost(before, len(workload.operators), sizes),
    )


def _lost(before: dict[int, list[_Holding]], operators: int, sizes: _Bytes) -> tuple[int, ...]:
    """Operators of which the surviving devices together do not hold everything."""
    pieces: dict[tuple[int, str], set[tuple[float, float]]] = {}
    for rows in before.values():
        for row in rows:
            for operator in row.operators:
                pieces.setdefault((operator, row.kind), set()).add((row.low, row.high))
    return tuple(
        operator
        for operator in range(operators)
        if any(
            size[operator] > 0 and not _covers(pieces.get((operator, kind), set()))
            for kind, size in sizes.of.items()
        )
    )


def _covers(intervals: set[tuple[float, float]]) -> bool:
    """Whether intervals cover [0, 1]."""
    reach = 0.0
    for low, high in sorted(intervals):
        if low > reach + 1e-9:
            return False
        reach = max(reach, high)
    return reach > 1 - 1e-9


MOST_RENUMBERED = 128
"""Replicas up to which the assignment problem is set up; it has as many rows and columns."""


def renumbered(new: Plan, old: Plan, workload: Workload, failed: set[int]) -> Plan:
    """`new` with its replicas numbered so that least is fetched.

    A plan's price does not depend on which replica has which number; which part of a sharded
    optimizer state a device keeps does. The best numbering is an assignment problem (replicas of
    the new plan to numbers), solved exactly up to `MOST_RENUMBERED` replicas.
    """
    from scipy.optimize import linear_sum_assignment

    count = new.replicas
    sharded = any(stage.config.zero > 0 for stage in new.stages)
    if count == 1 or not sharded or count > MOST_RENUMBERED:
        return new
    kept = np.zeros((count, count))
    sizes = _Bytes(workload)
    before = {d: rows for d, rows in _holdings(old).items() if d not in failed}
    for stage in new.stages:
        # what each place of the stage would hold, whichever device stands there
        places = np.arange(stage.devices.size).reshape(stage.devices.shape)
        held = _holdings(replace(new, stages=(replace(stage, devices=places),)))
        for replica, devices in enumerate(stage.devices.tolist()):
            had = [before.get(device, []) for device in devices]
            for number in range(count):
                kept[replica, number] += sum(
                    sizes.kept(held[int(place)], rows) for place, rows in zip(places[number], had)
                )
    replicas, numbers = linear_sum_assignment(-kept)
    order = np.empty(count, dtype=int)
    order[numbers] = replicas
    stages = tuple(replace(stage, devices=stage.devices[order]) for stage in new.stages)
    return replace(new, stages=stages)
