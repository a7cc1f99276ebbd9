"""One version, wherever it is written."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from nestopt import __version__

ROOT = Path(__file__).parents[1]


def test_project_citation_and_changelog_state_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## \[(\S+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert citation is not None and newest is not None
    assert project["version"] == citation[1] == newest[1] == __version__


def test_the_packages_are_typed() -> None:
    for package in ("nestopt", "formulations", "instances"):
        assert (ROOT / package / "py.typed").is_file()
