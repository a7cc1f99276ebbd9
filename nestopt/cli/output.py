"""What goes to stdout and what to stderr."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from nestopt.core.result import relative_gap
from nestopt.core.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

__all__ = [
    "Progress",
    "console",
    "definitions",
    "note",
    "print_json",
    "printable",
    "quantity",
    "signed_percent",
    "stdout_to_stderr",
]

_SECONDS_PER_UNIT = {"placement": 1.0, "collective": 1e-12}


def console() -> Console:
    """The console for people, on stdout."""
    from rich.console import Console

    return Console(highlight=False)


def note(text: str) -> None:
    """A remark that is not the answer: one line on stderr."""
    print(f"nestopt: {text}", file=sys.stderr)


def printable(text: str, *, keep: str = "") -> str:
    """`text`, its control characters written out: what a file says starts no line of its own.

    Parameters
    ----------
    keep : str
        Control characters that may stay.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each in keep or each.isprintable() else each.encode("unicode_escape").decode()
        for each in text
    )


def print_json(data: dict[str, Any]) -> None:
    """One JSON object on stdout, on one line."""
    print(json.dumps(data, allow_nan=False))


def quantity(problem: str, value: float | None) -> str:
    """An objective or a bound for people: placement counts seconds, collectives picoseconds."""
    return "-" if value is None else format_seconds(value * _SECONDS_PER_UNIT.get(problem, 1.0))


def signed_percent(share: float) -> str:
    """A difference as a percentage of three decimals with its sign, which zero has not."""
    text = f"{share:+.3%}"
    return text if text.strip("+-0.%") else text.lstrip("+-")


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send what libraries print, compiled ones included, to stderr.

    HiGHS prints a banner and CBC its log on file descriptor 1, past `sys.stdout`; stdout belongs to
    the answer alone.
    """
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 1)
        os.close(saved)


class Progress:
    """Rows of a running method on stderr: seconds, incumbent, bound, gap and a remark.

    Every new incumbent gets a row; bounds alone get one every few seconds.

    Parameters
    ----------
    problem : str
    quiet : bool
        Remember the best values, print nothing.
    """

    BOUND_ROWS_EVERY = 5.0
    ROWS_EVERY = 0.2

    def __init__(self, problem: str, *, quiet: bool) -> None:
        self.problem = problem
        self.quiet = quiet
        self.objective: float | None = None
        self.bound = float("-inf")
        self._console: Console | None = None
        self._last = float("-inf")

    def __call__(
        self, seconds: float, objective: float | None, bound: float, note: str = ""
    ) -> None:
        improved = objective is not None and (self.objective is None or objective < self.objective)
        raised = bound > self.bound
        if improved:
            self.objective = objective
        self.bound = max(self.bound, bound)
        now = time.monotonic()
        wait = self.ROWS_EVERY if improved else self.BOUND_ROWS_EVERY
        if self.quiet or not (improved or raised) or now - self._last < wait:
            return
        self._last = now
        self._print(seconds, note)

    def _print(self, seconds: float, note: str) -> None:
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False)
            header = f"{'time':>9}  {'incumbent':>11}  {'bound':>11}  {'gap':>8}"
            self._console.print(header, style="dim")
        gap = relative_gap(self.objective, self.bound)
        shown = f"{gap:.2%}" if gap is not None and gap < 10 else "-"
        best = quantity(self.problem, self.objective)
        bound = quantity(self.problem, self.bound) if self.bound > float("-inf") else "-"
        row = f"{seconds:>7.1f} s  {best:>11}  {bound:>11}  {shown:>8}  {note}"
        self._console.print(row.rstrip(), markup=False, no_wrap=True, overflow="ellipsis")


def definitions(entries: list[tuple[str, str]], indent: int = 2) -> None:
    """Terms and their texts in two columns, wrapped to the terminal (at most 80 columns)."""
    from shutil import get_terminal_size
    from textwrap import wrap

    term = max((len(name) for name, _ in entries), default=0)
    left = indent + term + 2
    width = max(min(get_terminal_size().columns, 80) - left, 24)
    for name, text in entries:
        lines = [line for part in text.splitlines() for line in wrap(part, width)]
        for row, line in enumerate(lines or [""]):
            print(f"{' ' * indent}{name if row == 0 else '':<{term}}  {line}")
