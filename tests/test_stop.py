"""The watch of a run: limits and signals reach compiled loops, Python loops and solvers in C++."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from numba import njit

from nestopt.core import stop
from nestopt.core.stop import Stopped, Watch, noticed, on_stop, requested, settled, shielded
from nestopt.core.stop_kernel import KernelStopped, overdue, stopped


@njit(nogil=True)
def improve(rounds: int) -> int:
    """Ends by itself when it is asked to."""
    done = 0
    for _ in range(rounds):
        if stopped():
            break
        done += 1
    return done


@njit(nogil=True)
def build(rounds: int) -> int:
    """Has nothing to return before it ends."""
    done = 0
    for _ in range(rounds):
        if overdue():
            raise KernelStopped
        done += 1
    return done


FOREVER = 10**13


@pytest.fixture(autouse=True, scope="module")
def compiled() -> None:
    assert improve(10) == build(10) == 10


class Fake:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def send(number: int, after: float = 0.1) -> None:
    threading.Timer(after, os.kill, (os.getpid(), number)).start()


def test_a_limit_ends_a_compiled_search_which_keeps_what_it_has() -> None:
    clock = Fake()
    with Watch(100.0, clock=clock) as watch:
        threading.Timer(0.05, setattr, (clock, "now", 101.0)).start()
        assert 0 < improve(FOREVER) < FOREVER
        assert watch.reason == "time" and requested()
        noticed()
        assert improve(10) == 10, "what comes after is not cut short"
    assert not requested()


def test_a_compiled_loop_with_nothing_to_return_raises() -> None:
    begin = time.process_time()
    with Watch(0.05) as watch, pytest.raises(Stopped):
        build(FOREVER)
    assert watch.reason == "time"
    assert time.process_time() - begin < 0.05 + stop.GRACE + 0.5
    assert build(10) == 10


def test_a_loop_in_python_is_ended_and_so_is_one_that_goes_on() -> None:
    ended = 0
    begin = time.process_time()
    with Watch(0.02) as watch:
        for _ in range(2):
            with pytest.raises(Stopped):
                while True:
                    pass
            ended += 1
    assert (ended, watch.reason) == (2, "time")
    assert time.process_time() - begin < 2 * stop.GRACE + 1.0


def test_a_settled_run_is_left_alone() -> None:
    with Watch(0.01) as watch:
        while not watch.reason:
            pass
        settled()
        until = time.process_time() + 1.5 * stop.GRACE
        while time.process_time() < until:
            pass
        assert build(10) == 10


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_a_signal_ends_a_compiled_search_in_the_main_thread(number: int) -> None:
    before = signal.getsignal(number)
    with Watch() as watch:
        send(number)
        assert 0 < improve(FOREVER) < FOREVER
        assert watch.reason == "interrupted"
    assert signal.getsignal(number) is before


def test_a_signal_wakes_what_sleeps() -> None:
    begin = time.perf_counter()
    with Watch() as watch:
        send(signal.SIGINT)
        with pytest.raises(Stopped):
            time.sleep(30)
    assert watch.reason == "interrupted" and time.perf_counter() - begin < 15


def test_nothing_is_raised_through_a_callback() -> None:
    with Watch(0.01) as watch, pytest.raises(Stopped):
        with shielded():
            until = time.process_time() + 1.5 * stop.GRACE
            while time.process_time() < until:
                pass
            assert watch.reason == "time"
        while True:
            pass


def test_a_solver_is_told_from_another_thread_at_once_or_when_it_begins() -> None:
    told = threading.Event()
    with Watch(0.05), on_stop(told.set):
        assert told.wait(10)
    with Watch(0.0) as watch:
        while not watch.reason:
            time.sleep(0.01)
        late = threading.Event()
        with on_stop(late.set):
            assert late.is_set()
        settled()


def test_the_second_signal_comes_to_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = threading.Event()
    monkeypatch.setattr(stop, "LAST", lambda number: heard.set())
    with Watch(), shielded():
        send(signal.SIGINT, 0.05)
        send(signal.SIGINT, 0.3)
        assert heard.wait(10)


def test_limits_nest_and_the_inner_one_ends_only_what_is_inside() -> None:
    with Watch(1e6) as outer:
        with Watch(0.05) as inner:
            improve(FOREVER)
        assert (inner.reason, outer.reason) == ("time", "")
        assert improve(1000) == 1000 and not requested()


def test_a_limit_in_one_thread_does_not_end_the_search_of_another() -> None:
    counts: list[int] = []

    def other() -> None:
        with Watch():
            begun.set()
            counts.extend(improve(1000) for _ in range(200) if not late.wait(0.001))

    begun, late = threading.Event(), threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    with Watch(0.02) as watch:
        while not watch.reason:
            time.sleep(0.005)
        settled()
        thread.join()
    assert set(counts) == {1000}


def test_tries_stop_at_the_flag_and_keep_the_best() -> None:
    from nestopt.collective.greedy.parallel import Clock, best_of

    def endless() -> tuple[int, str]:
        build(FOREVER)
        raise AssertionError

    tries = [lambda: (7, "first"), endless, endless]
    for threads in (1, 2):
        with Watch(0.05):
            clock = Clock(np.inf, time.perf_counter())
            best = best_of(tries, threads=threads, target=0, clock=clock)
            assert best is not None and (best.makespan, best.value) == (7, "first")
