"""The methods `milp` and `cpsat` of the collective problem: the least makespan, with proof.

The search goes upwards from the best lower bound. A horizon without a schedule raises the bound by
a tick, the first one with a schedule is the optimum; the infeasibility of the step below is the
proof. A schedule known beforehand (greedy, or a warm start) ends the search early.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from nestopt.collective.judge.check import check_schedule
from nestopt.collective.model.connectivity import find_separation
from nestopt.core.errors import CheckError, UsageError
from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.core.stop import noticed
from nestopt.formulations.collective.cpsat import CollectiveCpsat
from nestopt.formulations.collective.grid import GridProblem, Send, finest_tick, grid_problem
from nestopt.formulations.collective.intervals import CollectiveIntervals
from nestopt.formulations.collective.milp import CollectiveMilp
from nestopt.formulations.collective.search import Search, starting_schedule
from nestopt.formulations.collective.sends import pruned, schedule_of, sends_of
from nestopt.formulations.collective.shared.solve import search_shared
from nestopt.formulations.collective.symmetry import find_symmetries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.core.options import SolveOptions
    from nestopt.formulations.base import Admission
    from nestopt.formulations.families import Addition
    from nestopt.formulations.solvers.adapters import Outcome

__all__ = ["MOST_TICKS", "Solver", "solve_cpsat", "solve_milp"]

MOST_TICKS = 120
_MOST_VARIABLES = 1_000_000
# chunks x links x ticks of a model that is still built: more do not fit in some 16 GiB
_LARGEST_MODEL = 10_000_000
# sends that last longer are handled better as intervals
_MOST_TICKS_A_SEND = 3
_CHOICES = {
    "model": ("auto", "grid", "interval"),
    "symmetry": ("yes", "no"),
    "incumbent": ("greedy", "none"),
    "bound": ("best", "none"),
}


def solve_cpsat(
    instance: CollectiveInstance, options: SolveOptions, additions: tuple[Addition, ...] = ()
) -> Result:
    """The least makespan by CP-SAT.

    ``--set`` keys: ``model`` (``grid``, ``interval`` or ``auto``), ``deterministic-time`` (CP-SAT's
    own unit, repeatable), ``symmetry`` (``no`` to leave it alone), ``incumbent`` (``none`` to start
    without a greedy schedule), ``bound`` (``none`` to start from the distances alone).
    """
    return Solver("cpsat", instance, options, additions).run()


def solve_milp(
    instance: CollectiveInstance, options: SolveOptions, additions: tuple[Addition, ...] = ()
) -> Result:
    """The least makespan by a MILP back-end through PuLP.

    ``--set`` keys: ``symmetry``, ``incumbent``, ``bound`` as of `solve_cpsat`; ``tick``
    (picoseconds of the time grid; one that does not divide all durations is rounded down for the
    bound and up for the schedule).
    """
    return Solver("milp", instance, options, additions).run()


class _OutOfTimeError(Exception):
    """The time was over before a model was built."""


class Solver:
    """The search for the least makespan with one kind of model.

    Parameters
    ----------
    kind : {"milp", "cpsat"}
    instance : CollectiveInstance
    options : SolveOptions
    additions : tuple of Addition
        Constraints of a user's own. With them no symmetry leaves out schedules, a start is used
        only if the model admits it, every horizon from the bound on is decided, reductions are not
        reversed, and sends keep the ticks that the model gives them.
    """

    def __init__(
        self,
        kind: str,
        instance: CollectiveInstance,
        options: SolveOptions,
        additions: tuple[Addition, ...] = (),
    ) -> None:
        self.kind, self.instance, self.options = kind, instance, options
        self.additions = additions
        self.begin = time.perf_counter()
        for key, known in _CHOICES.items():
            if options.set.get(key, known[0]) not in known:
                raise UsageError(
                    f"--set {key}={options.set[key]}: expected one of {', '.join(known)}"
                )
        self.stats: dict[str, Any] = {"solver": kind}
        if additions:
            self.stats["added"] = [a.name for a in additions]
            self.stats["notes"] = [
                "constraints of the user's own: symmetry switched off, starts used only where the "
                "model admits them"
            ]
        self.written = False

    def choice(self, key: str) -> str:
        return self.options.set.get(key, _CHOICES[key][0])

    def left(self) -> float:
        """Seconds left."""
        return self.options.time_limit - (time.perf_counter() - self.begin)

    def run(self) -> Result:
        from nestopt.collective.bounds import best_bound

        instance = self.instance
        separation = find_separation(instance)
        if separation is not None:
            return self._infeasible(separation.message)
        bound: dict[str, Any] = {"name": "none", "value": 0}
        bound["witness"] = {"kind": "trivial", "value": 0}
        if self.choice("bound") == "best":
            bound = best_bound(instance, time_limit=max(0.1, self.left() / 4))
        schedule = self._incumbent(int(bound["value"]))
        self.stats["incumbent_ps"] = None if schedule is None else schedule.makespan_ps
        self.stats["combinatorial_bound"] = {"name": bound["name"], "value": bound["value"]}
        self._report(schedule, int(bound["value"]), "bound and incumbent")
        low = int(bound["value"])
        proof = "bound"
        limit = Limit.NONE
        if schedule is None or schedule.makespan_ps > low or self.options.write_model:
            low, schedule, limit = self._search(low, schedule)
            proof = "search" if low > bound["value"] else proof
        witness = bound["witness"] | {"name": bound["name"]}
        if low > bound["value"]:
            witness = {
                "kind": "search",
                "name": self.kind,
                "value": low,
                "arithmetic": f"{self.kind} found no schedule shorter than {low} ps to exist",
                "horizons": self.stats.get("horizons", []),
            }
        self.stats["proof"] = proof
        return self._result(schedule, low, limit, witness)

    # --- the search ------------------------------------------------------------------------------

    def _search(self, low: int, schedule: Schedule | None) -> tuple[int, Schedule | None, Limit]:
        """Raise the bound and improve the schedule (both in picoseconds) until they meet."""
        from nestopt.collective.bounds import reverse_instance

        if self.instance.copies_sums:
            return search_shared(
                self.kind,
                self.instance,
                low,
                schedule,
                self.left,
                self._settings,
                self.stats,
            )
        parts = [p for p in self.instance.collective.parts if p.num_chunks and len(p.npus) > 1]
        backward = all(p.reduction and p.pattern != "all-reduce" for p in parts) and bool(parts)
        backward = backward and not self.additions
        work = reverse_instance(self.instance) if backward else self.instance
        tick = finest_tick(work)
        self.stats |= {"tick_ps": tick, "reversed": backward}
        problem = grid_problem(work)
        makespan = 0 if schedule is None else schedule.makespan_ps
        estimate = max(problem.lower_bound(), -(-max(low, makespan) // tick))
        most = max(MOST_TICKS, _MOST_VARIABLES // (problem.num_links * len(problem.chunks)))
        chosen = self._tick(tick, estimate, min(most, 10 * MOST_TICKS))
        if chosen is not None and self.additions:
            raise UsageError(
                f"constraints of one's own are stated on the finest grid, of {tick} ps, and about "
                f"{estimate} ticks of it are too many; coarser durations or a smaller instance"
            )
        if chosen is not None:
            return self._search_rounded(work, chosen, low, schedule, backward)
        state = Search(max(1, problem.lower_bound(), -(-low // tick)))
        state.one_by_one = bool(self.additions)
        if schedule is not None:
            state.high = schedule.makespan_ps // tick
        by_intervals = self.kind == "cpsat" and (
            self.choice("model") == "interval"
            or (
                self.choice("model") == "auto"
                and not self.additions
                and not self._grid_fits(problem, estimate)
            )
        )
        self.stats["model"] = "interval" if by_intervals else "grid"
        known = [] if schedule is None else sends_of(work, schedule, tick, backward)
        decide = self._by_intervals if by_intervals else self._by_horizons
        try:
            decide(problem, state, known)
        except KeyboardInterrupt:
            noticed()
            state.limit = Limit.INTERRUPTED
        self.stats["horizons"] = state.log
        found = schedule
        if state.sends:
            found = self._schedule(work, state.sends, tick, backward)
        return max(low, state.low * tick), found, state.limit

    def _tick(self, tick: int, estimate: int, most: int) -> int | None:
        """A coarser tick, if one is asked for, or if the finest is too fine for a grid."""
        if "tick" in self.options.set:
            try:
                wanted = int(self.options.set["tick"])
            except ValueError:
                wanted = 0
            if wanted < 1:
                raise UsageError(f"--set tick={self.options.set['tick']}: expected picoseconds")
            return wanted if wanted != tick else None
        by_grid = self.kind == "milp" or self.choice("model") == "grid"
        if not by_grid or estimate <= most:
            return None
        return -(-estimate * tick // MOST_TICKS)

    def _grid_fits(self, problem: GridProblem, estimate: int) -> bool:
        size = len(problem.chunks) * problem.num_links * estimate
        nearly_equal = int(problem.transfer.max()) <= _MOST_TICKS_A_SEND
        return nearly_equal and estimate <= MOST_TICKS and size <= _MOST_VARIABLES

    def _search_rounded(
        self,
        work: CollectiveInstance,
        tick: int,
        low: int,
        schedule: Schedule | None,
        backward: bool,
    ) -> tuple[int, Schedule | None, Limit]:
        """A bound from durations rounded down, and a schedule from durations rounded up."""
        self.stats |= {"model": "grid", "rounded_tick_ps": tick}
        below = grid_problem(work, tick)
        limit = Limit.NONE
        if int(below.occupancy.min()) >= 1 and int(below.transfer.min()) >= 1:
            state = Search(max(1, below.lower_bound()))
            if schedule is not None:
                # the schedule, with every duration shortened, is a schedule of this problem
                state.high = schedule.makespan_ps // tick + 1
            self._by_horizons(below, state, ())
            low = max(low, state.low * tick)
            self.stats["rounded_down"] = {"bound_ticks": state.low, "horizons": state.log}
            limit = state.limit
        else:
            self.stats["rounded_down"] = "skipped: a duration is shorter than the tick"
        above = grid_problem(work, tick, round_up=True)
        state = Search(max(1, above.lower_bound()))
        self._by_horizons(above, state, ())
        self.stats["rounded_up"] = {"horizons": state.log}
        if state.sends:
            found = schedule_of(work, state.sends, tick, backward)
            if schedule is None or found.makespan_ps < schedule.makespan_ps:
                schedule = found
        if state.limit is not Limit.NONE:
            limit = state.limit
        if limit is Limit.NONE and schedule is not None and schedule.makespan_ps > low:
            # both searches are done; what is left is rounding
            limit = Limit.ITERATIONS
        return low, schedule, limit

    def _by_horizons(self, problem: GridProblem, state: Search, known: Sequence[Send]) -> None:
        """Decide horizon after horizon, upwards from the bound."""
        wanted = self.choice("symmetry") == "yes" and not self.additions
        symmetries = find_symmetries(problem) if wanted else []
        self.stats["symmetries"] = len(symmetries)
        skip, last = 0, -1
        while state.high is None or state.low < state.high or not self._model_written():
            if self._gap_closed(state, problem.tick):
                state.limit = Limit.ITERATIONS
                return
            if self.left() <= 0:
                state.limit = Limit.TIME
                return
            horizon = max(state.next_horizon(), skip)
            if state.high is not None and horizon >= state.high and self._model_written():
                # all below was left undecided: once more the step below, in the time that is left
                if last == state.high - 1:
                    state.limit = Limit.TIME
                    return
                horizon = last = state.high - 1
            if len(problem.chunks) * problem.num_links * horizon > _LARGEST_MODEL:
                self.stats["note"] = f"a model of {horizon} ticks would be too large"
                state.limit = Limit.MEMORY
                return
            outcome = self._decide(problem, state, horizon, (symmetries, known))
            if outcome is None:
                return
            if outcome.termination.reason is Reason.NO_SOLUTION:
                if state.one_by_one:
                    state.limit = outcome.termination.limit
                    return
                skip = horizon + 1
            if outcome.termination.limit is Limit.INTERRUPTED:
                state.limit = Limit.INTERRUPTED
                return
            answer = outcome.termination.reason.value
            self._report_ticks(state, problem.tick, f"horizon {horizon} {answer}")
        state.limit = Limit.NONE

    def _decide(
        self,
        problem: GridProblem,
        state: Search,
        horizon: int,
        help_: tuple[Sequence[Any], Sequence[Send]],
    ) -> Outcome | None:
        """Solve the model of a horizon, and learn from it; None if that ends the search.

        `help_` are symmetries, and the sends of a known schedule.
        """
        symmetries, known = help_
        # while a shorter schedule may still be found above, leave time for it
        share = self.left() / 2 if state.high is None or horizon + 1 < state.high else 1e18
        if state.one_by_one:
            share = 1e18
        begin = time.perf_counter()
        hint = known if state.high is not None and horizon >= state.high else ()
        try:
            model = self._model(problem, horizon, symmetries)
        except _OutOfTimeError:
            state.limit = Limit.TIME
            return None
        outcome, sends = model.solve(hint, **self._settings(min(share, self.left())))
        answer = outcome.termination.reason.value
        seconds = round(time.perf_counter() - begin, 3)
        state.log.append({"horizon": horizon, "answer": answer, "seconds": seconds})
        if outcome.termination.reason is Reason.ERROR:
            self.stats["error"] = outcome.note
            state.limit = Limit.ITERATIONS
            return None
        if outcome.termination.reason is Reason.INFEASIBLE:
            state.low = max(state.low, horizon + 1)
        elif outcome.values is not None:
            state.sends = sends
            state.high = max(
                (
                    s.start + int(problem.transfer[problem.chunks[s.chunk].size, s.link])
                    for s in sends
                ),
                default=0,
            )
            if state.one_by_one:
                state.high = max(state.high, state.low)
        return outcome

    def _model_written(self) -> bool:
        return self.written or not self.options.write_model

    def _model(self, problem: GridProblem, horizon: int, symmetries: Any) -> Any:
        if self.kind == "milp":
            return CollectiveMilp(problem, horizon, symmetries, self._stop, self.additions)
        return CollectiveCpsat(problem, horizon, symmetries, self._stop, self.additions)

    def _stop(self) -> None:
        if self.left() <= 0:
            raise _OutOfTimeError

    def _settings(self, seconds: float) -> dict[str, Any]:
        options = self.options
        settings: dict[str, Any] = {"threads": options.threads, "seed": options.seed}
        settings["time_limit"] = max(0.01, seconds)
        if options.write_model and not self.written:
            settings["write_model"] = options.write_model
            self.written = True
        if self.kind == "milp":
            # the windows of the variables are a presolve of their own; that of HiGHS costs far more
            # time than it saves here, and has called feasible horizons infeasible
            settings |= {"backend": options.backend, "presolve": False}
        elif "deterministic-time" in options.set:
            given = options.set["deterministic-time"]
            try:
                settings["deterministic_time"] = float(given)
            except ValueError:
                raise UsageError(f"--set deterministic-time={given}: no number") from None
        return settings

    def _by_intervals(self, problem: GridProblem, state: Search, known: Sequence[Send]) -> None:
        """Minimize in one model with times instead of ticks."""
        top = state.high
        if top is None:
            # one chunk after another, each over the longest path
            longest = int(problem.transfer.max()) * problem.num_nodes
            top = longest * sum(len(c.targets) + len(c.ready) for c in problem.chunks)
        model = CollectiveIntervals(problem, state.low, top, self.additions)
        settings = self._settings(self.left()) | {"rel_gap": self.options.rel_gap}
        if self.options.progress is not None:
            tell, tick = self.options.progress, problem.tick
            settings["progress"] = lambda seconds, objective, bound, note: tell(
                seconds, objective * tick, max(state.low, bound) * tick, note
            )
        begin = time.perf_counter()
        outcome, sends = model.solve(known, **settings)
        seconds = round(time.perf_counter() - begin, 3)
        answer = outcome.termination.reason.value
        state.log.append({"horizon": top, "answer": answer, "seconds": seconds})
        state.limit = outcome.termination.limit
        if outcome.termination.reason is Reason.ERROR:
            self.stats["error"] = outcome.note
            state.limit = Limit.ITERATIONS
        elif math.isfinite(outcome.bound):
            state.low = max(state.low, math.ceil(outcome.bound - 1e-6))
        if sends and outcome.objective is not None:
            state.sends, state.high = sends, round(outcome.objective)

    def _gap_closed(self, state: Search, tick: int) -> bool:
        if state.high is None or self.options.rel_gap <= 0 or state.low >= state.high:
            return False
        return (state.high - state.low) / state.high <= self.options.rel_gap

    # --- incumbents and results ------------------------------------------------------------------

    def _incumbent(self, target: int) -> Schedule | None:
        if self.choice("incumbent") == "none" and self.options.warm_start is None:
            return None
        found = starting_schedule(self.instance, self.options, target, self.left() / 4)
        if self.additions:
            admission = self.admission(found)
            if not admission:
                why = ", ".join(admission.because) or "no time to see whether it keeps them"
                self.stats["notes"].append(
                    f"the start and its upper bound switched off, they ignore: {why}"
                )
                return None
        return found

    def admission(self, schedule: Schedule) -> Admission:
        """Whether the model on the finest grid admits a schedule; the families that refuse it."""
        from nestopt.formulations.collective.admission import admission

        return admission(self.kind, self.instance, schedule, self.additions, self.options)

    def _schedule(
        self, work: CollectiveInstance, sends: Sequence[Send], tick: int, backward: bool
    ) -> Schedule:
        """The schedule that sends stand for; one that keeps the constraints of the user's own."""
        found = schedule_of(work, sends, tick, backward)
        if not self.additions:
            return found
        for candidate in (
            found,
            schedule_of(work, pruned(grid_problem(work), sends), tick, backward, retime=False),
        ):
            try:
                check_schedule(self.instance, candidate)
            except CheckError:
                continue
            if self.stats.get("model") == "interval" or self.admission(candidate):
                return candidate
        return schedule_of(work, sends, tick, backward, retime=False)

    def _report(self, schedule: Schedule | None, bound: int, note: str) -> None:
        if self.options.progress is not None:
            objective = None if schedule is None else schedule.makespan_ps
            self.options.progress(time.perf_counter() - self.begin, objective, bound, note)

    def _report_ticks(self, state: Search, tick: int, note: str) -> None:
        if self.options.progress is not None:
            objective = None if state.high is None else state.high * tick
            spent = time.perf_counter() - self.begin
            self.options.progress(spent, objective, state.low * tick, note)

    def _infeasible(self, message: str) -> Result:
        from nestopt.collective.greedy.solve import schedule_result

        return schedule_result(
            self.instance, self.options, self.kind, self.begin, None, infeasible=message
        )

    def _result(
        self, schedule: Schedule | None, bound: int, limit: Limit, witness: dict[str, Any]
    ) -> Result:
        objective = None
        if schedule is not None:
            check_schedule(self.instance, schedule)
            objective = schedule.makespan_ps
            bound = min(bound, objective)
        if objective is not None and objective == bound:
            ended = Termination(Reason.OPTIMAL)
        elif objective is None:
            ended = Termination(Reason.NO_SOLUTION, limit)
        else:
            ended = Termination(Reason.FEASIBLE, Limit.TIME if limit is Limit.NONE else limit)
        return Result(
            problem="collective",
            instance=instance_record(self.instance),
            method=self.kind,
            termination=ended,
            objective=objective,
            bound=bound,
            seconds=time.perf_counter() - self.begin,
            seed=self.options.seed,
            threads=self.options.threads,
            solution_json=None if schedule is None else schedule.to_json(),
            witness=witness,
            stats=self.stats,
        )
