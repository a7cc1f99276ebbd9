"""Figure: the price of structure, over failures and over uneven networks.

The best contiguous plan (``dp``) against the best plan of the general space, on the same instance:
its slowdown, contiguous optimum / general optimum - 1. Where no exact method finished the
general space, the best general plan gives the least that the price can be; such instances are
counted, listed in the table, and left out of the figure.

    python paper_figs/price_of_structure.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from figure_tools import (
    Paths,
    by_name,
    count_of,
    failures,
    in_order,
    mean_by_unit,
    parameter,
    percent,
    percent_axis,
    slowdown,
    strips,
    tally,
    uneven,
)

from nestopt.study.comparison import (
    best_bounds,
    best_known,
    gap_between,
    grouped,
    instance_key,
    label,
    number,
    objective_key,
    optima,
    problem_key,
    proved,
    solved,
)
from nestopt.study.drawing import PAGE, style

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STUDY = "price-of-structure"
WHERE = """Plan space default-1, contiguous against general; random chains of 4 operators, batch
16, on
    trees of two nodes."""


@dataclass(frozen=True)
class Price:
    """One instance: the price, or the least and the most that it can be."""

    row: dict[str, Any]
    low: float
    high: float

    @property
    def exact(self) -> bool:
        """Whether both optima are proved."""
        return self.high - self.low <= 1e-6


def prices(rows: Sequence[dict[str, Any]]) -> tuple[list[Price], dict[str, str]]:
    """Prices of all instances that ``dp`` solved, and by label why the others have none."""
    general = [row for row in rows if problem_key(row)[3] == "general"]
    known, best, bounds = optima(general), best_known(rows), best_bounds(general)
    spaces = grouped(general, instance_key)
    found: list[Price] = []
    without: dict[str, str] = {}
    for row in rows:
        if row["solver"] != "dp":
            continue
        if not solved(row):
            runs = spaces.get(instance_key(row), [])
            none = proved(row) and runs and all(proved(r) and not solved(r) for r in runs)
            without[label(row)] = "infeasible in both spaces" if none else "without contiguous plan"
        elif not proved(row):
            without[label(row)] = "contiguous optimum not proved"
        elif instance_key(row) not in spaces:
            without[label(row)] = "general space not run"
        else:
            found.append(_price(row, known, best, bounds))
    return found, without


def _price(row: dict[str, Any], known: Any, best: Any, bounds: Any) -> Price:
    objective = float(row["objective"])
    key = (*objective_key(row), "general")
    if key in known:
        price = slowdown(gap_between(objective, known[key], label(row)))
        return Price(row, price, price)
    low = slowdown(gap_between(objective, best[objective_key(row)], label(row)))
    general = number(row["stats"].get("general_bound")) or 0.0
    bound = max(bounds[key], general, 0.0)
    high = slowdown(gap_between(objective, min(bound, objective), label(row)))
    return Price(row, low, high)


def build(paths: Paths) -> None:
    """Draw the figure and write its table."""
    found, without = prices(paths.read(STUDY))
    exact = [price for price in found if price.exact]
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE, 2.6))
        panels = figure.subplots(1, 2, sharey=True)
        for axes, name, key in zip(panels, ("failures", "uneven network"), (failures, uneven)):
            groups = {
                value: [100 * p.low for p in exact if key(p.row) == value]
                for value in in_order(key(p.row) for p in found)
            }
            strips(axes, groups, color="#0072B2", width=3.2)
            axes.set_xlabel(name)
        panels[0].set_ylabel("slowdown of contiguous plans, %")
        percent_axis(panels[0], [100 * p.low for p in exact])
        open_ones = len(found) - len(exact)
        paths.figure(
            "price_of_structure",
            figure,
            f"""Price of structure: the slowdown of the best contiguous plan, contiguous optimum /
            general optimum - 1, of {count_of(len(exact), "instance")} on which both optima are
            proved; every point is an instance, the line the median. {WHERE} Above: n, and how many
            have a slowdown above 1e-6. Linear up to 1 %,
            logarithmic above. Not drawn: {count_of(open_ones, "instance")} whose general optimum
            was not proved in time, others: {tally(without.values())}.""",
        )
    _table(paths, found, without)


def _table(paths: Paths, found: list[Price], without: dict[str, str]) -> None:
    rows = []
    kinds: tuple[tuple[str, Callable[[Any], str]], ...] = (
        ("family", lambda row: str(row["parameters"]["family"])),
        ("failures", failures),
        ("uneven", uneven),
        ("devices", lambda row: str(row["parameters"]["size"])),
        ("tree", lambda row: str(parameter(row, "tree", "cluster"))),
    )
    for name, key in kinds:
        for value in (by_name if name == "family" else in_order)(key(p.row) for p in found):
            rows.append(_line(name, value, [p for p in found if key(p.row) == value]))
    rows.append(_line("all", "", found))
    paths.table(
        "price_of_structure",
        ("by", "value", "n", "proved", "> 0", "slowdown: mean % [95 %]", "median %", "max %",
         "not proved: %"),
        rows,
        f"""Price of structure: slowdown, contiguous optimum / general optimum - 1. {WHERE} Proved:
        both optima; the figures to its right are over these. Mean: arithmetic, with the 95 %
        interval of a bootstrap that draws whole workloads (percentile, 4000 resamples). Not
        proved: least and greatest possible price over the others. Without a price:
        {tally(without.values())}.""",
        texts=2,
        listed=[f"{name}: {reason}" for name, reason in without.items()],
    )  # fmt: skip


def _line(name: str, value: str, found: list[Price]) -> list[Any]:
    proved_ones = sorted((p for p in found if p.exact), key=lambda p: p.low)
    exact, rows = [p.low for p in proved_ones], [p.row for p in proved_ones]
    others = [p for p in found if not p.exact]
    shown = ["–", "–", "–", "–"]
    if exact:
        middle = exact[len(exact) // 2], exact[(len(exact) - 1) // 2]
        shown = [
            str(sum(price > 1e-6 for price in exact)),
            mean_by_unit(exact, rows),
            percent(sum(middle) / 2),
            percent(exact[-1]),
        ]
    ends = "–"
    if others:
        low, high = min(p.low for p in others), max(p.high for p in others)
        ends = f"{percent(low)} to {percent(high)}"
    return [name, value, len(found), len(exact), *shown, ends]


if __name__ == "__main__":
    build(Paths())
