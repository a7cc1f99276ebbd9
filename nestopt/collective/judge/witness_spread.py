"""Independent check of the witness of a spread bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.collective.judge.witness_distances import NEVER, from_nearest, links_out, require

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["verify_spread"]

# the chunks of these patterns that come to a block are needed by all its members
_SPREADS = {False: ("all-gather", "broadcast"), True: ("reduce-scatter", "reduce")}


class _Sides:
    """The links of the instance in the witness's direction of time, and one part's chunks."""

    def __init__(self, instance: CollectiveInstance, part: Any, backward: bool) -> None:
        topology = instance.topology
        self.instance, self.backward, self.part = instance, backward, part
        tails, heads = topology.src.tolist(), topology.dst.tolist()
        self.tails, self.heads = (heads, tails) if backward else (tails, heads)
        self.length = instance.transfer_ps(part.chunk_size)
        self.takes = self.length.tolist()
        self.every = instance.occupancy_ps(part.chunk_size).tolist()
        self.members = set(part.npus.tolist())

    def into(self, block: set[int]) -> list[int]:
        """Links that end in a set of nodes and start outside."""
        ends = enumerate(zip(self.tails, self.heads))
        return [e for e, (u, w) in ends if u not in block and w in block]

    def ways(
        self, starts: Iterable[int], *, to: bool = False, within: set[int] | None = None
    ) -> list[int]:
        """Distances from (or to) the nearest of some nodes, if asked inside a block only."""
        adjacent = links_out(self.instance, self.length, backward=self.backward != to)
        if within is not None:
            adjacent = [
                [(w, d) for w, d in row if w in within] if u in within else []
                for u, row in enumerate(adjacent)
            ]
        return from_nearest(adjacent, starts)

    def started(self, link: int, first: int, last: int) -> int:
        """Messages of a link if the first is at `first` and the last at `last` or before."""
        return 0 if last < first else 1 + (last - first) // self.every[link]


def verify_spread(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    """The bound that a witness of kind ``spread`` proves, picoseconds."""
    value, moment = int(witness["value"]), int(witness["moment"])
    backward = bool(witness["backward"])
    part = instance.collective.parts[witness["part"]]
    sides = _Sides(instance, part, backward)
    block = set(witness["nodes"])
    inner, outer = sides.members & block, sides.members - block
    require(bool(inner and outer), "the block has no members, or there are none outside")
    need = _need(part, block, outer, backward)
    require(need == int(witness["need"]), f"{need} chunks come from outside, not {witness['need']}")
    early, begin = 0, 0
    if witness.get("other") is not None:
        require(part.pattern == "all-reduce", "a beginning of what is no All-Reduce")
        early = int(witness["early"])
        begin = _beginning(sides, block, witness)
    origins = {part.root} if part.root is not None else outer
    come = sides.ways(origins & outer if part.root is not None else outer)
    usable = [e for e in sides.into(block) if come[sides.tails[e]] != NEVER]
    first = {e: max(begin, come[sides.tails[e]] + sides.takes[e]) for e in usable}
    before = sum(sides.started(e, first[e], moment - 1) for e in usable)
    late = (need - early - before) * len(inner)
    end, received = value - 1, 0
    for e in usable:
        if sides.heads[e] in inner:
            received += sides.started(e, max(first[e], moment), end)
    way = sides.ways({sides.heads[e] for e in usable}, within=block)
    for e, (u, w) in enumerate(zip(sides.tails, sides.heads)):
        if u in block and w in inner and way[u] != NEVER:
            received += sides.started(e, moment + way[u] + sides.takes[e], end)
    require(
        received < late,
        f"{received} messages can come to members from {moment} to {end} ps; {late} must",
    )
    return value


def _need(part: Any, block: set[int], outer: set[int], backward: bool) -> int:
    """Chunks that all members of the block need from outside, counted one by one."""
    if part.pattern == "all-reduce":
        return len(part.sources())
    require(part.pattern in _SPREADS[backward], f"{part.pattern} does not spread chunks")
    homes = part.destinations() if backward else part.sources()
    return sum(1 for home in homes.tolist() if home not in block and home in outer)


def _beginning(sides: _Sides, block: set[int], witness: dict[str, Any]) -> int:
    """When a link into the block is first of use for a chunk that is not early."""
    other, left = set(witness["other"]), int(witness["left"])
    senders = sides.members & other
    require(bool(senders) and not other & block, "the other block is empty or not another")
    outward = [
        e for e, (u, w) in enumerate(zip(sides.tails, sides.heads)) if u in other and w not in other
    ]
    exits = sides.ways({sides.tails[e] for e in outward}, to=True, within=other)
    sent = sum(sides.started(e, 0, left - 1) for e in outward if sides.tails[e] in senders)
    for e, (u, w) in enumerate(zip(sides.tails, sides.heads)):
        if u in senders and w in other and exits[w] != NEVER:
            sent += sides.started(e, sides.takes[e] + exits[w], left - 1)
    enough = (int(witness["early"]) + 1) * len(senders)
    require(sent < enough, f"{sent} sends can have left the other block; {enough} are too many")
    away = sides.ways(other)
    arrivals = [
        away[sides.tails[e]] + sides.takes[e]
        for e in sides.into(block)
        if away[sides.tails[e]] != NEVER
    ]
    require(bool(arrivals), "nothing gets from the other block to the block")
    return left + min(arrivals)
