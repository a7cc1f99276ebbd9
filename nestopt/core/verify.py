"""A result must agree with itself and pass its problem's independent checker."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from nestopt.core.result import Result

__all__ = ["verify", "verify_file"]

RELATIVE_TOLERANCE = 1e-9


def verify_file(file: str) -> list[str]:
    """`verify` for a result file, its stated gap included.

    Raises
    ------
    InputError
        If the file cannot be read or is no result.
    CheckError
        If anything is wrong, with what and where.
    """
    from nestopt.core.io import read_json
    from nestopt.core.result import Result

    data = read_json(file)
    result = Result.from_json(data, file=file)
    lines = verify(result, Path(file).parent)
    stated = data.get("gap")
    if stated is not None:
        if result.gap is None or not math.isclose(float(stated), result.gap, abs_tol=1e-12):
            raise CheckError(f"gap: {stated} stated, {result.gap} follows from the bound")
        lines.append("gap: (objective - bound) / objective")
    return lines


def verify(result: Result, directory: Path | None = None) -> list[str]:
    """One line for each thing that was verified.

    Parameters
    ----------
    result : Result
    directory : Path, optional
        Where the result's file lies.

    Raises
    ------
    CheckError
        If anything is wrong, with what and where.
    """
    from nestopt.core.problem import get_problem

    lines = _agrees_with_itself(result)
    return lines + get_problem(result.problem).check(result, directory=directory)


def _agrees_with_itself(result: Result) -> list[str]:
    from nestopt.core.io import sha256_of
    from nestopt.core.result import Reason

    reason = result.termination.reason
    solved = reason in (Reason.OPTIMAL, Reason.FEASIBLE)
    if solved != (result.solution_json is not None):
        has = "has no" if result.solution_json is None else "has a"
        raise CheckError(f"termination {reason.value} but the result {has} solution")
    if solved != (result.objective is not None):
        raise CheckError(f"termination {reason.value} with objective {result.objective!r}")
    lines = [f"termination: {reason.value}, {'with' if solved else 'without'} a solution"]
    if math.isnan(result.bound):
        raise CheckError("bound: NaN is no bound")
    if result.objective is not None:
        slack = RELATIVE_TOLERANCE * abs(result.objective)
        if isinstance(result.objective, int) and isinstance(result.bound, int):
            slack = 0
        if not math.isfinite(result.objective):
            raise CheckError(f"objective: {result.objective} is not finite")
        if result.bound > result.objective + slack:
            raise CheckError(
                f"bound {result.bound!r} is above the objective {result.objective!r} that it bounds"
            )
        lines.append("bound: not above the objective")
    if "data" in result.instance and "sha256" in result.instance:
        found = sha256_of(result.instance["data"])
        if found != result.instance["sha256"]:
            raise CheckError(
                f"instance.sha256: {result.instance['sha256']!r}, but the instance in the file "
                f"has {found!r}"
            )
        lines.append("instance: its hash is the one stated")
    return lines
