"""Exact models of collectives whose partial sums may be copied."""
