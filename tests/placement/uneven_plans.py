"""Tiny instances with unequal replicas, and every plan of theirs that states its shares.

Nothing here is shared with a solver: the plans are priced by the checker.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
from enumerate_plans import placed, structured_plans, uneven_skeletons
from random_instances import TinyInstance, tiny_instance

from nestopt.placement.judge.check import price
from nestopt.placement.model.cluster import DeviceType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.placement.model.plan import Plan

__all__ = ["compositions", "price_of", "uneven_instance", "uneven_optimum", "uneven_plans"]


def uneven_instance(rng: np.random.Generator, devices: int = 5, operators: int = 3) -> TinyInstance:
    """A tiny instance with device types of unequal speed and memory, some of them failed.

    One device is a slow one or more of the second type, or they are mixed at random.
    """
    base = tiny_instance(rng, devices=devices, operators=operators)
    while base.cluster.num_devices < 3:
        base = tiny_instance(rng, devices=devices, operators=operators)
    cluster, first = base.cluster, base.cluster.types[0]
    slow = rng.uniform(1.2, 4.0)
    second = DeviceType(
        "slow", first.peak / slow, first.memory * rng.choice([1.0, 1.0, 0.8, 1.5]),
        first.memory_bandwidth / rng.choice([1.0, slow]), first.efficiency, first.half_flops,
        first.reserve,
    )  # fmt: skip
    first = replace(first, name="quick")
    type_of = np.zeros(cluster.num_devices, dtype=np.int64)
    if rng.random() < 0.5:
        type_of[rng.integers(cluster.num_devices)] = 1
    else:
        type_of = rng.integers(0, 2, cluster.num_devices)
    cluster = replace(cluster, types=(first, second), type_of=type_of)
    operators_now = tuple(replace(o, time_fwd={}, time_bwd={}) for o in base.workload.operators)
    workload = replace(
        base.workload, operators=operators_now, global_batch=int(rng.choice([4, 5, 6, 8]))
    )
    options = {
        **{key: base.options[key] for key in ("context", "expert", "sequence", "uniform")},
        "tensor": "1,2",
        "microbatch": "1,2",
        "zero": str(rng.choice(["0,1", "1", "0,2", "1,3"])),
        "recompute": str(rng.choice(["none", "none,full", "selective"])),
        "schedule": str(rng.choice(["1f1b", "1f1b", "gpipe"])),
        "structure": str(rng.choice(["contiguous", "structured"])),
        "shares": "unequal",
    }
    return TinyInstance(workload, cluster, "iteration-time", options)


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of so many positive ones, in order."""
    for cut in combinations(range(1, total), parts - 1):
        ends = (0, *cut, total)
        yield tuple(b - a for a, b in pairwise(ends))


def uneven_plans(tiny: TinyInstance) -> Iterator[Plan]:
    """All structured plans that state their shares (``MODEL.md``, section 6)."""
    workload, cluster, space = tiny.workload, tiny.cluster, tiny.space
    for skeleton in uneven_skeletons(workload, len(cluster.alive), space):
        for plan in placed(cluster, space, skeleton):
            total = workload.global_batch // plan.microbatch
            for shares in compositions(total, plan.replicas):
                yield replace(plan, shares=shares)


def price_of(tiny: TinyInstance, plan: Plan) -> float:
    """The objective by the checker, inf if memory does not suffice."""
    found = price(tiny.workload, tiny.cluster, plan)
    if plan.shares:
        rows = [x for r in found.replicas for x in zip(r.memory, r.usable)]
    else:
        rows = [(stage.memory, stage.usable) for stage in found.stages]
    fits = all(need <= usable for need, usable in rows)
    return found.iteration_time if fits else math.inf


def uneven_optimum(tiny: TinyInstance) -> tuple[float, float]:
    """The least time of the plans with equal shares, and of all plans."""
    plain = structured_plans(tiny.workload, tiny.cluster, tiny.space)
    equal = min((price_of(tiny, plan) for plan in plain), default=math.inf)
    stated = min((price_of(tiny, plan) for plan in uneven_plans(tiny)), default=math.inf)
    return equal, min(equal, stated)
