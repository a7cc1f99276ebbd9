"""Spaces around a plan: one of its choices open at a time, the others as the plan has them.

A large space takes long to prove, but a good plan is seldom far from a better one: it differs in
the schedule and its chunks, or in the degrees, and not in all at once. Searching these small spaces
one after another, each from the best plan so far, gives an incumbent that the exact search can then
seldom improve. It proves nothing and skips nothing: what it finds is a plan of the whole space.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nestopt.placement.model.words import ALL, Recompute, ScheduleName

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.space import PlanSpace

__all__ = ["around"]

_OPEN: tuple[tuple[str, ...], ...] = (
    ("schedules", "chunks"),
    ("schedules", "chunks", "microbatch"),
    ("tensor", "sequence"),
    ("context", "sequence"),
    ("replicas", "microbatch"),
    ("zero", "recompute"),
    ("expert",),
)
"""Fields that are open together: what only pays if the others follow."""


def around(plan: Plan, space: PlanSpace) -> Iterator[tuple[tuple[str, ...], PlanSpace]]:
    """The small spaces around a plan, each inside `space`: the open fields, and the space.

    A field that `space` leaves no choice in is passed over.
    """
    fixed = _fixed(plan, space)
    for fields in _OPEN:
        if any(getattr(space, name) != fixed[name] for name in fields):
            closed = {name: value for name, value in fixed.items() if name not in fields}
            if "schedules" not in fields and fixed["chunks"] is ALL:
                closed["chunks"] = ALL
            yield fields, replace(space, **closed)


def _fixed(plan: Plan, space: PlanSpace) -> dict[str, Any]:
    """What the plan has of every field that may be closed."""
    configs = [stage.config for stage in plan.stages]
    interleaved = str(plan.schedule) == str(ScheduleName.INTERLEAVED)
    return {
        "tensor": tuple(sorted({c.t for c in configs})),
        "context": tuple(sorted({c.context for c in configs})),
        "expert": tuple(sorted({c.expert for c in configs})),
        "zero": tuple(sorted({c.zero for c in configs})),
        "recompute": tuple(sorted({Recompute(c.recompute) for c in configs}, key=str)),
        # stages that cannot have it (Gy = 1 or Gx > 1) are off whatever the space says
        "sequence": tuple(
            sorted({c.sequence_parallel for c in configs if c.tensor[1] > 1 and c.tensor[0] == 1})
        )
        or space.sequence,
        "microbatch": (plan.microbatch,),
        "replicas": (plan.replicas,),
        "schedules": (ScheduleName(str(plan.schedule)),),
        "chunks": (plan.chunks,) if interleaved else ALL,
    }
