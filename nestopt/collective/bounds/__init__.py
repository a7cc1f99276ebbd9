"""Certified lower bounds on the makespan of a collective, each with a witness to check by hand."""

from __future__ import annotations

from nestopt.collective.bounds._model import reverse_instance
from nestopt.collective.bounds.bottleneck import Bottleneck, bottleneck_cut
from nestopt.collective.bounds.catalog import all_bounds, best_bound
from nestopt.collective.judge.witness import verify_witness

__all__ = [
    "Bottleneck",
    "all_bounds",
    "best_bound",
    "bottleneck_cut",
    "reverse_instance",
    "verify_witness",
]
