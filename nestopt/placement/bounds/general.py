"""Lower bounds for the general space at any size, each with what it relaxes.

``relaxed`` is the exact optimum of a position-free relaxation: stages keep their operators,
configurations, memory and devices (as a number), but every group and boundary is laid out as well
as the cluster's tree allows at all. ``compute`` only asks that all arithmetic be done.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from nestopt.core.stop import noticed
from nestopt.placement.dp.cases import cases_of, expanded, outlines
from nestopt.placement.dp.solve import new_search
from nestopt.placement.dp.tables import CLOSE
from nestopt.placement.model.clock import Clock, SearchStopped
from nestopt.placement.model.words import Structure

if TYPE_CHECKING:
    from nestopt.core.options import SolveOptions
    from nestopt.placement.dp.cases import Case
    from nestopt.placement.dp.search import Search
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.workload import Workload

_FIRST, _COLUMNS, _BEAM = 6, 24, 2

__all__ = ["bounds", "compute_bound", "relaxed_bound"]


def bounds(instance: PlacementInstance, options: SolveOptions) -> list[dict[str, Any]]:
    """All bounds, the best first; each ``{"name", "value", "witness"}``, in seconds.

    They hold for all plans of the instance's space in the general structure; the witness names it.
    """
    clock = Clock(options.time_limit)
    found = []
    for make in (
        partial(compute_bound, instance.workload, instance.cluster, instance.objective),
        partial(relaxed_bound, instance, options),
    ):
        row = make()
        if row["value"] == -math.inf:
            continue
        found.append(row)
        if options.progress is not None:
            options.progress(clock.seconds, None, found[-1]["value"], found[-1]["name"])
    return sorted(found, key=lambda row: -row["value"])


def compute_bound(workload: Workload, cluster: Cluster, objective: str) -> dict[str, Any]:
    """Every device busy all the time at its best speed, nothing else.

    A stage is as slow as its slowest device, so in ``m t_q`` seconds no device does more than its
    speed allows; all work of an iteration, forward and twice that backward, is done in at most
    ``m max t_q`` seconds. Operators with measured times are left out.
    """
    work = sum(o.flops + o.flops_attn for o in workload.operators if not o.time_fwd)
    total = 3.0 * work * workload.global_batch
    speed = sum(
        cluster.types[int(cluster.type_of[i])].peak
        * cluster.types[int(cluster.type_of[i])].efficiency
        for i in cluster.alive
    )
    if objective == "bottleneck":
        # One micro-batch of one sample is the least that a stage does.
        total /= workload.global_batch
    value = total / speed if speed else math.inf
    return {
        "name": "compute",
        "value": value,
        "witness": {
            "space": "every plan of MODEL.md",
            "relaxes": "communication, memory, pipeline bubbles and whole layers",
            "flops": total,
            "speed": speed,
            "arithmetic": f"{total:.6g} FLOP / {speed:.6g} FLOP/s = {value:.6g} s",
        },
    }


def _first_value(search: Search) -> tuple[float, Plan | None]:
    """A pipeline of the relaxation from a few configurations, to rule out what is above it."""
    value, pipeline = math.inf, None
    for outline in outlines(search)[:_FIRST]:
        for root in cases_of(search, outline, value, _COLUMNS):
            for case in expanded(search, root):
                found, plan = search.run_relaxed(case.grids, case.modes, case.batch, value, _BEAM)
                if plan is not None:
                    value, pipeline = found, plan
    return value, pipeline


def _least_of(search: Search, root: Case, value: float) -> tuple[float, Plan | None]:
    """The least pipeline of a case below a value, or (value, None)."""
    pipeline = None
    alive = len(search.line.devices)
    if root.bound(alive // root.batch.replicas) >= value * CLOSE:
        return value, None
    if root.batch.schedule.fixes_stages:
        row = search.relaxed_floor(root.grids, root.modes, root.batch, value)
        if row[-1] >= value * CLOSE:
            return value, None
    for case in expanded(search, root):
        found, plan = search.run_relaxed(case.grids, case.modes, case.batch, value)
        if plan is not None:
            value, pipeline = found, plan
    return value, pipeline


def relaxed_bound(instance: PlacementInstance, options: SolveOptions) -> dict[str, Any]:
    """The optimum of the position-free relaxation (or less, at a time limit)."""
    clock = Clock(options.time_limit)
    value, pipeline, complete = math.inf, None, True
    if len(instance.cluster.alive):
        floor = -math.inf
        try:
            search = new_search(instance, clock.check)
            value, pipeline = _first_value(search)
            for outline in outlines(search):
                floor = outline.bound
                if floor >= value * CLOSE:
                    break
                for root in cases_of(search, outline, value):
                    least, plan = _least_of(search, root, value)
                    if plan is not None:
                        value, pipeline = least, plan
        except (SearchStopped, KeyboardInterrupt):
            noticed()
            value, complete = min(value, floor), False
    general = replace(instance.space, structure=Structure.GENERAL)
    witness: dict[str, Any] = {
        "space": general.label,
        "relaxes": "places: every group and boundary at its best layout, on the best device type; "
        "devices are only counted",
        "complete": complete,
    }
    if pipeline is not None and complete:
        witness |= {
            "replicas": pipeline.replicas,
            "microbatch": pipeline.microbatch,
            "schedule": pipeline.schedule,
            "chunks": pipeline.chunks,
            "stages": [
                {"operators": len(s.operators), "config": s.config.label()} for s in pipeline.stages
            ],
        }
    return {"name": "relaxed", "value": value, "witness": witness}
