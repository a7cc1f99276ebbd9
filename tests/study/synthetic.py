"""Synthetic records for tests of reports and figures."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = {"nestopt": "0.1.0", "python": "3.11.9", "numpy": "2.0.0"}
MACHINE = {"system": "Linux", "cpu": "a processor", "cores": 2, "memory": 8 * 2**30}


def record(
    study: str = "s",
    method: str = "dp",
    *,
    problem: str = "placement",
    objective: float | None = 10.0,
    bound: float | str = 8.0,
    reason: str | None = None,
    limit: str | None = None,
    seconds: float = 1.0,
    time_limit: float | None = 60.0,
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    parameters: dict[str, Any] | None = None,
    **others: Any,
) -> dict[str, Any]:
    """A record; the termination follows from objective and bound unless it is given."""
    parameters = parameters or {"family": "f", "size": 4, "instance_seed": 0}
    settings = {"objective": "", "space": "", "backend": None, "rel_gap": 0.0} | (settings or {})
    digest = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()
    if reason is None:
        reason = (
            "no-solution" if objective is None else "optimal" if objective == bound else "feasible"
        )
    if limit is None:
        limit = {"no-solution": "time", "feasible": "iterations"}.get(reason, "none")
    cell = hashlib.sha256(repr((study, method, seed, settings, digest)).encode()).hexdigest()[:16]
    gap = None if objective is None or isinstance(bound, str) else (objective - bound) / objective
    return {
        "schema": "nestopt.record/1",
        "study": study,
        "cell": cell,
        "parameters": parameters,
        "instance": {
            "name": "-".join(str(v) for v in parameters.values()),
            "sha256": digest,
            "problem": problem,
        },
        "method": method,
        "solver": method,
        "settings": settings,
        "seed": seed,
        "threads": 1,
        "time_limit": time_limit,
        "memory_limit": None,
        "termination": {"reason": reason, "limit": limit},
        "objective": objective,
        "bound": bound,
        "gap": gap,
        "seconds": seconds,
        "method_cpu": seconds,
        "wall": seconds + 0.5,
        "cpu": seconds + 0.4,
        "peak_rss": 2**27,
        "trace": [] if objective is None else [[seconds / 2, objective, bound]],
        "checked": 3,
        "stats": {},
        "error": None,
        "versions": VERSIONS,
        "machine": MACHINE,
        "started": "2026-01-01T00:00:00Z",
        **others,
    }


def write(records: list[dict[str, Any]], path: Path) -> None:
    """Write records as a study does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in records), encoding="utf-8")
