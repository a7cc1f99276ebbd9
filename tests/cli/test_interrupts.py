"""Ctrl-C and SIGTERM at random times in every method: the answer, the status, nothing torn."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads /proc to see processor time"
)

PROGRAM = "from nestopt.cli import main; main()"
GATHER = ("solve", "--collective", "all-gather", "--topology")
LLAMA = ("solve", "--workload", "llama3-70b", "--cluster", "dgx-h100-256")
RUNS = {
    "greedy": (*GATHER, "mesh2d:16x16+log-uniform:0.5,2", "--set", "effort=50"),
    "lns": (*GATHER, "mesh2d:5x5", "-m", "lns"),
    "milp": (*GATHER, "mesh2d:3x3+log-uniform:0.5,2+seed:1", "-m", "milp"),
    "cpsat": (*GATHER, "mesh2d:4x4+log-uniform:0.5,2+seed:1", "-m", "cpsat"),
    "trees": (*GATHER, "dgx-h100:16x8", "-m", "trees"),
    "direct": (*GATHER, "torus3d:8x8x8+log-uniform:0.5,2+seed:1", "-m", "direct"),
    "dp": LLAMA,
    "grid": (*LLAMA, "-m", "grid"),
    "megatron": (*LLAMA, "-m", "megatron"),
    "mcmc": (*LLAMA, "-m", "mcmc"),
    "bound": ("bound", *LLAMA[1:]),
}
GRACE = 2.0
"""Seconds of processor time from the first signal to the end, as documented."""


def _cpu(pid: int) -> float:
    """Processor time of a process so far; of one that has ended, none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _interrupt(words: tuple[str, ...], folder: Path, draw: random.Random) -> None:
    """One run, a signal at a random time, at times a second one; everything that must hold."""
    target = folder / "result.json"
    target.unlink(missing_ok=True)
    more = () if words[0] == "bound" else ("-q", "--time-limit", "60", "-o", str(target))
    number = draw.choice([signal.SIGINT, signal.SIGTERM])
    due = draw.choice([draw.uniform(0.1, 1.5), draw.uniform(1.5, 8.0)])
    second = draw.random() < 0.25
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    waited = time.monotonic()
    while child.poll() is None and _cpu(child.pid) < due and time.monotonic() - waited < 60:
        time.sleep(0.01)
    begin = last = _cpu(child.pid)
    ended_before = child.poll() is not None
    if not ended_before:
        child.send_signal(number)
        if second:
            time.sleep(0.3)
            child.send_signal(number)
    waited = time.monotonic()
    while child.poll() is None:
        last = max(last, _cpu(child.pid))
        assert time.monotonic() - waited < 120, "hangs"
        time.sleep(0.01)
    out, err = child.communicate()
    said = f"{words} {number.name} at {due:.2f} s, status {child.returncode}: {err}"
    assert "Traceback" not in err and "Fatal" not in err and "ignored" not in err, said
    assert child.returncode in ((0, 4) if ended_before else (0, 4, 128 + number)), said
    assert ended_before or last - begin <= GRACE + 0.5, f"{last - begin:.2f} s; {said}"
    if child.returncode in (0, 4) and words[0] != "bound":
        data = json.loads(target.read_text())
        assert (data["solution"] is None) == (child.returncode == 4), said
        assert out, said
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [], said


def test_a_signal_in_start_up(tmp_path: Path) -> None:
    """Once our first line runs, a signal ends the program with its status and no traceback."""
    program = "import os, sys; os.write(2, b'up\\n'); " + PROGRAM
    for number in (signal.SIGINT, signal.SIGTERM):
        child = subprocess.Popen(
            [sys.executable, "-c", program, *RUNS["dp"], "-q"],
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert child.stderr is not None and child.stderr.readline() == b"up\n"
        until = _cpu(child.pid) + 0.15
        while _cpu(child.pid) < until:
            time.sleep(0.005)
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 128 + number and b"Traceback" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_as_the_process_ends_changes_no_status(number: signal.Signals) -> None:
    kill = f"(os.kill(os.getpid(), {int(number)}), time.sleep(0.01))"
    late = f"import atexit, os, time; atexit.register(lambda: {kill}); "
    child = subprocess.run(
        [sys.executable, "-c", late + PROGRAM, "methods", "placement"], capture_output=True
    )
    assert child.returncode == 0 and b"dp" in child.stdout and not child.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_twenty_interrupts_a_method(name: str, tmp_path: Path) -> None:
    draw = random.Random(name)
    for _ in range(20):
        _interrupt(RUNS[name], tmp_path, draw)
