"""Fitting of a device's efficiency curve to the runs that its entry in the data file names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.fourd.predict import predict
from nestopt.fourd.runs import runs
from nestopt.placement.pricing.devices import Calibration, calibration

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["FREE", "LIMITS", "fit", "log_error"]

LIMITS: dict[str, tuple[float, float]] = {
    "efficiency": (0.3, 0.95),
    "half_flops": (1e9, 3e11),
    "memory_fraction": (0.5, 1.0),
}
"""Least and largest value of each figure."""

FREE = {
    "a100": ("efficiency", "half_flops", "memory_fraction"),
    "h100": ("efficiency",),
}
"""What is fitted. An H100 has the A100's memory fraction, and its half_flops by ratio of peaks;
its stack overlaps tensor-parallel communication, which is taken to leave none exposed."""


def log_error(figures: Calibration, names: tuple[str, ...]) -> float:
    """Mean squared logarithm of predicted over measured, over the named runs."""
    chosen = [run for run in runs() if run.name in names]
    if len(chosen) != len(names):
        missing = set(names) - {run.name for run in chosen}
        raise InputError(f"no measured run {min(missing)!r}", field="fitted_on")
    return sum(math.log(predict(run, figures) / run.seconds) ** 2 for run in chosen) / len(chosen)


def fit(device: str) -> Calibration:
    """Refit a device on the runs that its entry names (Nelder-Mead, in the limits).

    Parameters
    ----------
    device : str
        A device of `FREE`.
    """
    from scipy.optimize import minimize

    start = calibration(device)
    free = FREE[device]
    limits = [tuple(math.log(value) for value in LIMITS[name]) for name in free]

    def figures(logs: Iterable[float]) -> Calibration:
        found: dict[str, Any] = {name: math.exp(value) for name, value in zip(free, logs)}
        return replace(start, **found)

    outcome = minimize(
        lambda logs: log_error(figures(logs), start.fitted_on),
        [math.log(getattr(start, name)) for name in free],
        method="Nelder-Mead",
        bounds=limits,
        options={"xatol": 1e-3, "fatol": 1e-8, "maxiter": 300},
    )
    return figures(outcome.x)
