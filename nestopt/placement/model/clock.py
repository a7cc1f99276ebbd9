"""The time limit of a placement search."""

from __future__ import annotations

import time

from nestopt.core.stop import requested

__all__ = ["Clock", "SearchStopped"]


class SearchStopped(Exception):
    """A limit was reached in the middle of a search."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


class Clock:
    """Wall-clock seconds since it was made, and a check against a limit."""

    def __init__(self, limit: float) -> None:
        self.begin = time.perf_counter()
        self.limit = limit

    @property
    def seconds(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self.begin

    @property
    def left(self) -> float:
        """Seconds until the limit, negative when it is over."""
        return self.limit - self.seconds

    def check(self) -> None:
        """Raise `SearchStopped` when the limit is over."""
        if self.left < 0 or requested():
            raise SearchStopped("time")
