"""generate, import and export from the command line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from nestopt.collective.model.topology import Topology
from nestopt.core.io import sha256_of
from nestopt.placement.model.cluster import Cluster
from nestopt.placement.model.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_generated_topology_lacks_what_failed(nestopt: Callable, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    words = ("generate", "topology", "torus2d:4x4", "--fail-npus", "3", "--connected", "--seed")
    run = nestopt(*words, "5", "-o", str(file), "--json")
    assert run.status == 0
    data = json.loads(run.out)
    assert data["schema"] == "nestopt.generated/1"
    assert (data["npus"], len(data["failed_nodes"])) == (13, 3) and data["draws"] >= 1
    topology = Topology.from_json(json.loads(file.read_text()))
    assert topology.name == data["name"] == "torus2d:4x4+fail-npus:3+connected+seed:5"
    assert sha256_of(topology.to_json()) == data["sha256"]
    assert topology.num_nodes == 13
    again = json.loads(nestopt(*words, "5", "-o", str(file), "--json").out)
    other = json.loads(nestopt(*words, "6", "-o", str(file), "--json").out)
    assert again == data and other["sha256"] != data["sha256"]


def test_a_generated_cluster_keeps_its_failed_devices(nestopt: Callable, tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    run = nestopt("generate", "cluster", "tree:4x3", "--fail-npus", "2", "-o", str(file))
    assert len(re.search(r"^failed +(.*)$", run.out, re.MULTILINE)[1].split(",")) == 2
    cluster = Cluster.from_json(json.loads(file.read_text()))
    assert (cluster.num_devices, len(cluster.alive)) == (12, 10)


@pytest.mark.parametrize(
    ("spec", "seed", "operators"),
    [("random-chain:7", "3", 7), ("random-dag:9", "0", 9), ("bert-large", "0", 26)],
)
def test_a_generated_workload(
    nestopt: Callable, tmp_path: Path, spec: str, seed: str, operators: int
) -> None:
    file = tmp_path / "w.json"
    run = nestopt("generate", "workload", spec, "--seed", seed, "-o", str(file))
    assert run.status == 0
    workload = Workload.from_json(json.loads(file.read_text()))
    assert workload.num_operators == operators


@pytest.mark.parametrize(
    ("spec", "problem"),
    [("bert-large@h100-spineleaf-64", "placement"), ("all-gather@mesh2d:3x3", "collective")],
)
def test_a_generated_instance_is_one_that_solve_reads(
    nestopt: Callable, tmp_path: Path, spec: str, problem: str
) -> None:
    from nestopt.core.problem import get_problem

    file = tmp_path / "i.json"
    run = nestopt("generate", "instance", spec, "-o", str(file))
    assert run.status == 0
    data = json.loads(file.read_text())
    assert data["problem"] == problem
    assert get_problem(problem).from_json(data).to_json() == data


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (("topolgy", "ring:4"), 2, "did you mean 'topology'?"),
        (("topology", "rng:4"), 2, "did you mean 'ring'"),
        (("topology", "ring:4", "--fail-npus", "-1"), 2, "--fail-npus -1: expected 0 or more"),
        (("topology", "ring:4", "--fail-npus", "9"), 1, "9"),
        (("topology", "ring:4", "--fail-rates", "llama3"), 2, "go together"),
        (("topology", "ring:4", "--fail-rates", "llma3", "--days", "1"), 2, "'llama3'"),
        (("topology", "ring:4", "--heterogeneity", "lognrmal:1"), 2, "'lognormal'"),
        (
            ("workload", "bert-large", "--fail-npus", "1"),
            2,
            "a workload takes no option but the seed",
        ),
        (("topology", "ring:4", "--tenants", "random:2"), 2, "--tenants goes with an instance"),
        (("instance", "all-gather@ring:4", "--tenants", "rndom:2"), 2, "'random'"),
        (("instance", "bert-large"), 2, "expected WORKLOAD@CLUSTER"),
        (("cluster", "tree:4x2", "--sizes", "1MiB"), 2, "--sizes goes with a collective-table"),
        (("collective-table", "tree:4x2", "--fail-npus", "1"), 2, "a collective-table takes"),
        (("collective-table", "tree:4x2", "--members", "1"), 2, "groups of at least 2"),
        (("collective-table", "tree:4x2", "--sizes", "0 B"), 2, "more than zero bytes"),
        (("collective-table", "tre:4x2"), 2, "unknown cluster"),
        (("colective-table", "tree:4x2"), 2, "did you mean 'collective-table'"),
    ],
)
def test_what_cannot_be_generated_is_told(
    nestopt: Callable, tmp_path: Path, words: tuple[str, ...], status: int, complaint: str
) -> None:
    file = tmp_path / "x.json"
    run = nestopt("generate", *words, "-o", str(file))
    assert run.status == status
    assert complaint in run.err
    assert not file.exists()


def test_a_generated_table_of_collectives_is_one_that_solve_reads(
    nestopt: Callable, tmp_path: Path
) -> None:
    table, result = tmp_path / "t.json", tmp_path / "r.json"
    words = ("generate", "collective-table", "tree:4x2", "--members", "8", "--sizes", "16MiB")
    run = nestopt(*words, "-o", str(table), "--json")
    assert run.status == 0 and "0 of 1 layouts; next 4x2, 1 at once" in run.err
    data = json.loads(run.out)
    assert data["schedules"] == 3 and data["faster than formulas"] >= 1
    assert sha256_of(json.loads(table.read_text())) == data["sha256"]
    solve = ("solve", "--workload", "gpt3-1.7b,layers=2,batch=8", "--cluster", "tree:4x2")
    chosen = ("--set", f"collectives={table}", "--set", "tensor=8", "-o", str(result))
    assert nestopt(*solve, *chosen).status == 0
    assert nestopt("check", str(result)).status == 0
    held = json.loads(result.read_text())["instance"]["data"]["cluster"]["collectives"]
    assert held == json.loads(table.read_text())
    run = nestopt(*solve, *chosen, "--method", "milp")
    assert run.status == 2 and "milp prices collectives by the formulas alone" in run.err


def test_export_and_import_bring_the_network_back(nestopt: Callable, tmp_path: Path) -> None:
    graph, topology = tmp_path / "t.graphml", tmp_path / "t.json"
    assert nestopt("export", "graphml", "torus2d:3x3,bw=50GB/s", "-o", str(graph)).status == 0
    run = nestopt("import", "graphml", str(graph), "-o", str(topology), "--json")
    data = json.loads(run.out)
    assert data["schema"] == "nestopt.import/1" and data["complaints"] == []
    assert data["totals"] == {
        "npus": 9,
        "switches": 0,
        "links": 36,
        "total_bandwidth": 36 * 50e9,
    }
    read = Topology.from_json(json.loads(topology.read_text()))
    assert set(read.bandwidth.tolist()) == {50 * 10**9}
    assert nestopt("export", "graphml", str(topology), "-o", str(graph)).status == 0


def test_import_as_a_cluster(nestopt: Callable, tmp_path: Path) -> None:
    graph, file = tmp_path / "t.graphml", tmp_path / "c.json"
    nestopt("export", "graphml", "dgx1v", "-o", str(graph))
    words = ("import", "graphml", str(graph), "--as", "cluster", "-o", str(file))
    assert nestopt(*words, "--device", "v100").status == 0
    assert Cluster.from_json(json.loads(file.read_text())).num_devices == 8
    assert "go together" in nestopt(*words).err


def test_a_complaint_is_a_warning_or_with_strict_an_error(
    nestopt: Callable, tmp_path: Path
) -> None:
    source, file = tmp_path / "net.txt", tmp_path / "t.json"
    nestopt("export", "ns3", "switch:3", "-o", str(source))
    lines = source.read_text().splitlines()
    nodes, switches, links = lines[0].split()[:3]
    source.write_text("\n".join([f"{nodes} {switches} {int(links) - 1}", *lines[1:]]) + "\n")
    run = nestopt("import", "ns3", str(source), "-o", str(file))
    assert run.status == 0
    assert "nestopt: warning: " in run.err and "links            6\n" in run.out
    file.unlink()
    run = nestopt("import", "ns3", str(source), "--strict", "-o", str(file))
    assert run.status == 1 and str(source) in run.err and not file.exists()


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (("import", "graphm", "x"), 2, "did you mean 'graphml'"),
        (("import", "graphml", "none.xml"), 1, "none.xml: cannot be read"),
        (("import", "graphml", "x", "--set", "unt=1"), 2, "did you mean 'unit'?"),
        (("import", "graphml", "x", "--as", "tree"), 2, "unknown form 'tree'"),
        (("import", "dnn-partitioning", "x", "--set", "a=1"), 2, "known: none"),
        (("import", "piper", "x", "--set", "device=8"), 2, "did you mean 'devices'?"),
        (("import", "piper", "x", "--set", "devices=0"), 1, "expected a positive integer"),
        (("import", "piper", "x", "--set", "memory=80"), 1, "has no unit"),
        (("import", "piper", "x", "--as", "cluster", "--device", "h100"), 2, "holds no network"),
        (("export", "nccl", "ring:4"), 2, "nccl files are only read"),
        (("export", "graphml", "rng:4"), 2, "did you mean 'ring'"),
    ],
)
def test_what_cannot_be_converted_is_told(
    nestopt: Callable, tmp_path: Path, words: tuple[str, ...], status: int, complaint: str
) -> None:
    run = nestopt(*words, "-o", str(tmp_path / "x.json"))
    assert run.status == status
    assert complaint in run.err
