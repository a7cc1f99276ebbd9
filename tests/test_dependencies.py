"""Who may import whom, read from the source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("nestopt", "formulations", "instances")

# what a checker or a simulator may know: the problem's data, never a solver's arithmetic
DATA = {
    "nestopt.errors",
    "nestopt.io",
    "nestopt.options",
    "nestopt.result",
    "nestopt.units",
}
PLACEMENT_DATA = DATA | {
    "nestopt.placement._files",
    "nestopt.placement.cluster",
    "nestopt.placement.collective_table",
    "nestopt.placement.plan",
    "nestopt.placement.workload",
}
COLLECTIVE_DATA = DATA | {
    "nestopt.collective.collective",
    "nestopt.collective.problem",
    "nestopt.collective.schedule",
    "nestopt.collective.schemas",
    "nestopt.collective.steps",
    "nestopt.collective.store",
    "nestopt.collective.topology",
}
# checkers, simulators and verifiers of witnesses of a problem may share code with one another
JUDGES = [
    ("nestopt.placement", ("check", "simulate"), PLACEMENT_DATA),
    ("nestopt.collective", ("check", "simulate", "bounds.verify"), COLLECTIVE_DATA),
]


def _modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path
    return found


MODULES = _modules()


def _imports(path: Path, *, when_loaded: bool = False) -> set[str]:
    """Modules that a file imports: anywhere, in functions and for type checking too, or those
    that are imported when it is loaded."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body if when_loaded else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            base = node.module or ""
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in MODULES else base)
    return found


def _strings(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


IMPORTS = {name: _imports(path) for name, path in MODULES.items()}


def _of(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def test_the_source_is_there() -> None:
    assert {"nestopt.registry", "instances.catalog", "formulations.adapters"} <= set(MODULES)
    assert "nestopt.errors" in IMPORTS["nestopt.registry"]


@pytest.mark.parametrize("name", [name for name in MODULES if _of(name, "nestopt")])
def test_nestopt_reaches_the_other_packages_only_by_table_and_command_line(name: str) -> None:
    if _of(name, "nestopt.cli"):
        return
    outside = {
        other for other in IMPORTS[name] if _of(other, "formulations") or _of(other, "instances")
    }
    assert not outside
    by_name = {
        text
        for text in _strings(MODULES[name])
        if text.startswith(("formulations.", "instances.")) and " " not in text
    }
    if name != "nestopt.registry" and not name.endswith(".methods"):
        assert not by_name


@pytest.mark.parametrize("name", [name for name in MODULES if not _of(name, "nestopt")])
def test_formulations_and_instances_know_nestopt_but_not_each_other(name: str) -> None:
    other = "instances" if _of(name, "formulations") else "formulations"
    for imported in IMPORTS[name]:
        assert not _of(imported, other), imported
        assert not _of(imported, "nestopt.cli"), imported


@pytest.mark.parametrize("name", [name for name in MODULES if _of(name, "nestopt")])
def test_only_the_console_script_knows_the_command_line(name: str) -> None:
    if not _of(name, "nestopt.cli"):
        assert not [other for other in IMPORTS[name] if _of(other, "nestopt.cli")]


@pytest.mark.parametrize(
    ("package", "judges", "allowed"), JUDGES, ids=[package for package, _, _ in JUDGES]
)
def test_who_judges_shares_no_code_with_who_is_judged(
    package: str, judges: tuple[str, ...], allowed: set[str]
) -> None:
    heads = tuple(f"{package}.{judge}" for judge in judges)
    judging = {name for name in MODULES if name.startswith(heads)}
    for judge in judges:
        assert f"{package}.{judge}" in judging
    for name in judging:
        shared = {other for other in IMPORTS[name] if _of(other, "nestopt")} - judging - allowed
        assert not shared, f"{name} imports {sorted(shared)}"


@pytest.mark.parametrize("allowed", [PLACEMENT_DATA, COLLECTIVE_DATA], ids=["plan", "schedule"])
def test_the_data_that_judges_read_knows_no_solver(allowed: set[str]) -> None:
    for name in allowed:
        if name.startswith(("nestopt.placement", "nestopt.collective")):
            loaded = _imports(MODULES[name], when_loaded=True)
            shared = {other for other in loaded if _of(other, "nestopt")} - allowed
            assert not shared, f"{name} imports {sorted(shared)}"
