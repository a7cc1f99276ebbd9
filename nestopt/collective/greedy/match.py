"""Greedy synthesis by events: policies, restarts and local search over a `Task`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.greedy.parallel import Best, best_of
from nestopt.collective.model.topology import grouped
from nestopt.core.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from nestopt.collective.greedy.network import Task
    from nestopt.collective.greedy.parallel import Clock

__all__ = ["POLICIES", "Effort", "Policy", "Sends", "match"]

_SPREADS = (0.0, 1.0, 0.5, 4.0, 0.1, 2.0, 8.0)
_NONE = np.zeros((1, 1))


@dataclass(frozen=True, slots=True)
class Policy:
    """How a link chooses among the chunks that it could carry; see `match_events`."""

    window: int = 1
    rare: float = 0.0
    far: float = 0.0
    random: float = 0.0
    patience: float = 0.0


POLICIES = {
    "rarest": Policy(window=64, rare=1.0, random=0.5),
    "critical-path": Policy(window=64, far=1.0, rare=0.3, random=0.3),
    "random": Policy(window=64, random=1.0),
    "fifo": Policy(),
    "patient": Policy(window=64, rare=1.0, random=0.5, patience=0.5),
}
_MIX = ("rarest", "rarest", "critical-path", "rarest", "patient", "rarest", "random", "fifo")


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to try.

    Attributes
    ----------
    policy : str or None
        One of `POLICIES`, or None for a mix of all with a local search after it.
    restarts : int or None
        Number of tries of the matching, without a search after it; None for as many as take about
        `seconds`.
    seconds : float
        Rough processor time to spend, turned into counts by fixed rates, so that a run does not
        depend on the machine.
    seed, threads : int
    target : int
        A lower bound: a schedule as short as this ends the search.
    clock : Clock
        Asked between tries.
    """

    policy: str | None
    restarts: int | None
    seconds: float
    seed: int
    threads: int
    target: int
    clock: Clock

    def __post_init__(self) -> None:
        if self.policy is not None and self.policy not in POLICIES:
            raise unknown_name("policy", self.policy, POLICIES)
        if self.restarts is not None and self.restarts < 1:
            raise UsageError(f"restarts={self.restarts}: expected 1 or more")

    def tries(self, cost: float) -> int:
        """How many tries of `cost` seconds each to make."""
        if self.restarts is not None:
            return self.restarts
        return int(np.clip(self.seconds / max(cost, 1e-9), 1, 128))


@dataclass(frozen=True, slots=True, eq=False)
class Sends:
    """Sends in no particular order: chunk int32[S], link int32[S], start_ps int64[S]."""

    chunk: NDArray[np.int32]
    link: NDArray[np.int32]
    start_ps: NDArray[np.int64]


def match(task: Task, effort: Effort) -> Best[Sends]:
    """The best schedule that the matching, its restarts and the local search find."""
    found: Best[Sends] | None = best_of(
        _matchings(task, effort), threads=effort.threads, target=effort.target, clock=effort.clock
    )
    assert found is not None
    default = effort.policy is None and effort.restarts is None
    chains = list(_chains(task, effort)) if default else []
    if not chains or found.makespan <= effort.target or effort.clock.stop():
        return found
    better: Best[Sends] | None = best_of(
        chains, threads=effort.threads, target=effort.target, clock=effort.clock
    )
    if better is None or better.makespan >= found.makespan:
        return found
    return Best(better.makespan, better.value, found.tries + better.index, better.tries)


def _matchings(task: Task, effort: Effort) -> Iterator[Callable[[], tuple[int, Sends]]]:
    affordable = task.topology.num_nodes <= 128
    distance = task.distances() if affordable else _NONE
    hops_a_port = len(task.hop_src) / max(len(task.port_ptr) - 1, 1)
    count = effort.tries((8e-7 + 1e-8 * hops_a_port) * task.num_claims)
    for index in range(count):
        name = effort.policy or _MIX[index % len(_MIX)]
        policy = POLICIES[name]
        if policy.far and not affordable:
            policy = POLICIES["rarest"]
        spread = 0.0 if task.plain else _SPREADS[index % len(_SPREADS)]
        yield partial(_matching, task, policy, distance, spread, effort.seed * 1_000_003 + index)


def _matching(
    task: Task, policy: Policy, distance: NDArray[np.float64], spread: float, seed: int
) -> tuple[int, Sends]:
    from nestopt.collective.greedy.kernels.event import match_events

    longest = int(np.diff(task.hop_ptr).max(initial=1))
    capacity = task.num_claims * longest
    chunk = np.empty(capacity, dtype=np.int32)
    link = np.empty(capacity, dtype=np.int32)
    start = np.empty(capacity, dtype=np.int64)
    makespan, sends = match_events(
        task.port_ptr,
        task.hop_src,
        task.hop_dst,
        task.hop_ptr,
        task.hop_links,
        task.node_ptr,
        task.node_ports,
        task.times.occupancy,
        task.times.transfer,
        task.size_of,
        task.source,
        task.part_of,
        task.member,
        task.relays,
        distance,
        policy.window,
        policy.rare,
        policy.far,
        policy.random,
        policy.patience,
        spread,
        seed,
        chunk,
        link,
        start,
    )
    return int(makespan), Sends(chunk[:sends].copy(), link[:sends].copy(), start[:sends].copy())


def _chains(task: Task, effort: Effort) -> Iterator[Callable[[], tuple[int, Sends]]]:
    """Local searches from different seeds; none where a decoding takes too long."""
    degree = task.topology.num_links / task.topology.num_nodes
    cost = task.num_claims * (1e-7 + 2e-9 * degree * len(task.source))
    rounds = int(3.0 * effort.seconds / cost)
    if not task.plain or rounds < 60:
        return
    rounds = min(rounds, 6000)
    length = min(400, rounds)
    ptr, near = _near(task)
    for index in range(rounds // length):
        yield partial(_chain, task, ptr, near, length, effort.target, effort.seed * 7919 + index)


def _near(task: Task) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Links that enter or leave each node, as (ptr, links)."""
    ends = np.concatenate([task.hop_src, task.hop_dst])
    links = np.tile(np.arange(len(task.hop_src)), 2)
    ptr, order = grouped(ends, task.topology.num_nodes)
    return ptr, links[order]


def _chain(
    task: Task,
    ptr: NDArray[np.int64],
    near: NDArray[np.int64],
    rounds: int,
    target: int,
    seed: int,
) -> tuple[int, Sends]:
    from nestopt.collective.greedy.kernels.search import search

    chunk = np.empty(task.num_claims, dtype=np.int32)
    link = np.empty(task.num_claims, dtype=np.int32)
    start = np.empty(task.num_claims, dtype=np.int64)
    makespan, sends, _ = search(
        task.hop_src,
        task.hop_dst,
        ptr,
        near,
        task.times.occupancy,
        task.times.transfer,
        task.size_of,
        task.source,
        task.part_of,
        task.member,
        rounds,
        target,
        seed,
        chunk,
        link,
        start,
    )
    return int(makespan), Sends(chunk[:sends].copy(), link[:sends].copy(), start[:sends].copy())
