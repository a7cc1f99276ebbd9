"""Studies: many (instance, method, seed) cells, run once, recorded line by line, reported.

`nestopt.study.spec` documents the specification (TOML), `nestopt.study.records` the records;
`load` gives the records of a study as a table of pandas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pandas import DataFrame

__all__ = ["load"]


def load(directory: str | Path) -> DataFrame:
    """The records of a study, a row a run; see `nestopt.study.frame.load`."""
    from nestopt.study.frame import load as read

    return read(directory)
