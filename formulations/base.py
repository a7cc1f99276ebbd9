"""What every exact model offers as an object, and its answer to whether it admits a solution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from nestopt.core.errors import UsageError
from nestopt.core.options import SolveOptions
from nestopt.formulations.families import Addition, families_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.core.result import Result
    from nestopt.formulations.families import Families, Family, Size

__all__ = ["Admission", "Formulation"]


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
