"""The library: every entry generates, the archive is consistent, update takes only improvements."""

from __future__ import annotations

import copy
import json
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nestopt.core.errors import CheckError, InputError, UsageError
from nestopt.core.result import Reason, instance_record
from nestopt.instances.library import (
    CLASSES,
    Archive,
    MethodRun,
    Record,
    Score,
    check_stored,
    difficulty,
    entries,
    entry,
    load,
    read_runs,
    rows,
    runs_path,
    show,
    solve_entry,
    update,
    verify,
    write_runs,
)
from nestopt.instances.library.records import CLOSED
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.space import PlanSpace

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.core.result import Result

ARCHIVE = Archive.open()
RUNS = read_runs(runs_path(ARCHIVE))
TOY = "chain4-tree2x2"


@pytest.fixture(scope="module")
def solved() -> Result:
    """A fresh result of a toy instance."""
    (result,) = solve_entry(TOY, 60, methods=["dp"])
    return result


@pytest.fixture
def empty(tmp_path: Path) -> Archive:
    return Archive.open(tmp_path / "bks.json")


def test_library_size() -> None:
    by_problem = [found.problem for found in entries().values()]
    assert by_problem.count("placement") >= 25
    assert by_problem.count("collective") >= 35
    assert all(found.source for found in entries().values())


@pytest.mark.parametrize("name", sorted(entries()))
def test_instance_is_the_recorded_one(name: str) -> None:
    """Generates the instance anew and compares its hash, its bound and its kept solution."""
    assert verify(name, ARCHIVE)


def test_archive_names_are_entries() -> None:
    assert set(ARCHIVE.records) <= set(entries())
    kept = {path.stem for path in (ARCHIVE.path.parent / "solutions").glob("*.json")}
    assert kept <= set(ARCHIVE.records)
    assert all(check_stored(name, ARCHIVE) for name in kept if name.startswith("chain4"))


def test_closed_instances_have_the_published_optimum() -> None:
    for name, record in ARCHIVE.records.items():
        known = entry(name).known
        if known is not None and record.closed and record.objective is not None:
            assert record.objective.value == known, name


def test_enough_is_closed_and_enough_is_open() -> None:
    table = rows(ARCHIVE)
    closed = [row["problem"] for row in table if row["class"] != "open"]
    assert closed.count("placement") >= 15
    assert closed.count("collective") >= 20
    assert sum(row["class"] == "open" for row in table) >= 5


def test_every_class_has_members() -> None:
    assert {row["class"] for row in rows(ARCHIVE)} == set(CLASSES)


def test_every_method_solves_its_entries_within_the_limit_of_their_class() -> None:
    """In CPU seconds; the exact methods prove the best objective of every closed entry."""
    assert set(RUNS) == {(name, m) for name, found in entries().items() for m in found.methods}
    for (name, method), run in RUNS.items():
        record = ARCHIVE.records[name]
        assert run.instance == record.sha256[:12], (name, method)
        assert run.objective is not None, (name, method)
        assert run.cpu_seconds <= CLASSES[difficulty(record)][1], (name, method)
        exact = {"milp", "cpsat"} | ({"dp"} if entry(name).space == "structured" else set())
        if method in exact and record.closed and record.objective is not None:
            assert run.reason is Reason.OPTIMAL, (name, method)
            assert run.objective == pytest.approx(record.objective.value, rel=CLOSED)


def test_rows_and_show_agree() -> None:
    table = {row["name"]: row for row in rows(ARCHIVE)}
    assert set(table) == set(entries())
    assert len(rows(ARCHIVE, "placement")) + len(rows(ARCHIVE, "collective")) == len(table)
    found = show(TOY, ARCHIVE)
    assert [run["method"] for run in found["runs"]] == table[TOY]["methods"]
    assert found["best_objective"]["value"] == table[TOY]["objective"]
    assert found["class"] == table[TOY]["class"]
    with pytest.raises(UsageError, match="did you mean 'chain4-tree2x2'"):
        show("chain4-tree2", ARCHIVE)


