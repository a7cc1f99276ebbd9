"""The check of copied partial sums, by the sets of contributions that are where.

Chunks of which a partial sum is copied are replayed one by one. A node holds sets: at first its own
contribution, later what arrives. A send that states its set S needs pairwise disjoint sets at its
source whose union is S (at a switch that does not reduce: S itself), so that nothing is counted
twice and nothing that has not come yet is counted. A move takes all that its source holds, which
must be disjoint. A whole sum is a set like any other. Whether disjoint sets make S is decided
exactly: the largest that fit are tried first, then every way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from nestopt.collective.model.schedule import COPY, REDUCE, SHARE
from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

__all__ = ["Ingredients", "check_sets", "shared_chunks"]

OK, STALE, DOUBLE, EMPTY, REDUNDANT, MISSING, TOO_MANY = range(7)
MOST_TRIALS = 1_000_000
_TEXT = {
    STALE: "carries contributions that its source does not hold when it starts",
    DOUBLE: "adds sets that are not disjoint: a contribution would be counted twice",
    EMPTY: "carries no contribution: its source has none, or has passed it on already",
    REDUNDANT: "brings a chunk to a node that receives it more than once",
    TOO_MANY: "carries a set that can be made in too many ways to decide",
}


class Ingredients(NamedTuple):
    """Which arrivals each send adds up.

    Attributes
    ----------
    ptr : int64[S + 1]
    sends : int64[...]
        ``sends[ptr[i]:ptr[i + 1]]`` arrive at the source of send i and are in it.
    """

    ptr: NDArray[np.int64]
    sends: NDArray[np.int64]


def shared_chunks(instance: CollectiveInstance, schedule: Schedule) -> NDArray[np.bool_]:
    """Chunks of which a partial sum is copied, bool[num_chunks]."""
    shared = np.zeros(instance.collective.num_chunks, dtype=np.bool_)
    shared[schedule.chunk[schedule.phase == SHARE]] = True
    return shared


def check_sets(
    instance: CollectiveInstance,
    schedule: Schedule,
    arrival: NDArray[np.int64],
    *,
    allow_redundant: bool = False,
) -> Ingredients:
    """Check every send of the chunks of which a partial sum is copied, and their ends.

    Parameters
    ----------
    arrival : int64[S]
        Picoseconds.
    allow_redundant : bool
        Accept a whole sum at a node that has received it before.

    Raises
    ------
    CheckError
        At the first violation.
    """
    ingredients: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
    counts = np.zeros(schedule.num_sends + 1, dtype=np.int64)
    first = 0
    shared = shared_chunks(instance, schedule)
    if shared.any() and instance.sums != "copied":
        send = int(np.argmax(schedule.phase == SHARE))
        raise CheckError(f"send {send} copies a partial sum, but the sums of the instance move")
    where = np.flatnonzero(shared[schedule.chunk])
    by_chunk = where[np.lexsort((where, schedule.chunk[where]))]
    for part in instance.collective.parts:
        own = by_chunk[
            (schedule.chunk[by_chunk] >= first)
            & (schedule.chunk[by_chunk] < first + part.num_chunks)
        ]
        first += part.num_chunks
        if len(own) == 0:
            continue
        if not part.reduction:
            raise CheckError(f"send {own[0]} copies a partial sum of a chunk that is not reduced")
        found = _replay_part(instance, schedule, part, own, arrival, allow_redundant)
        counts[own + 1] = found[0]
        ingredients.append(found[1])
    ptr = np.cumsum(counts)
    # the replay went chunk by chunk; in order of the sends they are wanted
    flat = np.concatenate(ingredients)
    out = np.empty(len(flat), dtype=np.int64)
    sizes = counts[by_chunk + 1]
    starts = np.cumsum(sizes) - sizes
    for send, at, size in zip(by_chunk.tolist(), starts.tolist(), sizes.tolist()):
        out[ptr[send] : ptr[send] + size] = flat[at : at + size]
    return Ingredients(ptr, out)


def _replay_part(
    instance: CollectiveInstance,
    schedule: Schedule,
    part: Any,
    rows: NDArray[np.int64],
    arrival: NDArray[np.int64],
    allow_redundant: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    topology, n = instance.topology, len(part.npus)
    words = (n + 63) // 64
    moved = schedule.phase[rows] == REDUCE
    bits = np.zeros((n + 1 + len(schedule.sets) + int(moved.sum()), words), dtype=np.uint64)
    positions = np.arange(n)
    flag = np.left_shift(np.uint64(1), (positions % 64).astype(np.uint64))
    bits[positions, positions // 64] = flag
    bits[n] = np.bitwise_or.reduce(bits[:n], axis=0)
    used = np.unique(schedule.content[rows]) if schedule.content is not None else np.empty(0, int)
    for index in used[used >= 0].tolist():
        ranks = schedule.sets[index]
        if ranks[-1] >= n:
            send = int(rows[np.argmax(schedule.content[rows] == index)])  # type: ignore[index]
            raise CheckError(f"send {send}: no contribution {ranks[-1]}; the group has {n} NPUs")
        bits[n + 1 + index] = np.bitwise_or.reduce(bits[ranks], axis=0)
    carried = np.full(len(rows), n, dtype=np.int64)
    if schedule.content is not None:
        share = schedule.phase[rows] == SHARE
        carried[share] = n + 1 + schedule.content[rows][share]
    carried[moved] = n + 1 + len(schedule.sets) + np.arange(int(moved.sum()))
    chunk = schedule.chunk[rows]
    starts = np.append(np.flatnonzero(np.diff(chunk, prepend=-1)), len(rows))
    by_arrival = np.lexsort((arrival[rows], chunk))
    code, at, counts, flat = _replay(
        starts,
        by_arrival,
        schedule.start_ps[rows],
        arrival[rows],
        schedule.phase[rows],
        topology.src[schedule.link[rows]],
        topology.dst[schedule.link[rows]],
        carried,
        bits,
        _targets(instance, chunk[starts[:-1]]),
        part.npus,
        topology.multicast,
        topology.reduces,
        allow_redundant,
    )
    if code == MISSING:
        block, node = int(at) // topology.num_nodes, int(at) % topology.num_nodes
        raise CheckError(
            f"postcondition: {topology.node_name(node)} does not hold the whole sum of chunk "
            f"{chunk[starts[block]]} at the end"
        )
    if code != OK:
        send = int(rows[at])
        link = int(schedule.link[send])
        raise CheckError(
            f"send {send} of chunk {schedule.chunk[send]} on {topology.link_name(link)} at "
            f"{schedule.start_ps[send]} ps {_TEXT[int(code)]}"
        )
    return counts, rows[flat]


def _targets(instance: CollectiveInstance, chunks: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Nodes that must have the whole of each chunk, bool[chunks, nodes]."""
    table = np.zeros((len(chunks), instance.topology.num_nodes), dtype=np.bool_)
    for row, chunk in enumerate(chunks.tolist()):
        table[row, instance.collective.post(chunk)] = True
    return table


