"""What may be asked of a method: objectives, spaces, back-ends and the keys of ``--set``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nestopt.core.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.core.instance import Instance
    from nestopt.core.problem import Problem

__all__ = ["OBJECTIVES", "SPACES", "offered", "refuse_contradictions", "split_settings"]

OBJECTIVES = {"placement": ("iteration-time", "bottleneck"), "collective": ("makespan",)}
SPACES = ("structured", "general")


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
    from nestopt.core.registry import methods_of

    if objective is not None and objective not in OBJECTIVES[problem]:
        raise unknown_name(f"{problem} objective", objective, OBJECTIVES[problem])
    if space is not None:
        if problem != "placement":
            raise UsageError("--space belongs to placement; a collective has none")
        if space not in SPACES:
            raise unknown_name("space", space, SPACES)
    if method in methods_of(problem):
        if backend is not None and method != "milp":
            raise UsageError(f"--backend belongs to the method milp; {method} has none")
        if write_model is not None and method not in ("milp", "cpsat"):
            raise UsageError(
                f"--write-model belongs to the methods milp and cpsat; {method} has no model"
            )


def offered(instance: Instance, what: str, wanted: str | None, usual: Sequence[str]) -> str:
    """The objective or space wanted, or the first one; instances of other models offer fewer.

    Raises
    ------
    UsageError
        If the instance does not offer what is wanted.
    """
    choices: Sequence[str] = getattr(instance, f"{what}s", usual)
    if wanted is not None and wanted not in choices:
        schema = getattr(instance, "schema", "this instance")
        raise UsageError(f"--{what} {wanted}: {schema} has {' and '.join(choices)} alone")
    return wanted or choices[0]


def split_settings(
    settings: dict[str, str], problem: Problem, method: str | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Settings for the instance and settings for the method.

    Raises
    ------
    UsageError
        If neither knows a key (with a suggestion). Methods of other distributions state no
        keys and get every key that the instance does not read.
    """
    from nestopt.core.registry import methods_of

    rows = methods_of(problem.name)
    open_ended = method is not None and method not in rows
    known = rows[method].all_settings if method in rows else ()
    for key in settings:
        if key not in known and key not in problem.settings and not open_ended:
            what = f"setting of {method}" if method else f"setting of a {problem.name} instance"
            raise unknown_name(what, key, (*known, *problem.settings))
    return (
        {key: value for key, value in settings.items() if key in problem.settings},
        {
            key: value
            for key, value in settings.items()
            if key in known or (open_ended and key not in problem.settings)
        },
    )
