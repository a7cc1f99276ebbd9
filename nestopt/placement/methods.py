"""The placement methods, by name."""

from __future__ import annotations

from nestopt.placement.space import SPACE_SETTINGS
from nestopt.registry import Method

__all__ = ["METHODS"]

METHODS: dict[str, Method] = {
    "dp": Method(
        "nestopt.placement.dp.solve:solve",
        "exact dynamic program over the structured space, at any size",
        SPACE_SETTINGS,
    ),
}
