"""The instance library from the command line, and a real run from solve to plot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENTRY = "chain4-tree2x2"


def test_list_has_a_row_for_every_entry(nestopt: Callable, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    entries = json.loads(nestopt("library", "list", "--json").out)["entries"]
    lines = nestopt("library", "list").out.splitlines()
    assert len(lines) == 2 + len(entries) > 50
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["name", "best", "bound", "gap", "class", "method"]
    assert lines[-1].startswith(f"{len(entries)} instances: ")
    placement = json.loads(nestopt("library", "list", "placement", "--json").out)["entries"]
    assert {row["problem"] for row in placement} == {"placement"}
    assert 0 < len(placement) < len(entries)


def test_show_states_provenance_and_record(nestopt: Callable, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = nestopt("library", "show", "ag-dgx1v")
    methods = [line.split()[0] for line in run.out.partition("\n\n")[2].splitlines()]
    assert methods == ["run", "greedy", "lns", "cpsat", "milp"]
    assert "SCCL" in run.out and "published       2 ms" in run.out
    assert max(map(len, run.out.splitlines())) <= 80
    data = json.loads(nestopt("library", "show", "ag-dgx1v", "--json").out)
    assert data["schema"] == "nestopt.library-entry/1"
    assert data["published_optimum"] == 2_000_000_000


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("list", "placment"), "did you mean 'placement'?"),
        (("show", "ag-dgx1"), "did you mean 'ag-dgx1v'"),
        (("verify", "ag-dgx1"), "did you mean 'ag-dgx1v'"),
        (("names", "clusters"), "did you mean 'cluster'?"),
    ],
)
def test_unknown_names_are_told_near_ones(
    nestopt: Callable, words: tuple[str, ...], complaint: str
) -> None:
    run = nestopt("library", *words)
    assert run.status == 2
    assert complaint in run.err


def test_names_are_ones_that_resolve(nestopt: Callable) -> None:
    from nestopt.core.registry import named

    names = json.loads(nestopt("library", "names", "--json").out)["names"]
    assert set(names) == {"workload", "cluster", "collective", "topology"}
    assert {"gpt3-175b", "random-dag"} <= set(names["workload"])
    for name in names["cluster"]:
        if name.endswith("-N"):
            assert named("cluster", f"{name[:-2]}-64").num_devices == 64
    assert "nestopt" not in nestopt("library", "names", "cluster").out


def test_verify_reports_what_holds_and_what_does_not(nestopt: Callable, tmp_path: Path) -> None:
    run = nestopt("library", "verify", ENTRY)
    assert run.status == 0
    assert run.out.startswith(f"ok  {ENTRY}: ")
    score = {
        "value": 1.0,
        "method": "wish",
        "seconds": 1.0,
        "date": "2026-01-01",
        "machine": "none",
        "version": "0",
    }
    record = {"sha256": "0" * 64, "objective": score, "bound": score}
    archive = tmp_path / "bks.json"
    archive.write_text(json.dumps({"schema": "nestopt.bks/1", "instances": {ENTRY: record}}))
    run = nestopt("library", "verify", ENTRY, "--archive", str(archive))
    assert run.status == 5
    assert "1 of the library's checks failed" in run.err


def test_a_library_instance_from_solve_to_update(nestopt: Callable, tmp_path: Path) -> None:
    result, archive = tmp_path / "r.json", tmp_path / "bks.json"
    run = nestopt("solve", ENTRY, "-o", str(result), "--json")
    assert run.status == 0
    data = json.loads(run.out)
    assert data == json.loads(result.read_text())
    assert data["termination"]["reason"] == "optimal" and data["method"] == "dp"
    assert data["instance"]["data"]["space"]["tensor"] == [1, 2]
    assert nestopt("check", str(result)).status == 0

    words = ("library", "update", str(result), "--archive", str(archive))
    assert len(json.loads(nestopt(*words, "--json").out)["improved"]) == 2
    assert "improves nothing" in nestopt(*words).out
    assert nestopt("library", "verify", ENTRY, "--archive", str(archive)).status == 0

    simulated = json.loads(nestopt("simulate", str(result), "--json").out)
    assert simulated["closed_form"] == pytest.approx(data["objective"])
    assert simulated["simulated"] <= simulated["closed_form"] * (1 + 1e-9)
    picture = tmp_path / "p.png"
    assert nestopt("plot", str(result), "-o", str(picture)).status == 0
    assert picture.stat().st_size > 10_000

    bounds = json.loads(nestopt("bound", ENTRY, "--json").out)["bounds"]
    values = [row["value"] for row in bounds]
    assert values == sorted(values, reverse=True)
    assert 0 < values[0] <= data["objective"]

    data["objective"] = data["bound"] = data["objective"] * 0.99
    result.write_text(json.dumps(data))
    assert nestopt("check", str(result)).status == 5
    assert nestopt(*words).status == 5
    assert nestopt("library", "verify", ENTRY, "--archive", str(archive)).status == 0
