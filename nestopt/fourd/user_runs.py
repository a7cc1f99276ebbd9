"""A user's own measured runs: a CSV file, one row a run, as `Run` objects.

Columns: ``name``, ``model`` (a transformer of the catalogue, settings after commas), ``device``,
``gpus``, ``tensor``, ``pipeline``, ``data``, ``batch`` (sequences), ``microbatch``, ``seconds`` (of
an iteration). Optional: ``cluster`` (a cluster's name; ``dgx-DEVICE-GPUS`` unless given),
``context`` (1), ``chunks`` (1), ``recompute`` (none), ``sequence_parallel`` (0 or 1), ``zero`` (0),
``gradient_bytes`` (2 or 4), ``framework`` (megatron-core). Lines that begin with # are comments.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, NestoptError, UsageError, unknown_name
from nestopt.core.registry import named, transformer
from nestopt.fourd.runs import Run
from nestopt.placement.model.plan import RECOMPUTE
from nestopt.placement.pricing.parameters import current_set

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_runs"]

_COUNTS = ("gpus", "tensor", "pipeline", "data", "batch", "microbatch")
_NEEDED = ("name", "model", "device", *_COUNTS, "seconds")
_OPTIONAL = {
    "cluster": "", "context": "1", "chunks": "1", "recompute": "none", "sequence_parallel": "0",
    "zero": "0", "gradient_bytes": "4", "framework": "megatron-core",
}  # fmt: skip


def read_runs(path: str | Path) -> list[Run]:
    """The runs in a CSV file.

    Raises
    ------
    InputError
        Naming the file, the row, the column, the value and what was expected.
    """
    file = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=file) from error
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    reader = csv.DictReader(lines)
    columns = [column.strip() for column in reader.fieldnames or ()]
    for column in _NEEDED:
        if column not in columns:
            raise InputError("is missing", file=file, field=f"column {column}")
    for column in columns:
        if column not in (*_NEEDED, *_OPTIONAL):
            unknown = unknown_name("column", column, (*_NEEDED, *_OPTIONAL))
            raise InputError(str(unknown), file=file)
    found: list[Run] = []
    for number, row in enumerate(reader, start=1):
        cells = {k.strip(): (v or "").strip() for k, v in row.items() if isinstance(k, str)}
        values = _OPTIONAL | {key: value for key, value in cells.items() if value}
        try:
            found.append(_run(values))
        except NestoptError as error:
            raise InputError(str(error), file=file, field=f"row {number}") from error
    if not found:
        raise InputError("holds no run; expected at least one row", file=file)
    names = [run.row for run in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name!r} stands there twice", file=file, field="column name")
    return found


def _run(values: Mapping[str, str]) -> Run:
    for column in _NEEDED:
        if column not in values:
            raise InputError("is empty", field=column)
    current_set().device(values["device"])
    current_set().framework(values["framework"])
    counts = {key: _count(values, key) for key in (*_COUNTS, "context", "chunks")}
    if values["recompute"] not in RECOMPUTE:
        raise InputError(
            f"{values['recompute']!r}; expected one of {', '.join(RECOMPUTE)}", field="recompute"
        )
    used = counts["tensor"] * counts["context"] * counts["pipeline"] * counts["data"]
    if used != counts["gpus"]:
        raise InputError(
            f"{counts['gpus']}; tensor x context x pipeline x data is {used}", field="gpus"
        )
    if counts["batch"] % (counts["data"] * counts["microbatch"]):
        raise InputError(
            f"{counts['batch']}; expected a multiple of data x microbatch", field="batch"
        )
    if values["cluster"]:
        cluster = named("cluster", values["cluster"])
        if len(cluster.alive) < counts["gpus"]:
            raise InputError(f"{values['cluster']} has fewer devices", field="cluster")
    rest: dict[str, Any] = dict(counts)
    return Run(
        table="runs",
        row=values["name"],
        model=transformer(values["model"]),
        device=values["device"],
        cluster=values["cluster"],
        recompute=values["recompute"],
        sequence_parallel=_switch(values, "sequence_parallel"),
        zero=_count(values, "zero", low=0, high=3),
        gradient_bytes=_number(values, "gradient_bytes"),
        framework=values["framework"],
        seconds=_number(values, "seconds"),
        **rest,
    )


def _count(values: Mapping[str, str], key: str, low: int = 1, high: int | None = None) -> int:
    text = values[key]
    if not text.isdigit() or int(text) < low or (high is not None and int(text) > high):
        span = f"an integer from {low}" + (f" to {high}" if high is not None else "")
        raise InputError(f"{text!r}; expected {span}", field=key)
    return int(text)


def _number(values: Mapping[str, str], key: str) -> float:
    try:
        value = float(values[key])
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise InputError(f"{values[key]!r}; expected a number above zero", field=key)
    return value


def _switch(values: Mapping[str, str], key: str) -> bool:
    if values[key] not in ("0", "1"):
        raise UsageError(f"{key}: {values[key]!r}; expected 0 or 1")
    return values[key] == "1"
