"""A page that shows what runs when: one HTML file without network, for plans and schedules alike.

The page has a timeline (zoom by wheel or buttons, drag, hover), a map of what the rows belong to,
and a slider for the moment that the map shows. `Page` is what a problem fills in; the browser's
side is ``page_files/page.js`` and ``page_files/page.css``, put into the file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from html import escape
from importlib.resources import files
from typing import Any

from nestopt.core.colours import ink

__all__ = ["Band", "Bars", "Heat", "Link", "Node", "Page", "Picture", "Table"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


@dataclass(frozen=True, slots=True)
class Band:
    """Neighbouring rows of one kind: its name, lines of detail, first row, number of rows."""

    name: str
    detail: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Bars:
    """What occupies rows: equally long columns; `number` (-1 for none) follows ``words[word]``."""

    row: list[int]
    start: list[float]
    end: list[float]
    colour: list[int]
    word: list[int]
    number: list[int]


@dataclass(frozen=True, slots=True)
class Heat:
    """Percent of time that rows are busy, row by row; where bars would be too many."""

    rows: int
    bins: int
    values: list[int]


@dataclass(frozen=True, slots=True)
class Node:
    """A square or circle on the map; `row` is the row that it takes part in, -1 for none."""

    x: float
    y: float
    size: float
    shape: str
    row: int
    colour: int
    label: str
    tip: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A line on the map that is busy when its row is."""

    path: list[list[float]]
    row: int


@dataclass(frozen=True, slots=True)
class Picture:
    """The map: size, boxes (x, y, width, height, level), nodes, links; y goes down."""

    width: float
    height: float
    boxes: list[list[float]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Table:
    """A table below the pictures; cells are text."""

    title: str
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True, slots=True)
class Page:
    """All that a page shows.

    Attributes
    ----------
    title : str
    facts : list of (str, str)
    unit : str
        Of every time on the page.
    end, start : float
        The time that the timeline ends at, and the moment that is shown first.
    rows : list of str
        Names of the rows of the timeline.
    noun, verb : str
        Of the sentence "61 of 128 links busy".
    bands : list of Band
    bars, heat : Bars or Heat
        One of them.
    words : list of str
        What a bar does: ``forward of micro-batch``, ``chunk``.
    colours : list of str
        ``#rrggbb`` each; bars and nodes name them by number.
    legend : list of (str, int)
        Names of colours.
    map : Picture
    tables : list of Table
    """

    title: str
    facts: list[tuple[str, str]]
    unit: str
    end: float
    start: float
    rows: list[str]
    noun: str
    verb: str
    bands: list[Band]
    words: list[str]
    colours: list[str]
    legend: list[tuple[str, int]]
    map: Picture
    bars: Bars | None = None
    heat: Heat | None = None
    tables: list[Table] = field(default_factory=list)

    def html(self) -> str:
        """The whole file; the same page gives the same text."""
        data: dict[str, Any] = asdict(self)
        for name in ("facts", "legend", "tables", "title"):
            del data[name]
        data["inks"] = [_ink(colour) for colour in self.colours]
        # nothing in the data can end the element that holds it
        text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
        folder = files("nestopt.core") / "page_files"
        style = (folder / "page.css").read_text(encoding="utf-8")
        script = (folder / "page.js").read_text(encoding="utf-8")
        facts = "".join(
            f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>"
            for key, value in self.facts
        )
        legend = "".join(
            f'<span><i style="background:{self.colours[colour]}"></i>{escape(name)}</span>'
            for name, colour in self.legend
        )
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(self.title)}</title>
<style>
{style}</style>
</head>
<body>
<h1>{escape(self.title)}</h1>
<dl class="facts">{facts}</dl>
<div class="bar">
<button id="play">Play</button>
<input id="slider" type="range" min="0" max="1000" step="any" value="0" aria-label="moment">
<output id="moment"></output>
<button id="closer" aria-label="zoom in">+</button>
<button id="wider" aria-label="zoom out">&minus;</button>
<button id="all">All</button>
</div>
<p class="legend">{legend}</p>
<canvas id="timeline"></canvas>
<p class="hint">Wheel: zoom (shift: rows). Drag: move. Click: set the moment. Hover: details.</p>
<canvas id="map"></canvas>
{"".join(_table(table) for table in self.tables)}
<div id="tip" class="tip"></div>
<script type="application/json" id="data">{text}</script>
<script>
{script}</script>
</body>
</html>
"""


def _ink(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "#000000" if ink((red, green, blue)) == "black" else "#ffffff"


def _table(table: Table) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f'<h2>{escape(table.title)}</h2>\n<div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>\n"
    )
