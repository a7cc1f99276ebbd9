"""Efficiency curves of device types, from the data file."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from nestopt.core.errors import unknown_name

__all__ = ["Calibration", "calibration"]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Efficiency curve of a device type and of the stack on it.

    Attributes
    ----------
    efficiency, half_flops : float
        Of `nestopt.placement.model.cluster.DeviceType`.
    memory_fraction : float
        Part of the memory bandwidth that elementwise work reaches.
    tensor_exposed : float
        Part of the tensor-parallel communication that a stack which overlaps it leaves exposed.
    fitted_on : tuple of str
        Names of the measured runs that the figures were fitted on; empty if they were not fitted.
    """

    efficiency: float
    half_flops: float
    memory_fraction: float
    tensor_exposed: float
    fitted_on: tuple[str, ...] = ()


@cache
def _devices() -> Any:
    path = files("nestopt").joinpath("data", "devices.json")
    return json.loads(path.read_text(encoding="utf-8"))


def calibration(device: str) -> Calibration:
    """The figures of a device type from the data file.

    Raises
    ------
    UsageError
        If the file has no such device.
    """
    rows = _devices()
    if device not in rows or device == "note":
        raise unknown_name("calibrated device", device, [name for name in rows if name != "note"])
    row = rows[device]
    figures = {f.name: row[f.name] for f in fields(Calibration) if f.name != "fitted_on"}
    return Calibration(fitted_on=tuple(row["fitted_on"]), **figures)
