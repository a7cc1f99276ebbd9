"""Run the cells of a study that have no record yet, and record each as soon as it is done."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import Interrupted, UsageError
from nestopt.core.stop import Watch, on_stop, shielded
from nestopt.study.directory import LOCK, RECORDS
from nestopt.study.execute import run_cell
from nestopt.study.provenance import spec_hash
from nestopt.study.records import Appender, Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from pathlib import Path
    from threading import Event

    from nestopt.study.cells import Plan

__all__ = ["Interrupted", "run_study"]

Task = dict[str, Any]


def run_study(
    plan: Plan,
    directory: Path,
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    prepare: Callable[[], Any] | None = None,
    tell: Callable[[str, Any], Any] | None = None,
) -> int:
    """Run what is missing; the number of cells that were run.

    Parameters
    ----------
    plan : Plan
    directory : Path
        Made by `nestopt.study.directory.create`.
    jobs : int, optional
        Cells at once on this machine; default one a core.
    scheduler : str, optional
        Address of a Dask scheduler (``tcp://...``) whose workers run the cells instead; they must
        see `directory` under the same path if the study has instance files.
    prepare : callable, optional
        Called as soon as the lock of the directory is held and before records are read: what the
        run needs is written and checked there.
    tell : callable, optional
        ``tell("begin", (done, total, torn))``, then ``tell("record", record)`` for each.

    Raises
    ------
    NestoptError
        If another process runs this study.
    UsageError
        If distributed is not installed or the scheduler does not answer.
    Interrupted
        After Ctrl-C, or SIGTERM where the program hears it, if cells are missing.
    """
    count = jobs or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)
    say = tell or (lambda event, value: None)
    stop = threading.Event()
    with Lock(directory / LOCK, count), Watch() as watch, on_stop(stop.set):
        if prepare is not None:
            with shielded():
                prepare()
        appender = Appender(directory / RECORDS)
        try:
            origin = {"study": plan.spec.name, "spec": spec_hash(plan.spec)}
            tasks = [cell.to_json() | origin for cell in plan.cells if cell.id not in appender.done]
            say("begin", (len(plan.cells) - len(tasks), len(plan.cells), appender.torn))
            records = (
                _on_this_machine(tasks, str(directory), count, stop)
                if scheduler is None
                else _on_cluster(tasks, str(directory), scheduler, stop)
            )
            with closing(records):
                for record in records:
                    with shielded():
                        appender.append(record)
                    say("record", record)
        except KeyboardInterrupt:
            # the watch raises it where nothing looked at `stop`
            stop.set()
        finally:
            appender.close()
    missing = sum(cell.id not in appender.done for cell in plan.cells)
    if missing and stop.is_set():
        raise Interrupted(
            f"interrupted; {len(plan.cells) - missing} of {len(plan.cells)} cells are recorded, "
            f"continue with: nestopt study resume {directory}",
            watch.number or signal.SIGINT,
        )
    return len(tasks)


def _on_this_machine(
    tasks: list[Task], directory: str, jobs: int, stop: Event
) -> Generator[dict[str, Any]]:
    """Records as they come, `jobs` processes at once; `stop` or closing the iterator ends them."""
    from concurrent.futures import ThreadPoolExecutor, as_completed

    with ThreadPoolExecutor(jobs) as pool:
        try:
            futures = [pool.submit(run_cell, task, directory, stop.is_set) for task in tasks]
            yield from _finished(as_completed(futures), stop)
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def _finished(futures: Iterable[Any], stop: Event) -> Iterator[dict[str, Any]]:
    """Records of the cells that came to an end, until the run is stopped."""
    for future in futures:
        record = future.result()
        if record is not None:
            yield record
        if stop.is_set():
            return


def _on_cluster(
    tasks: list[Task], directory: str, scheduler: str, stop: Event
) -> Generator[dict[str, Any]]:
    """Records as they come from the workers of a Dask cluster."""
    try:
        from distributed import Client, as_completed
        from distributed import Event as ClusterEvent
    except ImportError as error:
        raise UsageError(
            "--scheduler needs distributed; install it with: pip install 'nestopt[cluster]'"
        ) from error
    try:
        client = Client(scheduler, timeout=20)
    except (OSError, ValueError) as error:
        raise UsageError(f"--scheduler {scheduler}: no answer ({error})") from error
    with client:
        name = f"nestopt-stop-{os.getpid()}-{os.urandom(4).hex()}"
        told = ClusterEvent(name, client=client)
        futures = [
            client.submit(_cluster_cell, task, directory, name, key=f"nestopt-{task['cell']}")
            for task in tasks
        ]
        try:
            yield from _finished(as_completed(futures), stop)
        finally:
            told.set()
            client.cancel(futures)


def _cluster_cell(task: Task, directory: str, event: str) -> dict[str, Any] | None:
    """A cell on a worker of a Dask cluster; it ends early when the runner sets the event."""
    import time

    from distributed import Event

    flag = Event(event)
    asked = time.monotonic()
    stopped = False

    def stop() -> bool:
        nonlocal asked, stopped
        if not stopped and time.monotonic() - asked > 1.0:
            asked, stopped = time.monotonic(), bool(flag.is_set())
        return stopped

    return run_cell(task, directory, stop)
