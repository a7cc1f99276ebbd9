r"""A bound on whole pipelines that looks at one stage at a time, before any block is priced.

Let n operators be of one kind, the *main* kind. Count stages from the end: stage k holds at least
``held[k]`` micro-batches. In a column c (a grid with a mode) of width w it holds L operators of the
main kind, at most as many as its memory and the largest stage time T allow, and with v chunks a
multiple of v. The first operator of the workload is in the first stage, the last in the last one.
With weights (a, b, c) of the objective, u devices a replica and :math:`T \in (T_0, T_1]`, a plan of
s stages costs at least, for any :math:`\lambda` and :math:`\pi`,

.. math:: \sum_{k=1}^{s} \min_{c,\, L \le L_c(k, T_1)} \Bigl( a\, t_c(L) + c \tfrac{w_c}{u} S_c(L)
          + \lambda w_c - \pi L \Bigr) + \pi n - \lambda u + b\, T_0 ,

where ``t`` has both boundaries and ``S`` is the synchronisation: the stages hold all n operators on
at most u devices, and the largest synchronisation is at least its mean over the devices. Ranges
of T are halved where the bound is least. A column that raises the bound of every range to the
incumbent, wherever a stage takes it, is in no better plan.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from nestopt.core.stop_kernel import KernelStopped, overdue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.dp.reduced import Columns, Pricer
    from nestopt.placement.dp.tables import Batch

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

__all__ = ["Left", "Stagewise"]

_FINE = 1e-3
"""Ranges of the largest time are halved down to this share of the incumbent."""
_RANGES = 48
"""Most ranges."""


# The kernels take plain arrays, which compile several times faster than tuples of them.
(
    _O_WIDTH, _O_SIDE, _O_SECONDS, _O_SYNC, _O_STATES, _O_STORED, _O_EXTRA,
    _O_LAST_SECONDS, _O_LAST_SYNC, _O_LAST_STATES, _O_LAST_STORED,
    _O_FIRST_SECONDS, _O_FIRST_SYNC, _O_FIRST_STATES, _O_FIRST_STORED,
) = range(15)  # fmt: skip
"""What a stage costs by column, the rows of an array (15, C).

Devices a replica; seconds of a boundary; seconds, synchronisation, bytes of states and of stored
activations of one operator of the main kind; bytes that any of these needs besides; the same four
of the workload's last operator, and of its first, if of another kind.
"""
(
    _S_NUMBER, _S_HELD, _S_SIDES, _S_LAST, _S_FIRST, _S_OPTIONAL, _S_BARE,
) = range(7)  # fmt: skip
"""Stages of a pipeline in groups that hold at least so many micro-batches, the columns of (G, 7).

How many; micro-batches held; boundaries; whether the last and the first stage is in it; whether its
stages may be absent; whether they may hold no operator of the main kind.
"""
(
    _T_TOTAL, _T_LARGEST, _T_SYNC, _T_OPERATORS, _T_STEP, _T_DEVICES, _T_ROOM, _T_GOAL, _T_REST,
) = range(9)  # fmt: skip
"""Numbers of a pipeline, (9,).

