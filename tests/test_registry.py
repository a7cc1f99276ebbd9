"""The lazy method table, third-party methods, and names of the library."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from nestopt.core import registry
from nestopt.core.errors import UsageError, unknown_name
from nestopt.core.options import SolveOptions
from nestopt.core.problem import get_problem
from nestopt.core.registry import Method, get_method, method_names, methods_of, named

PROBLEMS = ("placement", "collective")


def foreign(instance: object, options: object) -> str:
    return "solved elsewhere"


@pytest.fixture
def entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("elsewhere")
    module.foreign = foreign  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "elsewhere", module)
    points = [
        EntryPoint("placement.foreign", "elsewhere:foreign", "nestopt.solvers"),
        EntryPoint("collective.other", "elsewhere:missing", "nestopt.solvers"),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_row_of_the_table_leads_to_a_function(problem: str) -> None:
    rows = methods_of(problem)
    assert rows
    for name, row in rows.items():
        assert callable(get_method(problem, name)), name
        assert row.summary, name
        assert len(set(row.settings)) == len(row.settings), name


@pytest.mark.parametrize("problem", PROBLEMS)
def test_each_problem_has_its_adapter(problem: str) -> None:
    adapter = get_problem(problem)
    assert adapter.name == problem
    assert all(isinstance(key, str) for key in adapter.settings)


def test_an_unknown_problem_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="known: placement, collective"):
        get_problem("sudoku")


@pytest.mark.usefixtures("entry_point")
def test_methods_of_other_distributions_join_the_table() -> None:
    assert "foreign" in method_names("placement")
    assert "other" not in method_names("placement")
    assert get_method("placement", "foreign")(None, None) == "solved elsewhere"


@pytest.mark.usefixtures("entry_point")
def test_a_built_in_method_wins_over_a_foreign_one_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = importlib.import_module("nestopt.placement.methods").METHODS
    monkeypatch.setitem(rows, "foreign", Method("operator:is_not", "built in"))
    assert get_method("placement", "foreign")(2, SolveOptions()) is True


@pytest.mark.usefixtures("entry_point")
def test_an_unknown_method_is_told_a_near_one() -> None:
    with pytest.raises(UsageError, match="unknown placement method 'foriegn'; did you mean 'fore"):
        get_method("placement", "foriegn")


def test_names_of_the_library_resolve_and_near_ones_are_suggested() -> None:
    assert named("topology", "mesh2d:3x3").num_nodes == 9
    with pytest.raises(UsageError, match="did you mean 'mesh2d'"):
        named("topology", "msh2d:3x3")
    with pytest.raises(UsageError, match="unknown kind 'galaxy'"):
        named("galaxy", "x")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("topology", "torus2d:3x3+fail-npus:1+seed:2"),
        ("cluster", "dgx-h100-16"),
        ("cluster", "tree:4x2+fail-npus:1"),
        ("workload", "bert-large"),
        ("workload", "random-chain:5,seed=3"),
    ],
)
def test_families_suffixes_and_random_objects_have_names_too(kind: str, name: str) -> None:
    assert named(kind, name).name == name


def test_without_a_near_name_the_known_ones_are_listed() -> None:
    assert str(unknown_name("colour", "qqq", ["blue", "red"])) == (
        "unknown colour 'qqq'; known: blue, red"
    )
    assert str(unknown_name("colour", "blu", ["blue", "red"])) == (
        "unknown colour 'blu'; did you mean 'blue'?"
    )
    many = str(unknown_name("number", "qqq", [f"{n:03d}" for n in range(30)]))
    assert many.endswith("019, ...")