def test_difficulty_by_time_to_proof() -> None:
    def record(value: float, seconds: float) -> Record:
        best = Score(1.0, "dp", 0.1, "2026-01-01", "m", "0")
        return Record("x", best, Score(value, "dp", seconds, "2026-01-01", "m", "0"))

    classes = [difficulty(record(1.0, s)) for s in (0.5, 5, 50, 5000)]
    assert classes == ["toy", "easy", "medium", "hard"]
    assert difficulty(record(0.9, 0.5)) == "open"
    assert difficulty(None) == "open"
    assert difficulty(record(1.0 - 1e-7, 0.5)) == "toy"
    whole = Record("x", _score(10**9), _score(10**9 - 1))
    assert difficulty(whole) == "open"
    assert difficulty(Record("x", _score(10**9), _score(10**9))) == "toy"
    assert set(classes) < set(CLASSES)


def _score(value: int) -> Score:
    return Score(value, "cpsat", 0.1, "2026-01-01", "m", "0")


def test_update_takes_what_improves_and_only_that(empty: Archive, solved: Result) -> None:
    assert len(update(solved, empty)) == 2
    record = empty.records[TOY]
    assert record.objective is not None and record.objective.method == "dp"
    assert record.gap == 0
    assert update(solved, empty) == []
    assert empty.records[TOY] is record
    assert check_stored(TOY, empty)


def test_update_takes_a_better_bound_alone(empty: Archive, solved: Result) -> None:
    weak = copy.deepcopy(solved)
    weak.bound = solved.bound / 2
    weak.termination = _feasible()
    update(weak, empty)
    assert empty.records[TOY].gap == pytest.approx(0.5)
    lines = update(solved, empty)
    assert len(lines) == 1
    assert "bound" in lines[0]
    assert empty.records[TOY].gap == 0


def _feasible() -> object:
    from nestopt.core.result import Limit, Reason, Termination

    return Termination(Reason.FEASIBLE, Limit.TIME)


def test_update_takes_no_bound_that_nothing_proves(empty: Archive, solved: Result) -> None:
    weak = copy.deepcopy(solved)
    weak.bound, weak.termination = solved.bound / 2, _feasible()
    forged = copy.deepcopy(weak)
    forged.bound = solved.objective
    # a claim by a method that this installation does not have cannot be confirmed
    forged.method = "oracle"
    assert [line for line in update(forged, empty) if "bound" in line] == []
    assert empty.records[TOY].bound is None
    # a claim that another run confirms is taken
    assert any("bound" in line for line in update(solved, empty))
    nobody = copy.deepcopy(solved)
    nobody.witness = None
    with pytest.raises(CheckError, match="not proved"):
        update(nobody, empty)


def _change_one(path: str, name: str) -> None:
    with Archive.changing(path) as archive:
        seen = len(archive.records)
        time.sleep(0.05)
        archive.records[name] = Record(name * 64, _score(10**9 + seen), None)
        archive.save()


