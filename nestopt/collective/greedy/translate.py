"""All-Gather on networks that look the same from every node (tori, rings, hypercubes, cliques).

Number the nodes by mixed-radix coordinates. If the links out of every node lead to the same
coordinate differences, with the same times, then one broadcast tree, moved to every source, is a
schedule: its chunks meet no other as long as the tree itself uses each difference (a *generator*)
for one chunk at a time. A search over N tree edges replaces one over N*N sends.

References
----------
.. [1] Zhao et al., "Efficient Direct-Connect Topologies for Collective Communications", 2023: the
   same idea for breadth-first broadcast trees on Cayley graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.event import INFINITE, next_random, random_state
from nestopt.collective.greedy.match import Sends
from nestopt.collective.greedy.parallel import Best, best_of
from nestopt.core.stop_kernel import KernelStopped, overdue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from nestopt.collective.greedy.match import Effort
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.topology import Topology

__all__ = ["Translation", "find_translation", "match_translated"]

MOST_DIMENSIONS = 4
MOST_SENDS = 40_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Translation:
    """The generators of a network that looks the same from every node.

    Attributes
    ----------
    dims : tuple of int
        Sizes of the coordinates; a node is their row-major number.
    links : int64[generators, nodes]
        The link of each generator out of each node.
    """

    dims: tuple[int, ...]
    links: NDArray[np.int64]

    def shift(self, a: Any, b: Any) -> Any:
        """The node at the sum of the coordinates of two nodes (arrays broadcast)."""
        total: Any = 0
        scale = 1
        for size in reversed(self.dims):
            total = total + (a // scale + b // scale) % size * scale
            scale *= size
        return total

    def minus(self, a: Any) -> Any:
        """The node at the negated coordinates."""
        total: Any = 0
        scale = 1
        for size in reversed(self.dims):
            total = total + -(a // scale) % size * scale
            scale *= size
        return total


def _factorizations(number: int, most: int) -> Iterator[tuple[int, ...]]:
    """Ordered factorizations into at most `most` factors of at least 2, the longest first."""
    if most > 1:
        for first in range(2, number // 2 + 1):
            if number % first == 0:
                for rest in _factorizations(number // first, most - 1):
                    yield (first, *rest)
    yield (number,)


def find_translation(topology: Topology) -> Translation | None:
    """Coordinates under which every node has the same links; None if none are found.

    Tries the row-major coordinates of every factorization of the number of nodes.
    """
    nodes = topology.num_nodes
    out_degree = np.bincount(topology.src, minlength=nodes)
    if topology.is_switch.any() or nodes < 3 or (out_degree != out_degree[0]).any():
        return None
    degree = int(out_degree[0])
    if degree == 0:
        return None
    times = np.stack([topology.alpha_ps, topology.bandwidth])
    _, kind = np.unique(times, axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    probe = np.flatnonzero(topology.src <= 1)
    for dims in _factorizations(nodes, MOST_DIMENSIONS):
        move = Translation(dims, np.empty((0, 0), dtype=np.int64))
        # two nodes show most numberings to be wrong at once
        for some in (probe, np.arange(topology.num_links)):
            source, target = topology.src[some].astype(np.int64), topology.dst[some]
            step = move.shift(target.astype(np.int64), move.minus(source))
            order = np.lexsort((some, kind[some], step, source))
            generator = (step * (kind.max() + 1) + kind[some])[order].reshape(-1, degree)
            if (generator != generator[0]).any():
                break
        else:
            return Translation(dims, np.ascontiguousarray(some[order].reshape(-1, degree).T))
    return None


def match_translated(
    instance: CollectiveInstance, translation: Translation, effort: Effort
) -> Best[Sends] | None:
    """The best All-Gather whose trees are translates of one tree; None where that is too large.

    The instance is one All-Gather over all nodes.
    """
    topology = instance.topology
    (part,) = instance.collective.parts
    chunks_per_npu = part.chunks_per_npu
    if topology.num_nodes * part.num_chunks > MOST_SENDS:
        return None
    cost = 1.5e-8 * part.num_chunks * len(translation.links)
    tries = min(effort.tries(4.0 * cost), 2000) if effort.restarts is None else effort.restarts
    nodes = np.arange(topology.num_nodes)
    steps = topology.dst[translation.links[:, 0]].astype(np.int64)
    moved = np.array([translation.shift(nodes, step) for step in steps])
    first = translation.links[:, 0]
    occupancy = instance.occupancy_ps(part.chunk_size)[first]
    transfer = instance.transfer_ps(part.chunk_size)[first]

    def tree(seed: int) -> tuple[int, Any]:
        found = _grow(moved, occupancy, transfer, chunks_per_npu, seed)
        return int(found[0]), found[1:]

    trees: Iterator[Callable[[], tuple[int, Any]]] = (
        partial(tree, effort.seed * 1_000_003 + index) for index in range(tries)
    )
    best = best_of(trees, threads=effort.threads, target=effort.target, clock=effort.clock)
    if best is None or best.makespan >= INFINITE:
        return None
    item, generator, start = best.value
    offset, which = item // chunks_per_npu, item % chunks_per_npu
    before = translation.shift(offset, translation.minus(steps[generator]))
    sources = nodes[:, None]
    chunk = sources * chunks_per_npu + which
    link = translation.links[generator, translation.shift(sources, before[None, :])]
    starts = np.broadcast_to(start, link.shape)
    sends = Sends(
        chunk.reshape(-1).astype(np.int32),
        link.reshape(-1).astype(np.int32),
        starts.reshape(-1).copy(),
    )
    return Best(best.makespan, sends, best.index, best.tries)


@njit(cache=True, nogil=True)
def _grow(
    moved: Any, occupancy: Any, transfer: Any, copies: int, seed: int
) -> tuple[Any, Any, Any, Any]:
    """Grow one tree, the edge that ends first next; of equal ones a random one.

    An item is ``offset * copies + copy``. Each generator keeps the items that it could bring next
    in a bag; an item's turn is random among those that had arrived when the generator was free.
    Returns (makespan, item, generator, start) of the edges.
    """
    generators, nodes = moved.shape
    items = nodes * copies
    state = random_state(seed)
    arrival = np.full(items, INFINITE, dtype=np.int64)
    arrival[:copies] = 0
    options = np.zeros(items, dtype=np.int64)
    # what has arrived, in order of arrival; each generator has a cursor behind which all is used
    order = np.empty(items, dtype=np.int64)
    order[:copies] = np.arange(copies)
    count = copies
    cursor = np.zeros(generators, dtype=np.int64)
    free = np.zeros(generators, dtype=np.int64)
    out_item = np.empty(items - copies, dtype=np.int64)
    out_generator = np.empty(items - copies, dtype=np.int64)
    out_start = np.empty(items - copies, dtype=np.int64)
    for i in range(copies):
        for g in range(generators):
            options[moved[g, 0] * copies + i] += 1
    done, makespan = 0, np.int64(0)
    while done < items - copies:
        if overdue():
            raise KernelStopped
        best, chosen_g, ties = INFINITE, -1, 1
        for g in range(generators):
            at = cursor[g]
            while at < count:
                have = order[at]
                if arrival[moved[g, have // copies] * copies + have % copies] == INFINITE:
                    break
                at += 1
            cursor[g] = at
            if at == count:
                continue
            end = max(free[g], arrival[order[at]]) + transfer[g]
            if end < best:
                best, chosen_g, ties = end, g, 1
            elif end == best:
                ties += 1
                if next_random(state) % ties == 0:
                    chosen_g = g
        if chosen_g < 0:
            return INFINITE, out_item, out_generator, out_start
        g = chosen_g
        begin = best - transfer[g]
        # of up to 64 candidates one that few other generators can bring
        chosen, least, ties, looked, at = -1, np.int64(2**62), 1, 0, cursor[g]
        while at < count and looked < 64:
            have = order[at]
            at += 1
            if arrival[have] > begin:
                break
            reach = moved[g, have // copies] * copies + have % copies
            if arrival[reach] < INFINITE:
                continue
            looked += 1
            if options[reach] < least:
                chosen, least, ties = reach, options[reach], 1
            elif options[reach] == least:
                ties += 1
                if next_random(state) % ties == 0:
                    chosen = reach
        arrival[chosen] = best
        order[count] = chosen
        count += 1
        free[g] = begin + occupancy[g]
        out_item[done], out_generator[done], out_start[done] = chosen, g, begin
        done += 1
        makespan = max(makespan, best)
        for h in range(generators):
            options[moved[h, chosen // copies] * copies + chosen % copies] += 1
    return makespan, out_item, out_generator, out_start
