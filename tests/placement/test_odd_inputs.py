"""Odd inputs through the command line, each with its own clear outcome."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from sampling import slow

from nestopt.cli import main
from nestopt.core.registry import named

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SMALL = "gpt3-1.7b,batch=16,layers=6"


@dataclass(frozen=True)
class Run:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The object on stdout."""
        return json.loads(self.out)  # type: ignore[no-any-return]

    @property
    def error(self) -> str:
        """The last line on stderr."""
        return self.err.splitlines()[-1]


@pytest.fixture
def nestopt(capfd: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Runs the command line in this process."""

    def run(*words: str) -> Run:
        with pytest.raises(SystemExit) as stop:
            main(words)
        captured = capfd.readouterr()
        assert "Traceback" not in captured.err
        return Run(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def solve(nestopt: Callable[..., Run]) -> Callable[..., Run]:
    """``nestopt solve --workload W --cluster C --json -q``, settings as keywords."""

    def run(workload: str, cluster: str, *words: str, **settings: str) -> Run:
        pairs = [word for k, v in settings.items() for word in ("--set", f"{k}={v}")]
        names = ("--workload", workload, "--cluster", cluster)
        return nestopt("solve", *names, *words, *pairs, "--json", "-q")

    return run


@pytest.fixture
def cluster_file(tmp_path: Path) -> Callable[..., str]:
    """A file of the named cluster with parts replaced: path of keys, value."""

    def write(name: str, *changes: tuple[tuple[str | int, ...], Any]) -> str:
        data = named("cluster", name).to_json()
        for keys, value in changes:
            part = data
            for key in keys[:-1]:
                part = part[key]
            part[keys[-1]] = value
        file = tmp_path / "cluster.json"
        file.write_text(json.dumps(data))
        return str(file)

    return write


def devices_of(data: dict[str, Any]) -> list[int]:
    return [i for s in data["solution"]["stages"] for row in s["devices"] for i in row]


# --- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dp", "megatron", "grid", "flat-dp", *slow(["mcmc", "random"])])
def test_one_device(solve, method):
    run = solve(SMALL, "h100-spineleaf-1", "--method", method)
    assert run.status == 0
    assert devices_of(run.json) == [0]
    reason = "optimal" if method == "dp" else "feasible"
    assert run.json["termination"]["reason"] == reason
    if method == "dp":
        assert run.json["gap"] == 0


@pytest.mark.parametrize("count", [7, 13, *slow([31])])
def test_a_prime_number_of_devices(solve, count):
    run = solve(SMALL, f"h100-spineleaf-{count}")
    assert run.status == 0 and run.json["termination"]["reason"] == "optimal"
    used = devices_of(run.json)
    assert len(used) == len(set(used)) <= count
    fewer = solve(SMALL, f"h100-spineleaf-{count - 1}")
    assert run.json["objective"] <= fewer.json["objective"] * (1 + 1e-9)


def test_more_devices_than_layers_can_stage(solve):
    run = solve("gpt3-1.7b,batch=1,layers=1", "h100-spineleaf-32", tensor="1")
    assert run.status == 0
    stages = run.json["solution"]["stages"]
    assert 1 <= len(stages) <= 3 and all(stage["operators"] for stage in stages)


def test_batch_smaller_than_the_replicas_wanted(solve):
    run = solve(SMALL, "h100-spineleaf-8", batch="2", replicas="4")
    assert run.status == 3
    (why,) = run.json["infeasible_because"]
    assert why.startswith("divisibility: no offered number of replicas")
    assert "the global batch 2 on 8 devices" in why


def test_batch_smaller_than_the_devices(solve):
    run = solve(SMALL, "h100-spineleaf-32", batch="2")
    assert run.status == 0
    assert run.json["solution"]["replicas"] <= 2
    assert run.json["instance"]["data"]["workload"]["global_batch"] == 2


@pytest.mark.slow
def test_a_chain_of_ten_thousand_layers(solve):
    long = "gpt3-1.7b,layers=10000,hidden=24,heads=1,vocabulary=64,seq=16,batch=8"
    run = solve(long, "h100-spineleaf-8", tensor="1", zero="1", recompute="none")
    assert run.status == 0 and run.json["termination"]["reason"] == "optimal"
    stages = run.json["solution"]["stages"]
    assert sum(len(stage["operators"]) for stage in stages) == 10002


# --- infeasible ---------------------------------------------------------------------------------


def test_nothing_fits(solve, nestopt, tmp_path):
    output = tmp_path / "r.json"
    words = ["--workload", "gpt3-175b", "--cluster", "h100-spineleaf-8"]
    run = solve(*words[1::2], "--space", "default-1", "-o", str(output))
    assert run.status == 3
    assert run.json["termination"] == {"reason": "infeasible", "limit": "none"}
    assert run.json["objective"] is None and run.json["bound"] == "inf"
    (why,) = run.json["infeasible_because"]
    assert "device 0 (h100)" in why and "'block 0'" in why and "would be needed" in why
    check = nestopt("check", str(output))
    assert check.status == 0
    told = nestopt("solve", *words, "--space", "default-1", "-q")
    assert told.status == 3
    shown = " ".join(told.out.split())
    assert "INFEASIBLE" in shown and "device 0 (h100)" in shown and "'block 0'" in shown


def test_a_layer_that_fits_no_device(solve, cluster_file):
    tiny = cluster_file("h100-spineleaf-8", (("device_types", "h100", "memory"), "5 GiB"))
    run = solve("gpt3-175b", tiny, "--space", "default-1")
    assert run.status == 3
    (why,) = run.json["infeasible_because"]
    assert why.startswith("memory: operator 'block 0' alone needs at least ")
    assert "device 0 (h100), has 1 GiB usable" in why


def test_a_reserve_above_the_memory(solve, cluster_file):
    tiny = cluster_file("h100-spineleaf-8", (("device_types", "h100", "memory"), "1 GiB"))
    run = solve(SMALL, tiny)
    assert run.status == 3
    assert "has 0 B usable" in run.json["infeasible_because"][0]


@pytest.mark.parametrize("method", ["dp", "megatron", "grid", "flat-dp", "mcmc", "random"])
def test_every_device_failed(solve, method):
    run = solve(SMALL, "h100-spineleaf-4,fail=0:1:2:3", "--method", method)
    if method == "dp":
        assert run.status == 3
        assert run.json["infeasible_because"] == ["devices: all 4 devices have failed"]
    else:  # a baseline proves nothing
        assert run.status == 4
        assert run.json["termination"]["reason"] == "no-solution"


def test_failed_devices_are_left_alone(solve):
    run = solve(SMALL, "h100-spineleaf-8,fail=0:5")
    assert run.status == 0
    assert not {0, 5} & set(devices_of(run.json))


def test_no_time(solve):
    run = solve("gpt3-175b", "h100-spineleaf-64", "--time-limit", "1e-9")
    assert run.status == 4
    assert run.json["termination"] == {"reason": "no-solution", "limit": "time"}


# --- errors of files ----------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["port", "uplink"])
@pytest.mark.parametrize("value", [0, "0 GB/s", -1e9, "-3 GB/s"])
def test_bandwidths_that_are_none(solve, cluster_file, field, value):
    file = cluster_file("h100-spineleaf-64", (("levels", 0, field), value))
    run = solve(SMALL, file)
    assert run.status == 1
    assert f"{file}: levels[0].{field}: " in run.error and "above zero" in run.error


@pytest.mark.parametrize(
    ("keys", "value", "told"),
    [
        (("levels", 0, "latency"), -1e-6, "levels[0].latency: -1e-06; expected a number at least"),
        (("levels", 0, "latency"), "3", "levels[0].latency: '3' has no unit"),
        (("levels", 0, "port"), "900 GBps", "levels[0].port"),
        (("levels", 0, "port"), None, "levels[0].port"),
        (("levels", 0, "prot"), 1.0, "levels[0].prot"),
        (
            ("device_types", "h100", "peak"),
            0,
            "device_types.h100.peak: 0.0; expected",
        ),
        (("device_types", "h100", "memory"), -1, "device_types.h100.memory: -1.0"),
        (("device_types", "h100", "efficiency"), 1.5, "efficiency: 1.5; expected a fraction"),
        (
            ("devices", 0, "type"),
            "h200",
            "devices[0].type: unknown device type 'h200'; known",
        ),
        (("devices", 0, "count"), 7, "tree level"),
        (("failed",), [8], "failed: device 8; expected 0 to 7"),
        (("failed",), [1, 1], "failed: a device is listed twice"),
        (("overrides",), [{"level": 0, "group": 9, "port": 1e9}], "overrides[0].group"),
        (("overrides",), [{"level": 0, "group": 0, "port": 0}], "overrides[0].port"),
        (("schema",), "nestopt.cluster/9", "schema"),
    ],
)
def test_wrong_clusters(solve, cluster_file, keys, value, told):
    file = cluster_file("h100-spineleaf-8", (keys, value))
    run = solve(SMALL, file)
    assert run.status == 1
    assert run.error.startswith(f"nestopt: error: {file}: ") and told in run.error
    assert run.json["schema"] == "nestopt.error/1"


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_numbers_that_are_none(solve, cluster_file, text, tmp_path):
    file = cluster_file("h100-spineleaf-8", (("levels", 0, "port"), 123.0))
    path = tmp_path / "cluster.json"
    path.write_text(path.read_text().replace("123.0", text))
    run = solve(SMALL, file)
    assert run.status == 1
    assert file in run.error and ("levels[0].port" in run.error or text in run.error)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"global_batch": 0}, "global_batch"),
        ({"global_batch": 1.5}, "global_batch"),
        ({"operators": []}, "operators: no operator"),
        ({"edges": [{"source": 1, "target": 0, "bytes": 1}]}, "edges[0]: 1 -> 0: operators must"),
        ({"edges": [{"source": 0, "target": 99, "bytes": 1}]}, "edges[0]: 0 -> 99: no such"),
        ({"edges": [{"source": 0, "target": 1, "bytes": -1}]}, "edges[0].bytes"),
        ({"operators": [{"name": "a"}, {"name": "a"}]}, "the name 'a' is used twice"),
        ({"operators": [{"name": "a", "flop": 1}]}, "operators[0].flop"),
        ({"operators": [{"name": "a", "flops": -1}]}, "operators[0].flops"),
        ({"tied": {"first": 0, "second": 70, "params": 1}}, "tied: operator 70 does not exist"),
        ({"bytes_weight": -2}, "bytes_weight"),
    ],
)  # fmt: skip
def test_wrong_workloads(solve, tmp_path, change, told):
    file = tmp_path / "workload.json"
    data = named("workload", SMALL).to_json() | change
    if "operators" in change:
        data |= {"edges": [], "tied": None}
    file.write_text(json.dumps(data))
    run = solve(str(file), "h100-spineleaf-8")
    assert run.status == 1
    assert run.error.startswith(f"nestopt: error: {file}: ") and told in run.error


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": "nestopt.cluster/1"}'])
def test_files_that_hold_no_cluster(solve, tmp_path, text):
    file = tmp_path / "cluster.json"
    file.write_text(text)
    run = solve(SMALL, str(file))
    assert run.status == 1 and str(file) in run.error


def test_a_file_that_is_not_there(solve, tmp_path):
    run = solve(SMALL, str(tmp_path / "none.json"))
    assert run.status == 1 and "none.json" in run.error


# --- usage --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workload", "cluster", "words", "told"),
    [
        ("gpt3-17b", "h100-spineleaf-8", (), "unknown workload 'gpt3-17b'; did you mean"),
        (SMALL, "h100-spinelef-8", (), "did you mean 'h100-spineleaf-1024'"),
        (SMALL, "h100-spineleaf-8,fial=1", (), "cluster setting 'fial'; did you mean 'fail'"),
        ("gpt3-1.7b,layer=3", "h100-spineleaf-8", (), "did you mean 'layers'"),
        (SMALL, "h100-spineleaf-8", ("--method", "dpp"), "method 'dpp'; did you mean 'dp'"),
        (SMALL, "h100-spineleaf-8", ("--objective", "bottlneck"), "did you mean 'bottleneck'"),
        (SMALL, "h100-spineleaf-8", ("--space", "structred"), "did you mean 'structured'"),
        (SMALL, "h100-spineleaf-8", ("--set", "tensr=2"), "tensor"),
        (SMALL, "h100-spineleaf-8", ("--set", "iterations=5"), "iterations"),
        (SMALL, "h100-spineleaf-8", ("--set", "tensor"), "KEY=VALUE"),
        (SMALL, "h100-spineleaf-8", ("--rel-gap", "1"), "--rel-gap"),
        (SMALL, "h100-spineleaf-8", ("--backend", "cbc"), "--backend belongs to the method milp"),
    ],
)  # fmt: skip
def test_names_and_options_that_are_unknown(nestopt, workload, cluster, words, told):
    run = nestopt("solve", "--workload", workload, "--cluster", cluster, *words, "-q")
    assert run.status == 2
    assert told in run.err and run.out == ""


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"tensor": "two"}, "tensor: 'two'; expected integers apart by commas, or all"),
        ({"tensor": "0"}, "tensor: 0; expected integers from 1"),
        ({"zero": "4"}, "zero: 4; expected ZeRO stages from 0 to 3"),
        ({"sequence": "2"}, "sequence: '2'; expected true or false"),
        ({"overlap": "2"}, "overlap: '2'; expected true or false"),
        ({"recompute": "some"}, "recompute: 'some'; expected one of none, selective, full"),
        ({"layout": "sideways"}, "layout: 'sideways'; expected one of inner, outer"),
        ({"schedule": "1f1b,gpip"}, "schedule: 'gpip'; expected one of 1f1b, gpipe, interleaved"),
        ({"chunks": "1"}, "chunks: 1; expected integers from 2"),
        (
            {"schedule": "1f1b", "chunks": "2"},
            "chunks: [2], but the schedules are 1f1b; expected none, since only interleaved",
        ),
        ({"uniform": "yes"}, "uniform: 'yes'; expected true or false"),
        ({"hides": "nothing"}, "hides: 'nothing'; expected some of tensor, sync, gathers"),
        (
            {"structure": "loose"},
            "structure: 'loose'; expected one of contiguous, structured, general",
        ),
        ({"decomposition": "5d"}, "decomposition: '5d'; expected one of megatron, 4d"),
    ],
)
def test_settings_of_the_wrong_form(solve, settings, told):
    run = solve(SMALL, "h100-spineleaf-8", **settings)
    assert run.status == 1
    assert f"error: plan space, {told}" in run.error


@pytest.mark.parametrize("value", ["0", "many"])
def test_batches_of_the_wrong_form(solve, value):
    run = solve(SMALL, "h100-spineleaf-8", batch=value)
    assert run.status == 1
    said = {"0": "--set batch: 0; expected at least 1", "many": "'many'; expected an integer"}
    assert said[value] in run.err
