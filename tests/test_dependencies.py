"""Who may import whom, read from the source; the folders and their order."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import networkx as nx
from structure import sources

ROOT = Path(__file__).parents[1]

# what a checker or a simulator may know: the problem's data, never a solver's arithmetic
DATA = {
    f"nestopt.core.{name}" for name in ("errors", "io", "options", "result", "units", "verdict")
}
# checkers, simulators and verifiers of witnesses of a problem share code with one another only
JUDGES = {
    "nestopt.placement.judge": "nestopt.placement.model",
    "nestopt.collective.judge": "nestopt.collective.model",
}


@cache
def _sources() -> dict[str, tuple[Path, ast.Module]]:
    """Path and syntax tree of each module; read by the first test, not when tests are collected."""
    return sources(ROOT)


@cache
def _modules() -> dict[str, Path]:
    return {name: path for name, (path, _) in _sources().items()}


@cache
def _imported() -> dict[str, set[str]]:
    return {name: _imports(name) for name in _modules()}


def _nodes(tree: ast.Module, *, when_loaded: bool) -> list[ast.stmt]:
    if not when_loaded:
        return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return tree.body


def _imports(name: str, *, when_loaded: bool = False) -> set[str]:
    """Modules that a module imports: anywhere, in functions and for type checking too, or those
    that are imported when it is loaded."""
    path, tree = _sources()[name]
    found: set[str] = set()
    for node in _nodes(tree, when_loaded=when_loaded):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            base = node.module or ""
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                found.add(inner if inner in _modules() else base)
    return found


def _of(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _above(name: str) -> bool:
    return _of(name, "nestopt.formulations", "nestopt.instances")


def test_the_source_is_there() -> None:
    known = {"nestopt.core.registry", "nestopt.instances.catalog", "nestopt.formulations.solvers"}
    assert known <= set(_modules())
    assert "nestopt.core.errors" in _imported()["nestopt.core.registry"]


def test_nestopt_reaches_the_other_packages_only_by_table_and_command_line() -> None:
    for name, (_, tree) in _sources().items():
        if _above(name) or _of(name, "nestopt.cli"):
            continue
        outside = {other for other in _imported()[name] if _above(other)}
        assert not outside, f"{name} imports {sorted(outside)}"
        if name == "nestopt.core.registry" or name.endswith(".methods"):
            continue
        texts = {
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        by_name = {text for text in texts if _above(text.partition(":")[0]) and " " not in text}
        assert not by_name, f"{name} names {sorted(by_name)}"


def test_formulations_and_instances_know_nestopt_but_not_each_other() -> None:
    for name in filter(_above, _modules()):
        formulates = _of(name, "nestopt.formulations")
        other = "nestopt.instances" if formulates else "nestopt.formulations"
        wrong = {imported for imported in _imported()[name] if _of(imported, other, "nestopt.cli")}
        assert not wrong, f"{name} imports {sorted(wrong)}"


def test_only_the_console_script_knows_the_command_line() -> None:
    for name in _modules():
        if _of(name, "nestopt.cli") or name == "nestopt.__main__":
            continue
        wrong = {other for other in _imported()[name] if _of(other, "nestopt.cli")}
        assert not wrong, f"{name} imports {sorted(wrong)}"


def test_the_core_knows_neither_problem() -> None:
    for name in _modules():
        if _of(name, "nestopt.core"):
            wrong = {other for other in _imported()[name] if _of(other, "nestopt")}
            wrong = {other for other in wrong if not _of(other, "nestopt.core", "nestopt._version")}
            assert not wrong, f"{name} imports {sorted(wrong)}"


def test_who_judges_shares_no_code_with_who_is_judged() -> None:
    for judge, model in JUDGES.items():
        judging = [name for name in _modules() if _of(name, judge)]
        assert len(judging) > 3
        for name in judging:
            ours = {other for other in _imported()[name] if _of(other, "nestopt")}
            shared = {other for other in ours if not _of(other, judge, model) and other not in DATA}
            assert not shared, f"{name} imports {sorted(shared)}"


def test_the_data_that_judges_read_knows_no_solver() -> None:
    for model in JUDGES.values():
        for name in (name for name in _modules() if _of(name, model)):
            loaded = set(_imports(name, when_loaded=True))
            wrong = {other for other in loaded if _of(other, "nestopt")}
            wrong = {other for other in wrong if not _of(other, model, "nestopt.core")}
            assert not wrong, f"{name} imports {sorted(wrong)}"


def _circles() -> list[list[str]]:
    """Modules that import one another in a circle, for type checking too."""
    graph = nx.DiGraph(
        (name, other)
        for name, others in _imported().items()
        for other in others
        if other in _modules()
    )
    return [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]


def test_no_circle_in_the_core() -> None:
    found = [circle for circle in _circles() if any(_of(name, "nestopt.core") for name in circle)]
    assert not found


def _room(name: str) -> str:
    """The folder of a module, as deep as two below `nestopt`."""
    path = _modules()[name]
    parts = name.split(".")
    folder = parts if path.name == "__init__.py" else parts[:-1]
    return ".".join(folder[:3])
