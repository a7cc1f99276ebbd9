"""The catalogue of names: ``mesh2d:8x8``, ``dgx1v``, ``gpt3-175b``, ``h100-spineleaf-1024``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nestopt.core.errors import UsageError

__all__ = ["resolve"]

_FUNCTIONS = {
    "topology": "nestopt.instances.topologies:by_name",
    "collective": "nestopt.instances.collectives:by_name",
    "cluster": "nestopt.instances.trees:cluster_by_name",
    "workload": "nestopt.instances.jobs:workload_by_name",
}


def resolve(kind: str, name: str) -> Any:
    """The object of a name.

    Raises
    ------
    UsageError
        If the kind or the name is unknown, with a suggestion.
    """
    if kind not in _FUNCTIONS:
        raise UsageError(f"unknown kind {kind!r}; known: {', '.join(_FUNCTIONS)}")
    module, _, function = _FUNCTIONS[kind].partition(":")
    return getattr(import_module(module), function)(name)
