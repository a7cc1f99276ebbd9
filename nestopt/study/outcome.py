"""The parts of a record: what is known before a cell runs, and what its result adds."""

from __future__ import annotations

import math
import os
import platform
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.result import as_json_number, versions
from nestopt.study.provenance import code
from nestopt.study.records import SCHEMA

if TYPE_CHECKING:
    from nestopt.core.result import Result

__all__ = ["blank_record", "fill", "machine", "peak_memory"]


def blank_record(cell: dict[str, Any]) -> dict[str, Any]:
    """The record of a cell of which nothing is known yet: it ended in an error."""
    definition = cell["definition"]
    settings = {
        "objective": definition["objective"],
        "space": definition["space"],
        "backend": definition["backend"],
        "rel_gap": definition["rel_gap"],
    }
    settings |= {key: definition[key] for key in ("plans", "orders") if key in definition}
    return {
        "schema": SCHEMA,
        "study": cell["study"],
        "cell": cell["cell"],
        "parameters": cell["parameters"],
        "instance": {
            "name": None,
            "sha256": None,
            "problem": definition["instance"]["problem"],
        },
        "method": cell["label"],
        "solver": definition["method"],
        "settings": settings | definition["settings"],
        "seed": definition["seed"],
        "threads": definition["threads"],
        "time_limit": definition["time_limit"],
        "limit_clock": "cpu",
        "memory_limit": definition["memory_limit"],
        "termination": {"reason": "error", "limit": "none"},
        "objective": None,
        "bound": "-inf",
        "gap": None,
        "seconds": None,
        "method_cpu": None,
        "wall": None,
        "cpu": None,
        "peak_rss": None,
        "trace": [],
        "checked": None,
        "stats": {},
        "error": None,
        "code": {**code(), "spec": cell.get("spec")},
        "versions": versions(),
        "machine": machine(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def fill(record: dict[str, Any], result: Result) -> None:
    """Add what a checked result says."""
    record["termination"] = {
        "reason": result.termination.reason.value,
        "limit": result.termination.limit.value,
    }
    record["objective"] = as_json_number(result.objective)
    record["bound"] = as_json_number(result.bound)
    record["gap"] = as_json_number(result.gap)
    record["stats"] = {
        key: _scalar(value)
        for key, value in result.stats.items()
        if value is None or isinstance(value, bool | int | float | str)
    }


def _scalar(value: float | str | None) -> float | int | str | None:
    if isinstance(value, float):
        return None if math.isnan(value) else as_json_number(value)
    return value


def peak_memory() -> int | None:
    """Bytes of the largest resident set of this process, or None where that is not known.

    Not ``ru_maxrss``, which starts from the resident set of the process that started this one.
    """
    try:
        text = Path("/proc/self/status").read_text(encoding="utf-8")
    except OSError:
        return None
    line = next((row for row in text.splitlines() if row.startswith("VmHWM:")), None)
    return None if line is None else int(line.split()[1]) * 1024


@cache
def machine() -> dict[str, Any]:
    """``system``, ``cpu``, ``cores`` and ``memory`` (bytes) of this machine."""
    cpu = platform.processor()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next((row.partition(":")[2].strip() for row in lines if "model name" in row), cpu)
    except OSError:
        pass
    memory = None
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "system": platform.platform(terse=True),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory": memory,
    }
