"""The search for the least makespan where partial sums may be copied.

Horizon after horizon is decided upwards from the bound, as for sums that move. A schedule known
beforehand (greedy's, or one of the exchanges of `nestopt.collective.baselines.exchange`) ends it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.model.schedule import COPY, SHARE, Schedule
from nestopt.core.result import Limit, Reason
from nestopt.formulations.collective.grid import GridProblem, finest_tick, grid_problem
from nestopt.formulations.collective.search import Search
from nestopt.formulations.collective.shared.cpsat import SharedCpsat
from nestopt.formulations.collective.shared.milp import SharedMilp
from nestopt.formulations.collective.shared.windows import MOST_MEMBERS, SetWindows

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["Messages", "schedule_of_messages", "search_shared"]

MOST_LITERALS = 1_500_000
Messages = list[tuple[int, int, int, int]]


def search_shared(
    kind: str,
    instance: CollectiveInstance,
    low: int,
    schedule: Schedule | None,
    left: Callable[[], float],
    settings: Callable[[float], dict[str, Any]],
    stats: dict[str, Any],
) -> tuple[int, Schedule | None, Limit]:
    """Raise the bound and improve the schedule (picoseconds) until they meet.

    Parameters
    ----------
    kind : str
        ``cpsat`` or ``milp``.
    left : callable
        Seconds left.
    settings : callable
        Settings of the solver for so many seconds.
    stats : dict
        What happened is added to it.
    """
    schedule = _with_exchanges(instance, schedule)
    tick = finest_tick(instance)
    stats |= {"tick_ps": tick, "model": "sets on a grid"}
    problem = grid_problem(instance)
    refusal = _refusal(problem)
    if refusal:
        stats["note"] = refusal
        return low, schedule, Limit.ITERATIONS
    state = Search(max(1, problem.lower_bound(), -(-low // tick)))
    if schedule is not None:
        state.high = schedule.makespan_ps // tick
    stats["horizons"] = state.log
    best = schedule
    skipped: set[int] = set()
    while state.high is None or state.low < state.high:
        if left() <= 0:
            state.limit = Limit.TIME
            break
        horizon = _next(state, skipped)
        if horizon is None:
            state.limit = Limit.TIME
            break
        windows = SetWindows(problem, horizon)
        if windows.size() > MOST_LITERALS:
            stats["note"] = f"a model of {horizon} ticks would have {windows.size()} literals"
            state.limit = Limit.MEMORY
            break
        begin = time.perf_counter()
        model = _model(kind, problem, horizon, windows)
        share = left() / 2 if state.high is None or horizon + 1 < state.high else left()
        outcome, messages = model.solve(**settings(max(0.01, share)))
        answer = outcome.termination.reason
        seconds = round(time.perf_counter() - begin, 3)
        state.log.append({"horizon": horizon, "answer": answer.value, "seconds": seconds})
        if answer is Reason.ERROR:
            stats["error"] = outcome.note
            state.limit = Limit.ITERATIONS
            break
        if answer is Reason.INFEASIBLE:
            state.low = max(state.low, horizon + 1)
        elif messages:
            best = schedule_of_messages(instance, problem, windows, messages)
            state.high = best.makespan_ps // tick
        else:
            skipped.add(horizon)
        if outcome.termination.limit is Limit.INTERRUPTED:
            state.limit = Limit.INTERRUPTED
            break
    return max(low, state.low * tick), best, state.limit


def _next(state: Search, skipped: set[int]) -> int | None:
    """The next horizon that has not been left undecided."""
    horizon = state.next_horizon()
    top = horizon + len(skipped) + 1 if state.high is None else state.high
    found = [h for h in range(horizon, top) if h not in skipped]
    found += [h for h in range(state.low, horizon) if h not in skipped]
    return found[0] if found else None


def _model(kind: str, problem: GridProblem, horizon: int, windows: SetWindows) -> Any:
    if kind == "milp":
        return SharedMilp(problem, horizon, windows)
    return SharedCpsat(problem, horizon, windows)


def _refusal(problem: GridProblem) -> str:
    """Why a problem has no model; empty if it has one."""
    members = max((len(chunk.ready) for chunk in problem.chunks if chunk.is_sum), default=0)
    if members > MOST_MEMBERS:
        return f"sums of {members} contributions; a model of copied sums has at most {MOST_MEMBERS}"
    if (problem.reduces & ~problem.multicast).any():
        return "a switch that adds but cannot copy has no model where sums are copied"
    return ""


def _with_exchanges(instance: CollectiveInstance, schedule: Schedule | None) -> Schedule | None:
    """The shorter of a schedule and of the exchanges that are known."""
    from nestopt.collective.baselines.exchange import exchange_schedule

    if schedule is None:
        # none was wanted to start from
        return None
    found = exchange_schedule(instance)
    return found if found is not None and found.makespan_ps < schedule.makespan_ps else schedule


def schedule_of_messages(
    instance: CollectiveInstance, problem: GridProblem, windows: SetWindows, messages: Messages
) -> Schedule:
    """The schedule of the messages that serve a purpose."""
    used: set[tuple[int, int, int, int]] = set()
    into: dict[tuple[int, int], Messages] = {}
    for message in messages:
        into.setdefault((message[0], int(problem.dst[message[2]])), []).append(message)

    def fetch(c: int, mask: int, v: int, by: int) -> None:
        """Mark the messages of which a node forms a set by a tick."""
        stack = [(c, mask, v, by)]
        while stack:
            c, mask, v, by = stack.pop()
            come = [m for m in into.get((c, v), []) if m[3] + windows.transfer(c, m[2]) <= by]
            if not problem.multicast[v]:
                come = [m for m in come if m[1] == mask and m not in used][:1]
            parts = _cover(mask, windows.own(c, v), come, used)
            assert parts is not None
            for message in parts:
                if message not in used:
                    used.add(message)
                    stack.append((c, message[1], int(problem.src[message[2]]), message[3]))

    for c, v in windows.deliveries():
        fetch(c, windows.full(c), v, windows.horizon)
    sent = sorted(used, key=lambda m: (m[3], m[2], m[0]))
    index: dict[tuple[int, ...], int] = {}
    content = []
    for c, mask, _, _ in sent:
        whole = mask == windows.full(c)
        group = instance.collective.pre(problem.chunks[c].number).tolist()
        ranks = tuple(i for i in range(len(group)) if mask >> i & 1)
        content.append(-1 if whole else index.setdefault(ranks, len(index)))
    ends = [start + windows.transfer(c, e) for c, _, e, start in sent]
    states = any(number >= 0 for number in content)
    return Schedule.of(
        [problem.chunks[m[0]].number for m in sent],
        [m[2] for m in sent],
        np.array([m[3] for m in sent], dtype=np.int64) * problem.tick,
        max(ends, default=0) * problem.tick,
        [COPY if number < 0 else SHARE for number in content],
        content if states else None,
        list(index) if states else (),
    )


def _cover(
    mask: int, own: int, come: Messages, used: set[tuple[int, int, int, int]]
) -> Messages | None:
    """Messages whose sets, with a node's own contribution, make up a set; None if none do."""
    if mask == 0:
        return []
    low = mask & -mask
    if own & low and not own & ~mask:
        rest = _cover(mask ^ own, 0, come, used)
        if rest is not None:
            return rest
    # what is used anyway first, then the largest set
    for message in sorted(come, key=lambda m: (m not in used, -m[1].bit_count(), m)):
        if message[1] & low and not message[1] & ~mask:
            rest = _cover(mask ^ message[1], own, come, used)
            if rest is not None:
                return [message, *rest]
    return None
