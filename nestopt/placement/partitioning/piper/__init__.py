"""Piper's problem: pipeline stages with degrees of their own, and profiled layer variants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nestopt.placement.partitioning.piper.check import check
from nestopt.placement.partitioning.piper.model import (
    Layer,
    PiperProblem,
    PiperStage,
    Variant,
    stage_time,
)

if TYPE_CHECKING:
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result

__all__ = [
    "Layer",
    "PiperProblem",
    "PiperStage",
    "Variant",
    "check",
    "solve_dp",
    "solve_equal",
    "stage_time",
]


def solve_dp(problem: PiperProblem, options: SolveOptions) -> Result:
    """Exact planner; see `nestopt.placement.partitioning.piper.dp.solve_dp`."""
    from nestopt.placement.partitioning.piper.dp import solve_dp as solve

    return solve(problem, options)


def solve_equal(problem: PiperProblem, options: SolveOptions) -> Result:
    """Best equal split; see `nestopt.placement.partitioning.piper.equal.solve_equal`."""
    from nestopt.placement.partitioning.piper.equal import solve_equal as solve

    return solve(problem, options)
