"""Exchanges of partial sums, played on the network: real routes, links that carry one at a time.

An exchange sends a set of contributions of one chunk from one NPU to another along a shortest path.
It starts when the exchanges that it adds up have arrived. Links serve requests in the order in
which they come. A node that passes a set keeps it: what an exchange would bring to a node that has
the same set of the same chunk, or is about to have it, continues from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from nestopt.collective.baselines.play import next_links
from nestopt.collective.greedy.kernels.event import heap_pop, heap_push
from nestopt.collective.model.schedule import COPY, SHARE, Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["Exchange", "play_exchanges"]

_MOST_HOPS = 20_000_000


@dataclass(frozen=True, slots=True)
class Exchange:
    """One send between ranks of a group.

    Attributes
    ----------
    source, target : int
        Ranks.
    content : frozenset of int
        Ranks whose contributions are sent.
    waits : tuple of int
        Exchanges of the same list that bring them.
    """

    source: int
    target: int
    content: frozenset[int]
    waits: tuple[int, ...]


class _Messages(NamedTuple):
    """All exchanges of all chunks; M of them.

    Attributes
    ----------
    chunk, origin, goal : int64[M]
        Origin and goal are nodes.
    content : int64[M]
        Index of a set; -1 for the whole sum.
    waits : int64[M]
        How many exchanges each waits for.
    next_ptr, nexts : int64
        Which exchanges wait for each.
    """

    chunk: NDArray[np.int64]
    origin: NDArray[np.int64]
    goal: NDArray[np.int64]
    content: NDArray[np.int64]
    waits: NDArray[np.int64]
    next_ptr: NDArray[np.int64]
    nexts: NDArray[np.int64]


def play_exchanges(
    instance: CollectiveInstance,
    scripts: Sequence[Sequence[Sequence[Exchange]]],
    *,
    in_waves: bool = False,
) -> Schedule | None:
    """The schedule in which the exchanges of all chunks are played together.

    Parameters
    ----------
    scripts : sequence of sequences of lists of Exchange
        For every part its scripts; chunk i of the part plays script ``i % len(scripts[part])``.
    in_waves : bool
        Whether the first chunks that play all scripts once go before the next ones, so that they
        cross slow links while the next are summed up on fast ones. By default the first exchanges
        of all chunks go before the second ones.

    Returns
    -------
    Schedule or None
        None if there are too many sends.
    """
    topology = instance.topology
    messages, sets = _messages(instance, scripts, in_waves)
    sizes, classes = np.unique(instance.collective.chunk_sizes, return_inverse=True)
    occupancy = np.stack([instance.occupancy_ps(int(size)) for size in sizes])
    transfer = np.stack([instance.transfer_ps(int(size)) for size in sizes])
    targets, row = np.unique(messages.goal, return_inverse=True)
    table = next_links(topology, transfer.max(axis=0), targets.astype(np.int32))
    hop_ptr, hops = _paths(
        messages.origin, messages.goal, row.reshape(-1), table, topology.dst, _MOST_HOPS
    )
    if len(hop_ptr) == 0:
        return None
    owner = np.repeat(np.arange(len(messages.chunk)), np.diff(hop_ptr))
    head = topology.dst[hops].astype(np.int64)
    key = (messages.chunk[owner] * (len(sets) + 1) + messages.content[owner] + 1) * len(
        topology.is_switch
    ) + head
    keeps = topology.multicast[head]
    place = np.full(len(hops), -1, dtype=np.int64)
    _, number = np.unique(key[keeps], return_inverse=True)
    place[keeps] = number.reshape(-1)
    out_message, out_link, out_start, sends, makespan = _play(
        classes.reshape(-1)[messages.chunk],
        messages.waits.copy(),
        messages.next_ptr,
        messages.nexts,
        hop_ptr,
        hops,
        place,
        int(place.max(initial=-1)) + 1,
        _circles(topology, occupancy, transfer),
        occupancy,
        transfer,
    )
    sent = out_message[:sends]
    content = messages.content[sent]
    return Schedule.of(
        messages.chunk[sent],
        out_link[:sends],
        out_start[:sends],
        int(makespan),
        np.where(content < 0, COPY, SHARE),
        content if (content >= 0).any() else None,
        sets if (content >= 0).any() else (),
    )


def _messages(
    instance: CollectiveInstance,
    scripts: Sequence[Sequence[Sequence[Exchange]]],
    in_waves: bool,
) -> tuple[_Messages, list[NDArray[np.int32]]]:
    """The exchanges of every chunk, in the order of their places in the scripts."""
    index: dict[frozenset[int], int] = {}
    columns: list[NDArray[np.int64]] = []
    order: list[NDArray[np.int64]] = []
    wave: list[NDArray[np.int64]] = []
    edges: list[NDArray[np.int64]] = []
    first = count = 0
    for part, own in zip(instance.collective.parts, scripts):
        tables = []
        for script in own:
            full = len(part.npus)
            rows = [
                (
                    int(part.npus[x.source]),
                    int(part.npus[x.target]),
                    -1 if len(x.content) == full else index.setdefault(x.content, len(index)),
                    len(x.waits),
                )
                for x in script
            ]
            waits = [(before, i) for i, x in enumerate(script) for before in x.waits]
            tables.append(
                (
                    np.array(rows, dtype=np.int64).reshape(-1, 4),
                    np.array(waits, dtype=np.int64).reshape(-1, 2),
                )
            )
        for local in range(part.num_chunks if tables else 0):
            rows_, waits_ = tables[local % len(tables)]
            chunk = np.full(len(rows_), first + local, dtype=np.int64)
            columns.append(np.column_stack([chunk, rows_]))
            order.append(np.arange(len(rows_)))
            wave.append(np.full(len(rows_), local // len(tables) if in_waves else 0))
            edges.append(waits_ + count)
            count += len(rows_)
        first += part.num_chunks
    table = np.concatenate([np.empty((0, 5), np.int64), *columns])
    edge = np.concatenate([np.empty((0, 2), np.int64), *edges])
    # the first exchanges of all chunks come before the second ones
    none = np.empty(0, np.int64)
    ranked = np.lexsort([np.concatenate([none, *order]), np.concatenate([none, *wave])])
    number = np.empty(count, dtype=np.int64)
    number[ranked] = np.arange(count)
    table, edge = table[ranked], number[edge]
    edge = edge[np.argsort(edge[:, 0], kind="stable")]
    ptr = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(edge[:, 0], minlength=count), out=ptr[1:])
    sets = [np.array(sorted(ranks), dtype=np.int32) for ranks in index]
    chunk, origin, goal, content, waits = table.T.copy()
    return _Messages(chunk, origin, goal, content, waits, ptr, edge[:, 1].copy()), sets


def _circles(topology: Any, occupancy: Any, transfer: Any) -> NDArray[np.int64]:
    """The next of the links that are parallel to each link and as fast, in a circle; int64[E]."""
    columns = np.concatenate([[topology.src, topology.dst], occupancy, transfer]).T
    _, same = np.unique(columns, axis=0, return_inverse=True)
    by_kind = np.argsort(same.reshape(-1), kind="stable")
    kind = same.reshape(-1)[by_kind]
    following = np.roll(by_kind, -1)
    firsts = np.flatnonzero(np.diff(kind, prepend=-1))
    lasts = np.append(firsts[1:], len(kind)) - 1
    following[lasts] = by_kind[firsts]
    twin = np.empty(len(by_kind), dtype=np.int64)
    twin[by_kind] = following
    return twin


@njit(cache=True, nogil=True)
def _paths(origin: Any, goal: Any, row: Any, table: Any, dst: Any, most: int) -> tuple[Any, Any]:
    """Links of each message's path, as (ptr, links); empty if there are more than `most`."""
    count = len(origin)
    ptr = np.zeros(count + 1, np.int64)
    for m in range(count):
        u, hops = origin[m], 0
        while u != goal[m]:
            u = dst[table[row[m], u]]
            hops += 1
        ptr[m + 1] = ptr[m] + hops
        if ptr[m + 1] > most:
            return np.empty(0, np.int64), np.empty(0, np.int64)
    links = np.empty(ptr[count], np.int64)
    for m in range(count):
        u = origin[m]
        for at in range(ptr[m], ptr[m + 1]):
            links[at] = table[row[m], u]
            u = dst[links[at]]
    return ptr, links


