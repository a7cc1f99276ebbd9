"""The page of Python in docs/first_page.py runs, section by section, and does what it says."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import nestopt

PAGE = Path(__file__).parents[1] / "docs" / "first_page.py"


def _sections() -> dict[str, str]:
    head, *parts = PAGE.read_text(encoding="utf-8").split("# %% ")
    assert head.startswith('"""')
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in parts}


def _run(title: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    matplotlib.use("Agg")
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"nestopt": nestopt}
    exec(compile(_sections()[title], str(PAGE), "exec"), names)
    importlib.import_module("matplotlib.pyplot").close("all")
    return names


def test_a_job_on_a_cluster_with_failures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = _run("A training job on a cluster with two failed GPUs", monkeypatch, tmp_path)
    result, frame = names["result"], names["frame"]
    used = [device for devices in frame["devices"] for device in devices]
    assert len(used) == len(set(used)) and not {13, 40} & set(used)
    assert len(frame) == len(result.solution) and result.objective >= result.bound > 0
    assert (tmp_path / "plan.png").stat().st_size > 1000


def test_a_graph_and_its_sends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = _run("A graph from networkx, an All-Gather on it, and its sends", monkeypatch, tmp_path)
    sends, result = names["sends"], names["result"]
    assert sends["arrival_ps"].max() == result.objective
    assert len(sends) == len(result.solution) == 8 * 7
    assert (tmp_path / "schedule.png").stat().st_size > 1000


def test_a_constraint_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if not hasattr(importlib.import_module("nestopt.formulations"), "formulation"):
        pytest.skip("this source tree has no exact models as objects")
    names = _run("A constraint of your own on the exact model", monkeypatch, tmp_path)
    assert len(names["result"].solution) == 1
