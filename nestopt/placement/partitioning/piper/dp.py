"""Exact planner for Piper's problem: bisection over the time per sample, a DP for each step.

For a given time, least[I][S] is the least number of devices on which the layers outside the ideal
I run as later stages whose data-parallel degrees sum to S. What a stage has in flight depends on
S alone, so nothing is lost; and as more in flight never helps, the sums that a stage tolerates
run from zero to a largest one, found by bisection.
"""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import InputError
from nestopt.core.result import Limit, Reason, Termination
from nestopt.placement.model.ideals import TooManyIdealsError
from nestopt.placement.model.models import parse_count
from nestopt.placement.partitioning.piper.equal import equal_split
from nestopt.placement.partitioning.piper.model import PiperStage, stage_time
from nestopt.placement.partitioning.piper.outcome import infeasible_reasons, make_result, work_bound
from nestopt.placement.partitioning.piper.stages import StageCosts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.placement.partitioning.piper.model import PiperProblem

__all__ = ["solve_dp"]

_PRECISION = 1e-12
_Shape = tuple[int, int]


def _switch(key: str, options: SolveOptions) -> bool:
    text = options.set.get(key, "false")
    if text not in ("true", "false"):
        raise InputError(f"{text!r}; expected true or false", field=f"--set {key}")
    return text == "true"


