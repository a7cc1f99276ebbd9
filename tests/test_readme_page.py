"""The page of Python in docs/first_page.py runs, section by section, and does what it says.

So does the README, of which each figure is also on a page that has its record or command.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import nestopt

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "first_page.py"
README = (ROOT / "README.md").read_text(encoding="utf-8")


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


@pytest.mark.slow  # the README has the same, shorter
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


def test_the_python_of_the_readme_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    pytest.importorskip("pandas")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    importlib.import_module("matplotlib.pyplot").close("all")
    assert names["result"].objective >= names["result"].bound > 0
    used = {int(i) for stage in names["result"].solution.stages for i in stage.devices.ravel()}
    assert used and not {13, 40} & used
    assert (tmp_path / "plan.png").stat().st_size > 1000
    assert len(names["schedule"].solution) == 8 * 7


def test_every_figure_of_the_readme_is_on_the_page_of_measured_ones() -> None:
    measured = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
    table = README[README.index("## How good it is") :].partition("\n\n*Gap*")[0]
    rows = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 5
    for row in rows:
        for figure in re.findall(r"\d+(?:\.\d+)?(?= %| us| s\b|,)", row):
            known = re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]*\d)", measured)
            assert known, f"{figure} of {row.strip()!r}"
    assert len(README.splitlines()) <= 120
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / link).exists(), link
