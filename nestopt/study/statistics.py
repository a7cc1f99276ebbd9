"""Statistics of studies, as pure functions of arrays.

Nothing is dropped silently: a missing figure (NaN) is an error, a run that did not finish has an
infinite cost, and every mean says which mean it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "Interval",
    "PairedTest",
    "PowerLaw",
    "Profile",
    "FEWEST",
    "bootstrap_interval",
    "cluster_interval",
    "ecdf",
    "fit_power_law",
    "performance_profile",
    "primal_integral",
    "rank_correlation",
    "regret",
    "shifted_geometric_mean",
    "wilcoxon",
    "wilson_interval",
]

FEWEST = 5
"""Clusters below which no interval is given."""


def _numbers(values: ArrayLike, name: str, *, least: int = 1) -> Floats:
    """`values` as a one-dimensional array without NaN."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise InputError(f"expected a list of numbers, got {array.ndim} dimensions", field=name)
    if array.size < least:
        raise InputError(f"expected at least {least} values, got {array.size}", field=name)
    if np.isnan(array).any():
        place = int(np.flatnonzero(np.isnan(array))[0])
        raise InputError("is not a number", field=f"{name}[{place}]")
    return array


def _pairs(first: ArrayLike, second: ArrayLike, *, least: int = 1) -> tuple[Floats, Floats]:
    x, y = _numbers(first, "first", least=least), _numbers(second, "second", least=least)
    if x.size != y.size:
        raise InputError(f"{x.size} values against {y.size}: expected pairs")
    return x, y


def shifted_geometric_mean(values: ArrayLike, shift: float) -> float:
    """exp(mean(log(v + shift))) - shift; infinite if a value is.

    Parameters
    ----------
    values : array_like, shape (n,)
        Not negative; timeouts stand at their limit.
    shift : float
        In the unit of the values. 0 is the geometric mean; a large shift nears the arithmetic one.

    References
    ----------
    T. Achterberg, Constraint Integer Programming (2007), section A.3.
    """
    array = _numbers(values, "values")
    if shift < 0 or (array < 0).any() or (array + shift <= 0).any():
        raise InputError(
            "a shifted geometric mean needs values >= 0 and a shift that makes them > 0"
        )
    return float(np.exp(np.mean(np.log(array + shift))) - shift)


@dataclass(frozen=True, slots=True)
class Profile:
    """A performance profile: a step function for every method.

    Attributes
    ----------
    taus : ndarray, shape (k,)
        The finite ratios at which some method steps, ascending, the first is 1.
    shares : ndarray, shape (k, methods)
        Share of all problems that the method solves within `taus` times the best method's cost.
    problems : int
        How many problems are counted, those that no method solves included.
    """

    taus: Floats
    shares: Floats
    problems: int


