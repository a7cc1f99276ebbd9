"""From what a user names to an instance: objects, names of the library, files, graphs.

A *job* is a workload or a collective; it runs *on* a cluster or a topology. Each may be an object,
a name of the library (``gpt3-175b``, ``mesh2d:8x8``) or a file; a whole instance needs no second
part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.choices import refuse_contradictions, split_settings, state
from nestopt.core.errors import InputError, UsageError, unknown_name
from nestopt.core.io import names_file, read_json
from nestopt.core.problem import get_problem
from nestopt.core.registry import get_method, library_entry, library_instance, methods_of, named
from nestopt.core.result import Result
from nestopt.core.settings import as_text

if TYPE_CHECKING:
    from nestopt.core.choices import Settings
    from nestopt.core.problem import Problem

__all__ = ["DEFAULT_METHOD", "PARTS", "Asked", "ask", "kind_of_file", "load"]

_SCHEMAS = {
    "nestopt.workload": "workload",
    "nestopt.cluster": "cluster",
    "nestopt.topology": "topology",
    "nestopt.collective": "collective",
    "nestopt.instance": "instance",
    "nestopt.maxload": "instance",
    "nestopt.piper": "instance",
    "nestopt.result": "result",
}
PROBLEM_OF = {
    "workload": "placement",
    "cluster": "placement",
    "collective": "collective",
    "topology": "collective",
}
PARTS = {"placement": ("workload", "cluster"), "collective": ("collective", "topology")}


@dataclass(frozen=True, slots=True)
class Asked:
    """An instance, and what is left for the method.

    Attributes
    ----------
    problem : Problem
    instance : Any
    method : str or None
        What the library's entry names first, unless another was asked for.
    settings : dict
        The method's settings, as text.
    """

    problem: Problem
    instance: Any
    method: str | None
    settings: dict[str, str]


def kind_of_file(file: str, data: Any) -> str:
    """What a JSON file holds: workload, cluster, topology, collective, instance or result.

    Raises
    ------
    InputError
        If it is none of these.
    """
    schema = str(data.get("schema", "")) if isinstance(data, dict) else ""
    kind = _SCHEMAS.get(schema.partition("/")[0])
    if kind is None and isinstance(data, dict) and data.get("problem") in PARTS:
        return "instance"
    if kind is None:
        raise InputError(
            f"{schema!r}; expected one of {', '.join(f'{name}/...' for name in _SCHEMAS)}",
            file=file,
            field="schema",
        )
    return kind


def ask(
    job: Any,
    on: Any,
    settings: Mapping[str, Any],
    *,
    problem: str | None = None,
    method: str | None = None,
    objective: str | None = None,
    space: Any = None,
    solving: bool = False,
) -> Asked:
    """The instance that is meant, and the settings that are the method's.

    Parameters
    ----------
    job, on : object, str or Path
    settings : mapping
        Of the instance, its plan space and the method, by key; an underscore stands for a hyphen.
    problem : str, optional
        ``"placement"`` or ``"collective"``, where two names alone do not say it.
    method, objective : str, optional
    space : PlanSpace, str or mapping, optional
    solving : bool
        Whether a method will read settings too, the usual one unless another is named.

    Raises
    ------
    UsageError
        If a name, a method or a setting is unknown (with a suggestion), or parts do not fit.
    InputError
        If a file or a value is wrong.
    """
    found, entry_method = _whole(job) if on is None else (None, None)
    name = problem or (_problem_of_instance(found) if found is not None else _problem_of(job, on))
    chosen = method or entry_method or (DEFAULT_METHOD[name] if solving else None)
    if chosen is not None:
        get_method(name, chosen)
    text = space if isinstance(space, str) else None if space is None else "given"
    refuse_contradictions(name, chosen or "", objective, text, None, None)
    adapter = get_problem(name)
    split = split_settings(_as_text(settings, adapter, name, chosen), adapter, chosen)
    if found is None:
        found = _joined(job, on, adapter, split)
    elif split.instance:
        found = _restated(found, split, job)
    instance, rest = _stated(found, adapter, chosen, split, objective, space)
    return Asked(adapter, instance, chosen, rest)


DEFAULT_METHOD = {"placement": "dp", "collective": "greedy"}


def _as_text(
    settings: Mapping[str, Any], problem: Problem, name: str, method: str | None
) -> dict[str, str]:
    """Settings of Python as those of a command line: hyphens in keys, texts as values."""
    row = methods_of(name).get(method or "")
    known = {*problem.settings, *getattr(problem, "space_settings", ())}
    known |= set(row.all_settings if row else ())
    texts: dict[str, str] = {}
    for key, value in settings.items():
        plain = key.replace("_", "-")
        texts[plain if plain in known else key] = as_text(key, value)
    return texts


def _stated(
    instance: Any,
    problem: Problem,
    method: str | None,
    split: Settings,
    objective: str | None,
    space: Any,
) -> tuple[Any, dict[str, str]]:
    """`core.choices.state`, for a space that is an object or a mapping too."""
    words: str | None = space if isinstance(space, str) else None
    if isinstance(space, Mapping):
        pairs = {str(key): as_text(str(key), value) for key, value in space.items()}
        name = pairs.pop("name", "")
        words = " ".join([name, *(f"{key}={value}" for key, value in pairs.items())]).strip()
    elif space is not None and words is None:
        from nestopt.placement.model.space import PlanSpace

        if not isinstance(space, PlanSpace):
            raise UsageError(f"space {space!r}: expected a PlanSpace, a name, or a mapping")
        if not hasattr(instance, "over"):
            raise UsageError("space: this instance has no plan space")
        instance = instance.over(space)
    return state(instance, problem, method, split, objective=objective, space=words)


def _whole(job: Any) -> tuple[Any, str | None]:
    """A whole instance: an object, a name of the instance library, or a file; its usual method."""
    if isinstance(job, Path):
        job = str(job)
    if not isinstance(job, str):
        if hasattr(job, "to_json") and _problem_of_instance(job, refuse=False):
            return job, None
        raise UsageError(f"{job!r} is no whole instance; say on what it runs")
    if Path(job).suffix == "" and Path(job).name == job and not Path(job).exists():
        entry = library_entry(job)
        return library_instance(job), entry.methods[0]
    data = read_json(job)
    if kind_of_file(job, data) != "instance":
        raise InputError(f"is a {kind_of_file(job, data)}; expected an instance", file=job)
    if data.get("problem") not in PARTS:
        raise InputError(
            f"{data.get('problem')!r}; expected 'placement' or 'collective'",
            file=job,
            field="problem",
        )
    return get_problem(data["problem"]).from_json(data, file=job), None


def _problem_of_instance(instance: Any, *, refuse: bool = True) -> str:
    data = instance.to_json()
    found = data.get("problem") if isinstance(data, dict) else None
    if found not in PARTS:
        if refuse:
            raise UsageError(f"{instance!r} is no instance of placement or of a collective")
        return ""
    return str(found)


def _kind(part: Any) -> str | None:
    """What an object, a file or a name is; None if a name could be several things."""
    schema = getattr(part, "to_json", None)
    if schema is not None:
        return _SCHEMAS.get(str(part.to_json().get("schema", "")).partition("/")[0])
    if _is_graph(part):
        return "topology"

    if isinstance(part, Path) or (isinstance(part, str) and names_file(part)):
        kind = kind_of_file(str(part), read_json(str(part)))
        return None if kind in ("instance", "result") else kind
    return None


def _is_graph(part: Any) -> bool:
    return all(hasattr(part, name) for name in ("nodes", "edges", "is_directed"))


def _problem_of(job: Any, on: Any) -> str:
    kinds = [kind for kind in (_kind(job), _kind(on)) if kind in PROBLEM_OF]
    problems = {PROBLEM_OF[kind] for kind in kinds if kind is not None}
    if len(problems) > 1:
        raise UsageError(f"a {kinds[0]} does not run on a {kinds[1]}")
    if problems:
        return problems.pop()
    if isinstance(job, str):
        from nestopt.collective.model.collective import PATTERNS

        return "collective" if job.split(":")[0].split(";")[0] in PATTERNS else "placement"
    raise UsageError(
        f"{job!r}: expected a Workload, a Collective, a name or a file, or a whole instance"
    )


def _joined(job: Any, on: Any, problem: Problem, split: Settings) -> Any:
    """The instance of two parts."""
    if isinstance(job, (str, Path)) and isinstance(on, (str, Path)):
        first, second = PARTS[problem.name]
        return problem.from_names({first: str(job), second: str(on)}, split.instance)
    if _is_graph(on):
        from nestopt.collective.model.topology import Topology

        on = Topology.from_networkx(on)
    return problem.from_parts(job, on, split.instance)


def _restated(instance: Any, split: Settings, job: Any) -> Any:
    """Refuse settings of an instance that is stated already."""
    key = next(iter(split.instance))
    raise UsageError(
        f"--set {key}: {job if isinstance(job, str) else 'the instance'} states this already"
    )


def load(source: str | Path, kind: str | None = None) -> Any:
    """What a file or a name of the library holds.

    Parameters
    ----------
    source : str or Path
        A file (result, instance, workload, cluster, topology or collective), or a name.
    kind : str, optional
        Of a name: ``"workload"``, ``"cluster"``, ``"topology"``, ``"collective"`` or
        ``"instance"``; found out by trying unless given.

    Returns
    -------
    Result, instance, Workload, Cluster, Topology or Collective

    Raises
    ------
    UsageError
        If the name is unknown.
    InputError
        If the file is wrong, naming file, field and value.
    """
    known = ("workload", "cluster", "topology", "collective", "instance", "result")
    if kind is not None and kind not in known:
        raise unknown_name("kind", kind, known)
    text = str(source)
    if isinstance(source, Path) or names_file(text):
        data = read_json(text)
        found = kind_of_file(text, data)
        if kind is not None and found != kind:
            raise InputError(f"holds a {found}; expected a {kind}", file=text)
        if found == "result":
            return Result.from_json(data, file=text)
        if found == "instance":
            return _whole(text)[0]
        return _class_of(found).from_json(data, file=text)
    tries = (
        (kind,)
        if kind is not None
        else ("instance", "workload", "cluster", "topology", "collective")
    )
    wrong: InputError | None = None
    for each in tries:
        try:
            return library_instance(text) if each == "instance" else named(each, text)
        except UsageError:
            if kind is not None:
                raise
        except InputError as error:
            if kind is not None:
                raise
            wrong = error  # the family may be known to another kind
    if wrong is not None:
        raise wrong
    raise UsageError(
        f"{text!r} is neither a file nor a name of an instance, workload, cluster, topology or "
        "collective; `nestopt library list` shows the names"
    )


def _class_of(kind: str) -> Any:
    from importlib import import_module

    module, name = {
        "workload": ("nestopt.placement.model.workload", "Workload"),
        "cluster": ("nestopt.placement.model.cluster", "Cluster"),
        "topology": ("nestopt.collective.model.topology", "Topology"),
        "collective": ("nestopt.collective.model.collective", "Collective"),
    }[kind]
    return getattr(import_module(module), name)
