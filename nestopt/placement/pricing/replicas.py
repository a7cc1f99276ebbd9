"""Plans that state the shares of their replicas: what each replica takes and needs.

Implements ``MODEL.md``, section 6. What a stage communicates, and its boundaries, are priced for
all replicas together; the time of its operators is of the device types of each replica alone.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.schedules import PipelineSchedule

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = ["best_shares", "most_held", "pipeline_time", "types_by_replica"]


def types_by_replica(cluster: Cluster, devices: Ints) -> list[tuple[int, ...]]:
    """The device types in each row of a stage's devices (d, w), as sorted indices."""
    return [tuple(np.unique(row).tolist()) for row in cluster.type_of[devices]]


def pipeline_time(seconds: Floats, shares: Sequence[int], schedule: PipelineSchedule) -> float:
    """When the last replica is through, before synchronisation.

    Parameters
    ----------
    seconds : float array (d, s)
        t of every replica's stages.
    shares : sequence of int
    """
    latest = 0.0
    for row, share in zip(seconds, shares, strict=True):
        weights = schedule.weights("iteration-time", share)
        latest = max(latest, weights.total * float(row.sum()) + weights.largest * float(row.max()))
    return latest


def most_held(
    schedule: PipelineSchedule, fixed: float, stored: float, room: float, left: int, most: int
) -> int:
    """The largest share (at most `most`) with which a stage fits, 0 for none.

    Parameters
    ----------
    fixed, stored, room : float
        Bytes: whatever the share, of one micro-batch in flight, and usable.
    left : int
        Stages from this one to the last.
    """

    def fits(share: int) -> bool:
        return fixed + schedule.in_flight(share, left, left) * stored <= room

    if fits(most):
        return most
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def best_shares(
    first: Floats, each: Floats, most: Ints, total: int
) -> tuple[float, tuple[int, ...]]:
    """The shares with which the last replica is through soonest: (seconds, shares), exactly.

    Micro-batches are dealt one by one to the replica that would be through with one more soonest.
    No other shares are better: a replica that has more than another solution gives it, while others
    have less, was through with its last one no later than one of those would have been. Without
    shares that fit, seconds are infinite.

    Parameters
    ----------
    first, each : float arrays (d,)
        Seconds of a replica with its first micro-batch, and with each one more.
    most : int array (d,)
        The most that each replica may take.
    total : int
        Micro-batches of all replicas together; each takes at least one.
    """
    d = len(first)
    if total < d or most.min() < 1 or int(most.sum()) < total:
        return float("inf"), ()
    shares = np.ones(d, dtype=np.int64)
    rest = total - d
    if rest:
        # all that some real time before the optimum surely has room for, then the last ones
        bounded = np.minimum(most, total)
        low, high = 0.0, float((first + (bounded - 1) * each).max())
        for _ in range(60):
            middle = 0.5 * (low + high)
            dealt = _within(first, each, bounded, middle)
            low, high = (middle, high) if int(dealt.sum()) <= total else (low, middle)
        dealt = _within(first, each, bounded, low * (1 - 1e-9))
        shares = dealt if int(dealt.sum()) <= total else shares
        rest = total - int(shares.sum())
    line = [(float(first[r] + shares[r] * each[r]), r) for r in range(d) if shares[r] < most[r]]
    heapq.heapify(line)
    for _ in range(rest):
        _, r = heapq.heappop(line)
        shares[r] += 1
        if shares[r] < most[r]:
            heapq.heappush(line, (float(first[r] + shares[r] * each[r]), r))
    return float((first + (shares - 1) * each).max()), tuple(shares.tolist())


def _within(first: Floats, each: Floats, most: Ints, seconds: float) -> Ints:
    """How many micro-batches each replica ends within a time, one at least."""
    left = np.maximum(0.0, seconds - first)
    # a replica without any work takes all that it may
    more = np.divide(left, each, out=np.full(len(each), np.inf), where=each > 0)
    more = np.where(seconds >= first, more, 0.0)
    return np.asarray(1 + np.minimum(most - 1, np.floor(more)), dtype=np.int64)
