"""A result must agree with itself and pass its problem's independent checker."""

from __future__ import annotations

import math
from pathlib import Path

from nestopt.core.errors import CheckError
from nestopt.core.io import read_json, sha256_of
from nestopt.core.problem import get_problem
from nestopt.core.result import Reason, Result
from nestopt.core.verdict import NotProvedError, Verdict

__all__ = ["verify", "verify_file"]

RELATIVE_TOLERANCE = 1e-9


def verify_file(file: str) -> Verdict:
    """`verify` for a result file, its stated gap included.

    Raises
    ------
    InputError
        If the file cannot be read or is no result.
    CheckError
        If anything is wrong or not proved, with what and where.
    """
    data = read_json(file)
    result = Result.from_json(data, file=file)
    verdict = verify(result, Path(file).parent)
    stated, gap = data.get("gap"), result.gap
    if stated is not None:
        close = gap is not None and (
            float(stated) == gap or math.isclose(float(stated), gap, abs_tol=1e-12)
        )
        if not close:
            raise CheckError(f"gap: {stated} stated, {gap} follows from the bound")
        verdict.verified.append("gap: (objective - bound) / objective")
    return verdict


def verify(result: Result, directory: Path | None = None) -> Verdict:
    """What was verified, and what the result merely claims.

    Parameters
    ----------
    result : Result
    directory : Path, optional
        Where the result's file lies.

    Raises
    ------
    CheckError
        If anything is wrong, with what and where; a `NotProvedError` if the result claims what
        neither the checker nor the file proves.
    """
    verdict = Verdict(_agrees_with_itself(result))
    try:
        verdict.add(get_problem(result.problem).check(result, directory=directory))
    except NotProvedError as error:
        verdict.add(error.verdict)
    return verdict.settle()


def _agrees_with_itself(result: Result) -> list[str]:
    reason = result.termination.reason
    solved = reason in (Reason.OPTIMAL, Reason.FEASIBLE)
    if solved != (result.solution_json is not None):
        has = "has no" if result.solution_json is None else "has a"
        raise CheckError(f"termination {reason.value} but the result {has} solution")
    if solved != (result.objective is not None):
        raise CheckError(f"termination {reason.value} with objective {result.objective!r}")
    lines = [f"termination: {reason.value}, {'with' if solved else 'without'} a solution"]
    _check_bound_of(result)
    if result.objective is not None:
        lines.append("bound: not above the objective")
    stated = result.instance.get("sha256")
    if "data" not in result.instance or not isinstance(stated, str):
        raise CheckError(
            "instance: expected its data and the sha256 of it, so that the file stands alone"
        )
    found = sha256_of(result.instance["data"])
    if found != stated:
        raise CheckError(f"instance.sha256: {stated!r}, but the instance in the file has {found!r}")
    lines.append("instance: its hash is the one stated")
    return lines


def _check_bound_of(result: Result) -> None:
    """The bound is a number, infinite exactly if the result is infeasible, and not too high."""
    reason, bound, objective = result.termination.reason, result.bound, result.objective
    if math.isnan(bound):
        raise CheckError("bound: NaN is no bound")
    if (bound == math.inf) != (reason is Reason.INFEASIBLE):
        raise CheckError(
            f"bound {bound} with termination {reason.value}: the bound is inf exactly if the "
            "instance is infeasible"
        )
    if reason is not Reason.INFEASIBLE and result.infeasible_because:
        raise CheckError(
            f"infeasible_because: causes are given, but the termination is {reason.value}"
        )
    if objective is None:
        return
    slack = RELATIVE_TOLERANCE * abs(objective)
    if isinstance(objective, int) and isinstance(bound, int):
        slack = 0
    if not math.isfinite(objective):
        raise CheckError(f"objective: {objective} is not finite")
    if bound > objective + slack:
        raise CheckError(f"bound {bound!r} is above the objective {objective!r} that it bounds")
