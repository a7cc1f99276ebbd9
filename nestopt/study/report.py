"""One self-contained HTML page about a study: tables, pictures, and what it ran on.

The same records give the same bytes; nothing is fetched from elsewhere, and everything that comes
from a record is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.core.io import canonical_json, write_text
from nestopt.core.pictures import picture_bytes
from nestopt.study.comparison import GAPS, TICK, grouped, instance_key, label
from nestopt.study.directory import RECORDS, SPEC, open_study, status
from nestopt.study.drawing import style
from nestopt.study.provenance import mixtures
from nestopt.study.records import read_records
from nestopt.study.report_pictures import (
    gap_figure,
    profile_figure,
    size_parameter,
    time_figure,
)
from nestopt.study.spec import METRICS
from nestopt.study.statistics import FEWEST
from nestopt.study.summary import SHIFT, Against, Gaps, Summary, against, by_method, summarise
from nestopt.study.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from matplotlib.figure import Figure

    from nestopt.study.comparison import Record

__all__ = [
    "Contents",
    "contents_of",
    "page_of",
    "pictures_of",
    "summary_table",
    "write_report",
]

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; max-width: 76rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
p.note, figcaption { color: #555; font-size: .87rem; max-width: 60rem; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; border-top: 2px solid #333; border-bottom: 2px solid #333;
        font-size: .87rem; margin: .6rem 0; }
th { border-bottom: 1px solid #333; text-align: right; font-weight: 600; vertical-align: bottom; }
th, td { padding: .22rem .6rem; } td { text-align: right; font-variant-numeric: tabular-nums;
     white-space: nowrap; }
th.text, td.text { text-align: left; white-space: normal; }
figure { margin: 1rem 0; } img { width: 46rem; max-width: 100%; height: auto; }
@media print { @page { size: A4 landscape; margin: 1cm; } body { max-width: none; }
  div.wide { overflow: visible; } table { font-size: 6.5pt; width: 100%; }
  td, th { padding: .1rem .2rem; white-space: normal; overflow-wrap: anywhere; } }
code { font-size: .85rem; overflow-wrap: anywhere; } summary { cursor: pointer; }
"""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a report is about: records, title, the specification's hints, and warnings."""

    rows: list[Record]
    title: str
    hints: dict[str, Any]
    notes: list[str]


def contents_of(directory: str | Path) -> Contents:
    """The records of a study and what its specification says about its report.

    Parameters
    ----------
    directory : path
        Holds ``records.jsonl`` and, for title and hints, perhaps ``study.toml``; or the file of
        records itself.

    Raises
    ------
    InputError
        If there are no records, or a line is none.
    """
    place = Path(directory)
    path = place / RECORDS if place.is_dir() else place
    found = read_records(path)
    if not found.rows:
        raise InputError("holds no records: nothing to report", file=str(path))
    specification = place / SPEC
    title, hints, rows = "", {}, found.rows
    notes = ["The last line of the file of records was torn and is left out."] * found.torn
    if place.is_dir() and specification.is_file():
        plan = open_study(place)
        title, hints = plan.spec.title, plan.spec.report.model_dump()
        notes += _incomplete(place)
        known = {cell.id for cell in plan.cells}
        rows = [row for row in rows if row["cell"] in known]
        if len(rows) < len(found.rows):
            notes.append(
                f"{len(found.rows) - len(rows)} records are of cells that the specification does "
                "not have and are left out."
            )
    if not rows:
        raise InputError("holds no record of the specification's cells", file=str(path))
    return Contents(list(rows), title, hints, notes)


def write_report(directory: str | Path, target: str | Path) -> None:
    """Write the report of a study's directory as one HTML page.

    Parameters
    ----------
    directory : path
        See `contents_of`.
    target : path
        The HTML file.

    Raises
    ------
    InputError
        If there are no records, or a line is none.
    NestoptError
        If matplotlib is missing.
    """
    found = contents_of(directory)
    text = page_of(found.rows, title=found.title, hints=found.hints, notes=found.notes)
    write_text(target, text)


def _incomplete(directory: Path) -> list[str]:
    """What the specification asks for and the records do not have."""
    state = status(directory)
    missing = sum(state.missing.values())
    if not missing:
        return []
    parts = ", ".join(f"{name}: {count}" for name, count in state.missing.items() if count)
    return [f"Incomplete: {missing} of {state.cells} cells have no record ({parts})."]


