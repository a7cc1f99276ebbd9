"""nestopt: placement of training jobs and synthesis of collective schedules.

Fast answers (an exact structured dynamic program, a greedy matcher on a time-expanded network),
exact answers on small instances (MILP, CP-SAT), certified lower bounds, independent checkers.
"""

from nestopt._version import __version__

__all__ = ["__version__"]
