"""The lazy method table: names to ``module:function``, imported when first used.

Each problem lists its own methods in ``nestopt.PROBLEM.methods``. These tables and the command
line are the only places through which `nestopt` reaches
`formulations` and `instances`. Third-party methods register in the entry-point group
``nestopt.solvers`` under the name ``placement.NAME`` or ``collective.NAME``; `register` adds one
for the running process.

A method is ``solve(instance, options: SolveOptions) -> Result``; `instance` is a
`PlacementInstance` or a `CollectiveInstance`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import UsageError, unknown_name
from nestopt.core.settings import checked, setting_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result

__all__ = [
    "architecture",
    "Method",
    "get_method",
    "library_entry",
    "library_instance",
    "link_tiers",
    "method_names",
    "methods_of",
    "named",
    "read_published",
    "register",
    "unregister",
    "transformer",
    "transformers",
]

# By schema: the reader of the format that the model was published with, and its name there
_READERS = {
    "nestopt.maxload/1": ("nestopt.instances.readers.dnn_partitioning", "dnn_partitioning"),
    "nestopt.piper/1": ("nestopt.instances.readers.piper", "piper"),
}


@dataclass(frozen=True, slots=True)
class Method:
    """One row of the table.

    Attributes
    ----------
    target : str
        ``module:function``.
    summary : str
        One line for people.
    settings : tuple of str
        The ``--set`` keys that the method reads.
    models : dict
        Targets for instances of another schema, by schema (``nestopt.maxload/1``).
    model_settings : dict
        The ``--set`` keys that those targets read, by schema.
    """

    target: str
    summary: str
    settings: tuple[str, ...] = ()
    models: dict[str, str] = field(default_factory=dict)
    model_settings: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def all_settings(self) -> tuple[str, ...]:
        """The ``--set`` keys that some target reads."""
        others = (key for keys in self.model_settings.values() for key in keys)
        return tuple(dict.fromkeys((*self.settings, *others)))


_PROBLEMS = ("placement", "collective")
_REGISTERED: dict[str, Callable[[Any, SolveOptions], Result]] = {}


def _table(problem: str) -> dict[str, Method]:
    return import_module(f"nestopt.{problem}.methods").METHODS


def register(name: str, method: Callable[[Any, SolveOptions], Result]) -> None:
    """Make a function a method of this process: `solve` finds it by its name.

    Parameters
    ----------
    name : str
        ``placement.NAME`` or ``collective.NAME``.
    method : callable
        ``method(instance, options) -> Result``. Its solution passes the independent checker like
        every other.

    Raises
    ------
    UsageError
        If the name has another form or is taken, or `method` is no function.
    """
    problem, dot, own = name.partition(".")
    if not dot or not own or problem not in _PROBLEMS:
        raise UsageError(f"method {name!r}: expected placement.NAME or collective.NAME")
    if own in _table(problem):
        raise UsageError(f"method {name!r}: nestopt has a method of this name; choose another")
    if not callable(method):
        raise UsageError(f"method {name!r}: {method!r} is no function")
    _REGISTERED[name] = method


def unregister(name: str) -> None:
    """Forget a method that `register` took; a name that is not registered is passed over."""
    _REGISTERED.pop(name, None)


def methods_of(problem: str) -> dict[str, Method]:
    """The built-in methods of a problem."""
    return dict(_table(problem))


def method_names(problem: str) -> list[str]:
    """Names of a problem's methods, built in and registered by other distributions."""
    names = list(_table(problem))
    for point in entry_points(group="nestopt.solvers"):
        head, _, tail = point.name.partition(".")
        if head == problem and tail:
            names.append(tail)
    names += [key.partition(".")[2] for key in _REGISTERED if key.startswith(f"{problem}.")]
    return list(dict.fromkeys(names))


