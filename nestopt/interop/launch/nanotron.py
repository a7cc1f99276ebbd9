"""Nanotron: the job's YAML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.interop.launch.hosts import host_files, launcher
from nestopt.interop.launch.job import CannotExpress

if TYPE_CHECKING:
    from nestopt.interop.launch.job import Job

__all__ = ["write_nanotron"]


def _refusals(job: Job) -> tuple[str, ...]:
    found = []
    if not job.model.gated or job.model.biases:
        found.append("its models are Llama-like: gated, without biases")
    if job.zero > 1 or job.shard > 1:
        found.append("it has ZeRO-0 and 1")
    if job.model.experts:
        found.append("its Llama-like models have no experts")
    if job.schedule not in ("1f1b", "gpipe"):
        found.append(f"it has no schedule {job.schedule}")
    if job.recompute == "selective":
        found.append("it has no selective recomputation")
    if job.pipeline > 1 and not job.even:
        found.append("it cuts a pipeline by its own costs of blocks; uneven stages have no words")
    return tuple(found)


def write_nanotron(job: Job) -> dict[str, str]:
    """Files of a Nanotron job by name: ``config.yaml``, the script, hosts and ranks.

    Raises
    ------
    CannotExpress
        Naming what Nanotron has no words for.
    """
    reasons = _refusals(job)
    if reasons:
        raise CannotExpress("Nanotron", reasons)
    model = job.model
    sections: dict[str, dict[str, Any]] = {
        "parallelism": {
            "dp": job.data,
            "pp": job.pipeline,
            "tp": job.tensor,
            "context_parallel_size": job.context,
            "pp_engine": {"1f1b": "1f1b", "gpipe": "afab"}[job.schedule],
            "tp_mode": "REDUCE_SCATTER" if job.sequence_parallel else "ALL_REDUCE",
            "tp_linear_async_communication": False,
            "recompute_layer": job.recompute == "full",
        },
        "tokens": {
            "sequence_length": model.sequence,
            "micro_batch_size": job.microbatch,
            "batch_accumulation_per_replica": job.microbatches,
        },
        "optimizer": {"zero_stage": job.zero},
    }
    config = {
        "is_llama_config": True,
        "hidden_size": model.hidden,
        "intermediate_size": model.inner,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.key_heads,
        "vocab_size": model.vocabulary,
        "max_position_embeddings": model.sequence,
        "tie_word_embeddings": model.tied,
    }
    lines = []
    for section, rows in sections.items():
        lines += [f"{section}:", *(f"  {key}: {_yaml(value)}" for key, value in rows.items())]
    lines += ["model:", "  model_config:"]
    lines += [f"    {key}: {_yaml(value)}" for key, value in config.items()]
    script = (
        "#!/usr/bin/env bash\nset -euo pipefail\n"
        'ARGS="--config-file $(dirname "$0")/config.yaml ${EXTRA_ARGS:-}"\n'
        + launcher(job, "run_train.py")
    )
    return {"config.yaml": "\n".join(lines) + "\n", "launch.sh": script, **host_files(job)}


def _yaml(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
