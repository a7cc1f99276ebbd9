"""`nestopt solve`: exit statuses, streams, files and contradictions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("pick")
NAMES = ("solve", "--workload", "w", "--cluster", "c")


@pytest.mark.parametrize(
    ("method", "status"),
    [
        ("dp", 0),
        ("at-limit", 0),
        ("broken", 1),
        ("infeasible", 3),
        ("too-slow", 4),
        ("interrupted", 4),
        ("out-of-memory", 4),
        ("liar", 5),
    ],
)
def test_exit_status_says_how_the_run_ended(
    nestopt: Callable, method: str, status: int, tmp_path: Path
) -> None:
    output = tmp_path / "r.json"
    run = nestopt(*NAMES, "--method", method, "--output", str(output))
    assert run.status == status
    assert output.exists() == (status in (0, 3, 4))
    assert "Traceback" not in run.err


def test_the_result_is_described_and_checked(nestopt: Callable) -> None:
    run = nestopt(*NAMES)
    assert run.out.splitlines()[0] == "picked number 1: 2.0"
    assert "check: passed, 4 points verified" in run.out


def test_json_is_one_versioned_object_whatever_the_libraries_print(nestopt: Callable) -> None:
    run = nestopt(*NAMES, "--method", "noisy", "--json")
    lines = run.out.splitlines()
    assert len(lines) == 1
    data = json.loads(lines[0])
    assert data["schema"] == "nestopt.result/1"
    assert data["objective"] == 2.0 and data["gap"] == 0.0
    assert "printed by Python" in run.err and "written by a compiled library" in run.err


@pytest.mark.parametrize(("method", "status"), [("broken", 1), ("liar", 5)])
def test_json_of_a_failure_is_one_versioned_object(
    nestopt: Callable, method: str, status: int
) -> None:
    run = nestopt(*NAMES, "--method", method, "--json")
    data = json.loads(run.out)
    assert data["schema"] == "nestopt.error/1" and data["exit"] == status == run.status
    assert run.err.splitlines()[-1] == f"nestopt: error: {data['error']}"


def test_what_the_checker_refuses_is_not_written(nestopt: Callable, tmp_path: Path) -> None:
    output = tmp_path / "r.json"
    output.write_text("the result of yesterday")
    run = nestopt(*NAMES, "--method", "liar", "-o", str(output))
    assert run.status == 5
    assert "objective: 1.0 stated, 2.0 found" in run.err
    assert output.read_text() == "the result of yesterday"
    assert run.out == ""


def test_progress_rows_go_to_stderr_and_quiet_drops_them(nestopt: Callable) -> None:
    run = nestopt(*NAMES)
    assert "incumbent" in run.err and "first" in run.err
    assert "incumbent" not in run.out
    assert nestopt(*NAMES, "--quiet").err == ""


def test_infeasible_names_its_cause(nestopt: Callable) -> None:
    run = nestopt(*NAMES, "--method", "infeasible")
    assert "INFEASIBLE" in run.out
    assert "layer 3 needs 91.2 GB, device 17 has 80.0 GB" in run.out


def test_interrupt_without_incumbent_keeps_the_bound(nestopt: Callable) -> None:
    run = nestopt(*NAMES, "--method", "interrupted", "--json")
    data = json.loads(run.out)
    assert data["termination"] == {"reason": "no-solution", "limit": "interrupted"}
    assert data["bound"] == 1.25
    assert nestopt(*NAMES, "--method", "out-of-memory", "--json").status == 4


def test_settings_reach_who_reads_them(nestopt: Callable) -> None:
    run = nestopt(*NAMES, "--set", "batch=16", "--set", "depth=3", "--json")
    data = json.loads(run.out)
    assert data["instance"]["data"]["batch"] == "16"
    assert data["stats"]["set"] == {"depth": "3"}
    assert data["settings"] == {"depth": "3"}


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("5 min", 300), ("0.5h", 1800)])
def test_time_limit_is_seconds_or_has_a_unit(nestopt: Callable, text: str, seconds: float) -> None:
    data = json.loads(nestopt(*NAMES, "--time-limit", text, "--json").out)
    assert float(data["stats"]["time_limit"]) == data["settings"]["time_limit"] == seconds


def test_warm_start_reads_a_result(nestopt: Callable, tmp_path: Path) -> None:
    first = tmp_path / "first.json"
    nestopt(*NAMES, "-o", str(first))
    data = json.loads(nestopt(*NAMES, "--warm-start", str(first), "--json").out)
    assert data["stats"]["started_from"] == {"pick": 1}


def test_warm_start_needs_a_solution(nestopt: Callable, tmp_path: Path) -> None:
    first = tmp_path / "first.json"
    nestopt(*NAMES, "--method", "too-slow", "-o", str(first))
    run = nestopt(*NAMES, "--warm-start", str(first))
    assert run.status == 1
    assert f"{first}: solution: is null; a warm start needs a solution" in run.err


def test_instance_file_says_which_problem_it_states(nestopt: Callable, tmp_path: Path) -> None:
    file = tmp_path / "i.json"
    file.write_text(json.dumps({"problem": "placement", "numbers": [4.0, 9.0]}))
    data = json.loads(nestopt("solve", str(file), "--json").out)
    assert data["objective"] == 4.0
    run = nestopt("solve", str(file), "--set", "batch=4")
    assert run.status == 2 and "states this already" in run.err


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "holds no JSON object"),
        ('{"problem": "sudoku"}', "problem: 'sudoku'; expected 'placement' or 'collective'"),
        ('{"schema": "nestopt.result/1"}', "is a result; expected an instance"),
        ('{"problem": "placement", "numbers": []}', "numbers: []; expected numbers"),
    ],
)
def test_a_bad_instance_file_is_one_line_that_names_it(
    nestopt: Callable, tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    run = nestopt("solve", str(file))
    assert run.status == 1
    assert run.err.startswith(f"nestopt: error: {file}: ")
    assert complaint in run.err
    assert len(run.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "give INSTANCE.json, or --workload and --cluster"),
        (("x.json", "--workload", "w"), "exclude each other"),
        (("--workload", "w"), "--workload needs --cluster too"),
        (("--topology", "t"), "--topology needs --collective too"),
        (("--workload", "w", "--topology", "t"), "do not go together"),
        ((*NAMES[1:], "--topology", "t"), "do not go together"),
        ((*NAMES[1:], "--method", "dpp"), "unknown placement method 'dpp'; did you mean 'dp'?"),
        ((*NAMES[1:], "--objective", "botleneck"), "did you mean 'bottleneck'?"),
        ((*NAMES[1:], "--objective", "makespan"), "unknown placement objective 'makespan'"),
        ((*NAMES[1:], "--space", "genral"), "did you mean 'general'?"),
        ((*NAMES[1:], "--backend", "cbc"), "--backend belongs to the method milp"),
        ((*NAMES[1:], "--write-model", "m.lp"), "--write-model belongs to the methods milp"),
        ((*NAMES[1:], "--time-limit", "0"), "expected a positive time"),
        ((*NAMES[1:], "--time-limit", "nan"), "expected a positive time"),
        ((*NAMES[1:], "--time-limit", "5 parsec"), "unknown unit 'parsec'"),
        ((*NAMES[1:], "--rel-gap", "1"), "--rel-gap 1: expected"),
        ((*NAMES[1:], "--rel-gap", "nan"), "--rel-gap nan: expected"),
        ((*NAMES[1:], "--seed", "-1"), "--seed -1: expected 0 or more"),
        ((*NAMES[1:], "--threads", "0"), "--threads 0: expected at least 1"),
        ((*NAMES[1:], "--set", "depth"), "--set 'depth': expected KEY=VALUE"),
        ((*NAMES[1:], "--set", "depth="), "expected KEY=VALUE"),
        ((*NAMES[1:], "--set", "depth=1", "--set", "depth=2"), "--set depth is given twice"),
        ((*NAMES[1:], "--set", "dept=1"), "unknown setting of dp 'dept'; did you mean 'depth'?"),
        ((*NAMES[1:], "--set", "bach=1"), "did you mean 'batch'?"),
        ((*NAMES[1:], "--output", "r.yaml"), "--output r.yaml: expected a name that ends in .json"),
        ((*NAMES[1:], "--metod", "dp"), "--metod"),
        (("--collective", "k", "--topology", "t", "--space", "general"), "--space belongs to"),
    ],
)
def test_a_wrong_command_line_is_told_so(
    nestopt: Callable, words: tuple[str, ...], complaint: str
) -> None:
    run = nestopt("solve", *words)
    assert run.status == 2
    assert complaint in run.err
    assert run.out == ""


def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    nestopt: Callable, tmp_path: Path
) -> None:
    run = nestopt(*NAMES, "--output", str(tmp_path / "none" / "r.json"))
    assert run.status == 1
    assert "no directory" in run.err
    assert "incumbent" not in run.err
    (tmp_path / "d.json").mkdir()
    assert "is a directory" in nestopt(*NAMES, "--output", str(tmp_path / "d.json")).err


def test_a_full_disk_is_one_line_and_leaves_no_file(
    nestopt: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    run = nestopt(*NAMES, "--quiet", "--output", str(tmp_path / "r.json"))
    assert run.status == 1
    assert len(run.err.splitlines()) == 1
    assert f"{tmp_path}/r.json: cannot be written: No space left on device; nor" in run.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["write", "rename"])
def test_a_result_that_cannot_be_written_is_kept_elsewhere(
    nestopt: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    spare, disk = tmp_path / "spare", tmp_path / "disk"
    spare.mkdir()
    disk.mkdir()
    name = {"write": "os.fsync", "rename": "os.replace"}[where]
    real = {"write": os.fsync, "rename": os.replace}[where]
    calls = 0

    def full(*words: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError(28, "No space left on device")
        real(*words)  # type: ignore[operator]

    monkeypatch.setattr(tempfile, "tempdir", str(spare))
    monkeypatch.setattr(name, full)
    run = nestopt(*NAMES, "--quiet", "--output", str(disk / "r.json"))
    assert run.status == 1
    assert list(disk.iterdir()) == []
    (kept,) = spare.glob("nestopt-*/r.json")
    assert run.err.strip().endswith(f"No space left on device; the result is in {kept}")
    assert nestopt("check", str(kept)).status == 0


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("stdout", ["full", "closed"])
def test_a_result_that_cannot_be_printed_is_kept_elsewhere(tmp_path: Path, stdout: str) -> None:
    words = ["solve", "--quiet", "--json", "--collective", "all-gather", "--topology", "ring:3"]
    program = f"import sys; from nestopt.cli import main; main({words!r})"
    shell = ">/dev/full" if stdout == "full" else ">&-"
    done = subprocess.run(
        ["bash", "-c", f'exec "$0" -c "$1" {shell}', sys.executable, program],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 1, done.stderr
    (kept,) = tmp_path.glob("nestopt-*/result.json")
    assert f"the result is in {kept}" in done.stderr
    assert json.loads(kept.read_text())["termination"]["reason"] == "optimal"
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_missing_file_is_named(nestopt: Callable) -> None:
    run = nestopt("solve", "nowhere.json")
    assert run.status == 1
    assert run.err == "nestopt: error: nowhere.json: cannot be read: No such file or directory\n"


def test_debug_shows_the_traceback(nestopt: Callable) -> None:
    from nestopt.cli import main
    from nestopt.core.errors import SolverError

    with pytest.raises(SolverError, match="node 7"):
        main([*NAMES, "--debug", "--method", "broken"])
