"""Tables of studies, written as HTML, LaTeX or CSV; no column is lost where a page is narrow."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["TEXT_WIDTH", "Table", "latex", "width_of"]

TEXT_WIDTH = 345.0
"""Points: the width of text of LaTeX's class article at 10 pt, the narrowest page in use."""

ROWS = 46
"""Rows that fit on a page beside a caption."""

_SEPARATION = 6.0
_SCALE = 8 * 1.0625 / 1000
"""Points of a thousandth of an em in footnotesize; the 8 pt cut is 1/16 wider than the 10 pt."""

_LETTERS = {
    280: "!',.:;[]`il", 310: "fj", 330: " -", 360: "I_", 390: "()rst", 440: "cez", 470: "?",
    500: '"$*/0123456789\\^ago{}~–', 510: "J", 530: "kqvxy", 560: "Sbdhnpu", 610: "Z", 620: "L",
    650: "F", 680: "EP", 710: "B", 720: "CTw", 740: "R", 750: "AHNUVXY", 760: "D",
    780: "&+=<>@GKOQ", 830: "#%m", 920: "M", 1000: "|", 1030: "W",
}  # fmt: skip
_WIDTHS = {letter: width for width, letters in _LETTERS.items() for letter in letters}
"""Thousandths of an em of Computer Modern's letters, as the font's metrics have them."""

_LATEX = {
    "\\": "\\textbackslash{}", "&": "\\&", "%": "\\%", "$": "\\$", "#": "\\#", "_": "\\_",
    "{": "\\{", "}": "\\}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}",
    "<": "\\textless{}", ">": "\\textgreater{}", "–": "--",
}  # fmt: skip


def latex(text: Any) -> str:
    """Text that LaTeX prints as it is."""
    return re.sub(r"[\\&%$#_{}~^<>–]", lambda found: _LATEX[found.group()], str(text))


def width_of(text: str) -> float:
    """Points that a text takes at 8 pt (footnotesize) in Computer Modern, without kerning."""
    return _SCALE * sum(_WIDTHS.get(letter, 1000) for letter in text)


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns' names, its rows, and a note that says what the figures are.

    Attributes
    ----------
    name : str
        Of files.
    head : sequence of str
    rows : sequence of sequence of str
    note : str
    texts : int
        The first columns that are text; they stand in every part of a table that is split.
    """

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    texts: int = 1

    def html(self) -> str:
        """The table as HTML; in print its cells break instead of running over the edge."""

        def line(cells: Sequence[Any], tag: str) -> str:
            marks = [' class="text"' if i < self.texts else "" for i in range(len(cells))]
            return "".join(
                f"<{tag}{mark}>{escape(str(cell))}</{tag}>" for mark, cell in zip(marks, cells)
            )

        body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in self.rows)
        return (
            f'<div class="wide"><table>\n<thead><tr>{line(self.head, "th")}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody>\n</table></div>"
        )

    def csv(self) -> str:
        """The table as CSV with a line of names."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.head)
        writer.writerows(self.rows)
        return text.getvalue()

    def widths(self) -> list[float]:
        """Points of each column, both separations included."""
        columns = zip(self.head, *([str(cell) for cell in row] for row in self.rows))
        return [max(map(width_of, column)) + _SEPARATION for column in columns]

    def _fitted(self, width: float = TEXT_WIDTH) -> list[float]:
        """The widths, the widest text column narrowed if so the table fits on the page as a whole.

        Otherwise it leaves room for the widest column of numbers.
        """
        widths = self.widths()
        if not self.texts:
            return widths
        over = sum(widths) - width
        widest = max(range(self.texts), key=widths.__getitem__)
        if over > 0.5 * widths[widest]:
            over = sum(widths[: self.texts]) + max(widths[self.texts :], default=0.0) - width
        widths[widest] -= min(max(over, 0.0), 0.75 * widths[widest])
        return widths

    def parts(self, width: float = TEXT_WIDTH, rows: int = ROWS) -> list[Table]:
        """The table, split where it is wider or longer than a page.

        Text columns are repeated; the widest of them breaks into lines where that saves the split
        or it leaves no room for a column of numbers.
        """
        widths = self._fitted(width)
        fixed = sum(widths[: self.texts])
        blocks: list[list[int]] = [[]]
        used = fixed
        for column in range(self.texts, len(self.head)):
            if blocks[-1] and used + widths[column] > width:
                blocks.append([])
                used = fixed
            blocks[-1].append(column)
            used += widths[column]
        chosen = [[*range(self.texts), *block] for block in blocks]
        lengths = range(0, max(1, len(self.rows)), rows)
        return [
            Table(
                self.name,
                [self.head[i] for i in columns],
                [[row[i] for i in columns] for row in self.rows[start : start + rows]],
                self.note,
                self.texts,
            )
            for start in lengths
            for columns in chosen
        ]

    def tabular(self, width: float = TEXT_WIDTH) -> str:
        """A booktabs ``tabular`` in small type; needs the package booktabs."""
        wanted, given = self.widths(), self._fitted(width)

        def line(cells: Sequence[Any]) -> str:
            shown = [latex(cell) for cell in cells]
            for i, (full, room) in enumerate(zip(wanted, given)):
                if room < full and width_of(str(cells[i])) + _SEPARATION > room:
                    box = f"\\parbox[t]{{{room - _SEPARATION:.0f}pt}}"
                    shown[i] = f"{box}{{\\raggedright {shown[i]}\\strut}}"
            return " & ".join(shown) + " \\\\"

        lines = [
            "{\\footnotesize\\setlength{\\tabcolsep}{3pt}%",
            f"\\begin{{tabular}}{{{'l' * self.texts}{'r' * (len(self.head) - self.texts)}}}",
            "\\toprule",
            line(self.head),
            "\\midrule",
            *map(line, self.rows),
            "\\bottomrule",
            "\\end{tabular}}",
        ]
        return "\n".join(lines) + "\n"

    def floats(self, width: float = TEXT_WIDTH, rows: int = ROWS) -> list[str]:
        """A ``table`` with its caption for each part; ``\\input`` it between paragraphs."""
        parts = self.parts(width, rows)
        found = []
        for number, part in enumerate(parts, 1):
            which = f" (Part {number} of {len(parts)}.)" if len(parts) > 1 else ""
            found.append(
                "\\begin{table}\n\\centering\n"
                f"\\caption{{{latex(' '.join(self.note.split()) + which)}}}\n"
                f"{part.tabular(width)}\\end{{table}}\n"
            )
        return found
