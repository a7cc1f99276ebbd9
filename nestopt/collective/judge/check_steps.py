"""The independent checker of schedules in equal steps, in one streaming pass.

Needs one bit a node and chunk beside the memory-mapped schedule.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.collective.model.instance import LATEST_PS
from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.steps import StepSchedule

__all__ = ["check_steps"]

OK, BAD_LINK, TOO_MANY, BAD_CHUNK, NOT_THERE, REDUNDANT = range(6)
_TEXT = {
    BAD_LINK: "a send on an in-link that the node does not have",
    TOO_MANY: "more deliveries than there are chunks",
    BAD_CHUNK: "a chunk that does not exist",
    NOT_THERE: "a send that starts before its source holds the chunk",
    REDUNDANT: "a chunk that the node receives more than once",
}


def check_steps(
    instance: CollectiveInstance, schedule: StepSchedule, *, threads: int = 1
) -> list[str]:
    """Check a schedule in equal steps against its instance; lines and errors as `check_schedule`.

    A link carries one chunk at a time because a bit of the mask is one link and step, and the
    step is at least as long as the link's occupancy.
    """
    topology, collective = instance.topology, instance.collective
    if collective.has_reduction or not topology.multicast.all():
        raise CheckError("a schedule in steps holds copies between nodes that all multicast")
    nodes, chunks = topology.num_nodes, collective.num_chunks
    if schedule.order.shape != (nodes, chunks):
        raise CheckError(f"order has shape {schedule.order.shape}; expected {(nodes, chunks)}")
    if not 0 <= schedule.makespan_ps <= LATEST_PS:
        raise CheckError(
            f"the makespan is {schedule.makespan_ps} ps; expected from 0 to {LATEST_PS}"
        )
    for size in {part.chunk_size for part in collective.parts}:
        for times, what in (
            (instance.occupancy_ps(size), "occupancy"),
            (instance.transfer_ps(size), "transfer time"),
        ):
            if (times != schedule.step_ps).any():
                link = int(np.argmax(times != schedule.step_ps))
                raise CheckError(
                    f"the {what} of {topology.link_name(link)} is {times[link]} ps; the steps "
                    f"are of {schedule.step_ps} ps"
                )
    held = np.zeros((nodes, (chunks + 63) // 64), dtype=np.uint64)
    source = collective.source
    _set_bits(held, source, np.arange(chunks))
    initial = np.bincount(source, minlength=nodes)
    if not np.array_equal(initial, schedule.initial):
        node = int(np.argmax(initial != schedule.initial))
        raise CheckError(
            f"{topology.node_name(node)} starts with {initial[node]} chunks, not "
            f"{schedule.initial[node]}"
        )
    position = np.array(schedule.initial, dtype=np.int64)
    _replay_steps(instance, schedule, held, position, max(1, min(threads, nodes // 512)))
    if not np.array_equal(position, schedule.received):
        node = int(np.argmax(position != schedule.received))
        raise CheckError(
            f"{topology.node_name(node)} receives {position[node]} chunks in all, not "
            f"{schedule.received[node]}"
        )
    if schedule.num_steps and not np.any(schedule.masks[-1][-1]):
        raise CheckError("nothing is sent in the last step, so that the makespan is too long")
    satisfied = 0
    for part in collective.parts:
        destinations = part.destinations()
        if destinations[0] >= 0:
            raise CheckError(f"a schedule in steps cannot hold a {part.pattern}")
        missing = part.npus[_missing_any(held, part.npus, chunks)]
        if missing.size:
            raise CheckError(
                f"postcondition: {topology.node_name(int(missing[0]))} lacks a chunk at the end"
            )
        satisfied += len(part.npus) * part.num_chunks
    return [
        f"{schedule.num_sends} sends on {topology.num_links} links: no two share a link",
        "every send's chunk is at its source when the send starts",
        f"all {satisfied} postconditions hold",
        f"the makespan is the last arrival, {schedule.makespan_ps} ps",
    ]


def _missing_any(held: Any, npus: Any, chunks: int) -> Any:
    full = np.full(held.shape[1], np.uint64(2**64 - 1))
    if chunks % 64:
        full[-1] = np.uint64(2 ** (chunks % 64) - 1)
    return np.array([not np.array_equal(held[v] & full, full) for v in npus], dtype=np.bool_)


def _replay_steps(
    instance: CollectiveInstance, schedule: StepSchedule, held: Any, position: Any, workers: int
) -> None:
    topology = instance.topology
    in_ptr, in_links = topology.in_links()
    in_src = topology.src[in_links]
    limits = np.linspace(0, topology.num_nodes, workers + 1).astype(np.int64)
    fresh = [np.empty((2, topology.num_links), dtype=np.int64) for _ in range(workers)]
    found = np.zeros((workers, 3), dtype=np.int64)
    barrier = threading.Barrier(workers)

    def work(worker: int) -> None:
        number = 0
        low, high = limits[worker], limits[worker + 1]
        try:
            for block in schedule.masks:
                for row in range(len(block)):
                    count = _verify(
                        low, high, block[row], in_ptr, in_src, schedule.order, held, position,
                        fresh[worker], found[worker],
                    )  # fmt: skip
                    barrier.wait()
                    if found[:, 0].any():
                        found[worker, 2] = number
                        return
                    _land(held, fresh[worker], count, found[worker])
                    barrier.wait()
                    if found[:, 0].any():
                        found[worker, 2] = number
                        return
                    number += 1
        except threading.BrokenBarrierError:
            return
        except BaseException:
            barrier.abort()
            raise

    others = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(1, workers)]
    for thread in others:
        thread.start()
    work(0)
    for thread in others:
        thread.join()
    for code, node, step in found.tolist():
        if code != OK:
            raise CheckError(f"step {step}, node {topology.node_name(node)}: {_TEXT[code]}")


@njit(cache=True, nogil=True)
def _set_bits(held: Any, nodes: Any, chunks: Any) -> None:
    for k in range(len(nodes)):
        held[nodes[k], chunks[k] >> 6] |= np.uint64(1) << np.uint64(chunks[k] & 63)


@njit(cache=True, nogil=True)
def _verify(
    low: int,
    high: int,
    mask: Any,
    in_ptr: Any,
    in_src: Any,
    order: Any,
    held: Any,
    position: Any,
    fresh: Any,
    found: Any,
) -> int:
    """Verify the sends of a step into the nodes of a range, and list what they deliver."""
    one, count = np.uint64(1), 0
    for v in range(low, high):
        bits = np.uint64(mask[v])
        j = in_ptr[v]
        while bits:
            if bits & one:
                if j >= in_ptr[v + 1]:
                    found[0], found[1] = BAD_LINK, v
                    return count
                if position[v] >= order.shape[1]:
                    found[0], found[1] = TOO_MANY, v
                    return count
                c = np.int64(order[v, position[v]])
                position[v] += 1
                if c < 0 or c >= order.shape[1]:
                    found[0], found[1] = BAD_CHUNK, v
                    return count
                bit = np.uint64(c & 63)
                if not held[in_src[j], c >> 6] >> bit & one:
                    found[0], found[1] = NOT_THERE, v
                    return count
                if held[v, c >> 6] >> bit & one:
                    found[0], found[1] = REDUNDANT, v
                    return count
                fresh[0, count], fresh[1, count] = v, c
                count += 1
            bits >>= one
            j += 1
    return count


@njit(cache=True, nogil=True)
def _land(held: Any, fresh: Any, count: int, found: Any) -> None:
    """Hand over what a step delivered; two links may not have brought the same chunk."""
    for k in range(count):
        v, c = fresh[0, k], fresh[1, k]
        bit = np.uint64(1) << np.uint64(c & 63)
        if held[v, c >> 6] & bit:
            found[0], found[1] = REDUNDANT, v
        held[v, c >> 6] |= bit
