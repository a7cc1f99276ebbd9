"""What the checkers of the partitioning literature's models ask of any result."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import CheckError
from nestopt.core.io import sha256_of
from nestopt.core.result import Reason
from nestopt.core.verdict import Verdict
from nestopt.placement.model.space_text import SPACE_SETTINGS

if TYPE_CHECKING:
    from nestopt.core.result import Result

__all__ = [
    "EXACT",
    "check_objective",
    "check_settings",
    "check_unsolved",
    "instance_data",
    "is_solved",
]

EXACT = 1e-9
"""Relative tolerance of a figure that the checker computes again."""
_PROOF = 1e-6


def instance_data(result: Result, schema: str) -> dict[str, Any]:
    """The instance that a result carries, of the schema and with the hash stated.

    Raises
    ------
    CheckError
        If there is none, of another schema, or of another hash.
    """
    data = result.instance.get("data")
    if not isinstance(data, dict) or data.get("schema") != schema:
        raise CheckError(f"instance.data: no instance with the schema {schema!r}")
    if sha256_of(data) != result.instance.get("sha256"):
        raise CheckError("instance.sha256: not the hash of instance.data")
    return data


def is_solved(result: Result) -> bool:
    """Whether a result claims a solution.

    Raises
    ------
    CheckError
        If solution or objective disagree with the termination.
    """
    reason = result.termination.reason
    solved = reason in (Reason.OPTIMAL, Reason.FEASIBLE)
    if solved != (result.solution_json is not None) or solved != (result.objective is not None):
        raise CheckError(
            f"termination {reason.value}, but solution and objective are "
            f"{'missing' if solved else 'present'}"
        )
    if reason is Reason.INFEASIBLE and result.bound != math.inf:
        raise CheckError(f"bound {result.bound}: an infeasible instance has the bound inf")
    return solved


def check_settings(result: Result, model: str) -> None:
    """The settings state no other model, objective or space than those that are judged.

    Raises
    ------
    CheckError
        Naming the setting and its value.
    """
    for key, expected in (("model", model), ("objective", "bottleneck")):
        found = result.settings.get(key, expected)
        if found != expected:
            raise CheckError(f"settings.{key}: {found!r}, but the instance has {expected!r}")
    for key in SPACE_SETTINGS:
        # Piper's method reads `uniform` too, which asks for less
        if key in result.settings and key != "uniform":
            raise CheckError(f"settings.{key}: the {model} model has no plan space")


def check_unsolved(result: Result, least: float, what: str) -> Verdict:
    """What a result without a solution claims, against a solution that anybody finds.

    Parameters
    ----------
    least : float
        Objective of such a solution in seconds; inf if there is none.
    what : str
        What it is.

    Raises
    ------
    CheckError
        If the instance is said to be infeasible, or its bound is above that objective.
    """
    if result.bound > least * (1 + EXACT):
        raise CheckError(f"bound {result.bound:.9g} s, but {what} takes {least:.9g} s")
    if result.termination.reason is Reason.INFEASIBLE:
        because = "; ".join(result.infeasible_because) or "it gives no cause"
        return Verdict(claimed=[f"infeasible, by {result.method}: {because}"])
    claimed = [f"the method found no solution (limit: {result.termination.limit.value})"]
    if result.bound > 0:
        claimed.append(f"the bound, {result.bound:.9g} s, by {result.method}")
    return Verdict(claimed=claimed)


def check_objective(result: Result, largest: float, what: str) -> Verdict:
    """The objective is `what`, of `largest` seconds, and the bound is no larger.

    Raises
    ------
    CheckError
        If either is not so, or if an optimum is claimed that the bound does not prove.
    """
    assert result.objective is not None
    if not math.isclose(result.objective, largest, rel_tol=EXACT, abs_tol=1e-300):
        raise CheckError(f"objective {result.objective} s, but {what} is {largest} s")
    if math.isnan(result.bound) or result.bound > largest * (1 + EXACT):
        raise CheckError(f"bound {result.bound} s exceeds {what}, {largest} s")
    if result.termination.reason is Reason.OPTIMAL and result.bound < largest * (1 - _PROOF):
        raise CheckError(f"claimed optimal, but the bound is {result.bound} s of {largest} s")
    verdict = Verdict([f"the objective is {what}", "the bound does not exceed it"])
    if result.bound > 0:
        verdict.claimed.append(f"the bound, {result.bound:.9g} s, by {result.method}")
    if result.termination.reason is Reason.OPTIMAL:
        verdict.claimed.append("optimality: follows from that bound")
    return verdict
