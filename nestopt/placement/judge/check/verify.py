"""Plans and results against what is claimed of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import sha256_of
from nestopt.placement.judge.check.pricing import Pricing, price
from nestopt.placement.judge.check.structure import check_structure
from nestopt.placement.model.of_result import instance_of
from nestopt.placement.model.plan import Plan
from nestopt.placement.model.structure import structured_layout

if TYPE_CHECKING:
    from nestopt.core.result import Result
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.workload import Workload

__all__ = [
    "BOUND_TOLERANCE",
    "TOLERANCE",
    "check_claims",
    "check_plan",
    "check_result",
]

TOLERANCE = 1e-9
"""Relative: two ways to add the same numbers may differ by this much."""

BOUND_TOLERANCE = 1e-6
"""Relative: what the exact solvers' own feasibility and integrality tolerances blur."""


def check_plan(
    workload: Workload,
    cluster: Cluster,
    plan: Plan,
    claimed_objective: float | None = None,
    objective_kind: str = "iteration-time",
) -> list[str]:
    """Check a plan from scratch.

    Parameters
    ----------
    workload, cluster, plan
        What the plan is judged by; nothing else is trusted.
    claimed_objective : float, optional
        Seconds; must agree with the checker's own figure to a relative 1e-9.
    objective_kind : str
        ``iteration-time`` or ``bottleneck``.

    Returns
    -------
    list of str
        One line for each thing verified.

    Raises
    ------
    CheckError
        For the first thing that is wrong, naming stage, device or operator, and the numbers.
    """
    lines = check_structure(workload, cluster, plan)
    pricing = price(workload, cluster, plan)
    lines.append(_check_memory(cluster, pricing))
    objective = pricing.objective(objective_kind)
    if claimed_objective is not None and not _same(claimed_objective, objective):
        raise CheckError(
            f"{objective_kind} is {objective:.12g} s, but {claimed_objective:.12g} s is claimed"
        )
    agrees = "" if claimed_objective is None else ", as claimed"
    lines.append(f"{objective_kind} {objective:.9g} s{agrees}")
    line = check_claims(plan, pricing)
    return [*lines, line] if line else lines


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=0.0)


def _check_memory(cluster: Cluster, pricing: Pricing) -> str:
    fullest, share = 0, -math.inf
    for index, stage in enumerate(pricing.stages):
        if stage.memory > stage.usable + TOLERANCE * abs(stage.usable):
            kind = cluster.types[int(cluster.type_of[stage.smallest])]
            reserve = f" less {_giga(kind.reserve)} reserved" if kind.reserve else ""
            raise CheckError(
                f"stage {index} needs {_giga(stage.memory)}, device {stage.smallest} "
                f"({kind.name}) has {_giga(kind.memory)}{reserve} "
                f"(states {_giga(stage.states)}, activations {stage.in_flight:g} x "
                f"{_giga(stage.stored)}, working set {_giga(stage.working)}, "
                f"buffers {_giga(stage.buffers)})"
            )
        used = stage.memory / stage.usable if stage.usable > 0 else 0.0
        if used > share:
            fullest, share = index, used
    return f"memory suffices everywhere; stage {fullest} is fullest, at {100 * share:.1f} %"


def _giga(count: float) -> str:
    return f"{count / 1e9:.6g} GB"


def check_result(result: Result) -> list[str]:
    """Check a whole result: its instance, termination, bound, plan and claims.

    Returns
    -------
    list of str
        One line for each thing verified.

    Raises
    ------
    CheckError
        For the first thing that is wrong.
    """
    instance = _instance_of(result)
    lines = ["the instance has the stated hash", *_check_termination(result)]
    if result.solution_json is None or result.objective is None:
        return lines
    try:
        plan = Plan.from_json(result.solution_json)
    except InputError as error:
        raise CheckError(f"solution: {error}") from error
    lines += check_plan(
        instance.workload, instance.cluster, plan, result.objective, instance.objective
    )
    lines.append(_check_bound(result, result.objective))
    refusal = instance.space.admits(plan, instance.cluster)
    if refusal is not None:
        raise CheckError(f"the plan is outside the space {instance.space.label}: {refusal}")
    layout = structured_layout(instance.cluster, plan)
    where = "" if layout is None else f" (layout {layout})"
    return [*lines, f"the plan lies in the space {instance.space.label}{where}"]


