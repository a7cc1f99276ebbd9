"""What the figure scripts share: records in; PDF, PNG, caption and LaTeX table out.

A script has ``build(paths)`` and draws from ``records/STUDY.jsonl`` alone; the same records give
the same bytes. A figure that lacks its records is not drawn, and ``make_all.py`` says so.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError
from nestopt.core.io import read_json, write_text
from nestopt.core.pictures import picture_bytes
from nestopt.study.comparison import drawn_unit
from nestopt.study.drawing import plain
from nestopt.study.records import read_records
from nestopt.study.statistics import Interval, cluster_interval
from nestopt.study.tables import Table, latex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
SEED = 20240501
"""Of all bootstrap intervals."""


CELLS = "cells.json"
"""Beside the records: how many cells each study has, by name (written by ``collect.py``)."""


class NoRecordsError(InputError):
    """The records that a figure needs are not there."""


@dataclass(frozen=True)
class Paths:
    """Where records are read and results written.

    `written` grows with the names of what was written; `incomplete` with a sentence for each study
    read that has cells without a record, which goes into the captions.
    """

    records: Path = HERE / "records"
    figures: Path = HERE / "figures"
    tables: Path = HERE / "tables"
    written: list[str] = field(default_factory=list)
    incomplete: list[str] = field(default_factory=list)

    def read(self, study: str) -> list[dict[str, Any]]:
        """The records of a study, in an order of their own.

        Raises
        ------
        NoRecordsError
            If there are none.
        """
        path = self.records / f"{study}.jsonl"
        rows = read_records(path).rows
        if not rows:
            raise NoRecordsError("no records", file=str(path.name))
        cells = cells_of(self.records).get(study, len(rows))
        if cells > len(rows):
            self.incomplete.append(f"Study {study}: only {len(rows)} of {cells} cells have run.")
        return sorted(rows, key=lambda row: row["cell"])

    def read_some(self, studies: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
        """The records of those studies that have any, and the names of the others.

        Raises
        ------
        NoRecordsError
            If none has any.
        """
        rows: list[dict[str, Any]] = []
        missing = []
        for study in studies:
            try:
                rows += self.read(study)
            except NoRecordsError:
                missing.append(f"study {study}")
        if not rows:
            names = " or ".join(f"{study}.jsonl" for study in studies)
            raise NoRecordsError("no records", file=names)
        return rows, missing

    def figure(self, name: str, figure: Figure, caption: str) -> None:
        """Write ``NAME.pdf``, ``NAME.png`` and the caption ``NAME.tex``; needs the style."""
        self.figures.mkdir(parents=True, exist_ok=True)
        for ending in ("pdf", "png"):
            (self.figures / f"{name}.{ending}").write_bytes(picture_bytes(figure, ending))
            self.written.append(f"figures/{name}.{ending}")
        text = " ".join([*caption.split(), *self.incomplete])
        write_text(self.figures / f"{name}.tex", latex(text) + "\n")
        self.written.append(f"figures/{name}.tex")

    def table(
        self,
        name: str,
        head: Sequence[str],
        rows: Iterable[Sequence[Any]],
        note: str,
        *,
        texts: int = 1,
        listed: Iterable[str] = (),
    ) -> None:
        """Write a booktabs table ``NAME.tex`` and its caption.

        What is wider or longer than a page goes on in ``NAME-2.tex`` and so on, its texts repeated.
        ``NAME.float.tex`` has all parts as floats with their captions. In a document of one's own
        the caption is ``\\caption{\\protect\\input{NAME.caption}}``.

        `note` states means, denominators and counts; `listed`, what is left out one by one, goes
        into comments of the table.
        """
        self.tables.mkdir(parents=True, exist_ok=True)
        caption = " ".join([*note.split(), *self.incomplete])
        whole = Table(name, list(head), [list(row) for row in rows], caption, texts)
        comments = "".join(f"% {text}\n" for text in sorted(listed))
        for old in self.tables.glob(f"{name}-*.tex"):
            old.unlink()  # a former build may have had more parts
        for number, part in enumerate(whole.parts(), 1):
            file = f"{name}.tex" if number == 1 else f"{name}-{number}.tex"
            write_text(self.tables / file, (comments if number == 1 else "") + part.tabular())
            self.written.append(f"tables/{file}")
        write_text(self.tables / f"{name}.caption.tex", latex(caption) + "\n")
        write_text(self.tables / f"{name}.float.tex", "\n".join(whole.floats()))
        self.written.extend((f"tables/{name}.caption.tex", f"tables/{name}.float.tex"))


def cells_of(records: Path) -> dict[str, int]:
    """The number of cells of each study that was collected into a folder."""
    path = records / CELLS
    return read_json(path) if path.exists() else {}


def compact(rows: Iterable[Mapping[str, Any]], path: Path, *, traces: bool = False) -> None:
    """Write records for the repository: sorted by cell, without traces unless they are needed."""
    lines = [
        json.dumps({**row, "trace": row["trace"] if traces else []}, separators=(",", ":"))
        for row in sorted(rows, key=lambda row: row["cell"])
    ]
    write_text(path, "".join(line + "\n" for line in lines))


def parameter(row: Mapping[str, Any], *names: str) -> Any:
    """The first of the parameters that the record has; None if it has none of them."""
    found = row["parameters"]
    return next((found[name] for name in names if name in found), None)


def uneven(row: Mapping[str, Any]) -> str:
    """How uneven the network is: the recipes of its record, or ``none``."""
    parts = [str(parameter(row, name)) for name in ("heterogeneity", "degraded")]
    return " + ".join(in_words(part) for part in parts if part not in ("None", "none")) or "none"


def in_words(recipe: str) -> str:
    """A recipe of the generator as a reader of a figure needs it; others with blanks for marks."""
    kind, _, rest = recipe.partition(":")
    values = rest.split(",")
    if kind == "log-uniform" and len(values) == 2:
        return f"links {values[0]} to {values[1]} times, log-uniform"
    if kind == "choice":
        return f"links {', '.join(values[:-1])} or {values[-1]} times"
    if kind == "uplink" and len(values) == 2:
        return f"uplinks {values[0]} to {values[1]} times"
    if kind == "mix":
        return f"{' and '.join(value.upper() for value in values)} mixed"
    if kind in ("degraded-links", "degraded-devices", "degraded") and len(values) == 2:
        unit = {"degraded-links": "link", "degraded-devices": "device"}.get(kind, "part")
        return f"{count_of(int(values[0]), unit)} at {values[1]}"
    return f"{kind.replace('-', ' ')} {', '.join(values)}".strip()


def failures(row: Mapping[str, Any]) -> str:
    """The failures of a record in words: ``none``, ``2 NPUs``, ``1 link``."""
    parts = []
    npu = "device" if row["instance"]["problem"] == "placement" else "NPU"
    for name, unit in (("fail_npus", npu), ("fail_links", "link")):
        count = parameter(row, name)
        if count:
            parts.append(count_of(count, unit))
    for name in ("fail_groups", "fail_rates"):
        text = parameter(row, name)
        if text not in (None, "none"):
            days = parameter(row, "days") if name == "fail_rates" else None
            parts.append(f"{text}, {days:g} days" if days else _group(str(text)))
    return " + ".join(parts) or "none"


def _group(text: str) -> str:
    """``level0,1`` as ``1 node``: a whole group of that level failed."""
    level, _, many = text.partition(",")
    if not many.isdigit():
        return f"group {text}"
    return count_of(int(many), "node" if level in ("level0", "node") else f"group of {level}")


def by_name(values: Iterable[str]) -> list[str]:
    """Distinct labels of methods or families, by name; those of dp and greedy first."""
    return sorted(set(values), key=lambda text: (not text.startswith(("dp", "greedy")), text))


def in_order(values: Iterable[str]) -> list[str]:
    """Distinct values of a parameter: ``none`` first, then by their first number, then by text."""

    def key(text: str) -> tuple[bool, float, str]:
        found = re.search(r"\d+(\.\d+)?", text)
        return text != "none", float(found.group()) if found else float("inf"), text

    return sorted(set(values), key=key)


def mean_by_unit(values: Sequence[float], rows: Sequence[Mapping[str, Any]]) -> str:
    """Arithmetic mean in per cent with its 95 % interval, ``1.05 [0.91, 1.20]``.

    The interval is of a bootstrap that draws whole workloads or networks
    (`nestopt.study.comparison.drawn_unit`), percentile, 4000 resamples; with fewer than five of
    them there is none.
    """
    units = [drawn_unit(row) for row in rows]
    found = cluster_interval(values, units, np.random.default_rng(SEED))
    return percent(float(np.mean(values))) if found is None else between(found, percent)


def slowdown(gap: float) -> float:
    """objective / best - 1 of a gap (objective - best) / objective."""
    return gap / (1 - gap) if gap < 1 else float("inf")


def percent(value: float, digits: int = 3) -> str:
    """A share in per cent, ``12.3``."""
    return f"{100 * value:.{digits}g}"


def between(found: Interval, show: Callable[[float], str]) -> str:
    """``1.05 [1.01, 1.10]``."""
    return f"{show(found.estimate)} [{show(found.low)}, {show(found.high)}]"


def count_of(number: int, noun: str) -> str:
    """``1 run``, ``3 runs``."""
    return f"{number} {noun}" + "s" * (number != 1)


def strips(
    axes: Axes,
    groups: Mapping[str, Sequence[float]],
    *,
    color: str,
    width: float,
) -> None:
    """All values of each group beside each other; the bar is their median.

    No interval is drawn: cells of a designed grid are no sample. Above stands how many there are,
    and how many above 1e-4 (per cent). `width` is that of the axes in inches, by which the groups'
    names are broken into lines. Values are spread sideways in the order of their size, so that the
    picture is repeatable.
    """
    for place, values in enumerate(groups.values()):
        array = np.sort(np.asarray(values, dtype=np.float64))
        if array.size:
            spread = ((np.arange(array.size) * 0.61803398875) % 1 - 0.5) * 0.6
            axes.plot(
                place + spread, array, linestyle="none", marker="o", markersize=2.4, color=color,
                alpha=0.45, markeredgewidth=0, zorder=2,
            )  # fmt: skip
            middle = float(np.median(array))
            axes.hlines(middle, place - 0.36, place + 0.36, color="#000000", zorder=4)
        axes.annotate(
            f"n = {len(values)}\n{sum(v > 1e-4 for v in values)} > 0", (place, 1.0),
            xycoords=("data", "axes fraction"), ha="center", va="bottom", fontsize=6,
        )  # fmt: skip
    letters = max(6, int(width / max(1, len(groups)) / 0.058))
    axes.set_xticks(range(len(groups)), [wrapped(name, letters) for name in groups], fontsize=6)
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.grid(visible=False, axis="x")


def wrapped(text: str, width: int) -> str:
    """A label on several lines, broken after commas, colons, pluses, hyphens and blanks."""
    lines = [""]
    for part in re.findall(r"[^\s,:+-]+[,:+-]?\s*|[,:+-]\s*", text):
        if lines[-1] and len(lines[-1]) + len(part.strip()) > width:
            lines.append("")
        lines[-1] += part
    return plain("\n".join(line.strip() for line in lines))


def tally(reasons: Iterable[str]) -> str:
    """How many of each: ``3 infeasible, 1 not run``, or ``none``."""
    counts = Counter(reasons)
    return ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items())) or "none"


def percent_axis(axes: Axes, values: Iterable[float], linear: float = 1.0) -> None:
    """The y axis of gaps in per cent: linear up to `linear`, logarithmic above."""
    top = min(100.0, 1.6 * max([*values, linear]))
    axes.set_yscale("symlog", linthresh=linear, linscale=0.6)
    steps = (1, 2, 5) if top < 20 * linear else (1,)
    ticks = [0.0, *(linear * step * 10**k for k in range(6) for step in steps)]
    ticks = [tick for tick in ticks if tick <= top * 1.001]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(-0.06 * linear, top)
