"""The instance that a result states, of either schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.core.errors import CheckError, InputError, UsageError
from nestopt.placement.model.instance import SCHEMAS, PlacementInstance
from nestopt.placement.model.space import PlanSpace
from nestopt.placement.model.space_text import SPACE_SETTINGS, parse_space
from nestopt.placement.model.words import Structure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nestopt.core.result import Result

__all__ = ["instance_of", "space_of_settings"]


def instance_of(result: Result) -> PlacementInstance:
    """The instance in a result.

    In a result of schema 1 the settings state what its instance does not: space and objective.

    Raises
    ------
    CheckError
        If there is none, or it is malformed.
    """
    data = result.instance.get("data")
    if not isinstance(data, dict):
        raise CheckError("instance.data: the result does not hold its instance")
    try:
        found = PlacementInstance.from_json(data)
        if data.get("schema") != SCHEMAS[0]:
            return found
        objective = result.settings.get("objective", found.objective)
        return found.over(space_of_settings(result.settings), objective)
    except (InputError, UsageError) as error:
        raise CheckError(f"instance.data: {error}") from error


def space_of_settings(settings: Mapping[str, Any]) -> PlanSpace:
    """The space of a run of schema 1: ``default-1``, changed by its settings."""
    pairs = {key: str(value) for key, value in settings.items() if key in SPACE_SETTINGS}
    structure = str(settings.get("space", "structured"))
    if structure in tuple(Structure):
        structure = str(Structure.of_record(structure, ""))
    return parse_space({**pairs, "structure": structure}, PlanSpace.named("default-1"))
