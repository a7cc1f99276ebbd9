"""What a user runs today: Megatron argument lines and torchtitan job files as plans.

A file is read by its framework's rules (interop of degrees, batch and layers), then laid on a
cluster as the framework would: rank R on the R-th alive device.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError
from nestopt.interop.launch.architecture import transformer_of_megatron
from nestopt.interop.launch.arguments import number, parse_line
from nestopt.interop.launch.launched import Launched
from nestopt.interop.launch.reading_torchtitan import read_torchtitan
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.transformer import expand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.transformer import Transformer
    from nestopt.placement.model.workload import Workload

__all__ = ["plan_of", "read_launch", "workload_of"]


def read_launch(
    text: str, file: str, world: int | None = None, given: Mapping[str, str] | None = None
) -> Launched:
    """The job of a Megatron argument line, a script that holds one, or a torchtitan TOML.

    Parameters
    ----------
    world : int, optional
        Processes, where the file does not say (``--nnodes`` and ``--nproc-per-node``).
    given : dict of str to str, optional
        Shell variables of a script that it does not know or that shall have other values.

    Raises
    ------
    InputError
        Naming the argument that breaks a rule of its framework, or that is missing.
    """
    if re.search(r"(?m)^\s*\[parallelism\]", text):
        return read_torchtitan(text, file, world)
    args, others = parse_line(text, file, given)
    if "num-layers" not in args:
        raise InputError(
            "holds no --num-layers and no [parallelism] table; expected a Megatron argument line "
            "or a torchtitan job file",
            file=file,
        )
    try:
        return _megatron(args, others, file, world)
    except InputError as error:
        if error.file is None:
            raise InputError(str(error), file=file) from error
        raise


def _megatron(
    args: dict[str, Any], others: tuple[str, ...], file: str, world: int | None
) -> Launched:
    foreign = [key for key in others if key in _FOREIGN]
    if foreign:
        raise InputError(
            "the model is no stack of equal attention and feed-forward blocks, so it is not in the "
            "workload",
            field=f"--{foreign[0]}",
        )
    model = transformer_of_megatron(args)
    tensor, pipeline, context, expert = (
        number(args, f"{name}-model-parallel-size", 1) or 1
        for name in ("tensor", "pipeline", "context", "expert")
    )
    context = number(args, "context-parallel-size", 1) or 1
    world = _world(args, world)
    _degrees(args, model, (tensor, pipeline, context, expert), world)
    data = world // (tensor * pipeline * context)
    microbatch = number(args, "micro-batch-size", 0)
    if microbatch < 1:
        raise InputError("is missing", field="--micro-batch-size")
    batch = number(args, "global-batch-size", microbatch * data)
    if batch % (microbatch * data):
        raise InputError(
            f"{batch} is no multiple of --micro-batch-size {microbatch} times {data} data-parallel "
            "ranks",
            field="--global-batch-size",
        )
    layers, virtual = _layers(args, model.layers, pipeline)
    remarks = [f"--{key} is not priced" for key in others if key in _NOTABLE]
    recompute = _recompute(args, remarks)
    remarks += _silent(args, others)
    return Launched(
        name=re.sub(r"\.\w+$", "", file.rpartition("/")[2]),
        framework="megatron",
        model=model,
        arguments=args,
        batch=batch,
        microbatch=microbatch,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=expert,
        data=data,
        shard=1,
        virtual=virtual,
        schedule="interleaved" if virtual > 1 else "1f1b",
        recompute=recompute,
        sequence_parallel=bool(args.get("sequence-parallel")) and tensor > 1,
        zero=_zero(args),
        layers=layers,
        pipeline_before_data=bool(args.get("use-tp-pp-dp-mapping")),
        remarks=tuple(remarks),
    )


_NOTABLE = {
    "cpu-offloading", "cpu-optimizer", "optimizer-cpu-offload", "fp8-format", "fp8-hybrid",
    "fp8-e4m3", "fp4-format", "mtp-num-layers", "use-precision-aware-optimizer",
    "encoder-num-layers", "decoder-num-layers", "moe-expert-capacity-factor", "window-size",
}  # fmt: skip
"""Arguments outside the plan model that change the time or the memory."""

_FOREIGN = {
    "hybrid-override-pattern", "hybrid-layer-pattern", "is-hybrid-model", "hybrid-attention-ratio",
    "heterogeneous-layers-config-path", "heterogeneous-layers-config-encoded-json",
    "experimental-attention-variant", "linear-attention-freq", "encoder-seq-length",
}  # fmt: skip
"""Arguments of models that the workload has no words for."""


def _silent(args: Mapping[str, Any], others: tuple[str, ...]) -> list[str]:
    """Remarks on what the line leaves open, and on what was read past."""
    found = []
    if not args.get("bf16") and not args.get("fp16"):
        found.append("neither --bf16 nor --fp16: single precision, priced as half precision")
    if "attention-backend" not in args and "use-flash-attn" not in args:
        found.append(
            "no --attention-backend: priced with an attention that stores its scores (add "
            "--attention-backend auto if your version fuses it)"
        )
    if "vocab-size" not in args and "padded-vocab-size" not in args:
        found.append("no --vocab-size (the tokenizer has it): priced with GPT-2's 50,257 words")
    variables = [key for key in others if re.fullmatch(r"\$\{?\w+(\[[@*]\])?\}?", key)]
    if variables:
        found.append(f"{', '.join(variables)} may hold arguments; give it with --set NAME=VALUE")
    rest = [f"--{key}" for key in others if not key.startswith("$") and key not in _NOTABLE]
    if rest:
        found.append(f"read past, as arguments without weight or unknown ones: {', '.join(rest)}")
    return found


def _world(args: Mapping[str, Any], world: int | None) -> int:
    if world is not None and args.get("nproc-per-node") in ("gpu", "auto"):
        return world
    nodes, per_node = number(args, "nnodes", 0), number(args, "nproc-per-node", 0)
    stated = number(args, "world-size", 0) or nodes * per_node
    if world is None and not stated:
        raise InputError(
            "the line does not say how many processes there are; give --world, or --nnodes and "
            "--nproc-per-node in it"
        )
    if world is not None and stated and world != stated:
        raise InputError(
            f"{world} processes asked for, but the line starts {stated} (a variable of a script "
            "gets another value with --set NAME=VALUE)"
        )
    return world or stated


def _degrees(
    args: Mapping[str, Any], model: Transformer, degrees: tuple[int, int, int, int], world: int
) -> None:
    """Megatron's rules of degrees."""
    tensor, pipeline, context, expert = degrees
    expert_tensor = number(args, "expert-tensor-parallel-size", tensor) or tensor
    rules = [
        (world % (tensor * pipeline * context) == 0, "tensor-model-parallel-size",
         f"tensor {tensor} x pipeline {pipeline} x context {context} do not divide {world} ranks"),
        (model.heads % tensor == 0, "tensor-model-parallel-size",
         f"{tensor} does not divide {model.heads} attention heads"),
        (model.key_heads % tensor == 0, "tensor-model-parallel-size",
         f"{tensor} does not divide {model.key_heads} query groups"),
        (model.inner % tensor == 0, "tensor-model-parallel-size",
         f"{tensor} does not divide the feed-forward width {model.inner}"),
        (context == 1 or model.sequence % (2 * context) == 0, "context-parallel-size",
         f"sequence {model.sequence} is no multiple of twice {context}"),
        (expert == 1 or model.experts > 0, "expert-model-parallel-size",
         f"{expert}, but the model has no experts"),
        (not model.experts or model.experts % expert == 0, "expert-model-parallel-size",
         f"{expert} does not divide {model.experts} experts"),
        (world % (expert_tensor * expert * pipeline) == 0, "expert-model-parallel-size",
         f"expert tensor {expert_tensor} x expert {expert} x pipeline {pipeline} do not divide "
         f"{world} ranks"),
        (not model.experts or expert_tensor == tensor, "expert-tensor-parallel-size",
         f"{expert_tensor}; a plan splits experts over tensor ranks as the rest ({tensor})"),
    ]  # fmt: skip
    for holds, key, message in rules:
        if not holds:
            raise InputError(message, field=f"--{key}")
    data = world // (tensor * pipeline * context)
    if data % expert:
        raise InputError(
            f"{expert} does not divide {data} data-parallel ranks; expert groups folded over "
            "context ranks are no groups of a plan",
            field="--expert-model-parallel-size",
        )


