"""The contiguous split of a chain that balances its parts best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["even_split"]


def even_split(times: Floats, parts: int) -> list[int]:
    """Ends of the contiguous split with the least maximum, then the least sum of squares.

    No part is empty; among equals the earlier parts are the longer ones.

    Parameters
    ----------
    times : float array (L,)
        What each layer weighs.
    parts : int
        At most L.

    Returns
    -------
    list of int
        ``ends[q]`` is one behind the last layer of part q; the last is L.
    """
    count = len(times)
    if not 1 <= parts <= count:
        raise ValueError(f"{parts} parts of {count} layers")
    before = np.concatenate([[0.0], np.cumsum(times)])
    start = _split(before, parts)
    ends, end = [], count
    for part in range(parts, 0, -1):
        ends.append(end)
        end = int(start[part, end])
    return ends[::-1]


@njit(cache=True)
def _split(before: Floats, parts: int) -> NDArray[np.int64]:
    """First layer of the last of `part` parts that end at `end`, in the best split."""
    count = len(before) - 1
    least = np.full((parts + 1, count + 1), np.inf)
    least[0, 0] = 0.0
    for part in range(1, parts + 1):
        for end in range(part, count + 1):
            for begin in range(part - 1, end):
                worst = max(least[part - 1, begin], before[end] - before[begin])
                least[part, end] = min(least[part, end], worst)
    top = least[parts, count] * (1 + 1e-12)
    squares = np.full((parts + 1, count + 1), np.inf)
    start = np.zeros((parts + 1, count + 1), np.int64)
    squares[0, 0] = 0.0
    for part in range(1, parts + 1):
        for end in range(part, count + 1):
            for begin in range(part - 1, end):
                length = before[end] - before[begin]
                value = squares[part - 1, begin] + length * length
                # The last of equal ones leaves the longer parts in front.
                if length <= top and value <= squares[part, end] * (1 + 1e-12):
                    squares[part, end] = value
                    start[part, end] = begin
    return start
