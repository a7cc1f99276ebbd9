"""What the command line needs from each of the two problems.

`nestopt.placement.problem` and `nestopt.collective.problem` each have a module-level object
``PROBLEM`` that satisfies `Problem`; the command line and the studies know nothing else of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from nestopt.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.core.verdict import Verdict

__all__ = ["Problem", "get_problem"]


class Problem(Protocol):
    """One problem's entry points for the command line.

    Attributes
    ----------
    name : str
        ``"placement"`` or ``"collective"``.
    settings : tuple of str
        The ``--set`` keys that `from_names` reads (global batch, chunk size, ...).
    """

    name: str
    settings: tuple[str, ...]

    def from_names(self, names: dict[str, str], settings: dict[str, str]) -> Any:
        """The instance from ``--workload/--cluster`` or ``--collective/--topology`` values."""

    def from_parts(self, job: Any, on: Any, settings: dict[str, str]) -> Any:
        """The instance of two parts; each is an object, a name or a file."""

    def from_json(self, data: dict[str, Any], *, file: str | None = None) -> Any:
        """The instance from its JSON form; `InputError` names file, field and value."""

    def check(self, result: Result, *, directory: Path | None = None) -> Verdict:
        """Check a result independently: what is verified, and what is merely claimed.

        `directory` is where the result's file lies (side files are found relative to it).

        Raises
        ------
        CheckError
            If anything is wrong, with what and where.
        """

    def bounds(self, instance: Any, options: SolveOptions) -> list[dict[str, Any]]:
        """Lower bounds, each ``{"name", "value", "witness"}``, the best first."""

    def simulate(self, result: Result, *, directory: Path | None = None) -> dict[str, Any]:
        """Event simulation: ``{"closed_form", "simulated", "relative_difference", ...}``.

        Further floats are times too, except those whose name ends in ``_share``.
        """

    def plot(self, result: Result, target: Path, *, directory: Path | None = None) -> None:
        """Write a picture (PDF, PNG or SVG by the ending), or an interactive page (HTML)."""

    def chart(
        self, result: Result, width: int, *, colour: bool = False, directory: Path | None = None
    ) -> str:
        """A picture of characters for terminals, of `width` columns."""

    def describe(self, result: Result, console: Console) -> None:
        """Print the result for people; fits 80 columns."""


def get_problem(name: str) -> Problem:
    """The problem of a name, ``"placement"`` or ``"collective"``."""
    if name not in ("placement", "collective"):
        raise UsageError(f"unknown problem {name!r}; known: placement, collective")
    return import_module(f"nestopt.{name}.problem").PROBLEM
