"""Cells in processes of their own: limits, crashes, kills; resumed records are the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from sampling import slow
from shared_work import made_once
from tiny_study import TINY

from nestopt.study import execute
from nestopt.study.cells import Cell, plan_study
from nestopt.study.directory import create, open_study, status
from nestopt.study.execute import run_cell
from nestopt.study.records import canonical, read_records
from nestopt.study.runner import run_study

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads /proc to see processes and their memory"
)


def _canonical(directory: Path) -> dict[str, Any]:
    return {row["cell"]: canonical(row) for row in read_records(directory / "records.jsonl").rows}


def _wait(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def _children(pid: int) -> list[int]:
    """Children of all threads of a process."""
    found: list[int] = []
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children") as stream:
                found += map(int, stream.read().split())
        except OSError:
            continue
    return found


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def runner() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the command line in a process of its own, one cell at a time."""
    started = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        program = "from nestopt.cli import main; main()"
        command = [sys.executable, "-c", program, "study", *words, "--quiet", "--jobs", "1"]
        started.append(subprocess.Popen(command, stderr=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The records of the tiny study."""

    def make(place: Path) -> None:
        (place / "tiny.toml").write_text(TINY, encoding="utf-8")
        run_study(create(place / "tiny.toml", place / "out"), place / "out", jobs=2)

    return _canonical(made_once(tmp_path_factory, "tiny-study", make) / "out")


def _cell(
    method: str, *, time_limit: float | None = None, memory_limit: float | None = None
) -> dict[str, Any]:
    definition = {
        "instance": {
            "problem": "collective",
            "names": {"collective": "all-gather", "topology": "ring:3"},
            "settings": {},
            "files": {},
        },
        "method": method,
        "settings": {},
        "objective": "makespan",
        "space": "structured",
        "backend": None,
        "rel_gap": 0.0,
        "seed": 0,
        "threads": 1,
        "time_limit": time_limit,
        "memory_limit": memory_limit,
    }
    return Cell(method, {}, definition).to_json() | {"study": "s"}


def _record(cell: dict[str, Any], directory: Path) -> dict[str, Any]:
    record = run_cell(cell, str(directory))
    assert record is not None
    return record


def test_every_cell_has_a_checked_record(undisturbed: dict[str, Any], tiny: Path) -> None:
    assert set(undisturbed) == {cell.id for cell in plan_study(tiny).cells}
    for row in undisturbed.values():
        assert row["error"] is None
        assert row["checked"] > 0
        assert row["termination"]["reason"] in ("optimal", "feasible")
        assert row["instance"]["sha256"]
        assert row["objective"] >= row["bound"] > 0


def test_a_record_says_what_it_cost(tiny: Path) -> None:
    cell = plan_study(tiny).cells[0].to_json() | {"study": "tiny"}
    record = _record(cell, tiny.parent)
    assert record["method_cpu"] + record["seconds"] > 0
    assert record["seconds"] < record["wall"]
    assert record["cpu"] > 0
    assert 50e6 < record["peak_rss"] < 2e9
    assert record["trace"][-1][1:] == [record["objective"], record["bound"]]
    assert record["machine"]["cores"] == os.cpu_count()
    json.dumps(record, allow_nan=False)


def test_killing_the_runner_loses_only_cells_in_flight(
    undisturbed: dict[str, Any], tiny: Path, runner: Callable[..., subprocess.Popen[bytes]]
) -> None:
    out = tiny.parent / "out"
    records = out / "records.jsonl"
    running = runner("run", str(tiny), "-o", str(out))
    _wait(lambda: records.exists() and records.stat().st_size > 0 and bool(_children(running.pid)))
    worker = _children(running.pid)[0]
    running.kill()
    running.wait()
    _wait(lambda: not _alive(worker), 5)
    with records.open("ab") as stream:
        stream.write(b'{"schema": "nestopt.record/1", "ce')
    before = status(out)
    assert before.torn
    assert 0 < before.done < before.cells
    assert run_study(open_study(out), out, jobs=2) == before.cells - before.done
    assert _canonical(out) == undisturbed


@pytest.mark.slow
def test_killing_a_worker_loses_nothing(
    undisturbed: dict[str, Any], tiny: Path, runner: Callable[..., subprocess.Popen[bytes]]
) -> None:
    out = tiny.parent / "out"
    running = runner("run", str(tiny), "-o", str(out))
    _wait(lambda: bool(_children(running.pid)))
    os.kill(_children(running.pid)[0], signal.SIGKILL)
    assert running.wait(60) == 0
    assert _canonical(out) == undisturbed


@pytest.mark.parametrize("number", [signal.SIGTERM, *slow([signal.SIGINT])])
def test_an_interrupt_keeps_what_is_finished(
    undisturbed: dict[str, Any],
    tiny: Path,
    runner: Callable[..., subprocess.Popen[bytes]],
    number: signal.Signals,
) -> None:
    out = tiny.parent / "out"
    records = out / "records.jsonl"
    running = runner("run", str(tiny), "-o", str(out))
    _wait(lambda: records.exists() and records.stat().st_size > 0 and bool(_children(running.pid)))
    worker = _children(running.pid)[0]
    running.send_signal(number)
    assert running.wait(10) == 128 + number
    assert running.stderr is not None
    assert b"nestopt study resume" in running.stderr.read()
    assert not _alive(worker)
    run_study(open_study(out), out, jobs=2)
    assert _canonical(out) == undisturbed


@pytest.mark.usefixtures("odd_methods")
class TestOddMethods:
    def test_time_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(execute, "grace", lambda limit: 0.3)
        monkeypatch.setattr(execute, "SLOWEST", 1.0)
        record = _record(_cell("sleep", time_limit=0.5), tmp_path)
        assert record["termination"] == {"reason": "no-solution", "limit": "time"}
        assert record["objective"] is None
        assert [row[1:] for row in record["trace"]] == [
            [9_000_000_000, 1_000_000_000],
            [8_000_000_000, 2_000_000_000],
        ]
        assert record["bound"] == 2_000_000_000
        assert 0.8 <= record["seconds"] < 5
        assert record["instance"]["name"] == "all-gather on ring:3"

    def test_memory_limit(self, tmp_path: Path) -> None:
        record = _record(_cell("eat", time_limit=60.0, memory_limit=400e6), tmp_path)
        assert record["termination"] == {"reason": "no-solution", "limit": "memory"}
        assert record["peak_rss"] > 400e6

    def test_crash_with_a_message(self, tmp_path: Path) -> None:
        record = _record(_cell("crash"), tmp_path)
        assert record["termination"]["reason"] == "error"
        assert "status 3" in record["error"]
        assert "out of paper" in record["error"]

    def test_signal_twice_is_an_error(self, tmp_path: Path) -> None:
        record = _record(_cell("segfault"), tmp_path)
        assert record["termination"]["reason"] == "error"
        assert record["error"] == "the process was killed twice (SIGSEGV, then SIGSEGV)"

    def test_signal_once_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CRASHED_ONCE", str(tmp_path / "once"))
        record = _record(_cell("segfault"), tmp_path)
        assert record["termination"]["reason"] == "optimal"

    def test_the_checker_has_the_last_word(self, tmp_path: Path) -> None:
        record = _record(_cell("wrong"), tmp_path)
        assert record["termination"]["reason"] == "error"
        assert record["error"].startswith("the checker refuses the result: ")
        assert record["objective"] is None
        assert record["checked"] is None

    def test_an_exception_is_recorded(self, tmp_path: Path) -> None:
        record = _record(_cell("raise"), tmp_path)
        assert record["error"] == "KeyError: 'nothing'"

    def test_children_of_the_method_end_with_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(execute, "grace", lambda limit: 0.3)
        monkeypatch.setattr(execute, "SLOWEST", 1.0)
        told = tmp_path / "child"
        monkeypatch.setenv("CHILD_FILE", str(told))
        record = _record(_cell("with-child", time_limit=0.5), tmp_path)
        assert record["termination"]["limit"] == "time"
        child = int(told.read_text())
        _wait(lambda: not _alive(child), 5)

    def test_stop_ends_a_cell_without_a_record(self, tmp_path: Path) -> None:
        end = time.monotonic() + 1.0
        assert run_cell(_cell("sleep"), str(tmp_path), lambda: time.monotonic() > end) is None

    def test_an_orphan_ends_at_once(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        runner: Callable[..., subprocess.Popen[bytes]],
    ) -> None:
        told = tmp_path / "child"
        monkeypatch.setenv("CHILD_FILE", str(told))
        spec = tmp_path / "s.toml"
        spec.write_text(
            'name = "s"\n[[instances]]\ncollective = "all-gather"\ntopology = "ring:3"\n'
            '[[methods]]\nmethod = "with-child"\n'
        )
        running = runner("run", str(spec))
        _wait(lambda: told.exists() and told.read_text() != "")
        worker, child = _children(running.pid)[0], int(told.read_text())
        running.kill()
        running.wait()
        _wait(lambda: not _alive(worker) and not _alive(child), 5)
