"""Exact dynamic program for max-load partitioning, over pairs of nested ideals.

best[I][a][c] is the least possible largest load when the ideal I is divided among a accelerators
and c CPUs. Each ideal is left for those below it by removing one maximal unit at a time, with
the load of the difference updated on the way; a walk ends where neither kind of device could
hold the difference within the best known load.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from nestopt.core.result import Limit, Reason, Termination
from nestopt.placement.model.ideals import (
    IdealLattice,
    TooManyIdealsError,
    enumerate_ideals,
    topological_order,
)
from nestopt.placement.model.models import parse_count
from nestopt.placement.partitioning.maxload.outcome import (
    infeasible_reasons,
    load_bound,
    make_result,
)
from nestopt.placement.partitioning.maxload.units import make_units, restore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.placement.partitioning.maxload.model import MaxLoadProblem, Stage
    from nestopt.placement.partitioning.maxload.units import Units

__all__ = ["linear_split", "solve_dp"]

_CHUNK_SECONDS = 0.5
# Loads are updated term by term; this absorbs their rounding when they meet the cutoff
_SLACK = 1e-9
_ACCELERATOR, _CPU = 0, 1


class _Costs(NamedTuple):
    """Units and transfers as arrays, for the kernel.

    Transfer t is made in unit home[t] and goes to users[t] others; touching[touching_start[v]:
    touching_start[v + 1]] are the transfers in which unit v takes part.
    """

    accelerator_time: NDArray[np.float64]
    cpu_time: NDArray[np.float64]
    memory: NDArray[np.float64]
    supported: NDArray[np.bool_]
    memory_limit: float
    home: NDArray[np.int64]
    users: NDArray[np.int64]
    cost: NDArray[np.float64]
    touching_start: NDArray[np.int64]
    touching: NDArray[np.int64]


class _Table(NamedTuple):
    """best (N, a + 1, c + 1) and how it was reached: the ideal below and the device's kind."""

    best: NDArray[np.float64]
    below: NDArray[np.int64]
    kind: NDArray[np.int8]


def solve_dp(problem: MaxLoadProblem, options: SolveOptions) -> Result:
    """Split a workload so that the largest load is least, and prove it.

    Parameters
    ----------
    problem : MaxLoadProblem
    options : SolveOptions
        `time_limit` and `progress` are honoured; ``--set ideal-limit=N`` caps the lattice
        (default 2,000,000).

    Returns
    -------
    Result
        Optimal or infeasible; at the time limit the best split over one linear order, and
        likewise, with the limit ``memory``, when there are too many ideals.
    """
    started = time.perf_counter()
    units = make_units(problem)
    costs = _costs(problem, units)
    lower = load_bound(problem, units)
    split, cutoff = linear_split(problem, units)
    if options.progress is not None:
        options.progress(
            time.perf_counter() - started, cutoff if split else None, lower, "one linear order"
        )
    stats: dict[str, Any] = {"units": len(units)}
    most = parse_count(options.set.get("ideal-limit", "2000000"), "--set ideal-limit")
    limit = Limit.NONE
    try:
        lattice = enumerate_ideals(units.predecessors, limit=most)
    except TooManyIdealsError:
        limit = Limit.MEMORY
    else:
        stats["ideals"] = len(lattice)
        table = _table(problem, lattice)
        deadline = started + options.time_limit
        pairs = _fill(lattice, costs, table, cutoff, deadline)
        stats["pairs"] = abs(pairs)
        if pairs < 0:
            limit = Limit.TIME
        elif np.isfinite(table.best[-1, -1, -1]):
            split = restore(units, _read(lattice, table))
    reasons: tuple[str, ...] = ()
    if limit is not Limit.NONE:
        reason = Reason.FEASIBLE if split else Reason.NO_SOLUTION
    elif split:
        reason, lower = Reason.OPTIMAL, float("inf")
    else:
        reason, lower = Reason.INFEASIBLE, float("inf")
        reasons = infeasible_reasons(problem, units)
    return make_result(
        problem,
        options,
        "dp",
        Termination(reason, limit),
        split,
        lower,
        time.perf_counter() - started,
        reasons=reasons,
        stats=stats,
    )


