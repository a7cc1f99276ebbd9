"""What may be asked of a method: objectives, plan spaces, back-ends and the keys of ``--set``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from nestopt.core.errors import UsageError, unknown_name
from nestopt.core.registry import methods_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.core.problem import Problem

__all__ = ["OBJECTIVES", "Settings", "refuse_contradictions", "split_settings", "state"]

OBJECTIVES = {"placement": ("iteration-time", "bottleneck"), "collective": ("makespan",)}


def refuse_contradictions(
    problem: str,
    method: str,
    objective: str | None,
    space: str | None,
    backend: str | None,
    write_model: str | None,
) -> None:
    """Refuse choices that the problem or the method does not have.

    Raises
    ------
    UsageError
        Naming the choice (with a suggestion for an unknown name).
    """
    if objective is not None and objective not in OBJECTIVES[problem]:
        raise unknown_name(f"{problem} objective", objective, OBJECTIVES[problem])
    if space is not None and problem != "placement":
        raise UsageError("--space belongs to placement; a collective has none")
    if method in methods_of(problem):
        if backend is not None and method != "milp":
            raise UsageError(f"--backend belongs to the method milp; {method} has none")
        if write_model is not None and method not in ("milp", "cpsat"):
            raise UsageError(
                f"--write-model belongs to the methods milp and cpsat; {method} has no model"
            )


class Settings(NamedTuple):
    """The ``KEY=VALUE`` pairs of a run, by who reads them.

    Attributes
    ----------
    instance : dict
        What makes the instance: global batch, chunk size, ...
    space : dict
        The plan space (placement).
    method : dict
    """

    instance: dict[str, str]
    space: dict[str, str]
    method: dict[str, str]


def split_settings(settings: dict[str, str], problem: Problem, method: str | None) -> Settings:
    """Settings for the instance, for its plan space, and for the method.

    Raises
    ------
    UsageError
        If none knows a key (with a suggestion). Methods of other distributions state no keys and
        get every key that nothing else reads.
    """
    rows = methods_of(problem.name)
    open_ended = method is not None and method not in rows
    known = rows[method].all_settings if method in rows else ()
    of_space: Sequence[str] = getattr(problem, "space_settings", ())
    found = Settings({}, {}, {})
    for key, value in settings.items():
        if key in problem.settings:
            found.instance[key] = value
        if key in of_space:
            found.space[key] = value
        elif key in known or (open_ended and key not in problem.settings):
            found.method[key] = value
        elif key not in problem.settings:
            what = f"setting of {method}" if method else f"setting of a {problem.name} instance"
            raise unknown_name(what, key, (*known, *of_space, *problem.settings))
    return found


def state(
    instance: Any,
    problem: Problem,
    method: str | None,
    settings: Settings,
    *,
    objective: str | None = None,
    space: str | None = None,
) -> tuple[Any, dict[str, str]]:
    """The instance with the objective and the space that words ask for, and the method's settings.

    Parameters
    ----------
    objective, space : str, optional
        As the instance has them unless given. A space is a text such as ``"megatron-core"`` or
        ``"full general"``.

    Raises
    ------
    UsageError
        If the instance does not offer what is asked for.
    InputError
        If a value of the space is wrong.
    """
    schema = getattr(instance, "schema", None)
    if hasattr(problem, "stated") and schema is None:
        return problem.stated(instance, objective, space, settings.space), settings.method
    for what, wanted in (("objective", objective), ("space", space)):
        choices: Sequence[str] = getattr(instance, f"{what}s", ())
        if wanted is not None and choices and wanted not in choices:
            raise UsageError(f"--{what} {wanted}: {schema} has {' and '.join(choices)} alone")
    row = methods_of(problem.name).get(method or "")
    read = row.model_settings.get(schema or "", ()) if row is not None else ()
    for key in settings.space:
        if row is not None and key not in read:
            raise UsageError(f"--set {key}: method {method} does not read it for {schema}")
    return instance, settings.space | settings.method