def _layers(args: Mapping[str, Any], total: int, pipeline: int) -> tuple[tuple[int, ...], int]:
    """Blocks of each pipeline rank, and chunks."""
    text = args.get("pipeline-model-parallel-layout")
    if text is not None:
        return _layout(str(text), total, pipeline)
    first = number(args, "decoder-first-pipeline-num-layers", 0)
    last = number(args, "decoder-last-pipeline-num-layers", 0)
    extra = bool(args.get("account-for-embedding-in-pipeline-split"))
    extra_last = bool(args.get("account-for-loss-in-pipeline-split"))
    if first or last:
        inner = pipeline - bool(first) - bool(last)
        rest = total - first - last
        if inner < 1 or rest % inner:
            raise InputError(
                f"{rest} layers do not divide over {inner} stages",
                field="--decoder-first-pipeline-num-layers",
            )
        counts = [first] * bool(first) + [rest // inner] * inner + [last] * bool(last)
    else:
        if (total + extra + extra_last) % pipeline:
            raise InputError(
                f"{pipeline} does not divide {total + extra + extra_last} layers",
                field="--pipeline-model-parallel-size",
            )
        counts = [(total + extra + extra_last) // pipeline] * pipeline
        counts[0] -= extra
        counts[-1] -= extra_last
    each = number(args, "num-layers-per-virtual-pipeline-stage", 0)
    virtual = number(args, "num-virtual-stages-per-pipeline-rank", 1) or 1
    if each:
        if counts[0] % each:
            raise InputError(
                f"{each} does not divide {counts[0]} layers a stage",
                field="--num-layers-per-virtual-pipeline-stage",
            )
        virtual = counts[0] // each
    return tuple(counts), virtual


def _layout(text: str, total: int, pipeline: int) -> tuple[tuple[int, ...], int]:
    where = "--pipeline-model-parallel-layout"
    # repeated groups: (tt|)*3 stands for tt|tt|tt|
    group = re.compile(r"\(([^()]*)\)\*(\d+)")
    while (match := group.search(text)) is not None:
        if int(match[2]) * len(match[1]) > 100_000:
            raise InputError("is too long", field=where)
        text = text[: match.start()] + match[1] * int(match[2]) + text[match.end() :]
    counts = []
    for piece in text.replace(",", "").split("|"):
        left = piece.removeprefix("E").removesuffix("L")
        count = 0
        for token in re.findall(r"t\*\d+|t|.", left):
            if token == "t":
                count += 1
            elif token.startswith("t*"):
                count += int(token[2:])
            else:
                raise InputError(f"{piece!r}; expected E, t, t*N and L", field=where)
        counts.append(count)
    if len(counts) % pipeline:
        raise InputError(f"{len(counts)} stages on {pipeline} pipeline ranks", field=where)
    if sum(counts) != total:
        raise InputError(f"holds {sum(counts)} layers; the model has {total}", field=where)
    virtual = len(counts) // pipeline
    ranks = tuple(sum(counts[stage::pipeline]) for stage in range(pipeline))
    for stage in range(pipeline):
        if len(set(counts[stage::pipeline])) > 1:
            raise InputError(
                f"pipeline rank {stage} has chunks of {counts[stage::pipeline]} layers; the chunks "
                "of a plan's stage are alike",
                field=where,
            )
    return ranks, virtual


def _zero(args: Mapping[str, Any]) -> int:
    if args.get("use-megatron-fsdp") or args.get("use-custom-fsdp"):
        strategy = str(args.get("data-parallel-sharding-strategy", "optim_grads_params"))
        stages = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
        if strategy not in stages:
            raise InputError(
                f"{strategy!r}; expected {', '.join(stages)}",
                field="--data-parallel-sharding-strategy",
            )
        return stages[strategy]
    if args.get("use-torch-fsdp2"):
        return 3
    stage = number(args, "zero-stage", 0)
    if stage > 3:
        raise InputError(f"{stage}; expected 0 to 3", field="--zero-stage")
    if stage:
        return stage
    return 1 if args.get("use-distributed-optimizer") else 0


def _recompute(args: Mapping[str, Any], remarks: list[str]) -> str:
    granularity = args.get("recompute-granularity")
    if args.get("recompute-all") or ("recompute-method" in args and not granularity):
        # before Megatron had granularities, a method stood for whole layers
        granularity = granularity or "full"
    if args.get("recompute-activations"):
        granularity = granularity or "selective"
    if granularity in (None, "None"):
        return "none"
    if granularity not in ("selective", "full"):
        raise InputError(
            f"{granularity!r}; expected selective or full", field="--recompute-granularity"
        )
    layers = number(args, "recompute-num-layers", 1)
    if granularity == "full" and layers != 1:
        remarks.append(
            f"--recompute-method {args.get('recompute-method')} of {layers} layers is priced as "
            "recomputation of every layer"
        )
    return str(granularity)


def workload_of(job: Launched) -> Workload:
    """The workload that a launched job trains."""
    return expand(job.name, job.model, job.batch)


def plan_of(job: Launched, cluster: Cluster) -> Plan:
    """The job's plan on a cluster: rank R on the R-th alive device.

    Raises
    ------
    InputError
        If the cluster has fewer alive devices than the job has ranks.
    """
    alive = cluster.alive
    if len(alive) < job.world:
        raise InputError(f"{job.world} ranks, but {cluster.name} has {len(alive)} alive devices")
    config = StageConfig(
        tensor=(1, job.tensor, job.shard),
        context=job.context,
        expert=job.expert,
        sequence_parallel=job.sequence_parallel,
        zero=job.zero,
        recompute=job.recompute,
    )
    replicas = job.data // (job.expert * job.shard)
    # ranks by (stage, replica, expert, shard, context, tensor)
    order = np.arange(job.world)
    block = job.tensor * job.context
    if job.pipeline_before_data:
        ranks = order.reshape(job.data, job.pipeline, block).swapaxes(0, 1)
    else:
        ranks = order.reshape(job.pipeline, job.data, block)
    ranks = ranks.reshape(job.pipeline, replicas, job.expert, job.shard, job.context, job.tensor)
    # a plan's place in a replica: expert, context, shard, tensor, the last one fastest
    places = ranks.transpose(0, 1, 2, 4, 3, 5).reshape(job.pipeline, replicas, -1)
    stages = []
    operator = 0
    for stage, count in enumerate(job.layers):
        first, last = stage == 0, stage == job.pipeline - 1
        size = count + first + (last and job.model.head)
        stages.append(Stage(tuple(range(operator, operator + size)), config, alive[places[stage]]))
        operator += size
    schedule: Any = job.schedule
    return replace(
        Plan(tuple(stages), replicas, job.microbatch * job.expert * job.shard),
        schedule=schedule,
        chunks=job.virtual,
    )
