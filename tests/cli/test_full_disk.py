"""A full disk: the file is named, nothing half-written is left, and no answer is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nestopt.cli.exits import report

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")


@pytest.mark.parametrize(
    "words", [("plot", "-o", "p.png"), ("replan", "--fail", "1", "-o", "p.json")]
)
def test_a_full_disk_is_said_with_the_file(
    nestopt: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert nestopt("solve", "chain4-tree2x2", "-m", "grid", "-o", "r.json", "-q").status == 0

    def full(number: int) -> None:
        if os.readlink(f"/proc/self/fd/{number}").startswith(str(tmp_path)):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    run = nestopt(words[0], "r.json", *words[1:])
    assert run.status == 1
    assert f"{words[-1]}: cannot be written: No space left on device" in run.err
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    if words[0] == "replan":
        kept = Path(run.err.strip().rpartition("the result is in ")[2])
        assert json.loads(kept.read_text())["method"] == "replan"
        kept.unlink()


def test_output_that_nobody_takes_is_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(OSError(28, "No space left on device"), as_json=False) == 1
    assert capsys.readouterr().err.endswith("what was to be written: No space left on device\n")
    assert report(OSError(13, "Permission denied", "a.json"), as_json=False) == 1
    assert capsys.readouterr().err.endswith("error: a.json: Permission denied\n")
