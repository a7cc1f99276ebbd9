"""Results: reason and limit, gap, and the JSON that states them."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nestopt.core.errors import InputError, NestoptError
from nestopt.core.io import canonical_json
from nestopt.core.result import Limit, Reason, Result, Termination, relative_gap, versions

LIMITED = (Reason.FEASIBLE, Reason.NO_SOLUTION)
TERMINATIONS = [
    Termination(reason, limit)
    for reason, limit in itertools.product(Reason, Limit)
    if (reason in LIMITED) == (limit is not Limit.NONE)
]


@pytest.mark.parametrize(("reason", "limit"), list(itertools.product(Reason, Limit)))
def test_a_limit_is_set_exactly_when_something_is_left_open(reason: Reason, limit: Limit) -> None:
    if (reason in LIMITED) == (limit is not Limit.NONE):
        assert Termination(reason, limit).limit is limit
    else:
        with pytest.raises(NestoptError, match="a limit is set exactly when"):
            Termination(reason, limit)


@pytest.mark.parametrize(
    ("objective", "bound", "gap"),
    [
        (10.0, 9.0, 0.1),
        (10, 10, 0.0),
        (0, 0, 0.0),
        (0.0, -1.0, math.inf),
        (10.0, -math.inf, math.inf),
        (None, 3.0, None),
        (8_000_000, 6_000_000, 0.25),
    ],
)
def test_gap_is_relative_to_the_objective(
    objective: float | None, bound: float, gap: float | None
) -> None:
    assert relative_gap(objective, bound) == gap


@given(st.floats(min_value=1e-9, max_value=1e9), st.floats(min_value=0, max_value=1))
def test_gap_of_a_positive_objective_lies_between_0_and_1(objective: float, part: float) -> None:
    gap = relative_gap(objective, objective * part)
    assert gap is not None
    assert 0 <= gap <= 1
    assert gap == pytest.approx(1 - part, abs=1e-9)


numbers = st.integers(min_value=0, max_value=2**62) | st.floats(
    allow_nan=False, allow_infinity=False
)
results = st.builds(
    Result,
    problem=st.sampled_from(["placement", "collective"]),
    instance=st.fixed_dictionaries({"name": st.text(), "sha256": st.text()}),
    method=st.text(min_size=1),
    termination=st.sampled_from(TERMINATIONS),
    objective=st.none() | numbers,
    bound=numbers | st.sampled_from([math.inf, -math.inf]),
    seconds=st.floats(min_value=0, max_value=1e9),
    seed=st.integers(min_value=0, max_value=2**32),
    threads=st.integers(min_value=1, max_value=512),
    solution_json=st.none() | st.dictionaries(st.text(), st.integers(), max_size=2),
    witness=st.none() | st.dictionaries(st.text(), st.integers(), max_size=2),
    infeasible_because=st.lists(st.text(), max_size=2).map(tuple),
)


@settings(deadline=None)
@given(results)
def test_json_round_trip_keeps_every_field_and_type(result: Result) -> None:
    text = canonical_json(result.to_json())
    back = Result.from_json(json.loads(text))
    assert back == result
    assert type(back.objective) is type(result.objective)
    assert canonical_json(back.to_json()) == text


def _data(**changes: Any) -> dict[str, Any]:
    result = Result(
        problem="collective",
        instance={"name": "x"},
        method="greedy",
        termination=Termination(Reason.FEASIBLE, Limit.TIME),
        objective=8,
        bound=-math.inf,
        seconds=1.0,
        solution_json={},
    )
    return result.to_json() | changes


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema": "nestopt.result/2"}, "schema"),
        ({"problem": "sudoku"}, "problem"),
        ({"termination": {"reason": "tired", "limit": "none"}}, "termination.reason"),
        ({"termination": None}, "termination"),
        ({"objective": "eight"}, "objective"),
        ({"bound": [1]}, "bound"),
        ({"solution": 7}, "solution"),
        ({"instance": "x"}, "instance"),
        ({"threads": 0}, "threads"),
        ({"seconds": -1.0}, "seconds"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_bad_field_is_named_with_its_file(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        Result.from_json(_data(**changes), file="r.json")
    assert str(caught.value).startswith(f"r.json: {field}")


def test_a_missing_field_is_named() -> None:
    data = _data()
    del data["termination"]
    with pytest.raises(InputError, match="termination: Field required"):
        Result.from_json(data)
    with pytest.raises(InputError, match=r"r\.json: "):
        Result.from_json([], file="r.json")


def test_an_impossible_termination_is_refused() -> None:
    with pytest.raises(InputError, match="a limit is set exactly when"):
        Result.from_json(_data(termination={"reason": "optimal", "limit": "time"}))


def test_versions_state_the_libraries_that_compute() -> None:
    assert set(versions()) == {
        "nestopt",
        "python",
        "numpy",
        "numba",
        "scipy",
        "networkx",
        "pulp",
        "highspy",
        "ortools",
    }