def linear_split(problem: MaxLoadProblem, units: Units) -> tuple[tuple[Stage, ...] | None, float]:
    """The best split into runs of one topological order, and its largest load.

    A quick incumbent, never better than the optimum; (None, inf) if none is feasible.
    """
    order = topological_order(units.predecessors)
    chain: list[list[int]] = [[] for _ in order]
    for first, second in pairwise(order):
        chain[second].append(first)
    lattice = enumerate_ideals(chain, limit=len(order) + 1)
    costs = _costs(problem, units)
    worst = float(costs.accelerator_time.sum() + costs.cpu_time.sum() + 2 * costs.cost.sum())
    cutoff = load_bound(problem, units)
    if not cutoff > 0:
        cutoff = worst
    # A low cutoff keeps the walks short, and raising it step by step costs little
    while True:
        table = _table(problem, lattice)
        _fill(lattice, costs, table, cutoff, np.inf)
        value = float(table.best[-1, -1, -1])
        if np.isfinite(value):
            return restore(units, _read(lattice, table)), value
        if cutoff >= worst:
            return None, np.inf
        cutoff *= 1.25


def _costs(problem: MaxLoadProblem, units: Units) -> _Costs:
    count = len(units)
    touching: list[list[int]] = [[] for _ in range(count)]
    for t, transfer in enumerate(units.transfers):
        for unit in (transfer.home, *transfer.users):
            touching[unit].append(t)
    start = np.zeros(count + 1, dtype=np.int64)
    np.cumsum([len(row) for row in touching], out=start[1:])
    return _Costs(
        np.array(units.accelerator_time, dtype=np.float64),
        np.array(units.cpu_time, dtype=np.float64),
        np.array(units.memory, dtype=np.float64),
        np.array(units.on_accelerator, dtype=np.bool_),
        problem.accelerator_memory,
        np.array([t.home for t in units.transfers], dtype=np.int64),
        np.array([len(t.users) for t in units.transfers], dtype=np.int64),
        np.array([t.cost for t in units.transfers], dtype=np.float64),
        start,
        np.array([t for row in touching for t in row], dtype=np.int64),
    )


def _table(problem: MaxLoadProblem, lattice: IdealLattice) -> _Table:
    # no stage is empty, so that more devices than operators are of no use
    most = len(problem.operators)
    shape = (len(lattice), min(problem.accelerators, most) + 1, min(problem.cpus, most) + 1)
    best = np.full(shape, np.inf)
    best[0] = 0.0
    return _Table(best, np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int8))


def _fill(
    lattice: IdealLattice, costs: _Costs, table: _Table, cutoff: float, deadline: float
) -> int:
    """Fill the table; the number of pairs looked at, negative if the deadline came first."""
    step = 1
    pairs = 0
    done = 1
    while done < len(lattice):
        began = time.perf_counter()
        if began >= deadline:
            return -pairs - 1
        stop = min(len(lattice), done + step)
        pairs += _kernel(
            done,
            stop,
            lattice.rank,
            lattice.cover_start,
            lattice.cover_vertex,
            lattice.cover_below,
            costs,
            table,
            cutoff * (1 + _SLACK),
        )
        done = stop
        if time.perf_counter() - began < _CHUNK_SECONDS:
            step *= 2
    return pairs


def _read(lattice: IdealLattice, table: _Table) -> list[tuple[str, list[int]]]:
    """Follow the choices back from the full ideal: device kind and units, first stage first."""
    stages: list[tuple[str, list[int]]] = []
    ideal = len(lattice) - 1
    _, accelerators, cpus = (size - 1 for size in table.best.shape)
    while ideal > 0:
        below = int(table.below[ideal, accelerators, cpus])
        kind = int(table.kind[ideal, accelerators, cpus])
        content = sorted(set(lattice.members(ideal)) - set(lattice.members(below)))
        stages.append(("cpu" if kind == _CPU else "accelerator", content))
        if kind == _CPU:
            cpus -= 1
        else:
            accelerators -= 1
        ideal = below
    return stages[::-1]


