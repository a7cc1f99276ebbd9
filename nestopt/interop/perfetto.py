"""Traces in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.

A schedule: a process of links with a track each, a slice for each send; a process of NPUs with what
each receives and a counter of the chunks that it holds. A plan: a process a stage, with its forward
and backward tasks and its synchronisation. Times are microseconds; picoseconds stay as decimals.

References
----------
Trace Event Format (Google, 2016): "X" complete events, "M" metadata, "C" counters, "b"/"e" nestable
asynchronous events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError
from nestopt.core.io import write_json
from nestopt.interop.timeline import play, tasks_of

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.interop.loading import Placed, Synthesized

__all__ = ["MOST_SENDS", "plan_trace", "schedule_trace", "write_plan", "write_schedule"]

MOST_SENDS = 1_000_000
_LINKS, _NPUS = 1, 2
_PS = 1e-6  # microseconds


def write_schedule(found: Synthesized, target: Path, settings: dict[str, str]) -> list[Path]:
    """Write a schedule's trace."""
    write_json(target, schedule_trace(found), indent=None)
    return [target]


def write_plan(placed: Placed, target: Path, settings: dict[str, str]) -> list[Path]:
    """Write a plan's trace."""
    write_json(target, plan_trace(placed), indent=None)
    return [target]


def _named(pid: int, name: str, tid: int | None = None, order: int | None = None) -> list[Any]:
    """Metadata: the name of a process or a thread, and its place."""
    what = "process" if tid is None else "thread"
    base: dict[str, Any] = {"ph": "M", "pid": pid} | ({} if tid is None else {"tid": tid})
    rows = [base | {"name": f"{what}_name", "args": {"name": name}}]
    if order is not None:
        rows.append(base | {"name": f"{what}_sort_index", "args": {"sort_index": order}})
    return rows


def schedule_trace(found: Synthesized) -> dict[str, Any]:
    """The trace of a schedule.

    Raises
    ------
    InputError
        If it has more than `MOST_SENDS` sends: no viewer would open it.
    """
    instance, schedule = found.instance, found.schedule
    if schedule.num_sends > MOST_SENDS:
        raise InputError(
            f"{schedule.num_sends} sends; a trace holds at most {MOST_SENDS}", field="num_sends"
        )
    topology = instance.topology
    events = _named(_LINKS, "links", order=0) + _named(_NPUS, "NPUs", order=1)
    used = sorted(set(schedule.link.tolist()))
    for link in used:
        events += _named(_LINKS, topology.link_name(link), link + 1, link)
    for node in topology.npus.tolist():
        events += _named(_NPUS, f"NPU {topology.node_name(node)}", node + 1, node)
    held = _held_at_start(found)
    for node in topology.npus.tolist():
        events.append(_counter(topology.node_name(node), 0, held.get(node, 0)))
    arrivals = []
    columns = zip(
        schedule.chunk.tolist(),
        schedule.link.tolist(),
        schedule.start_ps.tolist(),
        schedule.phase.tolist(),
    )
    times = {
        size: (instance.occupancy_ps(size).tolist(), instance.transfer_ps(size).tolist())
        for size in sorted(set(instance.collective.chunk_sizes.tolist()))
    }
    sizes = instance.collective.chunk_sizes.tolist()
    for send, (chunk, link, start, phase) in enumerate(columns):
        occupied, transfer = times[sizes[chunk]]
        args = {"send": send, "chunk": chunk, "bytes": sizes[chunk], "start_ps": start}
        label = f"chunk {chunk}" if phase == 0 else f"part of chunk {chunk}"
        args["kind"] = ("copy", "move of a partial sum", "copy of a partial sum")[phase]
        events.append(
            {
                "ph": "X", "name": label, "cat": "send", "pid": _LINKS, "tid": link + 1,
                "ts": start * _PS, "dur": occupied[link] * _PS, "args": args,
            }
        )  # fmt: skip
        node = int(topology.dst[link])
        if not topology.is_switch[node]:
            arrivals.append((start + transfer[link], node))
            about = {"cat": "receive", "id": send, "pid": _NPUS, "tid": node + 1}
            label = f"{label} from {topology.node_name(int(topology.src[link]))}"
            end = (start + transfer[link]) * _PS
            events.append({"ph": "b", "name": label, "ts": start * _PS, "args": args} | about)
            events.append({"ph": "e", "name": label, "ts": end} | about)
    for when, node in sorted(arrivals):
        held[node] = held.get(node, 0) + 1
        events.append(_counter(topology.node_name(node), when, held[node]))
    about = {"instance": found.name, "makespan_ps": schedule.makespan_ps}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}


def _held_at_start(found: Synthesized) -> dict[int, int]:
    held: dict[int, int] = {}
    for part in found.instance.collective.parts:
        nodes, counts = np.unique(part.sources(), return_counts=True)
        for node, count in zip(nodes.tolist(), counts.tolist()):
            for each in part.npus.tolist() if node < 0 else (node,):
                held[each] = held.get(each, 0) + count
    return held


def _counter(name: str, when_ps: int, value: int) -> dict[str, Any]:
    return {
        "ph": "C", "name": f"chunks and parts at {name}", "pid": _NPUS, "ts": when_ps * _PS,
        "args": {"received": value},
    }  # fmt: skip


def plan_trace(placed: Placed) -> dict[str, Any]:
    """The trace of a plan: the tasks of every stage, for one of its replicas."""
    pipeline, timeline = play(placed)
    events: list[dict[str, Any]] = []
    for q, stage in enumerate(placed.plan.stages):
        devices = sorted(int(device) for row in stage.devices for device in row)
        shown = f"{devices[0]}-{devices[-1]}" if len(devices) > 1 else str(devices[0])
        events += _named(q + 1, f"stage {q} (devices {shown})", order=q)
        events += _named(q + 1, "compute", 1, 0) + _named(q + 1, "synchronisation", 2, 1)
    for task in tasks_of(pipeline, timeline):
        sync = task.kind == "sync"
        name = "synchronise and step" if sync else f"{task.kind} {task.microbatch}"
        args = {} if sync else {"microbatch": task.microbatch, "chunk": task.chunk}
        events.append(
            {
                "ph": "X", "name": name, "cat": task.kind, "pid": task.stage + 1,
                "tid": 2 if sync else 1, "ts": task.start * 1e6,
                "dur": (task.end - task.start) * 1e6, "args": args,
            }
        )  # fmt: skip
    about = {"instance": placed.name, "iteration_seconds": timeline.seconds}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}
