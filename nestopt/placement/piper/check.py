"""Independent checker of plans for Piper's problem; shares no code with the planners."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nestopt.errors import CheckError
from nestopt.io import sha256_of
from nestopt.result import Reason

if TYPE_CHECKING:
    from nestopt.result import Result

__all__ = ["check"]

_EXACT = 1e-9
_PROOF = 1e-6


def check(result: Result) -> list[str]:
    """Verify a result for Piper's problem.

    Returns
    -------
    list of str
        One line for each thing verified.

    Raises
    ------
    CheckError
        At the first thing that is wrong, with what and where.
    """
    data = result.instance.get("data")
    if not isinstance(data, dict) or data.get("schema") != "nestopt.piper/1":
        raise CheckError("instance.data: no instance with the schema 'nestopt.piper/1'")
    if sha256_of(data) != result.instance.get("sha256"):
        raise CheckError("instance.sha256: not the hash of instance.data")
    lines = ["the instance has the stated hash"]
    reason = result.termination.reason
    solved = reason in (Reason.OPTIMAL, Reason.FEASIBLE)
    if solved != (result.solution is not None) or solved != (result.objective is not None):
        raise CheckError(
            f"termination {reason.value}, but solution and objective are "
            f"{'missing' if solved else 'present'}"
        )
    if not solved:
        if reason is Reason.INFEASIBLE and result.bound != math.inf:
            raise CheckError(f"bound {result.bound}: an infeasible instance has the bound inf")
        return [*lines, "no solution is claimed"]
    assert result.solution is not None
    try:
        stages = result.solution["stages"]
        lines += _check_layers(data, stages)
        lines += _check_degrees(data, result.solution)
        lines += _check_memory(data, stages)
        times = _check_times(data, stages)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise CheckError(f"solution: missing or malformed: {error!r}") from error
    lines.append("the stages' times are as stated")
    lines += _check_objective(result, max(times))
    return lines


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
        if not math.isclose(used, stage["memory"], rel_tol=_EXACT):
            raise CheckError(f"stage {s} takes {used} bytes a device, not {stage['memory']}")
        if used > data["memory"] * (1 + _EXACT):
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
        if not math.isclose(seconds, stage["time"], rel_tol=_EXACT):
            raise CheckError(f"stage {s} takes {seconds} s a sample, not {stage['time']} s")
    return times


def _check_objective(result: Result, largest: float) -> list[str]:
    """The objective is the largest stage time, and the bound is no larger."""
    assert result.objective is not None
    if not math.isclose(result.objective, largest, rel_tol=_EXACT):
        raise CheckError(f"objective {result.objective} s, but the slowest stage has {largest} s")
    if math.isnan(result.bound) or result.bound > largest * (1 + _EXACT):
        raise CheckError(f"bound {result.bound} s exceeds the slowest stage's {largest} s")
    if result.termination.reason is Reason.OPTIMAL and result.bound < largest * (1 - _PROOF):
        raise CheckError(f"claimed optimal, but the bound is {result.bound} s of {largest} s")
    return ["the objective is the slowest stage's time", "the bound does not exceed it"]
