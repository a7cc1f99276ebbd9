"""Independent check of the witness of a growth bound."""

from __future__ import annotations

from heapq import heappop, heappush, merge
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from nestopt.collective.judge.witness_distances import NEVER, from_nearest, links_out, require

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["verify_growth"]

_GROWS = {False: ("all-gather", "broadcast"), True: ("reduce-scatter", "reduce")}
# first arrival and step of each link out of a node
_Sendings = tuple[tuple[int, int], ...]


def verify_growth(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    """The bound that a witness of kind ``growth`` proves, picoseconds."""
    value, begin, node = int(witness["value"]), int(witness["begin"]), int(witness["node"])
    backward, part = bool(witness["backward"]), instance.collective.parts[witness["part"]]
    grows = part.pattern == "all-reduce" or part.pattern in _GROWS[backward]
    require(grows, f"no chunk of a {part.pattern} grows in that direction of time")
    topology, members = instance.topology, part.npus.tolist()
    require(node in members, f"node {node} has no part in it")
    keeps = (topology.reduces if backward else topology.multicast).tolist()
    length, every = instance.transfer_ps(part.chunk_size), instance.occupancy_ps(part.chunk_size)
    goes = from_nearest(
        links_out(instance, length, backward=not backward), [v for v, k in enumerate(keeps) if k]
    )
    ends = zip(topology.src.tolist(), topology.dst.tolist(), length.tolist(), every.tolist())
    sendings: dict[int, list[tuple[int, int]]] = {}
    starts = []
    for u, w, takes, step in ends:
        tail, head = (w, u) if backward else (u, w)
        if tail == node:
            starts.append((0, step))
        if keeps[tail] and goes[head] != NEVER:
            sendings.setdefault(tail, []).append((takes + goes[head], step))
    places = part.destinations() if backward else part.sources()
    own = sum(1 for place in places.tolist() if place in (-1, node))
    require(own > 0, f"no chunk starts at node {node}")
    require(
        _count(starts, begin - 1) < own,
        f"node {node} can have begun to send its {own} chunks before {begin} ps",
    )
    kinds = {tuple(sorted(rows)) for rows in sendings.values()}
    known = _known_by(kinds, value - 1 - begin, len(members))
    require(known < len(members), f"all {len(members)} NPUs can have the chunk by {value - 1} ps")
    return value


def _count(rows: Iterable[tuple[int, int]], moment: int) -> int:
    """How many of the numbers first, first + step, ... of all rows are at most `moment`."""
    return sum(1 + (moment - first) // step for first, step in rows if moment >= first)


def _known_by(kinds: set[_Sendings], span: int, enough: int) -> int:
    """At most how many nodes have the chunk after `span`, counted up to `enough`.

    Counted by the moments at which nodes first have it; each starts the same again.
    """
    if span < 0 or not kinds:
        return 1
    arrivals = [
        islice(merge(*(count(first, step) for first, step in rows)), enough) for rows in kinds
    ]
    # the first, second, ... arrival from whichever node is quickest to that number
    soonest = [min(column) for column in zip(*arrivals)]
    born, moments, known = {0: 1}, [0], 0
    while moments and known < enough:
        begin = heappop(moments)
        number = born.pop(begin)
        known += number
        for after in soonest:
            if begin + after > span:
                break
            if begin + after not in born:
                heappush(moments, begin + after)
            born[begin + after] = born.get(begin + after, 0) + number
    return known
