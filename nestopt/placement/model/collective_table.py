"""Tables of collectives: what synthesized algorithms cost on a cluster's layouts.

The meaning of every symbol is in ``MODEL.md``, section 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from nestopt.core.errors import InputError, naming
from nestopt.core.io import validate_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.placement.model.cluster import Level
    from nestopt.placement.model.files import CollectiveTableFile

__all__ = ["PATTERNS", "SCHEMA", "CollectiveTable", "Figures", "Layout", "Line", "Row"]

SCHEMA = "nestopt.collective-table/1"
PATTERNS = ("all-gather", "all-reduce", "all-to-all")


class Line(NamedTuple):
    """Seconds, and seconds per byte: a collective of S bytes takes ``alpha + S beta``."""

    alpha: float
    beta: float


class Layout(NamedTuple):
    """How the groups of a family lie in the tree.

    Attributes
    ----------
    counts : tuple of int
        c[0..span]: parts that a group of each level deals its members in; the last is above 1.
    sharing : tuple of int
        s[0..span-1]: family groups with members in a group of each level.
    """

    counts: tuple[int, ...]
    sharing: tuple[int, ...]

    @property
    def members(self) -> int:
        """Members of a family group, n."""
        return math.prod(self.counts)


@dataclass(frozen=True, slots=True)
class Row:
    """The lines of a pattern on a layout."""

    pattern: str
    layout: Layout
    lines: tuple[Line, ...]


class Figures(NamedTuple):
    """What a table knows of a level: seconds, bytes/s, bytes/s (infinite at the outermost)."""

    latency: float
    port: float
    uplink: float


@dataclass(frozen=True, slots=True)
class CollectiveTable:
    """Algorithms beside the formulas, for clusters with levels of these figures.

    Attributes
    ----------
    name : str
    levels : tuple of Figures
        Innermost first.
    rows : tuple of Row
        At most one of a pattern and a layout.
    """

    name: str
    levels: tuple[Figures, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        levels = tuple(Figures(*map(float, level)) for level in self.levels)
        object.__setattr__(self, "levels", levels)
        rows = tuple(
            replace(row, lines=tuple(Line(*map(float, line)) for line in row.lines))
            for row in self.rows
        )
        object.__setattr__(self, "rows", rows)
        first: dict[tuple[str, Layout], int] = {}
        for index, row in enumerate(self.rows):
            where = f"rows[{index}]"
            _check_row(row, len(self.levels), where)
            same = first.setdefault((row.pattern, row.layout), index)
            if same != index:
                raise InputError(f"the same pattern and layout as rows[{same}]", field=where)

    def check_levels(self, levels: Sequence[Level], where: str = "") -> None:
        """Refuse levels of other figures than the table's; `where` begins the field's name.

        Raises
        ------
        InputError
            Naming the level and the figure.
        """
        if len(levels) != len(self.levels):
            raise InputError(
                f"made for {len(self.levels)} levels; the cluster has {len(levels)}",
                field=f"{where}levels",
            )
        for index, (own, level) in enumerate(zip(self.levels, levels, strict=True)):
            for name, value in zip(Figures._fields, own, strict=True):
                there = getattr(level, name)
                if value != there:
                    unit = "s" if name == "latency" else "bytes/s"
                    raise InputError(
                        f"made for {value:.12g} {unit}; the cluster has {there:.12g} {unit}",
                        field=f"{where}levels[{index}].{name}",
                    )

    def to_json(self) -> dict[str, Any]:
        """The table as versioned JSON, in SI units."""
        return {
            "schema": SCHEMA,
            "name": self.name,
            "levels": [
                {k: v for k, v in level._asdict().items() if not math.isinf(v)}
                for level in self.levels
            ],
            "rows": [
                {
                    "pattern": row.pattern,
                    "counts": list(row.layout.counts),
                    "sharing": list(row.layout.sharing),
                    "lines": [line._asdict() for line in row.lines],
                }
                for row in self.rows
            ],
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> CollectiveTable:
        """Inverse of `to_json`.

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        from nestopt.placement.model.files import CollectiveTableFile

        with naming(file):
            return cls.from_model(validate_model(CollectiveTableFile, data, file=file))

    @classmethod
    def from_model(cls, model: CollectiveTableFile) -> CollectiveTable:
        """The table of a validated file."""
        return cls(
            model.name,
            tuple(
                Figures(
                    level.latency, level.port, math.inf if level.uplink is None else level.uplink
                )
                for level in model.levels
            ),
            tuple(
                Row(
                    row.pattern,
                    Layout(tuple(row.counts), tuple(row.sharing)),
                    tuple(Line(line.alpha, line.beta) for line in row.lines),
                )
                for row in model.rows
            ),
        )


def _check_row(row: Row, levels: int, where: str) -> None:
    counts, sharing = row.layout
    if row.pattern not in PATTERNS:
        raise InputError(
            f"{row.pattern!r}; expected one of {', '.join(PATTERNS)}", field=f"{where}.pattern"
        )
    if not 1 <= len(counts) <= levels or min(counts) < 1 or counts[-1] < 2:
        raise InputError(
            f"{list(counts)}; expected 1 to {levels} counts, one for each level up to the highest "
            "that is crossed, of at least 1 each and at least 2 at the end",
            field=f"{where}.counts",
        )
    uneven = any(s < 1 for s in sharing) or any(b % a for a, b in pairwise(sharing))
    if len(sharing) != len(counts) - 1 or uneven:
        raise InputError(
            f"{list(sharing)}; expected {len(counts) - 1} numbers (one less than counts) of at "
            "least 1, each a divisor of the next",
            field=f"{where}.sharing",
        )
    if not row.lines:
        raise InputError("no line; expected at least one", field=f"{where}.lines")
    for index, line in enumerate(row.lines):
        for name, value in line._asdict().items():
            if not 0 <= value < math.inf:
                raise InputError(
                    f"{value!r}; expected a number of at least zero",
                    field=f"{where}.lines[{index}].{name}",
                )
