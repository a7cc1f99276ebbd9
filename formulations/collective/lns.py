"""Large-neighbourhood search on schedules: free a part of a schedule and let CP-SAT repair it.

A neighbourhood frees the copies of some chunks from some tick on; everything else stays and keeps
its links. CP-SAT minimizes how many chunks arrive too late for a makespan below the present one;
once none does, the schedule is shorter. A sum is freed whole, or only where it is
copied; every other neighbourhood is taken on the time-reversed instance, where partial sums are the
copies.

References
----------
P. Shaw, Using constraint programming and local search methods to solve vehicle routing problems,
CP 1998.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.model.connectivity import find_separation
from nestopt.collective.model.schedule import COPY, REDUCE, Schedule
from nestopt.core.errors import UsageError
from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.core.stop import noticed, requested
from nestopt.formulations.collective.cpsat import CollectiveCpsat
from nestopt.formulations.collective.grid import Chunk, GridProblem, Send, finest_tick, grid_problem
from nestopt.formulations.collective.intervals import CollectiveIntervals
from nestopt.formulations.collective.search import starting_schedule
from nestopt.formulations.collective.sends import schedule_of, sends_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.core.options import SolveOptions

__all__ = ["flipped", "improve", "solve"]

_VARIABLES = 20_000
_INTERVALS = 3_000
_GRID_TICKS = 150


def solve(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Improve a greedy schedule, or a warm start, until it meets the bound or the limit.

    ``--set`` keys: ``iterations`` (neighbourhoods at most, 1000 by default), ``effort``
    (deterministic time of CP-SAT for each, 2 by default). Without a time limit a run is repeatable.
    """
    from nestopt.collective.bounds import best_bound
    from nestopt.collective.greedy.solve import schedule_result
    from nestopt.collective.judge.check import check_schedule

    begin = time.perf_counter()
    separation = find_separation(instance)
    if separation is not None:
        return schedule_result(instance, options, "lns", begin, None, infeasible=separation.message)
    iterations = _number(options, "iterations", 1000)
    effort = _number(options, "effort", 2)
    bound = best_bound(instance, time_limit=options.time_limit / 4)
    start = starting_schedule(instance, options, int(bound["value"]), options.time_limit / 4)
    deadline = begin + options.time_limit
    search = _Search(instance, start, int(bound["value"]), options, begin, deadline)
    search.run(iterations, effort)
    schedule = search.schedule
    check_schedule(instance, schedule)
    value = min(int(bound["value"]), schedule.makespan_ps)
    ended = Termination(Reason.OPTIMAL)
    if value < schedule.makespan_ps:
        ended = Termination(Reason.FEASIBLE, search.limit)
    return Result(
        problem="collective",
        instance=instance_record(instance),
        method="lns",
        termination=ended,
        objective=schedule.makespan_ps,
        bound=value,
        seconds=time.perf_counter() - begin,
        seed=options.seed,
        threads=options.threads,
        solution_json=schedule.to_json(),
        witness=bound["witness"] | {"name": bound["name"]},
        stats={
            "start_ps": start.makespan_ps,
            "iterations": search.iterations,
            "improvements": search.improvements,
        },
    )


def improve(
    instance: CollectiveInstance,
    schedule: Schedule,
    bound: int,
    options: SolveOptions,
    *,
    iterations: int = 1000,
    effort: float = 2.0,
) -> Schedule:
    """The schedule after at most so many neighbourhoods; never longer than it was."""
    begin = time.perf_counter()
    search = _Search(instance, schedule, bound, options, begin, begin + options.time_limit)
    search.run(iterations, effort)
    return search.schedule


def _number(options: SolveOptions, key: str, default: int) -> int:
    given = options.set.get(key, str(default))
    if not given.isdigit() or int(given) < 1:
        raise UsageError(f"--set {key}={given}: expected a positive whole number")
    return int(given)


def flipped(
    instance: CollectiveInstance, schedule: Schedule
) -> tuple[CollectiveInstance, Schedule]:
    """The time-reversed instance and its schedule, the given one run backwards."""
    from nestopt.collective.bounds import reverse_instance

    back = reverse_instance(instance)
    sizes = instance.collective.chunk_sizes[schedule.chunk]
    ends = schedule.start_ps.copy()
    for size in set(sizes.tolist()):
        same = sizes == size
        ends[same] += instance.transfer_ps(size)[schedule.link[same]]
    number = np.arange(instance.collective.num_chunks)
    first = 0
    for part in instance.collective.parts:
        n, k = len(part.npus), part.chunks_per_npu
        if part.pattern == "all-to-all":
            # the chunk from i to j becomes the one from j to i
            i, j = np.nonzero(~np.eye(n, dtype=bool))
            turned = j * (n - 1) + i - (i > j)
            local = turned[:, None] * k + np.arange(k)
            number[first : first + part.num_chunks] = first + local.reshape(-1)
        first += part.num_chunks
    chunk = number[schedule.chunk]
    moves_sum = back.collective.reduction[chunk] & (schedule.phase == COPY)
    phase = np.where(moves_sum, REDUCE, COPY)
    starts = schedule.makespan_ps - ends
    return back, Schedule.of(chunk, schedule.link, starts, schedule.makespan_ps, phase)


