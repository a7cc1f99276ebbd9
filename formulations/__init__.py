"""Exact optimization models: MILP through PuLP, CP-SAT through OR-Tools.

`formulation(instance, "milp")` gives the model of an instance as an object: its constraint
families with their formulas, its sizes, constraints of one's own, and a solve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nestopt.formulations.face import Admission, Formulation, formulation

__all__ = ["Admission", "Formulation", "formulation"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("nestopt.formulations.face"), name)
