"""Schedules on real processes: right data, wrong ones caught, under MPI and torch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from interop_cases import PATTERNS, problem, solved
from sampling import slow

import nestopt
from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.interop.run import launch

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

MPIEXEC = Path(sys.executable).parent / "mpiexec"
needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or not MPIEXEC.exists(),
    reason="needs mpi4py and mpich: pip install 'nestopt[mpi]'",
)
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch: pip install 'nestopt[torch]'"
)
# of 8 ranks: the last has 8 survivors of 9, `npus` a subgroup with relays; switches in two
NETWORKS_8 = (
    ("", "torus2d:2x4"),
    ("", "mesh2d:3x3+fail-npus:1+seed:1"),
    ("", "switch:8"),
    ("", "dgx1v"),
    ("", "dgx-a100:2x4"),
    (":npus=0+2-3+5-7", "mesh2d:2x4"),
)
NETWORKS_16 = (
    ("", "torus2d:4x4"),
    ("", "mesh2d:3x6+fail-npus:2+seed:3"),
    ("", "fat-tree:4"),
    ("", "dgx-h100:2x8"),
    (":npus=half", "torus2d:4x8"),
    ("", "hypercube:4"),
    ("", "grid:4x4,wrap=1:0"),
)
NETWORKS_32 = (
    ("", "mesh2d:4x8"),
    ("", "dgx-a100:4x8"),
    ("", "torus2d:6x6+fail-npus:4+seed:2"),
)


def write_result(place: Path, instance: CollectiveInstance, schedule: Schedule) -> Path:
    """A result file around a schedule, right or wrong."""
    result = Result(
        problem="collective",
        instance=instance_record(instance),
        method="test",
        termination=Termination(Reason.FEASIBLE, Limit.ITERATIONS),
        objective=schedule.makespan_ps,
        bound=0,
        seconds=0.0,
        solution_json=schedule.to_json(),
    )
    place.write_text(json.dumps(result.to_json()), encoding="utf-8")
    return place


def ranks_answer(place: Path, count: int, cases: list[list[Any]]) -> dict[str, Any]:
    """The answer of each case, from one start of `count` ranks."""
    spec = place / "cases.json"
    spec.write_text(json.dumps(cases), encoding="utf-8")
    script = Path(__file__).with_name("rank_script.py")
    run = subprocess.run(
        [str(MPIEXEC), "-n", str(count), sys.executable, str(script), str(spec)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(nestopt.__file__).parents[1])},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("[")]
    assert len(rows) == len(cases)
    return {f"{file} {dtype}": row[1] for (file, dtype, _), row in zip(cases, rows)}


def _all_patterns(place: Path, networks: tuple[tuple[str, str], ...], ranks: int) -> None:
    cases = []
    for number, (group, network) in enumerate(networks):
        for pattern in PATTERNS:
            instance = problem(pattern + group, network)
            file = write_result(place / f"{number}-{pattern}.json", instance, solved(instance)[1])
            cases.append([str(file), "int64", 1])
            if "reduce" in pattern and number % 2:
                cases.append([str(file), "float32", 1])
    answers = ranks_answer(place, ranks, cases)
    for name, answer in answers.items():
        assert "check" not in answer, f"{name}: {answer}"
        assert answer["elements"] > 0
        assert answer["worst_error"] <= answer["allowed_error"]


@needs_mpi
@pytest.mark.parametrize("networks", [NETWORKS_8[::5], *slow([(NETWORKS_8,)])], ids=len)
def test_every_pattern_has_the_right_data_on_8_ranks(
    tmp_path: Path, networks: tuple[tuple[str, str], ...]
) -> None:
    _all_patterns(tmp_path, networks, 8)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("networks", "ranks"),
    [*(((network,), 16) for network in NETWORKS_16), *(((n,), 32) for n in NETWORKS_32)],
)
def test_every_pattern_has_the_right_data_on_16_and_32_ranks(
    tmp_path: Path, networks: tuple[tuple[str, str], ...], ranks: int
) -> None:
    _all_patterns(tmp_path, networks, ranks)


@needs_mpi
def test_wrong_schedules_are_caught(tmp_path: Path) -> None:
    """A chunk that goes where another should, a sum that is counted twice, a send left out."""
    instance = problem("all-reduce", "ring:4")
    schedule = solved(instance, "ring")[1]
    cases = []
    for name in ("swapped", "copied", "missing"):
        chunk, phase = schedule.chunk.copy(), schedule.phase.copy()
        keep = np.ones(schedule.num_sends, dtype=np.bool_)
        if name == "swapped":
            chunk[0], chunk[1] = chunk[1], chunk[0]
        elif name == "copied":
            # what was moved on stays, so that the sums that follow count it again
            phase[:] = 0
        else:
            keep[-1] = False
        from nestopt.collective.model.schedule import Schedule

        wrong = Schedule.of(
            chunk[keep],
            schedule.link[keep],
            schedule.start_ps[keep],
            schedule.makespan_ps,
            phase[keep],
        )
        file = write_result(tmp_path / f"{name}.json", instance, wrong)
        cases += [[str(file), "int64", 1], [str(file), "float64", 1]]
    right = write_result(tmp_path / "right.json", instance, schedule)
    answers = ranks_answer(tmp_path, 4, [*cases, [str(right), "float64", 1]])
    for file, dtype, _ in cases:
        answer = answers[f"{file} {dtype}"]
        if file.endswith("copied.json") and "check" not in answer:
            continue  # on this ring every partial sum is sent once: copying it changes nothing
        assert "the library's own collective has" in answer["check"], file
    assert "check" not in answers[f"{right} float64"]


@needs_mpi
def test_the_command_starts_its_own_ranks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from nestopt.cli import main

    instance = problem("all-gather:npus=0-2", "switch:4")
    schedule = solved(instance)[1]
    file = write_result(tmp_path / "ag.json", instance, schedule)
    words = ["run", str(file), "--sizes", "1KiB,own", "--dtype", "int32", "--iterations", "1"]
    with pytest.raises(SystemExit) as stop:
        main([*words, "--json"])
    assert not stop.value.code
    data = json.loads(capfd.readouterr().out)
    assert data["schema"] == "nestopt.run/1" and data["ranks"] == 3 and data["right"] is True
    assert [row["nbytes"] for row in data["rows"]] == [1020, 3_000_000]

    wrong = np.array(schedule.chunk)
    wrong[-1] = (wrong[-1] + 1) % 3
    from nestopt.collective.model.schedule import Schedule

    bad = Schedule.of(wrong, schedule.link, schedule.start_ps, schedule.makespan_ps)
    file = write_result(tmp_path / "bad.json", instance, bad)
    with pytest.raises(SystemExit) as stop:
        main(words[:1] + [str(file)] + words[2:])
    assert stop.value.code == 5


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--backend", "smoke"], 2, "expected mpi, gloo, nccl"),
        (["--sizes", "0B"], 2, "positive whole number"),
        (["--sizes", "5"], 1, "no unit"),
        (["--dtype", "int8"], 1, "expected one of int64"),
        (["--sizes", "900TiB"], 1, "are free"),
    ],
)
def test_wrong_words_are_refused_before_ranks_start(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    words: list[str],
    status: int,
    said: str,
) -> None:
    from nestopt.cli import main

    instance = problem("all-gather", "ring:4")
    file = write_result(tmp_path / "ag.json", instance, solved(instance)[1])
    with pytest.raises(SystemExit) as stop:
        main(["run", str(file), *words])
    assert stop.value.code == status
    assert said in capfd.readouterr().err


def test_more_npus_than_local_ranks_are_refused(tmp_path: Path) -> None:
    from nestopt.core.errors import InputError

    instance = problem("all-gather", "ring:65")
    file = write_result(tmp_path / "ag.json", instance, solved(instance, "ring")[1])
    with pytest.raises(InputError, match="65 NPUs take part; at most 64"):
        launch.run_locally(launch.Job(str(file), "mpi"))


def test_without_the_package_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nestopt.core.errors import NestoptError
    from nestopt.interop.run.mpi_backend import load_mpi
    from nestopt.interop.run.runner import backend_of

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(NestoptError, match=r"pip install 'nestopt\[mpi\]'"):
        load_mpi()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NestoptError, match=r"pip install 'nestopt\[torch\]'"):
        backend_of("gloo")


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("pattern", [*PATTERNS, "broadcast", "reduce", "scatter", "gather"])
def test_gloo_has_the_right_data(tmp_path: Path, pattern: str) -> None:
    instance = problem(pattern, "switch:4")
    file = write_result(tmp_path / "s.json", instance, solved(instance)[1])
    job = launch.Job(str(file), "gloo", (None, 1024), ("int64", "float32"), 1)
    report = launch.run_locally(job, timeout=300)
    assert report.ranks == 4 and len(report.rows) == 4
