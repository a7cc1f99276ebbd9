"""Chakra execution traces of a schedule, with the files by which ASTRA-sim plays them.

``form=links`` (the default) is made for ASTRA-sim's stock analytical network. Every node of the
topology, switches too, is one of its NPUs, all linked with all, and carries one byte a tick; a
message has as many bytes as its link needs ticks. Sends of a link wait for one another, and each
for what it passes on, so that the time that ASTRA-sim counts is the schedule's makespan in ticks.

``form=npus`` is for other readers of traces: one trace a rank, messages of their real bytes, ways
through switches contracted, local additions left out (what follows them waits for their inputs).

A trace is a stream of protobuf messages, each after its length: a ``GlobalMetadata``, then
``Node`` by ``Node``. The few fields that are needed are encoded here; mlc-chakra reads them.

References
----------
MLCommons Chakra, ``et_def.proto`` (schema 0.0.4). Won et al., ASTRA-sim 2.0, ISPASS 2023.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError
from nestopt.interop.program import program_of
from nestopt.interop.simgrid_clock import arrivals_needed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.interop.loading import Synthesized

__all__ = ["SEND", "RECEIVE", "Record", "encode", "link_traces", "npu_traces", "write"]

SEND, RECEIVE = 5, 6
FORMS = ("links", "npus")
MOST_TAG = 500_000_000
# int32_val, int64_val, bool_val of an AttributeProto
_INT32, _INT64, _BOOL = 7, 9, 27
Record = dict[str, Any]
"""A trace's node: ``id``, ``name``, ``type``, ``deps``, ``src``, ``dst``, ``size``, ``tag``."""


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _attribute(name: str, field: int, value: int) -> bytes:
    return _bytes(1, name.encode()) + _number(field, value)


def encode(records: Iterable[Record]) -> bytes:
    """A trace file's bytes."""
    metadata = _bytes(1, b"0.0.4")
    out = [_varint(len(metadata)), metadata]
    for record in records:
        body = _number(1, record["id"]) + _bytes(2, record["name"].encode())
        body += _number(3, record["type"])
        if record["deps"]:
            body += _bytes(5, b"".join(_varint(each) for each in record["deps"]))
        for name, field, value in (
            ("is_cpu_op", _BOOL, 0),
            ("comm_src", _INT32, record["src"]),
            ("comm_dst", _INT32, record["dst"]),
            ("comm_size", _INT64, record["size"]),
            ("comm_tag", _INT32, record["tag"]),
        ):
            body += _bytes(10, _attribute(name, field, value))
        out += [_varint(len(body)), body]
    return b"".join(out)


def _record(
    number: int, name: str, kind: int, deps: Iterable[int], ends: tuple[int, int, int, int]
) -> Record:
    keys = ("src", "dst", "size", "tag")
    head = {"id": number, "name": name, "type": kind, "deps": sorted(set(deps))}
    return head | dict(zip(keys, ends))


