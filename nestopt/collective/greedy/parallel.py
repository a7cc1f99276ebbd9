"""Independent tries on several threads with an outcome that does not depend on their number."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from nestopt.core.stop import noticed, requested

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["Best", "Clock", "best_of"]

T = TypeVar("T")


class Clock:
    """When to stop: a time limit, counted from `begin` (`time.perf_counter`), or an interrupt."""

    def __init__(self, limit: float, begin: float) -> None:
        self.limit, self.begin = limit, begin
        self.interrupted = False

    def late(self) -> bool:
        """Whether the time limit has passed."""
        return time.perf_counter() - self.begin > self.limit

    def stop(self) -> bool:
        """Whether to start nothing more."""
        return self.interrupted or self.late() or requested()


@dataclass(frozen=True, slots=True)
class Best(Generic[T]):
    """The best try: its makespan, what it returned, its index, and how many tries were counted."""

    makespan: int
    value: T
    index: int
    tries: int


def best_of(
    tries: Iterable[Callable[[], tuple[int, T]]],
    *,
    threads: int,
    target: int,
    clock: Clock,
) -> Best[T] | None:
    """The try of least makespan; of equal ones, the first.

    Tries are counted in their order up to the first that reaches `target`; those that another
    thread has started behind it are dropped. The clock is asked before each try but the first. An
    interrupt (Ctrl-C) is noted on the clock and ends the tries, unless there is nothing yet.
    """
    best: Best[T] | None = None
    count = 0

    def judge(makespan: int, value: T) -> bool:
        nonlocal best, count
        if best is None or makespan < best.makespan:
            best = Best(makespan, value, count, count + 1)
        count += 1
        return best.makespan <= target

    try:
        if threads <= 1:
            for each in tries:
                if (count and clock.stop()) or judge(*each()):
                    break
        else:
            _in_threads(iter(tries), threads, judge, clock)
    except KeyboardInterrupt:
        noticed()
        clock.interrupted = True
        if best is None:
            raise
    return None if best is None else Best(best.makespan, best.value, best.index, count)


def _in_threads(
    tries: Iterator[Callable[[], tuple[int, T]]],
    threads: int,
    judge: Callable[[int, T], bool],
    clock: Clock,
) -> None:
    """Run tries ahead of their judgement, which keeps to their order."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: list[Future[tuple[int, T]]] = []
        begun = 0
        while True:
            while len(waiting) < threads and not (begun and clock.stop()):
                following = next(tries, None)
                if following is None:
                    break
                waiting.append(pool.submit(following))
                begun += 1
            if not waiting or judge(*waiting.pop(0).result()):
                break
        for late in waiting:
            late.cancel()
