from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_study import TINY

HERE = Path(__file__).parent


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The specification of a study of four short cells."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


@pytest.fixture
def odd_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The methods of `odd_methods.py`, registered as another distribution would."""
    place = tmp_path / "site"
    info = place / "odd_methods-1.0.dist-info"
    info.mkdir(parents=True)
    (place / "odd_methods.py").write_text(
        (HERE / "odd_methods.py").read_text(encoding="utf-8"), encoding="utf-8"
    )
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-methods\nVersion: 1.0\n")
    names = ("sleep", "eat", "crash", "segfault", "wrong", "raise", "with-child")
    rows = [f"collective.{name} = odd_methods:solve_{name.replace('-', '_')}" for name in names]
    (info / "entry_points.txt").write_text("[nestopt.solvers]\n" + "\n".join(rows) + "\n")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")]))
    )
