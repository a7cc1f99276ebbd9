"""The instances of a study: from a block of the specification to recipes that a cell can carry."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, NestoptError, UsageError, unknown_name
from nestopt.core.io import read_json
from nestopt.core.pricing import FIRST_SET
from nestopt.core.problem import get_problem
from nestopt.core.registry import library_entry, library_instance, named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.core.instance import Instance
    from nestopt.study.spec import InstancesFile

__all__ = ["PARTS", "Recipe", "expand_block"]

PARTS = {"placement": ("workload", "cluster"), "collective": ("collective", "topology")}
_AXES = (
    "heterogeneity",
    "degraded",
    "fail_npus",
    "fail_links",
    "fail_groups",
    "fail_rates",
    "days",
)
_NONE = "none"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an instance is made.

    Attributes
    ----------
    problem : str
    names : dict
        ``workload`` and ``cluster``, ``collective`` and ``topology``, ``library``, or ``file``.
    settings : dict
        Settings of the instance.
    files : dict
        SHA-256 of every file among the names, by its path below the study's directory.
    pricing : str
        The parameter set that names stand for; written unless it is the first one.
    """

    problem: str
    names: dict[str, str]
    settings: dict[str, str]
    files: dict[str, str]
    pricing: str = FIRST_SET

    def to_json(self) -> dict[str, Any]:
        """The recipe as JSON."""
        return {
            "problem": self.problem,
            "names": self.names,
            "settings": self.settings,
            "files": self.files,
            **({} if self.pricing == FIRST_SET else {"pricing": self.pricing}),
        }

    def build(self, directory: Path) -> Instance:
        """The instance; `directory` is the study's.

        Raises
        ------
        NestoptError
            If a name is unknown, a parameter is wrong, or a file is not what it was.
        """
        for name, digest in self.files.items():
            if _digest(directory / name) != digest:
                raise InputError("has changed since the study began", file=name)
        if "library" in self.names:
            return library_instance(self.names["library"])
        problem = get_problem(self.problem)
        if "file" in self.names:
            path = str(directory / self.names["file"])
            return problem.from_json(read_json(path), file=path)
        names = {
            part: str(directory / name) if name in self.files else name
            for part, name in self.names.items()
        }
        settings = self.settings
        if self.problem == "placement":
            settings = {"pricing": self.pricing, **settings}
        return problem.from_names(names, settings)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from error


def expand_block(
    block: InstancesFile, directory: Path, pricing: str = FIRST_SET, *, file: str, field: str
) -> list[tuple[Recipe, dict[str, Any], Instance]]:
    """All instances of a block: recipe, parameters, and the instance itself.

    Every instance is built once, so that nothing impossible is found only when cells run.

    Parameters
    ----------
    block : InstancesFile
    directory : Path
        Of the study.
    pricing : str
        The parameter set that names stand for.
    file, field : str
        Where the block stands, for errors.

    Raises
    ------
    InputError
        Naming the file, the block and what is wrong in it.
    """
    try:
        kind = _kind(block)
        if kind in ("library", "file"):
            return list(_single(block, kind, directory))
        return list(_crossed(block, kind, directory, pricing))
    except NestoptError as error:
        raise InputError(str(error), file=file, field=field) from error


def _kind(block: InstancesFile) -> str:
    """The problem of a block of names, or ``library`` or ``file``."""
    given = [
        key for key in ("library", "file", *PARTS["placement"], *PARTS["collective"])
        if getattr(block, key) is not None
    ]  # fmt: skip
    for problem, parts in PARTS.items():
        if given == list(parts):
            return problem
    if given in (["library"], ["file"]):
        for key in ("grid", "set"):
            if getattr(block, key):
                raise UsageError(f"{key} goes with names of parts, not with {given[0]}")
        for key in _AXES:
            if getattr(block, key) != type(block).model_fields[key].default:
                raise UsageError(f"{key} goes with names of parts, not with {given[0]}")
        return given[0]
    ways = "workload and cluster, collective and topology, library, or file"
    raise UsageError(f"has {' and '.join(given) or 'none of them'}; expected {ways}")


def _single(
    block: InstancesFile, kind: str, directory: Path
) -> Iterator[tuple[Recipe, dict[str, Any], Instance]]:
    for name in getattr(block, kind):
        files: dict[str, str] = {}
        if kind == "library":
            problem = library_entry(name).problem
        else:
            files = {name: _digest(_below(directory, name))}
            data = read_json(directory / name)
            problem = data.get("problem") if isinstance(data, dict) else None
            if problem not in PARTS:
                raise InputError(
                    f"{problem!r}; expected 'placement' or 'collective'", file=name, field="problem"
                )
        recipe = Recipe(problem, {kind: name}, {}, files)
        instance = recipe.build(directory)
        parameters = {"family": block.family or kind, kind: name, "instance_seed": 0}
        yield recipe, parameters | _sizes(instance, None), instance


def _below(directory: Path, name: str) -> Path:
    path = Path(name)
    if path.is_absolute() or ".." in path.parts:
        raise InputError(f"{name!r}; expected a file below the study's directory")
    return directory / path


