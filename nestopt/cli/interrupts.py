"""Ctrl-C and SIGTERM outside a search, and the second one anywhere.

A search has a watch of its own (`nestopt.core.stop`), which returns what there is; what comes after
it delivers the answer and is not cut short. Otherwise the first signal ends the program, and the
second one does so anywhere, at once, whatever the process is busy with.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING, NoReturn

from nestopt.core.io import remove_unfinished
from nestopt.core.stop import SIGNALS, hear_everything

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["end_now", "interrupts"]


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """A context around the program, for the main thread; elsewhere it does nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with hear_everything(end_now):
        try:
            yield
        except (SystemExit, KeyboardInterrupt) as error:
            # a search that had no place to return from; click ends with 1 or 130 then
            if SIGNALS.first and _interrupted(error):
                end_now(SIGNALS.first)
            raise


def _interrupted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def end_now(number: int) -> NoReturn:
    """End the process at once, with the status 128 + `number`; nothing half-written is left."""
    with contextlib.suppress(Exception):
        remove_unfinished()
    with contextlib.suppress(OSError):
        os.write(2, f"nestopt: ended by {signal.Signals(number).name}\n".encode())
    os._exit(128 + number)
