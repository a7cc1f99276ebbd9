"""Megatron-LM and Megatron Bridge: arguments, pipeline layout, overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.interop.launch.architecture import megatron_architecture
from nestopt.interop.launch.arguments import as_line
from nestopt.interop.launch.hosts import host_files, launcher
from nestopt.interop.launch.job import CannotExpress

if TYPE_CHECKING:
    from nestopt.interop.launch.job import Job

__all__ = ["PARALLEL", "layout", "megatron_arguments", "write_bridge", "write_megatron"]

PARALLEL = (
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
    "expert-model-parallel-size",
    "expert-tensor-parallel-size",
    "sequence-parallel",
    "micro-batch-size",
    "global-batch-size",
    "num-layers-per-virtual-pipeline-stage",
    "pipeline-model-parallel-layout",
    "use-distributed-optimizer",
    "use-megatron-fsdp",
    "data-parallel-sharding-strategy",
    "recompute-granularity",
    "recompute-method",
    "recompute-num-layers",
)
"""The arguments that say how a job is split, in the order in which they are written."""


def layout(job: Job) -> str | None:
    """``--pipeline-model-parallel-layout``: None where an even split needs no layout.

    Virtual stages in order; E is the embedding, t a layer, L the loss: ``Et*7|t*9|t*9|t*7L``.
    """
    if job.even and job.layers[0] > 0:
        return None
    pieces = []
    for chunk in range(job.virtual):
        for stage, count in enumerate(job.layers):
            here = count // job.virtual
            piece = "t" if here == 1 else f"t*{here}" if here else ""
            if chunk == stage == 0:
                piece = "E" + piece
            if chunk == job.virtual - 1 and stage == job.pipeline - 1:
                piece += "L"
            pieces.append(piece)
    return "|".join(pieces)


def _refusals(job: Job) -> tuple[str, ...]:
    found = []
    if job.schedule == "gpipe":
        found.append("it has no GPipe schedule (1F1B or interleaved)")
    if job.schedule not in ("1f1b", "gpipe", "interleaved"):
        found.append(f"it has no schedule {job.schedule}")
    if not job.even or job.layers[0] == 0:
        inner = [0 < stage < job.pipeline - 1 for stage in range(job.pipeline)]
        empty = [q for q, count in enumerate(job.layers) if count == 0 and inner[q]]
        if empty:
            found.append(f"stage {empty[0]} has no layer")
    if job.shard > 1 and job.pipeline > 1:
        found.append(f"its FSDP (a shard group of {job.shard}) has no pipeline")
    if job.zero in (2, 3) and job.pipeline > 1:
        found.append(f"ZeRO-{job.zero} is its FSDP, which has no pipeline")
    if job.expert > 1 and job.context > 1:
        found.append(
            "its expert groups are folded over context ranks: expert and context above 1 are other "
            "groups than the plan's"
        )
    return tuple(found)


def megatron_arguments(job: Job) -> dict[str, Any]:
    """Megatron-LM's arguments of a job, without dashes; True for a flag.

    Raises
    ------
    CannotExpress
        Naming what Megatron-LM has no words for.
    """
    reasons = _refusals(job)
    if reasons:
        raise CannotExpress("Megatron-LM", reasons)
    args = megatron_architecture(job.model)
    args |= {
        "tensor-model-parallel-size": job.tensor,
        "pipeline-model-parallel-size": job.pipeline,
        "context-parallel-size": job.context,
        "micro-batch-size": job.microbatch,
        "global-batch-size": job.batch,
    }
    if job.model.experts:
        args |= {
            "expert-model-parallel-size": job.expert,
            "expert-tensor-parallel-size": job.tensor,
        }
    if job.sequence_parallel:
        args["sequence-parallel"] = True
    described = layout(job)
    if described is not None:
        args["pipeline-model-parallel-layout"] = described
    elif job.virtual > 1:
        args["num-layers-per-virtual-pipeline-stage"] = job.layers[0] // job.virtual
    if job.zero == 1 and job.shard == 1:
        args["use-distributed-optimizer"] = True
    elif job.zero > 1 or job.shard > 1:
        strategy = "optim_grads" if job.zero == 2 else "optim_grads_params"
        args |= {
            "use-distributed-optimizer": True,
            "use-megatron-fsdp": True,
            "data-parallel-sharding-strategy": strategy,
        }
    if job.recompute == "selective":
        args["recompute-granularity"] = "selective"
    elif job.recompute == "full":
        args |= {
            "recompute-granularity": "full",
            "recompute-method": "uniform",
            "recompute-num-layers": 1,
        }
    return args


def write_megatron(job: Job) -> dict[str, str]:
    """Files of a Megatron-LM job by name: the script, its arguments, hosts and ranks."""
    args = megatron_arguments(job)
    script = (
        "#!/usr/bin/env bash\n"
        f"# {job.name}: {job.world} ranks on {len(job.nodes)} nodes; data, tokenizer, rates\n"
        "# and checkpoints are yours to add\n"
        "set -euo pipefail\n"
        'ARGS="$(tr "\\n" " " < "$(dirname "$0")/arguments.txt") ${EXTRA_ARGS:-}"\n'
        + launcher(job, "pretrain_gpt.py")
    )
    return {
        "launch.sh": script,
        "arguments.txt": "\n".join(as_line(args)) + "\n",
        **host_files(job),
    }


_BRIDGE = {
    "num-layers": "model.num_layers",
    "hidden-size": "model.hidden_size",
    "ffn-hidden-size": "model.ffn_hidden_size",
    "num-attention-heads": "model.num_attention_heads",
    "num-query-groups": "model.num_query_groups",
    "kv-channels": "model.kv_channels",
    "seq-length": "model.seq_length",
    "vocab-size": "model.vocab_size",
    "num-experts": "model.num_moe_experts",
    "moe-router-topk": "model.moe_router_topk",
    "moe-ffn-hidden-size": "model.moe_ffn_hidden_size",
    "moe-shared-expert-intermediate-size": "model.moe_shared_expert_intermediate_size",
    "tensor-model-parallel-size": "model.tensor_model_parallel_size",
    "pipeline-model-parallel-size": "model.pipeline_model_parallel_size",
    "context-parallel-size": "model.context_parallel_size",
    "expert-model-parallel-size": "model.expert_model_parallel_size",
    "expert-tensor-parallel-size": "model.expert_tensor_parallel_size",
    "pipeline-model-parallel-layout": "model.pipeline_model_parallel_layout",
    "recompute-granularity": "model.recompute_granularity",
    "recompute-method": "model.recompute_method",
    "recompute-num-layers": "model.recompute_num_layers",
    "micro-batch-size": "train.micro_batch_size",
    "global-batch-size": "train.global_batch_size",
    "data-parallel-sharding-strategy": "ddp.data_parallel_sharding_strategy",
}


def write_bridge(job: Job) -> dict[str, str]:
    """Files of a Megatron Bridge job: overrides (YAML), hosts and ranks."""
    args = megatron_arguments(job)
    rows = {_BRIDGE[key]: value for key, value in args.items() if key in _BRIDGE}
    rows["dataset.sequence_length"] = job.model.sequence
    rows["model.sequence_parallel"] = job.sequence_parallel
    if job.virtual > 1:
        rows["model.virtual_pipeline_model_parallel_size"] = job.virtual
    rows["ddp.use_distributed_optimizer"] = "use-distributed-optimizer" in args
    if "use-megatron-fsdp" in args:
        rows["ddp.use_megatron_fsdp"] = True
    groups: dict[str, list[str]] = {}
    for key, value in rows.items():
        section, _, name = key.partition(".")
        groups.setdefault(section, []).append(f"  {name}: {_yaml(value)}")
    text = "".join(f"{section}:\n" + "\n".join(lines) + "\n" for section, lines in groups.items())
    script = (
        "#!/usr/bin/env bash\nset -euo pipefail\n"
        'ARGS="--config-file $(dirname "$0")/overrides.yaml ${EXTRA_ARGS:-}"\n'
        + launcher(job, "run_recipe.py")
    )
    return {"overrides.yaml": text, "launch.sh": script, **host_files(job)}


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)