def performance_profile(costs: ArrayLike) -> Profile:
    """The performance profile of methods on problems.

    Parameters
    ----------
    costs : array_like, shape (problems, methods)
        Positive; infinite where a method did not solve the problem (a timeout).

    Raises
    ------
    InputError
        If a cost is missing (NaN) or not positive.

    References
    ----------
    E. D. Dolan and J. J. More, Benchmarking optimization software with performance profiles,
    Mathematical Programming 91 (2002), 201-213: ratio to the best cost, share of all problems.
    """
    table = np.asarray(costs, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(f"expected costs by problem and method, got shape {table.shape}")
    wrong = np.argwhere(np.isnan(table) | (table <= 0))
    if wrong.size:
        row, column = (int(i) for i in wrong[0])
        found = table[row, column]
        raise InputError(f"expected a positive cost, got {found}", field=f"costs[{row}][{column}]")
    best = table.min(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        ratios = np.where(np.isfinite(table), table / best, np.inf)
    taus = np.unique(np.concatenate([[1.0], ratios[np.isfinite(ratios)]]))
    shares = (ratios[None, :, :] <= taus[:, None, None]).mean(axis=1)
    return Profile(taus, shares, table.shape[0])


def primal_integral(trace: Sequence[Sequence[float | None]], horizon: float, best: float) -> float:
    """Integral over time of the primal gap; in seconds, 0 (best at once) to `horizon` (nothing).

    The primal gap of an incumbent x is |best - x| / max(|best|, |x|): 1 without incumbent or when
    the signs differ, 0 when both are 0.

    Parameters
    ----------
    trace : sequence of (seconds, objective or None, ...)
        Incumbents in order of time; those after `horizon` do not count.
    horizon : float
        Seconds.
    best : float
        The best known objective.

    References
    ----------
    T. Berthold, Measuring the impact of primal heuristics, Operations Research Letters 41 (2013),
    611-614.
    """
    if not horizon > 0 or not math.isfinite(horizon):
        raise InputError(f"expected a positive number of seconds, got {horizon}", field="horizon")
    area, now, gap = 0.0, 0.0, 1.0
    for row in trace:
        seconds, objective = row[0], row[1]
        if seconds is None or seconds < now:
            raise InputError(f"time {seconds} after {now}: expected ascending times", field="trace")
        if seconds >= horizon:
            break
        area += gap * (seconds - now)
        now = seconds
        gap = _primal_gap(objective, best)
    return area + gap * (horizon - now)


def _primal_gap(objective: float | None, best: float) -> float:
    if objective is None:
        return 1.0
    if objective == best:
        return 0.0
    if objective * best < 0:
        return 1.0
    return abs(best - objective) / max(abs(best), abs(objective))


@dataclass(frozen=True, slots=True)
class PairedTest:
    """A paired Wilcoxon signed-rank test.

    Attributes
    ----------
    pairs, ties : int
        Pairs, and those among them that do not differ.
    statistic, p_value : float
    median : float
        Median of first - second.
    """

    pairs: int
    ties: int
    statistic: float
    p_value: float
    median: float


def wilcoxon(first: ArrayLike, second: ArrayLike, *, alternative: str = "two-sided") -> PairedTest:
    """Signed-rank test of paired values; pairs without difference are left out of the ranks.

    Exact for up to 50 pairs without ties in rank, else by the normal approximation. If no pair
    differs the p-value is 1.

    References
    ----------
    F. Wilcoxon, Individual comparisons by ranking methods, Biometrics Bulletin 1 (1945), 80-83.
    """
    from scipy.stats import wilcoxon as test

    x, y = _pairs(first, second)
    with np.errstate(invalid="ignore"):
        difference = np.where(x == y, 0.0, x - y)
        median = float(np.median(difference))
    ties = int(np.count_nonzero(difference == 0))
    if ties == difference.size:
        return PairedTest(difference.size, ties, 0.0, 1.0, median)
    kept = difference[difference != 0]
    plain = kept.size <= 50 and np.unique(np.abs(kept)).size == kept.size
    found = test(kept, alternative=alternative, method="exact" if plain else "approx")
    p_value = float(found.pvalue)
    return PairedTest(difference.size, ties, float(found.statistic), p_value, median)


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and a confidence interval around it."""

    estimate: float
    low: float
    high: float
    level: float = 0.95


def bootstrap_interval(
    values: ArrayLike,
    statistic: Callable[[Floats], Any],
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = 4000,
    method: str = "bca",
) -> Interval:
    """Bootstrap confidence interval of a statistic.

    Parameters
    ----------
    values : array_like, shape (n,)
    statistic : callable
        Of an array, over its last axis (``lambda x: np.median(x, axis=-1)``).
    rng : numpy.random.Generator
    level : float
    resamples : int
    method : str
        ``"percentile"``, or ``"bca"`` (bias-corrected and accelerated). Where all resamples or all
        leave-one-out values agree, the interval of BCa is that of percentiles.

    References
    ----------
    B. Efron and R. J. Tibshirani, An Introduction to the Bootstrap (1993), chapters 13 and 14.
    """
    from scipy.special import ndtr, ndtri

    array = np.sort(_numbers(values, "values"))  # so that the order of the values does not matter
    if method not in ("percentile", "bca"):
        raise InputError(f"expected percentile or bca, got {method!r}", field="method")
    if not 0 < level < 1:
        raise InputError(f"expected a level between 0 and 1, got {level}", field="level")
    estimate = float(statistic(array))
    drawn = array[rng.integers(0, array.size, (resamples, array.size))]
    found = np.sort(np.asarray(statistic(drawn), dtype=np.float64))
    tails = np.array([(1 - level) / 2, (1 + level) / 2])
    if method == "bca" and array.size > 1:
        below = (np.count_nonzero(found < estimate) + np.count_nonzero(found <= estimate)) / 2
        bias = ndtri(np.clip(below / resamples, 1 / resamples, 1 - 1 / resamples))
        others = np.broadcast_to(array, (array.size, array.size))
        left_out = others[~np.eye(array.size, dtype=bool)].reshape(array.size, array.size - 1)
        jackknife = np.asarray(statistic(left_out), dtype=np.float64)
        spread = jackknife.mean() - jackknife
        scale = float((spread**2).sum()) ** 1.5
        if scale > 0:
            acceleration = float((spread**3).sum()) / (6 * scale)
            shifted = bias + ndtri(tails)
            tails = ndtr(bias + shifted / (1 - acceleration * shifted))
    low, high = np.quantile(found, tails)
    return Interval(estimate, float(low), float(high), level)


def cluster_interval(
    values: ArrayLike,
    clusters: Sequence[Hashable],
    rng: np.random.Generator,
    *,
    level: float = 0.95,
    resamples: int = 4000,
) -> Interval | None:
    """Percentile interval of the arithmetic mean where values of one cluster belong together.

    Whole clusters (workloads, networks) are drawn, since cells that share one are not independent.

    Parameters
    ----------
    values : array_like, shape (n,)
    clusters : sequence of hashable, shape (n,)
        What each value was made from.
    rng : numpy.random.Generator
    level : float
    resamples : int

    Returns
    -------
    Interval or None
        None with fewer than `FEWEST` clusters.

    References
    ----------
    A. C. Davison and D. V. Hinkley, Bootstrap Methods and their Application (1997), section 3.8.
    """
    array = _numbers(values, "values")
    if len(clusters) != array.size:
        raise InputError(f"{array.size} values in {len(clusters)} clusters: expected one for each")
    groups: dict[Hashable, list[float]] = {}
    for value, name in sorted(zip(array.tolist(), clusters), key=lambda pair: (str(pair[1]), pair)):
        groups.setdefault(name, []).append(value)
    if len(groups) < FEWEST:
        return None
    sums = np.array([math.fsum(found) for found in groups.values()])
    sizes = np.array([len(found) for found in groups.values()], dtype=np.float64)
    drawn = rng.integers(0, sums.size, (resamples, sums.size))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(array.mean()), float(low), float(high), level)


def wilson_interval(count: int, of: int, *, level: float = 0.95) -> Interval:
    """A share with Wilson's score interval.

    Parameters
    ----------
    count, of : int
        Successes, and trials: at least 1.

    References
    ----------
    E. B. Wilson, Probable inference, the law of succession, and statistical inference, Journal of
    the American Statistical Association 22 (1927), 209-212.
    """
    from scipy.stats import binomtest

    if not 0 <= count <= of or of < 1:
        raise InputError(f"{count} of {of}: expected a share")
    found = binomtest(count, of).proportion_ci(confidence_level=level, method="wilson")
    return Interval(count / of, float(found.low), float(found.high), level)


@dataclass(frozen=True, slots=True)
class PowerLaw:
    """y = factor * x ** exponent.

    Attributes
    ----------
    exponent : Interval
        Infinite ends where two points leave no degree of freedom.
    factor : float
    points : int
    """

    exponent: Interval
    factor: float
    points: int


def fit_power_law(x: ArrayLike, y: ArrayLike, *, level: float = 0.95) -> PowerLaw:
    """Least squares of log y over log x, with Student's interval of the exponent.

    Parameters
    ----------
    x, y : array_like, shape (n,)
        Positive and finite; `x` takes at least two values.
    """
    from scipy.stats import t as student

    sizes, values = _pairs(x, y, least=2)
    if not (np.isfinite(sizes) & np.isfinite(values) & (sizes > 0) & (values > 0)).all():
        raise InputError("a power law is fitted to positive finite values only")
    u, v = np.log(sizes), np.log(values)
    centred = u - u.mean()
    moment = float(centred @ centred)
    if moment == 0 or np.ptp(sizes) == 0:
        raise InputError("all sizes are equal: no exponent", field="x")
    slope = float(centred @ v) / moment
    offset = float(v.mean() - slope * u.mean())
    half = math.inf
    if u.size > 2:
        left = v - offset - slope * u
        error = math.sqrt(float(left @ left) / (u.size - 2) / moment)
        half = float(student.ppf((1 + level) / 2, u.size - 2)) * error
    exponent = Interval(slope, slope - half, slope + half, level)
    return PowerLaw(exponent, math.exp(offset), int(u.size))


def ecdf(values: ArrayLike) -> tuple[Floats, Floats]:
    """Distinct values, ascending, and the share of all values that are at most each.

    Infinite values count in the shares' denominator and have no step.
    """
    array = _numbers(values, "values")
    points, counts = np.unique(array, return_counts=True)
    shares = np.cumsum(counts) / array.size
    finite = np.isfinite(points)
    return points[finite], shares[finite]


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's rank correlation; NaN if one side is constant."""
    from scipy.stats import spearmanr

    x, y = _pairs(first, second, least=2)
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(spearmanr(x, y).statistic)


def regret(predicted: ArrayLike, measured: ArrayLike) -> float:
    """Measured cost of the predicted best over the measured best, less 1.

    Of several that share the predicted best, the one measured worst counts.
    """
    x, y = _pairs(predicted, measured)
    return float(y[x == x.min()].max() / y.min() - 1)
