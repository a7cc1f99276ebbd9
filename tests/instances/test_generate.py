"""Generated objects: readable by their classes, named reproducibly, the same bytes everywhere."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.topology import Topology
from nestopt.core.errors import InputError, UsageError
from nestopt.core.io import canonical_json, sha256_of
from nestopt.instances.catalog import resolve
from nestopt.instances.generate import KINDS, generate, generate_instance
from nestopt.instances.options import Options, split_name
from nestopt.instances.topologies import by_name
from nestopt.placement.model.cluster import Cluster
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.workload import Workload

CASES: list[tuple[str, str, Options]] = [
    (
        "topology",
        "torus3d:4x4x4",
        Options(3, ("lognormal:0.7", "degraded:4,1/2"), 3, 2, connected=True),
    ),
    ("topology", "dragonfly:4x2x2", Options(1, ("log-uniform:0.5,2,per=link",), fail_links=3)),
    ("topology", "dgx-h100:64x8,fabric=rail", Options(2, fail_rates="llama3", days=54.0)),
    ("topology", "leaf-spine:8x8,rails=yes", Options(5, fail_groups=("rail,1", "node,1"))),
    ("topology", "random-regular:24,3,9", Options(4, ("choice:1,1/2",))),
    ("cluster", "tree:8x4x2", Options(7, ("mix:h100,a100", "uneven:0.4", "uplink:0.3,1"), 2)),
    ("cluster", "dgx-h100-256", Options(0, fail_rates="rsc1", days=30.0)),
    ("cluster", "of:(torus2d:4x4+lognormal:1)", Options(2, fail_npus=1)),
    ("workload", "random-dag:20,width=3,skew=0.9", Options(11)),
    ("workload", "random-chain:12", Options()),
    ("instance", "all-gather:chunk=4MB,chunks=2@mesh2d:6x6", Options(6, fail_npus=3)),
    ("instance", "random-chain:6@tree:4x2", Options(3, ("memory:1,1/2",))),
]


def digests() -> list[str]:
    """One digest per case, in order."""
    return [sha256_of(generate(kind, spec, options).data) for kind, spec, options in CASES]


def test_same_bytes_in_every_process_and_hash_seed() -> None:
    expected = digests()
    for seed in ("0", "4242"):
        run = subprocess.run(
            [
                sys.executable,
                "-c",
                "import runpy, sys; print('\\n'.join(runpy.run_path(sys.argv[1])['digests']()))",
                __file__,
            ],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.split() == expected


def test_digest_is_the_recorded_one() -> None:
    """Machines agree: this digest was recorded once and for all."""
    text = "".join(d for (kind, _, _), d in zip(CASES, digests()) if kind == "topology")
    assert hashlib.sha256(text.encode()).hexdigest() == RECORDED


RECORDED = "3e8688f2206fe2347886595a7b4455f212f77fdb85e5c1b613b36aabe053c338"


@pytest.mark.parametrize("kind, spec, options", CASES)
def test_generated_objects_are_read_back(kind: str, spec: str, options: Options) -> None:
    made = generate(kind, spec, options)
    reader = {
        "topology": Topology.from_json,
        "cluster": Cluster.from_json,
        "workload": Workload.from_json,
        "instance": (
            CollectiveInstance.from_json
            if made.data.get("problem") == "collective"
            else PlacementInstance.from_json
        ),
    }[kind]
    assert canonical_json(reader(made.data).to_json()) == canonical_json(made.data)
    assert canonical_json(generate(kind, spec, options).data) == canonical_json(made.data)


@pytest.mark.parametrize("kind, spec, options", [c for c in CASES if c[0] == "topology"])
def test_the_name_reproduces_the_topology(kind: str, spec: str, options: Options) -> None:
    made = generate(kind, spec, options)
    assert canonical_json(by_name(made.data["name"]).to_json()) == canonical_json(made.data)
    assert generate(kind, made.data["name"]).data == made.data


def test_seeds_differ() -> None:
    seen = {
        sha256_of(generate("topology", "mesh2d:4x4+lognormal:1", Options(seed)).data["links"])
        for seed in range(20)
    }
    assert len(seen) == 20


def test_notes_say_what_failed_and_how_often_was_drawn() -> None:
    made = generate("topology", "line:10", Options(4, fail_npus=1, connected=True))
    assert made.notes["npus"] == 9
    assert made.notes["failed_nodes"] in (["npu0"], ["npu9"])
    assert made.notes["draws"] >= 1
    assert made.notes["connected"]
    cut = generate("topology", "line:10", Options(4, fail_links=2))
    assert cut.notes["failed_cables"] == 2
    assert not cut.notes["connected"]


def test_tenants_run_the_same_pattern() -> None:
    made = generate("instance", "all-to-all@torus2d:4x4", Options(1), tenants="random:3,size=4")
    assert len(made.data["collective"]["parts"]) == 3
    assert [part["pattern"] for part in made.data["collective"]["parts"]] == ["all-to-all"] * 3
    assert len({npu for group in made.notes["tenants"] for npu in group}) == 12
    rooted = generate("instance", "broadcast:root=1@ring:6", tenants="contiguous:2")
    assert [part["root"] for part in rooted.data["collective"]["parts"]] == [1, 4]


def test_switches_are_no_members() -> None:
    made = generate("instance", "all-gather@dgx-a100:2x8", Options(fail_npus=2))
    instance = CollectiveInstance.from_json(made.data)
    assert len(instance.collective.parts[0].npus) == 14


@pytest.mark.parametrize(
    "kind, spec, options, error, message",
    [
        ("topologies", "ring:4", Options(), UsageError, "did you mean 'topology'"),
        ("workload", "random-chain:4", Options(fail_npus=1), UsageError, "no option but the seed"),
        ("instance", "all-gather", Options(), UsageError, "expected WORKLOAD@CLUSTER"),
        ("instance", "all-gathr@ring:4", Options(), UsageError, "unknown workload"),
        ("instance", "all-gather:root=1@ring:4", Options(), InputError, "has no root"),
        ("instance", "broadcast:root=4@ring:4", Options(), InputError, "the group has 4"),
        ("instance", "all-gather:chunk=0.5B@ring:4", Options(), InputError, "positive whole"),
        ("topology", "ring:4+fail-rates:rsc1,days=3", Options(fail_rates="rsc2", days=1.0),
         UsageError, "given twice"),
        ("topology", "ring:4+fail-rates:rsc1", Options(), InputError, "needs days=D"),
        ("topology", "ring:4+seed:1+seed:2", Options(), InputError, "given twice"),
        ("topology", "ring:4+seed:-1", Options(), InputError, "at least 0"),
        ("topology", "ring:4+conected", Options(), UsageError, "did you mean 'connected'"),
        ("topology", "ring:4", Options(seed=-1, fail_npus=1), InputError, "at least 0"),
    ],
)  # fmt: skip
def test_wrong_requests(
    kind: str, spec: str, options: Options, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        generate(kind, spec, options)


def test_tenants_need_a_collective() -> None:
    with pytest.raises(UsageError, match="goes with an instance"):
        generate("topology", "ring:4", tenants="random:2")
    with pytest.raises(UsageError, match="goes with a collective"):
        generate("instance", "random-chain:4@tree:4", tenants="random:2")
    with pytest.raises(UsageError, match="names its NPUs"):
        generate("instance", "all-gather:npus=half@ring:8", tenants="random:2")


def test_several_collectives_and_pipelined_latency() -> None:
    made = generate_instance("all-gather:npus=0-3;scatter:npus=4-7@ring:8", latency="pipelined")
    assert [part["pattern"] for part in made.data["collective"]["parts"]] == [
        "all-gather",
        "scatter",
    ]
    assert made.data["latency"] == "pipelined"


def test_options_and_suffix_are_the_same_thing() -> None:
    options = Options(3, ("lognormal:1",), 2, 1, ("node,2",), "llama3", 54.0, connected=True)
    base, back = split_name("ring:4" + options.suffix(), ["lognormal"])
    assert (base, back) == ("ring:4", options)


def test_catalogue_resolves_suffixes() -> None:
    assert resolve("topology", "torus2d:4x4+fail-npus:2").num_nodes == 14
    assert len(KINDS) == 4
