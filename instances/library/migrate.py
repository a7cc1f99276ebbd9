"""Records of schema 1 made records of schema 2: ``python -m nestopt.instances.library.migrate``.

In schema 1 an instance was a workload and a cluster; plan space and objective stood beside it. A
record is of the same problem as the entry of its name if its hash is that of the entry's instance
written in schema 1. Then it keeps its values and takes the hash of the whole instance, whose space
is ``default-1`` with the entry's own restrictions; a record of which this is not so is left alone
and named. Nothing is solved again. A file that is migrated already stays as it is.
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

__all__ = ["digest_of_schema_1", "main", "migrate", "migrated_solution"]

_BESIDE = (
    "objective", "space", "tensor", "context", "expert", "zero", "recompute", "sequence",
    "microbatch", "replicas", "layout", "schedule", "chunks", "uniform", "decomposition", "overlap",
)  # fmt: skip
"""Settings of a result of schema 1 that state its problem."""


def digest_of_schema_1(data: Mapping[str, Any]) -> str:
    """The hash that a placement instance had in schema 1, from its JSON of schema 2."""
    kept = {key: data[key] for key in ("problem", "name", "workload", "cluster")}
    return sha256_of({"schema": "nestopt.instance/1", **kept})


def migrated_solution(result: dict[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """A kept solution (JSON of a result without its instance) with the new hash."""
    settings = {key: value for key, value in result["settings"].items() if key not in _BESIDE}
    instance = {"name": result["instance"]["name"], "sha256": sha256_of(data)}
    return {**result, "instance": instance, "settings": settings}


def migrate(archive: Archive) -> list[str]:
    """Migrate an archive, its runs and its solutions in place; one line for each change."""
    lines = []
    runs = read_runs(runs_path(archive))
    for name, found in entries().items():
        record = archive.records.get(name)
        if found.problem != "placement" or record is None:
            continue
        data = load(name).to_json()
        new, old = sha256_of(data), digest_of_schema_1(data)
        if record.sha256 == new:
            continue
        if record.sha256 != old:
            lines.append(f"{name}: left alone, its record {record.sha256[:12]} is of neither form")
            continue
        archive.records[name] = replace(record, sha256=new)
        for key, run in runs.items():
            if key[0] == name and run.instance == old[:12]:
                runs[key] = run.model_copy(update={"instance": new[:12]})
        _rewrite(archive.solution_path(name), old, data)
        lines.append(f"{name}: {old[:12]} -> {new[:12]}, over {data['space']['structure']} plans")
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
    for line in migrate(Archive.open(sys.argv[1] if len(sys.argv) > 1 else None)):
        print(line)


if __name__ == "__main__":
    main()