@njit(cache=True, nogil=True)
def _within(bits: Any, a: Any, b: Any) -> bool:
    """Whether set a is a part of set b."""
    outside = np.uint64(0)
    for w in range(bits.shape[1]):
        outside |= bits[a, w] & ~b[w]
    return outside == 0


@njit(cache=True, nogil=True)
def _count(words: Any) -> int:
    total = 0
    for w in range(len(words)):
        x = words[w]
        while x:
            x &= x - np.uint64(1)
            total += 1
    return total


@njit(cache=True, nogil=True)
def _cover(wanted: Any, bits: Any, sets: Any, found: Any) -> int:
    """Disjoint sets of `sets` whose union is `wanted`, into `found`; how many.

    -1: a contribution is in none of them; -2: they overlap; -3: too many ways to decide.
    """
    words, m = bits.shape[1], 0
    usable = np.empty(len(sets), np.int64)
    sizes = np.empty(len(sets), np.int64)
    for i in range(len(sets)):
        if _within(bits, sets[i], wanted):
            usable[m] = i
            sizes[m] = _count(bits[sets[i]])
            m += 1
    usable = usable[:m][np.argsort(-sizes[:m], kind="mergesort")]
    union = np.zeros(words, np.uint64)
    left = wanted.copy()
    count = 0
    for j in usable:
        for w in range(words):
            union[w] |= bits[sets[j], w]
        if _within(bits, sets[j], left):
            for w in range(words):
                left[w] &= ~bits[sets[j], w]
            found[count] = j
            count += 1
    if not left.any():
        return count
    for w in range(words):
        if union[w] != wanted[w]:
            return -1
    # every way: the lowest contribution that is left is in one of the sets
    left[:] = wanted
    at = np.zeros(m + 1, np.int64)
    depth, trials = 0, 0
    while True:
        word = 0
        while word < words and left[word] == 0:
            word += 1
        if word == words:
            return depth
        low = left[word] & (~left[word] + np.uint64(1))
        chosen = np.int64(-1)
        while at[depth] < m:
            j = usable[at[depth]]
            at[depth] += 1
            trials += 1
            if bits[sets[j], word] & low and _within(bits, sets[j], left):
                chosen = j
                break
        if trials > MOST_TRIALS:
            return -3
        if chosen >= 0:
            for w in range(words):
                left[w] &= ~bits[sets[chosen], w]
            found[depth] = chosen
            depth += 1
            at[depth] = 0
            continue
        if depth == 0:
            return -2
        depth -= 1
        for w in range(words):
            left[w] |= bits[sets[found[depth]], w]