def get_method(problem: str, name: str) -> Callable[[Any, SolveOptions], Result]:
    """The function of a method.

    Raises
    ------
    UsageError
        If no method has that name (with a suggestion).
    """
    row = _table(problem).get(name)
    if row is None:
        if f"{problem}.{name}" in _REGISTERED:
            return _REGISTERED[f"{problem}.{name}"]
        for point in entry_points(group="nestopt.solvers"):
            if point.name == f"{problem}.{name}":
                return point.load()
        raise unknown_name(f"{problem} method", name, method_names(problem))
    return partial(_run, row, problem, name)


def _run(row: Method, problem: str, name: str, instance: Any, options: SolveOptions) -> Result:
    schema = getattr(instance, "schema", None)
    target = row.target if schema is None else row.models.get(schema)
    if target is None:
        raise UsageError(f"method {name} does not solve instances of {schema}")
    read = row.settings if schema is None else row.model_settings.get(schema, ())
    for key in options.set:
        if key not in read:
            raise _unread(problem, name, key, read, schema)
    checked(problem, name, options.set)
    module, _, function = target.partition(":")
    return getattr(import_module(module), function)(instance, options)


def _unread(
    problem: str, method: str, key: str, read: Sequence[str], schema: str | None
) -> UsageError:
    """The error for a setting that a method does not read."""
    if setting_of(problem, key) is None:
        return unknown_name(f"setting of {method}", key, read)
    of = "this model" if schema is None else schema
    return UsageError(f"--set {key}: method {method} does not read it for {of}")


def named(kind: str, name: str) -> Any:
    """The library's object of a name: `kind` is topology, collective, cluster or workload.

    Raises
    ------
    UsageError
        If the catalogue has no such name (with a suggestion).
    InputError
        If the name's parameters are wrong (``mesh2d:0x4``).
    """
    return import_module("nestopt.instances.catalog").resolve(kind, name)


def link_tiers(topology: Any) -> tuple[str, ...] | None:
    """What each link of a library machine is (``nvlink``, ``nic``); None of other networks."""
    return import_module("nestopt.instances.topologies").tiers_of(topology)


def library_entry(name: str) -> Any:
    """The entry of the instance library of a name (`nestopt.instances.library.Entry`).

    Raises
    ------
    UsageError
        If there is none (with a suggestion).
    """
    return import_module("nestopt.instances.library").entry(name)


def library_instance(name: str) -> Any:
    """The instance of an entry of the instance library, generated."""
    return import_module("nestopt.instances.library").load(name)


def architecture(name: str) -> Any:
    """The `Transformer` of a workload's name, with the settings in it.

    Raises
    ------
    UsageError
        If the name is unknown (with a suggestion).
    InputError
        If a setting or a configuration file is wrong.
    """
    return import_module("nestopt.instances.workloads").configuration(name)[0]


def transformer(name: str) -> Any:
    """The transformer of a name with settings after commas, before its set of parameters.

    Raises
    ------
    UsageError
        If the catalogue has no such transformer (with a suggestion).
    InputError
        If a setting is wrong.
    """
    return import_module("nestopt.instances.workloads").configuration(name)[0]


def transformers() -> dict[str, Any]:
    """The catalogue's `nestopt.placement.model.transformer.Transformer` of every name."""
    return {
        name: row[0] for name, row in import_module("nestopt.instances.workloads").MODELS.items()
    }


def read_published(schema: str, data: Any, file: str) -> Any | None:
    """The instance in a file of the format that a model was published with.

    Parameters
    ----------
    schema : str
        The model's schema, ``nestopt.maxload/1`` or ``nestopt.piper/1``.
    data : Any
        The file's JSON.
    file : str
        Its path, for the instance's name and for errors.

    Returns
    -------
    MaxLoadProblem or PiperProblem or None
        None if the file does not look like that format.

    Raises
    ------
    InputError
        If it does, but a value is wrong.
    """
    module, name = _READERS[schema]
    reader = import_module(module)
    if not getattr(reader, f"is_{name}")(data):
        return None
    return getattr(reader, f"parse_{name}")(data, Path(file).stem, file=file)
