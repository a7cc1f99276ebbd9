"""The dynamic program made blind: to the network's levels, or to memory."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.integers import divisors
from nestopt.placement.baselines.judge import Judge
from nestopt.placement.model.cluster import Cluster, Level
from nestopt.placement.model.words import ALL
from nestopt.placement.pricing.cost import config_of, grid_of
from nestopt.placement.pricing.evaluate import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan, Stage

__all__ = ["flat_clusters", "solve_flat_dp", "solve_repair_dp"]

_BOUNDLESS = 1e30
"""Bytes of a device that never runs out."""


def flat_clusters(cluster: Cluster) -> list[Cluster]:
    """The cluster without its levels: as fast as a node, and as slow as its slowest share."""
    top = len(cluster.levels) - 1
    latency = max(level.latency for level in cluster.levels)
    shares = [level.port for level in cluster.levels]
    for index, level in enumerate(cluster.levels[:-1]):
        shares.append(level.uplink / max(cluster.sizes[index]))
    size = (cluster.num_devices,)
    return [
        Cluster(
            f"{cluster.name} (flat)",
            (Level("flat", latency if top else cluster.levels[0].latency, port),),
            cluster.types,
            cluster.type_of,
            (size,),
            cluster.failed,
        )
        for port in (cluster.levels[0].port, min(shares))
    ]


def solve_flat_dp(instance: PlacementInstance, options: SolveOptions) -> Result:
    """The dynamic program on a flat network, its plans priced on the real one."""
    from nestopt.placement.dp.solve import search_structured

    judge = Judge(instance, options, "flat-dp")

    def plans() -> Iterator[Plan]:
        for flat in flat_clusters(instance.cluster):
            found = search_structured(
                replace(instance, cluster=flat, space=judge.space), _rest(judge)
            )
            judge.limit = found.limit or judge.limit
            if found.plan is not None:
                yield found.plan
            if found.limit:
                return

    return judge.run(plans())


def solve_repair_dp(instance: PlacementInstance, options: SolveOptions) -> Result:
    """The dynamic program with no regard to memory, its plans repaired until they fit.

    Every number of replicas gives one plan to repair; the best of them counts. A stage that does
    not fit takes the fastest mode (sequence parallelism, ZeRO stage, recomputation) that does.
    Where none does, operators move from the fullest stage to a neighbour and, at the last, the
    micro-batch falls to the next smaller divisor.
    """
    from nestopt.placement.dp.solve import search_structured

    judge = Judge(instance, options, "repair-dp")
    boundless = replace(
        instance.cluster,
        types=tuple(replace(t, memory=_BOUNDLESS, reserve=0.0) for t in instance.cluster.types),
    )

    def plans() -> Iterator[Plan]:
        batches = judge.space.batches(instance.workload, len(instance.cluster.alive))
        for d in sorted({d for d, _ in batches}):
            space = replace(judge.space, replicas=(d,))
            part = replace(instance, cluster=boundless, space=space)
            found = search_structured(part, _rest(judge))
            judge.limit = found.limit or judge.limit
            if found.plan is not None and found.objective < judge.best:
                yield from _repaired(judge, found.plan)
            if found.limit:
                return

    return judge.run(plans())


def _rest(judge: Judge) -> SolveOptions:
    """The run's options for one search of several: the time left, 0 when it is over, no output."""
    left = max(0.0, judge.options.time_limit - judge.seconds)
    return replace(judge.options, time_limit=left, progress=None)


def _repaired(judge: Judge, plan: Plan) -> Iterator[Plan]:
    """The plan with modes that fit, at the largest micro-batch that allows it; at most one."""
    share = judge.workload.global_batch // plan.replicas
    offered = judge.space.microbatch
    parts = [grid_of(stage.config).sample_parts for stage in plan.stages]
    for b in reversed(divisors(share)):
        if b > plan.microbatch or any(b % part for part in parts):
            continue
        if offered is not ALL and b not in offered:
            continue
        moved: Plan | None = replace(plan, microbatch=b)
        # A plan that needs more moves than it has operators is given up.
        for _ in range(judge.workload.num_operators):
            if moved is None:
                break
            fitted, fullest = _with_fitting_modes(judge, moved)
            if fitted is not None:
                yield fitted
                return
            moved = _without_one_operator(judge, moved, fullest)


def _with_fitting_modes(judge: Judge, plan: Plan) -> tuple[Plan | None, int]:
    """The plan with, in each stage that does not fit, the fastest mode that does.

    Returns
    -------
    (Plan or None, int)
        None, and the stage that lacks most, if some stage fits in no mode.
    """
    space = judge.space
    priced = evaluate(judge.workload, judge.cluster, plan, judge.costs)
    over = np.flatnonzero(priced.need > priced.room).tolist()
    if not over:
        return plan, -1
    choices = [range(len(plan.stages))] if space.uniform else [[q] for q in over]
    for together in choices:
        q = together[0]
        best, value = None, math.inf
        config = plan.stages[q].config
        for mode in judge.costs.modes(
            grid_of(config),
            space.zero,
            space.recompute,
            space.sequence,
            space.overlap,
            space.hides,
        ):
            stages = list(plan.stages)
            for index in together:
                stages[index] = replace(
                    stages[index], config=config_of(grid_of(stages[index].config), mode)
                )
            changed = replace(plan, stages=tuple(stages))
            found = evaluate(judge.workload, judge.cluster, changed, judge.costs)
            fits = all(found.need[index] <= found.room[index] for index in together)
            if fits and found.objective(judge.instance.objective) < value:
                best, value = changed, found.objective(judge.instance.objective)
        if best is None:
            lacking = priced.need - priced.room
            return None, int(np.argmax(lacking))
        plan = best
    return plan, -1


def _without_one_operator(judge: Judge, plan: Plan, q: int) -> Plan | None:
    """The plan with one operator of stage q in the emptier neighbour that can take it.

    None if stage q has but one, or neither neighbour's degrees suit what it would hold.
    """
    if len(plan.stages[q].operators) == 1 or not judge.workload.is_chain:
        return None
    priced = evaluate(judge.workload, judge.cluster, plan, judge.costs)
    room = priced.room - priced.need
    neighbours = [n for n in (q - 1, q + 1) if 0 <= n < len(plan.stages)]
    for to in sorted(neighbours, key=lambda n: -room[n]):
        operators = plan.stages[q].operators
        kept, given = (operators[1:], operators[:1]) if to < q else (operators[:-1], operators[-1:])
        stages = list(plan.stages)
        stages[q] = replace(stages[q], operators=kept)
        held = stages[to].operators
        stages[to] = replace(stages[to], operators=held + given if to < q else given + held)
        if all(_degrees_suit(judge, stages[n]) for n in (q, to)):
            return replace(plan, stages=tuple(stages))
    return None


def _degrees_suit(judge: Judge, stage: Stage) -> bool:
    """Whether every operator of a stage allows its degrees, and some have experts to spread."""
    grid = grid_of(stage.config)
    held = [judge.workload.operators[i] for i in stage.operators]
    return all(o.allows(*grid) for o in held) and (grid.e == 1 or any(o.experts for o in held))
