"""The instance library: named instances from toy to open, and the best results known for them.

``placement.toml`` and ``collective.toml`` say how each instance is generated and where it comes
from. An entry fixes everything that its optimum depends on: the instance, and for placement the
objective, the space and the settings of the space. ``bks.json`` holds the best objective and bound
ever reached, with the hash of the instance that they belong to, ``solutions/`` the solutions that
are small enough to keep, and ``runs.csv`` the last run of every method.
"""

from __future__ import annotations

from nestopt.instances.library.entries import Entry, entries, entry, load
from nestopt.instances.library.records import CLASSES, Archive, Record, Score, difficulty
from nestopt.instances.library.runs import MethodRun, read_runs, runs_path, write_runs
from nestopt.instances.library.tables import rows, show
from nestopt.instances.library.updates import check_stored, entry_of, solve_entry, update, verify

__all__ = [
    "CLASSES",
    "Archive",
    "Entry",
    "MethodRun",
    "Record",
    "Score",
    "check_stored",
    "difficulty",
    "entries",
    "entry",
    "entry_of",
    "load",
    "read_runs",
    "rows",
    "runs_path",
    "show",
    "solve_entry",
    "update",
    "verify",
    "write_runs",
]
