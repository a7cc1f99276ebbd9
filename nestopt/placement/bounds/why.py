"""Why nothing fits: the named constraints behind an infeasible placement."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.stop import noticed
from nestopt.core.units import format_bytes, parse_bytes
from nestopt.placement.model.clock import SearchStopped
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.words import ALL, Decomposition, Objective, ScheduleName
from nestopt.placement.pricing.cost import Blocks, StageCosts

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.placement.model.space import PlanSpace
    from nestopt.placement.model.words import Degrees
    from nestopt.placement.model.workload import Workload

__all__ = ["explain"]

_PLENTY = 1e30


def explain(
    instance: PlacementInstance, stop: Callable[[], None] = lambda: None
) -> tuple[str, ...]:
    """The constraints that no plan of the space satisfies, in words.

    Names the operator that needs most, the largest device, and the least memory that would do,
    where memory binds; else the divisibility or the devices that bind. Says so where it was stopped
    before it could tell.

    Parameters
    ----------
    stop : callable
        Called often; raises `SearchStopped` when a limit is reached.
    """
    try:
        return _reasons(instance, stop)
    except (SearchStopped, KeyboardInterrupt):
        noticed()
        return (
            "space: the search was exhausted without a plan, but ended before it could name the "
            "constraint that binds",
        )


def _reasons(instance: PlacementInstance, stop: Callable[[], None]) -> tuple[str, ...]:
    workload, cluster, space = instance.workload, instance.cluster, instance.space
    alive = cluster.alive
    if not len(alive):
        return (f"devices: all {cluster.num_devices} devices have failed",)
    batches = space.pairs(workload, len(alive))
    if not batches:
        return (
            f"divisibility: no offered number of replicas and micro-batch size divides the global "
            f"batch {workload.global_batch} on {len(alive)} devices",
        )
    degree = _no_degree(workload, space)
    if degree:
        return degree
    costs = StageCosts(workload)
    split = _not_splittable(workload, costs, space, len(alive))
    if split:
        return split
    types = sorted({int(i) for i in cluster.type_of[alive]})
    largest = max((cluster.types[i] for i in types), key=lambda t: t.usable)
    device = int(alive[np.flatnonzero(cluster.type_of[alive] == cluster.types.index(largest))[0]])
    need = _least_needs(workload, costs, space, len(alive), stop)
    worst = int(np.argmax(need))
    name = _first_of_kind(workload, costs, worst)
    if math.isinf(need[worst]):
        fourd = space.decomposition is Decomposition.FOUR_D
        parts = "the expert degree times Gz" if fourd else "the expert degree"
        return (
            f"divisibility: operator {name!r} has no offered replicas, micro-batch and degrees "
            f"that go together: replicas x degrees within {len(alive)} devices, {parts} "
            "a divisor of the micro-batch",
        )
    usable = max(0.0, largest.usable)
    has = f"the largest, device {device} ({largest.name}), has {format_bytes(usable)} usable"
    fits = _fits(instance, stop)
    if not fits(_PLENTY):
        return (_never_fits(workload, space, len(alive)),)
    if need[worst] <= usable and fits(usable):
        return (
            "places: a pipeline would fit if devices were only counted, but none does on the "
            f"devices that the space offers each stage; {has}",
        )
    least = _rounded_up(_least_memory(fits, max(usable, float(need[worst]))))
    if need[worst] > usable:
        return (
            f"memory: operator {name!r} alone needs at least {format_bytes(float(need[worst]))} on "
            f"each of its devices, whatever its configuration; {has}, and at least {least} would "
            f"be needed for all {workload.num_operators} operators on {len(alive)} devices",
        )
    return (
        f"memory: each operator fits alone, but no pipeline holds all {workload.num_operators} "
        f"operators on {len(alive)} devices; {has}, and at least {least} would be needed; "
        f"operator {name!r} needs most, {format_bytes(float(need[worst]))} alone",
    )


def _no_degree(workload: Workload, space: PlanSpace) -> tuple[str, ...]:
    """The expert or context degree that no stage can have, whatever else it has."""
    if space.expert is not ALL and 1 not in space.expert:
        offered = ", ".join(map(str, space.expert))
        mixed = [o for o in workload.operators if o.experts]
        if not mixed:
            return (
                f"divisibility: the offered expert degrees ({offered}) need experts, and no "
                f"operator of {workload.name} has any; offer expert degree 1",
            )
        if not any(o.experts % e == 0 for o in mixed for e in space.expert):
            counts = " or ".join(map(str, sorted({o.experts for o in mixed})))
            return (
                f"divisibility: no offered expert degree ({offered}) divides the {counts} experts "
                f"of operator {mixed[0].name!r}",
            )
    if space.context is not ALL and 1 not in space.context:
        offered = ", ".join(map(str, space.context))
        for operator in workload.operators:
            whole = operator.context_divides
            if not any(whole and whole % c == 0 for c in space.context):
                why = f"divides its {whole} tokens" if whole else "fits: it cannot be split"
                return (
                    f"divisibility: no offered context degree ({offered}) of operator "
                    f"{operator.name!r} {why}",
                )
    return ()


def _never_fits(workload: Workload, space: PlanSpace, devices: int) -> str:
    if space.schedules == (ScheduleName.INTERLEAVED,):
        chunks = "" if space.chunks is ALL else f" {' or '.join(map(str, space.chunks))}"
        return (
            f"divisibility: no pipeline on {devices} devices has a number of stages that divides "
            f"its micro-batches and, in every stage, the operators of each repeated kind in "
            f"multiples of{chunks} chunks, none of them empty"
        )
    what = "one configuration for all stages gives" if space.uniform else "degrees give"
    return (
        f"divisibility: whatever the memory, no offered replicas, micro-batch and {what} a "
        f"pipeline of all {workload.num_operators} operators on {devices} devices"
    )


def _first_of_kind(workload: Workload, costs: StageCosts, kind: int) -> str:
    return workload.operators[int(np.flatnonzero(costs.kind_of == kind)[0])].name


def _not_splittable(
    workload: Workload, costs: StageCosts, space: PlanSpace, devices: int
) -> tuple[str, ...]:
    grids = space.grids(workload, devices)
    experts = costs.expert_kinds()
    for kind in range(len(costs.kinds)):
        offered = [g for g in grids if costs.allowed(g)[kind] and (g.e == 1 or experts[kind])]
        if not offered:
            name, operator = _first_of_kind(workload, costs, kind), costs.kinds[kind]
            must = f"tensor must divide {list(operator.tensor_divides)}"
            if space.decomposition is Decomposition.FOUR_D:
                must = (
                    f"Gy must divide {list(operator.tensor_divides)}, "
                    f"Gx {list(operator.x_divides)}, Gz the global batch {workload.global_batch}"
                )
            return (
                f"divisibility: no offered tensor, context and expert degree divides operator "
                f"{name!r} ({must}) on {devices} devices",
            )
    return ()


def _least_needs(
    workload: Workload,
    costs: StageCosts,
    space: PlanSpace,
    devices: int,
    stop: Callable[[], None],
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Bytes a device needs at least for one operator of each kind, alone, cuts left out."""
    kinds = len(costs.kinds)
    zero = np.zeros(kinds)
    alone = Blocks(np.eye(kinds, dtype=np.int64), zero, zero, zero)
    least = np.full(kinds, math.inf)
    for grid in space.grids(workload, devices):
        modes = costs.modes(
            grid, space.zero, space.recompute, space.sequence, space.overlap, space.hides
        )
        allowed = costs.allowed(grid)
        for d, b in space.pairs(workload, devices // grid.width):
            stop()
            if b % grid.sample_parts:
                continue
            memory = costs.memory(alone, grid, modes, b, d)
            need = (memory.fixed + memory.stored).min(axis=1)
            least = np.where(allowed, np.minimum(least, need), least)
    return least


def _fits(instance: PlacementInstance, stop: Callable[[], None]) -> Callable[[float], bool]:
    """Whether the position-free relaxation finds a pipeline when the largest device has `usable`.

    All devices are scaled alike.
    """
    from nestopt.placement.dp.cases import all_cases, expanded
    from nestopt.placement.dp.solve import new_search

    cluster = instance.cluster
    types = [cluster.types[i] for i in sorted(set(cluster.type_of[cluster.alive].tolist()))]
    most = max(t.usable for t in types)
    lean = _leanest(instance.workload, instance.space, len(cluster.alive))

    def fits(usable: float) -> bool:
        scaled = [
            replace(t, memory=usable * (max(0.0, t.usable / most) if most > 0 else 1), reserve=0.0)
            for t in cluster.types
        ]
        search = new_search(
            PlacementInstance(
                instance.workload, cluster.with_types(scaled), lean, Objective.BOTTLENECK
            ),
            stop,
        )
        cases = [each for root in all_cases(search) for each in expanded(search, root)]
        # A beam finds a loose pipeline at once; only without one is an exact search needed.
        return any(
            search.run_relaxed(c.grids, c.modes, c.batch, math.inf, beam)[1] is not None
            for beam in (2, 0)
            for c in cases
        )

    return fits


def _leanest(workload: Workload, space: PlanSpace, devices: int) -> PlanSpace:
    """A smaller space in which something fits if anything fits in the whole.

    A higher ZeRO stage up to 2 only divides more, selective recomputation stores what it holds for
    one micro-batch less, sequence parallelism divides, overlap takes no memory, and a smaller
    micro-batch leaves at most as many samples in flight. 1F1B holds the fewest micro-batches and
    asks for nothing; interleaving ties the micro-batch to the stages.
    """
    schedules, chunks = space.schedules, space.chunks
    if ScheduleName.ONE_F_ONE_B in schedules:
        schedules, chunks = (ScheduleName.ONE_F_ONE_B,), ALL
    zero = {max((z for z in space.zero if z < 3), default=3), max(space.zero)}
    recompute = tuple(
        r for r in space.recompute if r != "none" or "selective" not in space.recompute
    )
    microbatch: Degrees = space.microbatch
    if ScheduleName.INTERLEAVED not in schedules:
        multiples = {1}
        for parts in {g.sample_parts for g in space.grids(workload, devices)}:
            multiples |= {math.lcm(parts, x) for x in multiples}
        pairs = space.pairs(workload, devices)
        least = {
            min(b for r, b in pairs if r == d and b % x == 0)
            for d in {r for r, _ in pairs}
            for x in multiples
            if any(r == d and b % x == 0 for r, b in pairs)
        }
        microbatch = tuple(sorted(least)) or ALL
    return replace(
        space,
        zero=tuple(sorted(zero)),
        recompute=recompute,
        sequence=(max(space.sequence),),
        overlap=space.overlap[:1],
        schedules=schedules,
        chunks=chunks,
        microbatch=microbatch,
    )


def _least_memory(fits: Callable[[float], bool], enough: float) -> float:
    """Least usable bytes with which something fits, to a part in 2000; `enough` is a first try."""
    low = high = max(1.0, enough)
    while not fits(high):
        low, high = high, 2 * high
    if low == high:
        return high
    while high / low > 1.0005:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _rounded_up(least: float) -> str:
    """Bytes in four digits that are not fewer than `least`."""
    shown = least
    while parse_bytes(format_bytes(shown)) < least:
        shown *= 1.0002
    return format_bytes(shown)
