"""Parameters of devices and frameworks: named sets in data files, each figure with its source.

A set is what turns the name of a cluster or of a transformer into figures. ``nestopt-2``, the
default, is the one that ``nestopt validate`` compares with measured runs; ``nestopt-1`` is that of
the first version, which recorded results were found with. A user's own set is a file of the same
form: it names its ``base`` and states only what differs (``--calibration FILE``).
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, unknown_name
from nestopt.core.io import read_json, validate_model
from nestopt.core.pricing import DEFAULT_SET, SETS
from nestopt.placement.model.cluster import DeviceType
from nestopt.placement.model.plan import Hides

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nestopt.placement.model.transformer import Transformer

__all__ = [
    "SCHEMA", "DeviceParameters", "Framework", "ParameterSet",
    "current_set", "parameter_set", "parameters_from_json", "using_set",
]  # fmt: skip

SCHEMA = "nestopt.parameters/1"


@dataclass(frozen=True, slots=True)
class DeviceParameters:
    """Figures of a device type.

    Attributes
    ----------
    peak, memory_bandwidth : float
        Dense half-precision FLOP/s and bytes/s of the data sheet.
    memory, reserve : float
        Bytes.
    efficiency, half_flops : float
        A product of F FLOPs takes ``(F + half_flops)/(peak * efficiency)``.
    memory_fraction : float
        Part of the memory bandwidth that elementwise work reaches.
    fitted_on : tuple of str
        Names of the measured runs that figures were fitted on.
    sources : mapping of str to str
        Where each figure is from: published, fitted, or guessed.
    """

    peak: float
    memory: float
    memory_bandwidth: float
    reserve: float
    efficiency: float
    half_flops: float
    memory_fraction: float
    fitted_on: tuple[str, ...]
    sources: Mapping[str, str]

    def device_type(self, name: str) -> DeviceType:
        """The device type as the placement model wants it."""
        return DeviceType(
            name,
            self.peak,
            self.memory,
            self.memory_bandwidth * self.memory_fraction,
            self.efficiency,
            self.half_flops,
            self.reserve,
        )


@dataclass(frozen=True, slots=True)
class Framework:
    """What a training framework runs behind computation, and where that is written."""

    hides: Hides
    overlap: bool
    source: str


@dataclass(frozen=True, slots=True)
class ParameterSet:
    """A named set of parameters.

    Attributes
    ----------
    name : str
        What instances that were made with the set carry.
    devices : mapping of str to DeviceParameters
    frameworks : mapping of str to Framework
    transformers : mapping of str to bool
        Fields of `Transformer` that the set decides for all models.
    """

    name: str
    devices: Mapping[str, DeviceParameters]
    frameworks: Mapping[str, Framework]
    transformers: Mapping[str, bool]

    def device(self, name: str) -> DeviceParameters:
        """The figures of a device type.

        Raises
        ------
        UsageError
            If the set has none of the name (with a suggestion).
        """
        if name not in self.devices:
            raise unknown_name("device", name, self.devices)
        return self.devices[name]

    def device_type(self, name: str) -> DeviceType:
        """The device type of a name, see `device`."""
        return self.device(name).device_type(name)

    def with_device(self, name: str, figures: DeviceParameters) -> ParameterSet:
        """The set with other figures of one device type."""
        return replace(self, devices={**self.devices, name: figures})

    def transformer(self, model: Transformer) -> Transformer:
        """A transformer as the set prices it."""
        changes: dict[str, Any] = dict(self.transformers)
        return replace(model, **changes)

    def framework(self, name: str) -> Framework:
        """What a framework hides.

        Raises
        ------
        UsageError
            If the set has none of the name (with a suggestion).
        """
        if name not in self.frameworks:
            raise unknown_name("framework", name, self.frameworks)
        return self.frameworks[name]


def parameters_from_json(data: Any, *, file: str | None = None) -> ParameterSet:
    """The set in a JSON object of schema ``nestopt.parameters/1``.

    Raises
    ------
    InputError
        Naming file, field, value and expectation.
    """
    from nestopt.placement.pricing.parameters_file import SetFile

    model = validate_model(SetFile, data, file=file)
    base = parameter_set(model.base) if model.base else None
    devices = dict(base.devices) if base else {}
    for name, row in model.devices.items():
        stated = row.model_dump(exclude_unset=True)
        known: dict[str, Any] = {}
        if name in devices:
            known = {f: getattr(devices[name], f) for f in _FIELDS}
        if known and {"efficiency", "half_flops", "memory_fraction"} & set(stated):
            known["fitted_on"] = ()
        merged = known | stated
        missing = [f for f in _FIELDS if f not in merged and f not in ("fitted_on", "sources")]
        if missing:
            raise InputError(
                f"is missing, and the base set has no device {name!r}",
                file=file,
                field=f"devices.{name}.{missing[0]}",
            )
        merged["fitted_on"] = tuple(merged.get("fitted_on", ()))
        merged.setdefault("sources", {})
        devices[name] = DeviceParameters(**merged)
    frameworks = dict(base.frameworks) if base else {}
    for name, entry in model.frameworks.items():
        hides = Hides.of_words(entry.hides)
        frameworks[name] = Framework(hides, entry.overlap, entry.source)
    transformers: dict[str, bool] = dict(base.transformers) if base else {}
    transformers.update({str(key): value for key, value in model.transformers.items()})
    return ParameterSet(model.name, devices, frameworks, transformers)


_FIELDS = tuple(DeviceParameters.__dataclass_fields__)


@cache
def parameter_set(name: str) -> ParameterSet:
    """The set of a name, or in a file whose name ends in ``.json``.

    Raises
    ------
    UsageError
        If the name is unknown (with a suggestion).
    InputError
        If the file or a value in it is wrong.
    """
    if name.endswith(".json"):
        return parameters_from_json(read_json(name), file=name)
    if name not in SETS:
        raise unknown_name("pricing", name, SETS)
    path = Path(str(files("nestopt"))) / "data" / "parameters" / f"{name}.json"
    return parameters_from_json(read_json(path), file=str(path))


_CURRENT: ContextVar[ParameterSet | None] = ContextVar("nestopt_parameters", default=None)


def current_set() -> ParameterSet:
    """The set that names of clusters and transformers stand for at present."""
    return _CURRENT.get() or parameter_set(DEFAULT_SET)


@contextmanager
def using_set(chosen: str | ParameterSet) -> Iterator[ParameterSet]:
    """Let names stand for another set inside a ``with`` block, in this thread.

    Raises
    ------
    UsageError, InputError
        As `parameter_set`.
    """
    found = parameter_set(chosen) if isinstance(chosen, str) else chosen
    token = _CURRENT.set(found)
    try:
        yield found
    finally:
        _CURRENT.reset(token)
