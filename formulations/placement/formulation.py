"""The exact placement models as objects: `Milp` and `Cpsat`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import UsageError
from nestopt.formulations.base import Formulation
from nestopt.formulations.placement.cpsat import PlacementCpsat
from nestopt.formulations.placement.milp import PlacementMilp
from nestopt.formulations.placement.search import Run, search

if TYPE_CHECKING:
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.formulations.base import Admission
    from nestopt.formulations.placement.scenario import Scenario
    from nestopt.placement.model.plan import Plan

__all__ = ["Cpsat", "Milp"]


class _PlacementFormulation(Formulation):
    """A placement model. There is one for each scenario: replicas, micro-batch, layout.

    Constraints of one's own are written with the model's variables and shorthands (see
    `nestopt.formulations.placement.choices.PlacementChoices` and the tables in
    `nestopt.formulations.placement.model`). They hold in every scenario.
    """

    def _run(self, options: SolveOptions | None = None) -> Run:
        chosen = options or self.options
        return Run(self.instance, chosen, self.model_class, self.additions)

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios, the one of the least cheap bound first."""
        bounds = self._run().bounds
        return tuple(sorted(bounds, key=lambda s: (bounds[s], s.replicas, s.microbatch)))

    def model(self, scenario: Scenario | None = None) -> Any:
        """The model of a scenario (the first one of `scenarios` by default).

        Raises
        ------
        UsageError
            If there is no scenario with a plan.
        """
        run = self._run()
        for chosen in self.scenarios if scenario is None else (scenario,):
            found = run.build(chosen)
            if found is not None:
                return found
        raise UsageError("no operator assignment suits any configuration: there is no model")

    def admits(self, solution: Plan) -> Admission:
        """Whether a plan keeps all families and constraints of one's own."""
        return self._run().admission(solution)

    def conflict(self) -> tuple[str, ...]:
        """Families that no plan keeps together, from which none can be left out."""
        return self._run().conflict()

    def run(self, options: SolveOptions) -> Result:
        """Solve with these options."""
        options = replace(options, set={**self.options.set, **options.set})
        return search(self.instance, options, self.method, self.model_class, self.additions)


class Milp(_PlacementFormulation):
    """The mixed-integer linear program of a placement instance."""

    method, model_class = "milp", PlacementMilp


class Cpsat(_PlacementFormulation):
    """The constraint program of a placement instance."""

    method, model_class = "cpsat", PlacementCpsat
