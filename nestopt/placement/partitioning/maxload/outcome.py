"""From a split to a result, and what can be said without solving: bound and infeasibility."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.core.result import Result, instance_record
from nestopt.placement.partitioning.maxload.model import stage_load, stage_memory

if TYPE_CHECKING:
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Termination
    from nestopt.placement.partitioning.maxload.model import MaxLoadProblem, Stage
    from nestopt.placement.partitioning.maxload.units import Units

__all__ = ["infeasible_reasons", "load_bound", "make_result"]

SOLUTION_SCHEMA = "nestopt.maxload-split/1"


def load_bound(problem: MaxLoadProblem, units: Units) -> float:
    """A lower bound on the largest load, from compute times alone.

    Each unit has to be computed somewhere, and the devices together have to compute all.
    """
    least: list[float] = []
    for accelerator, cpu, possible in zip(
        units.accelerator_time, units.cpu_time, units.on_accelerator
    ):
        choices = []
        if possible and problem.accelerators:
            choices.append(accelerator)
        if problem.cpus:
            choices.append(cpu)
        least.append(min(choices, default=float("inf")))
    devices = problem.accelerators + problem.cpus
    return max(max(least), sum(least) / devices)


def infeasible_reasons(problem: MaxLoadProblem, units: Units) -> tuple[str, ...]:
    """Why no split exists: memory, or operators that no accelerator runs, and no CPU."""
    limit = problem.accelerator_memory
    reasons = [
        f"operator {o.id} ({o.name or 'unnamed'}) runs on no accelerator, and there is no CPU"
        for o in problem.operators
        if not o.on_accelerator
    ][:1]
    for members, memory in zip(units.members, units.memory):
        if memory > limit:
            some = ", ".join(str(i) for i in members[:8]) + (", ..." if len(members) > 8 else "")
            reasons.append(
                f"operators [{some}] stay together and need {memory:.6g} bytes; an accelerator has "
                f"{limit:.6g}, and there is no CPU"
            )
    total = sum(units.memory)
    if total > limit * problem.accelerators:
        reasons.append(
            f"the operators need {total:.6g} bytes; {problem.accelerators} accelerators have "
            f"{limit * problem.accelerators:.6g}, and there is no CPU"
        )
    if not reasons:
        reasons.append(
            f"no division into at most {problem.accelerators} contiguous stages keeps each within "
            f"{limit:.6g} bytes, though the total of {total:.6g} bytes would fit"
        )
    return tuple(reasons)


def make_result(
    problem: MaxLoadProblem,
    options: SolveOptions,
    method: str,
    termination: Termination,
    split: tuple[Stage, ...] | None,
    bound: float,
    seconds: float,
    *,
    reasons: tuple[str, ...] = (),
    stats: dict[str, Any] | None = None,
) -> Result:
    """The result of a method; the objective is computed anew from the split.

    `bound` must be a valid lower bound; what exceeds the objective by rounding is cut off.
    """
    objective: float | None = None
    solution: dict[str, Any] | None = None
    if split is not None:
        loads = [stage_load(problem, stage) for stage in split]
        objective = max(loads)
        bound = min(bound, objective)
        solution = {
            "schema": SOLUTION_SCHEMA,
            "stages": [
                {
                    "device": stage.device,
                    "operators": list(stage.operators),
                    "load": load,
                    "memory": stage_memory(problem, stage.operators),
                }
                for stage, load in zip(split, loads)
            ],
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
        settings={"model": "max-load", "objective": "bottleneck"} | dict(options.set),
    )
