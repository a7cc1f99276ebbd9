"""Run one cell in a process of its own, under its limits, and return its record.

The time limit is the method's, in CPU seconds of its process and children: it is told it, and has a
grace period to end by itself, after which the process is killed. A process that sleeps is killed
after ten times the limit by the clock. Building the instance and checking the result do not count,
but may not take for ever. The memory limit holds for the process with its children at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from nestopt.study.outcome import blank_record

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["grace", "run_cell"]

POLL = 0.05
SLOWEST = 10.0
"""By the clock a method may take this many times its limit in CPU seconds."""
LONGEST_AROUND = 3600.0
"""Seconds for building the instance, and again for checking the result."""
_SHOWN = 2000


def grace(limit: float) -> float:
    """Seconds that a method may go on after its time limit."""
    return max(5.0, 0.1 * limit)


def run_cell(
    cell: dict[str, Any], directory: str, stop: Callable[[], bool] | None = None
) -> dict[str, Any] | None:
    """The record of a cell; None if `stop` said so before it was done.

    A process that a signal ends is started once more.

    Parameters
    ----------
    cell : dict
        `nestopt.study.cells.Cell.to_json`, with the study's name as ``study``.
    directory : str
        Of the study.
    stop : callable, optional
        Asked all the time; True ends the process.
    """
    run = _Run(cell, directory)
    record = run.record(stop)
    if record is not None and run.signal is not None:
        first = run.signal
        run = _Run(cell, directory)
        record = run.record(stop)
        if record is not None and run.signal is not None:
            record["error"] = f"the process was killed twice ({first}, then {run.signal})"
    return record


@dataclass(slots=True)
class _Heard:
    """What the process has said so far."""

    instance: dict[str, Any] | None = None
    started: float | None = None
    ended: float | None = None
    trace: list[list[Any]] = field(default_factory=list)
    record: dict[str, Any] | None = None

    def listen(self, stream: IO[bytes]) -> None:
        """Read messages until the process ends; a torn last one is passed over."""
        for line in stream:
            with contextlib.suppress(ValueError):
                self._take(json.loads(line))

    def _take(self, message: dict[str, Any]) -> None:
        if message.get("at") == "start":
            self.started, self.instance = time.monotonic(), message["instance"]
        elif message.get("at") == "end":
            self.ended = time.monotonic()
        elif "trace" in message:
            self.trace.append(message["trace"])
        elif "record" in message:
            self.record = message["record"]


class _Run:
    """One try at a cell.

    Attributes
    ----------
    signal : str or None
        Name of the signal that ended the process, if it was not sent from here.
    """

    def __init__(self, cell: dict[str, Any], directory: str) -> None:
        self.cell, self.directory = cell, directory
        self.signal: str | None = None
        self._heard = _Heard()
        self._peak = 0
        self._cpu = self._cpu_before = 0.0

    def record(self, stop: Callable[[], bool] | None) -> dict[str, Any] | None:
        """Run the process to its end; None if `stop` said so."""
        blank = blank_record(self.cell)
        began = time.monotonic()
        with (
            tempfile.TemporaryFile() as errors,
            tempfile.TemporaryDirectory(prefix="nestopt-", ignore_cleanup_errors=True) as scratch,
        ):
            process = self._start(errors, scratch)
            try:
                killed = self._supervise(process, stop, began)
            finally:
                _end(process)
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - _SHOWN))
            said = errors.read().decode(errors="replace").strip()
        if killed == "stop":
            return None
        found = self._heard.record
        if found is None or killed is not None:
            found = self._without_result(blank, killed, process.returncode, said)
        found["wall"] = round(time.monotonic() - began, 3)
        return found

    def _start(self, errors: IO[bytes], scratch: str) -> subprocess.Popen[bytes]:
        threads = str(self.cell["definition"]["threads"])
        environment = os.environ | {
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "TMPDIR": scratch,
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "nestopt.study.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
        assert process.stdin is not None
        task = {
            "cell": self.cell,
            "directory": str(Path(self.directory).resolve()),
            "scratch": scratch,
        }
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
        return process

    def _supervise(
        self, process: subprocess.Popen[bytes], stop: Callable[[], bool] | None, began: float
    ) -> str | None:
        """Wait for the end; what the process was killed for, or None."""
        assert process.stdout is not None
        listener = threading.Thread(target=self._heard.listen, args=(process.stdout,), daemon=True)
        listener.start()
        killed = None
        while process.poll() is None:
            self._measure(process.pid)
            killed = "stop" if stop is not None and stop() else self._exceeded(began)
            if killed is not None:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(POLL)
        if killed is not None:
            _end(process)
        listener.join()
        if killed is None and process.returncode < 0 and self._heard.record is None:
            self.signal = signal.Signals(-process.returncode).name
        return killed

    def _exceeded(self, began: float) -> str | None:
        limit, memory = (self.cell["definition"][key] for key in ("time_limit", "memory_limit"))
        heard, now = self._heard, time.monotonic()
        if heard.started is None:
            self._cpu_before = self._cpu
        if memory is not None and self._peak > memory:
            return "memory"
        if heard.started is not None and heard.ended is None:
            if limit is None:
                return None
            late = self._cpu - self._cpu_before > limit + grace(limit)
            stuck = now - heard.started > SLOWEST * limit + grace(limit)
            return "time" if late or stuck else None
        since = began if heard.ended is None else heard.ended
        return "around" if now - since > LONGEST_AROUND else None

    def _measure(self, pid: int) -> None:
        """Note the memory and the CPU time of the process and its children."""
        memory, cpu = 0, 0.0
        ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
        for member in _family(pid):
            with contextlib.suppress(OSError, IndexError):
                # fields after the name, which may hold blanks: state is the first of them
                stat = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
                cpu += sum(int(part) for part in stat[11:15]) / ticks
                memory += int(stat[21]) * page
        self._peak, self._cpu = max(self._peak, memory), max(self._cpu, cpu)

    def _without_result(
        self, record: dict[str, Any], killed: str | None, status: int, said: str
    ) -> dict[str, Any]:
        """The record of a process that was killed or broke down: what it had found until then."""
        heard = self._heard
        if heard.instance is not None:
            record["instance"] = heard.instance
        if heard.started is not None:
            end = time.monotonic() if heard.ended is None else heard.ended
            record["seconds"] = end - heard.started
            record["method_cpu"] = round(max(0.0, self._cpu - self._cpu_before), 4)
        record["trace"] = heard.trace
        if heard.trace:
            record["bound"] = heard.trace[-1][2]
        record["cpu"] = round(self._cpu, 3)
        record["peak_rss"] = self._peak or None
        if killed in ("time", "memory"):
            record["termination"] = {"reason": "no-solution", "limit": killed}
        elif killed == "around":
            what = "building the instance" if heard.started is None else "checking the result"
            record["error"] = f"{what} took longer than {LONGEST_AROUND:g} s"
        else:
            record["error"] = f"the process ended with status {status}: {said or 'no message'}"
        return record


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process and its children, and close the pipes."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _family(pid: int) -> list[int]:
    """The process and its descendants (Linux; elsewhere none are seen)."""
    found = [pid]
    for member in found:
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{member}/task/{member}/children").read_text()
            found += [int(child) for child in text.split()]
    return found
