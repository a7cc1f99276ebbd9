"""Exact models of collectives: MILP and CP-SAT, family by family."""
