"""Known collective algorithms, priced on the same link model with real routes and contention."""

from __future__ import annotations

from nestopt.collective.baselines.solve import (
    baseline_schedule,
    solve_dbt,
    solve_direct,
    solve_hierarchical,
    solve_rhd,
    solve_ring,
    solve_shortest_path,
)

__all__ = [
    "baseline_schedule",
    "solve_dbt",
    "solve_direct",
    "solve_hierarchical",
    "solve_rhd",
    "solve_ring",
    "solve_shortest_path",
]
