"""What a record comes from: the code, the specification, the instance; and what may stand together.

Records of one directory are averaged together, so they must come from one code, one specification
and one build of each instance. `refuse_mixed` sees to that unless a mixture was asked for, and
`mixtures` says in the report what was mixed.
"""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.core.io import canonical_json, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nestopt.study.spec import StudyFile

__all__ = ["code", "mixtures", "refuse_mixed", "spec_hash"]

_PACKAGE = Path(__file__).resolve().parents[1]


@cache
def code() -> dict[str, str | None]:
    """``source``, a hash of all Python files of the package, and ``commit`` where git knows it.

    Returns
    -------
    dict
        ``source``: 16 hex digits; ``commit``: 40 hex digits, or None outside a checkout.
    """
    digest = hashlib.sha256()
    for path in sorted(_sources(_PACKAGE)):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return {"source": digest.hexdigest()[:16], "commit": _commit()}


def _sources(folder: Path) -> Iterable[Path]:
    """Python files below a folder, links to folders followed."""
    for path in folder.iterdir():
        if path.is_dir():
            yield from _sources(path)
        elif path.suffix == ".py":
            yield path


def _commit() -> str | None:
    root = _PACKAGE.parent
    if not (root / ".git").exists():
        return None
    try:
        said = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return said.stdout.strip() or None if said.returncode == 0 else None


def spec_hash(spec: StudyFile) -> str:
    """16 hex digits of what a specification runs: not its title, comments or hints of a report."""
    return sha256_of(spec.model_dump(mode="json", exclude={"title", "report"}))[:16]


def _words(record: Mapping[str, Any], key: str) -> str:
    found = record.get("code") or {}
    value = found.get("source") if key == "code" else found.get("spec")
    return str(value or "unknown")


def _hashes(records: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Hashes of each instance, by its parameters and the space that a method states for it."""
    found: dict[str, set[str]] = {}
    for row in records:
        instance, settings = row["instance"], row.get("settings") or {}
        digest = instance.get("job") or instance.get("sha256")
        if digest:
            keys = ("objective", "plans", "space", "orders")
            stated = [settings.get(key) for key in keys]
            stated = [] if instance.get("job") else stated
            name = canonical_json([row.get("parameters") or {}, instance.get("problem"), stated])
            found.setdefault(name, set()).add(str(digest))
    return found


def mixtures(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What comes from more than one code, specification or instance; a sentence each.

    Records that do not say it (older ones) count as one of their own, named ``unknown``.
    """
    said = []
    for key, what in (("code", "versions of the code"), ("spec", "specifications")):
        counts: dict[str, int] = {}
        for row in records:
            counts[_words(row, key)] = counts.get(_words(row, key), 0) + 1
        if len(counts) > 1:
            parts = ", ".join(f"{name}: {count} runs" for name, count in sorted(counts.items()))
            said.append(f"The records come from {len(counts)} {what} ({parts}).")
    several = sum(len(digests) > 1 for digests in _hashes(records).values())
    if several:
        said.append(f"{several} instances have runs with different hashes of the same parameters.")
    return said


def refuse_mixed(
    records: Sequence[Mapping[str, Any]], spec: StudyFile, file: Path, more: str
) -> None:
    """Refuse to go on with records of another code or specification, or of two instances.

    Parameters
    ----------
    records : sequence of mapping
        Those that are there.
    spec : StudyFile
        Of the run to come.
    file : Path
        Of the records.
    more : str
        How to ask for it.

    Raises
    ------
    InputError
        Naming the file, what differs, found and expected.
    """
    now = {"code": code()["source"], "spec": spec_hash(spec)}
    names = {"code": "code.source", "spec": "code.spec"}
    for key, value in now.items():
        other = [row for row in records if _words(row, key) != value]
        if other:
            raise InputError(
                f"{_words(other[0], key)} in {len(other)} of {len(records)} records; expected "
                f"{value}, the {'code' if key == 'code' else 'specification'} of this run. Choose "
                f"another directory, or {more}",
                file=str(file),
                field=names[key],
            )
    for name, digests in _hashes(records).items():
        if len(digests) > 1:
            raise InputError(
                f"{' and '.join(sorted(digests))} for the parameters {name}; expected one instance."
                f" Choose another directory, or {more}",
                file=str(file),
                field="instance.sha256",
            )
