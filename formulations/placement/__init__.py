"""Exact models of placement: MILP and CP-SAT, family by family."""
