"""All-Reduce by packed trees: driver of `kernels_trees` and `kernels_justify`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.greedy.join import MOST_SENDS
from nestopt.collective.greedy.kernels.event import INFINITE
from nestopt.collective.greedy.kernels.justify import justify
from nestopt.collective.greedy.kernels.trees import pack_trees
from nestopt.collective.greedy.network import hops_out
from nestopt.collective.greedy.parallel import best_of
from nestopt.collective.model.schedule import COPY, REDUCE, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from nestopt.collective.greedy.match import Effort
    from nestopt.collective.greedy.network import Task
    from nestopt.collective.greedy.parallel import Best

__all__ = ["pack"]

MOST_SECONDS = 60.0
MOST_TRIES = 400
ROUNDS = 3
# (price, balance) of the tries, in turn; a price says nothing where all links are equal
_EQUAL = ((0.0, 0.0), (0.0, 1.0), (0.0, 0.1))
_UNEQUAL = ((1.0, 0.0), (0.0, 0.0), (1.0, 0.1), (0.0, 1.0), (4.0, 0.0), (0.5, 0.1))


def pack(task: Task, back: Task, effort: Effort) -> Best[Schedule] | None:
    """The best schedule of All-Reduces over a few orders of roots.

    None beyond `MOST_SENDS` sends or, nominally, `MOST_SECONDS`.

    Parameters
    ----------
    task, back : Task
        The copies, and the partial sums as copies on the reversed network.
    """
    longest = max(int(np.diff(each.hop_ptr).max(initial=1)) for each in (task, back))
    nodes = task.topology.num_nodes if task.relays or back.relays else 0
    counts = np.maximum(task.member.sum(axis=1), nodes)[task.part_of]
    sends = 2 * int(counts.sum()) * longest
    cost = 5e-7 * len(task.source) * (len(task.hop_links) + len(back.hop_links))
    if sends > MOST_SENDS or cost > MOST_SECONDS:
        return None
    tries = int(np.clip(6.0 * effort.seconds / max(cost, 1e-9), 1, MOST_TRIES))
    found: Best[Schedule] | None = best_of(
        _packings(task, back, sends, tries, effort.seed),
        threads=effort.threads,
        target=effort.target,
        clock=effort.clock,
    )
    return None if found is None or found.makespan >= INFINITE else found


def _packings(
    task: Task, back: Task, sends: int, tries: int, seed: int
) -> Iterator[Callable[[], tuple[int, Schedule]]]:
    equal = task.plain and bool((task.times.occupancy == task.times.occupancy[:, :1]).all())
    weights = _EQUAL if equal else _UNEQUAL
    topology = task.topology
    hubs = np.flatnonzero(topology.is_switch & topology.reduces & topology.multicast)
    pools = (False, True) if len(hubs) else (False,)
    for index in range(tries):
        price, balance = weights[index // len(pools) % len(weights)]
        chosen = hubs if pools[index % len(pools)] else hubs[:0]
        turn = seed * 1_000_003 + index
        yield partial(_packing, task, back, sends, price, balance, turn, chosen)


def _packing(
    task: Task,
    back: Task,
    sends: int,
    price: float,
    balance: float,
    seed: int,
    hubs: NDArray[np.int64],
) -> tuple[int, Schedule]:
    topology, times = task.topology, task.times
    chunks = len(task.source)
    turns, root = _turns(task, np.random.default_rng(seed), hubs)
    link, start = np.empty(sends, dtype=np.int64), np.empty(sends, dtype=np.int64)
    first, middle = np.empty(chunks, dtype=np.int64), np.empty(chunks, dtype=np.int64)
    packed: Any = pack_trees
    makespan, count = packed(
        *hops_out(task),
        *hops_out(back),
        times.occupancy,
        times.transfer,
        task.size_of,
        task.part_of,
        task.member,
        task.relays or back.relays,
        turns,
        root,
        price,
        balance,
        # far more than a balanced packing puts on any link
        64 + 3 * sends // topology.num_links,
        link,
        start,
        first,
        middle,
    )
    if makespan >= INFINITE:
        return int(makespan), Schedule.of([], [], [], 0)
    link, start = link[:count], start[:count]
    stop = np.empty(chunks, dtype=np.int64)
    stop[turns] = np.append(first[turns[1:]], count)
    lengths = (stop - first)[turns]
    chunk = np.repeat(turns, lengths)
    size = task.size_of[chunk]
    shifted: Any = justify
    makespan = shifted(
        link,
        times.occupancy[size, link],
        times.transfer[size, link],
        first,
        middle,
        stop,
        root,
        topology.src,
        topology.dst,
        topology.multicast,
        topology.reduces,
        ROUNDS,
        start,
    )
    summed = np.arange(count) < np.repeat(middle[turns], lengths)
    phase = np.where(summed, REDUCE, COPY).astype(np.uint8)
    return int(makespan), Schedule.of(chunk, link, start, int(makespan), phase)


def _turns(
    task: Task, rng: np.random.Generator, hubs: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """An order of the chunks in which the parts keep step, and roots: each NPU of a group in turn.

    Which chunk of a part has which root does not matter: every NPU contributes to each. With
    `hubs`, switches that reduce and multicast, the sums are formed there instead.
    """
    root = np.empty(len(task.part_of), dtype=np.int64)
    when = np.empty(len(task.part_of))
    for index, group in enumerate(task.member):
        chunks, npus = np.flatnonzero(task.part_of == index), np.flatnonzero(group)
        npus = hubs if len(hubs) else npus
        rounds = [rng.permutation(npus) for _ in range(-(-len(chunks) // len(npus)))]
        root[chunks] = np.concatenate(rounds)[: len(chunks)]
        when[chunks] = (np.arange(len(chunks)) + 0.5) / len(chunks)
    return np.argsort(when, kind="stable"), root
