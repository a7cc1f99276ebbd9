"""Whether a placement model admits a plan: its choices are fixed, and the rest is solved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.placement.pricing.cost import config_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.formulations.placement.choices import PlacementChoices
    from nestopt.placement.model.plan import Plan, Stage

__all__ = ["fixed_choices"]


def fixed_choices(model: PlacementChoices, plan: Plan) -> list[tuple[Any, int]] | None:
    """Values of a model's choices that make a plan of its scenario.

    Returns
    -------
    list of (variable, int) or None
        None if the plan has a configuration that the model does not offer.
    """
    scenario, count = model.scenario, len(plan.stages)
    stages = {count - 1 - q: stage for q, stage in enumerate(plan.stages)}
    config = {
        p: c
        for p, stage in stages.items()
        for c in scenario.configs
        if config_of(c.grid.grid, c.mode) == stage.config
    }
    if len(config) < count or count > scenario.positions:
        return None
    position = {o: p for p, stage in stages.items() for o in stage.operators}
    found = [(x, int(p < count)) for p, x in model.use.items()]
    found += [(x, int(position[o] <= p)) for (o, p), x in model.late.items()]
    found += [(x, int(p in config and config[p].index == c)) for (p, c), x in model.config.items()]
    for (p, g, role, cell), x in model.role.items():
        taken = p in config and config[p].grid.index == g
        device = int(stages[p].devices.ravel()[role]) if taken else -1
        found.append((x, int(taken and model.data.cell_of[device] == cell)))
    return found + list(_places(model, stages))


def _places(model: PlacementChoices, stages: dict[int, Stage]) -> Iterator[tuple[Any, int]]:
    """The places that a plan's stages are not at (of several windows one stays to be chosen)."""
    for (p, g, k), x in model.place.items():
        devices = model.scenario.places[g][k].devices
        if p not in stages or devices != tuple(stages[p].devices.ravel().tolist()):
            yield x, 0
