"""Old records take new hashes only where the old form of today's instance is the recorded one."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nestopt.core.io import sha256_of
from nestopt.instances.library import Archive, load, read_runs, runs_path, verify
from nestopt.instances.library.migrate import migrate, older_digests

if TYPE_CHECKING:
    from pathlib import Path

# hashes as the archive stated them before each change of the form
RECORDED = {
    "chain4-node4": ("schema 2 without hides", "40ad5eee7673"),
    "gpt3-1.7b-32": ("schema 2 without hides", "db290b04cfdb"),
    "ar-ring4": ("without the name of its sums", "e524b3af0025"),
    "ar-torus3x3": ("without the name of its sums", "835309c6aaf1"),
}


@pytest.mark.parametrize("name", RECORDED)
def test_older_forms_have_the_recorded_hashes(name: str) -> None:
    form, digest = RECORDED[name]
    assert older_digests(load(name).to_json())[form].startswith(digest)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A copy of the archive with two records, their runs and solutions put back to old forms."""
    kept = Archive.open()
    (tmp_path / "solutions").mkdir()
    shutil.copy(kept.path, tmp_path)
    lines = runs_path(kept).read_text()
    found = Archive.open(tmp_path / "bks.json")
    for name in ("chain4-node4", "ar-ring4"):
        new = kept.records[name].sha256
        old = older_digests(load(name).to_json())[RECORDED[name][0]]
        found.records[name] = replace(found.records[name], sha256=old)
        lines = lines.replace(new[:12], old[:12])
        text = kept.solution_path(name).read_text()
        assert new in text
        found.solution_path(name).write_text(text.replace(new, old))
    runs_path(found).write_text(lines)
    found.save()
    return found


def test_only_hashes_change(archive: Archive) -> None:
    assert len(migrate(archive)) == 2
    kept = Archive.open()
    assert Archive.open(archive.path).records == kept.records
    assert read_runs(runs_path(archive)) == read_runs(runs_path(kept))
    for name in ("chain4-node4", "ar-ring4"):
        migrated, stored = archive.solution_path(name), kept.solution_path(name)
        assert json.loads(migrated.read_text()) == json.loads(stored.read_text())
        assert len(verify(name, archive)) == 2
    assert migrate(archive) == []


def test_a_record_of_another_problem_is_left_alone(archive: Archive) -> None:
    other = replace(archive.records["chain4-node4"], sha256="0" * 64)
    archive.records["chain4-node4"] = other
    assert any("chain4-node4: left alone" in line for line in migrate(archive))
    assert archive.records["chain4-node4"] is other


def test_what_no_older_form_could_state_has_none() -> None:
    placement = copy.deepcopy(load("chain4-node4").to_json())
    placement["space"]["hides"] = [["tensor"]]
    assert older_digests(placement) == {}
    copied = replace(load("ar-ring4"), sums="copied")  # type: ignore[type-var]
    assert older_digests(copied.to_json()) == {}
    assert older_digests(load("ag-ring4").to_json()) == {}
    changed = load("chain4-node4").to_json() | {"objective": "bottleneck"}
    assert sha256_of(changed) not in older_digests(changed).values()
