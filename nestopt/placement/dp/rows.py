"""Equal rows of an array, told by their bytes: many times faster than by their figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["distinct_rows"]


def distinct_rows(rows: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The distinct rows of an array (N, F), in the order in which they come first.

    Returns
    -------
    first : int array (D,)
        The first of each.
    number : int array (N,)
        Which of them each row is.
    """
    # two zeros are equal, and their bytes differ
    tidy = np.ascontiguousarray(rows + rows.dtype.type(0))
    if not tidy.size:
        one = np.zeros(min(len(tidy), 1), dtype=np.intp)
        return one, np.zeros(len(tidy), dtype=np.intp)
    whole = tidy.view(np.dtype((np.void, tidy.dtype.itemsize * tidy.shape[1]))).reshape(-1)
    _, first, number = np.unique(whole, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[number.reshape(-1)]
