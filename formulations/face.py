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

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from nestopt.core.errors import UsageError, unknown_name
from nestopt.core.options import SolveOptions
from nestopt.formulations.families import Addition, families_of
from nestopt.placement.partitioning.maxload.model import MaxLoadProblem

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.core.result import Result
    from nestopt.formulations.families import Families, Family, Size

__all__ = ["Admission", "Formulation", "formulation"]


@dataclass(frozen=True, slots=True)
class Admission:
    """Whether a model admits a solution; true or false as a truth value.

    Attributes
    ----------
    because : tuple of str
        If it does not, families that the solution cannot keep together; leaving out any of them
        would do. Empty if it does, or if there was no time to decide.
    decided : bool
        False if the time was over first.
    """

    because: tuple[str, ...] = ()
    decided: bool = True

    @classmethod
    def of(cls, refused: bool | None, because: Callable[[], tuple[str, ...]]) -> Admission:
        """From whether it is refused (None: not decided) and, if so, by which families."""
        if not refused:
            return cls(decided=refused is not None)
        return cls(because() or ("constraints that are no family",))

    def __bool__(self) -> bool:
        return self.decided and not self.because


class Formulation(ABC):
    """One exact model of one instance.

    Parameters
    ----------
    instance : PlacementInstance, CollectiveInstance or MaxLoadProblem
    options : SolveOptions, optional
        What `solve` starts from.
    """

    method: str
    model_class: type[Families]

    def __init__(self, instance: Any, options: SolveOptions | None = None) -> None:
        self.instance = instance
        self.options = SolveOptions() if options is None else options
        self.additions: tuple[Addition, ...] = ()

    def families(self) -> tuple[Family, ...]:
        """The constraint families in order, each with its text and its formula."""
        return families_of(self.model_class)

    def add(self, name: str, rule: Callable[[Any], Any]) -> Self:
        """Add a constraint of one's own; it holds in every model that is built from now on.

        A model is built several times in a run (for each scenario, for each horizon), so the
        constraint is given as a rule. Starting solutions that break it are not used, constraints
        that only leave out one of several alike solutions are switched off, and the result says
        so in ``stats["notes"]``.

        Parameters
        ----------
        name : str
            By which `conflict` and `admits` name it.
        rule : callable
            ``rule(model)`` returns a constraint, a list of them, a truth value, or None after
            adding some to ``model.program`` (PuLP) or ``model.model`` (CP-SAT).

        Raises
        ------
        UsageError
            If the name is taken.
        """
        taken = {f.name for f in self.families()} | {a.name for a in self.additions}
        if name in taken:
            raise UsageError(f"constraint {name!r}: the model has one of this name already")
        self.additions = (*self.additions, Addition(name, rule))
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all families, then those of the constraints of one's own."""
        return (*(f.name for f in self.families()), *(a.name for a in self.additions))

    def sizes(self) -> dict[str, Size]:
        """By family, how many variables and constraints it adds; of `model`."""
        return dict(self.model().size_of)

    def variables(self) -> dict[str, int]:
        """By symbol, how many variables there are; of `model`."""
        return dict(self.model().symbols)

    @abstractmethod
    def model(self) -> Any:
        """The first model that `solve` would build, as an object."""

    @abstractmethod
    def admits(self, solution: Any) -> Admission:
        """Whether a plan, schedule or split keeps all families and constraints of one's own."""

    @abstractmethod
    def conflict(self) -> tuple[str, ...]:
        """Families that no solution keeps together, from which none can be left out.

        Raises
        ------
        UsageError
            If the model is not proved infeasible within the time limit.
        """

    def solve(self, options: SolveOptions | None = None, **changes: Any) -> Result:
        """Solve the instance with the constraints added so far.

        Parameters
        ----------
        options : SolveOptions, optional
            In place of those given on construction.
        **changes
            Fields of `SolveOptions` to change, ``time_limit=60`` say.
        """
        return self.run(replace(options or self.options, **changes))

    @abstractmethod
    def run(self, options: SolveOptions) -> Result:
        """Solve with these options."""

    def __repr__(self) -> str:
        own = f", {len(self.additions)} of one's own" if self.additions else ""
        families = len(self.families())
        return f"<{self.method} of {self.instance.name}: {families} families{own}>"


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
    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.placement.model.instance import PlacementInstance

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
