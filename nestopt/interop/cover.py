"""Disjoint sets that make up a given one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["disjoint_cover"]

MOST_TRIALS = 100_000


def disjoint_cover(wanted: int, sets: Sequence[int]) -> list[int]:
    """Indices of pairwise disjoint sets whose union is `wanted`; empty if none are found.

    Parameters
    ----------
    wanted : int
        A bit for each element.
    sets : sequence of int
        The same of each set. Those that hold most are tried first; the search is given up after
        `MOST_TRIALS`.
    """
    usable = [k for k, bits in enumerate(sets) if bits and not bits & ~wanted]
    usable.sort(key=lambda k: -sets[k].bit_count())
    chosen: list[int] = []
    at = [0]
    left, trials = wanted, 0
    while left:
        low = left & -left
        depth = len(chosen)
        while at[depth] < len(usable):
            k = usable[at[depth]]
            at[depth] += 1
            trials += 1
            if sets[k] & low and not sets[k] & ~left:
                chosen.append(k)
                at.append(0)
                left &= ~sets[k]
                break
        else:
            if not chosen or trials > MOST_TRIALS:
                return []
            at.pop()
            left |= sets[chosen.pop()]
    return chosen
