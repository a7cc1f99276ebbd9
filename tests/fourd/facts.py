"""Reading of the published figures, which may be absent."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "facts"


def rows(name: str) -> list[dict[str, str]]:
    """Rows of a file of figures; skips the test where the files are not at hand."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(line for line in stream if not line.startswith("#")))
