"""Numbers behind the pictures: units of time, runs of chunks, and shares of time by link."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from nestopt.collective.show.kinds import occupancy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

__all__ = ["BINS", "chunk_runs", "run_names", "shares", "time_unit"]

MOST_RUNS = 16
BINS = 200
_UNITS = ((1e12, "s"), (1e9, "ms"), (1e6, "us"), (1e3, "ns"), (1.0, "ps"))


def time_unit(picoseconds: int) -> tuple[float, str]:
    """Picoseconds of the unit that suits a time, and its name."""
    return next((row for row in _UNITS if picoseconds >= row[0]), _UNITS[-1])


def chunk_runs(chunks: int) -> NDArray[np.int64]:
    """First chunk of each run of chunks that share a colour, and the number of chunks at the end.

    A colour a chunk up to 16 chunks; beyond, 16 runs that differ by one chunk at most.
    """
    return np.linspace(0, chunks, min(chunks, MOST_RUNS) + 1).round().astype(np.int64)


def run_names(ends: NDArray[np.int64]) -> list[str]:
    """Names of the runs of `chunk_runs`: ``3`` of one chunk, ``4-7`` of four."""
    pairs = itertools.pairwise(ends.tolist())
    return [str(a) if b == a + 1 else f"{a}-{b - 1}" for a, b in pairs]


def shares(
    instance: CollectiveInstance,
    schedule: Schedule,
    row_of: NDArray[np.int64],
    rows: int | None = None,
    bins: int = BINS,
) -> NDArray[np.float64]:
    """Share of time for which each row's links are occupied, by bin of time, float64[rows, bins].

    Parameters
    ----------
    row_of : int64[E]
        The place of each link in the picture.
    rows : int, optional
        A row a link by default, at most 400; beyond, a row is the mean of neighbouring links.
    """
    lasts = occupancy(instance, schedule)
    links = instance.topology.num_links
    rows = min(links, 400) if rows is None else rows
    width = max(schedule.makespan_ps, 1) / bins
    table = np.zeros((rows, bins))
    row = row_of[schedule.link] * rows // links
    begin, end = schedule.start_ps / width, (schedule.start_ps + lasts) / width
    first = begin.astype(np.int64)
    longest = int(np.ceil((lasts / width).max())) + 1 if len(lasts) else 0
    for offset in range(longest):
        at = first + offset
        inside = np.clip(np.minimum(end, at + 1) - np.maximum(begin, at), 0, 1)
        good = (at < bins) & (inside > 0)
        np.add.at(table, (row[good], at[good]), inside[good])
    count = np.bincount(np.arange(links) * rows // links, minlength=rows)
    found: NDArray[np.float64] = table / count[:, None]
    return found
