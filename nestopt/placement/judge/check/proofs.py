"""What a placement result claims beyond its plan: termination, bound and optimum.

The arithmetic bound (all work at the best speed) is computed again here. Every stronger bound comes
of a search or a relaxation that is not repeated: a file that says which one makes a claim, and a
file that says nothing proves nothing.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import CheckError, InputError, UsageError
from nestopt.core.verdict import Verdict
from nestopt.placement.model.space_text import SPACE_SETTINGS, parse_space
from nestopt.placement.model.words import Structure

if TYPE_CHECKING:
    from nestopt.core.result import Result
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.workload import Workload

__all__ = [
    "BOUND_TOLERANCE",
    "arithmetic_bound",
    "check_bound",
    "check_settings",
    "check_termination",
]

BOUND_TOLERANCE = 1e-6
"""Relative: what the exact solvers' own feasibility and integrality tolerances blur."""
_EVERY_PLAN = "every plan of MODEL.md"
CAUSES = ("devices", "divisibility", "memory", "places", "space", "structure", "schedule")
"""What a cause of infeasibility may begin with: the constraints of ``MODEL.md``."""


def arithmetic_bound(workload: Workload, cluster: Cluster, objective: str) -> float:
    """Seconds that all arithmetic of an iteration takes if every alive device runs at its best.

    For ``bottleneck``, those of one sample. Operators with measured times count nothing.
    """
    once = math.fsum(o.flops + o.flops_attn for o in workload.operators if not o.time_fwd)
    samples = 1 if objective == "bottleneck" else workload.global_batch
    failed = set(cluster.failed)
    speed = math.fsum(
        cluster.types[int(kind)].peak * cluster.types[int(kind)].efficiency
        for device, kind in enumerate(cluster.type_of)
        if device not in failed
    )
    return 3.0 * once * samples / speed if speed > 0 else math.inf


def check_termination(result: Result) -> Verdict:
    """Termination, solution and bound fit together; what a result without a plan claims.

    Raises
    ------
    CheckError
        If they contradict each other.
    """
    reason = result.termination.reason.value
    if reason in ("optimal", "feasible"):
        if result.solution_json is None or result.objective is None:
            raise CheckError(f"the result is {reason} but has no solution or no objective")
        return Verdict()
    if result.solution_json is not None or result.objective is not None:
        raise CheckError(f"the result is {reason} but has a solution or an objective")
    if reason != "infeasible":
        if result.bound == math.inf:
            raise CheckError(f"the result is {reason} but its bound is inf, as if infeasible")
        limit = result.termination.limit.value
        return Verdict(claimed=[f"the method found no plan (limit: {limit})"])
    if result.bound != math.inf:
        raise CheckError(f"the result is infeasible but its bound is {result.bound!r}, not inf")
    if not result.infeasible_because:
        raise CheckError("the result is infeasible without saying what causes it")
    verdict = Verdict()
    for cause in result.infeasible_because:
        if cause.partition(":")[0] in CAUSES and _searched(result.witness):
            verdict.claimed.append(f"infeasible, because of {cause}")
        else:
            verdict.unproved.append(f"infeasible, because of {cause!r}: names no search")
    return verdict


def check_settings(instance: PlacementInstance, settings: dict[str, Any]) -> None:
    """The file states no other objective or space than those that are judged.

    Raises
    ------
    CheckError
        Naming the setting, its value, and what the instance has.
    """
    objective = settings.get("objective", instance.objective)
    if objective != instance.objective:
        raise CheckError(
            f"settings.objective: {objective!r}, but the instance has {str(instance.objective)!r}"
        )
    for key in ("space", *SPACE_SETTINGS):
        if key not in settings:
            continue
        value = settings[key]
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            stated = parse_space(text if key == "space" else {key: text.lower()}, instance.space)
        except (InputError, UsageError) as error:
            raise CheckError(f"settings.{key}: {error}") from error
        if stated != instance.space:
            raise CheckError(
                f"settings.{key}: {value!r}, but the instance's space is {instance.space.label}"
            )


