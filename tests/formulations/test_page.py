"""The page of the exact models, and what the docstrings of their families have to hold."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from nestopt.formulations.families import families_of
from nestopt.formulations.page import PAIRS, page

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.formulations.families import Family

MODELS = [model for pair in PAIRS for model in pair.classes().values()]
EVERY = [(model, f) for model in MODELS for f in families_of(model)]


def of(title: str) -> list[tuple[Family, ...]]:
    pair = next(p for p in PAIRS if p.title == title)
    return [families_of(model) for model in pair.classes().values()]


def test_every_family_states_its_constraint_and_why() -> None:
    assert len(EVERY) > 90
    for model, family in EVERY:
        where = f"{model.__name__}.{family.name}"
        assert family.summary.endswith("."), where
        assert family.formulas and family.why, where
        for formula in family.formulas:
            assert formula.count("{") == formula.count("}"), where
            assert re.search(r"\\(le|ge|Rightarrow|Leftrightarrow|vee|mathrm)\b|=", formula), where


@pytest.mark.parametrize("title", ["Placement", "Max-load partitioning"])
def test_both_models_have_the_same_families_in_the_same_order(title: str) -> None:
    milp, cpsat = of(title)
    assert [f.name for f in milp] == [f.name for f in cpsat]
    assert [f.summary for f in milp][:5] == [f.summary for f in cpsat][:5]


def test_the_grid_models_of_collectives_have_the_same_families() -> None:
    milp, cpsat, intervals = of("Collectives")
    assert [(f.name, f.summary) for f in milp] == [(f.name, f.summary) for f in cpsat]
    grid = {f.name for f in milp}
    # times need no switches and no symmetry on states, but a makespan
    assert {f.name for f in intervals} - grid == {"makespan"}


def test_every_family_is_called_once_by_add_constraints() -> None:
    for model in MODELS:
        decorated = {
            getattr(model, name).family
            for name in dir(model)
            if hasattr(getattr(model, name), "family")
        }
        assert decorated == {f.name for f in families_of(model)}


def test_the_page_holds_every_family_of_every_model() -> None:
    text = page()
    assert text.count("## ") >= len(PAIRS)
    for _, family in EVERY:
        assert f"### {family.name}\n" in text
        for formula in family.formulas:
            assert formula.replace("|", r"\vert ") in text.replace("|", r"\vert ")
    for line in text.splitlines():
        if line.startswith("| ") and "$" in line:
            # a bar within a formula would end its cell
            assert line.count("|") in (4, 5)


def test_the_page_is_a_command(tmp_path: Path) -> None:
    file = tmp_path / "models.md"
    command = [sys.executable, "-m", "nestopt.formulations.page", str(file)]
    subprocess.run(command, check=True, timeout=120)
    assert file.read_text(encoding="utf-8") == page()