def _instance_of(result: Result) -> PlacementInstance:
    instance = instance_of(result)
    stated = result.instance.get("sha256")
    digests = sha256_of(result.instance["data"]), sha256_of(instance.to_json())
    if stated not in digests:
        raise CheckError(
            f"instance.sha256: {stated!r}, but the instance in the result has {digests[0]!r}"
        )
    return instance


def check_claims(plan: Plan, pricing: Pricing) -> str | None:
    """Check the figures that a plan reports of its stages, where it does.

    ``report["stages"][q]`` (or ``report[key][q]``) may have ``seconds`` (t_q), ``sync`` (S_q) and
    ``memory`` (bytes needed).

    Raises
    ------
    CheckError
        If one differs from the checker's own figure by more than a relative 1e-9.
    """
    claims: list[tuple[int, str, Any]] = []
    rows = plan.report.get("stages")
    if isinstance(rows, list):
        claims += [
            (index, key, row[key])
            for index, row in enumerate(rows)
            if isinstance(row, dict)
            for key in _CLAIMS
            if key in row
        ]
    for key in _CLAIMS:
        column = plan.report.get(key)
        if isinstance(column, list):
            claims += [(index, key, value) for index, value in enumerate(column)]
    for index, key, value in claims:
        if index >= len(pricing.stages):
            raise CheckError(f"the report tells of stage {index}, which the plan does not have")
        attribute, what, unit = _CLAIMS[key]
        figure = getattr(pricing.stages[index], attribute)
        if not isinstance(value, (int, float)) or not _same(value, figure):
            raise CheckError(
                f"stage {index} {what} {figure:.12g} {unit}, but the plan reports {value!r}"
            )
    return (
        f"the {len(claims)} figures that the plan reports of its stages agree" if claims else None
    )


_CLAIMS = {
    "seconds": ("seconds", "takes", "s a micro-batch"),
    "sync": ("sync", "synchronises in", "s"),
    "memory": ("memory", "needs", "bytes"),
}


def _check_termination(result: Result) -> list[str]:
    """Termination and solution fit together; lines only if there is no solution."""
    reason = result.termination.reason.value
    if reason in ("optimal", "feasible"):
        if result.solution_json is None or result.objective is None:
            raise CheckError(f"the result is {reason} but has no solution or no objective")
        return []
    if result.solution_json is not None or result.objective is not None:
        raise CheckError(f"the result is {reason} but has a solution or an objective")
    if reason == "infeasible":
        if result.bound != math.inf:
            raise CheckError(f"the result is infeasible but its bound is {result.bound!r}, not inf")
        if not result.infeasible_because:
            raise CheckError("the result is infeasible without saying what causes it")
        return ["infeasible, with its causes named; that no plan exists is not proved again"]
    return [f"no solution to check ({reason})"]


def _check_bound(result: Result, objective: float) -> str:
    """The bound is at most the objective, and meets it if the result is optimal."""
    bound = result.bound
    if math.isnan(bound) or bound > objective + BOUND_TOLERANCE * abs(objective):
        raise CheckError(f"the lower bound {bound!r} is above the objective {objective!r}")
    if result.termination.reason.value == "optimal":
        allowed = max(BOUND_TOLERANCE, float(result.settings.get("rel_gap", 0.0)))
        if objective - bound > allowed * abs(objective):
            raise CheckError(
                f"the result is optimal but its bound {bound!r} is "
                f"{100 * (objective - bound) / abs(objective):.3g} % below its objective "
                f"{objective!r}"
            )
        return f"bound {bound:.9g} meets the objective (the bound itself is not proved again)"
    return f"bound {bound:.9g} is at most the objective (the bound itself is not proved again)"
