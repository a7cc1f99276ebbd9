"""A forged result passes neither checker, unless what it says is so."""

from __future__ import annotations

import collections
import copy
import os
import random
from typing import TYPE_CHECKING, Any

import pytest
from forgery import Mutant, forgeries, honest_files, judge

from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import sha256_of, write_json
from nestopt.core.verify import verify_file

if TYPE_CHECKING:
    from pathlib import Path

COUNT = int(os.environ.get("NESTOPT_FORGERIES", "10000"))


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    return honest_files(more=False)


def _forge(files: dict[str, Any], seed: int, count: int, folder: Path) -> collections.Counter[str]:
    outcomes: collections.Counter[str] = collections.Counter()
    faults = []
    for _, mutant in zip(range(count), forgeries(random.Random(seed), files)):
        found = judge(mutant, files[mutant.seed], folder / "forged.json")
        outcomes[found.partition(":")[0]] += 1
        if found.startswith(("FALSE", "CRASH")):
            faults.append(f"{mutant.seed}: {mutant.place}: {found}")
    assert not faults, "\n".join(faults[:10])
    assert outcomes["refused"] > 0.7 * count
    return outcomes


def test_honest_files_pass(honest: dict[str, Any], tmp_path: Path) -> None:
    for data in honest.values():
        write_json(tmp_path / "honest.json", data)
        assert verify_file(str(tmp_path / "honest.json")).verified


def test_forged_files_are_refused(honest: dict[str, Any], tmp_path: Path) -> None:
    outcomes = _forge(honest, 1, 250, tmp_path)
    assert outcomes["true"] and outcomes["claimed"]


@pytest.mark.slow
def test_many_forged_files_are_refused(tmp_path: Path) -> None:
    _forge(honest_files(more=True), 12, COUNT, tmp_path)


def test_the_harness_finds_a_false_pass(
    honest: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checker that believes the stated makespan is caught."""
    data = copy.deepcopy(honest["ag-greedy"])
    data["solution"]["makespan_ps"] = data["objective"] = data["objective"] - 1
    data |= {"bound": 0, "gap": None, "witness": None}
    data["termination"] = {"reason": "feasible", "limit": "time"}
    mutant = Mutant("ag-greedy", "objective", data)
    assert judge(mutant, honest["ag-greedy"], tmp_path / "f.json") == "refused"
    monkeypatch.setattr("nestopt.collective.judge.check_result._check_solution", lambda *_: [])
    assert judge(mutant, honest["ag-greedy"], tmp_path / "f.json").startswith("FALSE: objective")


def _bound_alone(data: dict[str, Any], bound: float) -> None:
    data |= {"solution": None, "objective": None, "gap": None, "bound": bound}
    data["termination"] = {"reason": "no-solution", "limit": "time"}


def _infeasible(data: dict[str, Any]) -> None:
    _bound_alone(data, 0)
    data["termination"] = {"reason": "infeasible", "limit": "none"}
    data |= {"bound": "inf", "infeasible_because": ["memory: it does not fit"]}


def _at(*path: Any, value: Any) -> Any:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


FORGED = {
    "a bound above what one CPU takes": ("max-load", lambda d: _bound_alone(d, 1e4), "one CPU"),
    "a bound above what one stage takes": ("piper", lambda d: _bound_alone(d, 1e4), "one stage"),
    "no split of what one CPU runs": ("max-load", _infeasible, "one CPU"),
    "no plan of what fits in one stage": ("chain", _infeasible, "a plan of . stages"),
    "no plan by a bound": ("grid", _infeasible, "a plan of|names no search"),
    "half a degree": ("piper", _at("solution", "stages", 0, "data", value=2.0), "data"),
    "a stage of truth": (
        "max-load",
        _at("solution", "stages", 0, "operators", value=[False]),
        "operators",
    ),
    "another schema of a split": ("max-load", _at("solution", "schema", value={}), "schema"),
    "an instance of no schema": ("piper", _at("instance", "data", "name", value=7), "name"),
    "a space where there is none": ("max-load", _at("settings", "tensor", value="1"), "no plan"),
    "another model": ("piper", _at("settings", "model", value="max-load"), "settings.model"),
    "a witness of unknown keys": ("chain", _at("witness", "trust", value="me"), "witness: trust"),
    "a witness that is a number": ("chain", _at("witness", "relaxes", value=1), "witness: relaxes"),
    "a report of unknown keys": ("chain", _at("solution", "report", value={"a": 1}), "report: a"),
    "a report of no stage": ("chain", _at("solution", "report", "stages", value=[7]), "report"),
    "work that is not done": ("grid", _at("witness", "flops", value=1.0), "FLOP"),
    "moved sums": ("ar-copied", _at("settings", "sums", value="moved"), "settings.sums"),
    "no number of steps": ("sccl-none", _at("settings", "steps", value=""), "settings.steps"),
    "an unknown pattern": (
        "ag-greedy",
        _at("instance", "data", "collective", "parts", 0, "pattern", value="all-gathers"),
        r"parts\[0\].pattern: unknown pattern 'all-gathers'",
    ),
    "a speed that leaves the range of numbers": (
        "chain",
        _at("instance", "data", "cluster", "device_types", "h100", "peak", value=1e308),
        r"peak: 1e\+308; expected 1e-60 to 1e\+60",
    ),
    "work that leaves it": (
        "chain",
        _at("instance", "data", "workload", "operators", 0, "flops", value=1e-300),
        "flops: 1e-300; expected 1e-60",
    ),
    "a name that is a number": ("ar-copied", _at("instance", "data", "name", value=7), "name"),
}


@pytest.mark.parametrize("what", FORGED)
def test_what_once_passed(what: str, honest: dict[str, Any], tmp_path: Path) -> None:
    name, change, message = FORGED[what]
    data = copy.deepcopy(honest[name])
    change(data)
    data["instance"]["sha256"] = sha256_of(data["instance"]["data"])
    write_json(tmp_path / "forged.json", data)
    with pytest.raises((CheckError, InputError), match=message):
        verify_file(str(tmp_path / "forged.json"))
