"""The published models of placement beside nestopt's own: max-load and Piper.

Each has an instance of its own schema, which a file states: nestopt's, or the one that the model
was published with. The words of the command line replace the file's numbers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, UsageError
from nestopt.core.io import read_json
from nestopt.core.registry import read_published
from nestopt.core.units import parse_bandwidth, parse_bytes

if TYPE_CHECKING:
    from nestopt.placement.partitioning.maxload import MaxLoadProblem
    from nestopt.placement.partitioning.piper import PiperProblem

__all__ = ["SCHEMAS", "from_file", "from_json", "model_of", "parse_count"]

SCHEMAS = {"max-load": "nestopt.maxload/1", "piper": "nestopt.piper/1"}
_ORIGINS = {"max-load": "dnn-partitioning", "piper": "Piper"}
_NUMBER = r"([0-9]{1,9})"


def model_of(data: Any) -> str | None:
    """The model of an instance's JSON; None where it is not one of these."""
    schema = data.get("schema") if isinstance(data, dict) else None
    return next((model for model, known in SCHEMAS.items() if known == schema), None)


def from_json(model: str, data: Any, *, file: str | None = None) -> MaxLoadProblem | PiperProblem:
    """The instance of nestopt's JSON form.

    Raises
    ------
    InputError
        Naming file, field and value.
    """
    if model == "max-load":
        from nestopt.placement.partitioning.maxload import MaxLoadProblem

        return MaxLoadProblem.from_json(data, file=file)
    from nestopt.placement.partitioning.piper import PiperProblem

    return PiperProblem.from_json(data, file=file)


def from_file(
    model: str, file: str, devices: str, settings: dict[str, str]
) -> MaxLoadProblem | PiperProblem:
    """The instance in a file, its devices and settings replaced.

    Parameters
    ----------
    model : str
        ``"max-load"`` or ``"piper"``.
    file : str
        In nestopt's JSON form or that of dnn-partitioning or Piper.
    devices : str
        ``file`` for what the file says; else ``6+1`` (accelerators and CPUs) for max-load,
        ``64x8GiB`` (devices and the memory of each) for Piper.
    settings : dict
        For Piper: ``batch`` (micro-batches) and ``bandwidth``.

    Raises
    ------
    UsageError
        If `devices` or a setting does not belong to the model.
    InputError
        If the file or a value is wrong.
    """
    for key in ("batch", "bandwidth"):
        if key in settings and model == "max-load":
            raise UsageError(f"--set {key}: the max-load model has no {key}")
    changes = _accelerators(devices) if model == "max-load" else _devices(devices)
    if "batch" in settings:
        changes["micro_batches"] = parse_count(settings["batch"], "--set batch")
    if "bandwidth" in settings:
        changes["bandwidth"] = _positive_bandwidth(settings["bandwidth"])
    problem: Any = _read(model, file)
    changed: MaxLoadProblem | PiperProblem = replace(problem, **changes)
    return changed


def parse_count(text: str, what: str) -> int:
    """A positive integer; `what` names the setting in the error."""
    try:
        number = int(text)
    except ValueError as error:
        raise InputError(f"{text!r}; expected an integer", field=what) from error
    if number < 1:
        raise InputError(f"{number}; expected at least 1", field=what)
    return number


def _read(model: str, file: str) -> MaxLoadProblem | PiperProblem:
    schema, origin = SCHEMAS[model], _ORIGINS[model]
    if not (file.endswith(".json") or Path(file).is_file()):
        raise UsageError(
            f"--workload {file}: with model={model} it is a file, {schema} or {origin}'s own JSON"
        )
    data = read_json(file)
    if model_of(data) == model:
        return from_json(model, data, file=file)
    published: MaxLoadProblem | PiperProblem | None = read_published(schema, data, file)
    if published is None:
        found = repr(data.get("schema")) if isinstance(data, dict) else "no JSON object"
        raise InputError(
            f"{found}; with model={model} expected {schema!r}, or {origin}'s own JSON",
            file=file,
            field="schema",
        )
    return published


def _accelerators(text: str) -> dict[str, Any]:
    if text == "file":
        return {}
    match = re.fullmatch(rf"{_NUMBER}\+{_NUMBER}", text)
    if match is None:
        raise UsageError(
            f"--cluster {text}: with model=max-load it is ACCELERATORS+CPUS, such as 6+1, or "
            "'file' for the file's own"
        )
    accelerators, cpus = int(match[1]), int(match[2])
    if accelerators + cpus == 0:
        raise InputError(f"{text}: no device at all", field="--cluster")
    return {"accelerators": accelerators, "cpus": cpus}


def _devices(text: str) -> dict[str, Any]:
    if text == "file":
        return {}
    match = re.fullmatch(rf"{_NUMBER}x(.+)", text)
    if match is None:
        raise UsageError(
            f"--cluster {text}: with model=piper it is DEVICESxMEMORY, such as 64x8GiB, or "
            "'file' for the file's own"
        )
    memory = parse_bytes(match[2], "--cluster")
    if memory <= 0:
        raise InputError(f"{text}: expected a memory of more than zero", field="--cluster")
    return {"devices": parse_count(match[1], "--cluster"), "memory": memory}


def _positive_bandwidth(text: str) -> float:
    bandwidth = parse_bandwidth(text, "--set bandwidth")
    if bandwidth <= 0:
        raise InputError(f"{text!r}; expected more than zero", field="--set bandwidth")
    return bandwidth
