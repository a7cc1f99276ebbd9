"""Simple plans, by which a claim that there is none, or none below a bound, is refuted.

Nothing is searched: equal runs of operators on equal runs of devices, every replica alike. Whoever
claims that an instance has no plan is wrong if one of these passes the checker.
"""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import CheckError, NestoptError
from nestopt.placement.judge.check.pricing import price
from nestopt.placement.judge.check.space import check_space
from nestopt.placement.judge.check.structure import check_structure
from nestopt.placement.model.plan import Plan, Stage, StageConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.workload import Workload

__all__ = ["refute"]

_MOST = 48
_DEGREES = (1, 2, 4, 8)
_STAGES = (1, 2, 4, 8, 16, 32, 64, 128)


def refute(instance: PlacementInstance, bound: float) -> None:
    """Refuse a bound that a simple plan is below; ``inf`` says that there is no plan at all.

    Raises
    ------
    CheckError
        With the plan and its objective.
    """
    # of a bound few are tried: it holds as long as no plan is below it, which takes a good one
    most = _MOST if bound == math.inf else _MOST // 4
    for _, plan in zip(range(most), _simple_plans(instance)):
        try:
            check_structure(instance.workload, instance.cluster, plan)
            check_space(instance, plan)
        except NestoptError:
            continue
        priced = price(instance.workload, instance.cluster, plan)
        found = priced.objective(instance.objective)
        if all(s.memory <= s.usable for s in priced.stages) and found < bound * (1 - 1e-6):
            first = plan.stages[0]
            raise CheckError(
                f"bound {bound:.9g} s, but a plan of {len(plan.stages)} stages, {plan.replicas} "
                f"replicas and {first.config.label()} takes {found:.9g} s"
            )


def _simple_plans(instance: PlacementInstance) -> Iterator[Plan]:
    """Plans of equal runs; those that need the least memory of a device first."""
    space, workload = instance.space.to_json(), instance.workload
    failed = set(instance.cluster.failed)
    alive = [i for i in range(len(instance.cluster.type_of)) if i not in failed]
    order = _order(workload)
    degrees = _offered(space["tensor"], _DEGREES)
    counts = [s for s in (*_STAGES, len(order)) if s <= min(len(order), len(alive))]
    schedule = space["schedules"][0]
    chunks = 1
    if schedule == "interleaved":
        chunks = _offered(space["chunks"], (2, 4))[0]
    for stages, t in sorted(product(set(counts), degrees), key=lambda s: (-s[0] * s[1], -s[0])):
        room = len(alive) // (stages * t)
        spread = dict.fromkeys((room, 1)) if room else ()
        for replicas, recompute in product(spread, reversed(space["recompute"])):
            if workload.global_batch % replicas:
                continue
            config = StageConfig(
                tensor=(1, t, 1),
                sequence_parallel=t > 1 and True in space["sequence"],
                zero=max(space["zero"]),
                recompute=recompute,
            )
            yield Plan(
                tuple(
                    Stage(run, config, devices)
                    for run, devices in zip(
                        _runs(order, stages), _places(alive, stages, replicas, t), strict=True
                    )
                ),
                replicas,
                _offered(space["microbatch"], (1,))[0],
                schedule,
                chunks,
            )


def _offered(stated: Sequence[int] | str, usual: Sequence[int]) -> list[int]:
    """Of the usual values those that the space has; the smallest that it has if none is usual."""
    if stated == "all":
        return list(usual)
    return [value for value in usual if value in stated] or [min(map(int, stated))]


def _order(workload: Workload) -> list[int]:
    """The operators, each after those that it needs."""
    waits = [0] * len(workload.operators)
    for edge in workload.edges:
        waits[edge.target] += 1
    ready = [i for i, count in enumerate(waits) if count == 0]
    order: list[int] = []
    while ready:
        order.append(min(ready))
        ready.remove(order[-1])
        for edge in workload.edges:
            if edge.source == order[-1]:
                waits[edge.target] -= 1
                if waits[edge.target] == 0:
                    ready.append(edge.target)
    return order


def _runs(order: list[int], stages: int) -> list[tuple[int, ...]]:
    ends = [math.floor(len(order) * s / stages) for s in range(stages + 1)]
    return [tuple(sorted(order[a:b])) for a, b in pairwise(ends)]


def _places(alive: list[int], stages: int, replicas: int, width: int) -> list[np.ndarray]:
    """Devices of each stage, (replicas, width): stage after stage, its replicas in turn."""
    return [
        np.array(alive[s * replicas * width : (s + 1) * replicas * width]).reshape(replicas, width)
        for s in range(stages)
    ]
