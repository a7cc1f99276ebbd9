"""Summaries of records by method and by group: what a report's tables say."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.study.comparison import (
    best_known,
    drawn_unit,
    gap_to_best_known,
    gap_to_bound,
    gap_to_optimum,
    grouped,
    instance_key,
    number,
    objective_key,
    optima,
    problem_key,
    proved,
    seconds_counted,
    solved,
    timed_out,
)
from nestopt.study.statistics import (
    Interval,
    PairedTest,
    cluster_interval,
    primal_integral,
    shifted_geometric_mean,
    wilcoxon,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from nestopt.study.comparison import Record

__all__ = ["SHIFT", "Against", "Gaps", "Summary", "against", "by_method", "gaps_of", "summarise"]

SHIFT = 1.0
"""Seconds added in the geometric means of times."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """A kind of gap over the runs that have it: how many, arithmetic mean, median, largest."""

    count: int
    mean: float
    median: float
    largest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Gaps | None:
        """None if no run has it."""
        if not values:
            return None
        array = np.asarray(values)
        return cls(array.size, float(array.mean()), float(np.median(array)), float(array.max()))


@dataclass(frozen=True, slots=True)
class Summary:
    """The runs of one method (in one group).

    Attributes
    ----------
    runs, instances, solved, proved : int
    timeouts, memory_limits, errors : int
        Runs that ended so.
    to_bound, to_optimum, to_best_known : Gaps or None
        Over the solved runs with a finite bound, with a proved optimum, and over all solved ones.
    mean_objective : float or None
        Geometric mean over the solved runs; None without one, or where one is 0.
    mean_seconds : float or None
        Shifted geometric mean (shift `SHIFT`) of CPU seconds, timeouts and errors at the limit;
        None if a run lacks the figure.
    primal_integral : float or None
        Arithmetic mean of the primal integral over the time limit, as a share of it, over the runs
        with a time limit, on instances where any run found a solution.
    """

    method: str
    runs: int
    instances: int
    solved: int
    proved: int
    timeouts: int
    memory_limits: int
    errors: int
    to_bound: Gaps | None
    to_optimum: Gaps | None
    to_best_known: Gaps | None
    mean_objective: float | None
    mean_seconds: float | None
    primal_integral: float | None


def by_method(records: Sequence[Record]) -> list[Summary]:
    """A summary of each method, in the order of their first records."""
    known, best = optima(records), best_known(records)
    return [
        _summary(str(method), rows, known, best)
        for method, rows in grouped(records, lambda r: r["method"]).items()
    ]


def summarise(
    records: Sequence[Record], parameters: Sequence[str]
) -> list[tuple[tuple[str, ...], Summary]]:
    """Summaries by the values of some parameters and method; gaps refer to all records."""
    known, best = optima(records), best_known(records)

    def key(record: Record) -> Hashable:
        found = record.get("parameters") or {}
        return (*(str(found.get(name, "-")) for name in parameters), str(record["method"]))

    return [
        (values[:-1], _summary(values[-1], rows, known, best))
        for values, rows in sorted(grouped(records, key).items(), key=lambda item: _order(item[0]))
    ]


def _order(values: tuple[str, ...]) -> tuple[tuple[int, float, str], ...]:
    """Numbers by size and before text."""
    keys = []
    for value in values:
        try:
            keys.append((0, float(value), value))
        except ValueError:
            keys.append((1, 0.0, value))
    return tuple(keys)


def gaps_of(records: Sequence[Record], kind: str, known: Any = None) -> list[float]:
    """The finite gaps of a kind (bound, optimum, best known) of the runs that have one."""
    found: list[float | None]
    if kind == "bound":
        found = [gap_to_bound(record) for record in records]
    elif kind == "optimum":
        found = [gap_to_optimum(r, known) for r in records if problem_key(r) in known]
    else:
        found = [gap_to_best_known(r, known) for r in records if objective_key(r) in known]
    return [gap for gap in found if gap is not None and math.isfinite(gap)]


def _summary(method: str, rows: list[Record], known: Any, best: Any) -> Summary:
    try:
        times = shifted_geometric_mean([seconds_counted(row) for row in rows], SHIFT)
    except ValueError:
        times = None
    ends = [row["termination"] for row in rows]
    return Summary(
        method=method,
        runs=len(rows),
        instances=len({instance_key(row) for row in rows}),
        solved=sum(map(solved, rows)),
        proved=sum(map(proved, rows)),
        timeouts=sum(map(timed_out, rows)),
        memory_limits=sum(end.get("limit") == "memory" for end in ends),
        errors=sum(end["reason"] == "error" for end in ends),
        to_bound=Gaps.of(gaps_of(rows, "bound")),
        to_optimum=Gaps.of(gaps_of(rows, "optimum", known)),
        to_best_known=Gaps.of(gaps_of(rows, "best known", best)),
        mean_objective=_geometric([float(row["objective"]) for row in rows if solved(row)]),
        mean_seconds=times,
        primal_integral=_mean_primal_integral(rows, best),
    )


def _geometric(values: list[float]) -> float | None:
    return shifted_geometric_mean(values, 0.0) if values and min(values) > 0 else None


def _mean_primal_integral(rows: list[Record], best: Any) -> float | None:
    shares = []
    for row in rows:
        limit = number(row.get("time_limit"))
        if not limit or not math.isfinite(limit) or objective_key(row) not in best:
            continue
        if solved(row) and not row.get("trace"):
            continue
        shares.append(primal_integral(row.get("trace") or [], limit, best[objective_key(row)]))
        shares[-1] /= limit
    return float(np.mean(shares)) if shares else None


@dataclass(frozen=True, slots=True)
class Against:
    """A method against the baseline on the instances that both ran.

    Attributes
    ----------
    pairs, better, equal, worse : int
        Instances; a run without a solution has an infinite objective, several seeds their median.
    unpaired : int
        Instances that only one of the two ran.
    unsolved : int
        Pairs that at least one of the two did not solve; they count in the test, not in the ratio.
    ratio : Interval or None
        Geometric mean of objective / baseline's objective with its 95 % bootstrap interval, which
        draws whole workloads or networks; a point where there are too few of them.
    test : PairedTest or None
    """

    method: str
    pairs: int
    better: int
    equal: int
    worse: int
    unpaired: int
    unsolved: int
    ratio: Interval | None
    test: PairedTest | None


def against(records: Sequence[Record], baseline: str, seed: int = 0) -> list[Against]:
    """Every other method against `baseline`; `seed` is of the bootstrap."""
    tables = {
        str(method): _medians(rows)
        for method, rows in grouped(records, lambda r: r["method"]).items()
    }
    if baseline not in tables:
        return []
    base = tables[baseline]
    drawn: dict[Hashable, str] = {
        (instance_key(r), problem_key(r)[1]): drawn_unit(r) for r in records
    }
    return [_against(m, table, base, drawn, seed) for m, table in tables.items() if m != baseline]


def _medians(rows: list[Record]) -> dict[Hashable, float]:
    """Median objective over seeds by instance and kind of objective; infinite if not solved."""
    groups = grouped(rows, lambda r: (instance_key(r), problem_key(r)[1]))
    return {
        key: float(np.median([math.inf if not solved(r) else float(r["objective"]) for r in group]))
        for key, group in groups.items()
    }


def _against(
    method: str,
    table: dict[Hashable, float],
    base: dict[Hashable, float],
    drawn: Mapping[Hashable, str],
    seed: int,
) -> Against:
    shared = [key for key in base if key in table]
    theirs = np.array([table[key] for key in shared], dtype=np.float64)
    ours = np.array([base[key] for key in shared], dtype=np.float64)
    both = np.isfinite(theirs) & np.isfinite(ours)
    same = theirs == ours
    same[both] = np.isclose(theirs[both], ours[both], rtol=1e-9, atol=0)
    ratio = None
    if both.any() and (ours[both] > 0).all() and (theirs[both] > 0).all():
        logs = np.log(theirs[both] / ours[both])
        units = [drawn[key] for key, kept in zip(shared, both) if kept]
        mean = float(logs.mean())
        found = cluster_interval(logs, units, np.random.default_rng(seed))
        found = Interval(mean, mean, mean) if found is None else found
        ratio = Interval(*(math.exp(v) for v in (found.estimate, found.low, found.high)))
    return Against(
        method=method,
        pairs=len(shared),
        better=int(np.count_nonzero((theirs < ours) & ~same)),
        equal=int(np.count_nonzero(same)),
        worse=int(np.count_nonzero((theirs > ours) & ~same)),
        unpaired=len(base.keys() ^ table.keys()),
        unsolved=int(np.count_nonzero(~both)),
        ratio=ratio,
        test=wilcoxon(np.where(same, ours, theirs), ours) if shared else None,
    )
