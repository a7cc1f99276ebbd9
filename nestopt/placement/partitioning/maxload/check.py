"""Independent checker of max-load splits; shares no code with the methods it judges.

It reads the instance that the result carries and knows nothing of units, ideals or stages' costs
as the solvers see them: every rule is applied to single operators and edges.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt

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


class _Stage(BaseModel):
    model_config = ConfigDict(extra="forbid")

    device: Literal["accelerator", "cpu"]
    operators: list[StrictInt]
    load: _Amount
    memory: _Amount


class _Split(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schema_: Literal["nestopt.maxload-split/1"] = Field(alias="schema")
    stages: Annotated[list[_Stage], Field(min_length=1)]


def check(result: Result) -> Verdict:
    """Verify a result of max-load partitioning.

    Returns
    -------
    Verdict
        What is verified, and what is merely claimed.

    Raises
    ------
    CheckError
        At the first thing that is wrong, with what and where.
    """
    data = instance_data(result, "nestopt.maxload/1")
    check_settings(result, "max-load")
    lines = ["the instance has the stated hash"]
    if not is_solved(result):
        verdict = Verdict(lines)
        verdict.add(check_unsolved(result, *_on_one(data)))
        return verdict
    assert result.solution_json is not None
    try:
        validate_model(_Split, result.solution_json)
    except InputError as error:
        raise CheckError(f"solution: {error}") from error
    try:
        stages = result.solution_json["stages"]
        where = _check_cover(data, stages)
        lines.append(f"each of the {len(where)} operators lies in one of {len(stages)} stages")
        lines += _check_devices(data, stages)
        lines += _check_colours(data, where)
        lines += _check_order(data, where)
        lines += _check_memory(data, stages)
        loads = _check_loads(data, stages, where)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckError(f"solution: missing or malformed: {error!r}") from error
    lines.append("the stages' loads are as stated")
    verdict = Verdict(lines)
    verdict.add(check_objective(result, max(loads), "the largest load"))
    return verdict


def _on_one(data: dict[str, Any]) -> tuple[float, str]:
    """The load of one device that runs everything, if one can; and which."""
    operators = data["operators"]
    found = [(math.inf, "no single device can run everything")]
    if data["cpus"] > 0:
        found.append((math.fsum(o["cpu_time"] for o in operators), "one CPU with everything"))
    memory = math.fsum(o["memory"] for o in operators)
    able = all(o["on_accelerator"] for o in operators)
    if data["accelerators"] > 0 and able and memory <= data["accelerator_memory"]:
        load = math.fsum(o["accelerator_time"] for o in operators)
        found.append((load, "one accelerator with everything"))
    return min(found)


def _check_cover(data: dict[str, Any], stages: list[dict[str, Any]]) -> dict[int, int]:
    """The stage of each operator; each has exactly one."""
    known = {o["id"] for o in data["operators"]}
    where: dict[int, int] = {}
    for s, stage in enumerate(stages):
        if not stage["operators"]:
            raise CheckError(f"solution.stages[{s}]: empty")
        for i in stage["operators"]:
            if i not in known:
                raise CheckError(f"solution.stages[{s}]: operator {i} is not in the instance")
            if i in where:
                raise CheckError(f"operator {i} lies in the stages {where[i]} and {s}")
            where[i] = s
    missing = sorted(known - where.keys())
    if missing:
        raise CheckError(f"operator {missing[0]} lies in no stage ({len(missing)} missing)")
    return where


def _check_devices(data: dict[str, Any], stages: list[dict[str, Any]]) -> list[str]:
    """No more devices than there are, and none with operators that it cannot run."""
    for kind, field in (("accelerator", "accelerators"), ("cpu", "cpus")):
        used = sum(stage["device"] == kind for stage in stages)
        if used > data[field]:
            raise CheckError(f"{used} stages on a device of kind {kind}, of which {data[field]}")
    able = {o["id"]: o["on_accelerator"] for o in data["operators"]}
    for s, stage in enumerate(stages):
        for i in stage["operators"]:
            if stage["device"] == "accelerator" and not able[i]:
                raise CheckError(f"operator {i} in stage {s} runs on no accelerator")
    return ["there are devices enough, and they can run what they are given"]


def _check_colours(data: dict[str, Any], where: dict[int, int]) -> list[str]:
    """Operators of one colour are in one stage."""
    seen: dict[Any, int] = {}
    for o in data["operators"]:
        if o["colour"] is None:
            continue
        first = seen.setdefault(o["colour"], o["id"])
        if where[first] != where[o["id"]]:
            raise CheckError(
                f"operators {first} and {o['id']} have the colour {o['colour']}, but lie in the "
                f"stages {where[first]} and {where[o['id']]}"
            )
    return [f"{len(seen)} colours lie in one stage each"]


def _check_order(data: dict[str, Any], where: dict[int, int]) -> list[str]:
    """Forward edges lead to the same or a later stage.

    A backward operator without a forward one of its colour stands for an artificial forward
    operator, whose edges are its own backward edges turned round.
    """
    by_id = {o["id"]: o for o in data["operators"]}
    with_forward = {o["colour"] for o in by_id.values() if not o["backward"]} - {None}
    count = 0
    for u, v in data["edges"]:
        early, late = u, v
        if by_id[u]["backward"] != by_id[v]["backward"]:
            continue
        if by_id[u]["backward"]:
            if by_id[u]["colour"] in with_forward and by_id[v]["colour"] in with_forward:
                continue
            early, late = v, u
        count += 1
        if where[early] > where[late]:
            raise CheckError(
                f"edge {u} -> {v}: operator {early} has to be no later than {late}, but is in "
                f"stage {where[early]}, after stage {where[late]}"
            )
    return [f"{count} edges agree with the stages' order"]


def _check_memory(data: dict[str, Any], stages: list[dict[str, Any]]) -> list[str]:
    """Memory is as stated, and within the limit on accelerators."""
    sizes = {o["id"]: o["memory"] for o in data["operators"]}
    limit = data["accelerator_memory"]
    for s, stage in enumerate(stages):
        used = math.fsum(sizes[i] for i in stage["operators"])
        if not math.isclose(used, stage["memory"], rel_tol=EXACT):
            raise CheckError(f"stage {s} takes {used} bytes, not {stage['memory']}")
        if stage["device"] == "accelerator" and used > limit * (1 + EXACT):
            raise CheckError(f"stage {s} takes {used} bytes; an accelerator has {limit}")
    return ["the stages' memory is as stated and within the accelerators' limit"]


def _check_loads(
    data: dict[str, Any], stages: list[dict[str, Any]], where: dict[int, int]
) -> list[float]:
    """The load of each stage, from single operators and edges."""
    takers: dict[int, set[int]] = {o["id"]: set() for o in data["operators"]}
    for u, v in data["edges"]:
        takers[u].add(where[v])
    accelerator = [stage["device"] == "accelerator" for stage in stages]
    parts: list[list[float]] = [[] for _ in stages]
    for o in data["operators"]:
        home = where[o["id"]]
        parts[home].append(o["accelerator_time"] if accelerator[home] else o["cpu_time"])
        others = takers[o["id"]] - {home}
        if others:
            for s in (home, *others):
                if accelerator[s]:
                    parts[s].append(o["output_time"])
    loads = [math.fsum(part) for part in parts]
    for s, (load, stage) in enumerate(zip(loads, stages)):
        if not math.isclose(load, stage["load"], rel_tol=EXACT, abs_tol=1e-300):
            raise CheckError(f"stage {s} has the load {load} s, not {stage['load']} s")
    return loads
