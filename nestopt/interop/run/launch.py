"""Local ranks for a trial, and what to do as one of many that someone else started."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nestopt.core.errors import CheckError, InputError, NestoptError
from nestopt.interop.loading import read_schedule

__all__ = ["MOST_LOCAL", "Job", "Report", "launched", "run_here", "run_locally"]

MOST_LOCAL = 64
# set by mpiexec (MPICH's Hydra, Open MPI, Slurm's srun --mpi) and by torchrun
_MPI_MARKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")
SIZES = (1024, 32 * 1024, 2**20, 8 * 2**20, 64 * 2**20)


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be run.

    Attributes
    ----------
    file : str
        The result file.
    backend : str
    sizes : tuple of int or None
        Bytes of the whole buffer on a rank; None for what the instance states.
    dtypes : tuple of str
    iterations : int
    """

    file: str
    backend: str
    sizes: tuple[int | None, ...] = SIZES
    dtypes: tuple[str, ...] = ("int64", "float32")
    iterations: int = 5


@dataclass(frozen=True, slots=True)
class Report:
    """What a run found.

    Attributes
    ----------
    ranks : int
    library : str
        The communication library with its version.
    rows : list of dict
        One `runner.Row` for each size and type.
    """

    ranks: int
    library: str
    rows: list[dict[str, Any]]


def launched(backend: str) -> bool:
    """Whether this process is one of several that mpiexec or torchrun started."""
    if backend == "mpi":
        return any(mark in os.environ for mark in _MPI_MARKS)
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def run_here(job: Job) -> tuple[int, Report]:
    """Take part as one rank; all ranks call it. Returns the rank and the report.

    Raises
    ------
    NestoptError
        If anything is wrong; on every rank, if data are.
    """
    from nestopt.interop.program import MOST_SENDS
    from nestopt.interop.run.runner import ScheduleRunner, backend_of

    found = read_schedule(job.file, at_most=MOST_SENDS)
    backend = backend_of(job.backend)
    runner = ScheduleRunner(found.instance, found.schedule, backend)
    rows = [
        runner.check(nbytes, dtype, job.iterations).to_json()
        for nbytes in job.sizes
        for dtype in job.dtypes
    ]
    return backend.rank, Report(backend.size, backend.library, rows)


def run_locally(job: Job, *, ranks: int | None = None, timeout: float | None = None) -> Report:
    """Start the ranks on this machine and wait for their report.

    Parameters
    ----------
    job : Job
    ranks : int, optional
        At most `MOST_LOCAL`; by default one for each NPU that takes part.
    timeout : float, optional
        Seconds after which the ranks are ended.

    Raises
    ------
    InputError
        If the schedule needs more ranks, or more memory than is free.
    CheckError
        If a rank holds wrong data.
    NestoptError
        If the ranks break down, or the backend's package is missing.
    """
    from nestopt.interop.program import MOST_SENDS, program_of

    found = read_schedule(job.file, at_most=MOST_SENDS)
    needed = program_of(found.instance, found.schedule).ranks if ranks is None else ranks
    if needed > MOST_LOCAL:
        raise InputError(
            f"{needed} NPUs take part; at most {MOST_LOCAL} local ranks are started. Run it under "
            f"mpiexec or torchrun on {needed} processes",
            file=job.file,
        )
    _enough_memory(job, needed)
    with tempfile.TemporaryDirectory(prefix="nestopt-run-") as place:
        target = Path(place) / "report.json"
        spec = Path(place) / "job.json"
        spec.write_text(json.dumps(asdict(job) | {"report": str(target)}), encoding="utf-8")
        command = [sys.executable, "-m", "nestopt.interop.run.worker", str(spec)]
        if job.backend == "mpi":
            output = _under_mpiexec(command, needed, timeout)
        else:
            output = _under_torch(command, needed, Path(place), timeout)
        if not target.exists():
            raise NestoptError(f"the ranks broke down: {_last(output)}")
        report = json.loads(target.read_text(encoding="utf-8"))
    if "check" in report:
        raise CheckError(report["check"])
    if "error" in report:
        raise NestoptError(report["error"])
    return Report(report["ranks"], report["library"], report["rows"])


def _enough_memory(job: Job, ranks: int) -> None:
    """Refuse sizes that would not fit: a rank holds some five times its buffer."""
    largest = max((size for size in job.sizes if size is not None), default=0)
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
        free = int(text.split("MemAvailable:")[1].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return  # not Linux: the system will say
    if 5 * largest * ranks > free:
        raise InputError(
            f"{largest} bytes on {ranks} local ranks need about {5 * largest * ranks / 1e9:.1f} GB "
            f"and {free / 1e9:.1f} GB are free",
            field="--sizes",
        )


def _environment() -> dict[str, str]:
    """The environment of a rank: one thread, and this very package."""
    import nestopt

    here = str(Path(nestopt.__file__).parents[1])
    path = os.environ.get("PYTHONPATH")
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    return {**os.environ, **one, "PYTHONPATH": f"{here}{os.pathsep}{path}" if path else here}


def _under_mpiexec(command: list[str], ranks: int, timeout: float | None) -> str:
    from nestopt.interop.run.mpi_backend import load_mpi

    beside = Path(sys.executable).parent / "mpiexec"
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        load_mpi()
        raise NestoptError("no mpiexec beside this Python or in PATH: pip install 'nestopt[mpi]'")
    words = [mpiexec, "-n", str(ranks)]
    version = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False)
    if "Open MPI" in version.stdout + version.stderr or "OpenRTE" in version.stdout:
        words.append("--oversubscribe")
    return _wait([subprocess.Popen([*words, *command], **_pipes(), env=_environment())], timeout)


def _under_torch(command: list[str], ranks: int, place: Path, timeout: float | None) -> str:
    from nestopt.interop.run.torch_backend import RENDEZVOUS

    shared = _environment() | {"WORLD_SIZE": str(ranks), RENDEZVOUS: str(place / "rendezvous")}
    processes = [
        subprocess.Popen(
            command, **_pipes(), env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        )
        for rank in range(ranks)
    ]
    return _wait(processes, timeout)


def _pipes() -> dict[str, Any]:
    return {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


def _wait(processes: list[subprocess.Popen[str]], timeout: float | None) -> str:
    """Wait for all; as soon as one fails the others are ended. Returns what they printed."""
    import time

    deadline = None if timeout is None else time.monotonic() + timeout
    output = []
    try:
        if len(processes) == 1:
            output.append(processes[0].communicate(timeout=timeout)[0])
            return "".join(output)
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes):
                break
            if deadline is not None and time.monotonic() > deadline:
                raise NestoptError(f"the ranks did not end within {timeout:g} s")
            time.sleep(0.02)
    except subprocess.TimeoutExpired as error:
        raise NestoptError(f"the ranks did not end within {timeout:g} s") from error
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
        for process in processes:
            if process.stdout is not None and not process.stdout.closed:
                output.append(process.communicate()[0])
    return "".join(output)


def _last(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return " | ".join(lines[-3:]) if lines else "they printed nothing"
