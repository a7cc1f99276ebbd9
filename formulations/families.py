"""Constraint families: named, documented, counted, and possible to leave out.

A family is a method ``add_NAME`` of a model with the decorator `family`. Its docstring is its
text: one sentence, the constraint in LaTeX behind ``.. math::``, what the symbols are, and a
paragraph that begins with ``Tight:`` and says why the constraint is stated in this form. The two
models of a problem give a family the same name, and what a name stands for is the same in both.
"""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import UsageError

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Addition", "Families", "Family", "Size", "conflict", "families_of", "family", "name_of"]


@dataclass(frozen=True, slots=True)
class Family:
    """A constraint family's text.

    Attributes
    ----------
    name : str
        The method that adds it, without ``add_``.
    summary : str
        What it ensures, in one sentence.
    formulas : tuple of str
        The constraint in LaTeX, with its index sets.
    notes : tuple of str
        What the symbols are, and whatever else a reader needs; a paragraph each.
    why : str
        Why it is stated in this form: what makes it tight.
    """

    name: str
    summary: str
    formulas: tuple[str, ...]
    notes: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Size:
    """How many variables and constraints."""

    variables: int
    constraints: int


@dataclass(frozen=True, slots=True)
class Addition:
    """A constraint of a user's own.

    Attributes
    ----------
    name : str
    rule : callable
        ``rule(model)`` returns a constraint, several, or None after adding some to the solver's
        own object (``model.program`` of PuLP, ``model.model`` of CP-SAT). True stands for no
        constraint, False for one that nothing keeps.
    """

    name: str
    rule: Callable[[Any], Any]


def name_of(*parts: Any) -> str:
    """The name of a variable or constraint, without signs that file formats reject."""
    text = "_".join(str(part).replace("-", "t") for part in parts)
    return "".join(c if c.isalnum() or c in "_." else "_" for c in text)


def family(method: Callable[[Any], None]) -> Callable[[Any], None]:
    """Make a method ``add_NAME`` the constraint family NAME of its model."""
    name = method.__name__.removeprefix("add_")

    @wraps(method)
    def add(self: Families) -> None:
        if name in self.left_out:
            return
        self.stop()
        with _counted(self, name):
            method(self)

    add.family = name  # type: ignore[attr-defined]
    return add


class _counted:
    """Count what a model gains meanwhile."""

    def __init__(self, model: Families, name: str) -> None:
        self.model, self.name = model, name

    def __enter__(self) -> None:
        self.before = self.model.counts()

    def __exit__(self, *_: object) -> None:
        now = self.model.counts()
        size = Size(now[0] - self.before[0], now[1] - self.before[1])
        self.model.size_of[self.name] = size


class Families:
    """What models have in common: families, their sizes, and constraints of a user's own.

    Attributes
    ----------
    size_of : dict of str to Size
        By family (and by name of a user's own constraint) what it has added.
    symbols : Counter of str
        By symbol, how many variables the model has.
    left_out : frozenset of str
        Families, and constraints of a user's own, that the model does without.
    additions : tuple of Addition
    """

    size_of: dict[str, Size]
    symbols: Counter[str]
    left_out: frozenset[str] = frozenset()
    additions: tuple[Addition, ...] = ()

    def counts(self) -> tuple[int, int]:
        """Variables and constraints so far."""
        raise NotImplementedError

    def add_constraints(self) -> None:
        """All families, in order."""
        raise NotImplementedError

    def require(self, constraint: Any, name: str) -> None:
        """Add a constraint of the solver's own kind; a truth value stands for itself."""
        raise NotImplementedError

    def stop(self) -> None:
        """Raise an exception if there is no time to go on; by default there is."""

    def add_additions(self) -> None:
        """The constraints of a user's own."""
        for addition in self.additions:
            if addition.name in self.left_out:
                continue
            with _counted(self, addition.name):
                found = addition.rule(self)
                for index, constraint in enumerate(_several(found)):
                    self.require(constraint, name_of("own", addition.name, index))


def _several(found: Any) -> Iterable[Any]:
    if found is None:
        return ()
    return found if isinstance(found, list | tuple) or inspect.isgenerator(found) else (found,)


def families_of(model: type[Families]) -> tuple[Family, ...]:
    """The families of a model, in the order in which `add_constraints` names them."""
    found: dict[str, Family] = {}
    for owner in reversed(model.__mro__):
        if "add_constraints" not in owner.__dict__:
            continue
        for name in owner.__dict__["add_constraints"].__code__.co_names:
            method = getattr(model, name, None)
            if method is not None and hasattr(method, "family"):
                found[method.family] = _read(method.family, inspect.getdoc(method) or "")
    return tuple(found.values())


def _read(name: str, text: str) -> Family:
    """The parts of a family's docstring."""
    paragraphs = [p for p in textwrap.dedent(text).split("\n\n") if p.strip()]
    formulas, notes, why = [], [], ""
    summary = " ".join(paragraphs[0].split()) if paragraphs else ""
    for paragraph in paragraphs[1:]:
        words = " ".join(paragraph.split())
        if words.startswith(".. math::"):
            formulas.append(words.removeprefix(".. math::").strip())
        elif words.startswith("Tight:"):
            why = words.removeprefix("Tight:").strip()
        else:
            notes.append(words)
    return Family(name, summary, tuple(formulas), tuple(notes), why)


def conflict(
    names: Sequence[str], impossible: Callable[[frozenset[str]], bool | None]
) -> tuple[str, ...]:
    """A set of families that cannot all be kept, from which none can be left out.

    A deletion filter: each family in turn is left out, for good if what remains is still
    infeasible.

    Parameters
    ----------
    names : sequence of str
        All families; those named first are left out first.
    impossible : callable
        ``impossible(left_out)``: whether the model without these families is infeasible; None if
        that could not be decided, which keeps the family.

    Raises
    ------
    UsageError
        If all families together can be kept.
    """
    if impossible(frozenset()) is not True:
        raise UsageError("the model is not proved infeasible, so no families are in conflict")
    left_out: frozenset[str] = frozenset()
    for name in names:
        if impossible(left_out | {name}) is True:
            left_out |= {name}
    return tuple(name for name in names if name not in left_out)
