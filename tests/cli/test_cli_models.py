"""The max-load and Piper models from the command line, from either form of their files."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sampling import slow

if TYPE_CHECKING:
    from collections.abc import Callable

PEERS = Path(__file__).parents[3] / "shared" / "peers"


def split_file() -> dict[str, Any]:
    """A chain of four operators of 2, 3, 4 and 1 ms whose outputs move in 0.5 ms."""
    nodes = [
        {
            "id": i,
            "name": f"op{i}",
            "supportedOnFpga": True,
            "cpuLatency": 100.0,
            "fpgaLatency": latency,
            "isBackwardNode": False,
            "size": 10.0,
        }
        for i, latency in enumerate((2.0, 3.0, 4.0, 1.0))
    ]
    edges = [{"sourceId": i, "destId": i + 1, "cost": 0.5} for i in range(3)]
    return {"maxSizePerFPGA": 40.0, "maxFPGAs": 1, "maxCPUs": 1, "nodes": nodes, "edges": edges}


def stages_file() -> dict[str, Any]:
    """Two layers of 0.4 s and 600 bytes with 10 bytes between them, on two devices."""
    nodes = [
        {
            "id": i,
            "name": name,
            "TMPCs": {
                "1": [
                    {
                        "id": "vanilla",
                        "timePerSample": 0.4,
                        "parameterSize": 0.0,
                        "memoryUsageA": 0.0,
                        "memoryUsageB": 600.0,
                        "syncTimeFw": {},
                        "syncTimeBw": {},
                    }
                ]
            },
        }
        for i, name in enumerate(("first", "[/second]"))
    ]
    return {
        "maxDevices": 2,
        "maxMemoryPerDevice": 1000.0,
        "bandwidth": 100.0,
        "mbsInBatch": 2,
        "nodes": nodes,
        "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 10.0}],
    }


@pytest.fixture
def split(tmp_path: Path) -> str:
    file = tmp_path / "chain.json"
    file.write_text(json.dumps(split_file()))
    return str(file)


@pytest.fixture
def stages(tmp_path: Path) -> str:
    file = tmp_path / "pair.json"
    file.write_text(json.dumps(stages_file()))
    return str(file)


def solve(model: str, file: str, cluster: str, *more: str) -> tuple[str, ...]:
    start = ("solve", "--workload", file, "--cluster", cluster, "--set", f"model={model}", "-q")
    return (*start, *more)


# --- max-load -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dp", "milp", "cpsat"])
@pytest.mark.parametrize(
    ("cluster", "largest"),
    [
        ("file", 0.010),  # all on the one accelerator
        ("2+0", 0.0055),  # 2 + 3 and 4 + 1, the cut paid on both sides
        ("4+0", 0.0050),  # each its own; the third pays both its cuts
    ],
)
def test_max_load_of_the_published_form(
    nestopt: Callable, split: str, method: str, cluster: str, largest: float
) -> None:
    run = nestopt(*solve("max-load", split, cluster, "--method", method, "--json"))
    assert run.status == 0
    result = json.loads(run.out)
    assert result["objective"] == pytest.approx(largest, rel=1e-9)
    assert result["termination"]["reason"] == "optimal"
    assert result["settings"]["objective"] == "bottleneck"


def test_the_imported_form_gives_the_same_instance(
    nestopt: Callable, split: str, tmp_path: Path
) -> None:
    imported = str(tmp_path / "sub" / "chain.json")
    Path(imported).parent.mkdir()
    assert nestopt("import", "dnn-partitioning", split, "-o", imported).status == 0
    published = json.loads(nestopt(*solve("max-load", split, "2+1", "--json")).out)
    own = json.loads(nestopt(*solve("max-load", imported, "2+1", "--json")).out)
    assert own["instance"]["sha256"] == published["instance"]["sha256"]
    whole = json.loads(nestopt("solve", imported, "-q", "--json").out)
    assert whole["objective"] == pytest.approx(0.010)


def test_max_load_through_the_other_commands(nestopt: Callable, split: str, tmp_path: Path) -> None:
    output = str(tmp_path / "r.json")
    run = nestopt(*solve("max-load", split, "2+0", "--objective", "bottleneck", "-o", output))
    assert "largest load 5.5 ms (0.0055 s)" in run.out
    assert nestopt("check", output).status == 0
    for words in (("simulate", output), ("plot", output, "-o", str(tmp_path / "p.svg"))):
        run = nestopt(*words)
        assert run.status == 1 and "the max-load model has no timeline" in run.err
    words = ("bound", "--workload", split, "--cluster", "2+0", "--set", "model=max-load")
    assert "5 ms" in nestopt(*words).out


def test_a_model_is_written_before_it_is_solved(
    nestopt: Callable, split: str, tmp_path: Path
) -> None:
    model = tmp_path / "m.lp"
    words = ("--method", "milp", "--write-model", str(model))
    assert nestopt(*solve("max-load", split, "2+0", *words)).status == 0
    assert "loads_acc_0" in model.read_text()


def test_a_warm_start_is_of_the_same_instance_and_correct(
    nestopt: Callable, split: str, tmp_path: Path
) -> None:
    file = tmp_path / "r.json"
    start = ("--method", "milp", "--warm-start", str(file))
    assert nestopt(*solve("max-load", split, "2+0", "-o", str(file))).status == 0
    assert nestopt(*solve("max-load", split, "2+0", *start)).status == 0
    run = nestopt(*solve("max-load", split, "3+0", *start))
    assert run.status == 1 and "instance.sha256: the result of another instance" in run.err
    data = json.loads(file.read_text())
    del data["solution"]["stages"][1]
    file.write_text(json.dumps(data))
    run = nestopt(*solve("max-load", split, "2+0", *start))
    assert run.status == 5 and "lies in no stage" in run.err


def test_ctrl_c_is_still_python_s_after_cp_sat(split: str) -> None:
    words = solve("max-load", split, "3+0", "--method", "cpsat")
    program = textwrap.dedent(f"""
        import signal
        from nestopt.cli import main
        try:
            main({words!r})
        except SystemExit as stop:
            assert stop.code == 0
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "interrupted")


