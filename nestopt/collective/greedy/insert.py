"""Search over orders of deliveries, from a schedule that is there: driver of `kernels_insert`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.greedy.kernels.event import INFINITE
from nestopt.collective.greedy.kernels.insert import search_orders
from nestopt.collective.greedy.network import hops_out
from nestopt.collective.greedy.parallel import best_of
from nestopt.collective.model.schedule import COPY, REDUCE, Schedule
from nestopt.collective.model.topology import grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from nestopt.collective.greedy.match import Effort
    from nestopt.collective.greedy.network import Task
    from nestopt.collective.greedy.parallel import Best

__all__ = ["rearrange"]

# rounds below which a search is not begun, at most in all, and of one chain
FEWEST_ROUNDS, MOST_ROUNDS, LENGTH = 20, 6000, 1000
# a start that its order of deliveries makes so much longer is not searched from
FAR = 1.25


def rearrange(
    task: Task, schedule: Schedule, effort: Effort, *, back: Task | None = None
) -> Best[Schedule] | None:
    """The best schedule that is found around a given one; None where a search takes too long.

    Parameters
    ----------
    task : Task
        The copies.
    schedule : Schedule
        Where the search starts: deliveries are ordered by their arrivals in it.
    back : Task, optional
        Of an All-Reduce: the partial sums, as copies on the reversed network.
    """
    hops_a_node = len(task.hop_src) / max(int(task.member.any(axis=0).sum()), 1)
    links_a_hop = len(task.hop_links) / max(len(task.hop_src), 1)
    deliveries = int(task.member[task.part_of].sum())
    phases = 1.0 if back is None else 2.5
    cost = phases * deliveries * (1.5e-7 + 8e-9 * hops_a_node * links_a_hop)
    rounds = min(int(3.0 * effort.seconds / max(cost, 1e-9)), MOST_ROUNDS)
    if rounds < FEWEST_ROUNDS:
        return None
    load = phases * deliveries * links_a_hop / task.topology.num_links
    most = min(2 * deliveries, max(64, int(8 * load)))
    keys = _keys(task, schedule)
    once, _ = _chain(task, back, keys, most, 1, effort.target, effort.seed)
    if once > FAR * schedule.makespan_ps:
        # the order of deliveries says too little of this schedule
        return None
    found: Best[Schedule] | None = best_of(
        _chains(task, back, keys, most, rounds, effort),
        threads=effort.threads,
        target=effort.target,
        clock=effort.clock,
    )
    return None if found is None or found.makespan >= INFINITE else found


def _keys(task: Task, schedule: Schedule) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Turns of the copies, and of the partial sums backwards in time, between 0 and deliveries."""
    shape = (task.topology.num_nodes, len(task.source))
    copies, sums = np.zeros(shape), np.zeros(shape)
    scale = task.member[task.part_of].sum() / max(schedule.makespan_ps, 1)
    rows = schedule.phase == COPY
    end = schedule.start_ps + task.times.transfer[task.size_of[schedule.chunk], schedule.link]
    copies[task.topology.dst[schedule.link[rows]], schedule.chunk[rows]] = end[rows] * scale
    rows = schedule.phase == REDUCE
    left = schedule.makespan_ps - schedule.start_ps[rows]
    sums[task.topology.src[schedule.link[rows]], schedule.chunk[rows]] = left * scale
    return copies, sums


def _chains(
    task: Task,
    back: Task | None,
    keys: tuple[NDArray[np.float64], NDArray[np.float64]],
    most: int,
    rounds: int,
    effort: Effort,
) -> Iterator[Callable[[], tuple[int, Schedule]]]:
    length = min(LENGTH, rounds)
    for index in range(rounds // length):
        yield partial(
            _chain, task, back, keys, most, length, effort.target, effort.seed * 7919 + index
        )


def _chain(
    task: Task,
    back: Task | None,
    keys: tuple[NDArray[np.float64], NDArray[np.float64]],
    most: int,
    rounds: int,
    target: int,
    seed: int,
) -> tuple[int, Schedule]:
    # switches may copy and not reduce, or the reverse: hops may be longer one way than the other
    steps = sum(int(np.diff(each.hop_ptr).max(initial=1)) for each in (task, back or task))
    room = int(task.member[task.part_of].sum()) * steps
    chunk, link = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int32)
    start = np.empty(room, dtype=np.int64)
    search: Any = search_orders
    makespan, sums, sends = search(
        *_hops(task),
        *_hops(task if back is None else back),
        task.times.occupancy,
        task.times.transfer,
        task.size_of,
        task.part_of,
        task.member,
        task.source,
        *keys,
        back is not None,
        most,
        rounds,
        target,
        seed,
        chunk,
        link,
        start,
    )
    phase = np.full(sends, COPY, dtype=np.uint8)
    phase[:sums] = REDUCE
    return int(makespan), Schedule.of(
        chunk[:sends].copy(), link[:sends].copy(), start[:sends].copy(), int(makespan), phase
    )


def _hops(task: Task) -> tuple[Any, ...]:
    """Hops by the node that they enter and by the one that they leave, their ends and links."""
    into = grouped(task.hop_dst, task.topology.num_nodes)
    return *into, *hops_out(task)
