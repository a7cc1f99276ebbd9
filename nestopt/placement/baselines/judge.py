"""Pricing of candidate plans, and the best of them as a result."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.core.stop import noticed, requested
from nestopt.placement.model.words import Shares
from nestopt.placement.pricing.cost import StageCosts
from nestopt.placement.pricing.evaluate import evaluate, reported

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nestopt.core.options import SolveOptions
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan

__all__ = ["Judge"]


class Judge:
    """Prices plans with the evaluator and keeps the best that fits.

    Attributes
    ----------
    best : float
    plan : Plan or None
    limit : str
        What ended the method: ``iterations`` when it finished, else ``time`` or ``interrupted``.
    """

    def __init__(self, instance: PlacementInstance, options: SolveOptions, method: str) -> None:
        self.instance, self.options, self.method = instance, options, method
        self.workload, self.cluster = instance.workload, instance.cluster
        self.costs = StageCosts(self.workload)
        # baselines deal equally: their plans are some of any space
        self.space = replace(instance.space, shares=Shares.EQUAL)
        self.pipelines = instance.space.pipelines(instance.workload)
        self.best = math.inf
        self.plan: Plan | None = None
        self.limit = "iterations"
        self.priced = 0
        # even splits of the shares of time of a chain's units, by their bytes and the stages
        self.splits: dict[tuple[bytes, int], list[int]] = {}
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began

    @property
    def over(self) -> bool:
        """Whether the time limit is over, or somebody asked to stop."""
        return self.seconds > self.options.time_limit or requested()

    def price(self, plan: Plan) -> float:
        """The objective of a plan, ``inf`` if it does not fit; remembers the best."""
        self.priced += 1
        if not self._suits(plan):
            return math.inf
        found = evaluate(self.workload, self.cluster, plan, self.costs)
        value = found.objective(self.instance.objective) if found.fits else math.inf
        if value < self.best:
            self.best, self.plan = value, plan
            if self.options.progress is not None:
                self.options.progress(self.seconds, value, -math.inf, self.method)
        return value

    def _suits(self, plan: Plan) -> bool:
        """Whether the schedule can run the plan's micro-batches and cut its stages."""
        schedule = plan.pipeline
        m = self.workload.global_batch // (plan.replicas * plan.microbatch)
        if not schedule.suits(m, len(plan.stages)):
            return False
        if schedule.chunks == 1:
            return True
        kinds = self.costs.kind_of
        repeated = np.bincount(kinds) > 1
        held = [np.bincount(kinds[list(s.operators)], minlength=len(repeated)) for s in plan.stages]
        return bool(schedule.divides(np.stack(held), repeated).all())

    def run(self, plans: Iterable[Plan | None]) -> Result:
        """Price plans until they or the time end; the best as a result.

        None among them is no plan, only the occasion to look at the clock.
        """
        try:
            for plan in plans:
                if plan is not None:
                    self.price(plan)
                if self.over:
                    self.limit = "time"
                    break
        except KeyboardInterrupt:
            noticed()
            self.limit = "interrupted"
        return self.result()

    def result(self) -> Result:
        """The best plan as a result; a baseline proves nothing but the arithmetic bound."""
        from nestopt.placement.bounds.general import compute_bound

        reason = Reason.NO_SOLUTION if self.plan is None else Reason.FEASIBLE
        solution, objective = None, None
        if self.plan is not None:
            plan, _ = reported(self.workload, self.cluster, self.plan, self.costs)
            solution, objective = plan.to_json(), self.best
        bound = compute_bound(self.workload, self.cluster, self.instance.objective)
        return Result(
            problem="placement",
            instance=instance_record(self.instance),
            method=self.method,
            termination=Termination(reason, Limit(self.limit)),
            objective=objective,
            # without a device there is nothing to bound
            bound=bound["value"] if math.isfinite(bound["value"]) else -math.inf,
            seconds=self.seconds,
            seed=self.options.seed,
            solution_json=solution,
            witness={"name": bound["name"], **bound["witness"]},
            stats={"priced": self.priced},
            settings=dict(self.options.set),
        )
