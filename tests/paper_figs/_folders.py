"""Imported first: the figure scripts are no package, nor are the synthetic records.

Not in a `conftest.py`, which would hide those of the other folders from their tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "tests" / "study", ROOT / "paper_figs"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
