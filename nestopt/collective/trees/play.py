"""Trees as a schedule: which chunk takes which tree, and when each of its sends starts.

Chunks are dealt out to the trees of their root by weight, what is left over where it loads the
links least. Then every send waits for the one that brings its chunk, and links take what is ready
in order of a priority: list scheduling, so that chunks follow each other down a tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.collective.model.schedule import Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.trees.forest import Forest, Tree

__all__ = ["MOST_SENDS", "Plan", "in_time", "plan_chunks"]

MOST_SENDS = 6_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Sends in an order in which each comes after the one that brings its chunk.

    Attributes
    ----------
    chunk, link : int64[S]
        Chunks are numbered in their part.
    before : int64[S]
        The send that brings the chunk to where it leaves; -1 at the root.
    turn : int64[S]
        Which of its root's chunks the chunk is.
    """

    chunk: NDArray[np.int64]
    link: NDArray[np.int64]
    before: NDArray[np.int64]
    turn: NDArray[np.int64]


class _Links:
    """The links between each pair of nodes, and how much each carries already."""

    def __init__(self, instance: CollectiveInstance, size: int) -> None:
        topology = instance.topology
        self.time = topology.duration_ps(size)
        self.multicast = topology.multicast.tolist()
        self.load = np.zeros(topology.num_links, dtype=np.int64)
        self.between: dict[tuple[int, int], list[int]] = {}
        for e, pair in enumerate(zip(topology.src.tolist(), topology.dst.tolist())):
            self.between.setdefault(pair, []).append(e)

    def pick(self, pair: tuple[int, int]) -> int:
        """The link that has carried this chunk too the soonest."""
        links = self.between[pair]
        if len(links) == 1:
            return links[0]
        return min(links, key=lambda e: int(self.load[e] + self.time[e]))

    def take(self, route: tuple[int, ...]) -> list[int]:
        """The links of a route, loaded with one more chunk."""
        taken = []
        for pair in pairwise(route):
            e = self.pick(pair)
            self.load[e] += self.time[e]
            taken.append(e)
        return taken

    def worst(self, tree: Tree) -> int:
        """The greatest load of a link if one more chunk takes the tree."""
        worst = 0
        for routes in tree.routes:
            for pair in pairwise(routes[0][0]):
                e = self.pick(pair)
                worst = max(worst, int(self.load[e] + self.time[e]))
        return worst


def plan_chunks(instance: CollectiveInstance, part: Part, forest: Forest) -> Plan:
    """The copies of a part's chunks, each from its root along a tree.

    A chunk's root is where it starts or, in a reduction, where its sum is to be.
    """
    links = _Links(instance, part.chunk_size)
    of_root: dict[int, list[Tree]] = {}
    for tree in forest.trees:
        of_root.setdefault(tree.root, []).append(tree)
    roots, first = _runs(part)
    count = np.diff(first).tolist()
    dealt = {root: _shares(of_root[root], forest.copies, k) for root, k in zip(roots, count)}
    used: dict[int, list[list[int]]] = {}
    columns: list[list[int]] = [[], [], [], []]
    for turn in range(max(count)):
        for index, root in enumerate(roots):
            if turn >= count[index]:
                continue
            tree = _next_tree(of_root[root], dealt[root], links)
            counts = used.setdefault(id(tree), [[0] * len(r) for r in tree.routes])
            _send(tree, counts, links, int(first[index]) + turn, turn, columns)
    return Plan(*(np.array(column, dtype=np.int64) for column in columns))