def _crossed(
    block: InstancesFile, problem: str, directory: Path, pricing: str
) -> Iterator[tuple[Recipe, dict[str, Any], Instance]]:
    known = get_problem(problem).settings
    for key in block.set:
        if key not in known:
            raise unknown_name(f"setting of a {problem} instance", key, known)
    if "fail_rates" not in block.model_fields_set and any(block.days):
        raise UsageError("days goes with fail_rates")
    first, second = PARTS[problem]
    templates = {part: getattr(block, part) for part in (first, second)}
    _agree(block, [text for texts in templates.values() for text in texts])
    uses_seed = False
    seen: set[str] = set()
    whole: dict[str, Any] = {}
    keys = (*templates, *block.grid, *_AXES, "seed")
    values = (
        *templates.values(), *block.grid.values(),
        *(getattr(block, axis) for axis in _AXES), block.seeds,
    )  # fmt: skip
    for combination in product(*values):
        chosen = dict(zip(keys, combination, strict=True))
        suffix = _suffix(chosen, connected=block.connected)
        filled = {part: _fill(chosen[part], chosen) for part in (first, second)}
        depends = bool(suffix) or any("seed" in _fields(chosen[part]) for part in (first, second))
        uses_seed |= depends
        base = filled[second]
        if suffix:
            filled[second] += suffix + (f"+seed:{chosen['seed']}" if chosen["seed"] else "")
        files = {
            name: _digest(_below(directory, name))
            for name in filled.values()
            if name.endswith(".json")
        }
        chosen_set = pricing if problem == "placement" else FIRST_SET
        recipe = Recipe(problem, filled, dict(block.set), files, chosen_set)
        if str(recipe.to_json()) in seen:
            continue
        seen.add(str(recipe.to_json()))
        instance = recipe.build(directory)
        if suffix and base not in whole:
            whole[base] = named(second, base)
        parameters = {
            "family": block.family or f"{_head(filled[first])} on {_head(base)}",
            **{part: _fill(chosen[part], chosen | {"seed": "{seed}"}) for part in (first, second)},
            **block.set,
            **{key: chosen[key] for key in block.grid},
            **{axis: chosen[axis] for axis in _AXES},
            "instance_seed": chosen["seed"],
        }
        yield recipe, parameters | _sizes(instance, whole.get(base) if suffix else None), instance
    if len(block.seeds) > 1 and not uses_seed:
        raise UsageError(
            f"{len(block.seeds)} seeds, but nothing depends on them; expected {{seed}} in a name, "
            "heterogeneity or failures"
        )


def _agree(block: InstancesFile, templates: list[str]) -> None:
    """Names and grid must speak of the same keys."""
    wanted = {key for text in templates for key in _fields(text)} - {"seed"}
    for key in wanted:
        if key not in block.grid:
            raise unknown_name("key of the grid in a name", key, (*block.grid, "seed"))
    for key in block.grid:
        if key not in wanted:
            raise UsageError(f"grid.{key}: no name has {{{key}}}")
        if key in (*type(block).model_fields, "seed", "size", "npus", "devices", "instance_seed"):
            raise UsageError(f"grid.{key}: the name of a parameter that every record has")


def _fields(template: str) -> list[str]:
    try:
        return [key for _, key, _, _ in Formatter().parse(template) if key is not None]
    except ValueError as error:
        raise UsageError(f"{template!r}: {error}") from error


def _fill(template: str, chosen: dict[str, Any]) -> str:
    return template.format_map({key: _text(value) for key, value in chosen.items()})


def _text(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _head(name: str) -> str:
    for mark in ":,+":
        name = name.partition(mark)[0]
    return name


def _suffix(chosen: dict[str, Any], *, connected: bool) -> str:
    """Recipes and failures as the end of a name, without the seed (see `instances/options.py`).

    Rates without days and days without rates are nothing; both are recorded so.
    """
    parts = [chosen[axis] for axis in ("heterogeneity", "degraded") if chosen[axis] != _NONE]
    if chosen["fail_rates"] == _NONE or not chosen["days"]:
        chosen["fail_rates"], chosen["days"] = _NONE, 0.0
    failures = [
        f"{key.replace('_', '-')}:{chosen[key]}"
        for key in ("fail_npus", "fail_links")
        if chosen[key]
    ]
    if chosen["fail_groups"] != _NONE:
        failures.append(f"fail-group:{chosen['fail_groups']}")
    if chosen["days"]:
        failures.append(f"fail-rates:{chosen['fail_rates']},days={chosen['days']:g}")
    if failures and connected:
        failures.append("connected")
    return "".join(f"+{part}" for part in parts + failures)


def _sizes(instance: Any, whole: Any) -> dict[str, Any]:
    """``size`` before failures, and ``devices`` or ``npus`` alive; {} for models without either."""
    if hasattr(instance, "topology"):
        alive = len(instance.topology.npus)
        return {"size": alive if whole is None else len(whole.npus), "npus": alive}
    if hasattr(instance, "cluster"):
        total = instance.cluster.num_devices if whole is None else whole.num_devices
        return {"size": total, "devices": len(instance.cluster.alive)}
    return {}
