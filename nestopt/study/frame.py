"""Records as a table of pandas, and as columns for those without it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, NestoptError
from nestopt.study.comparison import best_known, number, objective_key
from nestopt.study.directory import RECORDS
from nestopt.study.records import read_records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pandas import DataFrame

__all__ = ["flat", "load"]

_PLAIN = (
    "study", "cell", "method", "solver", "seed", "threads", "time_limit", "memory_limit",
    "objective", "bound", "gap", "seconds", "method_cpu", "wall", "cpu", "peak_rss", "checked",
    "error", "started",
)  # fmt: skip


def load(directory: str | Path) -> DataFrame:
    """The records of a study, a row a run.

    Parameters
    ----------
    directory : path
        Of a study, or the file of its records.

    Returns
    -------
    pandas.DataFrame
        Columns: the fields of a record (`nestopt.study.records`); its parameters by name; ``set.``
        and the settings; ``stats.`` and the statistics; ``instance``, ``sha256``, ``problem``;
        ``reason``, ``limit``; ``source``, ``commit``, ``spec``; and two figures that are made here:
        ``gap``, (objective - bound) / objective, and ``slowdown``, objective / best - 1 against the
        best objective of any run on the same problem. Infinite bounds are ``inf`` numbers.

    Raises
    ------
    InputError
        If there are no records, or a line is none.
    NestoptError
        If pandas is not installed.
    """
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise NestoptError("study.load needs pandas: pip install 'nestopt[frame]'") from error
    place = Path(directory)
    path = place / RECORDS if place.is_dir() else place
    rows = read_records(path).rows
    if not rows:
        raise InputError("holds no records", file=str(path))
    return pandas.DataFrame(flat(rows))


def flat(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each record as one flat mapping; see `load` for the names."""
    best = best_known(records)
    return [_flat(row, best.get(objective_key(row))) for row in records]


def _flat(row: Mapping[str, Any], best: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {key: row.get(key) for key in _PLAIN}
    for key in ("objective", "bound", "gap"):
        found[key] = number(row.get(key))
    objective = found["objective"]
    found["slowdown"] = objective / best - 1 if objective is not None and best else None
    instance, code = row["instance"], row.get("code") or {}
    found |= {"instance": instance["name"], "sha256": instance["sha256"]}
    found["problem"] = instance["problem"]
    found |= {key: row["termination"].get(key) for key in ("reason", "limit")}
    found |= {key: code.get(key) for key in ("source", "commit", "spec")}
    for name, value in (row.get("parameters") or {}).items():
        found[f"parameter.{name}" if name in found else name] = value
    found |= {f"set.{name}": value for name, value in (row.get("settings") or {}).items()}
    found |= {f"stats.{name}": value for name, value in (row.get("stats") or {}).items()}
    return found
