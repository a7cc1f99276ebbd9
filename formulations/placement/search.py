"""The loop over scenarios that both placement models run in, with bounds kept throughout.

A scenario fixes replicas, micro-batch and layout (and with interleaving the number of stages). It
is closed when its bound reaches the best plan known, be it by a cheap bound, by the relaxation of
the dynamic program or by the model, which is only asked for better plans. The least bound of all
scenarios bounds the instance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nestopt.core.errors import CheckError, NestoptError, UsageError
from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.core.stop import noticed
from nestopt.formulations.base import Admission
from nestopt.formulations.families import conflict, families_of
from nestopt.formulations.placement.admission import fixed_choices
from nestopt.formulations.placement.data import PlacementData
from nestopt.formulations.placement.scenario import Scenario, ScenarioData, quick_bound
from nestopt.placement.bounds.general import compute_bound
from nestopt.placement.bounds.why import explain
from nestopt.placement.dp.cases import all_cases, expanded
from nestopt.placement.dp.solve import new_search, search_structured
from nestopt.placement.judge.check.structure import check_structure
from nestopt.placement.model.clock import Clock, SearchStopped
from nestopt.placement.model.plan import Hides, Plan
from nestopt.placement.model.structure import structured_layout
from nestopt.placement.model.words import Shares, Structure
from nestopt.placement.pricing.evaluate import evaluate, reported

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.core.options import SolveOptions
    from nestopt.formulations.families import Addition
    from nestopt.formulations.placement.model import StageChoice
    from nestopt.formulations.solvers.adapters import Outcome
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.schedules import PipelineSchedule
    from nestopt.placement.pricing.evaluate import Evaluation

__all__ = ["Model", "Run", "search"]

_SHARE_OF_START = 0.3
_SHARE_OF_BOUNDS = 0.1
"""Shares of the time limit: of the plan and the relaxation to start from, and of first bounds."""
_SECONDS_OF_A_CONFLICT = 60.0
"""At most so long for each model that is asked whether some families are in conflict."""


class Model(Protocol):
    """What the loop needs of a model of one scenario."""

    precision: float
    unit: float

    def __init__(self, scenario: ScenarioData, reference: float, cutoff: float) -> None: ...

    def fix(self, variable: Any, value: int) -> None:
        """Give a variable its value."""

    def solve(self, options: SolveOptions, time_limit: float) -> Outcome:
        """Run the solver; objective and bound are in units of `unit` seconds."""

    def stages(self, outcome: Outcome) -> list[StageChoice]:
        """The incumbent's stages."""

    def plan(self, stages: Sequence[StageChoice]) -> Plan:
        """The plan of stages."""

    def forbid_stage(self, stage: StageChoice) -> None:
        """Exclude a stage that does not fit into memory."""


def search(
    instance: PlacementInstance,
    options: SolveOptions,
    method: str,
    model_class: type[Any],
    additions: tuple[Addition, ...] = (),
) -> Result:
    """Solve a placement instance with one of the models.

    With constraints of a user's own (`additions`, or a subclass of a model) a starting plan is
    used only if the model admits it, and neither symmetry nor dominance leaves out any plan.

    The result's objective is the evaluator's for the plan found; its bound is the solver's, so a
    gap up to the model's `precision` (what the solver's tolerances or a rounding of the times
    leave) counts as closed, and is reported.
    """
    if instance.cluster.collectives is not None:
        raise UsageError(
            f"method {method} prices collectives by the formulas alone; every other method takes "
            "a table of collectives"
        )
    run = Run(instance, options, model_class, additions)
    try:
        run.start()
        run.loop()
    except KeyboardInterrupt:
        noticed()
        run.limit = Limit.INTERRUPTED
    return run.result(method)


