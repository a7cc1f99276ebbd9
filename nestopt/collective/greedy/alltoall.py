"""All-to-All, Scatter and Gather: load-aware routing, then list scheduling of the routes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.greedy.copies import NEAR
from nestopt.collective.greedy.kernels.list import search_priorities
from nestopt.collective.greedy.kernels.route import route
from nestopt.collective.greedy.known import KNOWN_EARLY, KNOWN_LATE
from nestopt.collective.greedy.match import Sends
from nestopt.collective.greedy.network import link_times
from nestopt.collective.greedy.parallel import Best, best_of
from nestopt.collective.greedy.portfolio import Entry, Found, Job, play, tuned
from nestopt.collective.greedy.reroute import rerouted, routes_few
from nestopt.collective.greedy.sums import backwards, with_patterns
from nestopt.collective.model.of_result import in_columns
from nestopt.collective.model.schedule import COPY, Schedule
from nestopt.core.errors import SolverError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from nestopt.collective.greedy.match import Effort
    from nestopt.collective.greedy.network import Times
    from nestopt.collective.model.collective import Part
    from nestopt.collective.model.topology import Topology

__all__ = ["ROUTES", "route_all"]

_POWERS = (8.0, 4.0, 16.0, 2.0)
# chunks above which what is so near its bound is not routed anew
MANY_CHUNKS = 10_000
GROWTH = 1.5
RULES = 3
_MIRRORED = {"scatter": "gather", "gather": "scatter"}


@dataclass(frozen=True, slots=True, eq=False)
class _Journeys:
    """Sends in order of chunk, then of step: a chunk's sends are its journey.

    Attributes
    ----------
    chunk, link, occupancy, transfer, remaining : int64[S]
        `remaining` is the time from a send's start to the end of its journey, without waiting.
    ptr : int64[chunks + 1]
        Where each chunk's sends begin.
    num_links : int
    """

    chunk: NDArray[np.int64]
    link: NDArray[np.int64]
    occupancy: NDArray[np.int64]
    transfer: NDArray[np.int64]
    remaining: NDArray[np.int64]
    ptr: NDArray[np.int64]
    num_links: int


def route_all(
    topology: Topology, parts: Sequence[Part], times: Times, effort: Effort
) -> Best[Sends]:
    """Route and schedule the chunks of parts whose chunks have one source and one destination.

    Several routings are scheduled; the priorities of the best are then searched.
    """
    routed: Best[tuple[_Journeys, int, Sends]] | None = best_of(
        _routings(topology, parts, times, effort),
        threads=effort.threads,
        target=effort.target,
        clock=effort.clock,
    )
    assert routed is not None
    journeys, rule, sends = routed.value
    found = Best(routed.makespan, sends, routed.index, routed.tries)
    if found.makespan <= effort.target or effort.restarts is not None or effort.clock.stop():
        return found
    better = best_of(
        _searches(journeys, rule, effort),
        threads=effort.threads,
        target=effort.target,
        clock=effort.clock,
    )
    if better is None or better.makespan >= found.makespan:
        return found
    return Best(better.makespan, better.value, better.index, routed.tries + better.tries)


def _routings(
    topology: Topology, parts: Sequence[Part], times: Times, effort: Effort
) -> Iterator[Callable[[], tuple[int, tuple[_Journeys, int, Sends]]]]:
    source = np.concatenate([part.sources() for part in parts])
    destination = np.concatenate([part.destinations() for part in parts])
    sizes = np.concatenate([np.full(part.num_chunks, part.chunk_size) for part in parts])
    size_of = np.searchsorted(times.sizes, sizes).astype(np.int32)
    # a tree of cheapest paths takes about 60 ns a link; the paths themselves a fraction of that
    tree = 6e-8 * topology.num_links
    batch = int(np.clip(len(source) * tree / (3.0 * effort.seconds), 1, 64))
    once = len(source) / batch * tree + 1e-6 * len(source)
    rounds = int(np.clip(0.2 * effort.seconds / once, 4, 60))

    def attempt(index: int) -> tuple[int, tuple[_Journeys, int, Sends]]:
        seed = effort.seed * 1_000_003 + index
        power = _POWERS[index % len(_POWERS)]
        length, paths = _route(
            topology, times, source, destination, size_of, rounds, batch, power, seed
        )
        journeys = _journeys(topology, times, size_of, length, paths)
        made: list[tuple[int, Sends]] = []
        for rule in range(RULES):
            if made and effort.clock.stop():
                break
            made.append(_schedule(journeys, rule, 0, effort.target, seed))
        best = min(range(len(made)), key=lambda rule: made[rule][0])
        return made[best][0], (journeys, best, made[best][1])

    for index in range(min(effort.tries(2 * rounds * once), 16)):
        yield partial(attempt, index)


def _searches(
    journeys: _Journeys, rule: int, effort: Effort
) -> Iterator[Callable[[], tuple[int, Sends]]]:
    """Searches of about 400 schedules each, from different seeds; none where one takes long."""
    rounds = int(np.clip(2.0 * effort.seconds / (4e-7 * len(journeys.link) + 1e-6), 0, 4000))
    length = min(400, rounds)
    for index in range(rounds // length if rounds >= 10 else 0):
        seed = effort.seed * 7919 + index
        yield partial(_schedule, journeys, rule, length, effort.target, seed)


def _route(
    topology: Topology,
    times: Times,
    source: NDArray[np.int32],
    destination: NDArray[np.int32],
    size_of: NDArray[np.int32],
    rounds: int,
    batch: int,
    power: float,
    seed: int,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Length and links of every chunk's path."""
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
            GROWTH,
            seed,
            length,
            paths,
        )
        if load >= 0:
            return length, paths
        if longest >= topology.num_nodes:
            raise SolverError("a chunk's destination cannot be reached")
        longest = min(topology.num_nodes, 4 * longest)


