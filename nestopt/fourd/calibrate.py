"""Fitting of a device's efficiency curve to the runs that its entry in the data file names."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.fourd.predict import predict
from nestopt.fourd.runs import runs
from nestopt.placement.pricing.parameters import current_set

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nestopt.placement.pricing.parameters import ParameterSet

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
its stack hides tensor-parallel communication and synchronisation."""


def log_error(parameters: ParameterSet, names: tuple[str, ...]) -> float:
    """Mean squared logarithm of predicted over measured, over the named runs."""
    chosen = [run for run in runs() if run.name in names]
    if len(chosen) != len(names):
        missing = set(names) - {run.name for run in chosen}
        raise InputError(f"no measured run {min(missing)!r}", field="fitted_on")
    return sum(math.log(predict(run, parameters) / run.seconds) ** 2 for run in chosen) / len(
        chosen
    )


def fit(device: str) -> ParameterSet:
    """Refit a device on the runs that its entry names (Nelder-Mead, in the limits).

    Parameters
    ----------
    device : str
        A device of `FREE`.

    Returns
    -------
    ParameterSet
        The set in force with the device's fitted figures.
    """
    from scipy.optimize import minimize

    base = current_set()
    start = base.device(device)
    free = FREE[device]
    limits = [tuple(math.log(value) for value in LIMITS[name]) for name in free]

    def parameters(logs: Iterable[float]) -> ParameterSet:
        found: dict[str, Any] = {name: math.exp(value) for name, value in zip(free, logs)}
        return base.with_device(device, replace(start, **found))

    outcome = minimize(
        lambda logs: log_error(parameters(logs), start.fitted_on),
        [math.log(getattr(start, name)) for name in free],
        method="Nelder-Mead",
        bounds=limits,
        options={"xatol": 1e-3, "fatol": 1e-8, "maxiter": 300},
    )
    return parameters(outcome.x)
