"""The solution of a collective's result as an object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nestopt.collective.model.of_result import in_columns, instance_of, schedule_of
from nestopt.core.errors import NestoptError

if TYPE_CHECKING:
    from nestopt.collective.model.schedule import Schedule
    from nestopt.core.result import Result

__all__ = ["MOST_SENDS", "read_solution"]

MOST_SENDS = 50_000_000
"""A schedule of more sends stays in its file: as columns it would fill the memory."""


def read_solution(result: Result) -> Schedule:
    """The schedule of a result, with the instance that it is for.

    Raises
    ------
    InputError
        If what the result holds is no schedule.
    NestoptError
        If it has more than `MOST_SENDS` sends, or its side file is missing.
    """
    instance = instance_of(result)
    found = schedule_of(result, None if result.directory is None else Path(result.directory))
    if found.num_sends > MOST_SENDS:
        raise NestoptError(
            f"{found.num_sends} sends are too many for one table (at most {MOST_SENDS}); "
            "`nestopt.collective.model.store.open_store` reads the file in its own form"
        )
    return replace(in_columns(instance, found), instance=instance)
