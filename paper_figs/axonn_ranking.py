"""Figure and tables: predictions against measured runs, AxoNN's ranking, and what 4D adds to dp.

Left: ``nestopt validate --json > records/validation.json``. Middle and right: the study, with the
method ``rank4d`` in its modes, and ``dp`` with and without ``decomposition=4d``.

    python paper_figs/axonn_ranking.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from figure_tools import (
    NoRecordsError,
    Paths,
    by_name,
    count_of,
    percent,
    percent_axis,
    strips,
    tally,
)

from nestopt.core.io import read_json
from nestopt.study.comparison import grouped, instance_key, joined, label, number, solved
from nestopt.study.drawing import PAGE, line_styles, log_scale, plain, style

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

STUDY = "axonn-ranking"
VALIDATION = "validation.json"
TIMES = "seconds an iteration"
NAMES = {
    "narayanan2021_table1": "Narayanan 2021, table 1",
    "narayanan2021_table2": "Narayanan 2021, table 2",
    "korthikanti2022_table5": "Korthikanti 2022, table 5",
    "megascale2024_table2": "MegaScale 2024, table 2",
    "mtnlg_530b": "MT-NLG 2022",
    "megatron_core_h100_readme": "Megatron-Core, H100",
    "llama3_405b_table4": "Llama 3, table 4",
    "axonn_80b": "AxoNN, 80B",
    "axonn_20b": "AxoNN, 20B",
    "korthikanti2022_table4": "Korthikanti 2022, table 4",
    "korthikanti2022_fig1 states": "Korthikanti 2022, fig. 1, states",
    "korthikanti2022_fig1 activations": "Korthikanti 2022, fig. 1, activations",
    "korthikanti2022_fig7": "Korthikanti 2022, fig. 7",
}


def build(paths: Paths) -> None:
    """Draw the figure and write its tables."""
    tables = _validation(paths)
    missing = [] if tables else [VALIDATION]
    try:
        rows = paths.read(STUDY)
    except NoRecordsError:
        rows = []
        missing.append(f"{STUDY}.jsonl")
    if not tables and not rows:
        raise NoRecordsError("no records", file=f"{VALIDATION} and {STUDY}.jsonl")
    rankings = [row for row in rows if row["solver"] == "rank4d"]
    pairs, alone = _pairs([row for row in rows if row["solver"] == "dp"])
    times = [table for table in tables if table["quantity"] == TIMES]
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE, 2.6))
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.25, 0.9, 0.9))
        errors = _measured(left, times)
        _regrets(middle, rankings)
        _gains(right, pairs)
        unsolved = tally(str(row["method"]) for row in rows if not solved(row))
        paths.figure(
            "axonn_ranking",
            figure,
            f"""Left: iteration time predicted against measured,
            {count_of(sum(len(table["rows"]) for table in times), "run")} of
            {count_of(len(times), "table")}; open marks: the calibration saw them; dashes: 10 % to
            either side. Mean absolute relative error of the {len(errors)} others
            {percent(float(np.mean(errors))) if errors else "–"} %. Middle: regret of a ranking of
            the 4D decompositions by AxoNN's communication model, as published and corrected:
            iteration time, by the full model, of the first in the ranking that fits the memory,
            over that of the best one, less 1 (a slowdown); a point is a model on a cluster, the
            line the median. Right: slowdown of dp with Megatron's tensor parallelism only,
            its iteration time / that of dp with 4D decompositions - 1, overlap as in default-1;
            {count_of(len(pairs), "pair")}. Runs without a
            solution: {unsolved}; runs of dp without a partner:
            {", ".join(alone) or "none"}. Missing: {", ".join(missing) or "nothing"}.""",
        )
    _validation_table(paths, tables)
    _ranking_table(paths, rankings, pairs)


def _validation(paths: Paths) -> list[dict[str, Any]]:
    """The tables of ``nestopt validate``; of iteration times the figure, of all the LaTeX table."""
    path = paths.records / VALIDATION
    return read_json(path)["tables"] if path.exists() else []


def _job(row: dict[str, Any]) -> tuple[str, str]:
    return str(row["parameters"].get("workload")), str(row["parameters"].get("cluster"))


def _order(job: tuple[str, str]) -> tuple[str, int, str]:
    machine, _, size = job[1].partition("-")
    digits = "".join(c for c in size if c.isdigit())
    return machine, int(digits or 0), job[0]


def _is_4d(row: dict[str, Any]) -> bool:
    return row["settings"].get("decomposition") == "4d"


def _pairs(plans: Sequence[dict[str, Any]]) -> tuple[list[Any], list[str]]:
    """(dp with Megatron's tensor parallelism, dp with 4D) on one instance; those without either."""
    with_4d = [row for row in plans if _is_4d(row)]
    without = [row for row in plans if not _is_4d(row)]
    keys = {instance_key(row) for row in with_4d} & {instance_key(row) for row in without}
    alone = [label(row) for row in plans if instance_key(row) not in keys]
    left = [row for row in without if instance_key(row) in keys]
    found = joined(left, [row for row in with_4d if instance_key(row) in keys], instance_key)
    return [(a, b) for a, b in found if solved(a) and solved(b)], alone


def _measured(axes: Axes, tables: Sequence[dict[str, Any]]) -> list[float]:
    """Draw the iteration times; absolute relative errors of what was not fitted."""
    errors, every = [], [1.0, 10.0]
    looks = line_styles([table["table"] for table in tables])
    for table in tables:
        look = looks[table["table"]]
        for fitted in (False, True):
            marks = [row for row in table["rows"] if row["fitted"] is fitted]
            axes.plot(
                [row["measured"] for row in marks],
                [row["predicted"] for row in marks],
                linestyle="none",
                marker=look["marker"],
                markersize=3.2,
                color=look["color"],
                markerfacecolor="none" if fitted else look["color"],
                label=None if fitted else NAMES.get(table["table"], table["table"]),
            )
            every += [row[key] for row in marks for key in ("measured", "predicted")]
            errors += [] if fitted else [abs(row["error"]) for row in marks]
    ends = np.array([min(every) / 1.3, max(every) * 1.3])
    axes.plot(ends, ends, color="#000000", linewidth=0.6, zorder=1)
    for factor in (0.9, 1.1):
        axes.plot(
            ends, ends * factor, color="#000000", linewidth=0.4, linestyle=(0, (4, 3)), zorder=1
        )
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    log_scale(axes, "x")
    log_scale(axes, "y")
    axes.set_aspect("equal")
    axes.set_xlabel("measured iteration, s")
    axes.set_ylabel("predicted iteration, s")
    if tables:
        axes.legend(loc="upper left", fontsize=5, handletextpad=0.1, borderaxespad=0.1)
    else:
        _empty(axes)
    return errors


def _regret(row: dict[str, Any]) -> float:
    bound = number(row["bound"])
    return 100 * (float(row["objective"]) / bound - 1) if bound else 0.0


def _regrets(axes: Axes, rankings: Sequence[dict[str, Any]]) -> None:
    """Strips of the regrets by communication model; the full model has none."""
    chosen = [row for row in rankings if solved(row) and row["settings"].get("mode") != "full"]
    groups = grouped(chosen, lambda row: str(row["method"]))
    regrets = {name: [_regret(row) for row in groups[name]] for name in by_name(groups)}
    axes.set_ylabel("regret (slowdown), %")
    axes.set_xlabel("communication model")
    if regrets:
        strips(axes, regrets, color="#0072B2", width=2.0)
        percent_axis(axes, [value for values in regrets.values() for value in values])
    else:
        _empty(axes)


def _gains(axes: Axes, pairs: Sequence[Any]) -> None:
    ordered = sorted(pairs, key=lambda pair: _order(_job(pair[0])))
    for place, (megatron, decomposed) in enumerate(ordered):
        gain = 100 * (float(megatron["objective"]) / float(decomposed["objective"]) - 1)
        axes.plot([0, gain], [place, place], color="#0072B2", linewidth=1)
        axes.plot([gain], [place], "o", color="#0072B2", markersize=3.2)
    axes.axvline(0, color="#000000", linewidth=0.6)
    axes.set_xlabel("slowdown of dp without 4D, %")
    names = [plain(f"{_job(a)[0]}, {_order(_job(a))[1]}") for a, _ in ordered]
    axes.set_yticks(range(len(names)), names, fontsize=6)
    axes.set_ylim(max(1, len(names)) - 0.4, -0.6)
    if not ordered:
        _empty(axes)


def _empty(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.annotate("no records", (0.5, 0.5), xycoords="axes fraction", ha="center", color="#777777")


def _validation_table(paths: Paths, tables: Sequence[dict[str, Any]]) -> None:
    def shown(value: float | None, scale: float = 1) -> str:
        return "–" if value is None else f"{scale * value:.3g}"

    paths.table(
        "predicted_against_measured",
        ("publication", "quantity", "n", "fitted", "MAPE %", "Spearman", "regret %"),
        [
            [
                NAMES.get(table["table"], table["table"].replace("_", " ")),
                table["quantity"],
                len(table["rows"]),
                sum(row["fitted"] for row in table["rows"]),
                shown(table["mape_of_rows_not_fitted"], 100),
                shown(table["spearman"]),
                shown(table["regret"], 100),
            ]
            for table in tables
        ],
        """Predictions against published measurements. MAPE: arithmetic mean of |predicted -
        measured| / measured over the rows that no calibration saw. Spearman: rank correlation of
        FLOP/s a device, over all n. Regret, over all n: over groups of alternatives for one job,
        the largest of measured time of the predicted best / measured time of the best - 1.""",
        texts=2,
    )  # fmt: skip


def _ranking_table(paths: Paths, rankings: Sequence[dict[str, Any]], pairs: Sequence[Any]) -> None:
    lines = []
    for row in sorted(rankings, key=lambda r: (_order(_job(r)), str(r["method"]))):
        stats = row["stats"]
        correlation = stats.get("rank_correlation")
        lines.append(
            [
                *_job(row),
                row["method"],
                stats.get("decompositions", "–"),
                stats.get("fit", "–"),
                stats.get("grid", "–"),
                stats.get("best_grid", "–"),
                stats.get("place_of_best", "–"),
                "–" if correlation is None else f"{correlation:.2f}",
                f"{_regret(row):.2f}" if solved(row) else "–",
            ]
        )
    paths.table(
        "axonn_ranking",
        ("model", "cluster", "ranking", "grids", "fit", "first", "best", "place of best",
         "Spearman", "regret %"),
        lines,
        """Rankings of the decompositions Gx x Gy x Gz x Gdata. First: the ranking's first that fits
        the memory; best: by the full model; place of best: in the ranking. Spearman: correlation
        of the ranking with the full model's iteration times over the decompositions that fit.
        Regret: time of first / time of best - 1, a slowdown.""",
        texts=3,
    )  # fmt: skip
    gains = [float(a["objective"]) / float(b["objective"]) for a, b in pairs]
    lines = [
        [
            *_job(a),
            f"{float(a['objective']):.4g}",
            f"{float(b['objective']):.4g}",
            f"{100 * (gain - 1):.2f}",
        ]
        for (a, b), gain in sorted(zip(pairs, gains), key=lambda found: _order(_job(found[0][0])))
    ]
    note = "none"
    if gains:
        note = f"{100 * (float(np.exp(np.mean(np.log(gains)))) - 1):.2f} % (n = {len(gains)})"
    paths.table(
        "dp_with_4d",
        ("model", "cluster", "Megatron only, s", "4D, s", "slowdown without 4D %"),
        lines,
        f"""Iteration time of dp's plans with Megatron's tensor parallelism only and with all tensor
        decompositions (Gx, Gy, Gz), and the slowdown, first / second - 1. Geometric mean of the
        ratios, less 1: {note}. Plan space default-1, contiguous.""",
        texts=2,
    )


if __name__ == "__main__":
    build(Paths())
