"""Every plan of a tiny instance, one by one: the ground truth that the exact methods are held to.

Nothing here is shared with a solver. Plans come unpriced; memory is left to whoever prices them.
"""

from __future__ import annotations

from itertools import combinations, permutations, product
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.model.plan import Hides, Plan, Stage, StageConfig
from nestopt.placement.model.words import All

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.space import PlanSpace
    from nestopt.placement.model.words import Degrees
    from nestopt.placement.model.workload import Operator, Workload

    Rows = list[list[int]]
    Schedule = tuple[str, int]
    Skeleton = tuple[int, int, list[tuple[int, ...]], tuple[StageConfig, ...], Schedule]

__all__ = ["best_plan", "general_plans", "placed", "structured_plans", "uneven_skeletons"]


def structured_plans(workload: Workload, cluster: Cluster, space: PlanSpace) -> Iterator[Plan]:
    """All plans of the structured or the contiguous space (``MODEL.md``, section 8)."""
    for skeleton in _skeletons(workload, len(cluster.alive), space):
        yield from placed(cluster, space, skeleton)


def placed(cluster: Cluster, space: PlanSpace, skeleton: Skeleton) -> Iterator[Plan]:
    """All structured plans of some replicas, micro-batch, stages and schedule."""
    alive = [int(i) for i in cluster.alive]
    d, b, parts, configs, schedule = skeleton
    widths = [c.width for c in configs]
    for layout in space.layouts:
        if layout == "inner":
            deals = [list(_deals(c, d, space)) for c in configs]
            for starts in _runs([d * w for w in widths], len(alive)):
                for chosen in product(*deals):
                    places = [
                        [[alive[p + k] for k in row] for row in deal]
                        for p, deal in zip(starts, chosen)
                    ]
                    yield _plan(parts, configs, places, d, b, schedule)
        else:
            deals = [list(_deals(c, 1, space)) for c in configs]
            # a larger window shifts the later replicas, so each is a layout of its own
            for n in range(sum(widths), len(alive) // d + 1):
                for starts in _runs(widths, n):
                    for chosen in product(*deals):
                        places = [
                            [[alive[r * n + p + k] for k in deal[0]] for r in range(d)]
                            for p, deal in zip(starts, chosen)
                        ]
                        yield _plan(parts, configs, places, d, b, schedule)


def uneven_skeletons(workload: Workload, devices: int, space: PlanSpace) -> Iterator[Skeleton]:
    """The skeletons whose replicas may take stated shares (``MODEL.md``, section 6)."""
    batch = workload.global_batch
    offered = product(_values(space.replicas, devices), _values(space.microbatch, batch))
    for d, b in offered:
        if d < 2 or d > devices or batch % b or d > batch // b:
            continue
        for parts in _partitions(workload, frozenset(), devices // d):
            offers = [_configs(workload, part, b, devices // d, space) for part in parts]
            for configs in product(*offers):
                if d * sum(c.width for c in configs) > devices or any(c.zero > 1 for c in configs):
                    continue
                if space.uniform and len(set(configs)) > 1:
                    continue
                for name in space.schedules:
                    if name != "interleaved":
                        yield d, b, parts, configs, (str(name), 1)


def _deals(config: StageConfig, d: int, space: PlanSpace) -> Iterator[Rows]:
    """Every way to deal a run to the axes of a stage in mixed radix: offsets by replica and rank.

    A way is an order of the axes, the slowest first; axes of one rank are left out.
    """
    x, y, z = config.tensor
    sizes = {"r": d, "e": config.expert, "c": config.context, "z": z, "y": y, "x": x}
    split = [axis for axis, size in sizes.items() if size > 1]
    for order in permutations(split) if space.structure == "structured" else [tuple(split)]:
        rows: Rows = [[] for _ in range(d)]
        for role in product(*(range(size) for size in sizes.values())):
            index = dict(zip(sizes, role))
            offset = 0
            for axis in order:
                offset = offset * sizes[axis] + index[axis]
            rows[index["r"]].append(offset)
        yield rows


def general_plans(workload: Workload, cluster: Cluster, space: PlanSpace) -> Iterator[Plan]:
    """All plans of the general space, up to what cannot matter.

    The replicas may be numbered in any order, and so may the ranks of a stage that is split along
    x, y or z alone: one order of each is taken.
    """
    alive = [int(i) for i in cluster.alive]
    for d, b, parts, configs, schedule in _skeletons(workload, len(alive), space):
        widths = [c.width for c in configs]
        for order in permutations(alive, d * sum(widths)):
            rest, places = list(order), []
            for w in widths:
                places.append([rest[r * w : (r + 1) * w] for r in range(d)])
                del rest[: d * w]
            if any(x[0] > y[0] for x, y in zip(places[0], places[0][1:])):
                continue
            if any(
                max(c.tensor) == c.width and rows[0] != sorted(rows[0])
                for c, rows in zip(configs, places)
            ):
                continue
            yield _plan(parts, configs, places, d, b, schedule)


def best_plan(
    plans: Iterator[Plan], price: Callable[[Plan], float]
) -> tuple[float, Plan | None, int]:
    """The least price (inf where memory fails), its plan and how many plans there were."""
    best, chosen, count = float("inf"), None, 0
    for plan in plans:
        count += 1
        value = price(plan)
        if value < best:
            best, chosen = value, plan
    return best, chosen, count


def _skeletons(workload: Workload, devices: int, space: PlanSpace) -> Iterator[Skeleton]:
    """Replicas, micro-batch, operators and configurations of the stages, and the schedule.

    Devices are left open. Every schedule of the space is there, with every number of chunks.
    """
    batch = workload.global_batch
    for d, b in product(_values(space.replicas, devices), _values(space.microbatch, batch)):
        if batch % (d * b) or d > devices:
            continue
        for parts in _partitions(workload, frozenset(), devices // d):
            schedules = [
                (str(name), v)
                for name in space.schedules
                for v in ([1] if name != "interleaved" else _values(space.chunks, 16, 2))
                if v == 1 or _chunked(workload, parts, d, b, v)
            ]
            offers = [_configs(workload, part, b, devices // d, space) for part in parts]
            for configs in product(*offers):
                if d * sum(c.width for c in configs) > devices:
                    continue
                if space.uniform and len(set(configs)) > 1:
                    continue
                for schedule in schedules:
                    yield d, b, parts, configs, schedule


def _values(offered: Degrees, most: int, least: int = 1) -> Sequence[int]:
    """Some integers, or all up to the most."""
    return range(least, most + 1) if isinstance(offered, All) else offered


def _partitions(
    workload: Workload, done: frozenset[int], most: int
) -> Iterator[list[tuple[int, ...]]]:
    """All ways to split the operators outside the ideal `done` into at most `most` stages."""
    rest = [i for i in range(workload.num_operators) if i not in done]
    if not rest:
        yield []
        return
    if most == 0:
        return
    for size in range(1, len(rest) + 1):
        for part in combinations(rest, size):
            ideal = done | set(part)
            if all(u in ideal for v in part for u in workload.predecessors[v]):
                for later in _partitions(workload, ideal, most - 1):
                    yield [part, *later]


def _chunked(
    workload: Workload, parts: Sequence[Sequence[int]], d: int, b: int, chunks: int
) -> bool:
    """Whether interleaving can cut these stages (``MODEL.md``, end of section 6)."""
    kinds = [o.kind for o in workload.operators]
    if (workload.global_batch // (d * b)) % len(parts):
        return False
    if any(len(part) < chunks for part in parts):
        return False
    held = [[kinds[i] for i in part] for part in parts]
    return all(kinds.count(k) == 1 or row.count(k) % chunks == 0 for row in held for k in row)


def _tensors(space: PlanSpace, most: int) -> Iterator[tuple[int, int, int]]:
    """All (x, y, z) whose product is offered."""
    axis = range(1, most + 1)
    for x, y, z in product(axis, axis, axis):
        if x * y * z > most or x * y * z not in _values(space.tensor, most):
            continue
        if space.decomposition == "4d" or x == z == 1:
            yield x, y, z


def _configs(
    workload: Workload, part: Sequence[int], b: int, most: int, space: PlanSpace
) -> list[StageConfig]:
    operators = [workload.operators[i] for i in part]
    found = []
    grids = product(
        _tensors(space, most), _values(space.context, most), _values(space.expert, most)
    )
    for (x, y, z), c, e in grids:
        if x * y * z * c * e > most or b % (e * z):
            continue
        if not all(_admits(o, x, y, z, c, e) for o in operators):
            continue
        if e > 1 and not any(o.experts for o in operators):
            continue
        splits = [s for s in space.sequence if (y > 1 and x == 1) or not s] or [False]
        hides = [o for o in space.overlap if x * y * z > 1 or not o] or [False]
        for sp, zero, recompute, overlap, flags in product(
            splits, space.zero, space.recompute, hides, space.hides
        ):
            if overlap or x > 1 or z > 1 or y == 1:
                flags &= ~Hides.TENSOR
            if zero < 2:
                flags &= ~Hides.GATHERS
            found.append(StageConfig((x, y, z), c, e, sp, zero, recompute, overlap, flags))
    return found


def _admits(o: Operator, x: int, y: int, z: int, c: int, e: int) -> bool:
    """Whether an operator can be split to these degrees (``MODEL.md``, section 4)."""
    if x * y * z > 1 and not o.tensor_divides:
        return False
    if x > 1 and not o.x_divides:
        return False
    if c > 1 and not o.context_divides:
        return False
    return (
        all(value % y == 0 for value in o.tensor_divides)
        and all(value % x == 0 for value in o.x_divides)
        and o.context_divides % c == 0
        and o.experts % e == 0
    )


def _runs(lengths: Sequence[int], line: int) -> Iterator[list[int]]:
    """Starts of disjoint runs of these lengths, in order, on a line of `line` places."""
    if not lengths:
        yield []
        return
    for start in range(line - sum(lengths) + 1):
        for later in _runs(lengths[1:], line - start - lengths[0]):
            yield [start, *(start + lengths[0] + p for p in later)]


def _plan(
    parts: Sequence[tuple[int, ...]],
    configs: Sequence[StageConfig],
    places: Sequence[Rows],
    d: int,
    b: int,
    schedule: Schedule,
) -> Plan:
    stages = tuple(
        Stage(part, config, np.array(rows, dtype=np.int64))
        for part, config, rows in zip(parts, configs, places)
    )
    return Plan(stages, d, b, *schedule)
