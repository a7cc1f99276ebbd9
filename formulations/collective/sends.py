"""Between the sends of an exact model, in ticks, and schedules of the instance."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nestopt.collective.model.schedule import COPY, REDUCE, Schedule
from nestopt.formulations.collective.grid import GridProblem, Send, grid_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["pruned", "schedule_of", "sends_of"]


def pruned(problem: GridProblem, sends: Sequence[Send]) -> list[Send]:
    """The sends that serve a purpose, in order of their start.

    A model may let a chunk go where it is not needed, or a node without a contribution pass on an
    empty part. Dropped are copies into a node that neither needs nor forwards them, copies into a
    switch beyond those that it forwards (the first to arrive stay), and parts out of nodes that
    have nothing to add.
    """

    def arrival(s: Send) -> int:
        return s.start + int(problem.transfer[problem.chunks[s.chunk].size, s.link])

    kept = sorted(sends, key=lambda s: (arrival(s), s.start, s.link, s.chunk))
    while True:
        leaving = Counter((s.chunk, int(problem.src[s.link]), s.partial) for s in kept)
        arrived = Counter((s.chunk, int(problem.dst[s.link]), s.partial) for s in kept)
        seen: Counter[tuple[int, int]] = Counter()
        useful = []
        for s in kept:
            u, w = int(problem.src[s.link]), int(problem.dst[s.link])
            if s.partial:
                if u in problem.chunks[s.chunk].ready or arrived[s.chunk, u, True]:
                    useful.append(s)
                continue
            seen[s.chunk, w] += 1
            most = leaving[s.chunk, w, False]
            if w in problem.chunks[s.chunk].targets or (
                most if problem.multicast[w] else seen[s.chunk, w] <= most
            ):
                useful.append(s)
        if len(useful) == len(kept):
            return sorted(kept, key=lambda s: (s.start, s.link, s.chunk))
        kept = useful


def sends_of(work: CollectiveInstance, schedule: Schedule, tick: int, backward: bool) -> list[Send]:
    """A schedule of the instance as sends, in ticks, of the problem that is searched.

    Parameters
    ----------
    work : CollectiveInstance
        The instance, or its time-reversed copy if `backward`.
    """
    moved = [part for part in work.collective.parts if len(part.npus) > 1]
    if len(moved) != len(work.collective.parts):
        return []
    starts = schedule.start_ps
    if backward:
        sizes = work.collective.chunk_sizes[schedule.chunk]
        ends = starts.copy()
        for size in set(sizes.tolist()):
            same = sizes == size
            ends[same] += work.transfer_ps(size)[schedule.link[same]]
        starts = schedule.makespan_ps - ends
    rows = zip(
        schedule.chunk.tolist(), schedule.link.tolist(), starts.tolist(), schedule.phase.tolist()
    )
    return [Send(c, e, t // tick, p == REDUCE and not backward) for c, e, t, p in rows]


def schedule_of(
    work: CollectiveInstance,
    sends: Sequence[Send],
    tick: int,
    backward: bool,
    *,
    retime: bool = True,
) -> Schedule:
    """The schedule of the instance that sends in ticks stand for, every send as early as can be.

    Each link keeps its order and each send waits for what had arrived when it started in ticks, so
    that nothing gets later than its ticks say.

    Parameters
    ----------
    work : CollectiveInstance
        What was solved: the instance, or its time-reversed copy if `backward`.
    sends : sequence of Send
        Chunks by their index among the chunks that move.
    retime : bool
        Whether sends may be dropped that serve no purpose, and others start sooner than their
        ticks say.
    """
    problem = grid_problem(work, tick, round_up=True)
    exact = grid_problem(work, 1)
    kept = pruned(problem, sends) if retime else sorted(sends, key=lambda s: (s.start, s.link))
    free = [0] * problem.num_links
    arrivals: dict[tuple[int, int, bool], list[tuple[int, int]]] = {}
    taken: Counter[tuple[int, int, bool]] = Counter()
    starts, ends = [], []
    for s in kept:
        size, u = problem.chunks[s.chunk].size, int(problem.src[s.link])
        begin = max(free[s.link], _ready(problem, arrivals, taken, s, u))
        if not retime:
            begin = max(begin, s.start * tick)
        free[s.link] = begin + int(exact.occupancy[size, s.link])
        starts.append(begin)
        ends.append(begin + int(exact.transfer[size, s.link]))
        planned = s.start + int(problem.transfer[size, s.link])
        place = (s.chunk, int(problem.dst[s.link]), s.partial)
        arrivals.setdefault(place, []).append((planned, ends[-1]))
    makespan = max(ends, default=0)
    phase = [REDUCE if s.partial or backward else COPY for s in kept]
    return Schedule.of(
        [problem.chunks[s.chunk].number for s in kept],
        [s.link for s in kept],
        [makespan - end for end in ends] if backward else starts,
        makespan,
        phase,
    )


def _ready(
    problem: GridProblem,
    arrivals: dict[tuple[int, int, bool], list[tuple[int, int]]],
    taken: Counter[tuple[int, int, bool]],
    send: Send,
    node: int,
) -> int:
    """When everything that a send waits for has come to its source."""
    for partial in (True,) if send.partial else (False, True):
        place = (send.chunk, node, partial)
        come = sorted(row for row in arrivals.get(place, ()) if row[0] <= send.start)
        if not come:
            continue
        if not (problem.reduces if partial else problem.multicast)[node]:
            # piece by piece, in the order of arrival
            taken[place] += 1
            return come[taken[place] - 1][1]
        return max(row[1] for row in come) if partial else come[0][1]
    return 0
