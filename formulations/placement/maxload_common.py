"""What both max-load models start from: units, a cutoff, and what the cutoff implies.

| symbol | code | meaning | unit |
| --- | --- | --- | --- |
| v | `units` | what moves as one | |
| s | `stages` | stages in pipeline order, one for each device | |
| t = (h, U) | `units.transfers` | outputs of unit h that the units U take | |
| tau, gamma | `accelerator_time`, `cpu_time`, `cost` | time of a unit; of a transfer | s |
| M, C | `memory`, `accelerator_memory` | bytes of a unit; of an accelerator | bytes |
| Delta | `gaps` | (u, v, delta): v lies at least delta stages after u | |
| U | `cutoff` | largest load of the starting split | s |
| n | `accelerators`, `cpus` | devices of a kind | |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import SolverError
from nestopt.core.result import Reason, Termination
from nestopt.placement.model.ideals import topological_order
from nestopt.placement.partitioning.maxload.dp import linear_split
from nestopt.placement.partitioning.maxload.model import Stage, stage_load
from nestopt.placement.partitioning.maxload.outcome import (
    infeasible_reasons,
    load_bound,
    make_result,
)
from nestopt.placement.partitioning.maxload.units import Units, make_units, restore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.formulations.solvers.adapters import Outcome
    from nestopt.placement.partitioning.maxload.model import MaxLoadProblem

__all__ = ["MaxLoadData", "finish", "impossible", "prepare", "scaled_progress", "with_start"]

_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class MaxLoadData:
    """A problem in the form that the models use.

    Attributes
    ----------
    problem : MaxLoadProblem
    units : Units
    stages : int
        Pipeline stages 0..stages-1, one for each device; which is a CPU is decided by the model.
    cutoff : float
        Largest load of the starting split, seconds (inf without one): no optimal split exceeds it.
    lower : float
        A lower bound on the largest load, seconds.
    first, last : tuple of int
        Stages between which each unit lies in every split within the cutoff.
    gaps : tuple of (int, int, int)
        (u, v, g): unit v lies at least g stages after unit u. Every edge of the order is there.
    start : tuple of Stage or None
        The starting split, by operators.
    start_stage : tuple of int
        Stage of each unit in the starting split; empty without one.
    start_cpu : frozenset of int
        Stages that are CPUs in the starting split.
    """

    problem: MaxLoadProblem
    units: Units
    stages: int
    cutoff: float
    lower: float
    first: tuple[int, ...]
    last: tuple[int, ...]
    gaps: tuple[tuple[int, int, int], ...]
    start: tuple[Stage, ...] | None
    start_stage: tuple[int, ...]
    start_cpu: frozenset[int]


def prepare(
    problem: MaxLoadProblem,
    options: SolveOptions,
    keeps: Callable[[MaxLoadData], bool] = lambda data: True,
) -> MaxLoadData:
    """Units, a starting split (the given one if it is better), windows and gaps.

    Parameters
    ----------
    keeps : callable
        Whether a starting split keeps the constraints of a user's own; one that does not is not
        used, nor is its load as a cutoff.
    """
    units = make_units(problem)
    candidates = [_given_split(options), linear_split(problem, units)[0]]
    found = [with_start(problem, units, split) for split in candidates if split is not None]
    for data in sorted(found, key=lambda data: data.cutoff):
        if keeps(data):
            return data
    return with_start(problem, units, None)


def with_start(
    problem: MaxLoadProblem, units: Units, split: tuple[Stage, ...] | None
) -> MaxLoadData:
    """The data of a search that starts from a split, or from none."""
    cutoff = math.inf if split is None else _load(problem, split)
    stages = problem.accelerators + problem.cpus
    first, last, gaps = _windows(problem, units, stages, cutoff)
    where: tuple[int, ...] = ()
    cpus: set[int] = set()
    if split is not None:
        stage_of = {i: s for s, stage in enumerate(split) for i in stage.operators}
        where = tuple(stage_of[members[0]] for members in units.members)
        cpus = {s for s, stage in enumerate(split) if stage.device == "cpu"}
        # Empty stages come last, and the CPUs among them after the accelerators
        cpus |= set(range(stages - problem.cpus + len(cpus), stages))
    return MaxLoadData(
        problem,
        units,
        stages,
        cutoff,
        load_bound(problem, units),
        first,
        last,
        gaps,
        split,
        where,
        frozenset(cpus),
    )


def scaled_progress(
    options: SolveOptions, scale: float
) -> Callable[[float, float | None, float, str], Any] | None:
    """The run's progress report, for a model that counts in units of `scale` seconds."""
    report = options.progress
    if report is None:
        return None

    def scaled(seconds: float, objective: float | None, bound: float, note: str) -> None:
        report(seconds, None if objective is None else objective * scale, bound * scale, note)

    return scaled


