"""One local rank of `nestopt run`: ``python -m nestopt.interop.run.worker JOB.json``."""

from __future__ import annotations

import json
import os
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nestopt.core.errors import CheckError, NestoptError
from nestopt.interop.run.launch import Job, run_here

__all__ = ["main"]


def main(file: str) -> None:
    """Take part in a job; rank 0 writes the report.

    Parameters
    ----------
    file : str
        The job, as `launch.run_locally` wrote it.
    """
    data: dict[str, Any] = json.loads(Path(file).read_text(encoding="utf-8"))
    target = Path(data.pop("report"))
    data["sizes"], data["dtypes"] = tuple(data["sizes"]), tuple(data["dtypes"])
    try:
        rank, report = run_here(Job(**data))
        found: dict[str, Any] = asdict(report)
    except CheckError as error:
        # every rank raises this one together
        rank, found = _rank(), {"check": str(error)}
    except NestoptError as error:
        rank, found = 0, {"error": str(error)}
    except BaseException:
        traceback.print_exc()
        _end(data["backend"])
        raise
    if rank == 0:
        own = target.with_name(f"{target.name}.{os.getpid()}")
        own.write_text(json.dumps(found), encoding="utf-8")
        own.replace(target)
    if "error" in found:
        _end(data["backend"])


def _rank() -> int:
    for name in ("RANK", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"):
        if name in os.environ:
            return int(os.environ[name])
    return 0


def _end(backend: str) -> None:
    """End the other ranks too: they may wait for this one."""
    if backend == "mpi" and "mpi4py.MPI" in sys.modules:
        sys.modules["mpi4py.MPI"].COMM_WORLD.Abort(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
