"""Settings of a run that every method understands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from nestopt.core.result import Result

__all__ = ["SolveOptions"]


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """What the command line's `solve` passes to a method.

    Attributes
    ----------
    time_limit : float
        Wall-clock seconds; ``inf`` for none.
    seed : int
    threads : int
    rel_gap : float
        Stop when the gap is at most this.
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
        ``--set KEY=VALUE`` pairs, values still text; a method takes what it knows and the
        dispatcher refuses what none knows.
    progress : callable or None
        ``progress(seconds, objective, bound, note)``; called with incumbents and bounds.
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
