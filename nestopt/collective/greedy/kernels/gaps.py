"""When links are taken: sorted intervals a link, and the gaps between them.

Intervals that touch are one, so that a link which is busy for long holds few of them. There are
never more of them than sends on the link; the caller sees to it that these fit into a row.
"""

from __future__ import annotations

from typing import Any

from numba import njit

__all__ = ["first_gap", "last_gap", "release", "reserve"]


@njit(cache=True, nogil=True, inline="always")
def first_gap(begin: Any, end: Any, count: Any, ready: Any, length: Any) -> Any:
    """Earliest start from `ready` on of a gap of `length` between `count` intervals."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if end[middle] <= ready:
            low = middle + 1
        else:
            high = middle
    at = ready
    while low < count and begin[low] < at + length:
        at = end[low]
        low += 1
    return at


@njit(cache=True, nogil=True, inline="always")
def last_gap(begin: Any, end: Any, count: Any, latest: Any, length: Any) -> Any:
    """Latest start, `latest` at most and perhaps below 0, of a gap of `length`."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if begin[middle] < latest + length:
            low = middle + 1
        else:
            high = middle
    at = latest
    low -= 1
    while low >= 0 and end[low] > at:
        at = begin[low] - length
        low -= 1
    return at


@njit(cache=True, nogil=True)
def reserve(begin: Any, end: Any, count: Any, link: Any, start: Any, length: Any) -> None:
    """Take a free interval of a link; `begin` and `end` are that link's."""
    held, stop = count[link], start + length
    low, high = 0, held
    while low < high:
        middle = (low + high) // 2
        if end[middle] < start:
            low = middle + 1
        else:
            high = middle
    after = low < held and end[low] == start
    following = low + 1 if after else low
    before = following < held and begin[following] == stop
    if after and before:
        end[low] = end[following]
        for i in range(following, held - 1):
            begin[i], end[i] = begin[i + 1], end[i + 1]
        count[link] -= 1
    elif after:
        end[low] = stop
    elif before:
        begin[following] = start
    else:
        for i in range(held, following, -1):
            begin[i], end[i] = begin[i - 1], end[i - 1]
        begin[following], end[following] = start, stop
        count[link] += 1


@njit(cache=True, nogil=True)
def release(begin: Any, end: Any, count: Any, link: Any, start: Any, length: Any) -> None:
    """Give back what `reserve` has taken."""
    held, stop = count[link], start + length
    low, high = 0, held
    while low < high:
        middle = (low + high) // 2
        if end[middle] <= start:
            low = middle + 1
        else:
            high = middle
    left, right = begin[low] < start, end[low] > stop
    if left and right:
        for i in range(held, low, -1):
            begin[i], end[i] = begin[i - 1], end[i - 1]
        end[low], begin[low + 1] = start, stop
        count[link] += 1
    elif left:
        end[low] = start
    elif right:
        begin[low] = stop
    else:
        for i in range(low, held - 1):
            begin[i], end[i] = begin[i + 1], end[i + 1]
        count[link] -= 1
