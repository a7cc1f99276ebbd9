"""Chakra traces read back by mlc-chakra's protobufs, and played by a small event loop."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from interop_cases import problem, solved

from nestopt.core.errors import InputError
from nestopt.interop import chakra
from nestopt.interop.loading import Synthesized

if TYPE_CHECKING:
    from pathlib import Path

CASES = [
    ("all-gather", "torus2d:3x3"),
    ("all-reduce", "switch:4"),
    ("all-to-all", "dgx-a100:2x4"),
    ("reduce-scatter", "mesh2d:3x3+fail-npus:1+seed:1"),
]


def _nodes(data: bytes) -> list[Any]:
    """A trace as the schema's own classes read it."""
    reason = "needs mlc-chakra: pip install --no-deps mlc-chakra"
    schema: Any = pytest.importorskip("chakra.schema.protobuf.et_def_pb2", reason=reason)
    from chakra.src.third_party.utils.protolib import decodeMessage

    stream, found = io.BytesIO(data), []
    metadata = schema.GlobalMetadata()
    assert decodeMessage(stream, metadata) and metadata.version == "0.0.4"
    while True:
        node = schema.Node()
        if not decodeMessage(stream, node):
            return found
        found.append(node)


def _attributes(node: Any) -> dict[str, Any]:
    return {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}


def _played(traces: list[list[Any]]) -> int:
    """When the last message has arrived: a node starts when its dependencies are over."""
    over: dict[int, int] = {}
    waiting = [node for trace in traces for node in trace]
    while waiting:
        left = []
        for node in waiting:
            ready = all(dep in over for dep in node.data_deps)
            if node.type == chakra.SEND and ready:
                start = max((over[dep] for dep in node.data_deps), default=0)
                over[node.id] = start + _attributes(node)["comm_size"]
            elif node.type == chakra.RECEIVE and ready and node.id - 1 in over:
                over[node.id] = over[node.id - 1]
            else:
                left.append(node)
        assert len(left) < len(waiting), "nodes wait for each other"
        waiting = left
    return max(over.values())


@pytest.mark.parametrize(("job", "network"), CASES)
def test_traces_match_and_take_as_long_as_the_schedule(
    tmp_path: Path, job: str, network: str
) -> None:
    instance = problem(job, network)
    schedule = solved(instance)[1]
    found = Synthesized(instance, schedule, "test")
    assert chakra.write(found, tmp_path / "t", {}) == [tmp_path / "t"]
    about = json.loads((tmp_path / "t" / "nestopt.json").read_text())
    count = len(about["nodes"])
    traces = [_nodes((tmp_path / "t" / f"trace.{k}.et").read_bytes()) for k in range(count)]
    ends: dict[int, list[tuple[int, int, int, int]]] = {chakra.SEND: [], chakra.RECEIVE: []}
    for place, trace in enumerate(traces):
        own = {node.id for node in trace}
        for node in trace:
            a = _attributes(node)
            assert a["is_cpu_op"] is False
            assert place == a["comm_src" if node.type == chakra.SEND else "comm_dst"]
            assert set(node.data_deps) <= own
            ends[node.type].append((a["comm_tag"], a["comm_src"], a["comm_dst"], a["comm_size"]))
    assert sorted(ends[chakra.SEND]) == sorted(ends[chakra.RECEIVE])
    assert len(ends[chakra.SEND]) == schedule.num_sends
    assert _played(traces) == about["expected_ticks"]
    assert about["expected_ticks"] * about["tick_ps"] == schedule.makespan_ps
    network_file = (tmp_path / "t" / "network.yml").read_text()
    assert f"npus_count: [ {count} ]" in network_file
    assert chakra.write(found, tmp_path / "t", {})  # its own directory may be written again


@pytest.mark.parametrize(("job", "network"), CASES)
def test_traces_of_ranks_have_real_bytes(tmp_path: Path, job: str, network: str) -> None:
    instance = problem(job, network)
    found = Synthesized(instance, solved(instance)[1], "test")
    chakra.write(found, tmp_path / "t", {"form": "npus"})
    about = json.loads((tmp_path / "t" / "nestopt.json").read_text())
    assert len(about["nodes"]) == len(instance.collective.parts[0].npus)
    sizes = set()
    sends = receptions = 0
    for k in range(len(about["nodes"])):
        trace = _nodes((tmp_path / "t" / f"trace.{k}.et").read_bytes())
        sizes |= {_attributes(node)["comm_size"] for node in trace}
        sends += sum(node.type == chakra.SEND for node in trace)
        receptions += sum(node.type == chakra.RECEIVE for node in trace)
        ids = {node.id for node in trace}
        assert all(set(node.data_deps) <= ids for node in trace)
    assert sizes == {instance.collective.chunk_size} and sends == receptions > 0


def test_what_cannot_be_said_is_refused(tmp_path: Path) -> None:
    instance = problem("all-gather", "ring:4,alpha=1us", "pipelined")
    found = Synthesized(instance, solved(instance)[1], "test")
    with pytest.raises(InputError, match="busy until its message"):
        chakra.write(found, tmp_path / "t", {})
    with pytest.raises(InputError, match="expected links or npus"):
        chakra.write(found, tmp_path / "t", {"form": "x"})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    with pytest.raises(InputError, match="holds something else"):
        chakra.write(found, tmp_path / "full", {"form": "npus"})
    assert (tmp_path / "full" / "mine.txt").exists() and len(list(tmp_path.iterdir())) == 1
