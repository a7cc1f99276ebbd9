"""The order in which a stage's devices are dealt to its axes, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nestopt.placement.model.structure import stage_order

if TYPE_CHECKING:
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan, Stage

__all__ = ["NOTE", "has_other_orders", "order_words"]

NOTE = (
    "* from outside in; no framework's own flags give this order of ranks, "
    "`nestopt export launch` pins each rank by a rank file"
)

_WORDS = ("replica", "expert", "context", "z", "tensor", "x")


def order_words(cluster: Cluster, stage: Stage) -> str:
    """The axes of a stage from outside in, a star behind an order that no framework launches.

    Empty for a stage without axes, or whose devices follow no order at all.
    """
    order = stage_order(cluster, stage)
    if not order:
        return ""
    x, _, z = stage.config.tensor
    words = list(_WORDS)
    if x > 1 or z > 1:
        words[4] = "y"
    text = ", ".join(words[axis] for axis in order)
    return text if list(order) == sorted(order) else f"{text} *"


def has_other_orders(cluster: Cluster, plan: Plan) -> bool:
    """Whether a stage's axes run in another order than frameworks deal ranks out."""
    return any(order_words(cluster, stage).endswith("*") for stage in plan.stages)
