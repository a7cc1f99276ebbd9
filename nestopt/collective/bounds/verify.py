"""Independent check of the witnesses of lower bounds.

Shares no code with the searches that found them: chunks are counted one by one from their
preconditions and postconditions, distances are computed by another algorithm (scipy's, or a plain
heap where the lengths leave the exact range of a double), and the arithmetic is in Python integers.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from nestopt.collective.problem import CollectiveInstance

__all__ = ["verify_witness"]

_EXACT = 2**53
_NEVER = -1


def verify_witness(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    """Re-check a bound's witness and return the bound that it proves, in picoseconds.

    Parameters
    ----------
    instance : CollectiveInstance
    witness : dict
        As `all_bounds` returns it: ``kind`` is ``cut``, ``delivery``, ``distance`` or
        ``prices``.

    Raises
    ------
    CheckError
        If the witness does not prove its ``value``, with the reason.
    """
    checks: dict[str, Callable[[CollectiveInstance, dict[str, Any]], int]] = {
        "cut": _cut,
        "delivery": _delivery,
        "distance": _distance,
        "prices": _prices,
        "trivial": _trivial,
    }
    kind = witness.get("kind")
    if kind not in checks:
        raise CheckError(f"a bound's witness of unknown kind {kind!r}")
    try:
        return checks[kind](instance, witness)
    except (KeyError, TypeError, IndexError) as error:
        raise CheckError(f"a {kind} witness is malformed: {error!r}") from error


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise CheckError(message)


def _trivial(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    _require(witness["value"] == 0, f"a trivial witness claims {witness['value']} ps")
    return 0


# --- distances -----------------------------------------------------------------------------------


def _distances(
    instance: CollectiveInstance, length: NDArray[np.int64], start: int, *, backward: bool = False
) -> list[int]:
    """Exact distance from (backward: to) a node; `_NEVER` if there is no path."""
    topology = instance.topology
    tails, heads = topology.src, topology.dst
    if backward:
        tails, heads = heads, tails
    longest = int(length.max(initial=0)) * topology.num_nodes
    if longest < _EXACT and length.min(initial=1) > 0:
        from scipy.sparse import coo_matrix
        from scipy.sparse.csgraph import dijkstra

        # of parallel links the shortest; the sparse constructor would add them up
        order = np.lexsort((length, heads, tails))
        first = np.ones(len(order), dtype=bool)
        t, h = tails[order], heads[order]
        first[1:] = (t[1:] != t[:-1]) | (h[1:] != h[:-1])
        keep = order[first]
        shape = (topology.num_nodes, topology.num_nodes)
        matrix = coo_matrix((length[keep].astype(float), (tails[keep], heads[keep])), shape=shape)
        found = dijkstra(matrix.tocsr(), indices=start)
        return [int(d) if np.isfinite(d) else _NEVER for d in found]
    adjacent: list[list[tuple[int, int]]] = [[] for _ in range(topology.num_nodes)]
    for u, w, d in zip(tails.tolist(), heads.tolist(), length.tolist()):
        adjacent[u].append((w, d))
    distance = [_NEVER] * topology.num_nodes
    heap = [(0, start)]
    while heap:
        d, u = heapq.heappop(heap)
        if distance[u] != _NEVER:
            continue
        distance[u] = d
        for w, extra in adjacent[u]:
            if distance[w] == _NEVER:
                heapq.heappush(heap, (d + extra, w))
    return distance


def _distance(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    value, collective = int(witness["value"]), instance.collective
    part = collective.parts[witness["part"]]
    length = instance.transfer_ps(part.chunk_size)
    if "root" in witness:
        _require(part.pattern == "all-reduce", "a distance through a root outside an All-Reduce")
        nodes = range(instance.topology.num_nodes)
        into = [0] * len(nodes)
        out = [0] * len(nodes)
        reach = [True] * len(nodes)
        for v in part.npus.tolist():
            there = _distances(instance, length, v)
            back = _distances(instance, length, v, backward=True)
            for r in nodes:
                reach[r] = reach[r] and there[r] != _NEVER and back[r] != _NEVER
                into[r], out[r] = max(into[r], there[r]), max(out[r], back[r])
        least = min((into[r] + out[r] for r in nodes if reach[r]), default=None)
        _require(least is not None, "no node is reached by all and reaches all")
        _require(least == value, f"the way through the best node takes {least} ps, not {value}")
        return value
    source, target = int(witness["source"]), int(witness["target"])
    _require(
        _exchanged(part, source, target), f"nothing must get from node {source} to node {target}"
    )
    found = _distances(instance, length, source)[target]
    _require(found == value, f"node {target} is {found} ps from node {source}, not {value}")
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
    _require(bool(((listed >= 0) & (listed < topology.num_nodes)).all()), "unknown node in the cut")
    inside[listed] = True
    if witness["side"] == "outside":
        inside = ~inside
    links = np.flatnonzero(inside[topology.src] & ~inside[topology.dst])
    _require(links.tolist() == list(witness["links"]), "the cut's links are not those listed")
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
    usable = [i for i, late in enumerate(lag) if late != _NEVER]
    if witness["mode"] == "bytes":
        need = sum(size * count for size, count in needs.items())
        _require(need == int(witness["need"]), f"{need} bytes must cross, not {witness['need']}")
        have = 0
        for i in usable:
            late = lag[i] + int(topology.alpha_ps[links[i]])
            have += int(topology.bandwidth[links[i]]) * max(0, value - 1 - late)
        _require(have < need * 10**12, f"the cut can carry all its bytes before {value} ps")
        return value
    size = int(witness["size"])
    need = needs.get(size, 0)
    _require(need == int(witness["need"]), f"{need} chunks must cross, not {witness['need']}")
    occupancy, transfer = instance.occupancy_ps(size), instance.transfer_ps(size)
    delivered = 0
    for i in usable:
        first = max(lag[i] + int(transfer[links[i]]), threshold)
        if value - 1 >= first:
            delivered += 1 + (value - 1 - first) // int(occupancy[links[i]])
    _require(
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
    lag = [_NEVER] * len(links)
    for index in parts:
        part = instance.collective.parts[index]
        places = part.destinations() if backward else part.sources()
        nodes = set(part.npus.tolist()) if (places < 0).any() else set(places.tolist())
        length = instance.transfer_ps(part.chunk_size)
        if set(ends[links].tolist()) <= nodes:
            lag = [0] * len(links)
            continue
        nearest = [_NEVER] * instance.topology.num_nodes
        for node in nodes:
            for v, d in enumerate(_distances(instance, length, node, backward=backward)):
                if d != _NEVER and (nearest[v] == _NEVER or d < nearest[v]):
                    nearest[v] = d
        for i, link in enumerate(links.tolist()):
            d = nearest[ends[link]]
            if d != _NEVER and (lag[i] == _NEVER or d < lag[i]):
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
        _require(alone.tolist() == [node], "a threshold needs a cut around one node")
        length = instance.transfer_ps(part.chunk_size)
        far = _distances(instance, length, node, backward=not backward)
    if threshold:
        others = part.npus[part.npus != witness["node"]]
        group_far = any(far[v] == _NEVER or far[v] >= threshold for v in others.tolist())
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
            elif far[end] != _NEVER and far[end] < threshold:
                continue
        count += 1
    return count


# --- deliveries ----------------------------------------------------------------------------------


def _delivery(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    topology, value = instance.topology, int(witness["value"])
    part = instance.collective.parts[witness["part"]]
    backward, target = bool(witness["backward"]), int(witness["target"])
    tails, heads = topology.src, topology.dst
    if backward:
        tails, heads = heads, tails
    inside = np.zeros(topology.num_nodes, dtype=np.bool_)
    inside[np.array(witness["nodes"], dtype=np.int64)] = True
    if witness["side"] == "outside":
        inside = ~inside
    links = np.flatnonzero(inside[tails] & ~inside[heads])
    _require(links.tolist() == list(witness["links"]), "the cut's links are not those listed")
    members, sources = set(part.npus.tolist()), [int(v) for v in witness["sources"]]
    _require(target in members and not inside[target], f"node {target} is no target")
    _require(
        len(set(sources)) == len(sources) and all(v in members and inside[v] for v in sources),
        "the sources are not different members behind the cut",
    )
    spreads = ("reduce-scatter", "reduce") if backward else ("all-gather", "broadcast")
    each = part.chunks_per_npu * len(sources)
    if part.pattern == "all-reduce":
        # every sum contains the contribution of one source, and every NPU needs every sum
        each = part.chunks_per_npu * len(members)
        _require(len(sources) == 1, "an All-Reduce counts one contribution")
    else:
        _require(part.pattern in spreads, f"{part.pattern} does not deliver chunks to all")
        rooted = part.root is None or sources == [part.root]
        _require(rooted, "chunks that do not start at the sources")
    _require(each == int(witness["need"]), f"{each} chunks are delivered, not {witness['need']}")
    occupancy = instance.occupancy_ps(part.chunk_size)
    transfer = instance.transfer_ps(part.chunk_size)
    before = _from_nearest(instance, transfer, sources, target, backward=backward)
    after = _distances(instance, transfer, target, backward=not backward)
    delivered = 0
    for link in links.tolist():
        head, tail = before[int(tails[link])], after[int(heads[link])]
        if head == _NEVER or tail == _NEVER:
            continue
        first = head + int(transfer[link]) + tail
        if value - 1 >= first:
            delivered += 1 + (value - 1 - first) // int(occupancy[link])
    _require(delivered < each, f"{delivered} of {each} chunks can be there by {value - 1} ps")
    return value


def _from_nearest(
    instance: CollectiveInstance,
    length: NDArray[np.int64],
    sources: list[int],
    closed: int,
    *,
    backward: bool,
) -> list[int]:
    """Distance of every node from the nearest source on paths that do not pass a node."""
    topology = instance.topology
    tails, heads = topology.src.tolist(), topology.dst.tolist()
    if backward:
        tails, heads = heads, tails
    adjacent: list[list[tuple[int, int]]] = [[] for _ in range(topology.num_nodes)]
    for u, w, d in zip(tails, heads, length.tolist()):
        adjacent[u].append((w, d))
    adjacent[closed] = []
    distance = [_NEVER] * topology.num_nodes
    heap = [(0, v) for v in sources]
    while heap:
        d, u = heapq.heappop(heap)
        if distance[u] != _NEVER:
            continue
        distance[u] = d
        for w, extra in adjacent[u]:
            if distance[w] == _NEVER:
                heapq.heappush(heap, (d + extra, w))
    return distance


# --- prices --------------------------------------------------------------------------------------


def _prices(instance: CollectiveInstance, witness: dict[str, Any]) -> int:
    topology, value = instance.topology, int(witness["value"])
    given = witness["prices"]
    if isinstance(given, int):
        given = [given] * topology.num_links
    _require(len(given) == topology.num_links, f"{len(given)} prices, {topology.num_links} links")
    prices = np.array(given, dtype=np.int64)
    _require(bool((prices >= 0).all()), "a negative price")
    cost = 0
    sizes = set()
    for part in instance.collective.parts:
        length = prices * instance.occupancy_ps(part.chunk_size)
        found = _least_cost(instance, part, length)
        cost += found
        if found:
            sizes.add(part.chunk_size)
    _require(cost == int(witness["cost"]), f"the chunks cost {cost}, not {witness['cost']}")
    occupancy = instance.occupancy_ps(sizes.pop()) if len(sizes) == 1 else None
    sold = 0
    for link in np.flatnonzero(prices).tolist():
        late = int(topology.alpha_ps[link]) if instance.latency == "pipelined" else 0
        open_for = max(0, value - 1 - late)
        if occupancy is not None:
            open_for -= open_for % int(occupancy[link])
        sold += int(prices[link]) * open_for
    _require(sold < cost, f"the links can sell {sold} of {cost} by {value - 1} ps")
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
            distance = _distances(instance, length, source)
            for target in ends:
                _require(distance[target] != _NEVER, f"{target} cannot be reached from {source}")
                total += distance[target]
        return total
    enter: dict[int, int] = {}
    leave: dict[int, int] = {}
    topology = instance.topology
    for u, w, price in zip(topology.src.tolist(), topology.dst.tolist(), length.tolist()):
        leave[u] = min(leave.get(u, price), price)
        enter[w] = min(enter.get(w, price), price)
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
