"""The latest end of a simulated pipeline, from its tasks alone.

The simulated time is the length of a longest chain of tasks, each of which waits for the one before
it: the previous task of its stage (or transfer of its link), or its input. A chain is bounded here
by how often it can meet tasks of each kind. Notation: s stages of v chunks have n = v m forward
tasks F_q and as many backward tasks B_q each, numbered 0 to n - 1 in their order; a_q is a transfer
between stages q and q + 1, a_{s-1} one from the last stage round to the first (v > 1); forward task
w_q + k of stage q comes right before backward task k (all forward tasks come first if w_q >= n).

**Slots, interleaved.** Forward task k of stage q and the transfer of its output stand in slot
k + q, backward task k and its transfer in slot k + s - 1 - q + v s - 1. As w_q = 2 (s - 1 - q) +
(v - 1) s, everything stands at least one slot after what it waits for, but for a backward task that
waits for a forward one of its stage and a transfer that waits for its task: they may share a slot.
There are n + s + v s - 2 slots.

**Steps.** Everything follows the first forward task of stage 0 and leads to its last backward task,
so let the chain go from one to the other. It goes up (F_q, a_q, F_{q+1}) or down (B_{q+1}, a_q,
B_q), stays (goes to the next task or transfer of the kind on its stage or link), turns (F_q, B_q)
or returns (B_q, F_q). In the slot that an up leaves it has no backward task, in the one that a down
leads to no forward task. It turns first on stage i and last on stage j. A full round of ups before
the first turn, or of downs after the last, counts as s stays of the mean length. Then all links are
crossed W times more often upwards than downwards, and a stage's forward tasks are W more than its
backward ones, if tasks reached by stays are left out.

*W = 0.* Let Q = max(i, j). The chain goes up and down between all stages up to Q and has a pair
(F_q, B_q) of each. Let it have p pairs, e forward stays, f backward stays and x downs besides. The
slots up to the last forward task, n + j at most, hold Q + 1 + p + e forward tasks and stays, and
x + Q - j downs; those from the first backward task on are n + i at most; so, and by all slots,

    (1) p + e + x <= n - 1    (2) p + f + x <= n - 1    (3) p + e + f + x <= n - 1 + w_Q.

Let M_Q be the pairs of the stages up to Q with the transfers between them, phi and beta the longest
forward and backward stay (those means included), and mu >= phi, beta the longest of a further pair
and of the transfers of a further down and up. (1) times mu - beta, (2) times mu - phi and (3) times
phi + beta - mu (if w_Q > n - 1: (1) times phi and (2) times beta) bound the length of the chain by

    M_Q + (n - 1) mu + min(w_Q, n - 1) (phi + beta - mu).

*W > 0.* Let Q = j, and let e include the s W forward tasks of W rounds. (1) and (3) hold as before.
W s + Q + x - i ups follow the first turn, so (2) holds with n - 1 + g_Q, where g_Q = max(0, s - 2 -
2 Q). This adds g_Q (mu - phi), less what a round is shorter than s phi, and n - 1 + g_Q takes the
place of n - 1 in the minimum. *W < 0* is the mirror image. The bound is the largest over Q.

**1F1B and GPipe.** A chain does not go round; Q is the highest stage that it meets. Under GPipe it
turns once, so p = x = 0, and (1) and (2) suffice (and are met). Under 1F1B w_q = s - 1 - q; with
slots k + q and k + s - 1 downs take no slot, which gives (1) and (3) without x, and with slots k
and k + s - 1 - q ups take none, which gives (2). A pair then includes its stage's transfers, once
each way. The single chunk that interleaving may have is bounded alike, with its longer warm-up.

**Transfers.** If they are asynchronous, M_Q = sum_{q <= Q} (F_q + B_q) + 2 sum_{q < Q} a_q. If they
are blocking, tasks include them, but what goes up or down does not wait until a task has sent; this
leaves M_Q = sum_{q <= Q} (F_q + B_q + 2 a_q). The transfers round are not in every task: a forward
one falls between two slots, where a chain meets one side of it at most, so it meets (v - 1) m at
most, and as many backward ones. The bound is the lesser of two: with the transfers round in every
task of first and last stage, and (if these are two) in none, with 2 (v - 1) m a_{s-1} added.

For each schedule and either kind of transfer there are pipelines that take as long as this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.judge.simulate import Pipeline

    Floats = NDArray[np.float64]

__all__ = ["latest_end"]


def latest_end(pipeline: Pipeline, *, blocking: bool = False) -> float:
    """Seconds after which a pipeline has certainly ended (see the module).

    Synchronisation counts as if the longest one followed the last task.
    """
    onward = np.append(pipeline.hop[:-1], 0.0)
    if pipeline.chunks == 1:
        ends = _ends(pipeline, onward, blocking)
    else:
        ends = _ends(pipeline, pipeline.hop, blocking)
        if blocking and len(onward) > 1:
            back = 2 * (pipeline.chunks - 1) * pipeline.microbatches * pipeline.hop[-1]
            ends = np.minimum(ends, _ends(pipeline, onward, blocking) + back)
    return float(ends.max() + pipeline.sync.max())


def _ends(pipeline: Pipeline, hop: Floats, blocking: bool) -> Floats:
    """The bound by Q, (s,), on the last task if these are the transfers."""
    forward, backward, warmup = pipeline.forward, pipeline.backward, pipeline.warmup()
    s, n = len(forward), pipeline.chunks * pipeline.microbatches
    before = np.roll(hop, 1)
    both = forward + backward
    if blocking:
        up, down = forward + before + hop, backward + before + hop
        pair = up + down
        mandatory = np.cumsum(both + 2 * hop)
    else:
        up, down = np.maximum(forward, before), np.maximum(backward, before)
        pair = both + before + hop
        mandatory = np.cumsum(both + 2 * before) - 2 * hop[-1]
    if pipeline.chunks == 1:
        phi, beta, mu = (np.maximum.accumulate(seconds) for seconds in (up, down, pair))
        return mandatory + (n - 1) * mu + np.minimum(warmup, n - 1) * (phi + beta - mu)

    round_up, round_down = (forward + hop).sum(), (backward + hop).sum()
    phi, beta = max(up.max(), round_up / s), max(down.max(), round_down / s)
    mu = max(phi, beta, pair.max() if blocking else max(both.max(), 2 * hop.max()))
    more = np.maximum(0, s - 2 - 2 * np.arange(s))
    winding = np.maximum(
        more * (mu - phi) - (s * phi - round_up), more * (mu - beta) - (s * beta - round_down)
    )
    shared = np.minimum(warmup, n - 1 + more) * (phi + beta - mu)
    return mandatory + (n - 1) * mu + shared + np.maximum(winding, 0)
