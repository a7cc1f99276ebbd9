"""``nestopt study`` as a user has it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nestopt.cli import main
from nestopt.study import runner
from nestopt.study.outcome import blank_record
from nestopt.study.records import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def nestopt(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line in this process: status, stdout, stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["study", *words])
        captured = capfd.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def instant(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Cells that are not run: every second one fails; their ids as they come."""
    seen: list[str] = []

    def run(
        tasks: list[dict[str, Any]], directory: str, jobs: int, stop: object
    ) -> Iterator[dict[str, Any]]:
        for task in tasks:
            record = blank_record(task) | {"wall": 2.0}
            if len(seen) % 2 == 0:
                record["termination"] = {"reason": "feasible", "limit": "time"}
            else:
                record["error"] = "it broke"
            seen.append(task["cell"])
            yield record

    monkeypatch.setattr(runner, "_on_this_machine", run)
    return seen


def test_run_status_resume(
    nestopt: Callable[..., tuple[int, str, str]], tiny: Path, instant: list[str]
) -> None:
    out = str(tiny.parent / "out")
    status, printed, said = nestopt("run", str(tiny), "-o", out)
    assert (status, printed) == (0, "")
    assert "it broke" in said
    assert "2 cells ended in an error" in said
    assert len(instant) == 4
    status, printed, _ = nestopt("status", out)
    assert printed.splitlines() == [
        "tiny: 4 of 4 cells recorded",
        "  greedy  2 feasible/time",
        "  ring    2 error",
    ]
    records = tiny.parent / "out" / "records.jsonl"
    lines = records.read_bytes().splitlines(keepends=True)
    records.write_bytes(b"".join(lines[:2]) + lines[2][:50])
    _, printed, _ = nestopt("status", out)
    assert printed.splitlines() == [
        "tiny: 2 of 4 cells recorded",
        "  greedy  1 feasible/time, 1 missing",
        "  ring    1 error, 1 missing",
        "the last line is torn; its cell will be run again",
        "about 4 s to go with 1 at once",
        f"continue with: nestopt study resume {out}",
    ]
    _, printed, _ = nestopt("status", out, "--json")
    data = json.loads(printed)
    assert (data["schema"], data["done"], data["torn"]) == ("nestopt.study-status/1", 2, True)
    assert data["missing"] == {"greedy": 1, "ring": 1}
    status, _, said = nestopt("resume", out)
    assert status == 0
    assert "torn" in said
    assert len(instant) == 6
    assert nestopt("run", str(tiny), "-o", out)[0] == 0
    assert len(instant) == 6


def test_a_study_may_grow_but_not_change(
    nestopt: Callable[..., tuple[int, str, str]], tiny: Path, instant: list[str]
) -> None:
    text = tiny.read_text()
    assert nestopt("run", str(tiny))[0] == 0
    assert (tiny.parent / "tiny" / "study.toml").read_text() == text
    tiny.write_text(text.replace("seeds = 2", "seeds = 3"))
    status, _, said = nestopt("run", str(tiny))
    assert status == 1
    assert "records.jsonl: code.spec: " in said
    assert "in 4 of 4 records; expected" in said
    assert (tiny.parent / "tiny" / "study.toml").read_text() == text
    assert nestopt("run", str(tiny), "--mixed")[0] == 0
    assert len(instant) == 6
    tiny.write_text(text.replace("seeds = 2", "seeds = 1"))
    status, _, said = nestopt("run", str(tiny))
    assert status == 1
    assert "4 of its 6 records are of cells that" in said


def test_a_runner_at_work_keeps_its_specification(
    nestopt: Callable[..., tuple[int, str, str]], tiny: Path, instant: list[str]
) -> None:
    text = tiny.read_text()
    out = tiny.parent / "out"
    out.mkdir()
    (out / "study.toml").write_text(text)
    other = tiny.parent / "other.toml"
    other.write_text(text.replace('"ring"', '"direct"'))
    with Lock(out / "lock", 1):
        status, _, said = nestopt("run", str(other), "-o", str(out))
    assert status == 1
    assert "runs this study" in said
    assert (out / "study.toml").read_text() == text
    assert not instant


