"""All-to-All, Scatter and Gather: load-aware routing, then list scheduling of the routes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.greedy_match import Sends
from nestopt.collective.greedy_parallel import Best, best_of
from nestopt.errors import SolverError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from nestopt.collective.collective import Part
    from nestopt.collective.greedy_match import Effort
    from nestopt.collective.greedy_network import Times
    from nestopt.collective.topology import Topology

__all__ = ["route_all"]

_POWERS = (8.0, 4.0, 16.0, 2.0)


def route_all(
    topology: Topology, parts: Sequence[Part], times: Times, effort: Effort
) -> Best[Sends]:
    """Route and schedule the chunks of parts whose chunks have one source and one destination."""
    found = best_of(
        _tries(topology, parts, times, effort),
        threads=effort.threads,
        target=effort.target,
        stop=effort.stop,
    )
    assert found is not None
    return found


def _tries(
    topology: Topology, parts: Sequence[Part], times: Times, effort: Effort
) -> Iterator[Callable[[], tuple[int, Sends]]]:
    source = np.concatenate([part.sources() for part in parts])
    destination = np.concatenate([part.destinations() for part in parts])
    sizes = np.concatenate([np.full(part.num_chunks, part.chunk_size) for part in parts])
    size_of = np.searchsorted(times.sizes, sizes).astype(np.int32)
    # a tree of cheapest paths takes about 60 ns a link; the paths themselves a fraction of that
    trees = 6e-8 * topology.num_links
    batch = int(np.clip(len(source) * trees / (0.2 * effort.seconds), 1, 64))
    once = len(source) / batch * trees + 1e-6 * len(source)
    rounds = int(np.clip(effort.seconds / once, 4, 60))
    for index in range(effort.tries(rounds * once + 3e-6 * len(source))):
        yield partial(
            _try,
            topology,
            times,
            source,
            destination,
            size_of,
            rounds,
            batch,
            _POWERS[index % len(_POWERS)],
            effort.seed * 1_000_003 + index,
        )


def _try(
    topology: Topology,
    times: Times,
    source: NDArray[np.int32],
    destination: NDArray[np.int32],
    size_of: NDArray[np.int32],
    rounds: int,
    batch: int,
    power: float,
    seed: int,
) -> tuple[int, Sends]:
    from nestopt.collective.kernels_route import route

    in_ptr, in_links = topology.in_links()
    dest_ptr = np.zeros(topology.num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(destination, minlength=topology.num_nodes), out=dest_ptr[1:])
    longest = min(topology.num_nodes, 64)
    while True:
        length = np.zeros(len(source), dtype=np.int32)
        paths = np.zeros((len(source), longest), dtype=np.int32)
        load = route(
            topology.src,
            topology.dst,
            in_ptr,
            in_links,
            times.occupancy,
            times.transfer,
            source,
            destination,
            dest_ptr,
            np.argsort(destination, kind="stable"),
            size_of,
            rounds,
            batch,
            power,
            seed,
            length,
            paths,
        )
        if load >= 0:
            break
        if longest >= topology.num_nodes:
            raise SolverError("a chunk's destination cannot be reached")
        longest = min(topology.num_nodes, 4 * longest)
    return _schedule(topology, times, size_of, length, paths, seed)


def _schedule(
    topology: Topology,
    times: Times,
    size_of: NDArray[np.int32],
    length: NDArray[np.int32],
    paths: NDArray[np.int32],
    seed: int,
) -> tuple[int, Sends]:
    """List-schedule the routes, the chunk with the most time still to travel first."""
    from nestopt.collective.kernels_list import list_schedule

    used = np.arange(paths.shape[1])[None, :] < length[:, None]
    link = paths[used].astype(np.int64)
    chunk = np.repeat(np.arange(len(length), dtype=np.int32), length)
    occupancy = times.occupancy[size_of[chunk], link]
    transfer = times.transfer[size_of[chunk], link]
    last = np.cumsum(length) - 1
    # time from the start of each send to the end of its chunk's journey
    total = np.cumsum(transfer)
    remaining = total[last][chunk] - total + transfer
    unit = max(int(transfer.mean()) // 4, 1) if len(transfer) else 1
    noise = np.random.default_rng(seed).integers(0, unit, len(link))
    waits = np.ones(len(link), dtype=np.int32)
    waits[last - length + 1] = 0
    has_next = np.ones(len(link), dtype=np.int64)
    has_next[last] = 0
    next_ptr = np.zeros(len(link) + 1, dtype=np.int64)
    np.cumsum(has_next, out=next_ptr[1:])
    nexts = np.flatnonzero(has_next) + 1
    start = np.empty(len(link), dtype=np.int64)
    makespan = list_schedule(
        link,
        occupancy,
        transfer,
        noise - remaining,
        next_ptr,
        nexts,
        waits,
        topology.num_links,
        start,
    )
    return int(makespan), Sends(chunk, link.astype(np.int32), start)
