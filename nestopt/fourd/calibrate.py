"""Fitting of a device's efficiency curve to measured runs, the package's own or a user's."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.fourd.predict import predict
from nestopt.fourd.runs import runs
from nestopt.placement.pricing.parameters import SCHEMA, current_set

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nestopt.fourd.runs import Run
    from nestopt.placement.pricing.parameters import DeviceParameters, ParameterSet

__all__ = ["FREE", "LIMITS", "Calibrated", "calibrate", "fit", "fit_to", "log_error", "to_json"]

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
    """Refit a device on the runs that its entry names.

    Parameters
    ----------
    device : str
        A device of `FREE`.

    Returns
    -------
    ParameterSet
        The set in force with the device's fitted figures.
    """
    names = current_set().device(device).fitted_on
    chosen = [run for run in runs() if run.name in names]
    return fit_to(chosen, device, FREE[device])


def fit_to(
    chosen: Sequence[Run], device: str, free: Sequence[str], *, steps: int = 300
) -> ParameterSet:
    """Fit figures of a device to runs: least mean squared logarithm (Nelder-Mead, in `LIMITS`).

    Parameters
    ----------
    chosen : sequence of Run
    device : str
    free : sequence of str
        Which figures, of `LIMITS`; the others stay as they are.
    steps : int
        Most iterations.

    Returns
    -------
    ParameterSet
        The set in force with the device's fitted figures.
    """
    from scipy.optimize import minimize

    base = current_set()
    start = base.device(device)
    limits = [tuple(math.log(value) for value in LIMITS[name]) for name in free]

    def parameters(logs: Iterable[float]) -> ParameterSet:
        found: dict[str, Any] = {name: math.exp(value) for name, value in zip(free, logs)}
        return base.with_device(device, replace(start, **found))

    def error(logs: Iterable[float]) -> float:
        tried = parameters(logs)
        return sum(math.log(predict(run, tried) / run.seconds) ** 2 for run in chosen)

    outcome = minimize(
        error,
        [
            math.log(min(max(getattr(start, name), LIMITS[name][0]), LIMITS[name][1]))
            for name in free
        ],
        method="Nelder-Mead",
        bounds=limits,
        options={"xatol": 1e-3, "fatol": 1e-8, "maxiter": steps},
    )
    return parameters(outcome.x)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A device's figures fitted to runs, and how well.

    Attributes
    ----------
    device : str
    free : tuple of str
        The figures that were fitted.
    figures : DeviceParameters
    rows : tuple of (str, float, float, float or None)
        By run: name, measured and predicted seconds, and the prediction of a fit to the other runs
        (of the fold that leaves the run out); None with too few runs.
    """

    device: str
    free: tuple[str, ...]
    figures: DeviceParameters
    rows: tuple[tuple[str, float, float, float | None], ...]

    @property
    def mape(self) -> float:
        """Mean absolute relative error of the fitted rows."""
        return sum(abs(predicted / seconds - 1) for _, seconds, predicted, _ in self.rows) / len(
            self.rows
        )

    @property
    def mape_crossed(self) -> float | None:
        """The same of predictions that have not seen their row; None with too few runs."""
        errors = [abs(out / seconds - 1) for _, seconds, _, out in self.rows if out is not None]
        return sum(errors) / len(errors) if errors else None


def calibrate(measured: Sequence[Run], *, folds: int = 5) -> list[Calibrated]:
    """Fit every device of some runs, with the cross-validated error.

    With one run of a device only its efficiency is fitted, with two or three ``half_flops`` too,
    and from four on the memory fraction as well. The runs are dealt in `folds` parts (each run its
    own where there are fewer), and each part is predicted by a fit to the others.
    """
    found = []
    for device in dict.fromkeys(run.device for run in measured):
        chosen = [run for run in measured if run.device == device]
        free = tuple(LIMITS)[: 1 if len(chosen) == 1 else 2 if len(chosen) < 4 else 3]
        fitted = fit_to(chosen, device, free, steps=150)
        parts = min(folds, len(chosen))
        crossed: dict[str, float] = {}
        for part in range(parts if len(chosen) > 1 else 0):
            kept = [run for i, run in enumerate(chosen) if i % parts != part]
            fewer = free[: min(len(free), len(kept))]
            other = fit_to(kept, device, fewer, steps=100)
            left = [run for i, run in enumerate(chosen) if i % parts == part]
            crossed |= {run.row: predict(run, other) for run in left}
        rows = tuple(
            (run.row, run.seconds, predict(run, fitted), crossed.get(run.row)) for run in chosen
        )
        names = tuple(run.row for run in chosen)
        figures = replace(fitted.device(device), fitted_on=names)
        found.append(Calibrated(device, free, figures, rows))
    return found


def to_json(found: Sequence[Calibrated], name: str, source: str) -> dict[str, Any]:
    """The fitted figures as a file of parameters over the set in force."""
    devices = {}
    for row in found:
        figures: dict[str, Any] = {key: getattr(row.figures, key) for key in row.free}
        figures["fitted_on"] = list(row.figures.fitted_on)
        figures["sources"] = {**row.figures.sources, ", ".join(row.free): f"fitted: {source}"}
        devices[row.device] = figures
    return {"schema": SCHEMA, "name": name, "base": current_set().name, "devices": devices}