def page_of(
    records: Sequence[Record],
    *,
    title: str = "",
    hints: dict[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> str:
    """The page's text.

    Parameters
    ----------
    records : sequence of mapping
        In any order; at least one.
    title : str
    hints : dict, optional
        ``group_by``, ``baseline``, ``x`` and ``metrics`` of a study's table ``[report]``; metrics
        choose columns and pictures, none means all.
    notes : sequence of str
        Warnings to print at the top.
    """
    hints = hints or {}
    metrics = [str(name) for name in hints.get("metrics") or ()]
    rows = sorted(records, key=_order)
    names = sorted({str(row.get("study", "study")) for row in rows})
    head = title or ", ".join(names)
    parts = [
        f"<h1>{escape(head)}</h1>",
        _paragraph(
            f"Study {', '.join(names)}: {len(rows)} runs on "
            f"{len({instance_key(row) for row in rows})} instances."
        ),
        *map(_paragraph, [*notes, *mixtures(rows)]),
        "<h2>Methods</h2>",
        summary_table([((), summary) for summary in by_method(rows)], (), metrics).html(),
        _paragraph(_explanation()),
    ]
    group_by = [str(name) for name in hints.get("group_by") or ()]
    if group_by:
        parts.append(f"<h2>By {escape(', '.join(group_by))}</h2>")
        parts.append(summary_table(summarise(rows, group_by), group_by, metrics).html())
    baseline = hints.get("baseline")
    if baseline:
        parts += _comparison(rows, str(baseline))
    parts.append("<h2>Pictures</h2>")
    parts += _pictures(rows, hints.get("x"), metrics)
    parts += _failures(rows)
    parts += _environment(rows)
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(head)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _order(record: Record) -> tuple[str, ...]:
    """The order of a page does not depend on the order in which cells finished."""
    return (
        str(record.get("study")),
        str(record.get("method")),
        instance_key(record),
        f"{record.get('seed') or 0:>12}",
        str(record.get("cell")),
    )


def _paragraph(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]], texts: int = 1) -> str:
    """A table whose first `texts` columns are text, the others numbers."""
    return Table("", head, list(rows), texts=texts).html()


def _percent(value: float) -> str:
    return "< 0.001 %" if 0 < value < 1e-5 else f"{100 * value:.3g} %"


def _gaps(gaps: Gaps | None) -> str:
    if gaps is None:
        return "–"
    return f"{_percent(gaps.mean)} ({_percent(gaps.largest)}; {gaps.count})"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


_COLUMNS: tuple[tuple[str, str, Callable[[Summary], Any]], ...] = (
    ("solved", "solved", lambda s: s.solved),
    ("solved", "proved", lambda s: s.proved),
    ("solved", "time limit", lambda s: s.timeouts),
    ("solved", "out of memory", lambda s: s.memory_limits),
    ("solved", "errors", lambda s: s.errors),
    ("gap-to-bound", "gap to bound, mean (max; n)", lambda s: _gaps(s.to_bound)),
    ("gap-to-optimum", "gap to optimum, mean (max; n)", lambda s: _gaps(s.to_optimum)),
    ("gap-to-best-known", "gap to best known, mean (max; n)", lambda s: _gaps(s.to_best_known)),
    ("objective", "objective, geometric mean", lambda s: _seconds(s.mean_objective)),
    ("time", "CPU time, s", lambda s: _seconds(s.mean_seconds)),
    (
        "primal-integral",
        "primal integral",
        lambda s: "–" if s.primal_integral is None else _percent(s.primal_integral),
    ),
)
"""Metric of a specification, name of a column, and its cell."""


def summary_table(
    found: Sequence[tuple[tuple[str, ...], Summary]],
    group_by: Sequence[str],
    metrics: Sequence[str] = (),
    name: str = "summary",
) -> Table:
    """Summaries as a table: the columns of the metrics asked for, or of all of them."""
    columns = [c for c in _COLUMNS if c[0] in (metrics or METRICS)]
    head = [*group_by, "method", "runs", "instances", *(title for _, title, _ in columns)]
    rows = [
        [*values, s.method, s.runs, s.instances, *(cell(s) for _, _, cell in columns)]
        for values, s in found
    ]
    return Table(name, head, rows, _explanation(), len(group_by) + 1)


def _explanation() -> str:
    gaps = "; ".join(f"{name}: {formula}" for name, formula in GAPS.items())
    return (
        f"{gaps}. Means are arithmetic, over the n runs that have the gap. CPU time: shifted "
        f"geometric mean, shift {SHIFT:g} s; runs that a limit or an error ended count at the "
        "limit in CPU seconds (older records, with a limit by the wall clock, at the CPU seconds "
        f"that they had used), those below {TICK:g} s at that. Objective: over the solved runs. "
        "Primal integral: arithmetic mean, as a share of the time limit, against the best "
        "objective known."
    )


