"""The cells of a study: every method on every instance that it applies to, with every seed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.choices import OBJECTIVES, refuse_contradictions, split_settings, state
from nestopt.core.errors import InputError, NestoptError, UsageError, unknown_name
from nestopt.core.io import sha256_of
from nestopt.core.problem import get_problem
from nestopt.core.registry import method_names, methods_of
from nestopt.fourd.models import dense_model
from nestopt.study.ranking import METHOD as RANKING
from nestopt.study.ranking import parse_settings
from nestopt.study.recipes import Recipe, expand_block
from nestopt.study.spec import StudyFile, read_spec

if TYPE_CHECKING:
    from nestopt.study.spec import InstancesFile, MethodFile

__all__ = ["Cell", "Plan", "plan_study"]


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: an instance, a method and a seed.

    Attributes
    ----------
    label : str
        The method's, in the study.
    parameters : dict
        The instance's (see `nestopt.study.spec`).
    definition : dict
        All that defines the run, JSON-ready: ``instance`` (a recipe), ``method``, ``settings``,
        ``objective``, ``space`` (the structure of the plan space), ``plans`` (the plan space apart
        from that, as text; placement), ``backend``, ``rel_gap``, ``seed``, ``threads``,
        ``time_limit`` (seconds or None) and ``memory_limit`` (bytes or None).
    """

    label: str
    parameters: dict[str, Any]
    definition: dict[str, Any]

    @property
    def id(self) -> str:
        """16 hex digits, a hash of the definition."""
        return sha256_of(self.definition)[:16]

    def to_json(self) -> dict[str, Any]:
        """The cell as JSON, its id included."""
        return {
            "cell": self.id,
            "label": self.label,
            "parameters": self.parameters,
            "definition": self.definition,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Cell:
        """Inverse of `to_json`."""
        return cls(data["label"], data["parameters"], data["definition"])


@dataclass(frozen=True, slots=True)
class Plan:
    """A study that has been checked wholly.

    Attributes
    ----------
    spec : StudyFile
    cells : list of Cell
        Instance by instance, in the order of the specification.
    files : set of str
        Paths of the instance files, below the study's directory.
    """

    spec: StudyFile
    cells: list[Cell]
    files: set[str]


@dataclass(frozen=True, slots=True)
class _Made:
    """An instance of the study: its block's number, recipe, parameters, and what it offers."""

    block: int
    recipe: Recipe
    parameters: dict[str, Any]
    instance: Any


def plan_study(path: str | Path) -> Plan:
    """Read a specification, check all of it and list its cells.

    Raises
    ------
    InputError
        Naming the file, the field, the value found and what was expected.
    """
    file, directory = str(path), Path(path).parent
    spec = read_spec(path)
    made: list[_Made] = []
    for index, block in enumerate(spec.instances):
        for recipe, parameters, instance in expand_block(
            block, directory, spec.pricing, file=file, field=f"instances[{index}]"
        ):
            made.append(_Made(index, recipe, parameters, instance))
    labelled: set[tuple[str, int]] = set()
    per_method: list[dict[int, list[Cell]]] = []
    for index, method in enumerate(spec.methods):
        where = f"methods[{index}]"
        try:
            found = _cells_of(method, spec, made)
        except NestoptError as error:
            raise InputError(str(error), file=file, field=where) from error
        for number in found:
            if (method.name, number) in labelled:
                raise InputError(
                    f"label {method.name!r} is there twice for one instance; expected another "
                    "label, or conditions that part the instances",
                    file=file,
                    field=where,
                )
            labelled.add((method.name, number))
        per_method.append(found)
    _check_report(spec, made, {label for label, _ in labelled}, file)
    cells = [
        cell
        for number in range(len(made))
        for found in per_method
        for cell in found.get(number, ())
    ]
    cells = _distinct(cells, file)
    idle = set(range(len(spec.instances))) - {
        made[number].block for found in per_method for number in found
    }
    if idle:
        raise InputError(
            "no method applies to any of its instances", file=file, field=f"instances[{min(idle)}]"
        )
    files = {name for entry in made for name in entry.recipe.files}
    return Plan(spec, cells, files)


def _cells_of(method: MethodFile, spec: StudyFile, made: list[_Made]) -> dict[int, list[Cell]]:
    """The method's cells by number of the instance."""
    problem = _problem_of(method, {entry.recipe.problem for entry in made})
    parameters = {key for entry in made for key in entry.parameters}
    for table in ("only", "min", "max"):
        for key in getattr(method, table):
            if key not in parameters:
                raise unknown_name(f"parameter in {table}", key, parameters)
    found = {
        number: [
            Cell(method.name, entry.parameters, _definition(method, spec, entry, seed))
            for seed in method.seeds
        ]
        for number, entry in enumerate(made)
        if entry.recipe.problem == problem and _applies(method, entry.parameters)
    }
    if not found:
        raise UsageError(f"{method.name!r} applies to no instance; loosen only, min or max")
    return found


def _problem_of(method: MethodFile, present: set[str]) -> str:
    """The problem that a method solves here."""
    names = {problem: [*method_names(problem)] for problem in sorted(present)}
    if "placement" in names:
        names["placement"].append(RANKING)
    if method.problem is not None:
        if method.problem not in present:
            raise UsageError(f"problem {method.problem!r}; the study has no such instances")
        names = {method.problem: names[method.problem]}
    suited = [problem for problem, known in names.items() if method.method in known]
    if not suited:
        every = [name for known in names.values() for name in known]
        raise unknown_name(f"{' or '.join(names)} method", method.method, every)
    if len(suited) > 1:
        raise UsageError(
            f"method {method.method!r} solves both problems of the study; expected "
            "problem = 'placement' or 'collective'"
        )
    return suited[0]


def _applies(method: MethodFile, parameters: dict[str, Any]) -> bool:
    """Whether an instance with these parameters meets the method's conditions."""
    try:
        return (
            all(parameters.get(key) in values for key, values in method.only.items())
            and all(parameters.get(key, limit - 1) >= limit for key, limit in method.min.items())
            and all(parameters.get(key, limit + 1) <= limit for key, limit in method.max.items())
        )
    except TypeError:
        raise UsageError("min and max need parameters that are numbers") from None


def _definition(method: MethodFile, spec: StudyFile, entry: _Made, seed: int) -> dict[str, Any]:
    problem, settings = _choices(method, spec.instances[entry.block], entry)
    return {
        "instance": entry.recipe.to_json(),
        "method": method.method,
        "settings": settings,
        **problem,
        "backend": method.backend,
        "rel_gap": method.rel_gap,
        "seed": seed,
        "threads": method.threads or spec.threads,
        "time_limit": method.time_limit or spec.time_limit,
        "memory_limit": method.memory_limit or spec.memory_limit,
    }


def _choices(
    method: MethodFile, block: InstancesFile, entry: _Made
) -> tuple[dict[str, str], dict[str, str]]:
    """Objective and plan space of a method on an instance, and its settings, checked."""
    name = entry.recipe.problem
    if method.method == RANKING:
        return _ranking_choices(method, entry)
    objective, space = method.objective or block.objective, method.space
    refuse_contradictions(
        name, method.method, objective, space or block.space, method.backend, None
    )
    problem = get_problem(name)
    split = split_settings(method.set, problem, method.method)
    if split.instance:
        raise UsageError(f"set.{next(iter(split.instance))} belongs to the instances")
    schema = getattr(entry.instance, "schema", None)
    row = methods_of(name).get(method.method)
    if schema is not None and row is not None and schema not in row.models:
        raise UsageError(f"method {method.method} does not solve instances of {schema}")
    words = " ".join(part for part in (block.space, space) if part) or None
    found, settings = state(
        entry.instance, problem, method.method, split, objective=objective, space=words
    )
    stated = getattr(found, "space", None)
    if stated is None:
        usual = getattr(found, "objectives", OBJECTIVES[name])[0]
        return {"objective": objective or usual, "space": "structured"}, settings
    structure, orders = stated.structure.recorded
    return {
        "objective": str(found.objective),
        "space": structure,
        **({"orders": orders} if orders else {}),
        "plans": stated.plans_text,
    }, settings


def _ranking_choices(method: MethodFile, entry: _Made) -> tuple[dict[str, str], dict[str, str]]:
    for key in ("objective", "space", "backend"):
        if getattr(method, key) is not None:
            raise UsageError(f"{key} does not go with {RANKING}")
    parse_settings(method.set)
    dense_model(entry.recipe.names.get("workload", "the library entry"))
    return {"objective": "iteration-time", "space": "structured"}, dict(method.set)


def _check_report(spec: StudyFile, made: list[_Made], labels: set[str], file: str) -> None:
    """The hints must speak of what the records will have."""
    known = {key for entry in made for key in entry.parameters}
    try:
        for key in (*spec.report.group_by, *([spec.report.x] if spec.report.x else [])):
            if key not in known:
                raise unknown_name("parameter", key, known)
        if spec.report.baseline is not None and spec.report.baseline not in labels:
            raise unknown_name("label of a method", spec.report.baseline, labels)
    except UsageError as error:
        raise InputError(str(error), file=file, field="report") from error


def _distinct(cells: list[Cell], file: str) -> list[Cell]:
    """The cells without repetitions, where two blocks have the same instance.

    Raises
    ------
    InputError
        If two labels stand for one and the same run.
    """
    first: dict[str, Cell] = {}
    for cell in cells:
        other = first.setdefault(cell.id, cell)
        if other.label != cell.label:
            raise InputError(
                f"{other.label!r} and {cell.label!r} are the same method with the same settings",
                file=file,
                field="methods",
            )
    return list(first.values())
