"""A plan as text, as a table, and on axes of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.charts import rendered
from nestopt.core.errors import NestoptError
from nestopt.core.solution import NO_MATPLOTLIB, as_html, as_text
from nestopt.placement.show.describe import name_ranges, number_ranges, share_words
from nestopt.placement.show.orders import order_words
from nestopt.placement.show.plot_layout import lay_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan, Stage
    from nestopt.placement.model.workload import Workload

__all__ = ["chart", "draw", "html", "page", "rows", "summary"]


def _operators(plan: Plan, stage: Stage) -> str:
    if plan.workload is None:
        return " ".join(number_ranges(stage.operators))
    names = [plan.workload.operators[o].name for o in stage.operators]
    return ", ".join(name_ranges(names))


def rows(plan: Plan) -> list[dict[str, Any]]:
    """One row a stage, every field of its own; devices as a flat list in order of replica."""
    found = []
    for index, stage in enumerate(plan.stages):
        config = stage.config
        devices = np.asarray(stage.devices)
        row: dict[str, Any] = {
            "stage": index,
            "operators": _operators(plan, stage),
            "first_operator": stage.operators[0],
            "last_operator": stage.operators[-1],
            "tensor": config.t,
            "tensor_x": config.tensor[0],
            "tensor_y": config.tensor[1],
            "tensor_z": config.tensor[2],
            "context": config.context,
            "expert": config.expert,
            "sequence_parallel": config.sequence_parallel,
            "zero": config.zero,
            "recompute": config.recompute,
            "overlap": config.overlap,
            "replicas": plan.replicas,
            "devices": devices.reshape(-1).tolist(),
        }
        if plan.cluster is not None:
            kinds = sorted({int(plan.cluster.type_of[d]) for d in devices.reshape(-1)})
            row["axes"] = order_words(plan.cluster, stage)
            row["device_types"] = ", ".join(plan.cluster.types[kind].name for kind in kinds)
        found.append(row)
    return found


def _short(plan: Plan) -> list[dict[str, str]]:
    return [
        {
            "stage": str(index),
            "operators": _operators(plan, stage),
            "configuration": stage.config.label(),
            "devices": " ".join(number_ranges(sorted(np.asarray(stage.devices).reshape(-1)))),
        }
        for index, stage in enumerate(plan.stages)
    ]


def _head(plan: Plan) -> str:
    used = sum(int(np.size(stage.devices)) for stage in plan.stages)
    parts = [
        f"stages: {len(plan.stages)}",
        f"replicas: {plan.replicas}",
        f"micro-batch: {plan.microbatch}",
        f"schedule: {plan.schedule}" + (f" ({plan.chunks} chunks)" if plan.chunks > 1 else ""),
        f"devices: {used}",
        *([f"shares: {share_words(plan.shares)}"] if plan.shares else []),
    ]
    return ", ".join(parts)


def summary(plan: Plan) -> str:
    """One line about the whole plan, then a table of its stages."""
    return f"{_head(plan)}\n{as_text(_short(plan))}"


def html(plan: Plan) -> str:
    """The same for a notebook."""
    return as_html(_short(plan), _head(plan))


def _known(plan: Plan) -> tuple[Workload, Cluster]:
    if plan.workload is None or plan.cluster is None:
        raise NestoptError("the plan does not know its cluster; say plan.on(workload, cluster)")
    return plan.workload, plan.cluster


def chart(plan: Plan, width: int) -> str:
    """A picture of characters."""
    from nestopt.placement.show.chart import plan_chart

    return rendered(plan_chart(*_known(plan), plan, width))


def page(plan: Plan) -> str:
    """An interactive page."""
    from nestopt.placement.show.page import plan_page

    return plan_page(*_known(plan), plan).html()


def draw(plan: Plan, ax: Axes | None) -> Axes:
    """The stages on the cluster's tree."""
    if plan.cluster is None:
        raise NestoptError("the plan does not know its cluster; say plan.on(workload, cluster)")
    try:
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
        from nestopt.placement.show.plot import draw_cluster
    except ModuleNotFoundError as error:
        raise NestoptError(NO_MATPLOTLIB) from error
    draw_cluster(ax, plan.cluster, plan, lay_out(plan.cluster))
    return ax
