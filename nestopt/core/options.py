"""How to search: limit, seed, threads and the settings of a method. What is searched is data of
the instance."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, UsageError
from nestopt.core.settings import as_text
from nestopt.core.units import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.core.result import Result

__all__ = ["SolveOptions"]


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """What a method is told beside the instance; the same from Python, command line and study.

    Attributes
    ----------
    time_limit : float
        Wall-clock seconds, or text with a unit ("60 s"); ``inf`` for none.
    seed : int
        At least 0.
    threads : int
        At least 1.
    rel_gap : float
        Stop when the gap is at most this; from 0 up to 1.
    backend : str or None
        MILP back-end (``highs``, ``cbc``, any name that PuLP knows).
    warm_start : Result or None
        A result whose solution starts the search.
    write_model : str or None
        Path (``.lp``, ``.mps``) to write the model to before it is solved.
    output : str or None
        Path of the result file, if one is to be written; a solution too large for JSON goes into a
        side file beside it.
    set : dict
        The method's own settings by key, as text; numbers, True, False and lists become text.
        `nestopt methods` lists them. A key that the method does not read is refused when it runs.
    progress : callable or None
        ``progress(seconds, objective, bound, note)``; called with incumbents and bounds.

    Raises
    ------
    UsageError
        Naming the option, its value and what was expected.
    """

    time_limit: float = float("inf")
    seed: int = 0
    threads: int = 1
    rel_gap: float = 0.0
    backend: str | None = None
    warm_start: Result | None = None
    write_model: str | None = None
    output: str | None = None
    set: dict[str, str] = field(default_factory=dict)
    progress: Callable[[float, float | None, float, str], Any] | None = None

    def __post_init__(self) -> None:
        keep = object.__setattr__
        keep(self, "time_limit", _seconds(self.time_limit))
        for name, low in (("seed", 0), ("threads", 1)):
            keep(self, name, _whole(name, getattr(self, name), low))
        gap = self.rel_gap
        if isinstance(gap, bool) or not isinstance(gap, Real) or not 0 <= gap <= 1:
            raise UsageError(f"rel_gap {gap!r}: expected a number from 0 to 1, 0.01 for 1 %")
        for name in ("backend", "write_model", "output"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise UsageError(f"{name} {value!r}: expected text")
        if self.progress is not None and not callable(self.progress):
            raise UsageError(f"progress {self.progress!r}: expected a function")
        if self.warm_start is not None and not hasattr(self.warm_start, "solution_json"):
            raise UsageError(f"warm_start {self.warm_start!r}: expected a Result")
        try:
            settings = dict(self.set)
        except (TypeError, ValueError):
            raise UsageError(f"set {self.set!r}: expected a mapping of keys to values") from None
        for key in settings:
            if not isinstance(key, str) or not key:
                raise UsageError(f"set: key {key!r}; expected text")
        keep(self, "set", {key: as_text(key, value) for key, value in settings.items()})


def _seconds(value: Any) -> float:
    if isinstance(value, str):
        try:
            value = parse_time(value)
        except InputError as error:
            raise UsageError(f"time_limit {error}") from error
    if isinstance(value, bool) or not isinstance(value, Real) or math.isnan(value) or value < 0:
        raise UsageError(
            f"time_limit {value!r}: expected seconds of at least 0, or text such as '60 s'"
        )
    return float(value)


def _whole(name: str, value: Any, low: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise UsageError(f"{name} {value!r}: expected a whole number of at least {low}")
    return int(value)
