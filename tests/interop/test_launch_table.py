"""Three models on 64 and 256 devices for six frameworks: sizes agree, or a refusal says why.

The frameworks' own validators are in ``test_launch_megatron`` and ``test_launch_torchtitan``.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from dataclasses import replace

import pytest

from nestopt.core.registry import architecture, named
from nestopt.interop.launch import FRAMEWORKS, write
from nestopt.interop.launch.architecture import megatron_architecture
from nestopt.interop.launch.arguments import as_line
from nestopt.interop.launch.job import CannotExpress, job_of
from nestopt.interop.launch.reading import plan_of, read_launch

MODELS = {
    "gpt3-175b": {"tensor": 8, "pipeline": 8, "expert": 1},
    "llama3-70b": {"tensor": 8, "pipeline": 4, "expert": 1},
    "mixtral-8x7b": {"tensor": 2, "pipeline": 1, "expert": 8},
}
REFUSED = {
    ("gpt3-175b", "torchtitan"): "no flavour of 96 layers",
    ("gpt3-175b", "nanotron"): "Llama-like",
    ("mixtral-8x7b", "torchtitan"): "no flavour of 32 layers.* 8 experts",
    ("mixtral-8x7b", "nanotron"): "no experts",
}
BATCH = 256


def _files(name: str, devices: int, framework: str) -> tuple[dict[str, str], dict[str, int]]:
    model = architecture(name)
    rows = {
        **megatron_architecture(model),
        **{f"{key}-model-parallel-size": size for key, size in MODELS[name].items()},
        "micro-batch-size": 1,
        "global-batch-size": BATCH,
        "sequence-parallel": True,
        "use-distributed-optimizer": framework != "torchtitan",
    }
    job = read_launch(" ".join(as_line(rows)), "run.sh", devices)
    cluster = named("cluster", f"dgx-h100-{devices}")
    cluster = cluster.with_types([replace(kind, memory=2**40) for kind in cluster.types])
    workload = named("workload", f"{name},batch={BATCH}")
    return write(framework, job_of(plan_of(job, cluster), workload, cluster, model)), {
        **MODELS[name],
        "data": devices // (MODELS[name]["tensor"] * MODELS[name]["pipeline"]),
    }


def _stated(framework: str, files: dict[str, str]) -> dict[str, int]:
    """Degrees, and the batch as the file's own arithmetic makes it."""
    if framework in ("megatron", "deepspeed"):
        line = files["arguments.txt"]
        found = dict(re.findall(r"--([\w-]+) (\d+)", line))
        row = {key: int(found[f"{key}-model-parallel-size"]) for key in ("tensor", "pipeline")}
        batch = int(found["global-batch-size"])
        if framework == "deepspeed":
            config = json.loads(files["ds_config.json"])
            assert config["train_batch_size"] == batch
            row["data"] = batch // (
                config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
            )
        return row | {"batch": batch}
    if framework == "torchtitan":
        data = tomllib.loads(files["job.toml"])
        part = data["parallelism"]
        return {
            "tensor": part["tensor_parallel_degree"],
            "pipeline": part["pipeline_parallel_degree"],
            "data": part["data_parallel_replicate_degree"] * part["data_parallel_shard_degree"],
            "batch": data["training"]["global_batch_size"],
        }
    if framework == "jax-mesh":
        mesh = json.loads(files["mesh.json"])
        sizes = dict(zip(mesh["axes"], mesh["shape"]))
        assert math.prod(mesh["shape"]) == len(set(map(tuple, mesh["hosts"])))
        return {
            "tensor": sizes["tensor"],
            "pipeline": sizes["stage"],
            "data": sizes["replica"] * sizes["expert"] * sizes["shard"],
            "batch": mesh["global_batch"],
        }
    text = files["overrides.yaml" if framework == "megatron-bridge" else "config.yaml"]
    found = dict(re.findall(r"(\w+): (\d+)", text))
    if framework == "megatron-bridge":
        row = {key: int(found[f"{key}_model_parallel_size"]) for key in ("tensor", "pipeline")}
        return row | {"batch": int(found["global_batch_size"])}
    data, accumulate = int(found["dp"]), int(found["batch_accumulation_per_replica"])
    return {
        "tensor": int(found["tp"]),
        "pipeline": int(found["pp"]),
        "data": data,
        "batch": data * accumulate * int(found["micro_batch_size"]),
    }


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("devices", [64, 256])
@pytest.mark.parametrize("name", MODELS)
def test_sizes_agree_or_the_reason_is_given(name: str, devices: int, framework: str) -> None:
    if (name, framework) in REFUSED:
        with pytest.raises(CannotExpress, match=REFUSED[name, framework]):
            _files(name, devices, framework)
        return
    files, wanted = _files(name, devices, framework)
    stated = _stated(framework, files)
    assert stated == {key: (wanted | {"batch": BATCH})[key] for key in stated}
    assert len(files["ranks.csv"].splitlines()) == devices + 1
    slots = [int(line.split("slots=")[1]) for line in files["hostfile"].splitlines()]
    assert sum(slots) == devices
    if "launch.sh" in files:
        assert f"--nnodes {devices // 8} --nproc-per-node 8" in files["launch.sh"]