def test_infeasible_max_load_says_why(nestopt: Callable, tmp_path: Path) -> None:
    file = tmp_path / "tight.json"
    file.write_text(json.dumps(split_file() | {"maxSizePerFPGA": 15.0}))
    run = nestopt(*solve("max-load", str(file), "2+0"))
    assert run.status == 3 and "the operators need 40 bytes" in run.out


# --- Piper --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "settings", "seconds"),
    [
        ("file", (), 0.6),  # a layer a device: 0.4 s and 10 bytes both ways at 100 bytes/s
        ("file", ("bandwidth=200B/s",), 0.5),
        ("2x2000B", (), 0.4),  # both layers, twice
        ("2x2000B", ("batch=1",), 0.8),  # one micro-batch keeps one device busy
        ("4x1000B", ("batch=4",), 0.3),  # two stages, twice
    ],
)
def test_piper_of_the_published_form(
    nestopt: Callable, stages: str, cluster: str, settings: tuple[str, ...], seconds: float
) -> None:
    given = [word for setting in settings for word in ("--set", setting)]
    run = nestopt(*solve("piper", stages, cluster, *given, "--json"))
    assert run.status == 0
    result = json.loads(run.out)
    assert result["objective"] == pytest.approx(seconds, rel=1e-9)
    assert result["termination"]["reason"] == "optimal"


def test_piper_through_the_other_commands(nestopt: Callable, stages: str, tmp_path: Path) -> None:
    imported, output = str(tmp_path / "i.json"), str(tmp_path / "r.json")
    assert nestopt("import", "piper", stages, "-o", imported).status == 0
    run = nestopt(*solve("piper", imported, "3x1000B", "-o", output))
    assert max(map(len, run.out.splitlines())) <= 80
    assert "sample     600 ms (0.6 s)" in run.out
    assert "2 used, 1 idle" in run.out
    lines = [line.split() for line in run.out.splitlines()]
    assert ["0", "first", "1", "x", "1", "1", "600", "ms", "600", "B"] in lines
    assert ["1", "[/second]", "1", "x", "1", "1", "600", "ms", "600", "B"] in lines
    assert nestopt("check", output).status == 0
    run = nestopt("simulate", output)
    assert run.status == 1 and "the piper model has no timeline" in run.err
    words = ("bound", "--workload", stages, "--cluster", "file", "--set", "model=piper")
    assert "400 ms" in nestopt(*words).out
    equal = ("--method", "equal", "--json")
    result = json.loads(nestopt(*solve("piper", stages, "2x2000B", *equal)).out)
    assert result["objective"] == pytest.approx(0.4)
    assert result["termination"] == {"reason": "feasible", "limit": "iterations"}


def test_infeasible_piper_says_why(nestopt: Callable, stages: str) -> None:
    run = nestopt(*solve("piper", stages, "2x500B"))
    assert run.status == 3 and "layer 0 (first) needs at least 600 bytes" in run.out


# --- wrong words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cluster", "words", "status", "message"),
    [
        ("six", (), 2, "ACCELERATORS+CPUS, such as 6+1, or 'file'"),
        ("6x8GiB", (), 2, "ACCELERATORS+CPUS"),
        ("0+0", (), 1, "--cluster: 0+0: no device at all"),
        ("2+0", ("--objective", "iteration-time"), 2, "nestopt.maxload/1 has bottleneck alone"),
        ("2+0", ("--space", "general"), 2, "nestopt.maxload/1 has structured alone"),
        ("2+0", ("--set", "batch=3"), 2, "the max-load model has no batch"),
        ("2+0", ("--set", "bandwidth=3GB/s"), 2, "the max-load model has no bandwidth"),
        ("2+0", ("--set", "tensor=2"), 2, "dp does not read it for nestopt.maxload/1"),
        ("2+0", ("--set", "uniform=true"), 2, "dp does not read it for nestopt.maxload/1"),
        ("2+0", ("--set", "ideal-limit=many"), 2, "--set ideal-limit=many: expected a whole"),
        ("2+0", ("--method", "megatron"), 2, "megatron does not solve instances of nestopt.max"),
    ],
)
def test_wrong_words_of_max_load(
    nestopt: Callable, split: str, cluster: str, words: tuple[str, ...], status: int, message: str
) -> None:
    run = nestopt(*solve("max-load", split, cluster, *words))
    assert (run.status, run.out) == (status, "")
    assert message in run.err


