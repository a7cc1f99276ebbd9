"""The independent checker of schedules; it shares no code with any method.

Replays the sends in the order of their starts and their arrivals in the order of theirs, and holds
the schedule to the model: a link carries one chunk at a time; a send's source holds the chunk when
the send starts; every contribution to a sum counts once; every postcondition holds at the end; the
makespan is the last arrival. Where partial sums only move, contributions are counted; where they
are copied, their sets are followed (`nestopt.collective.judge.check_sets`). No send may start after
the makespan that is stated, so that no sum of a start and a duration leaves 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.collective.judge.check_sets import check_sets, shared_chunks
from nestopt.collective.model.instance import LATEST_PS
from nestopt.collective.model.schedule import COPY, REDUCE, SHARE
from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

__all__ = ["RedundantError", "check_columns", "check_schedule", "check_unicast"]


class RedundantError(CheckError):
    """A chunk is brought to a node that has it already: no fault if every message goes alone."""


OK, NEGATIVE, OVERLAP, NOT_THERE, NO_COPY_LEFT, NOT_WHOLE, EMPTY, REDUNDANT, NOT_A_SUM = range(9)
_TEXT = {
    NEGATIVE: "starts before time 0",
    OVERLAP: "starts while its link still carries the send before it",
    NOT_THERE: "starts before its source holds the chunk",
    NO_COPY_LEFT: "leaves a switch that has forwarded every copy it received and cannot multicast",
    NOT_WHOLE: "copies a sum to which contributions are still missing",
    EMPTY: "carries no contribution: its source has none, or has passed it on already",
    REDUNDANT: "brings a chunk to a node that receives it more than once",
    NOT_A_SUM: "is marked as moving a partial sum, but its chunk is not reduced",
}


def check_schedule(
    instance: CollectiveInstance, schedule: Schedule, *, allow_redundant: bool = False
) -> list[str]:
    """Check a schedule against its instance.

    Parameters
    ----------
    instance : CollectiveInstance
    schedule : Schedule
        Sends in the order of their starts.
    allow_redundant : bool
        Accept a chunk that reaches an NPU (or a switch that multicasts) more than once. Unicast
        baselines do that; in a synthesized schedule it is a fault.

    Returns
    -------
    list of str
        One line for each thing verified.

    Raises
    ------
    CheckError
        At the first violation, with the send, the link, the chunk and the time.
    """
    topology, collective = instance.topology, instance.collective
    check_columns(instance, schedule)
    sizes, size_class = np.unique(collective.chunk_sizes, return_inverse=True)
    shape = (len(sizes), topology.num_links)
    occupancy, transfer = np.empty(shape, np.int64), np.empty(shape, np.int64)
    for row, size in enumerate(sizes):
        occupancy[row] = instance.occupancy_ps(int(size))
        transfer[row] = instance.transfer_ps(int(size))
    size_of = size_class.reshape(-1).astype(np.int32)
    arrival = schedule.start_ps + transfer[size_of[schedule.chunk], schedule.link]
    copies, sums, totals = _initial_state(instance)
    shared = shared_chunks(instance, schedule)
    code, send = _replay(
        schedule.chunk,
        schedule.link,
        schedule.start_ps,
        schedule.phase,
        arrival,
        np.argsort(arrival, kind="stable"),
        topology.src,
        topology.dst,
        occupancy,
        size_of,
        collective.reduction,
        topology.multicast,
        topology.reduces,
        copies,
        sums,
        totals,
        shared,
        allow_redundant,
    )
    if code != OK:
        kind = RedundantError if code == REDUNDANT else CheckError
        raise kind(f"{_describe(instance, schedule, send)} {_TEXT[code]}")
    last = int(arrival.max()) if len(arrival) else 0
    if last != schedule.makespan_ps:
        raise CheckError(
            f"the last chunk arrives at {last} ps, the makespan is given as "
            f"{schedule.makespan_ps} ps"
        )
    if shared.any():
        check_sets(instance, schedule, arrival, allow_redundant=allow_redundant)
        copies[:, shared] = 1
    delivered = _check_postcondition(instance, copies, sums, totals)
    lines = [
        f"{schedule.num_sends} sends on {topology.num_links} links: no two share a link",
        "every send's chunk is at its source when the send starts",
    ]
    if collective.has_reduction:
        copied = int((schedule.phase == SHARE).sum())
        how = f", by the sets of {copied} copied partial sums" if copied else ""
        lines.append(f"every contribution is counted exactly once{how}")
    lines.append(f"all {delivered} postconditions hold")
    lines.append(f"the makespan is the last arrival, {last} ps")
    return lines


def check_unicast(instance: CollectiveInstance, schedule: Schedule) -> list[str]:
    """Check a schedule in which every message travels by itself, as if nobody copied on the way.

    A chunk may then come to a node more than once, but nothing is sent for nothing: what arrives
    is kept where the chunk must end and sent on, once, everywhere else.

    Raises
    ------
    CheckError
        At the first violation; also for a copy that is neither kept nor sent on.
    """
    lines = check_schedule(instance, schedule, allow_redundant=True)
    topology, collective = instance.topology, instance.collective
    if collective.has_reduction:
        raise CheckError("a chunk comes to a node more than once in a collective with reductions")
    nodes = topology.num_nodes
    place = schedule.chunk.astype(np.int64) * nodes
    places, at = np.unique(
        np.concatenate([place + topology.dst[schedule.link], place + topology.src[schedule.link]]),
        return_inverse=True,
    )
    weight = np.repeat([1, -1], schedule.num_sends)
    left = np.zeros(len(places), dtype=np.int64)
    np.add.at(left, at.reshape(-1), weight)
    chunk, node = np.divmod(places, nodes)
    source, destination = collective.source[chunk], collective.destination[chunk]
    members = np.zeros((len(collective.parts), nodes), dtype=np.bool_)
    for index, part in enumerate(collective.parts):
        members[index, part.npus] = True
    kept = np.where(
        destination < 0, members[collective.part_of[chunk], node], destination == node
    ) & (source != node)
    bad = (left != kept) & (source != node)
    if bad.any():
        first = int(np.argmax(bad))
        raise CheckError(
            f"chunk {chunk[first]} comes to {topology.node_name(int(node[first]))} "
            f"{int(left[first])} times more often than it leaves; {int(kept[first])} is kept: some "
            "of its sends are redundant"
        )
    arrivals = np.zeros(len(places), dtype=np.int64)
    np.add.at(arrivals, at.reshape(-1)[: schedule.num_sends], 1)
    back = (source == node) & (arrivals > 0)
    if back.any():
        first = int(np.argmax(back))
        raise CheckError(
            f"chunk {chunk[first]} comes back to {topology.node_name(int(node[first]))}, where it "
            "starts"
        )
    return [*lines, "every message travels by itself: what arrives is kept or sent on once"]


def check_columns(instance: CollectiveInstance, schedule: Schedule) -> None:
    """Every send is of a chunk and on a link that exist, in order, and within the makespan.

    Raises
    ------
    CheckError
        At the first send of which that is not so.
    """
    limits = {"chunk": instance.collective.num_chunks, "link": instance.topology.num_links}
    for name, limit in limits.items():
        values = getattr(schedule, name)
        bad = (values < 0) | (values >= limit)
        if bad.any():
            send = int(np.argmax(bad))
            raise CheckError(f"send {send}: no {name} {values[send]}; there are {limit}")
    bad = (schedule.phase != COPY) & (schedule.phase != REDUCE) & (schedule.phase != SHARE)
    if bad.any():
        send = int(np.argmax(bad))
        raise CheckError(f"send {send}: phase {schedule.phase[send]}; expected 0, 1 or 2")
    back = schedule.start_ps[1:] < schedule.start_ps[:-1]
    if back.any():
        raise CheckError(f"send {int(np.argmax(back)) + 1} starts before the one that precedes it")
    makespan = schedule.makespan_ps
    if not 0 <= makespan <= LATEST_PS:
        raise CheckError(f"the makespan is {makespan} ps; expected from 0 to {LATEST_PS}")
    late = schedule.start_ps > makespan
    if late.any():
        send = int(np.argmax(late))
        raise CheckError(
            f"{_describe(instance, schedule, send)} starts after the end, {makespan} ps"
        )


def _initial_state(
    instance: CollectiveInstance,
) -> tuple[NDArray[np.int16], NDArray[np.int32], NDArray[np.int32]]:
    """Copies held and contributions held by (node, chunk), and contributions by chunk."""
    nodes, collective = instance.topology.num_nodes, instance.collective
    copies = np.zeros((nodes, collective.num_chunks), dtype=np.int16)
    summed = collective.num_chunks if collective.has_reduction else 1
    sums = np.zeros((nodes, summed), dtype=np.int32)
    totals = np.zeros(collective.num_chunks, dtype=np.int32)
    first = 0
    for part in collective.parts:
        chunks = np.arange(first, first + part.num_chunks)
        if part.reduction:
            sums[np.ix_(part.npus, chunks)] = 1
            totals[chunks] = len(part.npus)
        else:
            copies[part.sources(), chunks] = 1
        first += part.num_chunks
    return copies, sums, totals


def _check_postcondition(
    instance: CollectiveInstance,
    copies: NDArray[np.int16],
    sums: NDArray[np.int32],
    totals: NDArray[np.int32],
) -> int:
    first = delivered = 0
    for part in instance.collective.parts:
        destinations = part.destinations()
        for start in range(0, part.num_chunks, 4096):
            local = np.arange(start, min(start + 4096, part.num_chunks))
            chunks = first + local
            if destinations[0] < 0:
                nodes = np.broadcast_to(part.npus[:, None], (len(part.npus), len(local)))
            else:
                nodes = destinations[local][None, :]
            good = copies[nodes, chunks[None, :]] > 0
            if part.reduction:
                good |= sums[nodes, chunks[None, :]] == totals[chunks][None, :]
            if not good.all():
                row, column = np.argwhere(~good)[0]
                node = instance.topology.node_name(int(nodes[row, column]))
                what = "the whole sum of chunk" if part.reduction else "chunk"
                raise CheckError(
                    f"postcondition: {node} does not hold {what} {chunks[column]} at the end"
                )
            delivered += int(good.size)
        first += part.num_chunks
    return delivered


def _describe(instance: CollectiveInstance, schedule: Schedule, send: int) -> str:
    link = int(schedule.link[send])
    return (
        f"send {send} of chunk {schedule.chunk[send]} on {instance.topology.link_name(link)} at "
        f"{schedule.start_ps[send]} ps"
    )


@njit(cache=True, nogil=True)
def _replay(
    chunk: Any,
    link: Any,
    start: Any,
    phase: Any,
    arrival: Any,
    by_arrival: Any,
    src: Any,
    dst: Any,
    occupancy: Any,
    size_of: Any,
    reduction: Any,
    multicast: Any,
    reduces: Any,
    copies: Any,
    sums: Any,
    totals: Any,
    shared: Any,
    allow_redundant: bool,
) -> tuple[int, int]:
    """Replay the sends; the first violation as (code, send), (OK, -1) without one.

    Of chunks in `shared` only the links are looked at here.

    A switch that does not reduce keeps its partial sums apart, in a queue by (switch, chunk):
    `queue_head` and `queue_tail` hold sends, `queue_next` links them, `payload` is what they carry.
    """
    sends = len(chunk)
    free = np.zeros(len(src), dtype=np.int64)
    payload = np.zeros(sends, dtype=np.int32)
    any_sum = False
    for i in range(sends):
        any_sum |= phase[i] == REDUCE
    queued = any_sum and not reduces.all()
    shape = sums.shape if queued else (1, 1)
    queue_head = np.full(shape, -1, dtype=np.int64)
    queue_tail = np.full(shape, -1, dtype=np.int64)
    queue_next = np.full(sends if queued else 1, -1, dtype=np.int64)
    landed = 0
    for i in range(sends + 1):
        now = start[i] if i < sends else np.int64(2**62)
        while landed < sends and arrival[by_arrival[landed]] <= now:
            k = by_arrival[landed]
            landed += 1
            v, c = dst[link[k]], chunk[k]
            if shared[c]:
                continue
            if phase[k] == COPY:
                if copies[v, c] > 0 and multicast[v] and not allow_redundant:
                    return REDUNDANT, k
                if copies[v, c] < 32767:
                    copies[v, c] += 1
            elif reduces[v]:
                sums[v, c] += payload[k]
            else:
                if queue_head[v, c] < 0:
                    queue_head[v, c] = k
                else:
                    queue_next[queue_tail[v, c]] = k
                queue_tail[v, c] = k
        if i == sends:
            break
        c, e = chunk[i], link[i]
        u = src[e]
        if now < 0:
            return NEGATIVE, i
        if now < free[e]:
            return OVERLAP, i
        free[e] = now + occupancy[size_of[c], e]
        if shared[c]:
            continue
        if phase[i] == REDUCE:
            if not reduction[c]:
                return NOT_A_SUM, i
            if reduces[u]:
                payload[i] = sums[u, c]
                sums[u, c] = 0
            elif queue_head[u, c] >= 0:
                k = queue_head[u, c]
                queue_head[u, c] = queue_next[k]
                payload[i] = payload[k]
            if payload[i] == 0:
                return EMPTY, i
        else:
            whole = reduction[c] and sums[u, c] == totals[c]
            if copies[u, c] == 0 and not whole:
                if reduction[c] and sums[u, c] > 0:
                    return NOT_WHOLE, i
                return (NOT_THERE if multicast[u] else NO_COPY_LEFT), i
            if not multicast[u]:
                copies[u, c] -= 1
    return OK, -1
