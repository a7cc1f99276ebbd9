"""Uniform plans: the manual recipe and the exhaustive grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import NestoptError
from nestopt.placement.baselines.judge import Judge
from nestopt.placement.baselines.split import even_split
from nestopt.placement.model.plan import Plan, Stage
from nestopt.placement.model.words import Layout
from nestopt.placement.pricing.comm import PROFILE
from nestopt.placement.pricing.cost import FAMILIES, Grid, Mode, config_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.schedules import PipelineSchedule
    from nestopt.placement.model.workload import Workload

    Floats = NDArray[np.float64]

__all__ = ["recipe_plans", "solve_grid", "solve_megatron", "uniform_plan"]


def uniform_plan(
    devices: NDArray[np.int64],
    ends: Sequence[int],
    grid: Grid,
    mode: Mode,
    replicas: int,
    microbatch: int,
    layout: str,
    schedule: PipelineSchedule,
) -> Plan:
    """One configuration for all stages, on the first of the `devices` without gaps."""
    w, stages = grid.width, len(ends)
    config = config_of(grid, mode)
    begin = [0, *ends[:-1]]
    rows = []
    for q in range(stages):
        first = q * replicas * w if layout == "inner" else q * w
        stride = w if layout == "inner" else stages * w
        places = first + np.arange(replicas)[:, None] * stride + np.arange(w)
        rows.append(Stage(tuple(range(begin[q], ends[q])), config, devices[places]))
    return Plan(tuple(rows), replicas, microbatch, schedule.name, schedule.chunks)


def _device_orders(cluster: Cluster, width: int) -> list[NDArray[np.int64]]:
    """Which devices to fill in order: all alive ones, or less where groups are incomplete.

    A rank that reaches from one group into the next pays the network between them. So where groups
    have unlike numbers of alive devices, for each level also the order that drains them: of every
    group as many of its first alive devices as whole ranks of `width` need; and the one of whole
    groups only, of the lowest level.
    """
    alive = cluster.alive
    orders = [alive]
    for level, group_of in enumerate(cluster.group_of):
        here = group_of[alive]
        counts = np.bincount(here)
        largest = int(counts.max(initial=0))
        if len(set(counts[counts > 0].tolist())) < 2:
            continue
        if level == 0:
            orders.append(alive[counts[here] == largest])
        if largest < width:
            continue
        # the devices of a group are neighbours in the order
        first = np.concatenate([[0], np.cumsum(counts)[:-1]])
        place = np.arange(len(alive)) - first[here]
        orders.append(alive[place < counts[here] // width * width])
    found = {order.tobytes(): order for order in orders}
    return list(found.values())


def _layer_times(judge: Judge, grid: Grid, mode: Mode, microbatch: int) -> Floats:
    """Seconds of each operator without communication, on the fastest device type."""
    profiles = np.zeros((len(FAMILIES), PROFILE))
    kinds = np.min(
        [
            judge.costs.rates(grid, [mode], microbatch, 1, profiles, [t])[:, 0]
            for t in judge.cluster.types
        ],
        axis=0,
    )
    return kinds[judge.costs.kind_of]


def _chain_only(workload: Workload) -> None:
    if not workload.is_chain:
        raise NestoptError(
            f"workload {workload.name!r} is not a chain; this baseline splits chains only "
            "(dp, milp, cpsat, mcmc and random take any graph)"
        )


def _uniform(
    judge: Judge,
    grids: Sequence[Grid],
    modes: Callable[[Grid], Sequence[Mode]],
    layouts: Sequence[str],
    *,
    full: bool,
) -> Iterator[Plan | None]:
    """Uniform plans of every schedule, until none can beat the best any more; None in between.

    `full` leaves out degrees that leave devices idle where more stages could use them.
    """
    _chain_only(judge.workload)
    orders = {grid.width: _device_orders(judge.cluster, grid.width) for grid in grids}
    for schedule in judge.pipelines:
        for grid in grids:
            if not judge.costs.allowed(grid).all():
                continue
            for devices in orders[grid.width]:
                yield from _uniform_of(judge, grid, modes, layouts, schedule, devices, full=full)


def _uniform_of(
    judge: Judge,
    grid: Grid,
    modes: Callable[[Grid], Sequence[Mode]],
    layouts: Sequence[str],
    schedule: PipelineSchedule,
    devices: NDArray[np.int64],
    *,
    full: bool,
) -> Iterator[Plan | None]:
    alive = len(devices)
    objective = judge.instance.objective
    begins = _units(judge, schedule.chunks)
    splits = judge.splits
    for d, b in judge.space.batches(judge.workload, alive // grid.width):
        if b % grid.sample_parts:
            continue
        most = min(len(begins), alive // (d * grid.width))
        m = judge.workload.global_batch // (d * b)
        offered = modes(grid)
        layers = [_layer_times(judge, grid, mode, b) for mode in offered]
        for stages in range(1, most + 1):
            yield None
            if full and stages < most and alive % (d * grid.width * stages):
                continue
            if not schedule.suits(m, stages):
                continue
            fitting: dict[tuple[int, ...], list[bool]] = {}
            for index, mode in enumerate(offered):
                times = np.add.reduceat(layers[index], begins)
                key = ((times / times.sum()).round(9).tobytes(), stages)
                if key not in splits:
                    splits[key] = even_split(times, stages)
                ends = splits[key]
                slowest = np.add.reduceat(times, [0, *ends[:-1]]).max()
                weights = schedule.weights(objective, m)
                floor = weights.total * times.sum() + weights.largest * slowest
                if floor >= judge.best:
                    continue
                ends = [*(begins[end] for end in ends[:-1]), judge.workload.num_operators]
                if grid.e > 1 and not _all_hold_experts(judge.workload, ends):
                    continue
                split = tuple(ends)
                if split not in fitting:
                    fitting[split] = _may_fit(judge, split, schedule, grid, offered, d, b)
                if not fitting[split][index]:
                    continue
                for layout in layouts if d > 1 else layouts[:1]:
                    plan = uniform_plan(devices, ends, grid, mode, d, b, layout, schedule)
                    whole = alive == len(judge.cluster.alive)
                    if whole or judge.space.admits(plan, judge.cluster) is None:
                        yield plan


def _may_fit(
    judge: Judge,
    ends: Sequence[int],
    schedule: PipelineSchedule,
    grid: Grid,
    modes: Sequence[Mode],
    d: int,
    b: int,
) -> list[bool]:
    """Which modes fit the largest device in every stage of a split."""
    blocks = judge.costs.blocks(
        [range(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    )
    memory = judge.costs.memory(blocks, grid, modes, b, d)
    stages = len(ends)
    m = judge.workload.global_batch // (d * b)
    held = [schedule.in_flight(m, stages - q, stages) for q in range(stages)]
    need = memory.fixed + np.array(held)[:, None] * memory.stored
    room = max(judge.cluster.types[i].usable for i in judge.cluster.type_of)
    return (need <= room).all(axis=0).tolist()


def _units(judge: Judge, chunks: int) -> list[int]:
    """First operators of what a split keeps together: as many of a repeated kind as chunks."""
    kinds = judge.costs.kind_of.tolist()
    begins = [0]
    for index, kind in enumerate(kinds):
        begin = begins[-1]
        if kind != kinds[begin] or index - begin == chunks:
            begins.append(index)
    return begins


def _all_hold_experts(workload: Workload, ends: Sequence[int]) -> bool:
    return all(
        any(o.experts for o in workload.operators[begin:end])
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    )


def recipe_plans(judge: Judge) -> Iterator[Plan | None]:
    """The plans of the manual recipe, until none can beat the best any more; None in between.

    Where the space leaves out the recipe's ZeRO stage, sequence parallelism or layout, what it
    offers instead.
    """
    cluster = judge.cluster
    node = int(np.bincount(cluster.group_of[0][cluster.alive]).max(initial=1))
    s = judge.space
    grids = s.grids(judge.workload, len(cluster.alive))
    grids = [g for g in grids if g.t <= node and g.x == g.z == 1]

    def modes(grid: Grid) -> Sequence[Mode]:
        offered = judge.costs.modes(grid, s.zero, s.recompute, s.sequence, s.overlap, s.hides)
        recipe = [
            m
            for m in offered
            if m.zero == 1 and m.sequence_parallel == (grid.t > 1) and not m.overlap
        ]
        return recipe or offered

    layouts = [Layout.INNER] if Layout.INNER in s.layouts else s.layouts
    return _uniform(judge, grids, modes, layouts, full=True)


def solve_megatron(instance: PlacementInstance, options: SolveOptions) -> Result:
    """The best balanced manual recipe (Megatron-LM's degrees, chosen well)."""
    judge = Judge(instance, options, "megatron")
    return judge.run(recipe_plans(judge))


def solve_grid(instance: PlacementInstance, options: SolveOptions) -> Result:
    """The best uniform plan of an exhaustive grid of degrees."""
    judge = Judge(instance, options, "grid")
    s = judge.space
    grids = s.grids(instance.workload, len(instance.cluster.alive))

    def modes(grid: Grid) -> Sequence[Mode]:
        return judge.costs.modes(grid, s.zero, s.recompute, s.sequence, s.overlap, s.hides)

    return judge.run(_uniform(judge, grids, modes, s.layouts, full=False))
