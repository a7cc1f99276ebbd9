"""Greedy synthesis in equal steps on small networks: driver of the maximum-matching kernel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.greedy.match import Sends
from nestopt.collective.greedy.parallel import Best, best_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nestopt.collective.greedy.match import Effort
    from nestopt.collective.greedy.network import Task

__all__ = ["match_in_rounds"]

_RANDOM = (10.0, 3.0, 1.0, 30.0, 0.3)


def match_in_rounds(task: Task, step_ps: int, effort: Effort) -> Best[Sends]:
    """The best schedule in steps of `step_ps` over a few seeds."""
    found: Best[Sends] | None = best_of(
        _tries(task, step_ps, effort),
        threads=effort.threads,
        target=effort.target,
        clock=effort.clock,
    )
    assert found is not None
    return found


def _tries(task: Task, step_ps: int, effort: Effort) -> Iterator[Callable[[], tuple[int, Sends]]]:
    for index in range(effort.tries(1e-6 * task.num_claims)):
        weight = _RANDOM[index % len(_RANDOM)]
        yield partial(_try, task, step_ps, weight, effort.seed * 1_000_003 + index)


def _try(task: Task, step_ps: int, weight: float, seed: int) -> tuple[int, Sends]:
    from nestopt.collective.greedy.kernels.rounds import match_rounds

    topology = task.topology
    in_ptr, in_links = topology.in_links()
    chunk = np.empty(task.num_claims, dtype=np.int32)
    link = np.empty(task.num_claims, dtype=np.int32)
    step = np.empty(task.num_claims, dtype=np.int64)
    # each step brings some member of some group a chunk closer: there are not more steps than that
    steps, sends = match_rounds(
        in_ptr,
        in_links,
        topology.src,
        topology.dst,
        task.source,
        task.part_of,
        task.member,
        weight,
        task.num_claims,
        seed,
        chunk,
        link,
        step,
    )
    return int(steps) * step_ps, Sends(
        chunk[:sends].copy(), link[:sends].copy(), step[:sends] * step_ps
    )
