"""The exact collective models as objects: `Milp` and `Cpsat`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.formulations.base import Formulation
from nestopt.formulations.collective import solve as search
from nestopt.formulations.collective.admission import admission, is_impossible
from nestopt.formulations.collective.cpsat import CollectiveCpsat
from nestopt.formulations.collective.grid import finest_tick, grid_problem
from nestopt.formulations.collective.milp import CollectiveMilp
from nestopt.formulations.families import conflict

if TYPE_CHECKING:
    from nestopt.collective.model.schedule import Schedule
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.formulations.base import Admission

__all__ = ["Cpsat", "Milp"]


class _CollectiveFormulation(Formulation):
    """A collective model on the finest time grid. There is one for each horizon.

    Constraints of one's own are written with the variables ``send``, ``part``, ``whole``, ``hold``
    and ``done``, which exist only at the ticks where they can be true (``model.send.get(key, 0)``),
    and with ``model.problem`` (links ``src``, ``dst``; chunks) and ``model.horizon``.
    """

    @property
    def least_horizon(self) -> int:
        """A lower bound on the makespan by distances alone, ticks."""
        return max(1, grid_problem(self.instance).lower_bound())

    @property
    def tick_ps(self) -> int:
        """Picoseconds of a tick."""
        return finest_tick(self.instance)

    def model(self, horizon: int | None = None, left_out: frozenset[str] = frozenset()) -> Any:
        """The model of a horizon in ticks (`least_horizon` by default)."""
        ticks = self.least_horizon if horizon is None else horizon
        build: Any = self.model_class
        problem = grid_problem(self.instance)
        return build(problem, ticks, (), lambda: None, self.additions, left_out)

    def admits(self, solution: Schedule) -> Admission:
        """Whether a schedule keeps all families and constraints of one's own."""
        return admission(self.method, self.instance, solution, self.additions, self.options)

    def conflict(self, horizon: int | None = None) -> tuple[str, ...]:
        """Families that no schedule of at most so many ticks keeps together.

        By default of `least_horizon`: what is in the way of a schedule as short as the distances
        allow.
        """

        def impossible(left_out: frozenset[str]) -> bool | None:
            return is_impossible(self.model(horizon, left_out), self.options)

        return conflict(self.names, impossible)

    def run(self, options: SolveOptions) -> Result:
        """Solve with these options."""
        return search.Solver(self.method, self.instance, options, self.additions).run()


class Milp(_CollectiveFormulation):
    """The mixed-integer linear program of a collective instance."""

    method, model_class = "milp", CollectiveMilp


class Cpsat(_CollectiveFormulation):
    """The CP-SAT model of a collective instance."""

    method, model_class = "cpsat", CollectiveCpsat
