"""Search over the paths and the order of chunks that have one source and one destination each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from nestopt.collective.greedy.kernels.event import next_random, random_state, uniform
from nestopt.collective.greedy.kernels.list import list_schedule

__all__ = ["Paths", "search_paths"]


class Paths(NamedTuple):
    """The paths that every chunk may take, and what they cost.

    Attributes
    ----------
    of_chunk : int64[chunks + 1]
        The paths of chunk c are those from ``of_chunk[c]`` to ``of_chunk[c + 1]``.
    first : int64[paths + 1]
        The links of path p are ``links[first[p]:first[p + 1]]``.
    links, occupancy, transfer : int64[n]
        Link of each step, and the times of the path's chunk on it, picoseconds.
    """

    of_chunk: Any
    first: Any
    links: Any
    occupancy: Any
    transfer: Any


class Sent(NamedTuple):
    """Room for the sends of one choice of paths: int64 arrays, and what waits for what."""

    chunk: Any
    link: Any
    occupancy: Any
    transfer: Any
    priority: Any
    follows: Any
    nexts: Any
    waits: Any
    start: Any


@njit(cache=True, nogil=True)
def _fill(paths: Paths, choice: Any, wish: Any, sent: Sent) -> int:
    """The sends of the chosen paths, those of a chunk in a row; their number."""
    count, links = 0, 0
    for c in range(len(choice)):
        p = choice[c]
        left = np.int64(0)
        for step in range(paths.first[p], paths.first[p + 1]):
            left += paths.transfer[step]
        for step in range(paths.first[p], paths.first[p + 1]):
            sent.chunk[count] = c
            sent.link[count] = paths.links[step]
            sent.occupancy[count] = paths.occupancy[step]
            sent.transfer[count] = paths.transfer[step]
            # the chunk with the most time still to travel first, unless it is put off
            sent.priority[count] = wish[c] - left
            left -= paths.transfer[step]
            sent.waits[count] = step > paths.first[p]
            sent.follows[count] = links
            if step + 1 < paths.first[p + 1]:
                sent.nexts[links] = count + 1
                links += 1
            count += 1
    sent.follows[count] = links
    return count


@njit(cache=True, nogil=True)
def search_paths(
    paths: Paths, choice: Any, num_links: int, rounds: int, heat: float, target: Any, seed: int
) -> tuple[Any, Any, Any]:
    """Simulated annealing from the paths `choice`; the last arrival, the paths, the priorities.

    A move gives a chunk another path or another turn: the chunk that ends last, one that shares a
    link with it, or any. `heat` is the rise of the makespan, as a part of it, that is accepted at
    first about every third time.
    """
    state = random_state(seed)
    chunks = len(choice)
    longest = 0
    for p in range(len(paths.first) - 1):
        longest = max(longest, paths.first[p + 1] - paths.first[p])
    room = chunks * longest + 1
    whole = [np.zeros(room, dtype=np.int64) for _ in range(8)]
    sent = Sent(
        whole[0], whole[1], whole[2], whole[3], whole[4], whole[5], whole[6],
        np.zeros(room, dtype=np.int32), whole[7],
    )  # fmt: skip
    wish = np.zeros(chunks, dtype=np.int64)
    best_choice, best_wish = choice.copy(), wish.copy()
    now = np.int64(0)
    best = np.int64(2**62)
    unit = max(np.int64(4), np.int64(paths.transfer.mean()))
    late = 0
    for turn in range(rounds + 1):
        c, old_path, old_wish = late, choice[late], wish[late]
        if turn > 0:
            kind = next_random(state) % 4
            if kind >= 2:
                c = next_random(state) % chunks
            old_path, old_wish = choice[c], wish[c]
            if next_random(state) % 3 > 0:
                ways = paths.of_chunk[c + 1] - paths.of_chunk[c]
                choice[c] = paths.of_chunk[c] + next_random(state) % ways
            else:
                wish[c] += next_random(state) % (4 * unit) - 2 * unit
        count = _fill(paths, choice, wish, sent)
        made = list_schedule(
            sent.link[:count], sent.occupancy[:count], sent.transfer[:count],
            sent.priority[:count], sent.follows[: count + 1], sent.nexts, sent.waits[:count],
            num_links, sent.start[:count],
        )  # fmt: skip
        cooled = heat * (1.0 - turn / (rounds + 1.0))
        rise = (made - now) / max(now, 1)
        if turn == 0 or rise <= 0 or (cooled > 0.0 and uniform(state) < np.exp(-rise / cooled)):
            now = made
            ties, last = 0, np.int64(-1)
            for i in range(count):
                end = sent.start[i] + sent.transfer[i]
                if end > last:
                    last, ties, late = end, 1, sent.chunk[i]
                elif end == last:
                    ties += 1
                    if next_random(state) % ties == 0:
                        late = sent.chunk[i]
            if made < best:
                best = made
                best_choice[:] = choice
                best_wish[:] = wish
                if best <= target:
                    break
        else:
            choice[c], wish[c] = old_path, old_wish
    # the best again, for its times
    count = _fill(paths, best_choice, best_wish, sent)
    list_schedule(
        sent.link[:count], sent.occupancy[:count], sent.transfer[:count], sent.priority[:count],
        sent.follows[: count + 1], sent.nexts, sent.waits[:count], num_links, sent.start[:count],
    )  # fmt: skip
    table = np.empty((3, count), dtype=np.int64)
    table[0], table[1], table[2] = sent.chunk[:count], sent.link[:count], sent.start[:count]
    return best, table, best_choice