def check_bound(instance: PlacementInstance, result: Result) -> Verdict:
    """The bound is at most the objective, and is proved, claimed or refused.

    Raises
    ------
    CheckError
        If a bound is above the objective, or the settings are none.
    """
    verdict, bound, found = Verdict(), result.bound, result.objective
    _check_general(result)
    allowed = max(BOUND_TOLERANCE, _rel_gap(result.settings))
    optimal = result.termination.reason.value == "optimal"
    if math.isnan(bound) or (found is not None and bound > found + BOUND_TOLERANCE * abs(found)):
        raise CheckError(f"the lower bound {bound!r} is above the objective {found!r}")
    if optimal and found is not None and not found - bound <= allowed * abs(found):
        share = 100 * (found - bound) / abs(found) if found and math.isfinite(bound) else math.inf
        raise CheckError(
            f"the result is optimal but its bound {bound!r} is {share:.3g} % below its objective "
            f"{found!r}"
        )
    if bound <= 0:
        return verdict
    arithmetic = arithmetic_bound(instance.workload, instance.cluster, instance.objective)
    _check_numbers(result.witness, arithmetic)
    if bound <= arithmetic * (1 + 1e-9):
        verdict.verified.append(f"bound {bound:.9g} s: all arithmetic at the devices' best speed")
        if optimal:
            within = _within(found, bound)
            verdict.verified.append(f"optimal{within or ': the objective meets the proved bound'}")
    elif _stated(result.witness):
        assert result.witness is not None
        source = result.witness.get("bound") or result.witness.get("name")
        _check_source(instance, result.witness, arithmetic)
        if found is not None:
            verdict.verified.append(f"bound {bound:.9g} s is not above the objective")
        verdict.claimed.append(f"bound {bound:.9g} s, by {source}")
        if optimal:
            within = _within(found, bound)
            verdict.claimed.append(f"optimality{within or ': follows from that bound'}")
    else:
        verdict.unproved.append(f"bound {bound:.9g} s: the witness says nothing that can be read")
        if optimal:
            verdict.unproved.append("optimality has no proof but that bound")
    return verdict


def _within(found: float | None, bound: float) -> str:
    """Of an objective that is called optimal: how far the bound is from it, if not there."""
    gap = 0.0 if not found else (found - bound) / abs(found)
    if gap <= BOUND_TOLERANCE:
        return ""
    return f" within settings.rel_gap alone: the gap to that bound is {100 * gap:.4g} %"


def _check_source(instance: PlacementInstance, witness: dict[str, Any], arithmetic: float) -> None:
    """A witness of more than all arithmetic names another source, and no other space.

    A bound over all plans, or over the same plans at any places, holds in the instance's space too.
    """
    if witness.get("bound", witness.get("name")) == "compute":
        raise CheckError(
            f"witness: all arithmetic proves {arithmetic:.9g} s only, and the bound is larger"
        )
    stated, space = witness.get("space"), instance.space
    wider = replace(space, structure=Structure.GENERAL)
    if stated and stated not in (_EVERY_PLAN, space.label, wider.label):
        raise CheckError(f"witness.space: {stated!r}, but the instance's space is {space.label}")


def _stated(witness: dict[str, Any] | None) -> bool:
    """Whether a witness says by which search or relaxation its bound holds."""
    if witness is None:
        return False
    kind = witness.get("kind", "search")
    source = witness.get("bound", witness.get("name"))
    return kind == "search" and isinstance(source, str) and bool(source)


def _searched(witness: dict[str, Any] | None) -> bool:
    """Whether a witness names a search: a bound alone says nothing of infeasibility."""
    return _stated(witness) and bool((witness or {}).get("bound"))


def _check_numbers(witness: dict[str, Any] | None, arithmetic: float) -> None:
    """The work and the speed by which all arithmetic is bounded are the instance's."""
    work, speed = (witness or {}).get("flops"), (witness or {}).get("speed")
    if work is None and speed is None:
        return
    if not work or not speed or not math.isclose(work / speed, arithmetic, rel_tol=1e-9):
        raise CheckError(
            f"witness: {work!r} FLOP at {speed!r} FLOP/s; all arithmetic takes {arithmetic:.9g} s"
        )


def _check_general(result: Result) -> None:
    """The bound of all plans, where the file states one, is a number and below the objective."""
    for where, stated in (("witness", result.witness), ("stats", result.stats)):
        value = (stated or {}).get("general_bound")
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise CheckError(f"{where}.general_bound: {value!r}; expected seconds")
        limit = result.objective
        if limit is not None and value > limit + BOUND_TOLERANCE * abs(limit):
            raise CheckError(
                f"{where}.general_bound: {value!r} s for all plans is above the objective {limit!r}"
            )


def _rel_gap(settings: dict[str, Any]) -> float:
    value = settings.get("rel_gap", 0.0)
    number = not isinstance(value, bool) and isinstance(value, (int, float))
    if not number or not 0 <= value < 1:
        raise CheckError(f"settings.rel_gap: {value!r}; expected a number from 0 and below 1")
    return float(value)
