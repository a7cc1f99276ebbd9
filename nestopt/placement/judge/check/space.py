"""Whether a plan is in the space that its instance states; the checker's own reading of a space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan, StageConfig

__all__ = ["check_space", "layouts_of"]


def check_space(instance: PlacementInstance, plan: Plan) -> str:
    """Refuse a plan that the instance's space does not offer.

    Returns
    -------
    str
        What was verified.

    Raises
    ------
    CheckError
        Naming the field, the stage and what it has, and what the space offers.
    """
    space, label = instance.space.to_json(), instance.space.label
    layouts = layouts_of(instance.cluster, plan)
    try:
        _refuse_plan(space, plan)
        _refuse_places(space, plan, layouts)
        _refuse_orders(space, plan)
    except CheckError as error:
        raise CheckError(f"the plan is outside the space {label}: {error}") from error
    shown = "inner" if "inner" in layouts else next(iter(layouts), "")
    return f"the plan lies in the space {label}" + (f" (layout {shown})" if shown else "")


def _refuse_plan(space: Mapping[str, Any], plan: Plan) -> None:
    _refuse(space, "replicas", plan.replicas)
    _refuse(space, "microbatch", plan.microbatch)
    _refuse(space, "schedules", plan.schedule)
    if plan.schedule == "interleaved":
        _refuse(space, "chunks", plan.chunks)
    if plan.shares and space.get("shares") != "unequal":
        raise CheckError("shares: the plan states them; the space offers equal ones alone")
    for index, stage in enumerate(plan.stages):
        _refuse_config(space, stage.config, f"stage {index} has ")
    configs = {stage.config for stage in plan.stages}
    if space["uniform"] and len(configs) > 1:
        labels = ", ".join(sorted(c.label() for c in configs))
        raise CheckError(f"uniform: {len(configs)} configurations ({labels}); expected one")


def _refuse_config(space: Mapping[str, Any], config: StageConfig, who: str) -> None:
    x, y, z = config.tensor
    _refuse(space, "tensor", x * y * z, who)
    _refuse(space, "context", config.context, who)
    _refuse(space, "expert", config.expert, who)
    if space["decomposition"] == "megatron" and (x > 1 or z > 1):
        raise CheckError(f"decomposition: {who}{config.tensor}; the space offers (1, t, 1) alone")
    _refuse(space, "zero", config.zero, who)
    _refuse(space, "recompute", config.recompute, who)
    if y > 1 and x == 1:
        _refuse(space, "sequence", config.sequence_parallel, who)
    if x * y * z > 1:
        _refuse(space, "overlap", config.overlap, who)
    # of what a framework hides, a stage has what it can hide
    cannot = {
        "tensor": y == 1 or x > 1 or z > 1 or config.overlap,
        "gathers": config.zero < 2,
    }
    able = [{word for word in words if not cannot.get(word)} for words in space["hides"]]
    if set(config.hides.words) not in able:
        offered = ", ".join("+".join(words) or "none" for words in space["hides"])
        raise CheckError(
            f"hides: {who}{'+'.join(config.hides.words) or 'none'}; the space offers {offered}"
        )


def _refuse_places(space: Mapping[str, Any], plan: Plan, layouts: set[str]) -> None:
    if space["structure"] == "general":
        return
    if not layouts:
        raise CheckError(
            "structure: the stages are no contiguous runs of alive devices in hierarchy order, "
            "each dealt to its axes in one order"
        )
    if plan.replicas > 1 and not layouts & set(space["layouts"]):
        offered = ", ".join(space["layouts"])
        raise CheckError(f"layouts: {' and '.join(sorted(layouts))}; the space offers {offered}")


def _refuse_orders(space: Mapping[str, Any], plan: Plan) -> None:
    """Without orders of axes, every replica and every tensor group is a run of its own."""
    if space["structure"] == "general" or space.get("orders") == "any":
        return
    for index, stage in enumerate(plan.stages):
        if (np.diff(stage.devices, axis=1) <= 0).any() or (np.diff(stage.devices[:, 0]) <= 0).any():
            raise CheckError(
                f"structure: stage {index} deals its devices to the axes in another order than "
                "replica, expert, context, z, y, x; the space offers that one alone"
            )
        rows = stage.devices
        if (rows[:-1].max(axis=1) > rows[1:].min(axis=1)).any():
            raise CheckError(
                f"structure: replicas of stage {index} lie within each other; the space offers one "
                "after the other"
            )


def _refuse(space: Mapping[str, Any], field: str, value: Any, who: str = "") -> None:
    offered = space[field]
    if offered != "all" and value not in offered:
        shown = ", ".join(str(each).lower() for each in offered)
        raise CheckError(f"{field}: {who}{str(value).lower()}; the space offers {shown}")


def layouts_of(cluster: Cluster, plan: Plan) -> set[str]:
    """The layouts of the structured space that a plan's places have (``MODEL.md``, section 8).

    ``inner``: the replicas of a stage follow each other, stage after stage. ``outer``: every
    replica has the same offsets in a window of its own, all windows of equal width.
    """
    failed = set(cluster.failed)
    alive = [i for i in range(len(cluster.type_of)) if i not in failed]
    rank = np.full(len(cluster.type_of), -1)
    rank[alive] = np.arange(len(alive))
    places = [rank[stage.devices] for stage in plan.stages]
    shapes = [(s.config.expert, s.config.context, *s.config.tensor[::-1]) for s in plan.stages]
    found = set()
    runs = [np.sort(run.ravel()) for run in places]
    dealt = (_dealt(run, (len(run), *shape)) for run, shape in zip(places, shapes, strict=True))
    if _ascend(runs) and all(dealt):
        found.add("inner")
    ranks = (_dealt(run[0], shape) for run, shape in zip(places, shapes, strict=True))
    if _ascend([np.sort(run[0]) for run in places]) and all(ranks):
        steps = {int(step) for run in places for step in np.diff(run, axis=0).ravel()}
        width = steps.pop() if len(steps) == 1 else 0
        last = int(places[-1][0].max())
        if plan.replicas == 1 or (not steps and last < width <= len(alive) // plan.replicas):
            found.add("outer")
    return found


def _dealt(run: np.ndarray, shape: tuple[int, ...]) -> bool:
    """Whether a run of places is counted through by its axes, each with a step of its own.

    The place of a role is the first one's plus, for each axis, the role's index times the step.
    """
    box = run.reshape(shape)
    first = int(box.flat[0])
    total = np.full(shape, first)
    for axis, (size, index) in enumerate(zip(shape, np.indices(shape), strict=True)):
        if size > 1:
            step = int(np.moveaxis(box, axis, 0)[1].flat[0]) - first
            if step <= 0:
                return False
            total += step * index
    return bool((box == total).all())


def _ascend(runs: Iterable[np.ndarray]) -> bool:
    """Whether each run is contiguous and starts after the one before."""
    last = -1
    for run in runs:
        if run[0] <= last or (np.diff(run) != 1).any():
            return False
        last = int(run[-1])
    return True
