"""Independent check of the witnesses of lower bounds.

Shares no code with the searches that found them: chunks are counted one by one from their
preconditions and postconditions, distances are computed by another algorithm (scipy's, or a plain
heap where the lengths leave the exact range of a double), and the arithmetic is in Python integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.judge.witness_delivery import verify_delivery
from nestopt.collective.judge.witness_distances import (
    NEVER,
    distances,
    from_nearest,
    idle_times,
    links_out,
    require,
)
from nestopt.collective.judge.witness_form import refuse_malformed
from nestopt.collective.judge.witness_growth import verify_growth
from nestopt.collective.judge.witness_partition import verify_merging, verify_partition
from nestopt.collective.judge.witness_spread import verify_spread
from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance

__all__ = ["KINDS", "verify_witness"]

KINDS = (
    "cut", "delivery", "distance", "growth", "merging", "partition", "prices", "spread", "trivial",
)  # fmt: skip
"""Kinds of witnesses that can be verified."""


def verify_witness(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    """Re-check a bound's witness and return the bound that it proves, in picoseconds.

    Parameters
    ----------
    instance : CollectiveInstance
    witness : dict
        As `all_bounds` returns it: ``kind`` is one of `KINDS`.

    Raises
    ------
    CheckError
        If the witness does not prove its ``value``, with the reason.
    """
    checks: dict[str, Callable[[CollectiveInstance, dict[str, Any]], int]] = {
        "cut": _cut,
        "delivery": verify_delivery,
        "distance": _distance,
        "growth": verify_growth,
        "merging": verify_merging,
        "partition": verify_partition,
        "prices": _prices,
        "spread": verify_spread,
        "trivial": _trivial,
    }
    kind = witness.get("kind")
    if kind not in checks:
        raise CheckError(f"a bound's witness of unknown kind {kind!r}")
    refuse_malformed(witness, instance)
    try:
        return checks[kind](instance, witness)
    except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        raise CheckError(f"a {kind} witness is malformed: {error!r}") from error


def _trivial(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    require(witness["value"] == 0, f"a trivial witness claims {witness['value']} ps")
    return 0


# --- distances -----------------------------------------------------------------------------------


def _distance(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    value, collective = int(witness["value"]), instance.collective
    part = collective.parts[witness["part"]]
    length = instance.transfer_ps(part.chunk_size)
    if "root" in witness:
        require(part.pattern == "all-reduce", "a distance through a root outside an All-Reduce")
        require(instance.sums == "moved", "a distance through a root, but sums may be copied")
        nodes = range(instance.topology.num_nodes)
        into = [0] * len(nodes)
        out = [0] * len(nodes)
        reach = [True] * len(nodes)
        for v in part.npus.tolist():
            there = distances(instance, length, v)
            back = distances(instance, length, v, backward=True)
            for r in nodes:
                reach[r] = reach[r] and there[r] != NEVER and back[r] != NEVER
                into[r], out[r] = max(into[r], there[r]), max(out[r], back[r])
        sums = [r for r in nodes if reach[r] and instance.topology.reduces[r]]
        least = min((into[r] + out[r] for r in sums), default=None)
        require(least is not None, "no node that reduces is reached by all and reaches all")
        require(least == value, f"the way through the best node takes {least} ps, not {value}")
        return value
    source, target = int(witness["source"]), int(witness["target"])
    require(
        _exchanged(part, source, target), f"nothing must get from node {source} to node {target}"
    )
    found = distances(instance, length, source)[target]
    require(found == value, f"node {target} is {found} ps from node {source}, not {value}")
    return value


def _exchanged(part: Any, source: int, target: int) -> bool:
    """Whether a chunk or a contribution must get from `source` to `target`."""
    if source == target or source not in part.npus or target not in part.npus:
        return False
    sources, targets = part.sources(), part.destinations()
    return bool(
        (((sources == source) | (sources < 0)) & ((targets == target) | (targets < 0))).any()
    )


# --- cuts ----------------------------------------------------------------------------------------


def _cut(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    topology, value = instance.topology, int(witness["value"])
    inside = np.zeros(topology.num_nodes, dtype=np.bool_)
    listed = np.array(witness["nodes"], dtype=np.int64)
    require(bool(((listed >= 0) & (listed < topology.num_nodes)).all()), "unknown node in the cut")
    inside[listed] = True
    if witness["side"] == "outside":
        inside = ~inside
    links = np.flatnonzero(inside[topology.src] & ~inside[topology.dst])
    require(links.tolist() == list(witness["links"]), "the cut's links are not those listed")
    threshold = int(witness.get("threshold", 0))
    needs: dict[int, int] = {}
    counted: list[int] = []
    for index, part in enumerate(instance.collective.parts):
        if witness.get("part") not in (None, index):
            continue
        if witness["mode"] == "chunks" and part.chunk_size != int(witness["size"]):
            continue
        count = _crossing(instance, index, inside, witness, threshold)
        needs[part.chunk_size] = needs.get(part.chunk_size, 0) + count
        counted += [index] * bool(count)
    lag = _lags(instance, counted, links, witness)
    usable = [i for i, late in enumerate(lag) if late != NEVER]
    if witness["mode"] == "bytes":
        need = sum(size * count for size, count in needs.items())
        require(need == int(witness["need"]), f"{need} bytes must cross, not {witness['need']}")
        have = 0
        for i in usable:
            late = lag[i] + int(topology.alpha_ps[links[i]])
            have += int(topology.bandwidth[links[i]]) * max(0, value - 1 - late)
        require(have < need * 10**12, f"the cut can carry all its bytes before {value} ps")
        return value
    size = int(witness["size"])
    need = needs.get(size, 0)
    require(need == int(witness["need"]), f"{need} chunks must cross, not {witness['need']}")
    occupancy, transfer = instance.occupancy_ps(size), instance.transfer_ps(size)
    delivered = 0
    for i in usable:
        first = max(lag[i] + int(transfer[links[i]]), threshold)
        if value - 1 >= first:
            delivered += 1 + (value - 1 - first) // int(occupancy[links[i]])
    require(
        delivered < need,
        f"{delivered} of {need} chunks can have crossed the cut by {value - 1} ps",
    )
    return value


def _lags(
    instance: CollectiveInstance,
    parts: list[int],
    links: NDArray[np.int64],
    witness: dict[str, Any],
) -> list[int]:
    """For each link of a cut the time lost before it can start, or (backward) after it arrives."""
    backward = bool(witness["backward"])
    ends = instance.topology.dst if backward else instance.topology.src
    lag = [NEVER] * len(links)
    for index in parts:
        part = instance.collective.parts[index]
        places = part.destinations() if backward else part.sources()
        nodes = set(part.npus.tolist()) if (places < 0).any() else set(places.tolist())
        length = instance.transfer_ps(part.chunk_size)
        if set(ends[links].tolist()) <= nodes:
            lag = [0] * len(links)
            continue
        nearest = [NEVER] * instance.topology.num_nodes
        for node in nodes:
            for v, d in enumerate(distances(instance, length, node, backward=backward)):
                if d != NEVER and (nearest[v] == NEVER or d < nearest[v]):
                    nearest[v] = d
        for i, link in enumerate(links.tolist()):
            d = nearest[ends[link]]
            if d != NEVER and (lag[i] == NEVER or d < lag[i]):
                lag[i] = d
    return lag


def _crossing(
    instance: CollectiveInstance,
    index: int,
    inside: NDArray[np.bool_],
    witness: dict[str, Any],
    threshold: int,
) -> int:
    """Chunks of a part that must cross, counted one by one; with a threshold, the far ones only."""
    part = instance.collective.parts[index]
    sources, targets = part.sources(), part.destinations()
    group_inside, group_outside = inside[part.npus].any(), not inside[part.npus].all()
    far: list[int] = []
    if threshold:
        node = int(witness["node"])
        backward = bool(witness["backward"])
        alone = np.flatnonzero(inside if backward else ~inside)
        require(alone.tolist() == [node], "a threshold needs a cut around one node")
        length = instance.transfer_ps(part.chunk_size)
        far = distances(instance, length, node, backward=not backward)
    if threshold:
        others = part.npus[part.npus != witness["node"]]
        group_far = any(far[v] == NEVER or far[v] >= threshold for v in others.tolist())
    count = 0
    for source, target in zip(sources.tolist(), targets.tolist()):
        starts_inside = group_inside if source < 0 else inside[source]
        if source >= 0 and not inside[source]:
            continue
        ends_outside = group_outside if target < 0 else not inside[target]
        if not (starts_inside and ends_outside):
            continue
        if threshold:
            end = target if witness["backward"] else source
            if end < 0:
                # the farthest member of the group takes part in every such chunk
                if not group_far:
                    continue
            elif far[end] != NEVER and far[end] < threshold:
                continue
        count += 1
    return count


# --- prices --------------------------------------------------------------------------------------


def _prices(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    topology, value = instance.topology, int(witness["value"])
    given = witness["prices"]
    if isinstance(given, int):
        given = [given] * topology.num_links
    require(len(given) == topology.num_links, f"{len(given)} prices, {topology.num_links} links")
    prices = np.array(given, dtype=np.int64)
    require(bool((prices >= 0).all()), "a negative price")
    cost = 0
    sizes = set()
    dearest = int(prices.max(initial=0))
    for part in instance.collective.parts:
        occupied = instance.occupancy_ps(part.chunk_size)
        longest = int(occupied.max(initial=0))
        require(dearest * longest < 2**63, "prices times occupancies leave 64 bits")
        length = prices * occupied
        found = _least_cost(instance, part, length)
        cost += found
        if found:
            sizes.add(part.chunk_size)
    require(cost == int(witness["cost"]), f"the chunks cost {cost}, not {witness['cost']}")
    occupancy = instance.occupancy_ps(sizes.pop()) if len(sizes) == 1 else None
    sold, idle = 0, idle_times(instance)
    for link in np.flatnonzero(prices).tolist():
        if idle[link] == NEVER:
            continue
        late = idle[link] + (int(topology.alpha_ps[link]) if instance.latency == "pipelined" else 0)
        open_for = max(0, value - 1 - late)
        if occupancy is not None:
            open_for -= open_for % int(occupancy[link])
        sold += int(prices[link]) * open_for
    require(sold < cost, f"the links can sell {sold} of {cost} by {value - 1} ps")
    return value


def _least_cost(instance: CollectiveInstance, part: Any, length: NDArray[np.int64]) -> int:
    """What moving a part's chunks costs at least, pair by pair."""
    sources, targets = part.sources(), part.destinations()
    if (sources >= 0).all() and (targets >= 0).all():
        total = 0
        wanted: dict[int, list[int]] = {}
        for source, target in zip(sources.tolist(), targets.tolist()):
            wanted.setdefault(source, []).append(target)
        for source, ends in wanted.items():
            distance = distances(instance, length, source)
            for target in ends:
                require(distance[target] != NEVER, f"{target} cannot be reached from {source}")
                total += distance[target]
        return total
    enter: dict[int, int] = {}
    leave: dict[int, int] = {}
    topology = instance.topology
    ends = [v for v in range(topology.num_nodes) if topology.multicast[v] or topology.reduces[v]]
    come = from_nearest(links_out(instance, length, backward=False), ends)
    go = from_nearest(links_out(instance, length, backward=True), ends)
    for u, w, price in zip(topology.src.tolist(), topology.dst.tolist(), length.tolist()):
        if go[w] != NEVER:
            leave[u] = min(leave.get(u, price + go[w]), price + go[w])
        if come[u] != NEVER:
            enter[w] = min(enter.get(w, price + come[u]), price + come[u])
    members = part.npus.tolist()
    if len(members) == 1:
        return 0
    total = 0
    all_in, all_out = sum(enter[v] for v in members), sum(leave[v] for v in members)
    dearest = max(enter[v] + leave[v] for v in members)
    for source, target in zip(sources.tolist(), targets.tolist()):
        if source < 0 and target < 0:
            total += all_in + all_out - dearest
        elif source < 0:
            total += all_out - leave[target]
        else:
            total += all_in - enter[source]
    return total
