"""All-to-All, Scatter and Gather on small networks: a search over paths and order at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.greedy.kernels.reroute import Paths, search_paths
from nestopt.collective.greedy.match import Sends
from nestopt.collective.greedy.network import link_times
from nestopt.collective.greedy.parallel import best_of
from nestopt.collective.greedy.portfolio import Found, tuned
from nestopt.collective.model.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nestopt.collective.greedy.portfolio import Job
    from nestopt.collective.model.topology import Topology

__all__ = ["rerouted", "routes_few"]

# paths that a pair of nodes chooses from, links of a path beyond the shortest, and the instances
# that are small enough: chunks, and nodes
MOST_PATHS, MORE_LINKS = 16, 2
MOST_CHUNKS, MOST_NODES = 1_500, 80
# nominal seconds of one evaluation: of each send, and besides
SECONDS_A_SEND, SECONDS_BESIDES = 1.5e-7, 1e-6
CHAINS = 6
# the rise of the makespan that is accepted at first, chain by chain
HEATS = (0.05, 0.02, 0.1, 0.01, 0.2, 0.0)


def routes_few(job: Job) -> bool:
    """Whether the instance is small enough."""
    few = job.instance.collective.num_chunks <= MOST_CHUNKS
    return tuned(job) and few and job.topology.num_nodes <= MOST_NODES


def rerouted(job: Job) -> Found | None:
    """The best of a few chains of simulated annealing, from the best paths so far."""
    if job.best is None or not isinstance(job.best.schedule, Schedule):
        return None
    paths, choice = _candidates(job, job.best.schedule)
    sends = int(np.diff(paths.first)[choice].sum())
    cost = SECONDS_A_SEND * sends + SECONDS_BESIDES
    rounds = int(min(4.0 * job.effort.seconds / cost / CHAINS, 20_000))
    if rounds < 20:
        return None
    search: Any = search_paths

    def attempt(index: int) -> tuple[int, Sends]:
        makespan, table, _ = search(
            paths,
            choice.copy(),
            job.topology.num_links,
            rounds,
            HEATS[index % len(HEATS)],
            job.effort.target,
            job.effort.seed * 7919 + index,
        )
        chunk, link, start = table
        return int(makespan), Sends(chunk.astype(np.int32), link.astype(np.int32), start)

    tries: Iterator[Callable[[], tuple[int, Sends]]] = (
        partial(attempt, index) for index in range(CHAINS)
    )
    found = best_of(
        tries, threads=job.effort.threads, target=job.effort.target, clock=job.effort.clock
    )
    if found is None:
        return None
    sends_ = found.value
    schedule = Schedule.of(sends_.chunk, sends_.link, sends_.start_ps, found.makespan)
    return Found(schedule, {"kernel": "reroute", "tries": found.tries})


def _candidates(job: Job, schedule: Schedule) -> tuple[Paths, Any]:
    """The paths of every chunk, its present one first, and the present choice."""
    topology, parts = job.topology, job.parts
    times = link_times(topology, parts, job.instance.latency)
    sizes = np.concatenate([np.full(p.num_chunks, p.chunk_size) for p in parts])
    size_of = np.searchsorted(times.sizes, sizes)
    source = np.concatenate([p.sources() for p in parts]).tolist()
    goal = np.concatenate([p.destinations() for p in parts]).tolist()
    order = np.lexsort((schedule.start_ps, schedule.chunk))
    present: list[list[int]] = [[] for _ in source]
    for c, e in zip(schedule.chunk[order].tolist(), schedule.link[order].tolist()):
        present[c].append(e)
    known: dict[tuple[int, int, int], list[list[int]]] = {}
    first, links, rows, of_chunk, choice = [0], [], [], [0], []
    for c, ends in enumerate(zip(source, goal, size_of.tolist())):
        if ends not in known:
            known[ends] = _paths(topology, times.transfer[ends[2]], ends[0], ends[1])
        choice.append(len(first) - 1)
        for path in [present[c], *(p for p in known[ends] if p != present[c])]:
            links += path
            rows += [ends[2]] * len(path)
            first.append(len(links))
        of_chunk.append(len(first) - 1)
    used, row = np.array(links, dtype=np.int64), np.array(rows, dtype=np.int64)
    paths = Paths(
        np.array(of_chunk, dtype=np.int64),
        np.array(first, dtype=np.int64),
        used,
        times.occupancy[row, used],
        times.transfer[row, used],
    )
    return paths, np.array(choice, dtype=np.int64)


def _paths(topology: Topology, transfer: Any, source: int, goal: int) -> list[list[int]]:
    """The quickest paths without a cycle, of few links more than the shortest."""
    ptr, out = topology.out_links()
    hops = _hops_to(topology, goal)
    most = int(hops[source]) + MORE_LINKS
    found: list[tuple[int, list[int]]] = []
    stack: list[tuple[int, list[int], tuple[int, ...]]] = [(0, [], (source,))]
    looked = 0
    while stack and looked < 20_000:
        spent, path, nodes = stack.pop()
        looked += 1
        if nodes[-1] == goal:
            found.append((spent, path))
            continue
        for e in out[ptr[nodes[-1]] : ptr[nodes[-1] + 1]].tolist():
            v = int(topology.dst[e])
            if v not in nodes and len(path) + 1 + hops[v] <= most:
                stack.append((spent + int(transfer[e]), [*path, e], (*nodes, v)))
    found.sort()
    return [path for _, path in found[:MOST_PATHS]]


def _hops_to(topology: Topology, goal: int) -> Any:
    """Least links from every node to a goal."""
    ptr, into = topology.in_links()
    far = np.full(topology.num_nodes, topology.num_nodes + 1, dtype=np.int64)
    far[goal] = 0
    front = [goal]
    while front:
        following = []
        for w in front:
            for e in into[ptr[w] : ptr[w + 1]].tolist():
                u = int(topology.src[e])
                if far[u] > far[w] + 1:
                    far[u] = far[w] + 1
                    following.append(u)
        front = following
    return far