@dataclass(eq=False)
class Run:
    """The state of a search.

    Attributes
    ----------
    bounds : dict of Scenario to float
        A valid lower bound of every scenario, seconds.
    objective : float
        Of the best plan so far, seconds; inf without one.
    """

    instance: PlacementInstance
    options: SolveOptions
    model_class: type[Any]
    additions: tuple[Addition, ...] = ()
    best: Plan | None = None
    objective: float = math.inf
    limit: Limit | None = None
    too_large: bool = False
    failure: str = ""
    stats: dict[str, Any] = field(default_factory=dict)
    bounds: dict[Scenario, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = Clock(self.options.time_limit)
        self.space = self.instance.space
        if self.options.set.get("start", "dp") not in ("dp", "none"):
            raise UsageError(f"start={self.options.set['start']}; known: dp, none")
        if any(flags & (Hides.SYNC | Hides.GATHERS) for flags in self.space.hides):
            raise UsageError(
                "plan space, hides: "
                "the exact models have tensor reduces hidden, not synchronisation or gathers "
                "(MODEL.md, section 5: what they leave exposed depends on the whole stage); the "
                "method dp has all three"
            )
        if self.space.shares is Shares.UNEQUAL:
            raise UsageError(
                "plan space, shares: unequal; the exact models have equal shares alone, since with "
                "free ones the iteration time multiplies two unknowns, the share of a replica and "
                "the time of its slowest stage; the methods dp and lns have both"
            )
        deadline = self.clock.begin + self.clock.limit
        self.data = PlacementData(self.instance, deadline)
        self.bounds = self._first_bounds()
        self.stats |= {"scenarios": len(self.bounds), "models": 0, "repairs": 0, "notes": []}
        if self.extended:
            own = [a.name for a in self.additions] or [self.model_class.__name__]
            self.stats["added"] = own
            self.stats["notes"].append(
                "constraints of the user's own: symmetry and dominance switched off, starts used "
                "only where the model admits them"
            )

    @property
    def extended(self) -> bool:
        """Whether the model has constraints that are not the published ones."""
        return bool(self.additions) or "as_published" not in self.model_class.__dict__

    # --- what is left to do ----------------------------------------------------------------------

    def _first_bounds(self) -> dict[Scenario, float]:
        """A bound of each scenario: the arithmetic one for those that there is no time for."""
        row = compute_bound(self.data.workload, self.data.cluster, self.data.objective)
        share = self.options.time_limit * _SHARE_OF_BOUNDS
        found: dict[Scenario, float] = {}
        for scenario in self._scenarios():
            late = self.clock.seconds > share
            found[scenario] = float(row["value"]) if late else quick_bound(self.data, scenario)
        return found

    def _scenarios(self) -> list[Scenario]:
        workload, alive = self.data.workload, len(self.data.alive)
        found = []
        for d, b in self.space.batches(workload, alive):
            layouts = [""]
            if self.space.structure is not Structure.GENERAL:
                # with one replica both layouts are the same
                layouts = list(self.space.layouts) if d > 1 else ["inner"]
            for schedule in self.space.pipelines(workload):
                most = min(workload.num_operators // schedule.chunks, alive // d)
                stages = schedule.stage_counts(workload.global_batch // (d * b), most)
                found += [Scenario(d, b, layout, s, schedule) for layout in layouts for s in stages]
        return found

    @property
    def bound(self) -> float:
        """The bound of the instance."""
        return min(self.objective, min(self.bounds.values(), default=math.inf))

    def _cutoff(self) -> float:
        """Plans that cost more are not looked for."""
        return self.objective * (1 - max(self.model_class.precision, self.options.rel_gap))

    # --- steps -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the given plan, or the dynamic program's, and its relaxation's bounds."""
        warm = self.options.warm_start
        if warm is not None and warm.solution_json is not None:
            self._offer(Plan.from_json(warm.solution_json), "warm start")
        if self.options.set.get("start", "dp") == "dp" and self.bounds:
            share = self.options.time_limit * _SHARE_OF_START
            quick = replace(self.options, time_limit=share, progress=None, rel_gap=0.0)
            found = search_structured(self.instance, quick)
            if found.plan is not None:
                self._offer(found.plan, "dp")
            self._relax(share)

    def _relax(self, seconds: float) -> None:
        """Raise the scenarios' bounds by the position-free relaxation of the dynamic program."""
        clock = Clock(seconds)
        relaxed: dict[tuple[int, int, PipelineSchedule, int], float] = {}
        try:
            tool = new_search(self.instance, clock.check)
            for case in (each for root in all_cases(tool) for each in expanded(tool, root)):
                value, plan = tool.run_relaxed(case.grids, case.modes, case.batch, self.objective)
                batch = case.batch
                key = (batch.replicas, batch.microbatch, batch.schedule, batch.stages)
                least = value if plan is not None else self.objective
                relaxed[key] = min(least, relaxed.get(key, math.inf))
        except SearchStopped:
            return
        for s, bound in self.bounds.items():
            # a batch without a case has no plan at all
            key = (s.replicas, s.microbatch, s.schedule, s.stages)
            value = relaxed.get(key, math.inf)
            self.bounds[s] = max(bound, value)

    def _offer(self, plan: Plan, note: str) -> Evaluation | None:
        """Keep a plan if it belongs to the space, fits and is better."""
        if note == "warm start":
            try:
                check_structure(self.data.workload, self.data.cluster, plan)
            except CheckError as error:
                raise UsageError(f"the warm start is no plan of this instance: {error}") from error
            refusal = self.space.admits(plan, self.data.cluster)
            if refusal is not None:
                self.stats["notes"].append(f"the warm start is outside the space: {refusal}")
                return None
        if self.extended and note != "model" and not self._starts_with(plan, note):
            return None
        priced = evaluate(self.data.workload, self.data.cluster, plan, self.data.costs)
        value = priced.objective(self.data.objective)
        if priced.fits and value < self.objective:
            self.objective, self.best = value, plan
            self._report(note)
        return priced

    def _starts_with(self, plan: Plan, note: str) -> bool:
        """Whether a plan from elsewhere keeps the constraints of the user's own."""
        admission = self.admission(plan)
        if not admission:
            why = ", ".join(admission.because) or "there was no time to see whether it keeps them"
            self.stats["notes"].append(
                f"start {note} and its upper bound switched off, they ignore: {why}"
            )
        return bool(admission)

    def admission(self, plan: Plan) -> Admission:
        """Whether the model admits a plan; the families that refuse it."""
        refusal = self.space.admits(plan, self.data.cluster)
        if refusal is not None:
            return Admission((f"plan space: {refusal}",))
        priced = evaluate(self.data.workload, self.data.cluster, plan, self.data.costs)
        if not priced.fits:
            return Admission(("memory",))
        cost = priced.objective(self.data.objective)
        data = self._scenario_of(plan)

        def impossible(left_out: frozenset[str]) -> bool | None:
            # the cutoff makes CP-SAT's unit of time small enough
            model = self._extended_model(data, cost, 1.01 * cost, left_out)
            values = fixed_choices(model, plan)
            if values is None:
                return True
            for variable, value in values:
                model.fix(variable, value)
            return self._is_impossible(model)

        refused = impossible(frozenset())
        return Admission.of(refused, lambda: conflict(self._names(), impossible))

    def _scenario_of(self, plan: Plan) -> ScenarioData:
        """The scenario of a plan of the space."""
        layout: str | None = ""
        if self.space.structure is not Structure.GENERAL:
            layout = structured_layout(self.data.cluster, plan) if plan.replicas > 1 else "inner"
        stages = len(plan.stages) if plan.pipeline.chunks > 1 else 0
        scenario = Scenario(plan.replicas, plan.microbatch, layout or "", stages, plan.pipeline)
        return ScenarioData(self.data, scenario, dominated=True)

    def _names(self) -> tuple[str, ...]:
        families = tuple(f.name for f in families_of(self.model_class))
        return (*families, *(a.name for a in self.additions))

    def impossible(self, left_out: frozenset[str]) -> bool | None:
        """Whether no scenario has a plan if some families are left out; None: not decided."""
        for scenario in self.bounds:
            model = self.build(scenario, left_out)
            if model is None:
                continue
            answer = self._is_impossible(model)
            if not answer:
                return answer
        return True

    def build(self, scenario: Scenario, left_out: frozenset[str] = frozenset()) -> Any | None:
        """The model of a scenario without starts and bounds; None if no configuration suits."""
        data = ScenarioData(self.data, scenario, dominated=self.extended)
        data.check_size()
        if math.isinf(data.bound):
            return None
        return self._extended_model(data, data.bound or 1.0, math.inf, left_out)

    def _extended_model(
        self, data: ScenarioData, reference: float, cutoff: float, left_out: frozenset[str]
    ) -> Any:
        more: dict[str, Any] = {"additions": self.additions} if self.additions else {}
        if left_out:
            more["left_out"] = left_out
        return self.model_class(data, reference, cutoff, symmetry=False, **more)

    def _is_impossible(self, model: Any) -> bool | None:
        """Whether a model has no solution at all; None if the time is over first."""
        if self.clock.left <= 0:
            return None
        # any solution will do: the search ends at the first
        options = replace(self.options, rel_gap=0.999999, write_model=None, progress=None)
        outcome = model.solve(options, min(self.clock.left, _SECONDS_OF_A_CONFLICT))
        if outcome.termination.reason is Reason.INFEASIBLE:
            return True
        return False if outcome.values is not None else None

    def loop(self) -> None:
        """Close the scenarios one by one, the one of the least bound first."""
        waiting = dict(self.bounds)
        while waiting:
            scenario = min(waiting, key=lambda s: (self.bounds[s], s.replicas, s.microbatch))
            del waiting[scenario]
            wanted = self.options.write_model is not None and self.stats["models"] == 0
            if self.bounds[scenario] >= self._cutoff() and not wanted:
                break
            if self.clock.left <= 0:
                self.limit = Limit.TIME
                return
            self._close(scenario)
            if self.limit is not None:
                return

    def _close(self, scenario: Scenario) -> None:
        """Solve a scenario's model, and again if its plan turns out not to fit into memory."""
        try:
            data = ScenarioData(self.data, scenario, dominated=self.extended)
            data.check_size()
        except TimeoutError:
            self.limit = Limit.TIME
            return
        except NestoptError as error:
            if not self.too_large:
                self.stats["notes"].append(f"{scenario.label()}: {error}")
            self.too_large = True
            return
        self.bounds[scenario] = max(self.bounds[scenario], data.bound)
        if math.isinf(data.bound):
            return
        wanted = self.options.write_model is not None and self.stats["models"] == 0
        if self.bounds[scenario] >= self._cutoff() and not wanted:
            return
        while (self.limit is None and self.bounds[scenario] < self._cutoff()) or wanted:
            wanted = False
            before = self.bounds[scenario], self.objective
            self._solve(scenario, data, self._cutoff())
            if before == (self.bounds[scenario], self.objective):
                return

    def _solve(self, scenario: Scenario, data: ScenarioData, cutoff: float) -> None:
        """Build and solve a model; again without what does not fit into memory."""
        reference = self.objective if math.isfinite(self.objective) else data.bound
        if self.extended:
            model = self._extended_model(data, reference or 1.0, cutoff, frozenset())
        else:
            model = self.model_class(data, reference or 1.0, cutoff)
        self.stats["models"] += 1
        while self.limit is None:
            remaining = self.clock.left
            if remaining <= 0:
                self.limit = Limit.TIME
                return
            outcome = model.solve(self._options_for(model), remaining)
            self._count(outcome)
            if outcome.termination.reason is Reason.ERROR:
                if math.isfinite(cutoff):
                    # a cutoff that a plan just misses can upset a solver's tolerances
                    self._solve(scenario, data, math.inf)
                else:
                    self.failure = f"{scenario.label()}: {outcome.note}"
                    self.limit = Limit.ITERATIONS
                return
            infeasible = outcome.termination.reason is Reason.INFEASIBLE
            proved = cutoff if infeasible else min(cutoff, outcome.bound * model.unit)
            self.bounds[scenario] = max(self.bounds[scenario], proved)
            if not self._take(model, outcome):
                ended = outcome.termination.limit
                if ended in (Limit.TIME, Limit.INTERRUPTED, Limit.MEMORY):
                    self.limit = ended
                return

    def _take(self, model: Model, outcome: Outcome) -> bool:
        """Take the incumbent's plan; whether stages of it had to be forbidden."""
        if outcome.values is None:
            return False
        stages = model.stages(outcome)
        priced = self._offer(model.plan(stages), "model")
        assert priced is not None
        misfits = [s for s, n, r in zip(stages, priced.need, priced.room, strict=True) if n > r]
        for stage in misfits:
            model.forbid_stage(stage)
            self.stats["repairs"] += 1
        return bool(misfits)

    def _options_for(self, model: Model) -> SolveOptions:
        """The options of one solver run: progress in seconds, a file for each model."""
        path = self.options.write_model
        if path is not None and self.stats["models"] > 1:
            file = Path(path)
            path = str(file.with_stem(f"{file.stem}-{self.stats['models']}"))
        progress = None
        if self.options.progress is not None:

            def progress(seconds: float, objective: float | None, bound: float, note: str) -> None:
                del seconds, objective, bound
                self._report(note)

        return replace(self.options, write_model=path, progress=progress)

    def _report(self, note: str) -> None:
        if self.options.progress is not None:
            value = self.objective if self.best is not None else None
            self.options.progress(self.clock.seconds, value, self.bound, note)

    def _count(self, outcome: Outcome) -> None:
        for key, value in outcome.stats.items():
            if isinstance(value, int | float):
                self.stats[key] = self.stats.get(key, 0) + value
        if outcome.note:
            self.stats["notes"].append(outcome.note)

    # --- the end ---------------------------------------------------------------------------------

    def result(self, method: str) -> Result:
        """The result."""
        bound = self.bound
        because: tuple[str, ...] = ()
        precision = self.model_class.precision
        limit = self.limit or (Limit.MEMORY if self.too_large else None)
        objective = None if self.best is None else self.objective
        closed = objective is not None and bound >= objective * (1 - precision * 1.001)
        if self.failure:
            ended = Termination(Reason.ERROR)
        elif closed:
            ended = Termination(Reason.OPTIMAL)
        elif objective is not None:
            ended = Termination(Reason.FEASIBLE, limit or Limit.ITERATIONS)
        elif limit is not None:
            ended = Termination(Reason.NO_SOLUTION, limit)
        else:
            ended, bound = Termination(Reason.INFEASIBLE), math.inf
            because = self._reasons()
        open_scenarios = {
            s.label(): value for s, value in self.bounds.items() if value < self._cutoff()
        }
        return Result(
            problem="placement",
            instance=instance_record(self.instance),
            method=method,
            termination=ended,
            objective=objective,
            bound=bound,
            seconds=self.clock.seconds,
            seed=self.options.seed,
            threads=self.options.threads,
            solution_json=self._reported(),
            witness={
                "space": self.space.label,
                "bound": f"{method} over {len(self.bounds)} scenarios{self._restriction()}; "
                f"gaps up to {precision:g} count as closed",
                "open": open_scenarios,
            },
            infeasible_because=because,
            stats=self.stats | ({"failure": self.failure} if self.failure else {}),
            settings={
                "rel_gap": self.options.rel_gap,
                "backend": self.options.backend,
                **self.options.set,
            },
        )

    def _restriction(self) -> str:
        """What the bound is restricted to, if anything."""
        if not self.extended:
            return ""
        own = [a.name for a in self.additions] or [self.model_class.__name__]
        return f" with the added constraints {', '.join(own)}"

    def _reasons(self) -> tuple[str, ...]:
        """Why there is no plan."""
        if self.extended:
            try:
                named = self.conflict()
            except UsageError:
                return ("the added constraints leave no plan",)
            if named:
                return (f"families in conflict: {', '.join(named)}",)
        return explain(self.instance, self.clock.check)

    def conflict(self) -> tuple[str, ...]:
        """Families that no plan keeps together, from which none can be left out.

        Empty if some operator suits no configuration, so that there is not even a model.
        """
        return conflict(self._names(), self.impossible)

    def _reported(self) -> dict[str, Any] | None:
        """The plan as JSON, with its figures in the report."""
        if self.best is None or self.failure:
            return None
        plan, _ = reported(self.data.workload, self.data.cluster, self.best, self.data.costs)
        return plan.to_json()
