"""Usual orders of the axes where another one is no better: a plan that is simpler to launch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.model.structure import stage_order
from nestopt.placement.pricing.evaluate import evaluate

if TYPE_CHECKING:
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan, Stage
    from nestopt.placement.pricing.cost import StageCosts

__all__ = ["straightened"]

_MOST_TRIED = 16


def straightened(instance: PlacementInstance, plan: Plan, costs: StageCosts) -> Plan:
    """The plan with its stages in the contiguous order wherever that costs nothing.

    A stage that is neither the longest nor the last to synchronise may have any of several orders;
    frameworks launch the contiguous one by themselves. Stages are tried together, then in halves,
    a few times at most.
    """
    cluster = instance.cluster
    turned = []
    for q, stage in enumerate(plan.stages):
        order = stage_order(cluster, stage)
        if order is not None and list(order) != sorted(order):
            turned.append(q)
    if not turned:
        return plan

    def price(tried: Plan) -> float:
        return evaluate(instance.workload, cluster, tried, costs).objective(instance.objective)

    least = price(plan)
    waiting = [turned]
    for _ in range(_MOST_TRIED):
        if not waiting:
            break
        chosen = waiting.pop()
        stages = tuple(
            _straight(stage) if q in chosen else stage for q, stage in enumerate(plan.stages)
        )
        tried = replace(plan, stages=stages)
        if price(tried) <= least:
            plan = tried
        elif len(chosen) > 1:
            middle = len(chosen) // 2
            waiting += [chosen[middle:], chosen[:middle]]
    return plan


def _straight(stage: Stage) -> Stage:
    """The same devices, every replica a run of its own; windows of replicas stay as they are."""
    devices = np.sort(stage.devices, axis=1)
    if (devices[:-1, -1] > devices[1:, 0]).any():
        devices = np.sort(devices, axis=None).reshape(devices.shape)
    return replace(stage, devices=devices)
