"""Schedules as JSON and as directories of arrays."""

from __future__ import annotations

import json

import numpy as np
import pytest
from collective_cases import instance

from nestopt.collective.greedy.steps import match_steps
from nestopt.collective.model.schedule import READABLE_SENDS, Schedule
from nestopt.collective.model.steps import StepSchedule
from nestopt.collective.model.store import load_solution, open_store, write_store
from nestopt.core.errors import InputError

COLUMNS = ("chunk", "link", "start_ps", "phase")


def example(sends: int, phase: bool) -> Schedule:
    rng = np.random.default_rng(sends)
    start = rng.integers(0, 2**40, sends)
    return Schedule.of(
        rng.integers(0, 9, sends),
        rng.integers(0, 50, sends),
        start,
        int(start.max()) + 5,
        rng.integers(0, 2, sends) if phase else None,
    )


def same(first: Schedule, second: Schedule) -> bool:
    return first.makespan_ps == second.makespan_ps and all(
        np.array_equal(getattr(first, name), getattr(second, name)) for name in COLUMNS
    )


def test_sends_are_sorted_by_start_link_chunk() -> None:
    schedule = Schedule.of([5, 4, 3, 2], [1, 1, 0, 0], [7, 3, 7, 7], 9)
    rows = list(zip(schedule.start_ps, schedule.link, schedule.chunk))
    assert rows == sorted(rows)
    assert schedule.chunk.tolist() == [4, 2, 3, 5]


@pytest.mark.parametrize("phase", [False, True])
@pytest.mark.parametrize("sends", [1, 300, READABLE_SENDS + 1])
def test_json_round_trip(sends: int, phase: bool) -> None:
    schedule = example(sends, phase)
    data = json.loads(json.dumps(schedule.to_json()))
    assert data["encoding"] == ("packed" if sends > READABLE_SENDS else "plain")
    assert same(Schedule.from_json(data), schedule)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"schema": "x"}, "schema: 'x'"),
        ({"num_sends": 7}, "values for 7 sends"),
        ({"makespan_ps": 1.5}, "makespan_ps: 1.5 is not a whole number"),
        ({"sends": {"chunk": [0.5], "link": [0], "start_ps": [0]}}, "chunk\\[0\\]: 0.5 is not"),
        ({"sends": {"chunk": [2**40], "link": [0], "start_ps": [0]}}, "is out of range"),
        ({"sends": {"chunk": [0], "link": [0]}}, "start_ps: is missing"),
    ],
)
def test_damaged_json_is_refused(change, expected) -> None:
    data = example(1, False).to_json() | change
    with pytest.raises(InputError, match=expected):
        Schedule.from_json(data)


def test_damaged_packing_is_refused() -> None:
    data = example(READABLE_SENDS + 1, False).to_json()
    data["sends"]["link"] = data["sends"]["link"][:-8]
    with pytest.raises(InputError, match="damaged"):
        Schedule.from_json(data)


@pytest.mark.parametrize("relative", [True, False])
def test_store_of_sends(tmp_path, relative: bool) -> None:
    schedule = example(500, True)
    solution = write_store(tmp_path / "s.schedule", schedule)
    if relative:
        solution["store"] = "s.schedule"
    read = load_solution(solution, directory=tmp_path)
    assert isinstance(read, Schedule)
    assert same(read, schedule)
    assert isinstance(read.chunk, np.memmap)
    assert [path.name for path in tmp_path.iterdir()] == ["s.schedule"]


def test_store_of_steps(tmp_path) -> None:
    problem = instance("mesh2d:5x6")
    steps = match_steps(problem, 10**9)
    write_store(tmp_path / "s", steps)
    read = open_store(tmp_path / "s")
    assert isinstance(read, StepSchedule)
    assert same(read.to_schedule(problem.topology), steps.to_schedule(problem.topology))


def test_a_store_is_replaced_but_nothing_else_is(tmp_path) -> None:
    write_store(tmp_path / "s", example(5, False))
    write_store(tmp_path / "s", example(6, False))
    assert open_store(tmp_path / "s").num_sends == 6
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="not a schedule store"):
        write_store(tmp_path / "mine", example(5, False))
    with pytest.raises(InputError, match="cannot be written"):
        write_store(tmp_path / "no" / "where", example(5, False))


def test_damaged_stores_are_refused(tmp_path) -> None:
    schedule = example(50, False)
    solution = write_store(tmp_path / "s", schedule)
    with pytest.raises(InputError, match="num_sends: 51, but the store has 50"):
        load_solution(solution | {"num_sends": 51})
    np.save(tmp_path / "s" / "link.npy", np.zeros(49, dtype=np.int32))
    with pytest.raises(InputError, match="columns of shapes"):
        open_store(tmp_path / "s")
    np.save(tmp_path / "s" / "link.npy", np.zeros(50))
    with pytest.raises(InputError, match="holds float64"):
        open_store(tmp_path / "s")
    (tmp_path / "s" / "link.npy").unlink()
    with pytest.raises(InputError, match=r"link.npy: cannot be read"):
        open_store(tmp_path / "s")
    with pytest.raises(InputError, match=r"meta\.json"):
        open_store(tmp_path / "absent")