def solve_dp(problem: PiperProblem, options: SolveOptions) -> Result:
    """The plan of least time per sample, proved to a relative gap of 1e-12.

    Parameters
    ----------
    problem : PiperProblem
    options : SolveOptions
        `time_limit` and `progress` are honoured. ``--set uniform=true`` gives all stages the same
        degrees; ``--set ideal-limit=N`` caps the lattice (default 20,000).
    """
    started = time.perf_counter()
    limit = parse_count(options.set.get("ideal-limit", "20000"), "--set ideal-limit")
    low = work_bound(problem)
    try:
        costs = StageCosts(problem, limit=limit)
    except TooManyIdealsError:
        ended = Termination(Reason.NO_SOLUTION, Limit.MEMORY)
        return make_result(problem, options, ended, None, low, time.perf_counter() - started)
    shapes = [
        (t, d)
        for t in costs.degrees
        for d in range(1, min(problem.devices // t, problem.micro_batches) + 1)
        if problem.micro_batches % d == 0
    ]
    uniform = _switch("uniform", options)
    plan = equal_split(problem)
    value = math.inf if plan is None else _value(problem, plan)
    bound = value
    complete = True
    for allowed in [[shape] for shape in shapes] if uniform else [shapes]:
        search = _Search(costs, allowed, low, started + options.time_limit)
        found = search.run(min(value * (1 - _PRECISION), sys.float_info.max))
        if found is not None:
            plan, value = found, _value(problem, found)
        bound = min(bound, search.bound)
        complete = complete and search.complete
        if options.progress is not None:
            best = value if plan else None
            options.progress(time.perf_counter() - started, best, bound, "dp")
    reasons: tuple[str, ...] = ()
    if not complete:
        ended = Termination(Reason.FEASIBLE if plan else Reason.NO_SOLUTION, Limit.TIME)
    elif plan:
        ended = Termination(Reason.OPTIMAL)
    else:
        ended, bound = Termination(Reason.INFEASIBLE), math.inf
        reasons = infeasible_reasons(problem)
    seconds = time.perf_counter() - started
    stats = {"ideals": len(costs.lattice), "shapes": len(shapes)}
    return make_result(problem, options, ended, plan, bound, seconds, reasons, stats)


def _value(problem: PiperProblem, plan: Sequence[PiperStage]) -> float:
    return max(stage_time(problem, stage) for stage in plan)


class _Search:
    """Bisection for the best plan whose stages have one of the given shapes.

    After `run`, `bound` is a lower bound on all such plans (or says that none beats the cutoff),
    and `complete` tells whether the time sufficed.
    """

    def __init__(
        self, costs: StageCosts, shapes: Sequence[_Shape], low: float, deadline: float
    ) -> None:
        self.costs, self.shapes = costs, shapes
        self.bound, self.deadline = low, deadline
        self.complete = True
        # For each ideal: the least time of each stage below it in each shape, memory left aside
        self._floor = [
            np.array(
                [
                    [costs.least_time(upper, lower, t, d) for t, d in shapes]
                    for lower in costs.below[upper]
                ]
            )
            for upper in range(len(costs.lattice))
        ]

    def run(self, cutoff: float) -> list[PiperStage] | None:
        """The best plan of a time of at most `cutoff`; None if there is none."""
        if time.perf_counter() >= self.deadline:
            self.complete = False
            return None
        plan = self._plan_within(cutoff)
        if plan is None:
            self.bound = cutoff
            return None
        high = _value(self.costs.problem, plan)
        while high - self.bound > _PRECISION * high:
            if time.perf_counter() >= self.deadline:
                self.complete = False
                break
            middle = (self.bound + high) / 2
            better = self._plan_within(middle)
            if better is None:
                self.bound = middle
            else:
                plan, high = better, min(middle, _value(self.costs.problem, better))
        return plan

    def _plan_within(self, limit: float) -> list[PiperStage] | None:
        """A plan none of whose stages takes longer than `limit` seconds per sample."""
        costs = self.costs
        problem = costs.problem
        top = min(problem.devices, problem.micro_batches)
        full = len(costs.lattice) - 1
        least = np.full((full + 1, top + 1), np.inf)
        least[full, 0] = 0.0
        choice: dict[tuple[int, int], tuple[int, int, _Shape]] = {}
        for upper in range(full, 0, -1):
            reachable = np.flatnonzero(np.isfinite(least[upper]))
            if not len(reachable):
                continue
            smallest, most = int(reachable[0]), int(reachable[-1])
            spare = problem.devices - int(least[upper, reachable].min())
            for row, column in np.argwhere(self._floor[upper] <= limit):
                lower = costs.below[upper][row]
                t, d = self.shapes[column]
                if t * d > spare:
                    continue
                largest = min(most, top - d)
                largest = self._largest_sum(upper, lower, t, d, smallest, largest, limit)
                if largest < smallest:
                    continue
                devices = least[upper, smallest : largest + 1] + t * d
                known = least[lower, smallest + d : largest + 1 + d]
                better = (devices < known) & (devices <= problem.devices)
                known[better] = devices[better]
                for offset in np.flatnonzero(better):
                    total = smallest + int(offset)
                    choice[lower, total + d] = (upper, total, (t, d))
        if not np.isfinite(least[0]).any():
            return None
        plan: list[PiperStage] = []
        ideal, total = 0, int(np.argmin(least[0]))
        while ideal < full:
            upper, later, shape = choice[ideal, total]
            plan.append(self._stage(upper, ideal, shape, later))
            ideal, total = upper, later
        return plan

    def _largest_sum(
        self, upper: int, lower: int, t: int, d: int, smallest: int, top: int, limit: float
    ) -> int:
        """The largest sum of later degrees at which a stage keeps to the limits.

        Less than `smallest` if it does not even there; at most `top`.
        """
        costs = self.costs
        first = 1 + -(-smallest // d)
        if smallest > top or costs.time(upper, lower, t, d, first) > limit:
            return smallest - 1
        last = 1 + -(-top // d)
        while first < last:
            middle = (first + last + 1) // 2
            if costs.time(upper, lower, t, d, middle) <= limit:
                first = middle
            else:
                last = middle - 1
        return min(top, (first - 1) * d)

    def _stage(self, upper: int, lower: int, shape: _Shape, later: int) -> PiperStage:
        """The stage with its fastest variants that fit."""
        costs = self.costs
        tensor, data = shape
        chosen = costs.labels(upper, lower, tensor, 1 + -(-later // data))[-1][2]
        layers = costs.problem.layers
        return PiperStage(
            data,
            tensor,
            {layers[i].id: k for i, k in zip(costs.layers(upper, lower), chosen, strict=True)},
        )