@njit(cache=True, nogil=True)
def _play(
    size_of: Any,
    waits: Any,
    next_ptr: Any,
    nexts: Any,
    hop_ptr: Any,
    hops: Any,
    place: Any,
    places: int,
    twin: Any,
    occupancy: Any,
    transfer: Any,
) -> tuple[Any, Any, Any, int, Any]:
    """Play all messages: (message, link, start) of the sends, their number, the last arrival.

    `there[p]` is 0 before anything is under way to place p, 1 then, 2 when it has come. A message
    that finds 1 is put in the place's list and goes on from there.
    """
    count = len(size_of)
    out_message = np.empty(len(hops), np.int64)
    out_link = np.empty(len(hops), np.int64)
    out_start = np.empty(len(hops), np.int64)
    there = np.zeros(places, np.int8)
    waiting = np.full(places, -1, np.int64)
    following = np.full(count, -1, np.int64)
    at = hop_ptr[:-1].copy()
    free = np.zeros(occupancy.shape[1], np.int64)
    key = np.empty(count + 1, np.int64)
    tie = np.empty(count + 1, np.int64)
    item = np.empty(count + 1, np.int64)
    ready = np.empty(count, np.int64)
    first, last = 0, 0
    for m in range(count):
        if waits[m] == 0:
            ready[last] = m
            last += 1
    size, order, sends, makespan = 0, 0, 0, np.int64(0)
    now = np.int64(0)
    queue = np.empty(count, np.int64)
    while True:
        # `ready` holds messages that can go on at once; a message is in it at most once at a time
        held = 0
        while first < last or held > 0:
            if first < last:
                m = ready[first]
                first += 1
            else:
                held -= 1
                m = queue[held]
            h, end = at[m], hop_ptr[m + 1]
            # at a keeper (or the origin): jump over what is there already
            moving = True
            while h < end:
                keeper = h
                while place[keeper] < 0 and keeper + 1 < end:
                    keeper += 1
                p = place[keeper]
                inside = h > hop_ptr[m] and place[h - 1] < 0
                if inside or p < 0 or there[p] == 0:
                    break
                if there[p] == 2:
                    h = keeper + 1
                    continue
                at[m] = keeper + 1
                following[m] = waiting[p]
                waiting[p] = m
                moving = False
                break
            if not moving:
                continue
            at[m] = h
            if h == end:
                for j in range(next_ptr[m], next_ptr[m + 1]):
                    waits[nexts[j]] -= 1
                    if waits[nexts[j]] == 0:
                        queue[held] = nexts[j]
                        held += 1
                continue
            if h == hop_ptr[m] or place[h - 1] >= 0:
                keeper = h
                while place[keeper] < 0 and keeper + 1 < end:
                    keeper += 1
                if place[keeper] >= 0:
                    there[place[keeper]] = 1
            e = hops[h]
            other = twin[e]
            while other != hops[h]:
                if free[other] < free[e]:
                    e = other
                other = twin[other]
            start = max(now, free[e])
            free[e] = start + occupancy[size_of[m], e]
            out_message[sends], out_link[sends], out_start[sends] = m, e, start
            sends += 1
            size = heap_push(
                key, tie, item, size, start + transfer[size_of[m], e], np.int64(order), m
            )  # fmt: skip
            order += 1
        if size == 0:
            break
        now, m = key[0], item[0]
        size = heap_pop(key, tie, item, size)
        makespan = max(makespan, now)
        h = at[m]
        at[m] = h + 1
        first, last = 0, 0
        ready[last] = m
        last += 1
        if place[h] >= 0:
            there[place[h]] = 2
            w = waiting[place[h]]
            waiting[place[h]] = -1
            while w >= 0:
                ready[last] = w
                last += 1
                w = following[w]
    return out_message, out_link, out_start, sends, makespan
