"""One self-contained HTML page about a study: tables, pictures, and what it ran on.

The same records give the same bytes; nothing is fetched from elsewhere, and everything that comes
from a record is escaped.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.core.io import canonical_json, write_text
from nestopt.study.comparison import GAPS, TICK, grouped, instance_key, label
from nestopt.study.directory import RECORDS, SPEC, status
from nestopt.study.drawing import picture_bytes, style
from nestopt.study.records import read_records
from nestopt.study.report_pictures import (
    gap_figure,
    profile_figure,
    size_parameter,
    time_figure,
)
from nestopt.study.summary import SHIFT, Against, Gaps, Summary, against, by_method, summarise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matplotlib.figure import Figure

    from nestopt.study.comparison import Record

__all__ = ["page_of", "write_report"]

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
code { font-size: .85rem; overflow-wrap: anywhere; } summary { cursor: pointer; }
"""


def write_report(directory: str | Path, target: str | Path) -> None:
    """Write the report of a study's directory.

    Parameters
    ----------
    directory : path
        Holds ``records.jsonl`` and, for title and hints, perhaps ``study.toml``; or the file of
        records itself.
    target : path
        The HTML file.

    Raises
    ------
    InputError
        If there are no records, or a line is none.
    NestoptError
        If matplotlib is missing.
    """
    place = Path(directory)
    path = place / RECORDS if place.is_dir() else place
    found = read_records(path)
    if not found.rows:
        raise InputError("holds no records: nothing to report", file=str(path))
    specification = place / SPEC
    title, hints = "", {}
    notes = ["The last line of the file of records was torn and is left out."] * found.torn
    if place.is_dir() and specification.is_file():
        from nestopt.study.spec import read_spec

        spec = read_spec(specification)
        title, hints = spec.title, spec.report.model_dump()
        notes += _incomplete(place)
    write_text(target, page_of(found.rows, title=title, hints=hints, notes=notes))


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
        ``group_by``, ``baseline`` and ``x`` of a study's table ``[report]``.
    notes : sequence of str
        Warnings to print at the top.
    """
    hints = hints or {}
    rows = sorted(records, key=_order)
    names = sorted({str(row.get("study", "study")) for row in rows})
    head = title or ", ".join(names)
    parts = [
        f"<h1>{escape(head)}</h1>",
        _paragraph(
            f"Study {', '.join(names)}: {len(rows)} runs on "
            f"{len({instance_key(row) for row in rows})} instances."
        ),
        *map(_paragraph, notes),
        "<h2>Methods</h2>",
        _summary_table([((), summary) for summary in by_method(rows)], ()),
        _paragraph(_explanation()),
    ]
    group_by = [str(name) for name in hints.get("group_by") or ()]
    if group_by:
        parts.append(f"<h2>By {escape(', '.join(group_by))}</h2>")
        parts.append(_summary_table(summarise(rows, group_by), group_by))
    baseline = hints.get("baseline")
    if baseline:
        parts += _comparison(rows, str(baseline))
    parts.append("<h2>Pictures</h2>")
    parts += _pictures(rows, hints.get("x"))
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

    def line(cells: Sequence[Any], tag: str) -> str:
        marks = [' class="text"' if i < texts else "" for i in range(len(cells))]
        return "".join(
            f"<{tag}{mark}>{escape(str(cell))}</{tag}>" for mark, cell in zip(marks, cells)
        )

    body = "\n".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return (
        f'<div class="wide"><table>\n<thead><tr>{line(head, "th")}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def _percent(value: float) -> str:
    return "< 0.001 %" if 0 < value < 1e-5 else f"{100 * value:.3g} %"


def _gaps(gaps: Gaps | None) -> str:
    if gaps is None:
        return "–"
    return f"{_percent(gaps.mean)} ({_percent(gaps.largest)}; {gaps.count})"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _summary_table(
    found: Sequence[tuple[tuple[str, ...], Summary]], group_by: Sequence[str]
) -> str:
    head = [
        *group_by, "method", "runs", "instances", "solved", "proved", "timeouts", "out of memory",
        "errors", "gap to bound (max; n)", "gap to optimum (max; n)", "gap to best known (max; n)",
        "CPU time, s", "primal integral",
    ]  # fmt: skip
    rows = [
        [
            *values, s.method, s.runs, s.instances, s.solved, s.proved, s.timeouts,
            s.memory_limits, s.errors, _gaps(s.to_bound), _gaps(s.to_optimum),
            _gaps(s.to_best_known), _seconds(s.mean_seconds),
            "–" if s.primal_integral is None else _percent(s.primal_integral),
        ]
        for values, s in found
    ]  # fmt: skip
    return _table(head, rows, len(group_by) + 1)


def _explanation() -> str:
    gaps = "; ".join(f"{name}: {formula}" for name, formula in GAPS.items())
    return (
        f"{gaps}. Means are arithmetic, over the n runs that have the gap. CPU time: shifted "
        f"geometric mean, shift {SHIFT:g} s; runs that a limit or an error ended count at the time "
        f"limit, those below {TICK:g} s at that. Primal integral: arithmetic mean, as a share of "
        "the time limit, against the best objective known."
    )


def _comparison(rows: Sequence[Record], baseline: str) -> list[str]:
    found = against(rows, baseline)
    parts = [f"<h2>Against {escape(baseline)}</h2>"]
    if not found:
        return [*parts, _paragraph(f"No other method, or no run of {baseline}, is recorded.")]
    head = (
        "method", "pairs", "better", "equal", "worse", "not solved by both", "not run by both",
        f"objective / {baseline}'s", "95 % interval", "Wilcoxon p",
    )  # fmt: skip
    return [
        *parts,
        _table(head, [_against_row(a) for a in found]),
        _paragraph(
            "Pairs: instances that both ran, of several seeds the median. Ratio: geometric mean "
            "over the pairs that both solved; interval: bootstrap, BCa, 4000 resamples, seed 0. "
            "Wilcoxon: two-sided signed-rank test over all pairs, no solution counted as infinite."
        ),
    ]


def _against_row(a: Against) -> list[Any]:
    ratio = ["–", "–"]
    if a.ratio is not None:
        ratio = [f"{a.ratio.estimate:.4f}", f"{a.ratio.low:.4f} to {a.ratio.high:.4f}"]
    test = "–" if a.test is None else f"{a.test.p_value:.3g}"
    return [a.method, a.pairs, a.better, a.equal, a.worse, a.unsolved, a.unpaired, *ratio, test]


def _pictures(rows: Sequence[Record], hint: Any) -> list[str]:
    parts = []
    size = size_parameter(rows, None if hint is None else str(hint))
    with style():
        figures: list[tuple[str, Figure | None]] = [
            ("distribution of the gap to bound", gap_figure(rows)),
            ("performance profile of the objective", profile_figure(rows, "objective")),
            ("performance profile of the time", profile_figure(rows, "time")),
            ("time against size", time_figure(rows, size) if size else None),
        ]
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
