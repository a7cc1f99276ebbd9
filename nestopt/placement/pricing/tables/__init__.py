"""Making tables of collectives: every layout as a network, synthesized, and made into lines."""

from __future__ import annotations

from nestopt.placement.pricing.tables.layouts import layouts_on
from nestopt.placement.pricing.tables.make import Comparison, make_table

__all__ = ["Comparison", "layouts_on", "make_table"]
