"""A study's own tables and pictures as files: LaTeX, CSV, PDF and PNG."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.core.io import write_bytes, write_text
from nestopt.core.pictures import picture_bytes
from nestopt.study.drawing import style
from nestopt.study.report import contents_of, pictures_of, summary_table
from nestopt.study.summary import Gaps, Summary, by_method, summarise
from nestopt.study.tables import Table

if TYPE_CHECKING:
    from nestopt.study.report import Contents

__all__ = ["csv_table", "write_csv", "write_figures", "write_latex"]


def _folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from error
    return path


def _groups(found: Contents) -> list[str]:
    return [str(name) for name in found.hints.get("group_by") or ()]


def write_latex(directory: str | Path, target: Path) -> list[Path]:
    """Write ``methods.tex`` and, with groupings, ``groups.tex``; further parts have a number.

    Parameters
    ----------
    directory : path
        See `nestopt.study.report.contents_of`.
    target : Path
        A folder, made if need be.

    Returns
    -------
    list of Path
        The files that were written.
    """
    found = contents_of(directory)
    metrics, group_by = found.hints.get("metrics") or (), _groups(found)
    tables = [summary_table([((), s) for s in by_method(found.rows)], (), metrics, "methods")]
    if group_by:
        grouped = summarise(found.rows, group_by)
        tables.append(summary_table(grouped, group_by, metrics, "groups"))
    written = []
    for table in tables:
        for number, text in enumerate(table.floats(), 1):
            name = table.name if number == 1 else f"{table.name}-{number}"
            written.append(_folder(target) / f"{name}.tex")
            write_text(written[-1], text)
    return written


def csv_table(found: Contents) -> Table:
    """One line for each group and method, with plain numbers; gaps and shares are not per cent."""
    group_by = _groups(found)
    rows = summarise(found.rows, group_by)
    names = [*group_by, *_plain(rows[0][1])]
    return Table("summary", names, [[*values, *_plain(s).values()] for values, s in rows])


def _plain(summary: Summary) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for key in Summary.__slots__:
        value = getattr(summary, key)
        if key.startswith("to_"):
            parts = dict.fromkeys(Gaps.__slots__) if value is None else asdict(value)
            cells |= {f"gap_{key}_{name}": number for name, number in parts.items()}
        else:
            cells[key] = value
    return {key: "" if value is None else value for key, value in cells.items()}


def write_csv(directory: str | Path, target: str | Path) -> list[Path]:
    """Write `csv_table` of a study's directory."""
    write_text(target, csv_table(contents_of(directory)).csv())
    return [Path(target)]


def write_figures(directory: str | Path, target: Path) -> list[Path]:
    """Write each picture of the report as PDF and PNG; the same records give the same bytes."""
    found = contents_of(directory)
    written = []
    with style():
        hints = found.hints
        for name, figure in pictures_of(found.rows, hints.get("x"), hints.get("metrics") or ()):
            if figure is None:
                continue
            for ending in ("pdf", "png"):
                written.append(_folder(target) / f"{name.replace(' ', '-')}.{ending}")
                write_bytes(written[-1], picture_bytes(figure, ending))
    return written
