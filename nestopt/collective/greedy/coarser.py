"""Schedules of larger chunks, each cut in pieces: more chunks are never worse than fewer."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.greedy.join import MOST_SENDS, durations, retime
from nestopt.collective.greedy.portfolio import Found, tuned
from nestopt.collective.model.of_result import in_columns
from nestopt.collective.model.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.collective.greedy.match import Effort
    from nestopt.collective.greedy.portfolio import Job
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.store import AnySchedule

    Solver = Callable[[CollectiveInstance, Effort], tuple[AnySchedule, dict[str, Any]]]

__all__ = ["divisible", "from_larger_chunks", "in_pieces"]

# (node, chunk) pairs above which the work is not done again with larger chunks, and those above
# which the search with larger chunks gets a part of the time only
MOST_CLAIMS = 200_000
FULL_CLAIMS = 3_000
PART = 0.2
# there, nothing is done about what is so near its bound already
NEAR = 1.03


def divisible(job: Job) -> bool:
    """Whether the chunks of all parts can be joined in equal runs."""
    if not tuned(job) or job.claims > MOST_CLAIMS or _pieces(job.instance) == 1:
        return False
    return job.claims <= FULL_CLAIMS or not job.near(NEAR)


def _pieces(instance: CollectiveInstance) -> int:
    """The least prime that divides the chunks an NPU of every part; 1 if there is none."""
    if any(part.chunks is not None for part in instance.collective.parts):
        return 1
    common = reduce(gcd, (part.chunks_per_npu for part in instance.collective.parts))
    return next((d for d in range(2, common + 1) if common % d == 0), 1)


def from_larger_chunks(job: Job, solve: Solver) -> Found | None:
    """The schedule of the same bytes in fewer chunks, each cut in pieces again."""
    pieces = _pieces(job.instance)
    parts = tuple(
        replace(
            part,
            chunk_size=part.chunk_size * pieces,
            chunks_per_npu=part.chunks_per_npu // pieces,
        )
        for part in job.parts
    )
    collective = replace(job.instance.collective, parts=parts)
    larger = replace(job.instance, collective=collective)
    share = 1.0 if job.claims <= FULL_CLAIMS else PART
    schedule, stats = solve(larger, replace(job.effort, seconds=share * job.effort.seconds))
    columns = in_columns(larger, schedule)
    if columns.num_sends * pieces > MOST_SENDS:
        return None
    cut = in_pieces(job.instance, larger, columns, pieces)
    return Found(cut, {"larger": stats})


def in_pieces(
    instance: CollectiveInstance, larger: CollectiveInstance, schedule: Schedule, pieces: int
) -> Schedule:
    """A schedule of `larger` as one of `instance`, whose chunks are pieces of the larger ones.

    Pieces follow each other over every link. Times are stretched by what the pieces take longer
    (each pays the latency), then every send is started as early as the order allows.
    """
    number = _first_pieces(instance, pieces)
    chunk = np.repeat(number[schedule.chunk], pieces)
    turn = np.tile(np.arange(pieces), schedule.num_sends)
    chunk = chunk + turn
    link = np.repeat(schedule.link, pieces)
    phase = np.repeat(schedule.phase, pieces)
    content = None if schedule.content is None else np.repeat(schedule.content, pieces)
    occupancy, transfer = np.empty_like(schedule.start_ps), np.empty_like(schedule.start_ps)
    sizes = instance.collective.chunk_sizes[number[schedule.chunk]]
    for size in np.unique(sizes):
        rows = sizes == size
        occupancy[rows] = instance.occupancy_ps(int(size))[schedule.link[rows]]
        transfer[rows] = instance.transfer_ps(int(size))[schedule.link[rows]]
    whole, reach = durations(larger, schedule)
    longer = max(
        (pieces * occupancy / whole).max(initial=1.0),
        (((pieces - 1) * occupancy + transfer) / reach).max(initial=1.0),
    )
    slack = 0 if longer == 1.0 else 1
    first = np.ceil(schedule.start_ps * longer).astype(np.int64) + slack * _ranks(schedule.start_ps)
    start = np.repeat(first, pieces) + turn * np.repeat(occupancy, pieces)
    last = int((start + np.repeat(transfer, pieces)).max(initial=0))
    cut = Schedule.of(chunk, link, start, last, phase, content, schedule.sets)
    return retime(instance, cut)


def _ranks(start: Any) -> Any:
    """Positions among the different starts: a picosecond each covers rounding."""
    return np.unique(start, return_inverse=True)[1].reshape(-1)


def _first_pieces(instance: CollectiveInstance, pieces: int) -> Any:
    """The first piece of every larger chunk: pieces are numbered in a row."""
    return np.arange(instance.collective.num_chunks // pieces) * pieces