def link_traces(
    instance: CollectiveInstance, schedule: Schedule
) -> tuple[list[list[Record]], list[int], int]:
    """A trace for every node that sends or receives; the nodes; picoseconds of a tick.

    Raises
    ------
    InputError
        If latencies overlap with what follows on a link, which the stock network cannot say.
    """
    topology = instance.topology
    used = np.unique(schedule.link)
    if instance.latency == "pipelined" and topology.alpha_ps[used].any():
        raise InputError(
            "latency 'pipelined'; a link of ASTRA-sim's stock network is busy until its message "
            "has arrived (use blocking latency, or form=npus)",
            field="latency",
        )
    if schedule.num_sends >= MOST_TAG:
        raise InputError(f"{schedule.num_sends} sends; there are {MOST_TAG} tags", field="sends")
    sizes = instance.collective.chunk_sizes[schedule.chunk]
    spent = np.zeros(schedule.num_sends, dtype=np.int64)
    for size in np.unique(sizes).tolist():
        rows = sizes == size
        spent[rows] = instance.occupancy_ps(size)[schedule.link[rows]]
    tick = math.gcd(*np.unique(spent).tolist()) if len(spent) else 1
    ends = {*topology.src[used].tolist(), *topology.dst[used].tolist()}
    members = {node for part in instance.collective.parts for node in part.npus.tolist()}
    nodes = sorted(ends | members)
    place = {node: index for index, node in enumerate(nodes)}
    traces: list[list[Record]] = [[] for _ in nodes]
    needs = arrivals_needed(instance, schedule)
    last: dict[int, int] = {}
    for i, (chunk, link) in enumerate(zip(schedule.chunk.tolist(), schedule.link.tolist())):
        src, dst = place[int(topology.src[link])], place[int(topology.dst[link])]
        about = (src, dst, int(spent[i]) // tick, i)
        # of send i the sender's node is 2 i, the receiver's 2 i + 1
        deps = [2 * k + 1 for k in needs[i]] + ([last[link]] if link in last else [])
        traces[src].append(_record(2 * i, f"send chunk {chunk}", SEND, deps, about))
        traces[dst].append(_record(2 * i + 1, f"receive chunk {chunk}", RECEIVE, (), about))
        last[link] = 2 * i
    return traces, nodes, tick


def npu_traces(
    instance: CollectiveInstance, schedule: Schedule
) -> tuple[list[list[Record]], list[int]]:
    """A trace for every rank, messages of their real bytes; the ranks' nodes."""
    program = program_of(instance, schedule)
    sizes = instance.collective.chunk_sizes.tolist()
    traces: list[list[Record]] = [[] for _ in range(program.ranks)]
    inputs: dict[int, list[int]] = {}  # of a local operation: the receptions that it stands for
    last: dict[int, int] = {}

    def written(index: int) -> list[int]:
        if index < 0:
            return []
        return inputs.get(index, [2 * index + 1])

    for t in program.transfers:
        if t.local:
            inputs[t.index] = sorted({*written(t.needs), *(written(t.after) if t.adds else ())})
    for t in program.by_start():
        if t.local:
            continue
        chunk, link = program.chunk(t.cell), program.links[t.index]
        about = (t.src, t.dst, sizes[chunk], t.index)
        deps = written(t.needs) + ([last[link]] if link in last else [])
        traces[t.src].append(_record(2 * t.index, f"send chunk {chunk}", SEND, deps, about))
        # what replaces or adds to a cell comes after what was read from it
        after = written(t.after) + [
            2 * reader for reader in t.readers if not program.transfers[reader].local
        ]
        name = f"receive {'a part of ' if t.adds else ''}chunk {chunk}"
        traces[t.dst].append(_record(2 * t.index + 1, name, RECEIVE, after, about))
        last[link] = 2 * t.index
    return traces, list(program.npus)


def write(found: Synthesized, target: Path, settings: dict[str, str]) -> list[Path]:
    """Write the traces, and ASTRA-sim's files beside them, into a directory.

    Raises
    ------
    InputError
        If the directory holds something else, or the schedule cannot be said.
    """
    form = settings.get("form", "links")
    if form not in FORMS:
        raise InputError(f"{form!r}; expected {' or '.join(FORMS)}", field="--set form")
    instance, schedule = found.instance, found.schedule
    about: dict[str, Any] = {"schema": "nestopt.chakra/1", "instance": found.name, "form": form}
    if form == "links":
        traces, nodes, tick = link_traces(instance, schedule)
        about |= {"tick_ps": tick, "expected_ticks": schedule.makespan_ps // tick}
    else:
        traces, nodes = npu_traces(instance, schedule)
    names = [instance.topology.node_name(node) for node in nodes]
    about |= {"makespan_ps": schedule.makespan_ps, "nodes": names}
    files: dict[str, bytes] = {f"trace.{k}.et": encode(trace) for k, trace in enumerate(traces)}
    if form == "links":
        files |= _astra_sim(len(traces))
    return _write_all(target, files, about)


def _astra_sim(count: int) -> dict[str, bytes]:
    """System, network and memory files of ASTRA-sim: one byte a nanosecond between any two."""
    direct = ["direct"]
    system = {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 1,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": direct,
        "all-gather-implementation": direct,
        "reduce-scatter-implementation": direct,
        "all-to-all-implementation": direct,
        "collective-optimization": "baseline",
        "local-mem-bw": 1600,
        "boost-mode": 0,
    }
    rate = 1e9 / 2**30  # its GB is 2^30 bytes
    network = (
        f"topology: [ FullyConnected ]\nnpus_count: [ {count} ]\nbandwidth: [ {rate!r} ]\n"
        "latency: [ 0.0 ]\n"
    )
    memory = {"memory-type": "NO_MEMORY_EXPANSION"}
    return {
        "system.json": (json.dumps(system, indent=1) + "\n").encode(),
        "network.yml": network.encode(),
        "memory.json": (json.dumps(memory, indent=1) + "\n").encode(),
    }


def _write_all(target: Path, files: dict[str, bytes], about: dict[str, Any]) -> list[Path]:
    """Write a directory beside its place and rename it."""
    import shutil
    import tempfile

    ours = target / "nestopt.json"
    if target.exists() and (not target.is_dir() or (any(target.iterdir()) and not ours.is_file())):
        raise InputError("exists and holds something else", file=str(target))
    try:
        work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(target)) from error
    try:
        for name, content in files.items():
            (work / name).write_bytes(content)
        (work / "nestopt.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        os.chmod(work, 0o755)
        if target.exists():
            shutil.rmtree(target)
        os.replace(work, target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return [target]