def _journeys(
    topology: Topology,
    times: Times,
    size_of: NDArray[np.int32],
    length: NDArray[np.int32],
    paths: NDArray[np.int32],
) -> _Journeys:
    used = np.arange(paths.shape[1])[None, :] < length[:, None]
    link = paths[used].astype(np.int64)
    chunk = np.repeat(np.arange(len(length), dtype=np.int64), length)
    transfer = times.transfer[size_of[chunk], link]
    total = np.cumsum(transfer)
    ptr = np.concatenate([[0], np.cumsum(length, dtype=np.int64)])
    return _Journeys(
        chunk=chunk,
        link=link,
        occupancy=times.occupancy[size_of[chunk], link],
        transfer=transfer,
        remaining=total[ptr[1:] - 1][chunk] - total + transfer,
        ptr=ptr,
        num_links=topology.num_links,
    )


def _priorities(journeys: _Journeys, rule: int, seed: int) -> NDArray[np.int64]:
    """Priorities of the sends, the least first, by one of three rules.

    The chunk with the most time still to travel first; chunks in a random order; or each chunk
    delayed at random by up to half of the greatest load of a link. The first is best where chunks
    travel different ways, the last two where all would cross the same links first.
    """
    rng = np.random.default_rng(seed)
    chunks = len(journeys.ptr) - 1
    if rule == 0:
        unit = max(int(journeys.transfer.mean()) // 4, 1) if len(journeys.link) else 1
        return rng.integers(0, unit, len(journeys.link)) - journeys.remaining
    if rule == 1:
        return rng.permutation(chunks)[journeys.chunk]
    load = np.bincount(journeys.link, journeys.occupancy)
    delay = rng.integers(0, int(load.max(initial=0)) // 2 + 1, chunks)
    whole = journeys.remaining[journeys.ptr[:-1]]
    return (delay + whole)[journeys.chunk] - journeys.remaining


def _schedule(
    journeys: _Journeys, rule: int, searches: int, target: int, seed: int
) -> tuple[int, Sends]:
    """List-schedule with the priorities of a rule, and search from there."""
    sends = len(journeys.link)
    waits = np.ones(sends, dtype=np.int32)
    waits[journeys.ptr[:-1]] = 0
    follows = np.ones(sends, dtype=np.int64)
    follows[journeys.ptr[1:] - 1] = 0
    start = np.empty(sends, dtype=np.int64)
    makespan = search_priorities(
        journeys.link,
        journeys.occupancy,
        journeys.transfer,
        _priorities(journeys, rule, seed),
        np.concatenate([[0], np.cumsum(follows)]),
        np.flatnonzero(follows) + 1,
        waits,
        journeys.num_links,
        journeys.chunk,
        journeys.ptr,
        searches,
        target,
        seed,
        start,
    )
    return int(makespan), Sends(
        journeys.chunk.astype(np.int32), journeys.link.astype(np.int32), start
    )


def _routed(job: Job) -> Found:
    times = link_times(job.topology, job.parts, job.instance.latency)
    found = route_all(job.topology, job.parts, times, job.effort)
    sends = found.value
    schedule = Schedule.of(sends.chunk, sends.link, sends.start_ps, found.makespan)
    return Found(schedule, {"kernel": "route", "tries": found.tries})


def _rooted(job: Job) -> bool:
    return tuned(job) and all(part.root is not None for part in job.parts)


def _turned_round(job: Job) -> Found | None:
    """Scatters as Gathers on the reversed network, backwards in time, and the other way round."""
    parts = with_patterns(job.instance, _MIRRORED)
    back = Job(replace(parts, topology=job.topology.reversed()), job.effort)
    found = play(ROUTES[:-1], back)
    if found is None:
        return None
    turned = backwards(job.instance, in_columns(back.instance, found.schedule))
    copied = replace(turned, phase=np.full(turned.num_sends, COPY, dtype=np.uint8))
    return Found(copied, found.stats)


def _behind_switches(entry: Entry) -> Entry:
    """An entry for networks with switches, where a known algorithm may be the best there is."""
    return replace(entry, when=lambda job: bool(job.topology.is_switch.any()) and entry.when(job))


def _between_npus(entry: Entry) -> Entry:
    return replace(entry, when=lambda job: not job.topology.is_switch.any() and entry.when(job))


def _worth_routing(job: Job) -> bool:
    """Not where a large instance is near its bound already."""
    return job.instance.collective.num_chunks <= MANY_CHUNKS or not job.near(NEAR)


ROUTES = (
    *KNOWN_EARLY,
    *(_behind_switches(entry) for entry in KNOWN_LATE),
    Entry("route", _routed, _worth_routing, "routes by load, then an order of the sends"),
    Entry("reroute", rerouted, routes_few, "small: paths and order are searched together"),
    *(_between_npus(entry) for entry in KNOWN_LATE),
    Entry("turned-round", _turned_round, _rooted, "a Scatter is a Gather, seen backwards in time"),
)
"""What makes All-to-Alls, Scatters and Gathers, in the order in which it is played."""
