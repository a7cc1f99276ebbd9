"""The method `trees`: All-Gather, Reduce-Scatter, Broadcast, Reduce and All-Reduce by packed trees.

A reduction is a spread backwards in time on the reversed network; an All-Reduce is a Reduce-Scatter
and an All-Gather, chunk by chunk. With many chunks the makespan tends to what the bottleneck cut
allows; with few, what a chunk takes down its tree counts too.
"""

from __future__ import annotations

import time
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, UsageError

if TYPE_CHECKING:
    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.collective.trees.forest import Forest
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result

__all__ = ["MOST_CHUNKS", "PATTERNS", "rechunked", "solve", "tree_schedule"]

PATTERNS = ("all-gather", "reduce-scatter", "broadcast", "reduce", "all-reduce")
MOST_CHUNKS = 256
# NPUs up to which every shape of trees is tried
ALL_SHAPES = 40


class ForestCache:
    """Forests by direction, group and root: many chunk counts share them.

    Up to `ALL_SHAPES` NPUs each shape of trees is made, beyond only the first.
    """

    def __init__(self) -> None:
        self._known: dict[Any, list[Forest]] = {}

    def get(self, instance: CollectiveInstance, part: Part, backward: bool) -> list[Forest]:
        """The forests of a part; the instance has the network in that direction."""
        from nestopt.collective.trees.forest import SHAPES, find_forest

        key = (backward, part.npus.tobytes(), part.root)
        if key not in self._known:
            shapes = SHAPES if len(part.npus) <= ALL_SHAPES else SHAPES[:1]
            self._known[key] = [
                find_forest(instance.topology, part.npus, part.root, shape=shape)
                for shape in shapes
            ]
        return self._known[key]

    def forests(self) -> list[Forest]:
        """The first of each."""
        return [forests[0] for forests in self._known.values()]


def tree_schedule(instance: CollectiveInstance, cache: ForestCache | None = None) -> Schedule:
    """The schedule of packed trees, every part by itself, then merged.

    Raises
    ------
    InputError
        If a part's pattern is neither a spread nor a reduction.
    """
    from nestopt.collective.greedy.together import merge, renumbered

    cache = cache or ForestCache()
    for index, part in enumerate(instance.collective.parts):
        if part.pattern not in PATTERNS:
            raise InputError(
                f"trees spread and reduce; {part.pattern} needs another method, such as greedy",
                field=f"parts[{index}].pattern",
            )
    made = []
    for index, part in enumerate(instance.collective.parts):
        if len(part.npus) < 2:
            continue
        alone = replace(instance, collective=replace(instance.collective, parts=(part,)))
        made.append(renumbered(instance, [index], _one_part(alone, cache)))
    return merge(instance, made)


def _one_part(instance: CollectiveInstance, cache: ForestCache) -> Schedule:
    from nestopt.collective.greedy.join import behind, retime

    (part,) = instance.collective.parts
    if part.pattern in ("all-gather", "broadcast"):
        return _spread(instance, cache, backward=False)
    if part.pattern in ("reduce-scatter", "reduce"):
        return _reduction(instance, cache)
    # every sum along trees to the NPU whose turn it is, and from there along trees to all
    both = behind([_reduction(instance, cache), _spread(instance, cache, backward=False)])
    return _shorter(both, retime(instance, both))


def _spread(instance: CollectiveInstance, cache: ForestCache, *, backward: bool) -> Schedule:
    """Copies of every chunk from its root; `backward`: on the reversed network."""
    from nestopt.collective.greedy.join import retime
    from nestopt.collective.trees.play import MOST_SENDS, in_time, plan_chunks

    (part,) = instance.collective.parts
    if part.num_chunks * len(part.npus) > MOST_SENDS:
        raise UsageError(
            f"{part.num_chunks} chunks for {len(part.npus)} NPUs are more than {MOST_SENDS} sends"
        )
    if backward:
        instance = replace(instance, topology=instance.topology.reversed())
    made = [
        in_time(instance, part.chunk_size, plan_chunks(instance, part, forest))
        for forest in cache.get(instance, part, backward)
    ]
    schedule = min(made, key=lambda each: each.makespan_ps)
    return _shorter(schedule, retime(instance, schedule))


def _reduction(instance: CollectiveInstance, cache: ForestCache) -> Schedule:
    """Every chunk's contributions to its root: a spread, seen backwards."""
    from nestopt.collective.greedy.join import retime
    from nestopt.collective.greedy.sums import backwards

    schedule = backwards(instance, _spread(instance, cache, backward=True))
    return _shorter(schedule, retime(instance, schedule))


def _shorter(first: Schedule, second: Schedule) -> Schedule:
    return second if second.makespan_ps < first.makespan_ps else first


