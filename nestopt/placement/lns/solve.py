"""The method ``lns``: from the dynamic program's plan to better ones among all plans.

The dynamic program is exact over structured plans; the best of *all* plans may have groups that
stride, holes where devices are slow or failed, or stages anywhere. `nestopt.placement.lns.search`
looks for those. It proves nothing itself: the bound is the dynamic program's bound for all plans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import CheckError, NestoptError, UsageError
from nestopt.core.registry import get_method
from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.core.stop import noticed, requested
from nestopt.placement.bounds.general import compute_bound
from nestopt.placement.bounds.why import explain
from nestopt.placement.dp.solve import search_space
from nestopt.placement.judge.check.structure import check_structure
from nestopt.placement.lns.draft import Order
from nestopt.placement.lns.prices import Prices
from nestopt.placement.lns.search import Search
from nestopt.placement.model.clock import Clock
from nestopt.placement.model.plan import Plan
from nestopt.placement.model.words import Shares, Structure
from nestopt.placement.pricing.evaluate import evaluate, reported, with_best_shares

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nestopt.core.options import SolveOptions
    from nestopt.placement.lns.draft import Draft
    from nestopt.placement.model.instance import PlacementInstance

__all__ = ["solve"]

_SHARE_OF_START = 0.35
_SECONDS_OF_START = 60.0
"""What the start may take: a share of the time limit, or so many seconds without one."""
_ROUNDS = 1500
_SURVEY = 400
_AGREES = 1e-9
"""Relative difference that is left to the order of additions."""


@dataclass(slots=True)
class _Bound:
    """A bound for all plans of the space, and what it comes from."""

    value: float
    name: str
    witness: dict[str, Any]


class _Run:
    """A run of the method.

    Attributes
    ----------
    plan : Plan or None
        The best so far, and `value` its objective by the evaluator.
    limit : Limit
    """

    def __init__(self, instance: PlacementInstance, options: SolveOptions) -> None:
        general = replace(instance.space, structure=Structure.GENERAL)
        self.given, self.instance = instance, instance.over(general)
        self.options = options
        self.clock = Clock(options.time_limit)
        self.prices = Prices(self.instance)
        self.plan: Plan | None = None
        self.value = math.inf
        self.limit = Limit.ITERATIONS
        self.stats: dict[str, Any] = {}
        self.bound = self._arithmetic()

    def _arithmetic(self) -> _Bound:
        """The bound of the devices' speed alone."""
        given = self.given
        row = compute_bound(given.workload, given.cluster, given.objective)
        return _Bound(row["value"], row["name"], row["witness"])

    # --- the start -------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the given plan, and that of the method named by ``--set start``."""
        warm = self.options.warm_start
        if warm is not None and warm.solution_json is not None:
            self._warm(Plan.from_json(warm.solution_json))
        name = self.options.set.get("start", "dp")
        if name == "none" or not len(self.prices.alive):
            return
        share = self.options.time_limit * _SHARE_OF_START
        quick = replace(
            self.options, time_limit=min(share, _SECONDS_OF_START), set={}, warm_start=None,
            output=None, write_model=None,
        )  # fmt: skip
        if name == "dp":
            self._from_dp(quick)
        if self.plan is None and not self.closed:
            # where the dynamic program has none yet, the first baseline that has one
            for other in ("megatron", "mcmc") if name == "dp" else (name,):
                self._from_baseline(other, quick)
                if self.plan is not None or requested():
                    break

    def _warm(self, plan: Plan) -> None:
        """A plan of the user's, which must be one of the space."""
        try:
            check_structure(self.instance.workload, self.instance.cluster, plan)
        except CheckError as error:
            raise UsageError(f"the warm start is no plan of this instance: {error}") from error
        refusal = self.instance.space.admits(plan, self.instance.cluster)
        if refusal is not None:
            raise UsageError(f"the warm start is outside the space: {refusal}")
        self.take(plan, "warm start")

    def _from_dp(self, quick: SolveOptions) -> None:
        structured = replace(self.given.space, structure=Structure.STRUCTURED)
        if self.given.space.structure is not Structure.GENERAL:
            structured = self.given.space
        found = search_space(self.given.over(structured), quick)
        self.stats["start"] = "dp"
        if found.general_bound > self.bound.value:
            self.bound = _Bound(
                found.general_bound,
                "position-free relaxation",
                {
                    "relaxes": "places: every group and boundary at its best layout, on the best "
                    "device",
                },
            )
        if found.plan is not None:
            self.take(found.plan, "dp")

    def _from_baseline(self, name: str, quick: SolveOptions) -> None:
        try:
            found = get_method("placement", name)(self.given, quick)
        except NestoptError:
            # some take chains only
            return
        self.stats["start"] = name
        if found.solution_json is not None:
            self.take(Plan.from_json(found.solution_json), name)

    def take(self, plan: Plan, note: str) -> None:
        """Keep a plan if the evaluator says that it fits and is better."""
        for each in (plan, self._shared(plan)):
            if each is None:
                continue
            found = evaluate(self.instance.workload, self.instance.cluster, each, self.prices.costs)
            value = found.objective(self.instance.objective)
            if found.fits and value < self.value:
                self.plan, self.value = each, value
                if self.options.progress is not None:
                    self.options.progress(self.clock.seconds, value, self.bound.value, note)

    def _shared(self, plan: Plan) -> Plan | None:
        """The plan with its best shares, where the space has unequal ones."""
        if self.instance.space.shares is Shares.EQUAL:
            return None
        workload, cluster = self.instance.workload, self.instance.cluster
        return with_best_shares(workload, cluster, plan, self.prices.costs)

    @property
    def closed(self) -> bool:
        """Whether the plan meets the bound as closely as asked."""
        if self.plan is None:
            return False
        return self.value - self.bound.value <= (self.options.rel_gap + _AGREES) * self.value

    # --- the search ------------------------------------------------------------------------------

    def better(self, draft: Draft, value: float) -> None:
        """A draft that the search takes for better."""
        plan = self.prices.plan(draft)
        if plan is None or self.instance.space.admits(plan, self.instance.cluster) is not None:
            return
        self.take(plan, "lns")

    def search(self) -> None:
        """Survey, then rounds, until they, the time or the gap end."""
        rng = np.random.default_rng(self.options.seed)
        order = Order(
            self.instance.workload,
            self.prices.costs,
            range(self.instance.workload.num_operators),
        )
        start = None
        if self.plan is not None and self._deals_equally(self.plan):
            start = self.prices.draft(replace(self.plan, shares=()))
            order = start.order
        search = Search(self.prices, order, rng, self.better)
        if start is not None:
            search.offer(float(self.prices.price([start])[0]), start)
        rounds = int(self.options.set.get("iterations", str(_ROUNDS)))
        try:
            if not self._through(search.survey(_SURVEY), share=0.4):
                return
            self._through(search.improve(rounds))
        finally:
            self.stats |= {"rounds": search.rounds, "priced": search.priced}

    def _deals_equally(self, plan: Plan) -> bool:
        """Whether a plan could give its replicas equal shares, as the search's drafts do."""
        return self.instance.workload.global_batch % (plan.replicas * plan.microbatch) == 0

    def _through(self, steps: Iterable[None], share: float = 1.0) -> bool:
        """Go through steps; False if the search is to end."""
        until = self.clock.seconds + share * self.clock.left
        for _ in steps:
            if self.clock.left <= 0 or requested():
                self.limit = Limit.TIME
                return False
            if self.closed:
                return False
            if self.clock.seconds >= until:
                break
        return True

    # --- the result ------------------------------------------------------------------------------

    def result(self) -> Result:
        """The best plan as a result of the general instance."""
        bound = self.bound.value
        solution, objective = None, None
        because: tuple[str, ...] = ()
        if self.plan is not None:
            plan, priced = reported(self.instance.workload, self.instance.cluster, self.plan)
            objective = priced.objective(self.instance.objective)
            solution = plan.to_json()
            if bound > objective * (1 + _AGREES):
                # a plan refutes it: it must not make this plan look optimal
                self.stats["refuted_bound"] = bound
                self.bound = self._arithmetic()
                bound = self.bound.value
            bound = min(bound, objective)
            if objective - bound <= (self.options.rel_gap + _AGREES) * objective:
                termination = Termination(Reason.OPTIMAL)
                bound = objective if self.options.rel_gap == 0 else bound
            else:
                termination = Termination(Reason.FEASIBLE, self.limit)
        elif bound < math.inf:
            termination = Termination(Reason.NO_SOLUTION, self.limit)
        else:
            termination = Termination(Reason.INFEASIBLE)
            because = explain(self.instance, self.clock.check)
        return Result(
            problem="placement",
            instance=instance_record(self.instance),
            method="lns",
            termination=termination,
            objective=objective,
            bound=bound,
            seconds=self.clock.seconds,
            seed=self.options.seed,
            threads=1,
            solution_json=solution,
            witness={
                "space": self.instance.space.label,
                "bound": self.bound.name,
                **self.bound.witness,
            },
            infeasible_because=because,
            stats=self.stats,
            settings={"rel_gap": self.options.rel_gap, **self.options.set},
        )


def solve(instance: PlacementInstance, options: SolveOptions) -> Result:
    """Search all plans of an instance's space, wherever their devices are.

    The result is of the instance in its *general* structure, whatever structure was asked for: its
    plan may be none of the structured ones. It is never worse than the plan that the search starts
    from: the dynamic program's within a third of the time limit (a minute without one), or that of
    the baseline that ``--set start=NAME`` names. Same seed, same plan, as long as no time limit
    cuts start or search. In a space with unequal shares the drafts of the search deal equally, and
    each that is better gets its best shares.
    """
    run = _Run(instance, options)
    try:
        run.start()
        if len(run.prices.alive) and run.bound.value < math.inf and not run.closed:
            run.search()
    except KeyboardInterrupt:
        noticed()
        run.limit = Limit.TIME if run.clock.left <= 0 else Limit.INTERRUPTED
    return run.result()
