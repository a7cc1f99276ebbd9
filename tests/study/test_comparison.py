"""Gaps of records and joins that name what is missing."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import record

from nestopt.core.errors import InputError
from nestopt.study.comparison import (
    TICK,
    best_bounds,
    best_known,
    gap_between,
    gap_to_best_known,
    gap_to_bound,
    gap_to_optimum,
    general_bound,
    grouped,
    instance_key,
    joined,
    objective_key,
    one_each,
    optima,
    problem_key,
    proved,
    seconds_counted,
)

GENERAL = {"space": "general"}


def test_three_gaps_of_one_run_are_different_figures() -> None:
    fast = record(method="random", objective=10.0, bound=5.0)
    exact = record(method="dp", objective=8.0, bound=8.0)
    better = record(method="milp", objective=6.0, bound=4.0, settings=GENERAL)
    rows = [fast, exact, better]
    assert gap_to_bound(fast) == 0.5
    assert gap_to_optimum(fast, optima(rows)) == pytest.approx(0.2)
    # A structured plan competes with plans of the general space, their optima stay apart
    assert gap_to_best_known(fast, best_known(rows)) == pytest.approx(0.4)
    with pytest.raises(InputError, match=r"no optimum for f-4-0 by milp \(seed 0\)"):
        gap_to_optimum(better, optima(rows))
    assert sorted(best_bounds(rows).values()) == [4.0, 8.0]


def test_no_solution_no_gap_and_no_bound_an_infinite_one() -> None:
    nothing = record(objective=None, bound="-inf")
    assert gap_to_bound(nothing) is None
    assert gap_to_optimum(nothing, {}) is None
    assert gap_to_bound(record(bound="-inf")) == math.inf


def test_an_objective_below_its_bound_is_an_error() -> None:
    with pytest.raises(InputError, match="f-4-0 by dp"):
        gap_to_bound(record(objective=10.0, bound=10.1))
    assert gap_to_bound(record(objective=10.0, bound=10.000001)) == 0


def test_two_proofs_that_disagree_are_an_error() -> None:
    one = record(method="milp", objective=8.0, bound=8.0)
    other = record(method="cpsat", objective=8.1, bound=8.1)
    with pytest.raises(InputError, match=r"milp.*cpsat"):
        optima([one, other])


def test_joins_name_what_has_no_partner() -> None:
    left = [record(parameters={"size": n}) for n in (2, 4, 8)]
    right = [record(method="milp", parameters={"size": n}) for n in (4, 2)]
    with pytest.raises(InputError, match=r"1 records have no partner: 8 by dp"):
        joined(left, right, instance_key)
    pairs = joined(left[:2], right, instance_key)
    assert [(a["method"], b["method"]) for a, b in pairs] == [("dp", "milp")] * 2
    assert all(a["parameters"] == b["parameters"] for a, b in pairs)
    with pytest.raises(InputError, match="two records"):
        joined(left, right + right, instance_key)
    assert list(grouped(left, lambda r: r["parameters"]["size"])) == [2, 4, 8]
    with pytest.raises(InputError, match="two records for dp"):
        one_each(left, lambda r: r["method"])


def test_timeouts_and_errors_count_at_the_limit() -> None:
    assert seconds_counted(record(seconds=2.0)) == 2.0
    assert seconds_counted(record(seconds=0.0)) == TICK
    assert seconds_counted(record(seconds=2.0, method_cpu=None)) == pytest.approx(2.4)
    assert seconds_counted(record(reason="infeasible", objective=None, bound="inf")) == 1.0
    for row in (
        record(objective=None, seconds=7.0, limit_clock="cpu"),
        record(reason="feasible", limit="time", seconds=61.0, limit_clock="cpu"),
        record(reason="feasible", limit="memory", seconds=1.0),
        record(reason="error", objective=None, seconds=1.0),
    ):
        assert seconds_counted(row) == 60.0
    assert seconds_counted(record(reason="feasible", limit="time", time_limit=None)) == 1.0
    # A limit by the wall clock: what the run had used of the processor, not the limit
    assert seconds_counted(record(objective=None, seconds=7.0)) == 7.0
    with pytest.raises(InputError, match="cpu"):
        seconds_counted(record(cpu=None, method_cpu=None))


def test_orders_of_axes_make_another_problem() -> None:
    """Records from before axes had an order say ``structured`` and are contiguous."""
    old = record(settings={"plans": "full", "space": "structured"})
    wide = record(settings={"plans": "full", "space": "structured", "orders": "any"})
    assert problem_key(old)[3] == "contiguous"
    assert problem_key(wide)[3] == "structured"
    assert objective_key(old) == objective_key(wide)


def test_two_plan_spaces_are_two_problems() -> None:
    megatron = record(objective=10.0, bound=10.0)
    four = record(objective=9.0, bound=9.0, settings={"decomposition": "4d"})
    stated = record(
        objective=8.0, bound=8.0, settings={"plans": "full", "decomposition": "4d", "space": ""}
    )
    keys = [problem_key(row) for row in (megatron, four, stated)]
    assert [key[2:] for key in keys] == [
        ("default-1", "contiguous"),
        ("default-1 decomposition=4d", "contiguous"),
        ("full", "contiguous"),
    ]
    assert len(optima([megatron, four, stated])) == 3
    assert set(best_known([megatron, four]).values()) == {9.0, 10.0}


def test_a_ranking_of_decompositions_is_no_proof_about_plans() -> None:
    instance = {"name": "r", "sha256": None, "problem": "ranking"}
    one = record(method="published", objective=12.0, bound=12.0, instance=instance)
    other = record(objective=9.0, bound=9.0, instance=instance, parameters={"size": 8})
    plan = record(method="dp", objective=10.0, bound=10.0)
    assert sorted(optima([one, other, plan]).values()) == [9.0, 10.0, 12.0]


def test_proofs_and_general_bounds() -> None:
    assert proved(record(reason="infeasible", objective=None, bound="inf"))
    assert not proved(record())
    assert general_bound(record(settings=GENERAL, bound=7.0)) == 7.0
    assert general_bound(record(stats={"general_bound": 6.0}, bound=7.0)) == 6.0
    assert general_bound(record(bound=7.0)) is None


@given(st.floats(1e-6, 1e6), st.floats(0, 1), st.floats(1e-3, 1e3))
def test_gaps_lie_between_0_and_1_and_have_no_unit(
    objective: float, share: float, unit: float
) -> None:
    gap = gap_between(objective, objective * share, "x")
    assert 0 <= gap <= 1
    assert gap_between(objective * unit, objective * share * unit, "x") == pytest.approx(gap)