@njit(cache=True, nogil=True)
def _replay(
    starts: Any,
    by_arrival: Any,
    start: Any,
    arrival: Any,
    phase: Any,
    tail: Any,
    head: Any,
    carried: Any,
    bits: Any,
    targets: Any,
    group: Any,
    multicast: Any,
    reduces: Any,
    allow_redundant: bool,
) -> tuple[int, int, Any, Any]:
    """Replay chunk after chunk; the first violation as (code, send), and the ingredients.

    An entry is a set at a node: `entry_set` its row of `bits`, `entry_from` the send that brought
    it (-1: the node's own). The entries of a node are linked, in order of arrival.
    """
    n, words, nodes = len(group), bits.shape[1], targets.shape[1]
    longest = 0
    for b in range(len(starts) - 1):
        longest = max(longest, starts[b + 1] - starts[b])
    entry_set = np.empty(n + longest, np.int64)
    entry_from = np.empty(n + longest, np.int64)
    entry_next = np.empty(n + longest, np.int64)
    first = np.full(nodes, -1, np.int64)
    last = np.full(nodes, -1, np.int64)
    sets = np.empty(n + longest, np.int64)
    place = np.empty(n + longest, np.int64)
    found = np.empty(n + longest, np.int64)
    counts = np.zeros(len(start), np.int64)
    flat = np.empty(4 * len(start) + 16, np.int64)
    filled = 0
    for b in range(len(starts) - 1):
        first[:] = -1
        last[:] = -1
        entries = 0
        for i in range(n):
            v = group[i]
            entry_set[entries], entry_from[entries], entry_next[entries] = i, -1, -1
            first[v] = entries
            last[v] = entries
            entries += 1
        landed, end = starts[b], starts[b + 1]
        for i in range(starts[b], end + 1):
            now = start[i] if i < end else np.int64(2**62)
            while landed < end and arrival[by_arrival[landed]] <= now:
                k = by_arrival[landed]
                landed += 1
                v = head[k]
                if phase[k] == COPY and multicast[v] and not allow_redundant:
                    e = first[v]
                    while e >= 0:
                        if entry_set[e] == n:
                            return REDUNDANT, k, counts, flat[:filled]
                        e = entry_next[e]
                entry_set[entries], entry_from[entries] = carried[k], k
                entry_next[entries] = -1
                if first[v] < 0:
                    first[v] = entries
                else:
                    entry_next[last[v]] = entries
                last[v] = entries
                entries += 1
            if i == end:
                break
            u = tail[i]
            m = 0
            e = first[u]
            while e >= 0:
                sets[m], place[m] = entry_set[e], e
                m += 1
                e = entry_next[e]
            if m == 0:
                return (EMPTY if phase[i] == REDUCE else STALE), i, counts, flat[:filled]
            wanted = bits[carried[i]]
            if phase[i] == REDUCE:
                used = m if reduces[u] else 1
                for j in range(used):
                    for w in range(words):
                        if wanted[w] & bits[sets[j], w]:
                            return DOUBLE, i, counts, flat[:filled]
                        wanted[w] |= bits[sets[j], w]
                    found[j] = j
            elif reduces[u]:
                used = _cover(wanted, bits, sets[:m], found)
            else:
                used = -1
                for j in range(m):
                    same = True
                    for w in range(words):
                        same = same and bits[sets[j], w] == wanted[w]
                    if same:
                        found[0] = j
                        used = 1
                        break
            if used < 0:
                code = STALE if used == -1 else (DOUBLE if used == -2 else TOO_MANY)
                return code, i, counts, flat[:filled]
            while filled + used > len(flat):
                flat = np.concatenate((flat, np.empty(len(flat), np.int64)))
            for j in range(used):
                if entry_from[place[found[j]]] >= 0:
                    flat[filled] = entry_from[place[found[j]]]
                    filled += 1
                    counts[i] += 1
            if phase[i] == REDUCE or not multicast[u]:
                # what is moved, or sent on by a switch that cannot copy, is gone
                for j in range(used):
                    sets[found[j]] = -1
                first[u] = -1
                last[u] = -1
                for j in range(m):
                    if sets[j] >= 0:
                        e = place[j]
                        entry_next[e] = -1
                        if first[u] < 0:
                            first[u] = e
                        else:
                            entry_next[last[u]] = e
                        last[u] = e
        for v in range(nodes):
            if not targets[b, v]:
                continue
            m = 0
            e = first[v]
            while e >= 0:
                sets[m] = entry_set[e]
                m += 1
                e = entry_next[e]
            if m == 0 or _cover(bits[n], bits, sets[:m], found) < 0:
                return MISSING, b * nodes + v, counts, flat[:filled]
    return OK, -1, counts, flat[:filled]
