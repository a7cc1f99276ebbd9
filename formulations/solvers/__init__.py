"""The back-ends: PuLP's MILP solvers and OR-Tools' CP-SAT."""