@pytest.mark.parametrize(
    ("cluster", "words", "status", "message"),
    [
        ("64", (), 2, "DEVICESxMEMORY, such as 64x8GiB, or 'file'"),
        ("2+0", (), 2, "DEVICESxMEMORY"),
        ("0x8GiB", (), 1, "--cluster: 0; expected at least 1"),
        ("2x8", (), 1, "--cluster: '8' has no unit"),
        ("2x-8GiB", (), 1, "--cluster: 2x-8GiB: expected a memory of more than zero"),
        ("file", ("--set", "bandwidth=0B/s"), 1, "--set bandwidth: '0B/s'; expected more"),
        ("file", ("--set", "bandwidth=3"), 1, "--set bandwidth: '3' has no unit"),
        ("file", ("--set", "batch=0"), 1, "--set batch: 0; expected at least 1"),
        ("file", ("--set", "uniform=maybe"), 1, "--set uniform: 'maybe'"),
        ("file", ("--objective", "iteration-time"), 2, "nestopt.piper/1 has bottleneck alone"),
        ("file", ("--method", "milp"), 2, "milp does not solve instances of nestopt.piper/1"),
    ],
)
def test_wrong_words_of_piper(
    nestopt: Callable, stages: str, cluster: str, words: tuple[str, ...], status: int, message: str
) -> None:
    run = nestopt(*solve("piper", stages, cluster, *words))
    assert (run.status, run.out) == (status, "")
    assert message in run.err


def test_wrong_files(nestopt: Callable, split: str, stages: str, tmp_path: Path) -> None:
    run = nestopt(*solve("max-load", str(tmp_path / "none.json"), "2+0"))
    assert run.status == 1 and "none.json: cannot be read" in run.err
    run = nestopt(*solve("max-load", "bert24", "2+0"))
    assert run.status == 2 and "it is a file, nestopt.maxload/1 or dnn-partitioning's" in run.err
    run = nestopt(*solve("max-load", stages, "2+0"))
    assert run.status == 1 and "schema: None; with model=max-load expected 'nestopt.maxl" in run.err
    run = nestopt(*solve("piper", split, "file"))
    assert run.status == 1 and "or Piper's own JSON" in run.err
    broken = tmp_path / "broken.json"
    data = split_file()
    data["nodes"][2]["fpgaLatency"] = -1
    broken.write_text(json.dumps(data))
    run = nestopt(*solve("max-load", str(broken), "2+0"))
    assert run.status == 1 and "broken.json: nodes[2].fpgaLatency" in run.err


def test_settings_of_one_model_are_refused_by_the_others(nestopt: Callable) -> None:
    words = ("solve", "--workload", "bert-large", "--cluster", "dgx-h100-16", "-q", "--set")
    run = nestopt(*words, "bandwidth=3GB/s")
    assert run.status == 2 and "--set bandwidth belongs to model=piper" in run.err
    run = nestopt(*words, "ideal-limit=9")
    assert run.status == 2 and "dp does not read it for this model" in run.err
    run = nestopt(*words, "model=flow")
    assert run.status == 2 and "expected one of pipeline, max-load, piper" in run.err


# --- published figures --------------------------------------------------------------------------


def published(*parts: str) -> str:
    path = PEERS.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"the published input {path.name} is not beside this checkout")
    return str(path)


@pytest.mark.parametrize(
    ("name", "milliseconds"), [("bert24_inference", 17.7899), ("bert24_training", 41.7458)]
)
@pytest.mark.parametrize("method", ["dp", pytest.param("milp", marks=pytest.mark.slow)])
def test_published_max_load(nestopt: Callable, name: str, milliseconds: float, method: str) -> None:
    file = published("dnn-partitioning", f"{name}.json")
    run = nestopt(*solve("max-load", file, "6+1", "--method", method, "--json"))
    assert f"{1e3 * json.loads(run.out)['objective']:.6g}" == f"{milliseconds:.6g}"


@pytest.mark.parametrize(
    ("method", "shown"), [("equal", "0.0257245478"), *slow([("dp", "0.0202005503")])]
)
def test_published_piper(nestopt: Callable, method: str, shown: str) -> None:
    file = published("piper", "bert32a100.json")
    words = ("--set", "batch=1920", "--set", "bandwidth=25GiB/s", "--method", method)
    run = nestopt(*solve("piper", file, "64x8GiB", *words))
    assert run.status == 0
    assert f"({shown} s)" in run.out
