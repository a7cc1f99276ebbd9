"""Another program's clock: schedules and plans played by SimGrid.

Of a schedule SimGrid gets the links with their bandwidths and latencies, the order of the sends on
each, and which arrivals each send waits for; of a plan the order of every stage's tasks and the
transfers between stages. When things happen is SimGrid's doing: its network model (CM02: latency,
then bandwidth shared among the messages of a link) and its event queue. It counts in floats, so
that differences of parts per billion, and of the picoseconds by which our times are rounded up, are
to be expected; larger ones are faults of one of the two.

References
----------
Casanova et al., Versatile, scalable, and accurate simulation of distributed applications and
platforms, JPDC 2014.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError, NestoptError
from nestopt.interop.timeline import play, tasks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.interop.loading import Placed
    from nestopt.placement.judge.simulate import Pipeline, Timeline

__all__ = [
    "arrivals_needed",
    "find_python",
    "plan_job",
    "play_plan",
    "play_schedule",
    "schedule_job",
]

MOST_SENDS, MOST_LINKS = 200_000, 1_500
CHOICE = "NESTOPT_SIMGRID_PYTHON"
Job = list[dict[str, Any]]


def find_python() -> str:
    """A Python that can import SimGrid: this one, that of an environment variable, the system's.

    Raises
    ------
    NestoptError
        If there is none, with how to get it.
    """
    if importlib.util.find_spec("simgrid") is not None:
        return sys.executable
    for python in (os.environ.get(CHOICE), "/usr/bin/python3", shutil.which("python3")):
        if python and Path(python).exists():
            test = subprocess.run(
                [python, "-c", "import simgrid"], capture_output=True, check=False, env=_bare()
            )
            if test.returncode == 0:
                return python
    raise NestoptError(
        "SimGrid is missing: apt install python3-simgrid, or pip install 'nestopt[simgrid]' (which "
        "builds it)"
    )


def _bare() -> dict[str, str]:
    """The environment without this Python's own paths."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def _play(job: Job) -> float:
    """Seconds that SimGrid says a job takes."""
    child = Path(__file__).with_name("simgrid_child.py")
    run = subprocess.run(
        [find_python(), str(child)],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
        env=_bare(),
    )
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if run.returncode or not lines:
        said = (run.stderr.strip() or run.stdout.strip()).splitlines()[-1:]
        raise NestoptError(f"SimGrid broke down: {said[0] if said else 'it printed nothing'}")
    answer = json.loads(lines[-1])
    if not answer["done"]:
        raise NestoptError("SimGrid ended before everything was done: activities wait in a circle")
    return float(answer["seconds"])


def play_schedule(instance: CollectiveInstance, schedule: Schedule) -> dict[str, float]:
    """Play a schedule.

    Returns
    -------
    dict
        ``foreign``, the makespan by SimGrid in picoseconds, and ``foreign_difference``, (SimGrid's
        - the schedule's) / the schedule's.

    Raises
    ------
    InputError
        If the schedule is too large.
    NestoptError
        If SimGrid is missing or breaks down.
    """
    picoseconds = _play(schedule_job(instance, schedule)) * 1e12
    claimed = max(schedule.makespan_ps, 1)
    return {"foreign": picoseconds, "foreign_difference": picoseconds / claimed - 1}


def schedule_job(instance: CollectiveInstance, schedule: Schedule) -> Job:
    """A schedule as SimGrid's job: a worker for each link that is used."""
    topology = instance.topology
    used = sorted(set(schedule.link.tolist()))
    if schedule.num_sends > MOST_SENDS or len(used) > MOST_LINKS:
        raise InputError(
            f"{schedule.num_sends} sends on {len(used)} links; SimGrid is given at most "
            f"{MOST_SENDS} on {MOST_LINKS}",
            field="num_sends",
        )
    needs = arrivals_needed(instance, schedule)
    sizes = instance.collective.chunk_sizes[schedule.chunk].tolist()
    blocking = instance.latency == "blocking"
    job: Job = []
    for link in used:
        alpha = int(topology.alpha_ps[link]) * 1e-12
        rate = float(topology.bandwidth[link])
        rows = np.flatnonzero(schedule.link == link).tolist()
        times = [rate, alpha, 0.0] if blocking else [rate, 0.0, alpha]
        job.append({"link": times, "do": [[i, sizes[i], needs[i]] for i in rows]})
    return job


