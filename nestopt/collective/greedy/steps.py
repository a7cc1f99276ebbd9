"""Greedy synthesis in equal steps: driver of the synchronous kernel."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.model.steps import StepSchedule

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["equal_step", "match_steps"]

_BLOCK = 512


def equal_step(instance: CollectiveInstance) -> int | None:
    """Length of the step if every transfer takes the same time, in picoseconds; else None.

    The synchronous kernel also needs nodes that all multicast, and at most 64 in-links a node.
    """
    topology, sizes = instance.topology, {p.chunk_size for p in instance.collective.parts}
    if len(sizes) > 1 or not topology.multicast.all() or topology.num_links == 0:
        return None
    if np.bincount(topology.dst).max() > 64:
        return None
    transfer = instance.transfer_ps(next(iter(sizes)))
    occupancy = instance.occupancy_ps(next(iter(sizes)))
    first = int(transfer[0])
    equal = (transfer == first).all() and (occupancy == first).all()
    return first if equal else None


def match_steps(
    instance: CollectiveInstance,
    step_ps: int,
    *,
    seed: int = 0,
    threads: int = 1,
    ahead: int = 0,
) -> StepSchedule:
    """A schedule of one All-Gather in steps of `step_ps`, first in, first out.

    The same for any number of threads. The network must connect the group. With `ahead`, links
    look for chunks that no other neighbour of their destination holds, on a single thread.
    """
    from nestopt.collective.greedy.kernels.sync import advance, hold_initially

    topology, source = instance.topology, instance.collective.source
    (part,) = instance.collective.parts
    nodes, chunks = topology.num_nodes, len(source)
    in_ptr, in_links = topology.in_links()
    in_src = topology.src[in_links]
    order = np.empty((nodes, chunks), dtype=np.uint16 if chunks <= 2**16 else np.int32)
    seen = np.zeros((nodes, (chunks + 63) // 64), dtype=np.uint64)
    counts = np.zeros((2, nodes), dtype=np.int32)
    hold_initially(source, order, seen, counts[0])
    initial = counts[0].astype(np.int64)
    cursor = np.zeros(topology.num_links, dtype=np.int32)
    wanted = np.zeros(nodes, dtype=np.bool_)
    wanted[part.npus] = True
    degree = int(np.bincount(topology.dst, minlength=nodes).max())
    width = next(t for t in (np.uint8, np.uint16, np.uint32, np.uint64) if degree <= _bits(t))
    masks = [np.empty((_BLOCK, nodes), dtype=width)]
    workers = 1 if ahead else max(1, min(threads, nodes // 512))
    bounds = np.linspace(0, nodes, workers + 1).astype(np.int64)
    delivered = np.zeros(workers, dtype=np.int64)
    left = [len(part.npus) * chunks - chunks]
    steps = [0]

    def end_of_step() -> None:
        left[0] -= int(delivered.sum())
        steps[0] += 1
        if steps[0] % _BLOCK == 0:
            masks.append(np.empty((_BLOCK, nodes), dtype=width))

    barrier = threading.Barrier(workers, action=end_of_step)

    def work(worker: int) -> None:
        low, high = bounds[worker], bounds[worker + 1]
        try:
            while left[0] > 0:
                step = steps[0]
                now, then = counts[step & 1], counts[1 - (step & 1)]
                row = masks[-1][step % _BLOCK]
                delivered[worker] = advance(
                    low, high, step, seed, in_ptr, in_src, order, seen, cursor, now, then, row,
                    wanted, ahead,
                )  # fmt: skip
                barrier.wait()
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
    masks[-1] = masks[-1][: steps[0] % _BLOCK]
    received = counts[steps[0] & 1].astype(np.int64)
    return StepSchedule(step_ps, order, initial, received, tuple(m for m in masks if len(m)))


def _bits(unsigned: Any) -> int:
    return int(np.iinfo(unsigned).bits)
