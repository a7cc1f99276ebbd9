"""The command line: `main` is the console script ``nestopt``.

Each command has a module of its own, which imports whatever is heavy when it runs, so that
``nestopt --help`` costs no more than typer itself.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after the program's name; those of the process by default.
    """
    before = _quiet()
    try:
        from nestopt.cli.interrupts import interrupts

        # a signal may come while the commands are still being imported
        with interrupts():
            from nestopt.cli.app import main as run

            run(argv)
    finally:
        if argv is None:
            # the process ends; Python takes its time to tidy up, and at the end of that it gives
            # the signals back to the system, which would end the process with another status
            _quiet()
            atexit.register(_ignore)
        else:
            for number, handler in before.items():
                signal.signal(number, handler)


def _quiet() -> dict[int, Any]:
    """Signals end the program at once and without a traceback; the handlers that were there."""
    if threading.current_thread() is not threading.main_thread():
        return {}

    def leave(number: int, _: object) -> None:
        os._exit(128 + number)

    heard = (signal.SIGINT, signal.SIGTERM)
    return {n: signal.signal(n, leave) for n in heard if signal.getsignal(n) is not signal.SIG_IGN}


def _ignore() -> None:
    """What was to be done is done, and a signal changes nothing any more."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
