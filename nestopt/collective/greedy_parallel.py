"""Independent tries on several threads with an outcome that does not depend on their number."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["Best", "best_of"]

T = TypeVar("T")


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
    stop: Callable[[], bool] = lambda: False,
) -> Best[T] | None:
    """The try of least makespan; of equal ones, the first.

    Tries are counted in their order up to the first that reaches `target`; those that another
    thread has started behind it are dropped. `stop` is asked before each try but the first.
    """
    best: Best[T] | None = None
    count = 0

    def judge(makespan: int, value: T) -> bool:
        nonlocal best, count
        if best is None or makespan < best.makespan:
            best = Best(makespan, value, count, count + 1)
        count += 1
        return best.makespan <= target

    if threads <= 1:
        for each in tries:
            if (count and stop()) or judge(*each()):
                break
    else:
        with ThreadPoolExecutor(threads) as pool:
            waiting: list[Future[tuple[int, T]]] = []
            source = iter(tries)
            reached = False
            while not reached:
                while len(waiting) < threads and not (count and stop()):
                    following = next(source, None)
                    if following is None:
                        break
                    waiting.append(pool.submit(following))
                if not waiting:
                    break
                reached = judge(*waiting.pop(0).result())
            for late in waiting:
                late.cancel()
    return None if best is None else Best(best.makespan, best.value, best.index, count)
