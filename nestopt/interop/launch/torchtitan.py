"""torchtitan: a configuration module (0.3 and later) and the job's TOML (before).

Since 0.3 torchtitan is configured by Python functions (``--module M --config F``). The file
``job_config.py`` holds one that changes the flavour's own; ``job.toml`` says the same to earlier
versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nestopt.core.registry import transformers
from nestopt.interop.launch.hosts import host_files, launcher
from nestopt.interop.launch.job import CannotExpress

if TYPE_CHECKING:
    from nestopt.interop.launch.job import Job
    from nestopt.placement.model.transformer import Transformer

__all__ = ["FLAVOURS", "write_torchtitan"]

FLAVOURS = {
    "llama3-8b": ("llama3", "8B"),
    "llama3-70b": ("llama3", "70B"),
    "llama3-405b": ("llama3", "405B"),
    "deepseek-v3-like": ("deepseek_v3", "671B"),
}
"""torchtitan's model and flavour of an architecture of the library."""

_WEIGHTS = (
    "layers", "hidden", "heads", "key_heads", "inner", "gated", "biases", "tied",
    "experts", "top_k", "shared_experts", "expert_ffn", "dense_layers",
)  # fmt: skip
"""What two models with the same weights agree in, but for the vocabulary, which is padded."""


def _flavour(model: Transformer) -> tuple[str, str] | None:
    """The flavour with a model's weights; None if there is none."""
    known = transformers()
    for name, flavour in FLAVOURS.items():
        other = known[name]
        same = all(getattr(other, field) == getattr(model, field) for field in _WEIGHTS)
        if same and 0 <= model.vocabulary - other.vocabulary <= other.vocabulary // 50:
            return flavour
    return None


_SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "interleaved": "Interleaved1F1B"}


def _refusals(job: Job, flavour: tuple[str, str] | None) -> tuple[str, ...]:
    model = job.model
    found = []
    if flavour is None:
        kind = f"{model.experts} experts" if model.experts else f"feed-forward {model.inner}"
        found.append(
            f"it has no flavour of {model.layers} layers, hidden {model.hidden}, {model.heads} "
            f"heads ({model.key_heads} of keys), {kind}, vocabulary {model.vocabulary}; known: "
            f"{', '.join(FLAVOURS)}; register one in its model's table"
        )
    if model.tied and job.pipeline > 1:
        found.append("it refuses tied embeddings with a pipeline")
    if job.tensor > 1 and not job.sequence_parallel:
        found.append("before 0.3 its tensor parallelism is always sequence parallel")
    if job.zero == 1:
        found.append("it has no ZeRO-1 (data_parallel_shard is ZeRO-2 or 3)")
    if job.schedule not in _SCHEDULES:
        found.append(f"no schedule {job.schedule} is written for it")
    if job.zero in (2, 3) and job.shard > 1:
        found.append(
            f"weights sharded over {job.shard} ranks and ZeRO-{job.zero} over the rest are two "
            "shardings; it has one"
        )
    if job.expert > 1 and job.context > 1:
        found.append("its expert groups are folded over context ranks")
    return tuple(found)


def write_torchtitan(job: Job) -> dict[str, str]:
    """Files of a torchtitan job by name: ``job.toml``, the script, hosts and ranks.

    Raises
    ------
    CannotExpress
        Naming what torchtitan has no words for.
    """
    chosen = _flavour(job.model)
    reasons = _refusals(job, chosen)
    if chosen is None or reasons:
        raise CannotExpress("torchtitan", reasons)
    name, flavour = chosen
    shard = job.data if job.zero in (2, 3) else job.shard
    local = job.microbatch * (job.microbatches if job.pipeline > 1 else 1)
    parallel = [
        f"data_parallel_replicate_degree = {job.data // shard}",
        f"data_parallel_shard_degree = {shard}",
        f"tensor_parallel_degree = {job.tensor}",
        f"context_parallel_degree = {job.context}",
        f"pipeline_parallel_degree = {job.pipeline}",
        f"expert_parallel_degree = {job.expert}",
    ]
    if job.model.experts:
        parallel.append(f"expert_tensor_parallel_degree = {job.tensor}")
    if shard > 1:
        keep = "never" if job.zero == 2 else "always"
        parallel.append(f'fsdp_reshard_after_forward = "{keep}"')
    if job.pipeline > 1:
        parts = ",\n".join(
            "  [" + ", ".join(f'"{module}"' for module in part) + "]" for part in _parts(job)
        )
        parallel += [
            f'pipeline_parallel_schedule = "{_SCHEDULES[job.schedule]}"',
            f"pipeline_parallel_microbatch_size = {job.microbatch}",
            f"module_fqns_per_model_part = [\n{parts},\n]",
        ]
    mode = {"none": "none", "selective": "selective", "full": "full"}[job.recompute]
    sections = {
        "model": [f'name = "{name}"', f'flavor = "{flavour}"'],
        "training": [
            f"seq_len = {job.model.sequence}",
            f"local_batch_size = {local}",
            f"global_batch_size = {job.batch}",
        ],
        "parallelism": parallel,
        "activation_checkpoint": [f'mode = "{mode}"'],
    }
    text = "\n".join(
        f"[{section}]\n" + "\n".join(lines) + "\n" for section, lines in sections.items()
    )
    script = (
        "#!/usr/bin/env bash\nset -euo pipefail\n"
        'export PYTHONPATH="$(cd "$(dirname "$0")" && pwd):${PYTHONPATH:-}"\n'
        '# before torchtitan 0.3: ARGS="--job.config_file job.toml"\n'
        'ARGS="--module job_config --config job ${EXTRA_ARGS:-}"\n'
        + launcher(job, "-m torchtitan.train")
    )
    return {
        "job.toml": text,
        "job_config.py": _module(job, chosen, parallel, local),
        "launch.sh": script,
        **host_files(job),
    }


def _module(job: Job, chosen: tuple[str, str], parallel: list[str], local: int) -> str:
    """The Python module of a job: the flavour's configuration with the plan's degrees."""
    name, flavour = chosen
    function = f"{name}_{flavour.lower()}"
    kept = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}
    body = [f"parallel.{row}" for row in parallel if not row.startswith("expert_tensor")]
    if job.tensor > 1:
        body.append(f"parallel.enable_sequence_parallel = {job.sequence_parallel}")
    if job.pipeline > 1:
        # its CUDA graphs have no pipeline
        body.append("config.training.disable_cuda_graphs = True")
    text = "\n".join(body).replace("\n", "\n    ")
    return f'''"""{job.name}: {job.world} ranks."""

from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC
from torchtitan.models.{name}.config_registry import {function} as flavour


def job():
    """The flavour's configuration with the plan's degrees, batch and recomputation."""
    config = flavour()
    config.training.seq_len = {job.model.sequence}
    config.training.local_batch_size = {local}
    config.training.global_batch_size = {job.batch}
    config.activation_checkpoint = {kept[job.recompute]}
    parallel = config.parallelism
    {text}
    return config
'''


def _parts(job: Job) -> list[list[str]]:
    """Modules of every virtual stage, chunk by chunk."""
    parts: list[list[str]] = []
    layer = 0
    for chunk in range(job.virtual):
        for stage, count in enumerate(job.layers):
            part = ["tok_embeddings"] if chunk == stage == 0 else []
            for _ in range(count // job.virtual):
                part.append(f"layers.{layer}")
                layer += 1
            if chunk == job.virtual - 1 and stage == job.pipeline - 1:
                part += ["norm", "output"]
            parts.append(part)
    return parts
