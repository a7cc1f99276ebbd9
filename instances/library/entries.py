"""The entries of the instance library: how each instance is made, and where it comes from."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from nestopt.core.errors import InputError, unknown_name
from nestopt.core.io import validate_model

if TYPE_CHECKING:
    from nestopt.core.instance import Instance

__all__ = ["LIBRARY", "Entry", "entries", "entry", "load"]

LIBRARY = Path(__file__).parent


class _EntryFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instance: str
    methods: list[str] = Field(min_length=1)
    source: str
    objective: str | None = None
    space: str = ""
    tenants: str | None = None
    known: float | int | None = None
    pricing: str = "nestopt-1"
    sums: Literal["copied", "moved"] = "copied"


@dataclass(frozen=True, slots=True)
class Entry:
    """An instance of the library.

    Attributes
    ----------
    name : str
    problem : str
        ``"placement"`` or ``"collective"``.
    instance : str
        What `nestopt.instances.generate.generate_instance` makes it from.
    methods : tuple of str
        The methods that are run on it, in order.
    source : str
        Where it comes from and what is known of it.
    objective : str
    space : str
        Placement: the plan space as text (`nestopt.placement.model.space.PlanSpace.parse`), part
        of the instance.
    tenants : str or None
        Groups that run the collective at once (`nestopt.instances.tenants`).
    known : float or int or None
        The proved optimum, where it was published (seconds, or picoseconds).
    pricing : str
        The parameter set that names of clusters and transformers stand for
        (`nestopt.placement.pricing.parameters`); that of the first version unless stated.
    sums : str
        All-Reduce: whether partial sums may be ``"copied"`` or are ``"moved"``, part of the
        instance.
    """

    name: str
    problem: str
    instance: str
    methods: tuple[str, ...]
    source: str
    objective: str
    space: str
    tenants: str | None = None
    known: float | int | None = None
    pricing: str = "nestopt-1"
    sums: str = "copied"


@cache
def entries() -> dict[str, Entry]:
    """All entries of the library by name, placement first."""
    found: dict[str, Entry] = {}
    for problem, objective in (("placement", "iteration-time"), ("collective", "makespan")):
        path = LIBRARY / f"{problem}.toml"
        try:
            table = tomllib.loads(path.read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"not TOML: {error}", file=str(path)) from error
        for name, row in table.items():
            if name in found:
                raise InputError("is in the library twice", file=str(path), field=name)
            model = validate_model(_EntryFile, row, file=f"{path}: {name}")
            found[name] = Entry(
                name,
                problem,
                model.instance,
                tuple(model.methods),
                model.source,
                model.objective or objective,
                model.space,
                model.tenants,
                model.known,
                model.pricing,
                model.sums,
            )
    return found


def entry(name: str) -> Entry:
    """The entry of a name.

    Raises
    ------
    UsageError
        If there is none (with a suggestion).
    """
    table = entries()
    if name not in table:
        raise unknown_name("library instance", name, table)
    return table[name]


def load(name: str) -> Instance:
    """The instance of an entry, generated."""
    from nestopt.instances.generate import generate_instance
    from nestopt.placement.pricing.parameters import using_set

    found = entry(name)
    with using_set(found.pricing):
        data = generate_instance(found.instance, tenants=found.tenants).data
    if found.problem == "collective":
        from nestopt.collective.model.instance import CollectiveInstance

        return replace(CollectiveInstance.from_json(data), sums=found.sums)
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.space import PlanSpace

    instance = PlacementInstance.from_json(data)
    return instance.over(PlanSpace.parse(found.space), found.objective)
