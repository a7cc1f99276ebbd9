"""The compiled loop of the pipeline simulator: every task of one replica, in its stage's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["play"]


@njit(cache=True, nogil=True)
def play(
    forward: NDArray[np.float64],
    backward: NDArray[np.float64],
    warmup: NDArray[np.int64],
    hop: NDArray[np.float64],
    chunks: int,
    microbatches: int,
    blocking: bool,
) -> tuple[bool, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Run the pipeline.

    A stage first runs `warmup` forward tasks, then alternates one forward and one backward task,
    then runs the backward tasks that are left. Task number k of n = chunks * microbatches belongs
    to chunk ``(k mod (chunks * s)) div s`` (counted from the last one for backward tasks) and
    micro-batch ``(k div (chunks * s)) * s + k mod s``; without chunks that is micro-batch k.

    Parameters
    ----------
    forward, backward : float arrays (s,)
        Seconds of one task (one micro-batch of one chunk).
    warmup : int array (s,)
    hop : float array (s,)
        Seconds of a transfer, each way, between stages q and q + 1; the last one leads from the
        last stage back to the first, to the next chunk.
    chunks, microbatches : int
    blocking : bool
        A transfer occupies the stage that sends while it sends and the one that receives while it
        receives. Otherwise both compute on and the link carries one transfer at a time each way.

    Returns
    -------
    done : bool
        False if the tasks wait for each other.
    forward_end, backward_end : float arrays (s, chunks, microbatches)
        When each task has ended.
    free : float array (s,)
        When each stage has done all its work.
    """
    s = len(forward)
    n = chunks * microbatches
    forward_end = np.full((s, chunks, microbatches), np.nan)
    backward_end = np.full((s, chunks, microbatches), np.nan)
    # when the input of a task is there (blocking: when it may begin to be received)
    forward_in = np.full((s, chunks, microbatches), np.nan)
    backward_in = np.full((s, chunks, microbatches), np.nan)
    forward_in[0, 0, :] = 0.0
    up_free = np.zeros(s)
    down_free = np.zeros(s)
    free = np.zeros(s)
    position = np.zeros(s, np.int64)
    left = 2 * n * s
    while left > 0:
        before = left
        for q in range(s):
            while position[q] < 2 * n:
                p = position[q]
                if p < warmup[q]:
                    is_forward, k = True, p
                elif p < 2 * n - warmup[q]:
                    r = p - warmup[q]
                    is_forward = r % 2 == 0
                    k = r // 2 + warmup[q] if is_forward else r // 2
                else:
                    is_forward, k = False, p - n
                if chunks == 1:
                    c, i = 0, k
                else:
                    c = k % (chunks * s) // s
                    i = k // (chunks * s) * s + k % s
                    if not is_forward:
                        c = chunks - 1 - c
                last = q == s - 1 and c == chunks - 1
                first = q == 0 and c == 0
                if is_forward:
                    ready = forward_in[q, c, i]
                    receive = 0.0 if first else hop[q - 1]
                    send = 0.0 if last else hop[q]
                    body = forward[q]
                else:
                    ready = forward_end[q, c, i] if last else backward_in[q, c, i]
                    receive = 0.0 if last else hop[q]
                    send = 0.0 if first else hop[q - 1]
                    body = backward[q]
                if np.isnan(ready):
                    break
                start = max(free[q], ready)
                if blocking:
                    end = start + receive + body
                    free[q] = end + send
                    arrival = end
                else:
                    end = start + body
                    free[q] = end
                    arrival = end
                    if is_forward and not last:
                        arrival = max(end, up_free[q]) + send
                        up_free[q] = arrival
                    elif not is_forward and not first:
                        arrival = max(end, down_free[q]) + send
                        down_free[q] = arrival
                if is_forward:
                    forward_end[q, c, i] = end
                    if q < s - 1:
                        forward_in[q + 1, c, i] = arrival
                    elif c < chunks - 1:
                        forward_in[0, c + 1, i] = arrival
                else:
                    backward_end[q, c, i] = end
                    if q > 0:
                        backward_in[q - 1, c, i] = arrival
                    elif c > 0:
                        backward_in[s - 1, c - 1, i] = arrival
                position[q] += 1
                left -= 1
        if left == before:
            return False, forward_end, backward_end, free
    return True, forward_end, backward_end, free
