"""Names of the sets of parameters that names of clusters and transformers stand for.

The sets themselves belong to placement (`nestopt.placement.pricing.parameters`).
"""

from __future__ import annotations

__all__ = ["DEFAULT_SET", "FIRST_SET", "SETS"]

SETS = ("nestopt-1", "nestopt-2")
"""The named sets, oldest first."""
FIRST_SET, DEFAULT_SET = SETS[0], SETS[-1]
