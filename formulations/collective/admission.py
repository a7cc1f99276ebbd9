"""Whether an exact model admits a schedule: its sends are fixed, and the rest is solved."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nestopt.collective.model.schedule import REDUCE
from nestopt.core.result import Reason
from nestopt.formulations.base import Admission
from nestopt.formulations.collective.cpsat import CollectiveCpsat
from nestopt.formulations.collective.grid import GridProblem, Send, finest_tick, grid_problem
from nestopt.formulations.collective.milp import CollectiveMilp
from nestopt.formulations.families import conflict, families_of

if TYPE_CHECKING:
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.core.options import SolveOptions
    from nestopt.formulations.families import Addition

__all__ = ["admission", "is_impossible", "model_of", "names_of"]

_SECONDS = 60.0


def model_of(kind: str) -> type[Any]:
    """The class of a kind's model on a time grid."""
    return CollectiveMilp if kind == "milp" else CollectiveCpsat


def names_of(kind: str, additions: tuple[Addition, ...]) -> tuple[str, ...]:
    """Names of all families, then those of the constraints of a user's own."""
    return (*(f.name for f in families_of(model_of(kind))), *(a.name for a in additions))


def is_impossible(model: Any, options: SolveOptions) -> bool | None:
    """Whether a model has no solution at all; None if the time is over first."""
    chosen = replace(options, time_limit=min(options.time_limit, _SECONDS))
    settings = {"time_limit": chosen.time_limit, "threads": chosen.threads, "seed": chosen.seed}
    outcome, _ = model.solve(**settings)
    if outcome.termination.reason is Reason.INFEASIBLE:
        return True
    return False if outcome.values is not None else None


def admission(
    kind: str,
    instance: CollectiveInstance,
    schedule: Schedule,
    additions: tuple[Addition, ...],
    options: SolveOptions,
) -> Admission:
    """Whether the model of the schedule's own makespan admits it.

    Its sends have to start on ticks of the finest grid (``because`` says "time grid" if not).
    """
    problem = grid_problem(instance, tick := finest_tick(instance))
    sends = _on_grid(problem, schedule, tick)
    if sends is None:
        return Admission(("time grid",))
    horizon = max(1, schedule.makespan_ps // tick)
    chosen = {(s.partial, s.chunk, s.link, s.start) for s in sends}
    build = model_of(kind)

    def impossible(left_out: frozenset[str]) -> bool | None:
        model = build(problem, horizon, (), lambda: None, additions, left_out)
        open_ = {(False, *k) for k in model.send} | {(True, *k) for k in model.part}
        if not chosen <= open_:
            # a send that serves no purpose has no variable, whatever is left out
            return True
        for partial, table in ((False, model.send), (True, model.part)):
            for key, variable in table.items():
                model.fix(variable, int((partial, *key) in chosen))
        return is_impossible(model, options)

    names = names_of(kind, additions)
    return Admission.of(impossible(frozenset()), lambda: conflict(names, impossible))


def _on_grid(problem: GridProblem, schedule: Schedule, tick: int) -> list[Send] | None:
    """The sends in ticks; None if one starts between two, or is of a chunk that never moves."""
    index = {chunk.number: i for i, chunk in enumerate(problem.chunks)}
    rows = zip(
        schedule.chunk.tolist(),
        schedule.link.tolist(),
        schedule.start_ps.tolist(),
        schedule.phase.tolist(),
    )
    found = []
    for c, e, start, phase in rows:
        if start % tick or c not in index:
            return None
        found.append(Send(index[c], e, start // tick, phase == REDUCE))
    return found
