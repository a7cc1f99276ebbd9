"""An exact model as an object: inspect its families, add constraints of one's own, solve it.

`formulation` makes one for an instance of any kind. What a rule may use is described at the
models: `nestopt.formulations.placement.choices.PlacementChoices`,
`nestopt.formulations.collective.model`, and the two max-load models.

Examples
--------
>>> from nestopt.formulations import formulation
>>> from nestopt.core.registry import library_instance
>>> model = formulation(library_instance("chain4-tree2x2"), "milp")
>>> [family.name for family in model.families()][:3]
['stage_order', 'operator_assignment', 'configurations']
>>> _ = model.add("two stages", lambda m: m.num_stages == 2)
>>> result = model.solve(time_limit=60)
>>> len(result.solution.stages)
2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.collective.model.instance import CollectiveInstance
from nestopt.core.errors import UsageError, unknown_name
from nestopt.formulations.base import Admission, Formulation
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.partitioning.maxload.model import MaxLoadProblem

if TYPE_CHECKING:
    from nestopt.core.options import SolveOptions

__all__ = ["Admission", "Formulation", "formulation"]


def formulation(
    instance: Any, method: str = "milp", options: SolveOptions | None = None
) -> Formulation:
    """The exact model of an instance.

    Parameters
    ----------
    instance : PlacementInstance, CollectiveInstance or MaxLoadProblem
    method : {"milp", "cpsat"}
    options : SolveOptions, optional

    Raises
    ------
    UsageError
        If there is no such model.
    """
    if method not in ("milp", "cpsat"):
        raise unknown_name("exact model", method, ["milp", "cpsat"])
    kinds: dict[str, type[Formulation]]
    if isinstance(instance, PlacementInstance):
        import nestopt.formulations.placement.formulation as placement

        kinds = {"milp": placement.Milp, "cpsat": placement.Cpsat}
    elif isinstance(instance, CollectiveInstance):
        import nestopt.formulations.collective.formulation as collective

        kinds = {"milp": collective.Milp, "cpsat": collective.Cpsat}
    elif isinstance(instance, MaxLoadProblem):
        import nestopt.formulations.placement.maxload_formulation as maxload

        kinds = {"milp": maxload.Milp, "cpsat": maxload.Cpsat}
    else:
        raise UsageError(f"{type(instance).__name__}: no exact model is for such instances")
    return kinds[method](instance, options)