def arrivals_needed(instance: CollectiveInstance, schedule: Schedule) -> list[list[int]]:
    """The sends that must have arrived before each send.

    Of a sum, all that had come to the source by then; of another chunk, its first arrival, or at a
    switch that cannot multicast the arrival whose turn it is.
    """
    topology, collective = instance.topology, instance.collective
    chunk, link = schedule.chunk.tolist(), schedule.link.tolist()
    start, reduction = schedule.start_ps.tolist(), collective.reduction.tolist()
    source = collective.source.tolist()
    transfer = {s: instance.transfer_ps(s) for s in set(collective.chunk_sizes.tolist())}
    sizes = collective.chunk_sizes.tolist()
    arrival = [start[i] + int(transfer[sizes[chunk[i]]][link[i]]) for i in range(len(chunk))]
    order = np.argsort(np.array(arrival, dtype=np.int64), kind="stable").tolist()
    came: dict[tuple[int, int], list[int]] = {}
    turn: dict[tuple[int, int], int] = {}
    needs: list[list[int]] = []
    landed = 0
    for i in range(len(chunk)):
        while landed < len(order) and arrival[order[landed]] <= start[i]:
            k = order[landed]
            came.setdefault((int(topology.dst[link[k]]), chunk[k]), []).append(k)
            landed += 1
        node = int(topology.src[link[i]])
        here = came.get((node, chunk[i]), [])
        if reduction[chunk[i]]:
            needs.append(list(here))
        elif source[chunk[i]] == node:
            needs.append([])
        elif topology.multicast[node]:
            needs.append(here[:1])
        else:
            place = turn.get((node, chunk[i]), 0)
            turn[node, chunk[i]] = place + 1
            needs.append(here[place : place + 1])
    return needs


def play_plan(placed: Placed) -> dict[str, float]:
    """Play a plan's pipeline (one replica, asynchronous transfers) and its synchronisation.

    Returns
    -------
    dict
        ``foreign``, the iteration by SimGrid in seconds; ``simulated``, by our simulator; and
        ``foreign_difference``, (SimGrid's - ours) / ours.
    """
    pipeline, timeline = play(placed)
    seconds = _play(plan_job(pipeline, timeline))
    ours = timeline.seconds
    return {
        "foreign": seconds,
        "simulated": ours,
        "foreign_difference": seconds / ours - 1 if ours else 0.0,
    }


def plan_job(pipeline: Pipeline, timeline: Timeline) -> Job:
    """A pipeline as SimGrid's job: a processor a stage, a link each way between neighbours."""
    stages, chunks, _ = timeline.forward_end.shape
    tasks = tasks_of(pipeline, timeline)
    number = {(t.stage, t.kind, t.chunk, t.microbatch): k for k, t in enumerate(tasks)}
    count = len(tasks)
    cpus: list[list[list[Any]]] = [[] for _ in range(stages)]
    links: dict[tuple[int, str], list[list[Any]]] = {}
    for k, task in enumerate(tasks):
        spent = {"forward": pipeline.forward, "backward": pipeline.backward, "sync": pipeline.sync}
        before = _before(task.stage, task.kind, task.chunk, stages, chunks)
        needs: Sequence[int] = ()
        if before is not None:
            origin = number[before[0], task.kind, before[1], task.microbatch]
            # the last boundary leads from the last stage back to the first, to the next chunk
            around = (task.kind == "forward") == (before[0] > task.stage)
            boundary = stages - 1 if around else min(before[0], task.stage)
            hop = float(pipeline.hop[boundary])
            if hop > 0 and before[0] != task.stage:
                links.setdefault((boundary, task.kind), []).append([count, hop * 1e9, [origin]])
                needs = (count,)
                count += 1
            else:
                needs = (origin,)
        cpus[task.stage].append([k, float(spent[task.kind][task.stage]), list(needs)])
    job: Job = [{"cpu": 1, "do": do} for do in cpus]
    for do in links.values():
        # messages leave in the order in which the tasks that make them end
        do.sort(key=lambda activity: tasks[activity[2][0]].end)
        job.append({"link": [1e9, 0.0, 0.0], "do": do})
    return job


def _before(stage: int, kind: str, chunk: int, stages: int, chunks: int) -> tuple[int, int] | None:
    """Stage and chunk of the task whose output a task needs; None: its own stage's order is all."""
    if kind == "forward":
        if stage > 0:
            return stage - 1, chunk
        return (stages - 1, chunk - 1) if chunk > 0 else None
    if kind == "backward":
        if stage < stages - 1:
            return stage + 1, chunk
        return (0, chunk + 1) if chunk < chunks - 1 else None
    return None
