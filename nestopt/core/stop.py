"""How a run ends early: at its time limit, at Ctrl-C, at SIGTERM.

A `Watch` stands beside a run. When time is up or a signal comes, it does three things, each only if
the one before was not enough:

1. It sets a flag. Compiled searches read it (`nestopt.core.stop_kernel.stopped`) and return what
   they have, clocks ask `requested`, and functions given to `on_stop` are called from a thread of
   the watch, which is how a solver in C++ is told.
2. After most of `GRACE` seconds of processor time the flag says so, and compiled loops that have
   nothing yet raise `KernelStopped` (`nestopt.core.stop_kernel.overdue`).
3. After `GRACE` seconds it raises `Stopped` in the thread of the run, so that loops in Python end,
   too; and again after as much, for what caught the first one and went on.

No exception is ever raised inside a `shielded` block, since a callback from C++ must return, nor
while a kernel is being compiled.

A method that catches the exception and has something to return says `noticed`, which takes the flag
down, and builds its result.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "FLAG",
    "GRACE",
    "KernelStopped",
    "Stopped",
    "Watch",
    "check",
    "noticed",
    "on_stop",
    "requested",
    "settled",
    "shielded",
    "watching",
]

GRACE = 1.1
_OVERDUE = 0.7
# wall-clock seconds of a run that uses no processor until it counts as stuck
_IDLE_GRACE = 1.0
_POLL = 0.02

FLAG = ctypes.c_int64(0)
"""1 while the running search must end, 2 once that is overdue; compiled loops read it."""

LAST: Callable[[int], Any] | None = None
"""What a second signal does, given its number; the command line ends the process."""

_LOCK = threading.RLock()
_ACTIVE: list[Watch] = []


class Stopped(KeyboardInterrupt):
    """The search was told to end, by a limit or by a signal."""


class KernelStopped(Stopped, Exception):
    """`Stopped` as compiled code may raise it: numba takes only kinds of `Exception`."""


class Watch:
    """Ends a run at a time limit or at a signal; a context manager around it.

    Watches nest: a limit ends what is inside it, a signal everything.

    Parameters
    ----------
    limit : float
        Wall-clock seconds from now; ``inf`` for none.
    signals : bool
        Whether SIGINT and SIGTERM end the run; only the main thread can be asked for that.
    clock : callable
        Wall-clock seconds; for tests.

    Attributes
    ----------
    reason : str
        ``""``, ``"time"`` or ``"interrupted"``.
    """

    def __init__(
        self,
        limit: float = math.inf,
        *,
        signals: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.reason = ""
        self.clock = clock
        self.deadline = clock() + limit
        self.thread = threading.get_ident()
        self.up = 0
        self.done = False
        self.settled = False
        self.shields = 0
        self.owed = False
        self.callbacks: list[Callable[[], Any]] = []
        self._main = threading.current_thread() is threading.main_thread()
        self._signals = signals and self._main
        self._before: dict[int, Any] = {}
        self._heard = self._sent = 0
        self._used = self._since = 0.0
        self._wake = threading.Event()

    def __enter__(self) -> Watch:
        with _LOCK:
            _ACTIVE.append(self)
            _raise_flag()
        if self._signals:
            self._take_signals()
        if self._signals or math.isfinite(self.deadline):
            threading.Thread(target=self._guard, name="nestopt-watch", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        with _LOCK:
            self.done = True
            self.owed = False
            _ACTIVE.remove(self)
            _raise_flag()
        self._wake.set()
        self._give_signals_back()

    @property
    def hears(self) -> bool:
        """Whether a signal ends the run."""
        return bool(self._before)

    # --- signals -----------------------------------------------------------------------------

    def _take_signals(self) -> None:
        """Handlers for the main thread, and a socket that tells the watch what it cannot see.

        While compiled code runs in the main thread Python calls no handler, but the number of the
        signal is written to the socket at once.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.getsignal(number)
            if before is signal.SIG_IGN or before is None:
                continue
            if number == signal.SIGTERM and before is signal.SIG_DFL:
                continue
            self._before[number] = before
            signal.signal(number, self._on_signal)
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._old_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)

    def _give_signals_back(self) -> None:
        if not self._signals:
            return
        for number, before in self._before.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(self._old_fd, warn_on_full_buffer=False)
        self._reader.close()
        self._writer.close()

    def _on_signal(self, number: int, frame: Any) -> None:
        """In the main thread: note the signal, or raise what the watch owes."""
        if not self.reason:
            self.stop("interrupted")
        elif self.owed and not self.shields:
            self.owed = False
            raise Stopped

    def _read_signals(self) -> int:
        """The last signal that came since this was last asked, by the socket; 0 for none."""
        if not self._signals:
            return 0
        last = 0
        with contextlib.suppress(OSError):
            for number in self._reader.recv(64):
                if number == signal.SIGINT and self._sent:
                    self._sent -= 1
                elif number in self._before:
                    self._heard += 1
                    last = number
                    if self._heard > 1:
                        self._second(number)
        return last

    def _second(self, number: int) -> None:
        """A second signal ends the process at once; where Python is not ours, the run."""
        if LAST is not None:
            LAST(number)
        self.settled = False
        self._throw()

    # --- ending ------------------------------------------------------------------------------

    def stop(self, reason: str) -> None:
        """Ask the run to end."""
        with _LOCK:
            if self.reason or self.done:
                return
            self.reason = reason
            self.up = int(not self.settled)
            self._restart()
            _raise_flag()
            called = list(self.callbacks)
        for each in called:
            each()

    def settle(self) -> None:
        """The search is over: what follows ends by itself, and only a second signal ends it."""
        with _LOCK:
            self.settled = True
            self.up = 0
            self.owed = False
            _raise_flag()

    def notice(self) -> None:
        """Take the flag down: the run is about to return what it has."""
        with _LOCK:
            self.up = 0
            self._restart()
            _raise_flag()

    def _restart(self) -> None:
        self._used, self._since = time.process_time(), time.perf_counter()

    def _guard(self) -> None:
        """The thread of the watch."""
        while not self.done:
            if not self.reason:
                left = self.deadline - self.clock()
                if self._read_signals():
                    self.stop("interrupted")
                elif left <= 0 and not self.settled:
                    self.stop("time")
            elif self._read_signals() or not self.settled:
                for each in list(self.callbacks):
                    # again, since a solver that had not begun when it was told did not hear it
                    each()
                if _compiling():
                    self._restart()
                used = time.process_time() - self._used
                idle = time.perf_counter() - self._since
                if self.up == 1 and used > _OVERDUE * GRACE:
                    with _LOCK:
                        self.up = 2 if self.up else 0
                        _raise_flag()
                if (
                    used > GRACE or (idle > _IDLE_GRACE and used < 0.1 * idle)
                ) and not self.shields:
                    self._restart()
                    self._throw()
            self._wake.wait(_POLL)

    def _throw(self) -> None:
        """Raise `Stopped` in the thread of the run."""
        with _LOCK:
            if self.done or self.settled or self.shields or _compiling():
                return
            self.owed = True
            if self._signals and signal.SIGINT in self._before:
                self._sent += 1
                # wakes what sleeps, too; the handler raises
                signal.pthread_kill(self.thread, signal.SIGINT)
            else:
                self.owed = False
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self.thread), ctypes.py_object(Stopped)
                )