def _runs(part: Part) -> tuple[list[int], NDArray[np.int64]]:
    """The roots of a part's chunks, and where the chunks of each begin (and end)."""
    if part.root is not None:
        return [part.root], np.array([0, part.num_chunks])
    n = len(part.npus)
    if part.chunks is not None:
        # an All-Reduce whose chunks are no multiple of its NPUs: dealt out in runs
        return part.npus.tolist(), -(-np.arange(n + 1) * part.chunks // n)
    return part.npus.tolist(), np.arange(n + 1) * part.chunks_per_npu


def _shares(trees: list[Tree], copies: int, chunks: int) -> tuple[list[int], list[int]]:
    """Whole chunks of each tree, and what is left over of each (of `copies`)."""
    whole = [tree.weight * chunks // copies for tree in trees]
    rest = [tree.weight * chunks % copies for tree in trees]
    return whole, rest


def _next_tree(trees: list[Tree], share: tuple[list[int], list[int]], links: _Links) -> Tree:
    """The tree of a root's next chunk: by turns, the leftovers where they load the links least."""
    whole, rest = share
    left = [i for i, count in enumerate(whole) if count > 0]
    if left:
        # the tree that is most behind its share
        index = max(left, key=lambda i: whole[i] / trees[i].weight)
        whole[index] -= 1
        return trees[index]
    open_ = [i for i, part in enumerate(rest) if part > 0]
    index = min(open_, key=lambda i: (links.worst(trees[i]), -rest[i]))
    rest[index] = 0
    return trees[index]


def _send(
    tree: Tree,
    counts: list[list[int]],
    links: _Links,
    chunk: int,
    turn: int,
    columns: list[list[int]],
) -> None:
    """Append the sends of one chunk down a tree."""
    brought = {tree.root: -1}
    for (origin, goal), routes, count in zip(tree.arcs, tree.routes, counts):
        which = 0
        if len(routes) > 1:
            which = min(range(len(routes)), key=lambda i: (count[i] + 1) / routes[i][1])
            count[which] += 1
        route = routes[which][0]
        # a node that multicasts, once it has the chunk, passes it on to all
        known = max(i for i, v in enumerate(route) if v in brought)
        before = brought[route[known]] if known else brought[origin]
        for v, e in zip(route[known + 1 :], links.take(route[known:])):
            columns[0].append(chunk)
            columns[1].append(e)
            columns[2].append(before)
            columns[3].append(turn)
            before = len(columns[0]) - 1
            if links.multicast[v]:
                brought[v] = before
        brought[goal] = before


def in_time(instance: CollectiveInstance, size: int, plan: Plan) -> Schedule:
    """The shortest of a few list schedules of a plan."""
    from nestopt.collective.greedy.kernels.list import list_schedule

    occupancy = instance.occupancy_ps(size)[plan.link]
    transfer = instance.transfer_ps(size)[plan.link]
    sends = len(plan.link)
    waits = (plan.before >= 0).astype(np.int64)
    order = np.argsort(plan.before, kind="stable")
    order = order[plan.before[order] >= 0]
    ptr = np.zeros(sends + 1, dtype=np.int64)
    np.cumsum(np.bincount(plan.before[order], minlength=sends), out=ptr[1:])
    depth, height = _spans(plan.before, transfer)
    period = int(np.bincount(plan.link, occupancy).max()) // max(int(plan.turn.max()) + 1, 1)
    best: Schedule | None = None
    for priority in (
        -height,
        plan.turn * period + depth,
        plan.turn * period - height,
        plan.turn * period // 2 - height,
        plan.turn * (int(height.max()) + 1) - height,
    ):
        start = np.empty(sends, dtype=np.int64)
        makespan = int(
            list_schedule(
                plan.link,
                occupancy,
                transfer,
                priority.astype(np.int64),
                ptr,
                order,
                waits.copy(),
                instance.topology.num_links,
                start,
            )
        )
        if best is None or makespan < best.makespan_ps:
            best = Schedule.of(plan.chunk, plan.link, start, makespan)
    assert best is not None
    return best


@njit(cache=True, nogil=True)
def _spans(before: Any, transfer: Any) -> tuple[Any, Any]:
    """Time from the root to each send, and from its start to the last arrival behind it."""
    depth = np.zeros(len(before), dtype=np.int64)
    height = transfer.copy()
    for i in range(len(before)):
        if before[i] >= 0:
            depth[i] = depth[before[i]] + transfer[before[i]]
    for i in range(len(before) - 1, -1, -1):
        if before[i] >= 0:
            height[before[i]] = max(height[before[i]], transfer[before[i]] + height[i])
    return depth, height
