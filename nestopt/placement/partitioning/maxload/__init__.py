"""Max-load partitioning of a DAG workload among accelerators and CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nestopt.placement.partitioning.maxload.check import check
from nestopt.placement.partitioning.maxload.model import MaxLoadProblem, Operator, Stage, stage_load

if TYPE_CHECKING:
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result

__all__ = ["MaxLoadProblem", "Operator", "Stage", "check", "solve_dp", "stage_load"]


def solve_dp(problem: MaxLoadProblem, options: SolveOptions) -> Result:
    """Exact dynamic program; see `nestopt.placement.partitioning.maxload.dp.solve_dp`."""
    from nestopt.placement.partitioning.maxload.dp import solve_dp as solve

    return solve(problem, options)
