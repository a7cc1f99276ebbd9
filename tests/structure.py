"""Counts that tell how the source is built: `python tests/structure.py [FOLDER]`.

Import circles, imports inside functions, long functions, functions of many parameters, repeated
blocks. With ``--way`` also what a problem's instance is called on its way through the dynamic
program and the greedy matcher (FOLDER must then be importable). FOLDER is a checkout of this
repository, by default the one that holds this file; a commit is compared with another by
``git worktree add /tmp/before COMMIT`` and a second call. The pages of `docs/measured.md` quote it.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("nestopt", "formulations", "instances")
LONG, MANY, BLOCK = 60, 6, 6
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

_WAY = """
import sys, types
from nestopt.cli.app import main
seen, rooms, kind = set(), set(), {kind!r}
def watch(frame, event, value):
    if event != "call":
        return
    room = frame.f_globals.get("__name__", "")
    if room.removeprefix("nestopt.").split(".")[0] in ("core", "cli") or not room.startswith(
        ("nestopt", "formulations", "instances")
    ):
        return
    for name, held in frame.f_locals.items():
        if type(held).__name__ == kind:
            seen.add((room, frame.f_code.co_qualname, name))
            rooms.add(room)
sys.setprofile(watch)
try:
    main({words!r})
except SystemExit:
    pass
sys.setprofile(None)
print(len({{name for _, _, name in seen}}), len(seen), len(rooms), file=sys.stderr)
"""
_RUNS = {
    "dp": (
        ("PlacementInstance",),
        ["solve", "--quiet", "chain4-tree2x2", "--method", "dp"],
    ),
    "greedy": (
        ("CollectiveInstance",),
        ["solve", "--quiet", "--collective", "all-gather", "--topology", "mesh2d:3x3"],
    ),
}


def sources(folder: Path) -> dict[str, tuple[Path, ast.Module]]:
    """Every module of the packages: its name, file and syntax tree."""
    found = {}
    for package in PACKAGES:
        for path in sorted((folder / package).rglob("*.py")):
            inside = path.relative_to(folder)
            if any((folder / part).is_symlink() for part in inside.parents):
                continue
            parts = inside.with_suffix("").parts
            name = _full(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
            found[name] = (path, ast.parse(path.read_text(encoding="utf-8")))
    return found


def _full(name: str) -> str:
    """`formulations.x` of older commits is `nestopt.formulations.x`."""
    return f"nestopt.{name}" if name.partition(".")[0] in PACKAGES[1:] else name


def imports(tree: ast.Module, *, inside: bool) -> Iterator[tuple[ast.stmt, list[str]]]:
    """Import statements, each with the names it may mean: of the module, or inside functions."""
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, deep = todo.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if deep == inside and isinstance(child, ast.Import):
                yield child, [_full(alias.name) for alias in child.names]
            elif deep == inside and isinstance(child, ast.ImportFrom) and child.module:
                whole = [f"{child.module}.{alias.name}" for alias in child.names]
                yield child, [_full(n) for n in (child.module, *whole)]
            todo.append((child, deep or isinstance(child, _FUNCTIONS)))


def circles(modules: dict[str, tuple[Path, ast.Module]]) -> list[list[str]]:
    """Sets of modules that import one another when they are loaded."""
    import networkx as nx

    graph = nx.DiGraph()
    for name, (_, tree) in modules.items():
        for _, named in imports(tree, inside=False):
            graph.add_edges_from((name, other) for other in named if other in modules)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return sorted(sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1)


def circles_of_rooms(modules: dict[str, tuple[Path, ast.Module]], depth: int) -> list[list[str]]:
    """Sets of packages that import one another, imports inside functions included."""
    import networkx as nx

    def room(name: str) -> str:
        path = modules[name][0]
        parts = name.split(".")
        folder = parts if path.stem == "__init__" else parts[:-1]
        return ".".join(folder[:depth])

    graph = nx.DiGraph()
    for name, (_, tree) in modules.items():
        for where in (True, False):
            for _, named in imports(tree, inside=where):
                graph.add_edges_from((room(name), room(o)) for o in named if o in modules)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return sorted(sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1)


def functions(modules: dict[str, tuple[Path, ast.Module]]) -> Iterator[tuple[str, int, int]]:
    """Every function: where it stands, its lines without the docstring, its parameters."""
    for name, (_, tree) in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTIONS):
                told = ast.get_docstring(node, clean=False)
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                lines -= told.count("\n") + 1 if told else 0
                a = node.args
                given = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
                given = [p for p in given if p not in ("self", "cls")]
                yield f"{name}.{node.name}", lines, len(given)


def repeated(modules: dict[str, tuple[Path, ast.Module]]) -> int:
    """Lines of code in runs of at least `BLOCK` that stand word for word in two places or more."""
    places = defaultdict(list)
    for name, (path, _) in modules.items():
        lines = [
            (number, " ".join(line.split()))
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines())
        ]
        code = [
            (number, line)
            for number, line in lines
            if len(line) > 3 and not line.startswith(("#", "import ", "from ", '"""'))
        ]
        for start in range(len(code) - BLOCK + 1):
            window = code[start : start + BLOCK]
            places[tuple(line for _, line in window)].append((name, [n for n, _ in window]))
    held = {
        (name, n) for found in places.values() if len(found) > 1 for name, ns in found for n in ns
    }
    return len(held)