@njit(cache=True, nogil=True)
def _paid(t: int, costs: _Costs, made: Any, taken: Any) -> bool:
    """Whether a device pays for transfer t: made there and wanted elsewhere, or the reverse."""
    return taken[t] < costs.users[t] if made[t] else taken[t] > 0


@njit(cache=True, nogil=True)
def _move(unit: int, step: int, costs: _Costs, made: Any, taken: Any) -> float:
    """Put a unit into the difference (step 1) or take it out (-1); the change in transfer cost."""
    change = 0.0
    for e in range(costs.touching_start[unit], costs.touching_start[unit + 1]):
        t = costs.touching[e]
        if _paid(t, costs, made, taken):
            change -= costs.cost[t]
        if costs.home[t] == unit:
            made[t] = step > 0
        else:
            taken[t] += step
        if _paid(t, costs, made, taken):
            change += costs.cost[t]
    return change


@njit(cache=True, nogil=True)
def _relax(table: _Table, ideal: int, below: int, kind: int, load: float, cutoff: float) -> None:
    """Try a device of one kind with this load for the difference of two ideals."""
    best = table.best
    for a in range(1 if kind == 0 else 0, best.shape[1]):
        for c in range(1 if kind == 1 else 0, best.shape[2]):
            before = best[below, a - 1, c] if kind == 0 else best[below, a, c - 1]
            value = max(before, load)
            if value <= cutoff and value < best[ideal, a, c]:
                best[ideal, a, c] = value
                table.below[ideal, a, c] = below
                table.kind[ideal, a, c] = kind


@njit(cache=True, nogil=True)
def _kernel(
    start: int,
    stop: int,
    rank: Any,
    cover_start: Any,
    cover_vertex: Any,
    cover_below: Any,
    costs: _Costs,
    table: _Table,
    cutoff: float,
) -> int:
    """Fill the rows start..stop-1 of the table; the number of pairs of ideals looked at."""
    depth = len(rank) + 1
    # Of each transfer: whether the difference has its maker, and how many of its takers
    made = np.zeros(len(costs.home), dtype=np.bool_)
    taken = np.zeros(len(costs.home), dtype=np.int64)
    # One frame for each unit removed: which, where we are, the next cover to try, running sums
    removed = np.empty(depth, dtype=np.int64)
    at = np.empty(depth, dtype=np.int64)
    edge = np.empty(depth, dtype=np.int64)
    top = np.empty(depth, dtype=np.int64)
    compute = np.zeros(depth)
    transfer = np.zeros(depth)
    cpu = np.zeros(depth)
    memory = np.zeros(depth)
    fits = np.ones(depth, dtype=np.bool_)
    pairs = 0
    for ideal in range(start, stop):
        level = 0
        at[0], edge[0], top[0] = ideal, cover_start[ideal], len(rank)
        while level >= 0:
            here = at[level]
            e = edge[level]
            if e == cover_start[here + 1] or rank[cover_vertex[e]] >= top[level]:
                if level > 0:
                    _move(removed[level], -1, costs, made, taken)
                level -= 1
                continue
            edge[level] = e + 1
            unit = cover_vertex[e]
            new = level + 1
            compute[new] = compute[level] + costs.accelerator_time[unit]
            cpu[new] = cpu[level] + costs.cpu_time[unit]
            memory[new] = memory[level] + costs.memory[unit]
            fits[new] = (
                fits[level]
                and costs.supported[unit]
                and memory[new] <= costs.memory_limit
                and compute[new] <= cutoff
            )
            on_cpu = table.best.shape[2] > 1 and cpu[new] <= cutoff
            if not (fits[new] or on_cpu):
                continue
            removed[new] = unit
            transfer[new] = transfer[level] + _move(unit, 1, costs, made, taken)
            pairs += 1
            below = cover_below[e]
            if fits[new]:
                load = compute[new] + transfer[new]
                if load <= cutoff:
                    _relax(table, ideal, below, 0, load, cutoff)
            if on_cpu:
                _relax(table, ideal, below, 1, cpu[new], cutoff)
            at[new], edge[new], top[new] = below, cover_start[below], rank[unit]
            level = new
    return pairs
