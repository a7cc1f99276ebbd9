"""Independent checker of plans for Piper's problem; shares no code with the planners."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import validate_model
from nestopt.core.verdict import Verdict
from nestopt.placement.judge.check.claims import (
    EXACT,
    check_objective,
    check_settings,
    check_unsolved,
    instance_data,
    is_solved,
)

if TYPE_CHECKING:
    from nestopt.core.result import Result

__all__ = ["check"]

_Amount = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
_Count = Annotated[int, Field(strict=True, ge=1)]


class _Stage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    data: _Count
    tensor: _Count
    variants: dict[str, Annotated[int, Field(strict=True, ge=0)]]
    time: _Amount
    memory: _Amount


class _Plan(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_: Literal["nestopt.piper-plan/1"] = Field(alias="schema")
    devices: _Count
    stages: Annotated[list[_Stage], Field(min_length=1)]


def check(result: Result) -> Verdict:
    """Verify a result for Piper's problem.

    Returns
    -------
    Verdict
        What is verified, and what is merely claimed.

    Raises
    ------
    CheckError
        At the first thing that is wrong, with what and where.
    """
    data = instance_data(result, "nestopt.piper/1")
    check_settings(result, "piper")
    lines = ["the instance has the stated hash"]
    if not is_solved(result):
        verdict = Verdict(lines)
        verdict.add(check_unsolved(result, _in_one_stage(data), "one stage with everything"))
        return verdict
    assert result.solution_json is not None
    try:
        validate_model(_Plan, result.solution_json)
    except InputError as error:
        raise CheckError(f"solution: {error}") from error
    try:
        stages = result.solution_json["stages"]
        lines += _check_layers(data, stages)
        lines += _check_degrees(data, result.solution_json)
        lines += _check_memory(data, stages)
        times = _check_times(data, stages)
    except (KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise CheckError(f"solution: missing or malformed: {error!r}") from error
    lines.append("the stages' times are as stated")
    verdict = Verdict(lines)
    verdict.add(check_objective(result, max(times), "the slowest stage's time"))
    return verdict


def _in_one_stage(data: dict[str, Any]) -> float:
    """The least time of one stage on one replica, its layers in the variants of least memory."""
    found = math.inf
    layers = data["layers"]
    for t in set.intersection(*(set(layer["variants"]) for layer in layers)):
        chosen = [
            min(layer["variants"][t], key=lambda v: (v["stored"] + v["fixed"], v["time"]))
            for layer in layers
        ]
        memory = math.fsum(v["stored"] + v["fixed"] for v in chosen)
        if int(t) <= data["devices"] and memory <= data["memory"]:
            found = min(found, math.fsum(v["time"] for v in chosen))
    return found


def _check_layers(data: dict[str, Any], stages: list[dict[str, Any]]) -> list[str]:
    """Each layer in one stage, with a variant that exists; edges lead to no earlier stage."""
    layers = {layer["id"]: layer for layer in data["layers"]}
    where: dict[int, int] = {}
    for s, stage in enumerate(stages):
        if not stage["variants"]:
            raise CheckError(f"solution.stages[{s}]: empty")
        for text, k in stage["variants"].items():
            i = int(text)
            if i not in layers:
                raise CheckError(f"solution.stages[{s}]: layer {i} is not in the instance")
            if i in where:
                raise CheckError(f"layer {i} lies in the stages {where[i]} and {s}")
            known = layers[i]["variants"].get(str(stage["tensor"]), [])
            if not 0 <= k < len(known):
                raise CheckError(
                    f"layer {i} has no variant {k} at the tensor degree {stage['tensor']}"
                )
            where[i] = s
    missing = sorted(layers.keys() - where.keys())
    if missing:
        raise CheckError(f"layer {missing[0]} lies in no stage ({len(missing)} missing)")
    for u, v, _ in data["edges"]:
        if where[u] > where[v]:
            raise CheckError(f"edge {u} -> {v} leads from stage {where[u]} back to {where[v]}")
    return [f"each of the {len(where)} layers lies in one of {len(stages)} stages, in order"]


def _check_degrees(data: dict[str, Any], solution: dict[str, Any]) -> list[str]:
    """Data degrees divide the batch and sum to no more than it; the devices suffice."""
    batch = data["micro_batches"]
    degrees = [stage["data"] for stage in solution["stages"]]
    for s, d in enumerate(degrees):
        if d < 1 or batch % d:
            raise CheckError(f"stage {s}: degree {d} does not divide {batch} micro-batches")
    if sum(degrees) > batch:
        raise CheckError(f"the data degrees sum to {sum(degrees)}, over {batch} micro-batches")
    used = sum(stage["data"] * stage["tensor"] for stage in solution["stages"])
    if used != solution["devices"]:
        raise CheckError(f"the stages take {used} devices, not {solution['devices']}")
    if used > data["devices"]:
        raise CheckError(f"the stages take {used} devices, of which there are {data['devices']}")
    return [f"{used} of {data['devices']} devices are used, and the degrees divide the batch"]


def _check_memory(data: dict[str, Any], stages: list[dict[str, Any]]) -> list[str]:
    """Memory is as stated and within the limit."""
    layers = {str(layer["id"]): layer for layer in data["layers"]}
    for s, stage in enumerate(stages):
        total = sum(other["data"] for other in stages[s:])
        in_flight = math.ceil(total / stage["data"])
        used = 0.0
        for i, k in stage["variants"].items():
            variant = layers[i]["variants"][str(stage["tensor"])][k]
            used += variant["stored"] * in_flight + variant["fixed"]
        if not math.isclose(used, stage["memory"], rel_tol=EXACT):
            raise CheckError(f"stage {s} takes {used} bytes a device, not {stage['memory']}")
        if used > data["memory"] * (1 + EXACT):
            raise CheckError(f"stage {s} takes {used} bytes; a device has {data['memory']}")
    return ["the stages' memory is as stated and fits"]


def _check_times(data: dict[str, Any], stages: list[dict[str, Any]]) -> list[float]:
    """Time per sample of each stage, from single layers and edges."""
    layers = {layer["id"]: layer for layer in data["layers"]}
    where = {int(i): s for s, stage in enumerate(stages) for i in stage["variants"]}
    per_sample = [0.0] * len(stages)
    per_batch = [0.0] * len(stages)
    for s, stage in enumerate(stages):
        t, d = str(stage["tensor"]), stage["data"]
        for i, k in stage["variants"].items():
            layer = layers[int(i)]
            per_sample[s] += layer["variants"][t][k]["time"]
            per_batch[s] += 4 * (d - 1) / d * layer["parameters"][t] / data["bandwidth"]
    for u, v, size in data["edges"]:
        if where[u] == where[v]:
            continue
        for end, other, table in ((u, v, "reshard_out"), (v, u, "reshard_in")):
            s = where[end]
            rows = layers[end][table][str(stages[s]["tensor"])]
            per_sample[s] += 2 * (size + rows.get(str(other), 0.0)) / data["bandwidth"]
    times = [
        sample / stage["data"] + batch / data["micro_batches"]
        for sample, batch, stage in zip(per_sample, per_batch, stages)
    ]
    for s, (seconds, stage) in enumerate(zip(times, stages)):
        if not math.isclose(seconds, stage["time"], rel_tol=EXACT):
            raise CheckError(f"stage {s} takes {seconds} s a sample, not {stage['time']} s")
    return times