def _raise_flag() -> None:
    """The flag as the active watches want it.

    Compiled loops cannot tell whose flag it is: with runs in several threads at once only a signal
    raises it, and their limits work by the other means.
    """
    alone = len({each.thread for each in _ACTIVE}) == 1
    wanted = (each.up for each in _ACTIVE if alone or each.reason == "interrupted")
    FLAG.value = max(wanted, default=0)


def _compiling() -> bool:
    """Whether a kernel is being compiled: an exception in the middle of that can end the process.

    The time that it takes counts for nobody.
    """
    numba = sys.modules.get("numba.core.compiler_lock")
    lock = getattr(getattr(numba, "global_compiler_lock", None), "_lock", None)
    if lock is None:
        return False
    # the lock only says whether it is this thread's
    free = bool(lock.acquire(blocking=False))
    if free:
        lock.release()
    return not free


def _mine() -> list[Watch]:
    """The watches of this thread; of a thread of a run's own, all."""
    here = threading.get_ident()
    return [each for each in _ACTIVE if each.thread == here] or list(_ACTIVE)


def requested() -> bool:
    """Whether the running search must end, be it by its limit or by a signal."""
    return bool(FLAG.value) or any(each.reason for each in _mine())


def watching() -> bool:
    """Whether a watch of this thread hears signals."""
    return any(each.hears for each in _mine())


def check() -> None:
    """For loops in Python: raise `Stopped` if the running search must end and did not notice."""
    if any(each.up for each in _mine()):
        raise Stopped


def noticed() -> None:
    """Take the flag down: the search has ended and what it has will be returned."""
    for each in _mine():
        each.notice()


def settled() -> None:
    """Nothing is raised any more: the result is being built, which ends by itself soon."""
    for each in _mine():
        if each.reason:
            each.settle()


@contextlib.contextmanager
def on_stop(function: Callable[[], Any]) -> Iterator[None]:
    """Call `function` from another thread when the search inside must end.

    It is called at once if the search should have ended already.
    """
    watches = _mine()
    with _LOCK:
        for each in watches:
            each.callbacks.append(function)
    if any(each.reason for each in watches):
        function()
    try:
        yield
    finally:
        with _LOCK:
            for each in watches:
                each.callbacks.remove(function)


@contextlib.contextmanager
def shielded() -> Iterator[None]:
    """No exception of a watch is raised inside."""
    watches = _mine()
    for each in watches:
        each.shields += 1
    try:
        yield
    finally:
        for each in watches:
            each.shields -= 1
