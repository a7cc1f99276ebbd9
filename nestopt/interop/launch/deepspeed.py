"""DeepSpeed (with Megatron-DeepSpeed's model arguments): configuration and arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from nestopt.interop.launch.architecture import megatron_architecture
from nestopt.interop.launch.arguments import as_line
from nestopt.interop.launch.hosts import host_files, launcher
from nestopt.interop.launch.job import CannotExpress

if TYPE_CHECKING:
    from nestopt.interop.launch.job import Job
    from nestopt.placement.model.transformer import Transformer

__all__ = ["write_deepspeed"]


def _refusals(job: Job) -> tuple[str, ...]:
    found = []
    if job.zero >= 2 and job.pipeline > 1:
        found.append(f"it refuses ZeRO-{job.zero} with a pipeline")
    if job.shard > 1 and job.zero < 3:
        found.append(f"weights sharded over {job.shard} ranks without ZeRO-3")
    if job.pipeline > 1 and not job.even:
        shown = ", ".join(str(count) for count in job.layers)
        found.append(f"it cuts a pipeline evenly; this plan has {shown} layers a stage")
    if job.schedule != "1f1b":
        found.append(f"its pipeline is 1F1B, not {job.schedule}")
    if job.context > 1:
        found.append("its sequence parallelism (Ulysses) is not context parallelism by ring")
    if job.recompute == "selective":
        found.append("it has no selective recomputation")
    model = job.model
    if model.experts and (model.shared_experts or model.dense_layers):
        found.append("its experts are in every layer, without shared ones")
    if model.experts and model.expert_ffn not in (0, model.inner):
        found.append(f"its experts are as wide as the feed-forward ({model.inner})")
    if model.experts and model.top_k > 2:
        found.append(f"its gate chooses 1 or 2 experts, not {model.top_k}")
    return tuple(found)


_WORDS = {
    "group-query-attention": None,
    "num-query-groups": "num-key-value-heads",
    "position-embedding-type": None,
    "attention-backend": None,
    "moe-router-topk": "topk",
    "moe-ffn-hidden-size": None,
    "moe-grouped-gemm": None,
    "moe-token-dispatcher-type": None,
}
"""Megatron-DeepSpeed's names of Megatron-LM's arguments of a model; None where it has none."""


def _architecture(model: Transformer) -> dict[str, Any]:
    """Megatron-DeepSpeed's arguments of an architecture."""
    args = megatron_architecture(model)
    found = {_WORDS.get(key, key): value for key, value in args.items()}
    found.pop(None, None)
    if args.get("position-embedding-type") == "rope":
        found["use-rotary-position-embeddings"] = True
    if "normalization" in args:
        found["normalization"] = str(args["normalization"]).lower()
    if args.get("attention-backend") == "flash":
        found["use-flash-attn-v2"] = True
    return {str(key): value for key, value in found.items()}


def write_deepspeed(job: Job) -> dict[str, str]:
    """Files of a DeepSpeed job by name: ``ds_config.json``, arguments, script, hosts and ranks.

    Raises
    ------
    CannotExpress
        Naming what DeepSpeed has no words for.
    """
    reasons = _refusals(job)
    if reasons:
        raise CannotExpress("DeepSpeed", reasons)
    config: dict[str, Any] = {
        "train_batch_size": job.batch,
        "train_micro_batch_size_per_gpu": job.microbatch,
        "gradient_accumulation_steps": job.microbatches,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3 if job.shard > 1 else job.zero},
    }
    if job.shard > 1 and job.replicas * job.expert > 1:
        config["zero_optimization"]["zero_hpz_partition_size"] = job.shard
    args = _architecture(job.model) | {
        "tensor-model-parallel-size": job.tensor,
        "pipeline-model-parallel-size": job.pipeline,
        "micro-batch-size": job.microbatch,
        "global-batch-size": job.batch,
        "deepspeed": True,
        "deepspeed_config": "ds_config.json",
        "zero-stage": config["zero_optimization"]["stage"],
    }
    if job.pipeline == 1:
        args["no-pipeline-parallel"] = True
    if job.model.experts:
        args["moe-expert-parallel-size"] = job.expert
        if job.tensor > 1:
            args["enable-expert-tensor-parallelism"] = True
    if job.sequence_parallel:
        args["sequence-parallel"] = True
    if job.recompute == "full":
        args |= {"checkpoint-activations": True, "deepspeed-activation-checkpointing": True}
    script = (
        "#!/usr/bin/env bash\nset -euo pipefail\n"
        'cd "$(dirname "$0")"\nARGS="$(tr "\\n" " " < arguments.txt) ${EXTRA_ARGS:-}"\n'
        + launcher(job, "pretrain_gpt.py")
    )
    return {
        "ds_config.json": json.dumps(config, indent=2) + "\n",
        "arguments.txt": "\n".join(as_line(args)) + "\n",
        "launch.sh": script,
        **host_files(job),
    }