def way(folder: Path, run: str) -> str:
    """What an instance is called on the way of a method: names, places and modules."""
    (kind,), words = _RUNS[run]
    done = subprocess.run(
        [sys.executable, "-c", _WAY.format(kind=kind, words=words)],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "NUMBA_DISABLE_JIT": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    names, places, rooms = done.stderr.split()[-3:]
    return f"{names} names in {places} functions of {rooms} modules"


def count(folder: Path) -> dict[str, str]:
    """All counts of a checkout, as text by what is counted."""
    modules = sources(folder)
    rings = circles(modules)
    rooms = circles_of_rooms(modules, 2)
    deep = [named for _, tree in modules.values() for _, named in imports(tree, inside=True)]
    own = sum(named[0] in modules or named[-1] in modules for named in deep)
    shapes = list(functions(modules))
    return {
        "modules": str(len(modules)),
        "circles of modules": f"{len(rings)}, largest {max(map(len, rings), default=0)}",
        "circles of packages": f"{len(rooms)}, largest {max(map(len, rooms), default=0)}",
        "imports inside functions": f"{len(deep)}, {own} of own modules",
        f"functions over {LONG} lines": str(sum(lines > LONG for _, lines, _ in shapes)),
        f"functions over {MANY} parameters": str(sum(many > MANY for _, _, many in shapes)),
        "most parameters": str(max(many for _, _, many in shapes)),
        "mentions of Any": str(
            sum(
                isinstance(node, ast.Name) and node.id == "Any"
                for _, tree in modules.values()
                for node in ast.walk(tree)
            )
        ),
        f"lines in repeated blocks of {BLOCK} lines": str(repeated(modules)),
    }


def main() -> None:
    """Print the counts of a checkout."""
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    reader.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parents[1])
    reader.add_argument("--way", action="store_true", help="also the way of an instance")
    reader.add_argument("--list", action="store_true", help="also each circle and each function")
    chosen = reader.parse_args()
    folder = chosen.folder.resolve()
    for what, value in count(folder).items():
        print(f"{what:40} {value}")
    if chosen.way:
        for run in _RUNS:
            print(f"{f'the instance in {run}':40} {way(folder, run)}")
    if chosen.list:
        modules = sources(folder)
        for ring in circles(modules):
            print("circle:", *ring)
        for name, lines, many in functions(modules):
            if lines > LONG or many > MANY:
                print(f"{name}: {lines} lines, {many} parameters")


if __name__ == "__main__":
    main()
