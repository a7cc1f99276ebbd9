"""Whether a plan is one at all: operators, order, devices, divisibility, configurations.

``MODEL.md``, section 4. Memory is not judged here, since it needs the plan to be well formed.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import CheckError
from nestopt.placement.model.plan import Hides

if TYPE_CHECKING:
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan, Stage
    from nestopt.placement.model.workload import Workload

__all__ = ["check_structure"]


def check_structure(workload: Workload, cluster: Cluster, plan: Plan) -> list[str]:
    """Check everything about a plan but its memory and its objective.

    Returns
    -------
    list of str
        One line for each thing verified.

    Raises
    ------
    CheckError
        For the first thing that is wrong, with stage, device or operator.
    """
    return [
        _check_operators(workload, plan),
        _check_batch(workload, plan),
        _check_configurations(workload, plan),
        _check_devices(cluster, plan),
        _check_schedule(workload, plan),
    ]


def _check_operators(workload: Workload, plan: Plan) -> str:
    names = [o.name for o in workload.operators]
    if not plan.stages:
        raise CheckError("the plan has no stage")
    stage_of: dict[int, int] = {}
    for index, stage in enumerate(plan.stages):
        if not stage.operators:
            raise CheckError(f"stage {index} has no operator")
        for operator in stage.operators:
            if not 0 <= operator < len(names):
                raise CheckError(
                    f"stage {index} has operator {operator}; the workload has 0 to {len(names) - 1}"
                )
            if operator in stage_of:
                raise CheckError(
                    f"operator {operator} ({names[operator]}) is in stage {stage_of[operator]} "
                    f"and again in stage {index}"
                )
            stage_of[operator] = index
    for operator, name in enumerate(names):
        if operator not in stage_of:
            raise CheckError(f"operator {operator} ({name}) is in no stage")
    for edge in workload.edges:
        if stage_of[edge.source] > stage_of[edge.target]:
            raise CheckError(
                f"operator {edge.target} ({names[edge.target]}) in stage {stage_of[edge.target]} "
                f"needs operator {edge.source} ({names[edge.source]}), which comes later, in stage "
                f"{stage_of[edge.source]}"
            )
    return (
        f"{len(plan.stages)} stages hold {len(names)} operators, each once, none empty, "
        "in nested ideals"
    )


def _check_batch(workload: Workload, plan: Plan) -> str:
    if plan.replicas < 1 or plan.microbatch < 1:
        raise CheckError(
            f"{plan.replicas} replicas of micro-batches of {plan.microbatch} samples; "
            "both are at least 1"
        )
    batch = workload.global_batch
    if plan.shares:
        return _check_shares(batch, plan)
    if batch % (plan.replicas * plan.microbatch):
        raise CheckError(
            f"the global batch of {batch} is no multiple of {plan.replicas} replicas x "
            f"micro-batch {plan.microbatch}"
        )
    m = batch // (plan.replicas * plan.microbatch)
    return (
        f"global batch {batch} = {plan.replicas} replicas x {m} micro-batches x "
        f"{plan.microbatch} samples"
    )


def _check_shares(batch: int, plan: Plan) -> str:
    """The stated shares of the replicas: ``MODEL.md``, section 6."""
    b, shares = plan.microbatch, plan.shares
    if len(shares) != plan.replicas:
        raise CheckError(f"{len(shares)} shares for {plan.replicas} replicas; expected one each")
    if min(shares) < 1:
        raise CheckError(f"replica {shares.index(min(shares))} takes {min(shares)} micro-batches")
    if sum(shares) * b != batch:
        raise CheckError(
            f"the shares are {sum(shares)} micro-batches of {b} samples, {sum(shares) * b} in all; "
            f"the global batch is {batch}"
        )
    if plan.schedule == "interleaved":
        raise CheckError("shares are stated, which the interleaved schedule does not have")
    for index, stage in enumerate(plan.stages):
        if stage.config.zero > 1 and plan.replicas > 1:
            raise CheckError(
                f"stage {index} has ZeRO {stage.config.zero}, whose replicas meet in every "
                "micro-batch; stated shares need ZeRO 0 or 1"
            )
    least, most = min(shares), max(shares)
    return (
        f"global batch {batch} = {sum(shares)} micro-batches x {b} samples, {least} to {most} for "
        f"each of {plan.replicas} replicas"
    )


def _check_configurations(workload: Workload, plan: Plan) -> str:
    for index, stage in enumerate(plan.stages):
        problem = _configuration_problem(workload, plan, stage)
        if problem:
            raise CheckError(f"stage {index} ({stage.config.label()}): {problem}")
    return "every stage's configuration is one that its operators and the micro-batch admit"


def _configuration_problem(workload: Workload, plan: Plan, stage: Stage) -> str | None:
    config = stage.config
    x, y, z = config.tensor
    context, expert = config.context, config.expert
    if min(x, y, z, context, expert) < 1:
        return "every degree is at least 1"
    if config.zero not in (0, 1, 2, 3):
        return f"ZeRO stage {config.zero}; expected 0 to 3"
    if config.recompute not in ("none", "selective", "full"):
        return f"recompute {config.recompute!r}; expected none, selective or full"
    if config.sequence_parallel and (y == 1 or x > 1):
        return f"sequence parallelism needs y > 1 and x = 1, not x = {x}, y = {y}"
    if config.overlap and x * y * z == 1:
        return "overlap needs a tensor degree above 1"
    if config.hides & Hides.TENSOR and (y == 1 or x > 1 or z > 1 or config.overlap):
        return f"hidden tensor reduces need (1, t, 1), t > 1, without overlap, not {config.tensor}"
    if config.hides & Hides.GATHERS and config.zero < 2:
        return f"hidden gathers need ZeRO 2 or 3, not {config.zero}"
    if plan.microbatch % (expert * z):
        return (
            f"expert degree {expert} times z = {z} does not divide the micro-batch of "
            f"{plan.microbatch}"
        )
    operators = [(i, workload.operators[i]) for i in stage.operators]
    if expert > 1 and not any(o.experts for _, o in operators):
        return f"expert degree {expert} without an operator that has experts"
    for i, operator in operators:
        who = f"operator {i} ({operator.name})"
        if x * y * z > 1 and not operator.tensor_divides:
            return f"{who} cannot be split by tensor parallelism"
        if x > 1 and not operator.x_divides:
            return f"{who} cannot be split over x"
        for name, degree, values in (
            ("y", y, operator.tensor_divides),
            ("x", x, operator.x_divides),
        ):
            for value in values:
                if value % degree:
                    return f"{name} = {degree} does not divide {value} of {who}"
        if context > 1 and not operator.context_divides:
            return f"{who} cannot be split by context parallelism"
        if operator.context_divides % context:
            return f"context degree {context} does not divide {operator.context_divides} of {who}"
        if operator.experts % expert:
            return f"expert degree {expert} does not divide the {operator.experts} experts of {who}"
    return None


def _check_devices(cluster: Cluster, plan: Plan) -> str:
    count = len(cluster.type_of)
    failed = set(cluster.failed)
    used_by: dict[int, int] = {}
    for index, stage in enumerate(plan.stages):
        config = stage.config
        width = math.prod(config.tensor) * config.context * config.expert
        shape = np.shape(stage.devices)
        if shape != (plan.replicas, width):
            raise CheckError(
                f"stage {index} has devices of shape {shape}; expected {plan.replicas} replicas x "
                f"{width} devices for {config.label()}"
            )
        for device in np.ravel(stage.devices).tolist():
            if not 0 <= device < count:
                raise CheckError(
                    f"stage {index} uses device {device}; the cluster has 0 to {count - 1}"
                )
            if device in failed:
                raise CheckError(f"stage {index} uses device {device}, which has failed")
            if device in used_by:
                raise CheckError(
                    f"device {device} is used by stage {used_by[device]} and again by stage {index}"
                )
            used_by[device] = index
    idle = count - len(failed) - len(used_by)
    return f"{len(used_by)} distinct devices, none failed; {idle} alive ones stay idle"


def _check_schedule(workload: Workload, plan: Plan) -> str:
    m = max(plan.shares, default=workload.global_batch // (plan.replicas * plan.microbatch))
    chunks, stages = plan.chunks, len(plan.stages)
    if plan.schedule not in ("1f1b", "gpipe", "interleaved"):
        raise CheckError(f"schedule {plan.schedule!r}; expected 1f1b, gpipe or interleaved")
    if chunks < 1:
        raise CheckError(f"{chunks} chunks a stage; expected at least 1")
    if plan.schedule != "interleaved":
        if chunks != 1:
            raise CheckError(f"{chunks} chunks a stage; {plan.schedule} has 1")
        return f"schedule {plan.schedule}"
    if m % stages:
        raise CheckError(f"{m} micro-batches are no multiple of {stages} stages (interleaved)")
    total = Counter(o.kind for o in workload.operators)
    for index, stage in enumerate(plan.stages):
        if len(stage.operators) < chunks:
            raise CheckError(
                f"stage {index} has {len(stage.operators)} operators; {chunks} chunks need "
                "at least one each"
            )
        held = Counter(workload.operators[i].kind for i in stage.operators)
        for kind, number in held.items():
            if total[kind] > 1 and number % chunks:
                raise CheckError(
                    f"stage {index} has {number} operators of kind {kind!r}; they do not divide "
                    f"into {chunks} equal chunks"
                )
    return f"schedule interleaved with {chunks} chunks a stage"