def _comparison(rows: Sequence[Record], baseline: str) -> list[str]:
    found = against(rows, baseline)
    parts = [f"<h2>Against {escape(baseline)}</h2>"]
    if not found:
        return [*parts, _paragraph(f"No other method, or no run of {baseline}, is recorded.")]
    head = (
        "method", "pairs", "better", "equal", "worse", "not solved by both", "not run by both",
        f"slowdown: objective / {baseline}'s - 1", "95 % interval", "Wilcoxon p",
    )  # fmt: skip
    return [
        *parts,
        _table(head, [_against_row(a) for a in found]),
        _paragraph(
            "Pairs: instances that both ran, of several seeds the median. Slowdown: geometric mean "
            "of the ratios over the pairs that both solved, less 1; interval: bootstrap that draws "
            "whole workloads or networks, percentile, 4000 resamples, seed 0, for at least "
            f"{FEWEST} of them. "
            "Wilcoxon: two-sided signed-rank test over all pairs, no solution counted as infinite."
        ),
    ]


def _against_row(a: Against) -> list[Any]:
    ratio = ["–", "–"]
    if a.ratio is not None:
        low, high = a.ratio.low, a.ratio.high
        ratio = [_signed(a.ratio.estimate), "–"]
        if low < high:
            ratio[1] = f"{_signed(low)} to {_signed(high)}"
    test = "–" if a.test is None else f"{a.test.p_value:.3g}"
    return [a.method, a.pairs, a.better, a.equal, a.worse, a.unsolved, a.unpaired, *ratio, test]


def pictures_of(
    rows: Sequence[Record], x: Any = None, metrics: Sequence[str] = ()
) -> list[tuple[str, Figure | None]]:
    """The pictures of the metrics asked for, or all; None where the records do not allow one.

    To be called inside `nestopt.study.drawing.style`.
    """
    size = size_parameter(rows, None if x is None else str(x))
    makers: tuple[tuple[str, str, Callable[[], Figure | None]], ...] = (
        ("gap-to-bound", "distribution of the gap to bound", lambda: gap_figure(rows)),
        (
            "objective",
            "performance profile of the objective",
            lambda: profile_figure(rows, "objective"),
        ),
        ("time", "performance profile of the time", lambda: profile_figure(rows, "time")),
        ("time", "time against size", lambda: time_figure(rows, size) if size else None),
    )
    return [(name, make()) for metric, name, make in makers if metric in (metrics or METRICS)]


def _signed(ratio: float) -> str:
    """A ratio as a slowdown in per cent."""
    return f"{100 * (ratio - 1):.3g} %"


def _pictures(rows: Sequence[Record], x: Any, metrics: Sequence[str]) -> list[str]:
    parts = []
    with style():
        figures = pictures_of(rows, x, metrics)
        missing = [name for name, figure in figures if figure is None]
        for name, figure in figures:
            if figure is not None:
                data = base64.b64encode(picture_bytes(figure, "svg")).decode()
                parts.append(
                    f'<figure><img alt="{escape(name)}" '
                    f'src="data:image/svg+xml;base64,{data}"></figure>'
                )
    if missing:
        parts.append(_paragraph(f"The records do not allow: {', '.join(missing)}."))
    return parts


def _failures(rows: Sequence[Record]) -> list[str]:
    failed = grouped((row for row in rows if row.get("error")), lambda r: str(r["error"]))
    if not failed:
        return []
    lines = [
        (message if len(message) <= 300 else message[:297] + "...", label(group[0]), len(group))
        for message, group in failed.items()
    ]
    return ["<h2>What went wrong</h2>", _table(("error", "first", "runs"), lines, 2)]


def _environment(rows: Sequence[Record]) -> list[str]:
    def listed(key: str) -> list[tuple[str, int]]:
        found = grouped(rows, lambda r: canonical_json(r.get(key) or {}))
        return [
            (", ".join(f"{k} {v}" for k, v in sorted((group[0].get(key) or {}).items())) or "–",
             len(group))
            for group in found.values()
        ]  # fmt: skip

    limits = grouped(rows, lambda r: (r.get("time_limit"), r.get("memory_limit"), r.get("threads")))
    hashes = grouped(rows, lambda r: (str(r["instance"]["name"]), str(r["instance"]["sha256"])))
    digest = hashlib.sha256("\n".join(canonical_json(row) for row in rows).encode()).hexdigest()
    starts = sorted(str(row["started"]) for row in rows if row.get("started"))
    parts = [
        "<h2>Environment</h2>",
        _table(("versions", "runs"), listed("versions")),
        _table(("machine", "runs"), listed("machine")),
        _table(
            ("time limit, s", "memory limit, bytes", "threads", "runs"),
            [(*("–" if v is None else v for v in k), len(g)) for k, g in limits.items()],
        ),
    ]
    if starts:
        parts.append(_paragraph(f"First run started {starts[0]}, last {starts[-1]}."))
    inner = _table(
        ("instance", "sha256", "runs"), [(n, h, len(g)) for (n, h), g in hashes.items()], 2
    )
    parts.append(f"<details><summary>{len(hashes)} instances</summary>{inner}</details>")
    parts.append(f"<p>SHA-256 of the records: <code>{digest}</code></p>")
    return parts
