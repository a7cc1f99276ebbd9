"""Records of older forms take today's hashes: ``python -m nestopt.instances.library.migrate``.

The JSON of an instance gained fields. In schema 1 a placement instance was a workload and a
cluster; plan space and objective stood beside it. Then the space had no ``hides``. The name of an
All-Reduce did not say what its sums may do; they moved.

A record is of the same problem as the entry of its name if its hash is that of the entry's
instance written in an older form: a form without a field exists only where that field has the
value that was meant then. Such a record keeps its values and takes today's hash. A record of
which this is not so is left alone and named. Nothing is solved again. A file that is migrated
already stays as it is.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nestopt.core.io import canonical_json, read_json, sha256_of, write_text
from nestopt.instances.library.entries import entries, load
from nestopt.instances.library.records import Archive
from nestopt.instances.library.runs import read_runs, runs_path, write_runs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["main", "migrate", "migrated_solution", "older_digests"]

_BESIDE = (
    "objective", "space", "tensor", "context", "expert", "zero", "recompute", "sequence",
    "microbatch", "replicas", "layout", "schedule", "chunks", "uniform", "decomposition", "overlap",
)  # fmt: skip
"""Settings of a result of schema 1 that state its problem."""


def older_digests(data: Mapping[str, Any]) -> dict[str, str]:
    """The hashes that an instance had in older forms, by form, from its JSON of today.

    Empty if no older form could state the instance.
    """
    if data["problem"] == "collective":
        name, _, rest = data["name"].rpartition(", sums ")
        moved = rest == "moved" and "sums" not in data
        return {"without the name of its sums": sha256_of({**data, "name": name})} if moved else {}
    if data["space"]["hides"] != [[]]:
        return {}
    space = {key: value for key, value in data["space"].items() if key != "hides"}
    kept = {key: data[key] for key in ("problem", "name", "workload", "cluster")}
    return {
        "schema 1": sha256_of({"schema": "nestopt.instance/1", **kept}),
        "schema 2 without hides": sha256_of({**data, "space": space}),
    }


def migrated_solution(result: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """A kept solution (JSON of a result without its instance) with the new hash."""
    settings = result["settings"]
    if data["problem"] == "placement":
        settings = {key: value for key, value in settings.items() if key not in _BESIDE}
    instance = {"name": data["name"], "sha256": sha256_of(data)}
    return {**result, "instance": instance, "settings": settings}


def migrate(archive: Archive) -> list[str]:
    """Migrate an archive, its runs and its solutions in place; one line for each change."""
    lines = []
    runs = read_runs(runs_path(archive))
    for name in entries():
        record = archive.records.get(name)
        if record is None:
            continue
        data = load(name).to_json()
        new, old = sha256_of(data), record.sha256
        if old == new:
            continue
        form = next((form for form, hash_ in older_digests(data).items() if hash_ == old), None)
        if form is None:
            lines.append(f"{name}: left alone, its record {old[:12]} is of no known form")
            continue
        archive.records[name] = replace(record, sha256=new)
        for key, run in runs.items():
            if key[0] == name and run.instance == old[:12]:
                runs[key] = run.model_copy(update={"instance": new[:12]})
        _rewrite(archive.solution_path(name), old, data)
        lines.append(f"{name}: {old[:12]} -> {new[:12]}, was {form}")
    if lines:
        archive.save()
        write_runs(runs, runs_path(archive))
    return lines


def _rewrite(path: Path, old: str, data: Mapping[str, Any]) -> None:
    if path.exists():
        result = read_json(path)
        if result["instance"]["sha256"] == old:
            write_text(path, canonical_json(migrated_solution(result, data)) + "\n")


def main() -> None:
    """Migrate the archive of the library, or the one whose path is given."""
    with Archive.changing(sys.argv[1] if len(sys.argv) > 1 else None) as archive:
        for line in migrate(archive):
            print(line)


if __name__ == "__main__":
    main()
