"""A study of four short cells."""

from __future__ import annotations

TINY = """
name = "tiny"
time_limit = "30 s"

[[instances]]
collective = "all-gather"
topology = "mesh2d:{shape}"
heterogeneity = "log-uniform:0.5,2"
grid.shape = ["2x2"]
seeds = 2

[[methods]]
method = "greedy"

[[methods]]
method = "ring"
"""