Weights of the sum, the largest time and (a device) the synchronisation; operators of the main kind
and what they come in multiples of; devices a replica; bytes of a device; the goal; what no stage
counts.
"""


class Left(NamedTuple):
    """What a bound leaves of a batch.

    Attributes
    ----------
    bound : float
    stages : tuple of (int, float)
        Numbers of stages that may be in a better plan, with their bounds; 0 where the schedule does
        not fix them.
    keep : bool array (C,)
        Columns that may be.
    """

    bound: float
    stages: tuple[tuple[int, float], ...]
    keep: Bools


class Stagewise:
    """The bounds of all batches of a pair of replicas and micro-batch.

    Parameters
    ----------
    sides : two float arrays (C,)
        Least seconds, and seconds per byte, of a boundary next to a stage of each column.
    cut : float
        Least bytes that a sample sends over a boundary; infinite where there is none.
    devices : int
        A replica.
    objective : str
    """

    def __init__(
        self,
        pricer: Pricer,
        columns: Columns,
        sides: tuple[Floats, Floats],
        cut: float,
        devices: int,
        objective: str,
    ) -> None:
        self._pricer, self._columns = pricer, columns
        self._alpha = sides[0]
        self._volume = sides[1] * cut if math.isfinite(cut) else 0.0 * sides[1]
        self._devices, self._objective = devices, objective
        workload = pricer.costs.workload
        kinds = pricer.costs.kind_of
        load = pricer.counts * (columns.seconds * columns.width).min(axis=1)
        self._main = int(np.argmax(np.where(np.isfinite(load), load, -1.0)))
        behind = {e.source for e in workload.edges}
        before = {e.target for e in workload.edges}
        ends = [[i for i in range(len(kinds)) if i not in having] for having in (behind, before)]
        if workload.is_chain:
            ends = [[len(kinds) - 1], [0]]
        self._ends = [
            int(kinds[found[0]]) if len(found) == 1 and kinds[found[0]] != self._main else -1
            for found in ends
        ]
        self._count = int(pricer.counts[self._main])
        self._inside = len(kinds) - self._count - sum(end >= 0 for end in self._ends)
        self._few: Ints | None = None

    def left(self, batch: Batch, counts: tuple[int, ...], goal: float) -> Left:
        """What of a batch may cost less than a goal.

        Parameters
        ----------
        counts : tuple of int
            Numbers of stages; (0,) for any.
        """
        offered = self._offered(batch)
        few = self._undominated(offered)
        widths, number = np.unique(offered[_O_WIDTH], return_inverse=True)
        task = self._task(batch, goal)
        keep = np.zeros(offered.shape[1], dtype=np.bool_)
        found: dict[int, float] = {}
        spans = [(s, s) for s in counts]
        if counts == (0,):
            spans = _spans(min(self._pricer.costs.workload.num_operators, self._devices))
        for low, high in spans:
            stages = self._stages(batch, low, high)
            rows = _ranges(offered, few, number, widths, stages, task, _FINE, _RANGES)
            if len(rows):
                number_of = low if counts != (0,) else 0
                value = float(rows[:, 2].min())
                found[number_of] = min(value, found.get(number_of, math.inf))
                _mark(offered, stages, task, rows, keep)
        return Left(min(found.values(), default=math.inf), tuple(found.items()), keep)

    def _offered(self, batch: Batch) -> Floats:
        columns, main = self._columns, self._main
        side = batch.schedule.crossings * (self._alpha + batch.microbatch * self._volume)
        none = np.zeros(len(columns.width))
        rows = [
            [none] * 4
            if end < 0
            else [columns.seconds[end], columns.sync[end], columns.states[end], columns.stored[end]]
            for end in self._ends
        ]
        return np.stack([
            columns.width, side, columns.seconds[main], columns.sync[main], columns.states[main],
            columns.stored[main], columns.extra[main], *rows[0], *rows[1],
        ])  # fmt: skip

    def _undominated(self, offered: Floats) -> Ints:
        """Columns of which no other one of their grid is at most as large in every figure."""
        if self._few is None:
            self._few = _front(np.ascontiguousarray(offered.T), self._columns.grid)
        return self._few

    def _task(self, batch: Batch, goal: float) -> Floats:
        weights = batch.schedule.weights(self._objective, batch.microbatches)
        devices = self._devices
        pricer = self._pricer
        # what is in no stage's own terms: operators that are neither of the main kind nor at an end
        counts = pricer.counts.copy()
        counts[self._main] = 0
        for end in self._ends:
            if end >= 0:
                counts[end] -= 1
        least = self._columns.seconds.min(axis=1)
        rest = weights.total * float(counts[counts > 0] @ least[counts > 0])
        step = batch.schedule.chunks if self._count > 1 else 1
        return np.array([
            weights.total, weights.largest, weights.sync / devices, float(self._count),
            float(step), float(devices), pricer.room, goal, rest,
        ])  # fmt: skip

    def _stages(self, batch: Batch, low: int, high: int) -> Floats:
        schedule, chunks = batch.schedule, batch.schedule.chunks
        exact = low == high
        # the last stage, then groups twice as long as those before, then the first stage
        begins = [1]
        while begins[-1] < high:
            begins.append(min(2 * begins[-1], high) if begins[-1] > 1 else 2)
        begins = sorted({*begins, *([] if exact else [low + 1])})
        rows = []
        for begin, end in zip(begins, [*begins[1:], high + 1], strict=True):
            held = min(
                schedule.in_flight(batch.microbatches, k, high if exact else k)
                for k in (begin, end - 1)
            )
            last = begin == 1
            first = exact and end == high + 1 and begin == high
            # where the first stage is not known, any from the least number on may be it
            maybe_first = first or (not exact and end > low)
            own = (
                self._inside + (last and self._ends[0] >= 0) + (maybe_first and self._ends[1] >= 0)
            )
            sides = 2 - last - (first or (not exact and end > low))
            rows.append((end - begin, held, max(0, sides), last, first, begin > low, own >= chunks))
        return np.array(rows, dtype=np.float64)


def _spans(most: int) -> list[tuple[int, int]]:
    """Ranges of numbers of stages, each twice as long as the one before."""
    found = [(1, 1)]
    while found[-1][1] < most:
        low = found[-1][1] + 1
        found.append((low, min(2 * low - 1, most)))
    return found


@njit(cache=True, nogil=True)
def _front(rows: Floats, group: Ints) -> Ints:
    """Rows that no other one of their group, or an earlier equal one, is at most as large as."""
    kept = np.empty(len(rows), np.int64)
    used = 0
    for i in range(len(rows)):
        good = True
        j = i - 1
        while good and j >= 0 and group[j] == group[i]:
            better = True
            for f in range(rows.shape[1]):
                if rows[j, f] > rows[i, f]:
                    better = False
                    break
            good = not better
            j -= 1
        j = i + 1
        while good and j < len(rows) and group[j] == group[i]:
            better, equal = True, True
            for f in range(rows.shape[1]):
                if rows[j, f] > rows[i, f]:
                    better = False
                    break
                if rows[j, f] < rows[i, f]:
                    equal = False
            good = not better or equal
            j += 1
        if good:
            kept[used] = i
            used += 1
    return kept[:used].copy()


@njit(cache=True, nogil=True)
def _most(o: Floats, c: int, s: Floats, g: int, task: Floats, limit: float) -> float:
    """Most operators of the main kind that a stage of a group may hold in a column.

    -1 where it may not be at all.
    """
    time = limit
    held = s[g, _S_HELD]
    if s[g, _S_SIDES] > 0:
        time -= s[g, _S_SIDES] * o[_O_SIDE, c]
    room = task[_T_ROOM]
    if s[g, _S_LAST] > 0:
        time -= o[_O_LAST_SECONDS, c]
        room -= o[_O_LAST_STATES, c] + held * o[_O_LAST_STORED, c]
    if s[g, _S_FIRST] > 0:
        time -= o[_O_FIRST_SECONDS, c]
        room -= o[_O_FIRST_STATES, c] + held * o[_O_FIRST_STORED, c]
    if not time >= 0.0 or not room >= 0.0:
        return -1.0
    most = task[_T_OPERATORS]
    each = o[_O_STATES, c] + held * o[_O_STORED, c]
    if o[_O_SECONDS, c] > 0.0:
        most = min(most, time / o[_O_SECONDS, c])
    if each > 0.0:
        most = min(most, (room - o[_O_EXTRA, c]) / each)
    # an operator that a column does not allow
    if not o[_O_SECONDS, c] < np.inf:
        most = 0.0
    most = np.floor(most * (1.0 + 1e-9) / task[_T_STEP]) * task[_T_STEP]
    if most >= task[_T_STEP]:
        return most
    return 0.0 if s[g, _S_BARE] > 0 else -1.0


@njit(cache=True, nogil=True)
def _cost(o: Floats, c: int, s: Floats, g: int, task: Floats, count: float) -> float:
    """What a stage of so many operators of the main kind adds to the objective's sums."""
    share = task[_T_SYNC] * o[_O_WIDTH, c]
    value = 0.0
    if s[g, _S_SIDES] > 0:
        value += task[_T_TOTAL] * s[g, _S_SIDES] * o[_O_SIDE, c]
    if s[g, _S_LAST] > 0:
        value += task[_T_TOTAL] * o[_O_LAST_SECONDS, c] + share * o[_O_LAST_SYNC, c]
    if s[g, _S_FIRST] > 0:
        value += task[_T_TOTAL] * o[_O_FIRST_SECONDS, c] + share * o[_O_FIRST_SYNC, c]
    if count > 0.0:
        value += count * (task[_T_TOTAL] * o[_O_SECONDS, c] + share * o[_O_SYNC, c])
    return value


