"""The baseline methods: ring, direct, rhd, dbt, hierarchical, shortest-path.

Every algorithm is a list of messages between NPUs (`messages`), played on the network (`play`).
Reductions are the same messages on the time-reversed network, backwards; an All-Reduce is a
reduction of every chunk to one NPU and a spread from there, the second starting wherever the first
is done. Where an algorithm has variants the better one counts.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.baselines.messages import ALGORITHMS, Group, Journeys
from nestopt.collective.baselines.orders import binary_tree, dimensions, ring_order
from nestopt.collective.baselines.play import NO_LIMIT, play
from nestopt.collective.bounds import best_bound
from nestopt.collective.bounds._kernels import shortest
from nestopt.collective.greedy.join import retime
from nestopt.collective.judge.check import check_schedule, check_unicast
from nestopt.collective.model.connectivity import find_separation
from nestopt.collective.model.schedule import COPY, REDUCE, Schedule
from nestopt.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.topology import Topology
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result

__all__ = [
    "MOST_MESSAGES",
    "baseline_schedule",
    "count_messages",
    "shortest_variant",
    "solve_dbt",
    "solve_direct",
    "solve_hierarchical",
    "solve_rhd",
    "solve_ring",
    "solve_shortest_path",
]

MOST_MESSAGES = 5_000_000
_UNICAST = ("all-to-all", "scatter", "gather")


def baseline_schedule(
    instance: CollectiveInstance,
    name: str,
    *,
    unicast: bool = False,
    order: str = "short",
    dims: list[int] | None = None,
) -> Schedule:
    """The schedule of a known algorithm.

    Parameters
    ----------
    name : str
        A key of `ALGORITHMS`.
    unicast : bool
        Whether every message travels by itself, even where the chunk has been already (copies
        only: a partial sum that passes an NPU is merged with that NPU's).
    order : str
        Ring: ``"short"`` for a short tour, ``"natural"`` for the order of the NPUs.
    dims : list of int, optional
        Hierarchical: sizes of the dimensions, the outermost first, of which the NPUs in their order
        are the cells. Found from the bandwidths by default.

    Raises
    ------
    InputError
        If the algorithm has no form for the pattern.
    UsageError
        If a setting does not fit, or the instance is too large.
    """
    parts = [part for part in instance.collective.parts if len(part.npus) > 1]
    if unicast and any(part.reduction for part in parts):
        raise UsageError("unicast=yes prices copies; the collective has reductions")
    count = count_messages(instance, name)
    if count > MOST_MESSAGES:
        raise UsageError(f"{count} messages; a baseline plays at most {MOST_MESSAGES}")
    schedule = shortest_variant(instance, name, unicast=unicast, order=order, dims=dims)
    assert schedule is not None
    return schedule


def count_messages(instance: CollectiveInstance, name: str = "direct") -> int:
    """About how many messages an algorithm issues."""
    total = 0
    for part in instance.collective.parts:
        n = len(part.npus)
        if n > 1 and part.pattern in _UNICAST:
            # a ring carries a chunk a quarter of the way round on average, or more
            total += part.num_chunks * (max(1, n // 4) if name == "ring" else 1)
        elif n > 1:
            total += part.num_chunks * n
    return total


def shortest_variant(
    instance: CollectiveInstance,
    name: str,
    *,
    unicast: bool = False,
    order: str = "short",
    dims: list[int] | None = None,
    limit: int = NO_LIMIT,
) -> Schedule | None:
    """The best variant of an algorithm; None if all take longer than `limit` (picoseconds).

    See `baseline_schedule`, which checks the settings too.
    """
    best: Schedule | None = None
    for variant in ALGORITHMS[name]:
        made: list[Schedule] = []
        most = limit if best is None else min(limit, best.makespan_ps - 1)
        for backward in (True, False):
            topology = instance.topology.reversed() if backward else instance.topology
            lay = partial(_group, topology, instance, order=order, dims=dims)
            played = _one_way(instance, topology, name, variant, lay, backward, unicast, most)
            if played is not None:
                made.append(played)
            if played is not None and played.makespan_ps > most:
                break
        else:
            schedule = _joined(instance, made)
            if schedule.makespan_ps <= most:
                best = schedule
    return best


def _one_way(
    instance: CollectiveInstance,
    topology: Topology,
    name: str,
    variant: Callable[[Group, Journeys], NDArray[np.int64]],
    lay: Callable[[Part], Group],
    backward: bool,
    unicast: bool,
    limit: int,
) -> Schedule | None:
    """All spreads and journeys (backward: all reductions, from their ends), played together.

    Where they take longer than `limit` only the makespan means anything.
    """
    collective = instance.collective
    rows: list[NDArray[np.int64]] = []
    source = np.zeros(collective.num_chunks, dtype=np.int32)
    first = 0
    for part in collective.parts:
        takes_part = (
            part.reduction if backward else part.pattern not in ("reduce", "reduce-scatter")
        )
        if takes_part and len(part.npus) > 1:
            origin, goal = _ends(part, name)
            table = variant(lay(part), Journeys(origin, goal))
            source[first : first + part.num_chunks] = part.npus[origin]
            table[:, 1] += first
            table[:, 2:] = part.npus[table[:, 2:]]
            rows.append(table)
        first += part.num_chunks
    if not rows:
        return None
    table = np.concatenate(rows)
    table = table[np.argsort(table[:, 0], kind="stable")]
    sizes, classes = np.unique(collective.chunk_sizes, return_inverse=True)
    occupancy = np.stack([instance.occupancy_ps(int(size)) for size in sizes])
    transfer = np.stack([instance.transfer_ps(int(size)) for size in sizes])
    chunk, link, start, ended = play(
        topology,
        classes.reshape(-1),
        (occupancy, transfer),
        source,
        (table[:, 1], table[:, 2], table[:, 3]),
        unicast=unicast,
        limit=limit,
    )
    if ended > limit:
        return Schedule.of([], [], [], ended)
    if not unicast:
        keep = _useful(instance, topology, table, chunk, link)
        chunk, link, start = chunk[keep], link[keep], start[keep]
    end = start + transfer[classes.reshape(-1)[chunk], link]
    last = int(end.max())
    phase = np.full(len(chunk), REDUCE if backward else COPY, dtype=np.uint8)
    return Schedule.of(chunk, link, last - end if backward else start, last, phase)


def _ends(part: Part, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Start and goal (None: all) of each chunk, as ranks."""
    if part.pattern in _UNICAST:
        starts = np.searchsorted(part.npus, part.sources())
        return starts.astype(np.int64), np.searchsorted(part.npus, part.destinations())
    chunks = np.arange(part.num_chunks)
    if part.root is not None:
        return np.full(len(chunks), np.searchsorted(part.npus, part.root)), None
    if part.pattern == "all-reduce" and name == "dbt":
        n = len(part.npus)
        roots = [binary_tree(n, mirrored=turned).index(-1) for turned in (False, True)]
        return np.array(roots)[chunks % 2], None
    return chunks // part.chunks_per_npu % len(part.npus), None


def _group(
    topology: Topology,
    instance: CollectiveInstance,
    part: Part,
    *,
    order: str,
    dims: list[int] | None,
) -> Group:
    n = len(part.npus)
    length = instance.transfer_ps(part.chunk_size)
    distance = _distances(topology, length, part.npus)
    if order == "natural":
        ring = np.arange(n)
    else:
        # a bundle of parallel links serves a ring faster than one link
        pair = topology.src.astype(np.int64) * topology.num_nodes + topology.dst
        _, index, bundle = np.unique(pair, return_inverse=True, return_counts=True)
        ring = ring_order(_distances(topology, length * 12 // bundle[index], part.npus))
    if dims is None:
        digits = dimensions(topology, part.npus)
    else:
        if int(np.prod(dims)) != n:
            shown = "x".join(str(d) for d in dims)
            raise UsageError(f"--set dims={shown}: {int(np.prod(dims))} cells for {n} NPUs")
        digits = [row.astype(np.int64) for row in np.unravel_index(np.arange(n), dims)]
    return Group(n, ring.tolist(), digits, distance)


def _distances(
    topology: Topology, length: NDArray[np.int64], npus: NDArray[np.int32]
) -> NDArray[np.int64]:
    ptr, links = topology.out_links()
    rows = [
        shortest(ptr, links, topology.dst, length, np.array([v], dtype=np.int32))[npus]
        for v in npus
    ]
    return np.stack(rows)


def _useful(
    instance: CollectiveInstance,
    topology: Topology,
    table: NDArray[np.int64],
    chunk: NDArray[np.int32],
    link: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Sends that bring a chunk where it is needed or from where it goes on."""
    nodes = topology.num_nodes
    into = chunk.astype(np.int64) * nodes + topology.dst[link]
    out = chunk.astype(np.int64) * nodes + topology.src[link]
    keep = np.ones(len(chunk), dtype=np.bool_)
    while True:
        wanted = np.zeros(instance.collective.num_chunks * nodes, dtype=np.bool_)
        wanted[table[:, 1] * nodes + table[:, 3]] = True
        wanted[out[keep]] = True
        if not (keep & ~wanted[into]).any():
            return keep
        keep &= wanted[into]


def _joined(instance: CollectiveInstance, made: list[Schedule]) -> Schedule:
    """One schedule after the other, then every send as early as that allows."""
    if not made:
        return Schedule.of([], [], [], 0)
    if len(made) == 1:
        return made[0]
    shift = made[0].makespan_ps
    total = Schedule.of(
        np.concatenate([s.chunk for s in made]),
        np.concatenate([s.link for s in made]),
        np.concatenate([made[0].start_ps, made[1].start_ps + shift]),
        shift + made[1].makespan_ps,
        np.concatenate([s.phase for s in made]),
    )
    earlier = retime(instance, total)
    return earlier if earlier.makespan_ps < total.makespan_ps else total


def _solve(name: str, instance: CollectiveInstance, options: SolveOptions) -> Result:
    from nestopt.collective.greedy.solve import Synthesis, schedule_result

    begin = time.perf_counter()
    separation = find_separation(instance)
    if separation is not None:
        return schedule_result(instance, options, name, begin, None, infeasible=separation.message)
    unicast = _choice(options, "unicast", ("no", "yes")) == "yes"
    order = _choice(options, "order", ("short", "natural"))
    dims = None
    if "dims" in options.set:
        fields = options.set["dims"].split("x")
        if not all(field.isdigit() and int(field) > 0 for field in fields):
            raise UsageError(f"--set dims={options.set['dims']}: expected sizes, such as 4x4")
        dims = [int(field) for field in fields]
    schedule = baseline_schedule(instance, name, unicast=unicast, order=order, dims=dims)
    (check_unicast if unicast else check_schedule)(instance, schedule)
    bound = best_bound(instance, effort=5.0, time_limit=options.time_limit)
    synthesis = Synthesis(schedule, {"algorithm": name, "unicast": unicast})
    result = schedule_result(instance, options, name, begin, synthesis, bound=bound)
    if unicast:
        result.settings["unicast"] = "yes"
    return result


def _choice(options: SolveOptions, key: str, known: tuple[str, ...]) -> str:
    given = options.set.get(key, known[0])
    if given not in known:
        raise UsageError(f"--set {key}={given}: expected one of {', '.join(known)}")
    return given


def solve_ring(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Ring, one way or both ways round; ``--set`` keys ``order`` (short, natural), ``unicast``."""
    return _solve("ring", instance, options)


def solve_direct(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Every pair directly; ``--set unicast=yes`` sends every message by itself."""
    return _solve("direct", instance, options)


def solve_rhd(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Recursive halving and doubling; ``--set`` key ``unicast``."""
    return _solve("rhd", instance, options)


def solve_dbt(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Double binary trees; ``--set`` key ``unicast``."""
    return _solve("dbt", instance, options)


def solve_hierarchical(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Dimension by dimension, as BlueConnect does; ``--set`` keys ``dims`` (4x4), ``unicast``."""
    return _solve("hierarchical", instance, options)


def solve_shortest_path(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Every chunk along its shortest paths, first come first served; ``--set`` key ``unicast``."""
    return _solve("shortest-path", instance, options)
