"""The library as tables for people and for scripts."""

from __future__ import annotations

from typing import Any

from nestopt.instances.library.entries import entries, entry
from nestopt.instances.library.records import Archive, difficulty
from nestopt.instances.library.runs import read_runs, runs_path

__all__ = ["rows", "show"]


def rows(archive: Archive | None = None, problem: str | None = None) -> list[dict[str, Any]]:
    """One row for every entry: name, instance, objective, bound, gap, methods, class."""
    known = archive or Archive.open()
    table = []
    for name, found in entries().items():
        if problem is not None and found.problem != problem:
            continue
        record = known.records.get(name)
        best = record.objective if record else None
        bound = record.bound if record else None
        table.append(
            {
                "name": name,
                "problem": found.problem,
                "instance": found.instance,
                "methods": list(found.methods),
                "space": found.space or None,
                "objective": best and best.value,
                "objective_method": best and best.method,
                "bound": bound and bound.value,
                "bound_method": bound and bound.method,
                "gap": record.gap if record else None,
                "class": difficulty(record),
                "seconds_to_proof": bound.effort if bound and record and record.closed else None,
            }
        )
    return table


def show(name: str, archive: Archive | None = None) -> dict[str, Any]:
    """Everything about one entry: how it is made, its provenance and its record."""
    found = entry(name)
    known = archive or Archive.open()
    record = known.records.get(name)
    runs = read_runs(runs_path(known))
    return {
        "name": name,
        "problem": found.problem,
        "instance": found.instance,
        "objective": found.objective,
        "space": found.space or None,
        "tenants": found.tenants,
        "methods": list(found.methods),
        "source": found.source,
        "published_optimum": found.known,
        "sha256": record and record.sha256,
        "best_objective": record and record.objective and record.objective.to_json(),
        "best_bound": record and record.bound and record.bound.to_json(),
        "gap": record.gap if record else None,
        "class": difficulty(record),
        "runs": [
            runs[name, method].model_dump(mode="json")
            for method in found.methods
            if (name, method) in runs
        ],
    }
