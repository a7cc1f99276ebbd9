"""The method `greedy`: matching on a time-expanded network that is never built.

`nestopt.collective.greedy.parts` makes the schedule; here are the settings and the result.

References
----------
.. [1] Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer for Distributed Machine
   Learning", MICRO 2024: matching of links and chunks on a time-expanded network.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.collective.bounds import best_bound
from nestopt.collective.greedy.bound import quick_bound
from nestopt.collective.greedy.copies import LARGE
from nestopt.collective.greedy.match import Effort
from nestopt.collective.greedy.parallel import Clock
from nestopt.collective.greedy.parts import schedule_parts
from nestopt.collective.greedy.steps import equal_step
from nestopt.collective.model.connectivity import find_separation
from nestopt.collective.model.of_result import in_columns
from nestopt.collective.model.store import INLINE_SENDS, write_store
from nestopt.core.errors import UsageError
from nestopt.core.result import Limit, Reason, Result, Termination, instance_record

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.store import AnySchedule
    from nestopt.core.options import SolveOptions

__all__ = ["Synthesis", "schedule_result", "solve", "synthesize"]

# nominal seconds of each search, at effort 1
EFFORT_SECONDS = 0.5
# links up to which a strong bound is quick, so that it is the target of the search
STRONG_BOUND_LINKS = 50_000
ROUTED_BOUND_NODES = 600
# nominal seconds for a bound once the search is over and has not met the target
LATE_BOUND_SECONDS = 2.0
# of a time limit, at most this is for the first bound
BOUND_SHARE = 0.2


@dataclass(slots=True)
class Synthesis:
    """A schedule, how it came about, and which limit cut the search short, if any."""

    schedule: AnySchedule
    stats: dict[str, Any] = field(default_factory=dict)
    limit: Limit = Limit.ITERATIONS


def solve(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Synthesize a schedule greedily; a `Result` that is optimal if the bound is reached.

    ``--set`` keys: ``policy`` (see `POLICIES`; a mix by default), ``restarts``, ``effort``
    (multiplies the time spent on restarts, 1 by default), ``store`` (directory for a schedule too
    large for JSON).
    """
    begin = time.perf_counter()
    separation = find_separation(instance)
    if separation is not None:
        return schedule_result(
            instance, options, "greedy", begin, None, infeasible=separation.message
        )
    # the search comes after it: a schedule is worth more than a good bound
    bound = _bound(instance, BOUND_SHARE * options.time_limit)
    synthesis = synthesize(instance, options, target=bound["value"], begin=begin)
    if synthesis.schedule.makespan_ps > bound["value"] and _meets_quickly(instance):
        bound = _stronger(instance, bound, options.time_limit, begin)
    return schedule_result(instance, options, "greedy", begin, synthesis, bound=bound)


def _bound(instance: CollectiveInstance, time_limit: float) -> dict[str, Any]:
    """A lower bound: the quick one, and better ones where they are quick too."""
    bound = quick_bound(instance)
    if _meets_quickly(instance):
        return bound
    topology = instance.topology
    routed = all(part.pattern == "all-to-all" for part in instance.collective.parts)
    if topology.num_links > STRONG_BOUND_LINKS and not any(
        part.pattern == "all-reduce" for part in instance.collective.parts
    ):
        # links into and out of one NPU say all that could be afforded
        return bound
    effort = 10.0 if routed and topology.num_nodes <= ROUTED_BOUND_NODES else 2.0
    strong = best_bound(instance, effort=effort, time_limit=time_limit)
    return strong if strong["value"] > bound["value"] else bound


def _meets_quickly(instance: CollectiveInstance) -> bool:
    """Whether the search most likely meets the quick bound: large All-Gathers on equal links."""
    pairs = instance.topology.num_nodes * instance.collective.num_chunks
    spreads = all(p.pattern in ("all-gather", "reduce-scatter") for p in instance.collective.parts)
    return pairs >= LARGE and spreads and equal_step(instance) is not None


