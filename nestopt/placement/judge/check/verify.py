"""Plans and results against what is claimed of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import sha256_of
from nestopt.core.verdict import Verdict
from nestopt.placement.judge.check.forms import refuse_malformed
from nestopt.placement.judge.check.pricing import Pricing, price
from nestopt.placement.judge.check.proofs import (
    BOUND_TOLERANCE,
    arithmetic_bound,
    check_bound,
    check_settings,
    check_termination,
)
from nestopt.placement.judge.check.space import check_space
from nestopt.placement.judge.check.structure import check_structure
from nestopt.placement.judge.check.trials import refute
from nestopt.placement.model.instance import SCHEMAS
from nestopt.placement.model.of_result import instance_of
from nestopt.placement.model.plan import Plan

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
    lines.append(
        _check_replicas(cluster, pricing) if plan.shares else _check_memory(cluster, pricing)
    )
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


def _check_replicas(cluster: Cluster, pricing: Pricing) -> str:
    """Memory of a plan that states its shares: each replica has its own in flight."""
    share = -math.inf
    for row, replica in enumerate(pricing.replicas):
        figures = zip(replica.memory, replica.usable, replica.tightest, strict=True)
        for index, (need, usable, device) in enumerate(figures):
            if need > usable + TOLERANCE * abs(usable):
                kind = cluster.types[int(cluster.type_of[device])]
                raise CheckError(
                    f"stage {index} of replica {row}, with {replica.share} micro-batches, needs "
                    f"{_giga(need)}, device {device} ({kind.name}) has {_giga(usable)}"
                )
            share = max(share, need / usable if usable > 0 else 0.0)
    return f"memory suffices everywhere, in every replica; the fullest is at {100 * share:.1f} %"


def _giga(count: float) -> str:
    return f"{count / 1e9:.6g} GB"


def check_result(result: Result) -> Verdict:
    """Check a whole result: its instance, termination, bound, plan and claims.

    Returns
    -------
    Verdict
        What is verified, and what the file merely claims.

    Raises
    ------
    CheckError
        For the first thing that is wrong; a `NotProvedError` for a claim without any ground.
    """
    instance = _instance_of(result)
    if result.instance["data"].get("schema") != SCHEMAS[0]:
        # of schema 1, the settings are where the space is stated
        check_settings(instance, result.settings)
    refuse_malformed(result.witness, (result.solution_json or {}).get("report"))
    verdict = Verdict(["the instance has the stated hash"])
    verdict.add(check_termination(result))
    if result.solution_json is None or result.objective is None:
        if result.termination.reason.value == "infeasible":
            refute(instance, math.inf)
            return verdict.settle()
        verdict.add(check_bound(instance, result))
        arithmetic = arithmetic_bound(instance.workload, instance.cluster, instance.objective)
        if result.bound > arithmetic * (1 + TOLERANCE):
            refute(instance, result.bound)
        return verdict.settle()
    try:
        plan = Plan.from_json(result.solution_json)
    except InputError as error:
        raise CheckError(f"solution: {error}") from error
    verdict.add(
        check_plan(instance.workload, instance.cluster, plan, result.objective, instance.objective)
    )
    verdict.verified.append(check_space(instance, plan))
    verdict.add(check_bound(instance, result))
    return verdict.settle()


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