@njit(cache=True, nogil=True)
def _points(
    o: Floats, few: Ints, number: Ints, widths: Floats, s: Floats, task: Floats, limit: float
) -> tuple[Floats, Ints]:
    """Stages worth having in each group: rows (width, operators, cost), and where groups begin.

    Of two, the one that is no narrower, holds no more and costs no less is left out.
    """
    groups = len(s)
    steps = int(task[_T_OPERATORS] / task[_T_STEP]) + 1
    out = np.empty((64, 3))
    begin = np.zeros(groups + 1, np.int64)
    used = 0
    for g in range(groups):
        best = np.full((len(widths), steps), np.inf)
        for place in range(len(few)):
            c = few[place]
            most = _most(o, c, s, g, task, limit)
            if most < 0.0:
                continue
            high = int(most / task[_T_STEP] + 0.5)
            w = number[c]
            best[w, high] = min(best[w, high], _cost(o, c, s, g, task, most))
            low = 0 if s[g, _S_BARE] > 0 else 1
            if low < high:
                cost = _cost(o, c, s, g, task, low * task[_T_STEP])
                best[w, low] = min(best[w, low], cost)
        front = np.full(steps, np.inf)
        for w in range(len(widths)):
            least = np.inf
            for n in range(steps - 1, -1, -1):
                if best[w, n] < least and best[w, n] < front[n]:
                    if used == len(out):
                        larger = np.empty((2 * used, 3))
                        # by hand: a slice brings a check of shapes that takes seconds to compile
                        for row in range(used):
                            for f in range(3):
                                larger[row, f] = out[row, f]
                        out = larger
                    out[used, 0] = widths[w]
                    out[used, 1] = n * task[_T_STEP]
                    out[used, 2] = best[w, n]
                    used += 1
                least = min(least, best[w, n])
                front[n] = min(front[n], least)
        begin[g + 1] = used
    return out[:used].copy(), begin


