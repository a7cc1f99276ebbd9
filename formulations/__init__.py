"""Exact models of placement and collective synthesis: MILP (PuLP) and CP-SAT (OR-Tools)."""
