"""Exports read back by other readers: traces, tables."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from interop_cases import problem, solved

from nestopt.core.result import Limit, Reason, Result, Termination, instance_record

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule


def _nestopt(*words: str) -> int:
    from nestopt.cli import main

    with pytest.raises(SystemExit) as stop:
        main(words)
    return int(stop.value.code or 0)


@pytest.fixture
def reduced(tmp_path: Path) -> tuple[CollectiveInstance, Schedule, Path]:
    """An All-Reduce behind a switch, and its result file."""
    instance = problem("all-reduce", "switch:4")
    schedule = solved(instance)[1]
    result = Result(
        problem="collective",
        instance=instance_record(instance),
        method="test",
        termination=Termination(Reason.FEASIBLE, Limit.ITERATIONS),
        objective=schedule.makespan_ps,
        bound=0,
        seconds=0.0,
        solution_json=schedule.to_json(),
    )
    file = tmp_path / "s.json"
    file.write_text(json.dumps(result.to_json()))
    return instance, schedule, file


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_csv_and_parquet_hold_every_send(
    reduced: tuple[CollectiveInstance, Schedule, Path], tmp_path: Path
) -> None:
    instance, schedule, file = reduced
    assert _nestopt("export", "csv", str(file), "-o", str(tmp_path / "t.csv")) == 0
    rows = _rows(tmp_path / "t.csv")
    assert [int(row["send"]) for row in rows] == list(range(schedule.num_sends))
    for key in ("chunk", "link", "start_ps"):
        assert [int(row[key]) for row in rows] == getattr(schedule, key).tolist()
    assert max(int(row["arrival_ps"]) for row in rows) == schedule.makespan_ps
    assert {row["phase"] for row in rows} == {"copy", "share"}
    assert rows[0]["src_name"] == instance.topology.node_name(int(rows[0]["src"]))
    pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: 'nestopt[parquet]'")
    assert _nestopt("export", "parquet", str(file), "-o", str(tmp_path / "t.parquet")) == 0
    table = pq.read_table(tmp_path / "t.parquet").to_pylist()
    assert [{k: str(v) for k, v in row.items()} for row in table] == rows


def test_a_trace_has_a_slice_for_each_send_and_none_overlap_on_a_link(
    reduced: tuple[CollectiveInstance, Schedule, Path], tmp_path: Path
) -> None:
    instance, schedule, file = reduced
    assert _nestopt("export", "perfetto", str(file), "-o", str(tmp_path / "t.json")) == 0
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert len(slices) == schedule.num_sends
    end: dict[int, float] = {}
    for each in slices:
        assert each["ts"] >= end.get(each["tid"], 0.0) - 1e-9
        end[each["tid"]] = each["ts"] + each["dur"]
    assert max(end.values()) == pytest.approx(schedule.makespan_ps * 1e-6)
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert {instance.topology.link_name(int(link)) for link in schedule.link} <= names
    begun = {e["id"] for e in events if e["ph"] == "b"}
    assert begun == {e["id"] for e in events if e["ph"] == "e"} and begun


def test_a_trace_opens_in_the_trace_processor(
    reduced: tuple[CollectiveInstance, Schedule, Path], tmp_path: Path
) -> None:
    processor: Any = pytest.importorskip("perfetto.trace_processor", reason="needs perfetto")
    _, schedule, file = reduced
    assert _nestopt("export", "perfetto", str(file), "-o", str(tmp_path / "t.json")) == 0
    try:
        trace = processor.TraceProcessor(trace=str(tmp_path / "t.json"))
    except Exception as error:  # it fetches its program from the network when first used
        pytest.skip(f"the trace processor does not start: {type(error).__name__}")
    rows = trace.query("select count(*) as n from slice where category = 'send'")
    assert next(iter(rows)).n == schedule.num_sends
    trace.close()


def test_a_plan_as_trace_and_table(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    names = ("--workload", "bert-large", "--cluster", "dgx-h100-16")
    assert _nestopt("solve", "-q", *names, "--method", "megatron", "-o", str(file)) == 0
    assert _nestopt("export", "perfetto", str(file), "-o", str(tmp_path / "p.json")) == 0
    trace = json.loads((tmp_path / "p.json").read_text())
    seconds = trace["otherData"]["iteration_seconds"]
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert max(e["ts"] + e["dur"] for e in slices) == pytest.approx(seconds * 1e6)
    for pid in {e["pid"] for e in slices}:
        mine = sorted((e["ts"], e["dur"]) for e in slices if e["pid"] == pid and e["tid"] == 1)
        ends = np.array([ts + dur for ts, dur in mine])
        assert (np.array([ts for ts, _ in mine])[1:] >= ends[:-1] - 1e-3).all()
    assert _nestopt("export", "csv", str(file), "-o", str(tmp_path / "p.csv")) == 0
    rows = _rows(tmp_path / "p.csv")
    data = json.loads(file.read_text())
    used = {d for stage in data["solution"]["stages"] for row in stage["devices"] for d in row}
    assert {int(row["device"]) for row in rows} == used
    assert _nestopt("export", "msccl-xml", str(file), "-o", str(tmp_path / "p.xml")) == 1


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("nonsense", "-o", "x"), 2, "unknown format"),
        (("csv", "-o", "x.txt"), 2, "ends in .csv"),
        (("msccl-xml", "-o", "x.xml", "--set", "prto=LL"), 2, "did you mean 'proto'"),
        (("msccl-xml", "-o", "x.xml", "--set", "proto=ll"), 1, "expected LL"),
        (("csv", "-o", "x.csv", "--for", "megatron"), 2, "belong to the format launch"),
        (("graphml", "-o", "x.graphml", "--set", "a=b"), 2, "--set does not belong"),
    ],
)
def test_wrong_words_of_export(
    reduced: tuple[CollectiveInstance, Schedule, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _nestopt("export", words[0], str(reduced[2]), *words[1:]) == status
    assert said in capfd.readouterr().err
    assert not list(tmp_path.glob("x*"))


def test_check_reads_xml(
    reduced: tuple[CollectiveInstance, Schedule, Path],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    target = tmp_path / "a.xml"
    assert _nestopt("export", "msccl-xml", str(reduced[2]), "-o", str(target)) == 0
    assert _nestopt("check", str(target)) == 0
    assert "4 points verified" in capfd.readouterr().out
    text, changed = re.subn(r'type="(rr\w*|re)"', 'type="r"', target.read_text(), count=1)
    assert changed == 1
    target.write_text(text)
    assert _nestopt("check", str(target)) == 5