def rechunked(instance: CollectiveInstance, chunks: int) -> CollectiveInstance:
    """The same bytes an NPU in another number of chunks; sizes are rounded up to whole bytes."""
    return replace(
        instance,
        collective=replace(
            instance.collective,
            parts=tuple(_rechunked(part, chunks) for part in instance.collective.parts),
        ),
    )


def _rechunked(part: Part, chunks: int) -> Part:
    pieces = part.num_chunks // part.chunks_per_npu * chunks if part.chunks is None else 0
    pieces = pieces or len(part.npus) * chunks
    size = -(-part.chunk_size * part.num_chunks // pieces) if pieces else part.chunk_size
    return replace(part, chunk_size=size, chunks_per_npu=chunks, chunks=None)


def _best_chunks(
    instance: CollectiveInstance, cache: ForestCache, deadline: float
) -> tuple[CollectiveInstance, Schedule]:
    """The number of chunks of the same bytes with the least makespan.

    Powers of two up to where two steps in a row bring nothing, and the numbers of trees a root
    among them: at their multiples every tree gets its exact share.
    """
    from nestopt.collective.trees.play import MOST_SENDS

    best: tuple[CollectiveInstance, Schedule] | None = None
    largest = max(len(part.npus) for part in instance.collective.parts)
    smallest = min(p.chunk_size * p.chunks_per_npu for p in instance.collective.parts)
    worse, queue = 0, [1]
    tried: set[int] = set()
    while queue and worse < 2:
        count = queue.pop(0)
        if count in tried:
            continue
        if tried and (count > min(MOST_CHUNKS, smallest) or time.perf_counter() > deadline):
            continue
        if tried and count * largest * largest > MOST_SENDS // 2:
            continue
        tried.add(count)
        trial = rechunked(instance, count)
        schedule = tree_schedule(trial, cache)
        if best is None or schedule.makespan_ps < best[1].makespan_ps:
            best, worse = (trial, schedule), 0
        else:
            worse += 1
        exact = [f.copies for f in cache.forests() if f.copies <= MOST_CHUNKS]
        following = [2 * count] + [c for c in exact if count < c < 2 * count]
        queue = sorted({*queue, *following})
    assert best is not None
    return best


def solve(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Trees packed at the rate of the bottleneck cut, played with the collective's chunks.

    ``--set`` key ``chunks``: ``given`` (default), a number, or ``auto`` for the number of chunks of
    the same bytes that ends first; the result then holds that collective.

    Raises
    ------
    InputError
        If a part's pattern is neither a spread nor a reduction.
    UsageError
        If the setting is wrong, or the schedule would be too large.
    """
    from nestopt.collective.bounds import best_bound
    from nestopt.collective.greedy.solve import Synthesis, schedule_result
    from nestopt.collective.judge.check import check_schedule
    from nestopt.collective.model.connectivity import find_separation

    begin = time.perf_counter()
    separation = find_separation(instance)
    if separation is not None:
        return schedule_result(
            instance, options, "trees", begin, None, infeasible=separation.message
        )
    cache = ForestCache()
    chunks = options.set.get("chunks", "given")
    if chunks == "auto":
        instance, schedule = _best_chunks(instance, cache, begin + options.time_limit / 2)
    else:
        if chunks != "given":
            if not chunks.isdigit() or int(chunks) < 1:
                raise UsageError(f"--set chunks={chunks}: expected auto or a number of chunks")
            instance = rechunked(instance, int(chunks))
        schedule = tree_schedule(instance, cache)
    check_schedule(instance, schedule)
    left = max(0.0, options.time_limit - (time.perf_counter() - begin))
    bound = best_bound(instance, effort=2.0, time_limit=left)
    stats: dict[str, Any] = {
        "forests": [
            {
                "seconds_a_byte": str(forest.ratio),
                "optimal_rate": forest.optimal,
                "trees_a_root": forest.copies,
                "different_trees": len(forest.trees),
            }
            for forest in cache.forests()
        ],
        "chunks": [part.chunks_per_npu for part in instance.collective.parts],
        "fluid_ps": str(fluid_ps(instance, cache)),
    }
    return schedule_result(
        instance, options, "trees", begin, Synthesis(schedule, stats), bound=bound
    )


def fluid_ps(instance: CollectiveInstance, cache: ForestCache) -> Fraction:
    """What the trees take without latency and with chunks divided at will, picoseconds.

    Of several parts the sum: each has the network for itself.
    """
    total = Fraction(0)
    for part in instance.collective.parts:
        if len(part.npus) < 2:
            continue
        roots = len(part.npus) if part.root is None else 1
        size = Fraction(part.chunk_size * part.num_chunks * 10**12, roots)
        if part.pattern in ("all-gather", "broadcast", "all-reduce"):
            total += cache.get(instance, part, False)[0].ratio * size
        if part.pattern in ("reduce-scatter", "reduce", "all-reduce"):
            back = replace(instance, topology=instance.topology.reversed())
            total += cache.get(back, part, True)[0].ratio * size
    return total
