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

No exception is raised where it would do harm: inside a `shielded` block, since a callback from C++
must return, while a module is being imported, in the middle of the compilation of a kernel, or as a
context is entered or left. It waits, and is raised as soon as that is over; in a compilation, when
the next pass of the compiler begins (`nestopt.core.stop_kernel`), though only for a signal: a time
limit waits for the kernel.

A method that catches the exception and has something to return says `noticed`, which takes the flag
down, and builds its result.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from nestopt.core.signals import Signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = [
    "FLAG",
    "GRACE",
    "SIGNALS",
    "KernelStopped",
    "Stopped",
    "Watch",
    "check",
    "hear_everything",
    "noticed",
    "on_stop",
    "raise_owed",
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
"""Ends the program, given a signal's number: at the second, or if no answer is coming."""

_LOCK = threading.RLock()
_ACTIVE: list[Watch] = []
# modules and functions in the middle of which no exception is raised
_FRAGILE_MODULES = (
    "importlib", "numba", "llvmlite", "contextlib", "ortools", "weakref",
    "nestopt.core.stop", "nestopt.core.signals",
)  # fmt: skip
_FRAGILE_FUNCTIONS = ("__enter__", "__del__", "on_solution_callback")


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
    number : int
        Of the signal that interrupted the run; 0 for none.
    """

    def __init__(
        self,
        limit: float = math.inf,
        *,
        signals: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.reason = ""
        self.number = 0
        self.clock = clock
        self.deadline = clock() + limit
        self.thread = threading.get_ident()
        self.up = 0
        self.done = False
        self.settled = False
        self.shields = 0
        self.owed = False
        self.callbacks: list[Callable[[], Any]] = []
        self._signals = signals and threading.current_thread() is threading.main_thread()
        self._used = self._since = self._asked = 0.0
        self._wake = threading.Event()
        self.depth = 0

    def __enter__(self) -> Watch:
        self.depth = _depth(sys._getframe(1))
        with _LOCK:
            _ACTIVE.append(self)
            _raise_flag()
        if self._signals:
            SIGNALS.take()
            if _PROGRAM.noted:
                self.stop("interrupted", _PROGRAM.noted)
        if self._signals or math.isfinite(self.deadline):
            threading.Thread(target=self._guard, name="nestopt-watch", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        with _LOCK:
            self.done = True
            self.owed = False
            _PROGRAM.answered = _PROGRAM.answered or self.hears
            _ACTIVE.remove(self)
            _raise_flag()
        self._wake.set()
        if self._signals:
            SIGNALS.give_back()

    @property
    def hears(self) -> bool:
        """Whether a signal ends the run."""
        return self._signals and bool(SIGNALS.taken)

    def stop(self, reason: str, number: int = 0) -> None:
        """Ask the run to end."""
        with _LOCK:
            if self.reason or self.done:
                return
            self.reason, self.number = reason, number
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
                if self.deadline - self.clock() <= 0 and not self.settled:
                    self.stop("time")
            elif not self.settled:
                self._press()
            self._wake.wait(_POLL)

    def _press(self) -> None:
        """Ask again, each time with more force."""
        for each in list(self.callbacks):
            # again, since a solver that had not begun when it was told did not hear it
            each()
        if _compiling():
            if self.reason == "interrupted" and not self.owed:
                self.throw()
            self._restart()
        used = time.process_time() - self._used
        idle = time.perf_counter() - self._since
        if self.up == 1 and used > _OVERDUE * GRACE:
            with _LOCK:
                self.up = 2 if self.up else 0
                _raise_flag()
        if used > GRACE or (idle > _IDLE_GRACE and used < 0.1 * idle):
            self._restart()
            self.throw()
        elif self.owed and time.perf_counter() - self._asked > 5 * _POLL:
            self.throw()

    def throw(self) -> None:
        """Raise `Stopped` in the thread of the run, or later where it would do harm now."""
        with _LOCK:
            if self.done or self.settled or self.shields:
                return
            self.owed = True
            self._asked = time.perf_counter()
            if self.thread == threading.main_thread().ident and SIGNALS.wake():
                return
            if _fragile(sys._current_frames().get(self.thread), self.depth):
                return
            self.owed = False
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self.thread), ctypes.py_object(Stopped)
            )


def _fragile(frame: FrameType | None, depth: int) -> bool:
    """Whether a thread is in the middle of what must not be torn.

    Only what was called inside the watch counts, which was begun `depth` calls deep.
    """
    for _ in range(_depth(frame) - depth):
        assert frame is not None
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith(_FRAGILE_MODULES) or frame.f_code.co_name in _FRAGILE_FUNCTIONS:
            return True
        frame = frame.f_back
    return False


def _depth(frame: FrameType | None) -> int:
    count = 0
    while frame is not None:
        count, frame = count + 1, frame.f_back
    return count


def raise_owed(frame: FrameType | None = None) -> None:
    """Raise `Stopped` if a watch of this thread is waiting for a place to do so.

    Parameters
    ----------
    frame : frame, optional
        What the thread is in the middle of; a frame that is fragile puts the exception off.
    """
    here = threading.get_ident()
    for each in reversed(_ACTIVE):
        if (
            each.owed
            and each.thread == here
            and not (each.shields or each.settled or each.done)
            and (frame is None or not _fragile(frame, each.depth))
        ):
            each.owed = False
            raise Stopped


class _Program:
    """What a program (not a library) does with a signal when no search is running.

    Attributes
    ----------
    answered : bool
        Whether a search has ended: what follows delivers its answer, which a first signal leaves
        alone.
    noted : int
        The number of such a signal, or 0; the next search, should there be one, ends at once.
    """

    def __init__(self) -> None:
        self.answered = False
        self.noted = 0


_PROGRAM = _Program()


def _heard(number: int, nth: int) -> None:
    """A signal came; in the thread of `SIGNALS`."""
    if nth > 1 and LAST is not None:
        LAST(number)
        return
    with _LOCK:
        hearing = [each for each in _ACTIVE if each.hears]
    for each in hearing:
        if nth == 1:
            each.stop("interrupted", number)
        else:
            each.settled = False
            each.throw()
    if not hearing:
        if _PROGRAM.answered:
            _PROGRAM.noted = number
        elif LAST is not None:
            LAST(number)


SIGNALS = Signals(_heard, raise_owed)
"""The two signals, as all watches hear them."""


@contextlib.contextmanager
def hear_everything(end: Callable[[int], Any]) -> Iterator[None]:
    """For a program: hear both signals inside, and `end` it where there is nothing to wait for."""
    global LAST
    SIGNALS.take(system=True)
    before, LAST = LAST, end
    _PROGRAM.answered, _PROGRAM.noted = False, 0
    try:
        yield
    finally:
        LAST = before
        _PROGRAM.answered, _PROGRAM.noted = False, 0
        SIGNALS.give_back()


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
