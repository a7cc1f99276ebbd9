"""How much a search for bounds may do, counted so that what it finds depends on no clock."""

from __future__ import annotations

import time

__all__ = ["Budget"]


class Budget:
    """Work in nominal seconds, spent at fixed rates, and a time limit if one is asked for.

    Parameters
    ----------
    work : float
        About as many seconds of one processor.
    time_limit : float
        Wall-clock seconds from now.
    """

    def __init__(self, work: float = float("inf"), time_limit: float = float("inf")) -> None:
        self.work = work
        self.deadline = time.perf_counter() + time_limit

    def spend(self, work: float) -> None:
        """Note that so much was done."""
        self.work -= work

    def used_up(self) -> bool:
        """Whether to begin nothing more."""
        return self.work <= 0 or time.perf_counter() > self.deadline
