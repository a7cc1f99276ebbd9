"""nestopt: placement of training jobs and synthesis of collective schedules.

Fast answers (an exact structured dynamic program, a greedy matcher on a time-expanded network),
exact answers on small instances (MILP, CP-SAT), certified lower bounds, independent checkers.

    import nestopt

    result = nestopt.solve("llama3-70b", "dgx-h100-256", time_limit="60 s")
    print(result.solution.summary())

Names are imported when they are first used, so that ``import nestopt`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt._version import __version__

if TYPE_CHECKING:
    from nestopt.api import (
        Bound,
        bound,
        check,
        instance,
        load,
        plot,
        register,
        simulate,
        solve,
    )
    from nestopt.collective.model.collective import Collective
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule
    from nestopt.collective.model.topology import Topology
    from nestopt.core.errors import CheckError, InputError, NestoptError, UsageError
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.placement.model.cluster import Cluster, DeviceType, Level
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan, Stage, StageConfig
    from nestopt.placement.model.space import PlanSpace
    from nestopt.placement.model.transformer import Transformer
    from nestopt.placement.model.workload import Operator, Workload

__all__ = [
    "Bound",
    "CheckError",
    "Cluster",
    "Collective",
    "CollectiveInstance",
    "DeviceType",
    "InputError",
    "Level",
    "NestoptError",
    "Operator",
    "PlacementInstance",
    "Plan",
    "PlanSpace",
    "Result",
    "Schedule",
    "SolveOptions",
    "Stage",
    "StageConfig",
    "Topology",
    "Transformer",
    "UsageError",
    "Workload",
    "__version__",
    "bound",
    "check",
    "instance",
    "load",
    "plot",
    "register",
    "simulate",
    "solve",
]

_HOMES = {
    "nestopt.api": (
        "Bound", "bound", "check", "instance", "load", "plot", "register", "simulate", "solve",
    ),
    "nestopt.collective.model.collective": ("Collective",),
    "nestopt.collective.model.instance": ("CollectiveInstance",),
    "nestopt.collective.model.schedule": ("Schedule",),
    "nestopt.collective.model.topology": ("Topology",),
    "nestopt.core.errors": ("CheckError", "InputError", "NestoptError", "UsageError"),
    "nestopt.core.options": ("SolveOptions",),
    "nestopt.core.result": ("Result",),
    "nestopt.placement.model.cluster": ("Cluster", "DeviceType", "Level"),
    "nestopt.placement.model.instance": ("PlacementInstance",),
    "nestopt.placement.model.plan": ("Plan", "Stage", "StageConfig"),
    "nestopt.placement.model.space": ("PlanSpace",),
    "nestopt.placement.model.transformer": ("Transformer",),
    "nestopt.placement.model.workload": ("Operator", "Workload"),
}  # fmt: skip
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'nestopt' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
