"""What the ranks of test_run do: `ScheduleRunner` inside a program of its own, under mpiexec.

``mpiexec -n N python rank_script.py CASES.json``; a case is [file, dtype, iterations]. Rank 0
prints one JSON line a case.
"""

from __future__ import annotations

import json
import sys

from mpi4py import MPI

from nestopt.core.errors import CheckError
from nestopt.interop.loading import read_schedule
from nestopt.interop.run.mpi_backend import MpiBackend
from nestopt.interop.run.runner import ScheduleRunner


def main() -> None:
    backend = MpiBackend(MPI.COMM_WORLD.Dup())
    with open(sys.argv[1], encoding="utf-8") as stream:
        cases = json.load(stream)
    for file, dtype, iterations in cases:
        found = read_schedule(file)
        try:
            runner = ScheduleRunner(found.instance, found.schedule, backend)
            answer = runner.check(512, dtype, iterations).to_json()
        except CheckError as error:
            answer = {"check": str(error)}
        if backend.rank == 0:
            print(json.dumps([file, answer]), flush=True)


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        import traceback

        traceback.print_exc()
        MPI.COMM_WORLD.Abort(1)