def _stronger(
    instance: CollectiveInstance, bound: dict[str, Any], time_limit: float, begin: float
) -> dict[str, Any]:
    """The best bound that takes about as long as a search: for what the quick ones leave open."""
    left = time_limit - (time.perf_counter() - begin)
    if left <= 0:
        return bound
    strong = best_bound(instance, effort=LATE_BOUND_SECONDS, time_limit=left)
    return strong if strong["value"] > bound["value"] else bound


def schedule_result(
    instance: CollectiveInstance,
    options: SolveOptions,
    method: str,
    begin: float,
    synthesis: Synthesis | None,
    *,
    bound: dict[str, Any] | None = None,
    infeasible: str = "",
) -> Result:
    """The `Result` of a synthesis, or of a proof that there is none (`infeasible`)."""
    described = instance_record(instance)
    if synthesis is None:
        return Result(
            problem="collective",
            instance=described,
            method=method,
            termination=Termination(Reason.INFEASIBLE),
            objective=None,
            bound=float("inf"),
            seconds=time.perf_counter() - begin,
            seed=options.seed,
            threads=options.threads,
            infeasible_because=(infeasible,),
        )
    makespan = synthesis.schedule.makespan_ps
    value = bound["value"] if bound else 0
    if value == makespan:
        termination = Termination(Reason.OPTIMAL)
    else:
        termination = Termination(Reason.FEASIBLE, synthesis.limit)
    solution = _solution(instance, synthesis.schedule, options)
    if options.progress is not None:
        options.progress(time.perf_counter() - begin, makespan, value, method)
    return Result(
        problem="collective",
        instance=described,
        method=method,
        termination=termination,
        objective=makespan,
        bound=value,
        seconds=time.perf_counter() - begin,
        seed=options.seed,
        threads=options.threads,
        solution_json=solution,
        witness=bound["witness"] | {"name": bound["name"]} if bound else None,
        stats=synthesis.stats,
    )


def _solution(
    instance: CollectiveInstance, schedule: AnySchedule, options: SolveOptions
) -> dict[str, Any]:
    """JSON of a schedule; what is too large for that goes into a directory beside the result."""
    store = options.set.get("store")
    if store is not None:
        return write_store(store, schedule)
    if options.output is not None and schedule.num_sends > INLINE_SENDS:
        beside = Path(options.output).with_suffix(".schedule")
        return write_store(beside, schedule) | {"store": beside.name}
    if schedule.num_sends > 10 * INLINE_SENDS:
        raise UsageError(
            f"the schedule has {schedule.num_sends} sends; give --output, or --set store=DIRECTORY"
        )
    return in_columns(instance, schedule).to_json()


def synthesize(
    instance: CollectiveInstance,
    options: SolveOptions,
    *,
    target: int = 0,
    begin: float | None = None,
) -> Synthesis:
    """The schedule of `solve`, without a result around it; the instance must be connected."""
    clock = Clock(options.time_limit, time.perf_counter() if begin is None else begin)
    effort = Effort(
        policy=options.set.get("policy"),
        restarts=_whole(options, "restarts"),
        seconds=EFFORT_SECONDS * _positive(options, "effort", 1.0),
        seed=options.seed,
        threads=options.threads,
        target=target,
        clock=clock,
    )
    schedule, stats = schedule_parts(instance, effort)
    limit = Limit.TIME if clock.late() else Limit.ITERATIONS
    return Synthesis(schedule, stats, Limit.INTERRUPTED if clock.interrupted else limit)


def _whole(options: SolveOptions, key: str) -> int | None:
    if key not in options.set:
        return None
    try:
        return int(options.set[key])
    except ValueError:
        raise UsageError(f"--set {key}={options.set[key]}: expected a whole number") from None


def _positive(options: SolveOptions, key: str, default: float) -> float:
    try:
        value = float(options.set.get(key, default))
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise UsageError(f"--set {key}={options.set[key]}: expected a positive number")
    return value