def impossible(data: MaxLoadData, options: SolveOptions, method: str) -> Result | None:
    """The result if some unit fits on no device at all, else None."""
    if math.isfinite(data.lower):
        return None
    reasons = infeasible_reasons(data.problem, data.units)
    ended = Termination(Reason.INFEASIBLE)
    return make_result(data.problem, options, method, ended, None, math.inf, 0.0, reasons=reasons)


def finish(
    data: MaxLoadData,
    options: SolveOptions,
    method: str,
    outcome: Outcome,
    seconds: float,
    model: Any,
) -> Result:
    """The result of a model's run.

    Parameters
    ----------
    outcome : Outcome
        Its bound is in units of the model's `unit` seconds.
    model : MaxLoadMilp or MaxLoadCpsat
    """
    problem, scale = data.problem, model.unit
    ended = outcome.termination
    split = data.start
    if outcome.values is not None:
        found = restore(data.units, model.read(outcome))
        if split is None or _load(problem, found) < _load(problem, split):
            split = found
    bound = max(data.lower, outcome.bound * scale)
    reasons: tuple[str, ...] = ()
    if ended.reason is Reason.INFEASIBLE and split is not None:
        raise SolverError(f"{method} calls a problem infeasible that has a split: {outcome.note}")
    if ended.reason is Reason.INFEASIBLE:
        reasons = infeasible_reasons(problem, data.units)
        if model.additions:
            own = ", ".join(a.name for a in model.additions)
            reasons = (f"no split keeps the added constraints: {own}",)
        bound = math.inf
    elif split is not None and ended.reason is Reason.NO_SOLUTION:
        ended = Termination(Reason.FEASIBLE, ended.limit)
    if ended.reason is Reason.ERROR:
        split = None
    stats = {"units": len(data.units), "note": outcome.note} | outcome.stats
    if model.additions:
        stats["added"] = [a.name for a in model.additions]
        stats["notes"] = [
            "constraints of the user's own: starting splits used only where the model admits them"
        ]
    return make_result(
        problem, options, method, ended, split, bound, seconds, reasons=reasons, stats=stats
    )


def _load(problem: MaxLoadProblem, split: Sequence[Stage]) -> float:
    return max(stage_load(problem, stage) for stage in split)


def _given_split(options: SolveOptions) -> tuple[Stage, ...] | None:
    if options.warm_start is None or options.warm_start.solution_json is None:
        return None
    return tuple(
        Stage(stage["device"], tuple(stage["operators"]))
        for stage in options.warm_start.solution_json["stages"]
    )


def _windows(
    problem: MaxLoadProblem, units: Units, stages: int, cutoff: float
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, int, int], ...]]:
    """First and last stage of each unit, and distances in stages between units.

    What lies between u and v in the order has to be computed in the stages from u's to v's, each
    within the cutoff. The compute time on accelerators measures it: an accelerator stage can take
    the cutoff of it, a CPU stage as much more as its units compute faster there.
    """
    count = len(units)
    time = np.array(units.accelerator_time)
    cpu = np.array(units.cpu_time)
    movable = np.array(units.on_accelerator)
    # What no accelerator can run takes nothing of the accelerators' time
    time[~movable] = 0.0
    room = cpu_room = cutoff * (1 + _SLACK)
    work = time > 0
    if problem.cpus and work.any():
        faster = float(np.max(time[work] / np.maximum(cpu[work], np.finfo(float).tiny)))
        # A unit that takes no time on a CPU sets no limit, not even at a cutoff of zero
        cpu_room = math.inf if (cpu[work] == 0).any() else room * max(1.0, faster)
    before = _reachability(units)
    between = (before * time) @ before.astype(float)

    def stages_for(work: float) -> int:
        """The least number of stages for this much work, at most all."""
        if math.isinf(room):
            return 1
        for s in range(1, stages):
            cpus = min(s, problem.cpus)
            if work <= room * (s - cpus) + (cpu_room * cpus if cpus else 0.0):
                return s
        return stages

    first = tuple(stages_for(work) - 1 for work in time @ before)
    last = tuple(stages - stages_for(work) for work in before @ time)
    gaps: list[tuple[int, int, int]] = []
    for u in range(count):
        step = [stages_for(between[u, v]) - 1 if before[u, v] else -1 for v in range(count)]
        for v in range(count):
            if v == u or step[v] < 0:
                continue
            direct = u in units.predecessors[v]
            # Implied if some unit before v is as far from u
            implied = any(step[p] >= step[v] for p in units.predecessors[v])
            if direct or (step[v] > 0 and not implied):
                gaps.append((u, v, step[v]))
    return first, last, tuple(gaps)


def _reachability(units: Units) -> np.ndarray:
    """before[u, v]: unit u is v or must not come in a later stage than v."""
    before = np.eye(len(units), dtype=bool)
    for v in topological_order(units.predecessors):
        for u in units.predecessors[v]:
            before[:, v] |= before[:, u]
    return before
