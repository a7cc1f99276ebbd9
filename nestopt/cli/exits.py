"""Exit statuses, and how a failure is shown."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from enum import IntEnum
from typing import TYPE_CHECKING

from nestopt.cli.output import printable
from nestopt.core.errors import CheckError, Interrupted, UsageError
from nestopt.core.result import Reason

if TYPE_CHECKING:
    from nestopt.core.errors import NestoptError
    from nestopt.core.result import Result

__all__ = ["ERROR_SCHEMA", "Exit", "exit_of", "flush_stdout", "open_stdout", "report"]

ERROR_SCHEMA = "nestopt.error/1"


class Exit(IntEnum):
    """What the process tells its caller."""

    SOLUTION = 0
    ERROR = 1
    USAGE = 2
    INFEASIBLE = 3
    NO_SOLUTION = 4
    CHECK_FAILED = 5


def exit_of(result: Result) -> Exit:
    """The status of a run that ended with `result`."""
    return {
        Reason.OPTIMAL: Exit.SOLUTION,
        Reason.FEASIBLE: Exit.SOLUTION,
        Reason.INFEASIBLE: Exit.INFEASIBLE,
        Reason.NO_SOLUTION: Exit.NO_SOLUTION,
        Reason.ERROR: Exit.ERROR,
    }[result.termination.reason]


def report(error: NestoptError | OSError, *, as_json: bool) -> int:
    """One line about `error` on stderr; with `as_json`, its JSON object on stdout too."""
    status: int
    if isinstance(error, Interrupted):
        status = 128 + error.number
    elif isinstance(error, UsageError):
        status = Exit.USAGE
    elif isinstance(error, CheckError):
        status = Exit.CHECK_FAILED
    else:
        status = Exit.ERROR
    words = str(error)
    if isinstance(error, OSError) and error.strerror:
        # what is printed has no file name
        words = f"{error.filename or 'what was to be written'}: {error.strerror}"
    text = printable(words, keep="\n\t")
    print(f"nestopt: error: {text}", file=sys.stderr)
    if as_json:
        with contextlib.suppress(OSError):
            print(json.dumps({"schema": ERROR_SCHEMA, "error": words, "exit": int(status)}))
    return status


def open_stdout() -> None:
    """Where the caller closed stdout, give it back as a stream that cannot be written to.

    Else the next file opened would become stdout, and what is printed would vanish in silence.
    """
    if sys.stdout is None:
        handle = os.open(os.devnull, os.O_RDONLY)
        if handle != 1:
            os.dup2(handle, 1)
        sys.stdout = os.fdopen(1, "w", closefd=False)


def flush_stdout() -> None:
    """Write out what was printed; where nobody takes it, the program still ends in order.

    Without this, Python would end with a status of its own.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.stdout.flush()
