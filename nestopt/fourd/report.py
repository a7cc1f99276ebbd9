"""Reports of predicted beside measured figures: rows, statistics, and how they are printed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.fourd.waterfall import step_table

if TYPE_CHECKING:
    from rich.console import Console

    from nestopt.fourd.waterfall import Step

__all__ = ["Report", "Row", "Totals", "describe", "totals"]


ITERATION = "seconds an iteration"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure, its prediction, and whether the calibration saw it."""

    row: str
    measured: float
    predicted: float
    fitted: bool = False
    assumed: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return (self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True)
class Report:
    """A table's rows and statistics.

    Attributes
    ----------
    table, quantity : str
        Where the figures are from, and what they are, with the unit.
    rows : tuple of Row
    spearman : float or None
        Rank correlation of measured and predicted FLOP/s per device; None for other quantities.
    regret : float or None
        Largest, over groups of alternative ways to run the same job on as many devices, of measured
        time of the predicted best / measured time of the best - 1; None without such groups.
    steps : tuple of Step
        The same job as its overlaps are switched on one after the other.
    steps_of : str
        The decomposition that `steps` are of.
    remarks : tuple of str
        What explains a difference.
    """

    table: str
    quantity: str
    rows: tuple[Row, ...]
    spearman: float | None = None
    regret: float | None = None
    steps: tuple[Step, ...] = ()
    steps_of: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def fitted(self) -> int:
        """How many rows the calibration saw."""
        return sum(row.fitted for row in self.rows)

    @property
    def mape(self) -> float:
        """Mean absolute relative error of all rows."""
        return float(np.mean([abs(row.error) for row in self.rows]))

    @property
    def mape_predicted(self) -> float | None:
        """The same over the rows that were not fitted; None if all were."""
        errors = [abs(row.error) for row in self.rows if not row.fitted]
        return float(np.mean(errors)) if errors else None

    def to_json(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "table": self.table,
            "quantity": self.quantity,
            "mape": self.mape,
            "mape_of_rows_not_fitted": self.mape_predicted,
            "spearman": self.spearman,
            "regret": self.regret,
            "waterfall_of": self.steps_of or None,
            "waterfall": [asdict(step) for step in self.steps],
            "remarks": list(self.remarks),
            "rows": [
                {
                    "row": row.row,
                    "measured": row.measured,
                    "predicted": row.predicted,
                    "error": row.error,
                    "fitted": row.fitted,
                    "assumed": list(row.assumed),
                }
                for row in self.rows
            ],
        }


@dataclass(frozen=True, slots=True)
class Totals:
    """All rows of iteration times that no figure was fitted on, over all tables.

    Attributes
    ----------
    rows : int
    mape : float
        Mean absolute relative error.
    bias : float
        Mean relative error; below 0 where predictions are too fast.
    spearman : float or None
        Rank correlation of measured and predicted seconds.
    """

    rows: int
    mape: float
    bias: float
    spearman: float | None

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON."""
        return asdict(self)

    def __str__(self) -> str:
        text = f"All {self.rows} iteration times only predicted: MAPE {100 * self.mape:.1f} %, "
        text += f"bias {100 * self.bias:+.1f} %"
        return text if self.spearman is None else f"{text}, Spearman {self.spearman:.3f} (seconds)"


def totals(reports: list[Report]) -> Totals | None:
    """The totals of the reports of iteration times; None if there is no row only predicted."""
    from scipy.stats import spearmanr

    rows = [
        row
        for report in reports
        if report.quantity == ITERATION
        for row in report.rows
        if not row.fitted
    ]
    if not rows:
        return None
    errors = [row.error for row in rows]
    order = spearmanr([row.measured for row in rows], [row.predicted for row in rows]).statistic
    spearman = float(order) if len(rows) > 2 else None
    return Totals(len(rows), float(np.mean(np.abs(errors))), float(np.mean(errors)), spearman)


def describe(reports: list[Report], console: Console) -> None:
    """Print all rows and each table's statistics in 80 columns."""
    from rich.table import Table

    def say(text: str) -> None:
        console.print(fill(text, 78, initial_indent="  ", subsequent_indent="    "))

    for report in reports:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        table.add_column(f"{report.table}\n{report.quantity}", no_wrap=True, min_width=40)
        for column in ("measured", "predicted", "error", ""):
            table.add_column(column, justify="right", no_wrap=True)
        for row in report.rows:
            table.add_row(
                row.row,
                f"{row.measured:.4g}",
                f"{row.predicted:.4g}",
                f"{100 * row.error:+.1f} %",
                "fitted" if row.fitted else "",
            )
        console.print(table)
        say(_statistics(report))
        assumed = sorted({text for row in report.rows for text in row.assumed})
        if assumed:
            say("assumed: " + "; ".join(assumed))
        for remark in report.remarks:
            say(remark)
        if report.steps:
            say(f"seconds an iteration of {report.steps_of}:")
            console.print(step_table(report.steps))
        console.print()


def _statistics(report: Report) -> str:
    count, predicted = len(report.rows), report.mape_predicted
    parts = [f"MAPE {100 * report.mape:.1f} %"]
    if report.fitted and predicted is not None:
        left = count - report.fitted
        parts.append(f"{100 * predicted:.1f} % of the {left} rows only predicted")
        parts.append(f"{report.fitted} of {count} rows fitted")
    else:
        parts.append("no row fitted")
    if report.spearman is not None:
        parts.append(f"Spearman {report.spearman:.2f} (FLOP/s a device)")
    if report.regret is not None:
        parts.append(f"regret {100 * report.regret:.1f} %")
    return "; ".join(parts)