@njit(cache=True, nogil=True)
def _dual(
    points: Floats, begin: Ints, s: Floats, task: Floats, price: float, pay: float
) -> tuple[float, float, float]:
    """The bound at a price of devices and a pay for operators; devices and operators of it."""
    value = pay * task[_T_OPERATORS] - price * task[_T_DEVICES]
    devices, held = 0.0, 0.0
    for g in range(len(s)):
        least, width, count = np.inf, 0.0, 0.0
        for p in range(begin[g], begin[g + 1]):
            cost = points[p, 2] + price * points[p, 0] - pay * points[p, 1]
            if cost < least:
                least, width, count = cost, points[p, 0], points[p, 1]
        if s[g, _S_OPTIONAL] > 0 and not least < 0.0:
            continue
        value += s[g, _S_NUMBER] * least
        devices += s[g, _S_NUMBER] * width
        held += s[g, _S_NUMBER] * count
    return value, devices, held


@njit(cache=True, nogil=True)
def _best_pay(
    points: Floats, begin: Ints, s: Floats, task: Floats, price: float, start: float, need: float
) -> tuple[float, float, float]:
    """The best bound over the pay at a price: (bound, pay, devices at the optimum).

    The bound is concave in the pay: the tangents on both sides of the optimum meet above it.
    """
    n = task[_T_OPERATORS]
    best, pay, x = -np.inf, 0.0, 0.0
    low, below, devices_low, held_low = 0.0, 0.0, 0.0, 0.0
    high, above, devices_high, held_high = np.inf, 0.0, 0.0, 0.0
    top = np.inf
    # one place that calls the kernel: several would each be compiled
    for _ in range(240):
        value, devices, held = _dual(points, begin, s, task, price, x)
        if value > best:
            best, pay = value, x
        if best >= need or (x == 0.0 and held >= n):
            return best, pay, devices
        if held >= n:
            high, above, devices_high, held_high = x, value, devices, held
        else:
            low, below, devices_low, held_low = x, value, devices, held
        if high == np.inf:
            x = max(start, 2.0 * x)
            continue
        slope = held_high - held_low
        if slope <= 0.0 or value >= top - 1e-9 * abs(top):
            break
        x = (above - below + (n - held_low) * low - (n - held_high) * high) / slope
        if not low < x < high:
            break
        top = below + (n - held_low) * (x - low)
    share = 0.0
    if held_high > held_low:
        share = (n - held_low) / (held_high - held_low)
    return best, pay, devices_low + share * (devices_high - devices_low)


