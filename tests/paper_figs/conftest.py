"""The figure scripts are no package: their folder and that of the synthetic records go first."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "tests" / "study", ROOT / "paper_figs"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
