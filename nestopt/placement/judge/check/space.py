"""Whether a plan is in the space that its file states; the checker's own reading of a space."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nestopt.placement.model.plan import Plan, StageConfig

__all__ = ["check_settings_space", "refuse_outside"]

_NUMBERS = ("tensor", "context", "expert", "zero", "microbatch", "replicas", "chunks")
_SWITCHES = ("sequence", "overlap")


def check_settings_space(settings: Mapping[str, Any], plan: Plan, layout: str | None) -> str | None:
    """Refuse a plan outside the ``--set`` pairs that the file says it was searched with.

    Returns
    -------
    str or None
        What was verified; None if the settings say nothing of a space.

    Raises
    ------
    CheckError
        Naming the setting, the stage and what it has.
    """
    space: dict[str, Any] = {}
    for key in _NUMBERS:
        if key in settings:
            space[key] = [_integer(key, word) for word in _words(key, settings[key])]
    for key in _SWITCHES:
        if key in settings:
            space[key] = [bool(_integer(key, word)) for word in _words(key, settings[key])]
    for key, name in (("recompute", "recompute"), ("layout", "layouts"), ("schedule", "schedules")):
        if key in settings:
            space[name] = _words(key, settings[key])
    if settings.get("uniform") in (True, "true"):
        space["uniform"] = True
    if settings.get("decomposition") is not None:
        space["decomposition"] = settings["decomposition"]
    refuse_outside(space, plan, {layout} if layout else set())
    return f"the plan agrees with the settings {', '.join(sorted(space))}" if space else None


def refuse_outside(space: Mapping[str, Any], plan: Plan, layouts: set[str]) -> None:
    """Refuse a plan that a space does not offer.

    Parameters
    ----------
    space : mapping
        Fields as in a file: lists of what is offered, ``"all"`` for everything; a field left out
        offers everything.
    layouts : set of str
        Layouts of the structured space that the plan has.

    Raises
    ------
    CheckError
        Naming the field, the stage and what it has.
    """
    _refuse(space, "replicas", plan.replicas, "the plan")
    _refuse(space, "microbatch", plan.microbatch, "the plan")
    _refuse(space, "schedules", plan.schedule, "the plan")
    if plan.schedule == "interleaved":
        _refuse(space, "chunks", plan.chunks, "the plan")
    for index, stage in enumerate(plan.stages):
        _refuse_config(space, stage.config, f"stage {index}")
    offered = space.get("layouts", "all")
    if offered != "all" and plan.replicas > 1 and layouts and not layouts & set(offered):
        raise CheckError(
            f"the plan has the layout {' and '.join(sorted(layouts))}; its space offers layouts "
            f"{', '.join(offered)}"
        )
    configs = {stage.config for stage in plan.stages}
    if space.get("uniform") is True and len(configs) > 1:
        labels = ", ".join(sorted(c.label() for c in configs))
        raise CheckError(
            f"uniform=true, but the stages have {len(configs)} configurations: {labels}"
        )


def _refuse_config(space: Mapping[str, Any], config: StageConfig, who: str) -> None:
    x, y, z = config.tensor
    _refuse(space, "tensor", x * y * z, who)
    _refuse(space, "context", config.context, who)
    _refuse(space, "expert", config.expert, who)
    _refuse(space, "zero", config.zero, who)
    _refuse(space, "recompute", config.recompute, who)
    if space.get("decomposition") == "megatron" and (x > 1 or z > 1):
        raise CheckError(f"{who} has tensor {config.tensor}; its space offers (1, t, 1) alone")
    if y > 1 and x == 1:
        _refuse(space, "sequence", config.sequence_parallel, who)
    if x * y * z > 1:
        _refuse(space, "overlap", config.overlap, who)


def _refuse(space: Mapping[str, Any], field: str, value: Any, who: str) -> None:
    offered = space.get(field, "all")
    if offered == "all" or value in offered:
        return
    shown = ", ".join(str(each) for each in offered)
    raise CheckError(f"{who} has {field} {value}; its space offers {shown}")


def _words(key: str, value: Any) -> list[str]:
    if not isinstance(value, str):
        raise CheckError(f"settings.{key}: {value!r}; expected text")
    return value.split(",")


def _integer(key: str, word: str) -> int:
    try:
        return int(word)
    except ValueError as error:
        raise CheckError(f"settings.{key}: {word!r}; expected integers") from error