def test_updates_at_once_keep_every_record(tmp_path: Path) -> None:
    path = str(tmp_path / "bks.json")
    threads = [
        threading.Thread(target=_change_one, args=(path, name)) for name in ("a", "b", "c", "d")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(Archive.open(path).records) == {"a", "b", "c", "d"}


def test_archive_survives_its_file(empty: Archive, solved: Result) -> None:
    update(solved, empty)
    empty.save()
    assert Archive.open(empty.path).records == empty.records
    text = empty.path.read_text()
    empty.save()
    assert empty.path.read_text() == text


def test_update_refuses_what_the_checker_refuses(empty: Archive, solved: Result) -> None:
    better = copy.deepcopy(solved)
    assert better.objective is not None
    better.objective *= 0.99
    better.bound = better.objective
    with pytest.raises(CheckError):
        update(better, empty)
    assert not empty.records


def test_update_refuses_a_contradiction(empty: Archive, solved: Result) -> None:
    update(solved, empty)
    record = empty.records[TOY]
    assert record.objective is not None and record.bound is not None
    higher = replace(record.bound, value=record.bound.value * 1.1, method="elsewhere")
    empty.records[TOY] = replace(record, objective=None, bound=higher)
    with pytest.raises(CheckError, match=r"bound .*\(elsewhere\); one of them is wrong"):
        update(solved, empty)
    assert empty.records[TOY].objective is None
    empty.records[TOY] = replace(record, bound=higher)
    with pytest.raises(CheckError, match="below the bound"):
        verify(TOY, empty)


def test_update_refuses_another_space_or_instance(empty: Archive, solved: Result) -> None:
    wider = PlacementInstance.from_json(solved.instance["data"]).over(PlanSpace.named("full"))
    other = copy.deepcopy(solved)
    other.instance = instance_record(wider)
    with pytest.raises(UsageError, match=r"over the plan space full .*chain4-.* is over default-1"):
        update(other, empty)
    stranger = copy.deepcopy(solved)
    stranger.instance = {"name": "mine", "sha256": "0" * 64, "data": {}}
    with pytest.raises(UsageError, match="no library instance is 'mine'"):
        update(stranger, empty)
    with pytest.raises(UsageError, match="its instance's hash differs"):
        update(solved, empty, name="chain4-node4")


def test_a_tampered_kept_solution_is_found(empty: Archive, solved: Result) -> None:
    update(solved, empty)
    path = empty.solution_path(TOY)
    data = json.loads(path.read_text())
    data["objective"] *= 0.5
    path.write_text(json.dumps(data))
    with pytest.raises(CheckError):
        check_stored(TOY, empty)


def test_a_changed_instance_is_found(empty: Archive, solved: Result) -> None:
    update(solved, empty)
    empty.records[TOY] = replace(empty.records[TOY], sha256="0" * 64)
    with pytest.raises(CheckError, match="generated instance"):
        verify(TOY, empty)


def test_verify_by_solving_records_the_runs(empty: Archive, solved: Result) -> None:
    update(solved, empty)
    runs: dict[tuple[str, str], MethodRun] = {}
    lines = verify(TOY, empty, solve=True, runs=runs)
    assert any(": dp " in line for line in lines)
    assert set(runs) == {(TOY, method) for method in entry(TOY).methods}
    run = runs[TOY, "dp"]
    assert (run.reason, run.objective, run.gap) == (Reason.OPTIMAL, solved.objective, 0.0)
    assert run.cpu_seconds > 0
    write_runs(runs, runs_path(empty))
    assert read_runs(runs_path(empty)) == runs
    assert [row["method"] for row in show(TOY, empty)["runs"]] == list(entry(TOY).methods)


@pytest.mark.parametrize(
    "change, message",
    [
        ((",optimal,", ",best,"), r"line 2: reason: .*'best'"),
        ((",none,", ",none,x"), r"line 2: objective: 'x"),
        (("2026-", "2026-,"), r"line 2: .*None"),
    ],
)
def test_malformed_runs(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = tmp_path / "runs.csv"
    write_runs({(TOY, "dp"): RUNS[TOY, "dp"]}, path)
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(InputError, match=message):
        read_runs(path)


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "not JSON"),
        ('{"schema": "nestopt.bks/2", "instances": {}}', "schema"),
        ('{"schema": "nestopt.bks/1", "instances": {"a": {}}}', "instances.a.sha256"),
        (
            '{"schema": "nestopt.bks/1", "instances": {"a": {"sha256": "0", "objective": '
            '{"value": NaN}}}}',
            "NaN",
        ),
    ],
)
def test_malformed_archive(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bks.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        Archive.open(path)


def test_loaded_instances_have_their_problem() -> None:
    assert load(TOY).to_json()["problem"] == "placement"
    assert load("ag-ring4").to_json()["problem"] == "collective"
