"""The file of records: torn lines, twins, locks, and what two runs may disagree in."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from nestopt.core.errors import InputError, NestoptError
from nestopt.study.records import Appender, Lock, canonical, read_records

if TYPE_CHECKING:
    from pathlib import Path


def _record(cell: str, **changes: Any) -> dict[str, Any]:
    record = {
        "schema": "nestopt.record/1", "study": "s", "cell": cell, "seconds": 1.0, "wall": 2.0,
        "method_cpu": 0.5, "cpu": 1.5, "peak_rss": 10, "machine": {}, "started": "now",
        "trace": [[0.1, None, 1], [0.2, 5, 1], [0.3, 5, 2], [0.4, 4, 2]],
        "stats": {"nodes": 3, "search_seconds": 0.3}, "objective": 4, "bound": 2,
    }  # fmt: skip
    return record | changes


def _file(tmp_path: Path, *cells: str) -> Path:
    path = tmp_path / "records.jsonl"
    appender = Appender(path)
    for cell in cells:
        appender.append(_record(cell))
    appender.close()
    return path


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    path = _file(tmp_path, "a", "b")
    assert read_records(path).rows == [_record("a"), _record("b")]
    assert not read_records(path).torn
    assert read_records(tmp_path / "none.jsonl").rows == []


@pytest.mark.parametrize("tail", [b"{", b'{"schema": "nestopt.record/1"', b"\x00\x00\x00", b"x\n"])
def test_a_torn_last_line_is_dropped(tmp_path: Path, tail: bytes) -> None:
    path = _file(tmp_path, "a", "b")
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    found = read_records(path)
    assert found.torn
    assert [row["cell"] for row in found.rows] == ["a", "b"]
    appender = Appender(path)
    assert appender.torn
    appender.append(_record("c"))
    appender.close()
    assert [row["cell"] for row in read_records(path).rows] == ["a", "b", "c"]
    assert path.read_bytes().startswith(whole)


def test_a_whole_line_without_its_end_is_torn(tmp_path: Path) -> None:
    path = _file(tmp_path, "a", "b")
    path.write_bytes(path.read_bytes()[:-1])
    found = read_records(path)
    assert found.torn
    assert [row["cell"] for row in found.rows] == ["a"]


def test_a_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path = _file(tmp_path, "a")
    path.write_bytes(b"{broken\n" + path.read_bytes())
    with pytest.raises(InputError, match="line 1: not JSON"):
        read_records(path)


def test_other_lines_are_no_records(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({"schema": "nestopt.result/1"}) + "\n{}\n")
    with pytest.raises(InputError, match=r"line 1: is no record; expected schema"):
        read_records(path)


def test_a_cell_has_one_record(tmp_path: Path) -> None:
    path = _file(tmp_path, "a")
    appender = Appender(path)
    with pytest.raises(NestoptError, match="cell a has a record already"):
        appender.append(_record("a"))
    appender.close()
    path.write_bytes(path.read_bytes() * 2)
    with pytest.raises(InputError, match="line 2: cell a is there twice"):
        read_records(path)


def test_a_second_runner_is_refused(tmp_path: Path) -> None:
    with Lock(tmp_path / "lock", 3):
        with pytest.raises(NestoptError, match=r"process [0-9]+ runs this study"):
            Lock(tmp_path / "lock", 1).__enter__()
        assert (tmp_path / "lock").read_text().split()[1] == "3"
    with Lock(tmp_path / "lock", 1):
        pass


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    program = (
        "import sys, time, pathlib\nfrom nestopt.study.records import Lock\n"
        "with Lock(pathlib.Path(sys.argv[1]), 1):\n    print('held', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "lock")], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(NestoptError, match=f"process {process.pid} runs"):
            Lock(tmp_path / "lock", 1).__enter__()
        process.kill()
        process.wait()
        with Lock(tmp_path / "lock", 1):
            pass


def test_canonical_leaves_out_what_may_differ() -> None:
    one = _record("a")
    other = _record(
        "a", seconds=9.0, wall=9.0, method_cpu=9.0, cpu=9.0, peak_rss=9, machine={"cores": 9},
        started="then", trace=[[7.0, 5, 2], [8.0, 4, 2]],
        stats={"nodes": 3, "search_seconds": 9.0},
    )  # fmt: skip
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": 5},
        {"bound": 3},
        {"error": "x"},
        {"stats": {"nodes": 4}},
        {"trace": [[0.1, 4, 2]]},
    ],
)
def test_canonical_keeps_what_may_not(changes: dict[str, Any]) -> None:
    assert canonical(_record("a")) != canonical(_record("a", **changes))