def test_comments_and_hints_of_a_report_may_change(
    nestopt: Callable[..., tuple[int, str, str]], tiny: Path, instant: list[str]
) -> None:
    assert nestopt("run", str(tiny))[0] == 0
    tiny.write_text(f"# a remark\n{tiny.read_text()}\n[report]\nmetrics = ['time']\n")
    assert nestopt("run", str(tiny))[0] == 0
    assert len(instant) == 4


@pytest.mark.parametrize("place", ["spec", "source", "gone"])
def test_resume_refuses_what_does_not_belong_together(
    nestopt: Callable[..., tuple[int, str, str]], tiny: Path, instant: list[str], place: str
) -> None:
    out = tiny.parent / "tiny"
    assert nestopt("run", str(tiny))[0] == 0
    records = out / "records.jsonl"
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    if place == "spec":
        copy = out / "study.toml"
        copy.write_text(copy.read_text().replace("seeds = 2", "seeds = 1"))
        said_is = "2 of its 4 records are of cells that study.toml does not have: it was edited"
    elif place == "source":
        rows[0]["code"]["source"] = "0123456789abcdef"
        said_is = "code.source: 0123456789abcdef in 1 of 4 records; expected"
    else:
        del rows[0]["code"]
        said_is = "code.source: unknown in 1 of 4 records; expected"
    records.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, _, said = nestopt("resume", str(out))
    assert status == 1
    assert said_is in said
    assert "--mixed" in said
    assert nestopt("resume", str(out), "--mixed")[0] == 0
    page = tiny.parent / "page.html"
    assert nestopt("report", str(out), "-o", str(page))[0] == 0
    text = page.read_text()
    if place == "spec":
        assert (
            "2 records are of cells that the specification does not have and are left out" in text
        )
        assert "2 runs on" in text
    else:
        assert "The records come from 2 versions of the code" in text


def test_a_mistake_stops_before_anything(
    nestopt: Callable[..., tuple[int, str, str]], tiny: Path, instant: list[str]
) -> None:
    tiny.write_text(tiny.read_text().replace('"ring"', '"rink"'))
    status, _, said = nestopt("run", str(tiny))
    assert status == 1
    assert f"{tiny}: methods[1]: unknown collective method 'rink'" in said
    assert not (tiny.parent / "tiny").exists()
    assert not instant


def test_dry_run(nestopt: Callable[..., tuple[int, str, str]], tiny: Path) -> None:
    status, printed, _ = nestopt("run", str(tiny), "--dry-run")
    assert status == 0
    assert printed.splitlines()[0] == "tiny: 4 cells on 2 instances"
    assert not (tiny.parent / "tiny").exists()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("run", "SPEC", "--jobs", "0"), 2, "--jobs 0: expected at least 1"),
        (("run", "SPEC", "--jobs", "1", "--scheduler", "tcp://x:1"), 2, "exclude each other"),
        (("run", "nothing.toml"), 1, "nothing.toml: cannot be read"),
        (("resume", "."), 1, "holds no study.toml"),
        (("status", "nowhere"), 1, "nowhere: holds no study.toml"),
        (("report", ".", "-o", "x.pdf"), 2, "expected a name that ends in .html"),
        (("rerun", "."), 2, "No such command"),
    ],
)
def test_wrong_words(
    nestopt: Callable[..., tuple[int, str, str]],
    tiny: Path,
    words: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    found, _, text = nestopt(*(str(tiny) if word == "SPEC" else word for word in words))
    assert found == status
    assert said in text


@pytest.mark.parametrize("command", ["run", "resume", "status", "report"])
def test_help_fits_80_columns(nestopt: Callable[..., tuple[int, str, str]], command: str) -> None:
    status, printed, _ = nestopt(command, "--help")
    assert status == 0
    assert "Examples:" in printed
    assert max(map(len, printed.splitlines())) <= 80