@dataclass(frozen=True, slots=True)
class _Neighbourhood:
    """Which chunks are freed, from which tick on, and whether their partial sums are too."""

    chunks: frozenset[int]
    start: int
    sums: bool


class _Search:
    def __init__(
        self,
        instance: CollectiveInstance,
        schedule: Schedule,
        bound: int,
        options: SolveOptions,
        begin: float,
        deadline: float,
    ) -> None:
        self.instance, self.schedule, self.bound = instance, schedule, bound
        self.options, self.begin, self.deadline = options, begin, deadline
        self.rng = np.random.default_rng(options.seed)
        self.tick = finest_tick(instance)
        self.iterations = self.improvements = 0
        self.limit = Limit.ITERATIONS
        # shares of what may be freed, by direction; they grow where nothing is found
        self.share = [0.25, 0.25]
        # and then the effort spent on each
        self.patience = 1.0

    def run(self, iterations: int, effort: float) -> None:
        """Neighbourhood after neighbourhood."""
        copies = [part for part in self.instance.collective.parts if not part.reduction]
        whole = [p for p in self.instance.collective.parts if p.pattern == "all-reduce"]
        directions = [False] * bool(copies or whole)
        directions += [True] * any(p.reduction for p in self.instance.collective.parts)
        if any(len(part.npus) == 1 for part in self.instance.collective.parts):
            # their chunks are left out of a grid problem, which then numbers chunks otherwise
            return
        while directions and self.schedule.makespan_ps > self.bound:
            if self.iterations >= iterations:
                return
            if time.perf_counter() >= self.deadline or requested():
                self.limit = Limit.TIME
                return
            backward = directions[self.iterations % len(directions)]
            self.iterations += 1
            try:
                self._step(backward, effort)
            except KeyboardInterrupt:
                noticed()
                self.limit = Limit.INTERRUPTED
                return

    def _step(self, backward: bool, effort: float) -> None:
        work, schedule = self.instance, self.schedule
        if backward:
            work, schedule = flipped(work, schedule)
        problem = grid_problem(work)
        sends = sends_of(work, schedule, self.tick, False)
        horizon = schedule.makespan_ps // self.tick
        target = max(-(-self.bound // self.tick), min(horizon - 1, horizon - horizon // 400))
        chosen = self._choose(problem, sends, horizon, target, backward)
        if chosen is None:
            return
        residual, fixed, freed = _residual(problem, sends, chosen)
        found = self._repair(residual, freed, horizon, target, effort)
        if found is None:
            self._insist(backward)
            return
        renamed = [replace(s, chunk=residual.chunks[s.chunk].number) for s in found]
        improved = schedule_of(work, [*fixed, *renamed], self.tick, False)
        if improved.makespan_ps > schedule.makespan_ps:
            return
        if improved.makespan_ps < schedule.makespan_ps:
            self.improvements += 1
            self.share[backward] = max(0.1, 0.8 * self.share[backward])
            self.patience = 1.0
        else:
            self._insist(backward)
        self.schedule = flipped(work, improved)[1] if backward else improved
        if self.options.progress is not None:
            spent = time.perf_counter() - self.begin
            self.options.progress(spent, self.schedule.makespan_ps, self.bound, "lns")

    def _insist(self, backward: bool) -> None:
        """After a neighbourhood without gain: larger ones, then more time for each."""
        if self.share[backward] >= 1.0:
            self.patience = min(32.0, 1.1 * self.patience)
        self.share[backward] = min(1.0, 1.05 * self.share[backward])

    def _choose(
        self,
        problem: GridProblem,
        sends: Sequence[Send],
        horizon: int,
        target: int,
        backward: bool,
    ) -> _Neighbourhood | None:
        """Chunks that are late, others that cross the same nodes, and a time to start from."""
        late: dict[int, set[int]] = {}
        for s in sends:
            arrival = s.start + int(problem.transfer[problem.chunks[s.chunk].size, s.link])
            if arrival > target and not s.partial:
                late.setdefault(s.chunk, set()).add(int(problem.dst[s.link]))
        if not late:
            return None
        limit = _VARIABLES if self._by_grid(problem, horizon) else _INTERVALS
        whole = len({s.chunk for s in sends})
        # a switch that passes on piece by piece has no state that could be cut in two
        windowed = bool(problem.multicast.all()) and self.rng.random() < 0.6
        start = 0
        if windowed:
            start = int(horizon * (1.0 - self.rng.uniform(0.5, 1.5) * self.share[backward]))
            start = max(0, min(start, target - 1))
        room = limit / (problem.num_links * max(1, horizon - start))
        if not self._by_grid(problem, horizon):
            room = limit / (problem.num_links * max(0.05, (horizon - start) / horizon))
        count = max(
            1, min(int(room), math.ceil(whole if windowed else self.share[backward] * whole))
        )
        order = self.rng.permutation(sorted(late)).tolist()
        picked = order[: max(1, count if windowed else (count + 1) // 2)]
        # neighbours: chunks that came to the nodes where the picked ones are late
        near = set().union(*(late[c] for c in picked))
        others = {s.chunk for s in sends if int(problem.dst[s.link]) in near and not s.partial}
        related = self.rng.permutation(sorted(others - set(picked))).tolist()
        rest = self.rng.permutation(sorted({s.chunk for s in sends} - others)).tolist()
        for c in [*related, *rest]:
            if len(picked) >= count:
                break
            if c not in picked:
                picked.append(c)
        sums = start == 0 and not windowed and bool(self.rng.random() < 0.7)
        return _Neighbourhood(frozenset(picked), start, sums)

    def _by_grid(self, problem: GridProblem, horizon: int) -> bool:
        return horizon <= _GRID_TICKS and int(problem.transfer.max()) <= 8

    def _repair(
        self,
        residual: GridProblem,
        freed: Sequence[Send],
        horizon: int,
        target: int,
        effort: float,
    ) -> list[Send] | None:
        """Sends in place of those freed, with no more late arrivals; None if none were found."""
        settings: dict[str, Any] = {
            "threads": self.options.threads,
            "seed": int(self.rng.integers(2**31 - 1)),
            "deterministic_time": effort * self.patience,
            "time_limit": max(0.01, self.deadline - time.perf_counter()),
        }
        index = {chunk.number: c for c, chunk in enumerate(residual.chunks)}
        hint = [replace(s, chunk=index[s.chunk]) for s in freed if s.chunk in index]
        if self._by_grid(residual, horizon):
            grid = CollectiveCpsat(residual, horizon)
            grid.minimize_late(target)
            outcome, sends = grid.solve(hint, **settings)
        else:
            times = CollectiveIntervals(residual, 0, horizon)
            times.minimize_late(target)
            outcome, sends = times.solve(hint, **settings)
        return None if outcome.values is None else sends


def _residual(
    problem: GridProblem, sends: Sequence[Send], chosen: _Neighbourhood
) -> tuple[GridProblem, list[Send], list[Send]]:
    """The problem that is left when some sends stay; those that stay; those that are freed."""
    fixed: list[Send] = []
    freed: list[Send] = []
    for s in sends:
        stays = s.chunk not in chosen.chunks or s.start < chosen.start
        (fixed if stays or (s.partial and not chosen.sums) else freed).append(s)
    ready: dict[int, dict[int, int]] = {}
    parts: dict[int, list[tuple[int, int]]] = {}
    for c in chosen.chunks:
        chunk = problem.chunks[c]
        ready[c] = {} if chunk.is_sum else dict(chunk.ready)
    busy: dict[int, list[tuple[int, int]]] = {}
    for s in fixed:
        size = problem.chunks[s.chunk].size
        end = s.start + int(problem.occupancy[size, s.link])
        busy.setdefault(s.link, []).append((s.start, end))
        if s.chunk not in chosen.chunks:
            continue
        arrival = s.start + int(problem.transfer[size, s.link])
        node = int(problem.dst[s.link])
        if s.partial:
            parts.setdefault(s.chunk, []).append((arrival, node))
        elif node not in ready[s.chunk] or arrival < ready[s.chunk][node]:
            ready[s.chunk][node] = arrival
    for c, come in parts.items():
        # the last part to arrive anywhere arrives where the sum becomes whole
        arrival, root = max(come)
        ready[c][root] = arrival
    chunks = []
    for c in sorted(chosen.chunks):
        chunk = problem.chunks[c]
        if chunk.is_sum and chosen.sums:
            chunks.append(chunk)
            continue
        open_targets = frozenset(chunk.targets - set(ready[c]))
        if not open_targets:
            continue
        held = {v: max(t, chosen.start) for v, t in ready[c].items()}
        chunks.append(Chunk(c, chunk.size, held, open_targets))
    # the rest of a chunk that has been everywhere it must go served no purpose
    kept = {chunk.number for chunk in chunks}
    freed = [s for s in freed if s.chunk in kept]
    return replace(problem, chunks=tuple(chunks), busy=busy), fixed, freed
