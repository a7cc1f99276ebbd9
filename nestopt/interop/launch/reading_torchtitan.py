"""torchtitan's job file as a launched job."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

from nestopt.core.errors import InputError
from nestopt.core.registry import transformers
from nestopt.interop.launch.launched import Launched

__all__ = ["read_torchtitan"]

_MODELS = {
    ("llama3", "8B"): "llama3-8b",
    ("llama3", "70B"): "llama3-70b",
    ("llama3", "405B"): "llama3-405b",
}
_SCHEDULES = {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved"}


def read_torchtitan(text: str, file: str, world: int | None) -> Launched:
    """Read a job file; see `nestopt.interop.launch.reading.read_launch`."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {error}", file=file) from error
    model_row, training = _table(data, "model", file), _table(data, "training", file)
    parallel = _table(data, "parallelism", file)
    key = (str(model_row.get("name")), str(model_row.get("flavor")))
    if key not in _MODELS:
        known = ", ".join(f"{name} {flavour}" for name, flavour in _MODELS)
        raise InputError(
            f"{key[0]} {key[1]} is no model that is known here; known: {known}",
            file=file,
            field="model.flavor",
        )
    model = replace(
        transformers()[_MODELS[key]], sequence=_count(training, "seq_len", "training", file)
    )
    degree = {
        name: _count(parallel, f"{name}_degree", "parallelism", file, 1)
        for name in ("data_parallel_replicate", "tensor_parallel", "context_parallel",
                     "pipeline_parallel", "expert_parallel")
    }  # fmt: skip
    fixed = (
        degree["data_parallel_replicate"] * degree["tensor_parallel"]
        * degree["context_parallel"] * degree["pipeline_parallel"]
    )  # fmt: skip
    shard = parallel.get("data_parallel_shard_degree", -1)
    if shard == -1:
        if world is None:
            raise InputError(
                "-1 takes all that is left; give --world", file=file,
                field="parallelism.data_parallel_shard_degree",
            )  # fmt: skip
        if world % fixed:
            raise InputError(
                f"the other degrees ({fixed}) do not divide {world} ranks", file=file,
                field="parallelism",
            )  # fmt: skip
        shard = world // fixed
    if not isinstance(shard, int) or isinstance(shard, bool) or shard < 1:
        raise InputError(
            f"{shard!r}; expected -1 or a positive number", file=file,
            field="parallelism.data_parallel_shard_degree",
        )  # fmt: skip
    if world is not None and world != fixed * shard:
        raise InputError(
            f"degrees make {fixed * shard} ranks, not {world}", file=file, field="parallelism"
        )
    data_ranks = degree["data_parallel_replicate"] * shard
    pipeline = degree["pipeline_parallel"]
    local = _count(training, "local_batch_size", "training", file)
    batch = training.get("global_batch_size", -1)
    if batch in (-1, None):
        batch = local * data_ranks
    micro = _count(parallel, "pipeline_parallel_microbatch_size", "parallelism", file, 1)
    micro = micro if pipeline > 1 else local
    if not isinstance(batch, int) or batch % (micro * data_ranks):
        raise InputError(
            f"{batch} is no multiple of {micro} sequences on {data_ranks} data-parallel ranks",
            file=file,
            field="training.global_batch_size",
        )
    layers, virtual = _parts(parallel, model.layers, pipeline, file)
    reshard = parallel.get("fsdp_reshard_after_forward", "default")
    keeps = reshard == "never" or (reshard == "default" and pipeline > 1)
    zero = 0 if shard == 1 else 2 if keeps else 3
    hybrid = shard > 1 and degree["data_parallel_replicate"] > 1
    schedule = str(parallel.get("pipeline_parallel_schedule", "1F1B")).lower()
    if schedule not in _SCHEDULES:
        raise InputError(
            f"{schedule!r}; known here: 1F1B, GPipe, Interleaved1F1B", file=file,
            field="parallelism.pipeline_parallel_schedule",
        )  # fmt: skip
    recompute = str(data.get("activation_checkpoint", {}).get("mode", "none"))
    if recompute not in ("none", "selective", "full"):
        raise InputError(
            f"{recompute!r}; expected none, selective or full", file=file,
            field="activation_checkpoint.mode",
        )  # fmt: skip
    remarks = ("sharding inside replicated groups is priced as AxoNN's Z axis",) if hybrid else ()
    return Launched(
        name=_MODELS[key], framework="torchtitan", model=model, arguments=dict(parallel),
        batch=batch, microbatch=micro, tensor=degree["tensor_parallel"], pipeline=pipeline,
        context=degree["context_parallel"], expert=degree["expert_parallel"], data=data_ranks,
        shard=shard if hybrid else 1, virtual=virtual,
        schedule=_SCHEDULES[schedule] if virtual == 1 else "interleaved", recompute=recompute,
        sequence_parallel=degree["tensor_parallel"] > 1, zero=1 if hybrid else zero,
        layers=layers, pipeline_before_data=False, remarks=remarks,
    )  # fmt: skip


def _table(data: dict[str, Any], name: str, file: str) -> dict[str, Any]:
    value = data.get(name)
    if not isinstance(value, dict):
        raise InputError("is missing", file=file, field=f"[{name}]")
    return value


def _count(row: dict[str, Any], key: str, table: str, file: str, default: int | None = None) -> int:
    value = row.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(
            f"{value!r}; expected a positive whole number", file=file, field=f"{table}.{key}"
        )
    return value


def _parts(
    parallel: dict[str, Any], total: int, pipeline: int, file: str
) -> tuple[tuple[int, ...], int]:
    """Blocks of each pipeline rank, and chunks."""
    parts = parallel.get("module_fqns_per_model_part")
    if parts is None:
        if total % pipeline:
            raise InputError(
                f"{total} layers on {pipeline} stages need module_fqns_per_model_part", file=file,
                field="parallelism.pipeline_parallel_degree",
            )  # fmt: skip
        return (total // pipeline,) * pipeline, 1
    where = "parallelism.module_fqns_per_model_part"
    if not isinstance(parts, list) or not all(isinstance(part, list) for part in parts):
        raise InputError("expected a list of lists of modules", file=file, field=where)
    counts = [sum(str(name).startswith("layers.") for name in part) for part in parts]
    if sum(counts) != total or len(counts) % pipeline:
        raise InputError(
            f"{len(counts)} parts with {sum(counts)} layers; the model has {total} on {pipeline} "
            "stages",
            file=file,
            field=where,
        )
    virtual = len(counts) // pipeline
    return tuple(sum(counts[stage::pipeline]) for stage in range(pipeline)), virtual
