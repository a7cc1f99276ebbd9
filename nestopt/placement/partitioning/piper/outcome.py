"""From a plan to a result, and what can be said without planning: bound and infeasibility."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.core.result import Result, instance_record
from nestopt.placement.partitioning.piper.model import stage_memory, stage_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Termination
    from nestopt.placement.partitioning.piper.model import PiperProblem, PiperStage

__all__ = ["infeasible_reasons", "make_result", "work_bound"]

SOLUTION_SCHEMA = "nestopt.piper-plan/1"


def work_bound(problem: PiperProblem) -> float:
    """Lower bound on the time per sample: the least device-seconds, shared by all devices."""
    work = sum(
        min(t * variant.time for t, row in layer.variants.items() for variant in row)
        for layer in problem.layers
    )
    return work / problem.devices


def infeasible_reasons(problem: PiperProblem) -> tuple[str, ...]:
    """Why no plan exists: a layer that fits no device, or the memory of all together."""
    for layer in problem.layers:
        least = min(
            v.stored + v.fixed
            for t, row in layer.variants.items()
            if t <= problem.devices
            for v in row
        )
        if least > problem.memory:
            return (
                f"layer {layer.id} ({layer.name or 'unnamed'}) needs at least {least:.6g} bytes; "
                f"a device has {problem.memory:.6g}",
            )
    return (
        f"no division into stages on {problem.devices} devices keeps each device within "
        f"{problem.memory:.6g} bytes with its samples in flight",
    )


def make_result(
    problem: PiperProblem,
    options: SolveOptions,
    termination: Termination,
    plan: Sequence[PiperStage] | None,
    bound: float,
    seconds: float,
    reasons: tuple[str, ...] = (),
    stats: dict[str, Any] | None = None,
    *,
    method: str = "dp",
) -> Result:
    """The result of a method; the objective is computed anew from the plan."""
    objective: float | None = None
    solution: dict[str, Any] | None = None
    if plan is not None:
        times = [stage_time(problem, stage) for stage in plan]
        objective = max(times)
        bound = min(bound, objective)
        stages = []
        later = sum(stage.data for stage in plan)
        for stage, seconds_per_sample in zip(plan, times):
            later -= stage.data
            stages.append(
                {
                    "data": stage.data,
                    "tensor": stage.tensor,
                    "variants": {str(i): k for i, k in sorted(stage.variants.items())},
                    "time": seconds_per_sample,
                    "memory": stage_memory(problem, stage, later),
                }
            )
        solution = {
            "schema": SOLUTION_SCHEMA,
            "devices": sum(stage.data * stage.tensor for stage in plan),
            "stages": stages,
        }
    return Result(
        problem="placement",
        instance=instance_record(problem),
        method=method,
        termination=termination,
        objective=objective,
        bound=bound,
        seconds=seconds,
        seed=options.seed,
        threads=options.threads,
        solution_json=solution,
        infeasible_because=reasons,
        stats=stats or {},
        settings={"model": "piper", "objective": "bottleneck"} | dict(options.set),
    )
