"""The catalogue of names: ``mesh2d:8x8``, ``dgx1v``, ``gpt3-175b``, ``h100-spineleaf-1024``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from nestopt.errors import UsageError

__all__ = ["resolve"]

_MODULES = {
    "topology": "instances.topologies",
    "collective": "instances.collectives",
    "cluster": "instances.clusters",
    "workload": "instances.workloads",
}


def resolve(kind: str, name: str) -> Any:
    """The object of a name; each kind's module has the function ``by_name(name)``.

    Raises
    ------
    UsageError
        If the kind or the name is unknown, with a suggestion.
    """
    if kind not in _MODULES:
        raise UsageError(f"unknown kind {kind!r}; known: {', '.join(_MODULES)}")
    return import_module(_MODULES[kind]).by_name(name)
