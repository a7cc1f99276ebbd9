"""Ctrl-C and SIGTERM outside a search, and the second one anywhere.

A search has a watch of its own (`nestopt.core.stop`), which returns what there is. Before it and
after it the first signal ends the program without a traceback, and the second one at once, whatever
the process is busy with.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

from nestopt.core import stop

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Interrupts"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context manager around the program, for the main thread; elsewhere it does nothing."""

    def __init__(self) -> None:
        self.first = 0
        self._heard = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN and before is not None:
                self._before[number] = before
                signal.signal(number, self._on_signal)
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._old_last = stop.LAST
        stop.LAST = end_now
        threading.Thread(target=self._guard, name="nestopt-signals", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number, before in self._before.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(self._old_fd, warn_on_full_buffer=False)
        stop.LAST = self._old_last
        self._writer.close()
        aborted = isinstance(error, KeyboardInterrupt) or (
            isinstance(error, SystemExit) and error.code == 1
        )
        if self.first and aborted:
            print(f"nestopt: ended by {signal.Signals(self.first).name}", file=sys.stderr)
            raise SystemExit(128 + self.first) from None

    def _on_signal(self, number: int, frame: Any) -> None:
        if not self.first:
            self.first = number
            raise KeyboardInterrupt

    def _guard(self) -> None:
        """Hears signals while compiled code runs, too."""
        with contextlib.suppress(OSError):
            while heard := self._reader.recv(64):
                for number in heard:
                    self._heard += number in self._before
                    if number in self._before and self._heard > 1:
                        end_now(number)
        self._reader.close()


def end_now(number: int) -> None:
    """End the process without another word, as the signal would have."""
    os._exit(128 + number)
