"""What every solution is for a user: something to iterate over, to print, to tabulate, to draw."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from nestopt.core.errors import NestoptError
from nestopt.core.io import write_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pandas import DataFrame

__all__ = [
    "NO_MATPLOTLIB",
    "Pictured",
    "PlainSolution",
    "Solution",
    "as_frame",
    "as_html",
    "as_text",
]

MOST_ROWS = 20
NO_MATPLOTLIB = (
    "plot needs matplotlib: pip install 'nestopt[plot]'; without it, chart() draws in the terminal "
    "and to_html() makes a page for the browser"
)


class Solution(Protocol):
    """A `Plan`, a `Schedule`, or the solution of a published model; equal by value."""

    def __iter__(self) -> Iterator[Any]:
        """The parts: stages of a plan, sends of a schedule."""

    def __len__(self) -> int:
        """How many parts."""

    def to_json(self) -> dict[str, Any]:
        """The solution as a file holds it."""

    def summary(self) -> str:
        """The solution for people, in 80 columns."""

    def to_frame(self) -> DataFrame:
        """One row a part; needs pandas."""

    def plot(self, ax: Any = None) -> Any:
        """Draw it on `ax`, or on new axes; returns the axes."""

    def chart(self, width: int = 80) -> str:
        """A picture of characters, for terminals."""

    def to_html(self, path: str | Path | None = None) -> str:
        """An interactive page; written to `path` if that is given."""


class Pictured:
    """What plans and schedules show of themselves without matplotlib.

    Attributes
    ----------
    views : str
        The module that makes their text, tables and pictures; it is loaded when one is asked for.
    """

    __slots__ = ()
    views: ClassVar[str]

    def _repr_html_(self) -> str:
        return str(import_module(self.views).html(self))

    def chart(self, width: int = 80) -> str:
        """A picture of characters, for terminals.

        Of a plan: the stages on the devices, and the start and end of the pipeline. Of a schedule:
        how busy each kind of link is over time, and each link where there are few.

        Raises
        ------
        NestoptError
            If the solution does not know what it is for.
        """
        return str(import_module(self.views).chart(self, width))

    def to_html(self, path: str | Path | None = None) -> str:
        """An interactive page: one file, which needs no network.

        Of a plan: the pipeline over time, and what every device does at a moment. Of a schedule:
        the links over time, and the network at a moment. It has zoom, details under the pointer,
        and a slider for the moment.

        Parameters
        ----------
        path : str or Path, optional
            Where to write the page; it is returned in any case.

        Raises
        ------
        NestoptError
            If the solution does not know what it is for.
        """
        text = str(import_module(self.views).page(self))
        if path is not None:
            write_text(path, text)
        return text


class PlainSolution:
    """The solution of a model that has no class of its own (max-load, Piper): rows of a table.

    Parameters
    ----------
    data : mapping
        The solution as a file holds it; its ``stages`` are the parts.
    """

    __slots__ = ("data",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = dict(data)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The parts as the rows of a table."""
        return [dict(row) for row in self.data.get("stages", ())]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.data.get("stages", ()))

    def __eq__(self, other: object) -> bool:
        return self.data == other.data if isinstance(other, PlainSolution) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self.data.get('schema', 'solution')}: {len(self)} stages>"

    def _repr_html_(self) -> str:
        return as_html(self.rows)

    def to_json(self) -> dict[str, Any]:
        """The solution as a file holds it."""
        return dict(self.data)

    def summary(self) -> str:
        """The stages as a table."""
        return as_text(self.rows)

    def to_frame(self) -> DataFrame:
        """One row a stage; needs pandas."""
        return as_frame(self.rows)

    def plot(self, ax: Any = None) -> Any:
        """Refused: such a solution has no picture."""
        raise NestoptError(f"{self!r} has no picture")

    def chart(self, width: int = 80) -> str:
        """Refused, as `plot`."""
        return str(self.plot())

    def to_html(self, path: str | Path | None = None) -> str:
        """Refused, as `plot`."""
        return str(self.plot())


def as_frame(table: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> DataFrame:
    """Rows, or columns by name, as a pandas frame.

    Raises
    ------
    NestoptError
        If pandas is not installed, with what to do.
    """
    try:
        from pandas import DataFrame
    except ModuleNotFoundError as error:
        raise NestoptError("to_frame needs pandas: pip install 'nestopt[frame]'") from error
    return DataFrame(table)


def _shown(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a table of text; the first 20 and how many more there are."""
    if not rows:
        return "(nothing)"
    names = list(rows[0])
    cells = [names, *([_shown(row[name]) for name in names] for row in rows[:MOST_ROWS])]
    widths = [max(len(line[column]) for line in cells) for column in range(len(names))]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, widths)) for line in cells]
    if len(rows) > MOST_ROWS:
        lines.append(f"... and {len(rows) - MOST_ROWS} more")
    return "\n".join(line.rstrip() for line in lines)


def as_html(rows: Sequence[Mapping[str, Any]], caption: str = "") -> str:
    """Rows as a table of HTML, for notebooks; the first 20 and how many more there are."""
    from html import escape

    names = list(rows[0]) if rows else []
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_shown(row[name]))}</td>" for name in names) + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    rest = f"<p>... and {len(rows) - MOST_ROWS} more</p>" if len(rows) > MOST_ROWS else ""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"
