"""Statistics of studies against hand-computed and published figures, and their laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nestopt.core.errors import InputError
from nestopt.study.statistics import (
    bootstrap_interval,
    cluster_interval,
    ecdf,
    fit_power_law,
    performance_profile,
    primal_integral,
    rank_correlation,
    regret,
    shifted_geometric_mean,
    wilcoxon,
    wilson_interval,
)

positive = st.floats(1e-3, 1e6)

# Darwin's maize, cross- less self-fertilised, eighths of an inch (Fisher, Design of Experiments)
MAIZE = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
# Test A of 26 children (Efron and Tibshirani 1993, table 14.1)
SPATIAL = [
    48, 36, 20, 29, 42, 42, 20, 42, 22, 41, 45, 14, 6, 0, 33, 28, 34, 4, 32, 24, 47, 41, 24, 26,
    30, 41,
]  # fmt: skip


def test_shifted_geometric_mean_by_hand() -> None:
    assert shifted_geometric_mean([1, 4, 16], 0) == pytest.approx(4)
    assert shifted_geometric_mean([0, 30], 10) == pytest.approx(math.sqrt(10 * 40) - 10)
    assert shifted_geometric_mean([1, math.inf], 1) == math.inf
    for values, shift in (([0, 1], 0), ([-1, 2], 10), ([], 1), ([1, math.nan], 1)):
        with pytest.raises(InputError):
            shifted_geometric_mean(values, shift)


@given(st.lists(positive, min_size=1, max_size=20), positive)
def test_shifted_geometric_mean_lies_between_geometric_and_arithmetic(
    values: list[float], shift: float
) -> None:
    found = shifted_geometric_mean(values, shift)
    slack = 1e-9 * (max(values) + shift)
    assert shifted_geometric_mean(values, 0) - slack <= found <= np.mean(values) + slack


def test_profile_by_hand() -> None:
    # Problem 1: 1, 2; problem 2: 4, 1; problem 3: only the second; problem 4: neither
    inf = math.inf
    profile = performance_profile([[1, 2], [4, 1], [inf, 3], [inf, inf]])
    assert profile.taus.tolist() == [1, 2, 4]
    assert profile.shares.tolist() == [[0.25, 0.5], [0.25, 0.75], [0.5, 0.75]]
    assert profile.problems == 4


def test_profile_refuses_missing_and_zero_costs() -> None:
    with pytest.raises(InputError, match=r"costs\[1\]\[0\].*nan"):
        performance_profile([[1, 2], [math.nan, 1]])
    with pytest.raises(InputError, match=r"costs\[0\]\[1\].*0\.0"):
        performance_profile([[1, 0]])
    with pytest.raises(InputError, match="shape"):
        performance_profile([1, 2])


@given(
    arrays(float, (5, 3), elements=st.one_of(positive, st.just(math.inf))),
    arrays(float, (5, 1), elements=st.sampled_from([0.25, 1.0, 8.0])),
)
def test_profile_laws(costs: np.ndarray, units: np.ndarray) -> None:
    profile = performance_profile(costs)
    assert (np.diff(profile.shares, axis=0) >= 0).all()
    solved = np.isfinite(costs)
    assert profile.shares[-1] == pytest.approx(solved.mean(axis=0))
    # Some method is best on every problem that one solves
    assert profile.shares[0].sum() >= solved.any(axis=1).mean() - 1e-12
    assert performance_profile(costs * units).shares.tolist() == profile.shares.tolist()


def test_primal_integral_by_hand() -> None:
    # Nothing for 2 s, gap 1/2 for 3 s, best for the rest
    trace = [[2, 20, 5], [5, 10, 5], [30, 9, 9]]
    assert primal_integral(trace, 10, 10) == pytest.approx(2 + 1.5)
    assert primal_integral([], 10, 10) == 10
    assert primal_integral([[1, None, 3], [4, 10, 3]], 10, 10) == 4
    assert primal_integral([[0, -1, -5]], 2, 1) == 2
    with pytest.raises(InputError, match="ascending"):
        primal_integral([[2, 5], [1, 4]], 10, 4)
    with pytest.raises(InputError, match="horizon"):
        primal_integral([], 0, 1)


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(1, 100)), max_size=6),
    st.floats(0.1, 20),
)
def test_primal_integral_laws(steps: list[tuple[float, float]], horizon: float) -> None:
    times = sorted(seconds for seconds, _ in steps)
    values = sorted((value for _, value in steps), reverse=True)
    trace = list(zip(times, values))
    found = primal_integral(trace, horizon, 1.0)
    assert 0 <= found <= horizon * (1 + 1e-12)
    later = [(seconds + 1, value) for seconds, value in trace]
    assert primal_integral(later, horizon, 1.0) >= found - 1e-9


def test_wilcoxon_on_darwins_maize() -> None:
    found = wilcoxon(MAIZE, [0] * 15)
    assert (found.pairs, found.ties, found.statistic, found.median) == (15, 0, 24, 24)
    # 2 * 676 of the 2^15 assignments of signs reach 24 or less
    assert found.p_value == pytest.approx(0.041259765625, rel=1e-12)
    assert wilcoxon(MAIZE, [0] * 15, alternative="greater").p_value == pytest.approx(
        0.041259765625 / 2
    )


def test_wilcoxon_without_differences_and_with_infinities() -> None:
    same = wilcoxon([1, math.inf], [1, math.inf])
    assert (same.p_value, same.ties) == (1, 2)
    late = wilcoxon([math.inf, math.inf, 3, 2], [1, 2, 1, 1.5])
    assert late.statistic == 0
    with pytest.raises(InputError, match="pairs"):
        wilcoxon([1, 2], [1])


@given(arrays(float, 12, elements=st.integers(-50, 50)), arrays(float, 12, elements=positive))
@settings(deadline=None)
def test_wilcoxon_is_antisymmetric(x: np.ndarray, y: np.ndarray) -> None:
    there, back = wilcoxon(x, y), wilcoxon(y, x)
    assert there.p_value == pytest.approx(back.p_value)
    assert there.median == -back.median
    assert wilcoxon(y, y).p_value == 1


def test_bootstrap_of_the_spatial_test() -> None:
    """Efron and Tibshirani, table 14.2: variance, 90 %; their 2000 resamples err by 2 to 3."""

    def variance(values: np.ndarray) -> np.ndarray:
        return values.var(axis=-1)

    def interval(method: str) -> tuple[float, float]:
        rng = np.random.default_rng(1)
        found = bootstrap_interval(
            SPATIAL, variance, rng, level=0.9, resamples=50_000, method=method
        )
        assert found.estimate == pytest.approx(171.5, abs=0.05)
        return found.low, found.high

    assert interval("percentile") == pytest.approx((100.8, 233.9), abs=5)
    assert interval("bca") == pytest.approx((115.8, 259.6), abs=5)


def test_bootstrap_agrees_with_scipy_and_repeats() -> None:
    from scipy.stats import bootstrap

    values = np.random.default_rng(3).lognormal(size=40)

    def mean(x: np.ndarray, axis: int = -1) -> np.ndarray:
        return x.mean(axis=axis)

    for method in ("percentile", "bca"):
        rng = np.random.default_rng(5)
        ours = bootstrap_interval(values, mean, rng, resamples=20_000, method=method)
        again = bootstrap_interval(
            values, mean, np.random.default_rng(5), resamples=20_000, method=method
        )
        assert ours == again
        theirs = bootstrap(
            (values,), mean, n_resamples=20_000, method=method, rng=np.random.default_rng(6)
        ).confidence_interval
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), rel=0.02)


@given(arrays(float, 8, elements=st.floats(0, 100)), st.sampled_from(["percentile", "bca"]))
@settings(deadline=None, max_examples=30)
def test_bootstrap_stays_inside_the_data(values: np.ndarray, method: str) -> None:
    found = bootstrap_interval(
        values, lambda x: np.median(x, axis=-1), np.random.default_rng(0), method=method,
        resamples=300,
    )  # fmt: skip
    assert values.min() <= found.low <= found.high <= values.max()
    turned = bootstrap_interval(
        values[::-1], lambda x: np.median(x, axis=-1), np.random.default_rng(0), method=method,
        resamples=300,
    )  # fmt: skip
    assert turned == found


def test_bootstrap_of_one_value_and_bad_arguments() -> None:
    rng = np.random.default_rng(0)
    one = bootstrap_interval([7], lambda x: x.mean(axis=-1), rng)
    assert (one.low, one.estimate, one.high) == (7, 7, 7)
    with pytest.raises(InputError, match="method"):
        bootstrap_interval([1, 2], np.mean, rng, method="normal")
    with pytest.raises(InputError, match="level"):
        bootstrap_interval([1, 2], np.mean, rng, level=95)


def test_power_law() -> None:
    exact = fit_power_law([1, 2, 4, 8], [3, 12, 48, 192])
    assert exact.exponent.estimate == pytest.approx(2)
    assert exact.factor == pytest.approx(3)
    assert exact.exponent.high - exact.exponent.low < 1e-6
    two = fit_power_law([1, 2], [1, 2])
    assert (two.exponent.low, two.exponent.high) == (-math.inf, math.inf)
    for x, y in (([2, 2], [1, 3]), ([1, 2], [0, 1]), ([1, 2], [1, math.inf])):
        with pytest.raises(InputError):
            fit_power_law(x, y)


def test_power_law_agrees_with_scipy() -> None:
    from scipy.stats import linregress, t

    rng = np.random.default_rng(2)
    x = np.array([4.0, 16, 16, 64, 256])
    y = x**1.3 * rng.lognormal(sigma=0.2, size=5)
    found, line = fit_power_law(x, y), linregress(np.log(x), np.log(y))
    half = t.ppf(0.975, 3) * line.stderr
    assert found.exponent.low == pytest.approx(line.slope - half)
    assert found.exponent.high == pytest.approx(line.slope + half)


def test_ecdf_counts_infinite_values() -> None:
    points, shares = ecdf([2, 1, math.inf, 2])
    assert points.tolist() == [1, 2]
    assert shares.tolist() == [0.25, 0.75]


def test_rank_correlation_by_hand_and_by_scipy() -> None:
    from scipy.stats import spearmanr

    assert rank_correlation([1, 2, 3], [10, 100, 1000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert math.isnan(rank_correlation([1, 1], [1, 2]))
    x, y = np.random.default_rng(0).integers(0, 5, (2, 30))
    assert rank_correlation(x, y) == pytest.approx(spearmanr(x, y).statistic)


def test_regret_by_hand() -> None:
    assert regret([1, 2, 3], [12, 10, 11]) == pytest.approx(0.2)
    assert regret([1, 1, 3], [10, 15, 11]) == pytest.approx(0.5)
    assert regret([3, 1], [8, 8]) == 0


def test_whole_clusters_are_drawn() -> None:
    rng = np.random.default_rng
    values = np.repeat([0.0, 1.0, 2.0, 3.0, 10.0], 100)
    names = [f"w{i // 100}" for i in range(500)]
    found = cluster_interval(values, names, rng(0))
    assert found is not None
    assert found.estimate == pytest.approx(3.2)
    alone = bootstrap_interval(values, lambda x: x.mean(axis=-1), rng(0))
    # Five workloads, however many cells each has
    assert found.high - found.low > 5 * (alone.high - alone.low)
    shuffled = rng(1).permutation(500)
    again = cluster_interval(values[shuffled], [names[i] for i in shuffled], rng(0))
    assert again == found
    assert cluster_interval(values[:400], names[:400], rng(0)) is None
    with pytest.raises(InputError, match="500 values in 3 clusters"):
        cluster_interval(values, ["a", "b", "c"], rng(0))


def test_wilson_by_hand() -> None:
    # E. B. Wilson's formula with z = 1.959964
    z, n, k = 1.959963984540054, 203, 166
    centre = (k + z * z / 2) / (n + z * z)
    half = z / (n + z * z) * math.sqrt(k * (n - k) / n + z * z / 4)
    found = wilson_interval(k, n)
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half))
    assert wilson_interval(0, 10).low == 0
    assert 0 < wilson_interval(0, 10).high < 0.3
    with pytest.raises(InputError, match="expected a share"):
        wilson_interval(3, 2)
