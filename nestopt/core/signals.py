"""SIGINT and SIGTERM, heard at once whatever the main thread is busy with.

Python runs the handler of a signal in the main thread, between two instructions of its own: not
while compiled code runs, and, if the handler raises, in the middle of anything, be it a kernel that
is being compiled. So the handlers here do nothing by themselves. The number of the signal comes
through a socket to a thread of this module, which tells `heard`. Only `wake` makes a handler do
something: it runs `woken` in the main thread, even if that sleeps.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["Signals"]

_BOTH = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Takes the two signals as long as somebody asks for them; the main thread takes and returns.

    Parameters
    ----------
    heard : callable
        ``heard(number, nth)``, in a thread of its own; ``nth`` counts from 1.
    woken : callable
        ``woken(frame)`` in the main thread, after `wake`; it may raise.

    Attributes
    ----------
    taken : frozenset of int
        The signals that are heard now. One that was ignored when the program began (as the shell
        does for what runs in the background) stays ignored.
    first : int
        The number of the first signal that was heard, or 0.
    """

    def __init__(
        self,
        heard: Callable[[int, int], Any],
        woken: Callable[[FrameType | None], Any],
    ) -> None:
        self.taken: frozenset[int] = frozenset()
        self.first = 0
        self._heard, self._woken = heard, woken
        self._users = 0
        self._before: dict[int, Any] = {}
        self._count = 0
        # of the signal that `wake` sends: on its way, and arrived but not yet answered
        self._sent = self._awake = False

    def take(self, *, system: bool = False) -> None:
        """Hear the signals from now on.

        Parameters
        ----------
        system : bool
            Also SIGTERM where it would end the process without a word: for a program, not for a
            library in somebody else's.
        """
        self._users += 1
        if self._users > 1:
            return
        for number in _BOTH:
            before = signal.getsignal(number)
            if before is signal.SIG_IGN or before is None:
                continue
            if number == signal.SIGTERM and before is signal.SIG_DFL and not system:
                continue
            self._before[number] = before
        self._count = self.first = 0
        self._sent = self._awake = False
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        threading.Thread(target=self._listen, name="nestopt-signals", daemon=True).start()
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for each in self._before:
            signal.signal(each, self._on_signal)
        self.taken = frozenset(self._before)

    def give_back(self) -> None:
        """Undo one `take`; the last one restores the handlers that were there."""
        self._users -= 1
        if self._users:
            return
        # our own signal must not arrive at somebody else's handler
        until = time.monotonic() + 1.0
        while self._sent and time.monotonic() < until:
            time.sleep(0.001)
        self.taken = frozenset()
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()
        signal.set_wakeup_fd(self._old_fd, warn_on_full_buffer=False)
        # the thread reads what is left, then the end
        self._writer.close()

    def wake(self) -> bool:
        """Have `woken` called in the main thread soon; False where SIGINT is not ours to send."""
        if signal.SIGINT not in self.taken:
            return False
        if self._sent:
            # two signals on their way may arrive as one
            return True
        self._sent = self._awake = True
        # interrupts what sleeps, too
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._awake:
            self._awake = False
            self._woken(frame)

    def _listen(self) -> None:
        reader = self._reader
        with contextlib.suppress(OSError):
            while numbers := reader.recv(64):
                for number in numbers:
                    self._take_one(number)
        reader.close()

    def _take_one(self, number: int) -> None:
        if number == signal.SIGINT and self._sent:
            self._sent = False
        elif number in self._before:
            self._count += 1
            self.first = self.first or number
            self._heard(number, self._count)
