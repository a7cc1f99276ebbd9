"""A schedule as a line: seconds, and seconds a byte, that suffice at every size.

The formulas let a switch send a message on while it is still arriving, and so do lines: a send out
of a switch begins once the head of its chunk is there, and so late that its end does not overtake
the chunk's. Devices send on what they have as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from nestopt.placement.model.collective_table import Line

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

    Floats = NDArray[np.float64]

__all__ = ["line_of", "retimed"]


def line_of(instance: CollectiveInstance, schedule: Schedule, size: float) -> Line:
    """The line of a schedule of one chunk size whose collective has `size` bytes.

    See ``MODEL.md``, section 2: the sum of the longest path of latencies and of the longest path of
    serializations is at least the longest path of both.
    """
    topology = instance.topology
    latency = topology.alpha_ps / 1e12
    serial = instance.collective.chunk_size / topology.bandwidth.astype(np.float64)
    nothing = np.zeros_like(latency)
    alpha = retimed(instance, schedule, nothing, latency)
    return Line(alpha, retimed(instance, schedule, serial, nothing) / size)


def retimed(
    instance: CollectiveInstance, schedule: Schedule, serial: Floats, latency: Floats
) -> float:
    """When the last chunk arrives if the sends take other times but keep their order.

    On every link they keep their order, and each waits for all that had come to its source of its
    chunk when it started in the schedule.

    Parameters
    ----------
    serial, latency : float arrays (links,)
        How long a send occupies each link, and from each part's start to its arrival; seconds.
    """
    topology = instance.topology
    transfer = instance.transfer_ps(instance.collective.chunk_size)
    arrival = schedule.start_ps + transfer[schedule.link]
    place = schedule.chunk.astype(np.int64) * topology.num_nodes
    ends = place + topology.src[schedule.link], place + topology.dst[schedule.link]
    distinct, compact = np.unique(np.concatenate(ends), return_inverse=True)
    source, target = np.split(compact.reshape(-1), 2)
    by_arrival = np.argsort(arrival, kind="stable")
    return float(
        _longest(
            schedule.start_ps, arrival, by_arrival, schedule.link, source, target,
            topology.is_switch[topology.src], serial, latency, len(distinct),
        )
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _longest(
    start: Any, arrival: Any, by_arrival: Any, link: Any, source: Any, target: Any,
    relays: Any, serial: Floats, latency: Floats, places: int,
) -> float:  # fmt: skip
    free = np.zeros(len(serial))
    head = np.zeros(places)
    tail = np.zeros(places)
    begins = np.zeros(len(start))
    seen = 0
    last = 0.0
    for send in range(len(start)):
        while seen < len(start) and arrival[by_arrival[seen]] <= start[send]:
            earlier = by_arrival[seen]
            over, place = link[earlier], target[earlier]
            there = begins[earlier] + latency[over]
            head[place] = max(head[place], there)
            tail[place] = max(tail[place], there + serial[over])
            seen += 1
        over, place = link[send], source[send]
        begin = tail[place]
        if relays[over]:
            begin = max(head[place], tail[place] - serial[over])
        begin = max(begin, free[over])
        begins[send] = begin
        free[over] = begin + serial[over]
        last = max(last, begin + serial[over] + latency[over])
    return last
