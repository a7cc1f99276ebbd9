"""The exact max-load models as objects: `Milp` and `Cpsat`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import UsageError
from nestopt.formulations.base import Formulation
from nestopt.formulations.families import conflict
from nestopt.formulations.placement import maxload_cpsat, maxload_milp
from nestopt.formulations.placement.maxload_admission import admission, is_impossible
from nestopt.formulations.placement.maxload_common import with_start
from nestopt.placement.partitioning.maxload.outcome import infeasible_reasons
from nestopt.placement.partitioning.maxload.units import make_units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.formulations.base import Admission
    from nestopt.placement.partitioning.maxload.model import Stage

__all__ = ["Cpsat", "Milp"]


class _MaxLoadFormulation(Formulation):
    """A max-load model; rules use its variables (see the module docstrings of the two models)."""

    solver: Callable[..., Result]

    def model(self) -> Any:
        """The model without a starting split and its cutoff.

        Raises
        ------
        UsageError
            If some unit fits on no device, so that there is no model.
        """
        data = with_start(self.instance, make_units(self.instance), None)
        if math.isinf(data.lower):
            reasons = "; ".join(infeasible_reasons(self.instance, data.units))
            raise UsageError(f"there is no model: {reasons}")
        return self.model_class(data, self.additions)  # type: ignore[call-arg]

    def admits(self, solution: Sequence[Stage]) -> Admission:
        """Whether a split keeps all families and constraints of one's own."""
        data = with_start(self.instance, make_units(self.instance), tuple(solution))
        return admission(data, self.model_class, self.additions, self.options)

    def conflict(self) -> tuple[str, ...]:
        """Families that no split keeps together, from which none can be left out."""
        data = with_start(self.instance, make_units(self.instance), None)

        def impossible(left_out: frozenset[str]) -> bool | None:
            model: Any = self.model_class(data, self.additions, left_out)  # type: ignore[call-arg]
            return is_impossible(model, self.options)

        return conflict(self.names, impossible)

    def run(self, options: SolveOptions) -> Result:
        """Solve with these options."""
        return type(self).solver(self.instance, options, self.additions)


class Milp(_MaxLoadFormulation):
    """The mixed-integer linear program of a max-load problem."""

    method, model_class = "milp", maxload_milp.MaxLoadMilp
    solver = staticmethod(maxload_milp.solve)


class Cpsat(_MaxLoadFormulation):
    """The constraint program of a max-load problem."""

    method, model_class = "cpsat", maxload_cpsat.MaxLoadCpsat
    solver = staticmethod(maxload_cpsat.solve)