@njit(cache=True, nogil=True)
def _best_dual(
    points: Floats, begin: Ints, s: Floats, task: Floats, need: float
) -> tuple[float, float, float]:
    """The best bound over both multipliers, at once if it reaches `need`: (bound, price, pay)."""
    u = task[_T_DEVICES]
    scale = task[_T_GOAL] / task[_T_OPERATORS] / 16.0
    best, best_price, best_pay, x = -np.inf, 0.0, 0.0, 0.0
    low, below, slope_low = 0.0, 0.0, 0.0
    high, above, slope_high = np.inf, 0.0, 0.0
    top = np.inf
    for _ in range(120):
        value, pay, used = _best_pay(points, begin, s, task, x, scale, need)
        if value > best:
            best, best_price, best_pay = value, x, pay
        if best >= need or (x == 0.0 and used <= u):
            break
        if used <= u:
            high, above, slope_high = x, value, used - u
        else:
            low, below, slope_low = x, value, used - u
        if high == np.inf:
            x = max(task[_T_GOAL] / u / 16.0, 2.0 * x)
            continue
        slope = slope_low - slope_high
        if slope <= 0.0 or value >= top - 1e-6 * task[_T_GOAL]:
            break
        x = (above - below + slope_low * low - slope_high * high) / slope
        if not low < x < high:
            break
        top = below + slope_low * (x - low)
    return best, best_price, best_pay


@njit(cache=True, nogil=True)
def _ranges(
    o: Floats,
    few: Ints,
    number: Ints,
    widths: Floats,
    s: Floats,
    task: Floats,
    fine: float,
    most: int,
) -> Floats:
    """Ranges of the largest time below the goal: rows (lower end, upper end, bound, price, pay)."""
    rows = np.zeros((most + 4, 5))
    rows[0, 1] = task[_T_GOAL] / (task[_T_TOTAL] + task[_T_LARGEST])
    used, ready = 1, 0
    while True:
        if overdue():
            raise KernelStopped
        while ready < used:
            low, high = rows[ready, 0], rows[ready, 1]
            outside = task[_T_LARGEST] * low + task[_T_REST]
            points, begin = _points(o, few, number, widths, s, task, high * 1.000000001)
            value, price, pay = _best_dual(points, begin, s, task, task[_T_GOAL] - outside)
            rows[ready, 2] = (value + outside) * (1.0 - 1e-11)
            rows[ready, 3], rows[ready, 4] = price, pay
            if rows[ready, 2] >= task[_T_GOAL]:
                used -= 1
                for f in range(5):
                    rows[ready, f] = rows[used, f]
            else:
                ready += 1
        if used == 0:
            break
        least = 0
        for r in range(used):
            if rows[r, 2] < rows[least, 2]:
                least = r
        low, high = rows[least, 0], rows[least, 1]
        if task[_T_LARGEST] * (high - low) <= fine * task[_T_GOAL] or used >= most:
            break
        middle = 0.5 * (low + high)
        for f in range(5):
            rows[least, f] = rows[used - 1, f]
        rows[used - 1, 0], rows[used - 1, 1] = low, middle
        rows[used, 0], rows[used, 1] = middle, high
        ready = used - 1
        used += 1
    return rows[:used].copy()


@njit(cache=True, nogil=True)
def _mark(o: Floats, s: Floats, task: Floats, rows: Floats, keep: Any) -> None:
    """Mark the columns that some stage may take in a plan below the goal."""
    columns = o.shape[1]
    costs = np.empty(columns)
    for r in range(len(rows)):
        bound, price, pay = rows[r, 2], rows[r, 3], rows[r, 4]
        for g in range(len(s)):
            smallest = 0.0 if s[g, _S_OPTIONAL] > 0 else np.inf
            for c in range(columns):
                most = _most(o, c, s, g, task, rows[r, 1] * 1.000000001)
                costs[c] = np.inf
                if most >= 0.0:
                    low = 0.0 if s[g, _S_BARE] > 0 else task[_T_STEP]
                    costs[c] = price * o[_O_WIDTH, c] + min(
                        _cost(o, c, s, g, task, low) - pay * low,
                        _cost(o, c, s, g, task, most) - pay * most,
                    )
                    smallest = min(smallest, costs[c])
            for c in range(columns):
                if bound + (costs[c] - smallest) < task[_T_GOAL]:
                    keep[c] = True
