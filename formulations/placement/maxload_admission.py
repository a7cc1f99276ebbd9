"""Whether a max-load model admits a split: its stages are fixed, and the rest is solved."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nestopt.core.result import Reason
from nestopt.formulations.base import Admission
from nestopt.formulations.families import conflict, families_of

if TYPE_CHECKING:
    from nestopt.core.options import SolveOptions
    from nestopt.formulations.families import Addition
    from nestopt.formulations.placement.maxload_common import MaxLoadData

__all__ = ["admission", "is_impossible", "names_of"]

_SECONDS = 60.0


def admission(
    data: MaxLoadData,
    model_class: type[Any],
    additions: tuple[Addition, ...],
    options: SolveOptions,
) -> Admission:
    """Whether the starting split of `data` keeps all families and constraints of a user's own."""

    def impossible(left_out: frozenset[str]) -> bool | None:
        model = model_class(data, additions, left_out)
        for variable, value in model.choices():
            model.fix(variable, value)
        return is_impossible(model, options)

    names = names_of(model_class, additions)
    return Admission.of(impossible(frozenset()), lambda: conflict(names, impossible))


def names_of(model_class: type[Any], additions: tuple[Addition, ...]) -> tuple[str, ...]:
    """Names of all families, then those of the constraints of a user's own."""
    return (*(f.name for f in families_of(model_class)), *(a.name for a in additions))


def is_impossible(model: Any, options: SolveOptions) -> bool | None:
    """Whether a model has no solution at all; None if the time is over first."""
    chosen = replace(options, rel_gap=0.999999, write_model=None, progress=None)
    outcome = model.solve(chosen, min(options.time_limit, _SECONDS))
    if outcome.termination.reason is Reason.INFEASIBLE:
        return True
    return False if outcome.values is not None else None
