"""Why nothing fits: the named constraints behind an infeasible placement."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.cost import Blocks, StageCosts
from nestopt.units import format_bytes

if TYPE_CHECKING:
    from nestopt.placement.cluster import Cluster
    from nestopt.placement.space import SpaceSettings
    from nestopt.placement.workload import Workload

__all__ = ["explain"]


def explain(workload: Workload, cluster: Cluster, settings: SpaceSettings) -> tuple[str, ...]:
    """The constraints that no plan of the space satisfies, in words.

    Names the operator that needs most, the largest device, and the least memory that would do,
    where memory binds; else the divisibility or the devices that bind.
    """
    alive = cluster.alive
    if not len(alive):
        return (f"devices: all {cluster.num_devices} devices have failed",)
    batches = settings.batches(workload, len(alive))
    if not batches:
        return (
            f"divisibility: no offered number of replicas and micro-batch size divides the global "
            f"batch {workload.global_batch} on {len(alive)} devices",
        )
    costs = StageCosts(workload)
    split = _not_splittable(workload, costs, settings, len(alive))
    if split:
        return split
    types = sorted({int(i) for i in cluster.type_of[alive]})
    largest = max((cluster.types[i] for i in types), key=lambda t: t.usable)
    device = int(alive[np.flatnonzero(cluster.type_of[alive] == cluster.types.index(largest))[0]])
    need = _least_needs(workload, costs, settings, len(alive))
    worst = int(np.argmax(need))
    name = _first_of_kind(workload, costs, worst)
    if need[worst] > largest.usable:
        return (
            f"memory: operator {name!r} alone needs at least {format_bytes(float(need[worst]))} on "
            f"each of its devices, whatever its configuration; the largest, device {device} "
            f"({largest.name}), has {format_bytes(largest.usable)} usable",
        )
    least = _least_memory(workload, cluster, settings, largest.usable)
    return (
        f"memory: each operator fits alone, but no pipeline holds all {workload.num_operators} "
        f"operators on {len(alive)} devices; the largest, device {device} ({largest.name}), has "
        f"{format_bytes(largest.usable)} usable, and at least {format_bytes(least)} would be "
        f"needed; operator {name!r} needs most, {format_bytes(float(need[worst]))} alone",
    )


def _first_of_kind(workload: Workload, costs: StageCosts, kind: int) -> str:
    return workload.operators[int(np.flatnonzero(costs.kind_of == kind)[0])].name


def _not_splittable(
    workload: Workload, costs: StageCosts, settings: SpaceSettings, devices: int
) -> tuple[str, ...]:
    grids = settings.grids(workload, devices)
    experts = costs.expert_kinds()
    for kind in range(len(costs.kinds)):
        offered = [g for g in grids if costs.allowed(g)[kind] and (g.e == 1 or experts[kind])]
        if not offered:
            name = _first_of_kind(workload, costs, kind)
            return (
                f"divisibility: no offered tensor, context and expert degree divides operator "
                f"{name!r} (tensor must divide {list(costs.kinds[kind].tensor_divides)}) on "
                f"{devices} devices",
            )
    return ()


def _least_needs(
    workload: Workload, costs: StageCosts, settings: SpaceSettings, devices: int
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Bytes a device needs at least for one operator of each kind, alone, cuts left out."""
    kinds = len(costs.kinds)
    zero = np.zeros(kinds)
    alone = Blocks(np.eye(kinds, dtype=np.int64), zero, zero, zero)
    least = np.full(kinds, math.inf)
    for grid in settings.grids(workload, devices):
        modes = costs.modes(grid, settings.zero, settings.recompute, settings.sequence)
        allowed = costs.allowed(grid)
        for d, b in settings.batches(workload, devices // grid.width):
            if b % grid.e:
                continue
            memory = costs.memory(alone, grid, modes, b, d)
            need = (memory.fixed + memory.stored).min(axis=1)
            least = np.where(allowed, np.minimum(least, need), least)
    return least


def _least_memory(
    workload: Workload, cluster: Cluster, settings: SpaceSettings, usable: float
) -> float:
    """Usable bytes under which not even the position-free relaxation finds a pipeline.

    All devices are scaled alike; the figure is that of the largest, to a part in 1000.
    """
    from nestopt.placement.dp.cases import all_cases
    from nestopt.placement.dp.solve import Clock, new_search

    def fits(scale: float) -> bool:
        from dataclasses import replace

        types = [
            replace(t, memory=t.usable * scale, reserve=0.0) if t.usable > 0 else t
            for t in cluster.types
        ]
        clock = Clock(math.inf)
        search = new_search(workload, cluster.with_types(types), settings, "iteration-time", clock)
        return any(
            search.run_relaxed(c.grids, c.modes, c.batch, math.inf)[1] is not None
            for c in all_cases(search)
        )

    low, high = 1.0, 2.0
    while not fits(high):
        low, high = high, 2 * high
        if high > 2**20:
            return math.inf
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    return usable * high
