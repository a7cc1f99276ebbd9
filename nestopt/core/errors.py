"""Exceptions of nestopt; all derive from `NestoptError`."""

from __future__ import annotations

from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "CheckError", "InputError", "Interrupted", "NestoptError", "SolverError", "UsageError",
    "naming", "unknown_name",
]  # fmt: skip


class NestoptError(Exception):
    """Base of every error that nestopt raises on purpose (exit status 1)."""


class InputError(NestoptError, ValueError):
    """A file or a value given by the user is wrong.

    Parameters
    ----------
    message : str
        What was found and what was expected.
    file, field : str, optional
        Where: the file's path and the field in it (``levels[1].port``).
    """

    def __init__(self, message: str, *, file: str | None = None, field: str | None = None) -> None:
        self.file, self.field = file, field
        where = ": ".join(part for part in (file, field) if part)
        super().__init__(f"{where}: {message}" if where else message)


class UsageError(NestoptError):
    """The command line is wrong: an unknown name, or options that exclude each other (exit 2)."""


class CheckError(NestoptError):
    """A solution fails the independent checker (exit status 5)."""


class SolverError(NestoptError):
    """A back-end solver is missing or broke down."""


class Interrupted(NestoptError):
    """A run was ended by a signal; what it has finished is kept (exit status 128 + `number`).

    Parameters
    ----------
    message : str
    number : int
        The signal's.
    """

    def __init__(self, message: str, number: int) -> None:
        self.number = number
        super().__init__(message)


@contextmanager
def naming(file: str | None) -> Iterator[None]:
    """Input errors that are raised within name the file, if they name none yet."""
    try:
        yield
    except InputError as error:
        if error.file is None and file is not None:
            raise InputError(str(error), file=file) from error
        raise


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for an unknown name: suggests close names, else lists what is known."""
    names = sorted(set(known))
    close = get_close_matches(name, names, n=3, cutoff=0.6)
    if close:
        hint = "did you mean " + " or ".join(repr(c) for c in close) + "?"
    else:
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        hint = f"known: {shown or 'none'}"
    return UsageError(f"unknown {kind} {name!r}; {hint}")
