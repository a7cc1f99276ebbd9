"""check, bound, simulate, plot, methods, show-versions, and the help pages."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import nestopt as package
from nestopt.cli.app import COMMANDS
from nestopt.cli.library import library
from nestopt.cli.output import signed_percent
from nestopt.cli.study import study

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = ("--workload", "w", "--cluster", "c")
PAGES = [
    (),
    *((name,) for name in COMMANDS),
    *(("library", str(row.name)) for row in library.registered_commands),
    *(("study", str(row.name)) for row in study.registered_commands),
]


@pytest.fixture
def result(nestopt: Callable, pick: None, tmp_path: Path) -> Path:
    file = tmp_path / "r.json"
    assert nestopt("solve", *NAMES, "-o", str(file)).status == 0
    return file


def test_check_passes_what_solve_wrote(nestopt: Callable, result: Path) -> None:
    run = nestopt("check", str(result))
    assert run.status == 0
    assert run.out.splitlines()[-1] == f"{result}: passed, 5 points verified"
    data = json.loads(nestopt("check", str(result), "--json").out)
    assert data["schema"] == "nestopt.check/1" and data["passed"] is True
    assert len(data["verified"]) == 5


def _set(path: tuple[str, ...], value: Any) -> Callable[[dict[str, Any]], None]:
    def mutate(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return mutate


@pytest.mark.parametrize(
    ("mutation", "fault"),
    [
        (_set(("objective",), 1.98), "is above the objective"),
        (_set(("solution", "pick"), 0), "objective: 2.0 stated, 5.0 found"),
        (_set(("solution",), None), "the result has no solution"),
        (_set(("objective",), None), "objective None"),
        (_set(("objective",), "inf"), "not finite"),
        (_set(("gap",), 0.25), "gap: 0.25 stated, 0.0 follows from the bound"),
        (_set(("gap",), "inf"), "gap: inf stated"),
        (_set(("bound",), 2.1), "is above the objective"),
        (_set(("instance", "data", "numbers"), [5.0, 2.0, 1.0]), "instance.sha256"),
        (_set(("termination", "reason"), "infeasible"), "the result has a solution"),
    ],
)
def test_check_refuses_every_mutation(
    nestopt: Callable, result: Path, mutation: Callable, fault: str
) -> None:
    data = json.loads(result.read_text())
    mutation(data)
    result.write_text(json.dumps(data))
    run = nestopt("check", str(result))
    assert run.status == 5
    assert run.err.startswith(f"nestopt: error: {result}: ")
    assert fault in run.err


@pytest.mark.parametrize(
    ("mutation", "fault"),
    [
        (_set(("schema",), "nestopt.result/9"), "schema: Input should be 'nestopt.result/1'"),
        (_set(("termination",), {"reason": "feasible", "limit": "none"}), "a limit is set"),
        (_set(("termination", "reason"), "tired"), "'tired'"),
        (_set(("problem",), "sudoku"), "(got 'sudoku')"),
        (_set(("instance",), None), "instance: "),
        (_set(("seconds",), -1), "seconds: "),
    ],
)
def test_check_refuses_what_is_no_result(
    nestopt: Callable, result: Path, mutation: Callable, fault: str
) -> None:
    data = json.loads(result.read_text())
    mutation(data)
    result.write_text(json.dumps(data))
    run = nestopt("check", str(result))
    assert run.status == 1
    assert fault in run.err


@pytest.mark.usefixtures("pick")
def test_bound_prints_the_best_first_with_its_witness(nestopt: Callable) -> None:
    run = nestopt("bound", *NAMES)
    lines = run.out.splitlines()
    assert lines[0] == "pick"
    assert lines[2].split() == ["least", "2", "s"]
    assert lines[3].split() == ["position", "1"]
    assert max(map(len, lines)) <= 80 and "the rest with --json" in run.out
    data = json.loads(nestopt("bound", *NAMES, "--json").out)
    assert data["schema"] == "nestopt.bounds/1"
    assert [row["value"] for row in data["bounds"]] == [2.0, "inf"]


def test_simulate_prints_both_times(nestopt: Callable, result: Path) -> None:
    run = nestopt("simulate", str(result))
    assert [line.split("  ")[0].strip() for line in run.out.splitlines()] == [
        "closed form",
        "simulated",
        "relative difference",
        "tasks played",
    ]
    data = json.loads(nestopt("simulate", str(result), "--json").out)
    assert data["schema"] == "nestopt.simulation/1" and data["simulated"] == 2.0


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0.000%"),
        (-0.0, "0.000%"),
        (-2.2e-16, "0.000%"),
        (4e-6, "0.000%"),
        (-6e-6, "-0.001%"),
        (0.1, "+10.000%"),
        (-1.0, "-100.000%"),
    ],
)
def test_a_difference_that_rounds_to_zero_has_no_sign(share: float, text: str) -> None:
    assert signed_percent(share) == text


def test_plot_writes_the_picture(nestopt: Callable, result: Path, tmp_path: Path) -> None:
    picture = tmp_path / "p.pdf"
    assert nestopt("plot", str(result), "-o", str(picture)).status == 0
    assert picture.read_text() == "picture of 2.0"
    run = nestopt("plot", str(result), "-o", str(tmp_path / "p.docx"))
    assert run.status == 2 and ".pdf or .png or .svg" in run.err


@pytest.mark.parametrize("command", ["simulate", "plot"])
def test_without_a_solution_there_is_nothing_to_show(
    nestopt: Callable, pick: None, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "r.json"
    nestopt("solve", *NAMES, "--method", "too-slow", "-o", str(file))
    extra = ("-o", str(tmp_path / "p.pdf")) if command == "plot" else ()
    run = nestopt(command, str(file), *extra)
    assert run.status == 1
    assert f"{file}: solution: is null" in run.err


def test_plot_says_how_to_get_matplotlib(
    nestopt: Callable, result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pick_problem

    def plot(*_: Any, **__: Any) -> None:
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setattr(pick_problem.PROBLEM, "plot", plot)
    run = nestopt("plot", str(result), "-o", str(tmp_path / "p.pdf"))
    assert run.status == 1
    assert "pip install 'nestopt[plot]'" in run.err


@pytest.mark.usefixtures("pick")
def test_methods_lists_methods_and_keys(nestopt: Callable) -> None:
    run = nestopt("methods", "placement")
    assert "The least number, proved." in run.out
    for key in ("depth", "width", "batch"):
        assert any(line.strip().startswith(key) for line in run.out.splitlines()), key
    data = json.loads(nestopt("methods", "placement", "--json").out)
    row = data["problems"]["placement"]
    assert row["instance_settings"] == ["batch"]
    assert row["methods"]["dp"]["settings"] == ["depth", "width"]
    assert nestopt("methods", "placemnt").status == 2


def test_show_versions(nestopt: Callable) -> None:
    data = json.loads(nestopt("show-versions", "--json").out)
    assert data["versions"]["nestopt"] == package.__version__
    assert set(data["versions"]) > {"python", "ortools", "pulp", "numpy"}
    assert f"nestopt        {package.__version__}\n" in nestopt("show-versions").out
    assert nestopt("--version").out == f"nestopt {package.__version__}\n"


@pytest.mark.parametrize("words", PAGES, ids=" ".join)
def test_help_is_a_page_of_80_columns(
    nestopt: Callable, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    run = nestopt(*words, "--help")
    assert run.status == 0
    assert max(len(line) for line in run.out.splitlines()) <= 80
    assert "Examples:\n    nestopt " in run.out
    assert nestopt(*words, "-h").out == run.out


def test_unknown_command_is_told_a_near_one(nestopt: Callable) -> None:
    run = nestopt("solv")
    assert run.status == 2
    assert "solve" in run.err


def test_the_command_line_imports_nothing_heavy() -> None:
    heavy = (
        "ortools pulp highspy scipy numba matplotlib networkx numpy pydantic formulations instances"
    )
    program = f"""
import sys
import nestopt.cli
print([name for name in {heavy.split()!r} if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_help_takes_less_than_three_tenths_of_a_second() -> None:
    def cpu_seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-c", "from nestopt.cli import main; main(['--help'])"],
            capture_output=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # CPU time, since the machine may be busy with other tests
    assert min(cpu_seconds() for _ in range(5)) < 0.3


def test_bounds_are_told_as_they_are_found(nestopt: Callable) -> None:
    run = nestopt("bound", "--collective", "all-gather", "--topology", "mesh2d:3x3")
    assert run.status == 0
    told = [line for line in run.err.splitlines() if " s: " in line]
    names = {line.split(" s: ")[1].split()[0] for line in told}
    assert {"distance", "ingress", "egress"} <= names
    assert all(f"\n{name} " in run.out for name in names)
