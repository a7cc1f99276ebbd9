"""Every figure of docs/findings.md, computed from the records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import _folders  # noqa: F401 - makes the next ones importable
import axonn_ranking
import greedy_gap
import nest_evaluation
import numpy as np
import price_of_structure
import pytest
from classes import classes, read_classes
from figure_tools import Paths, mean_by_unit, slowdown, uneven

from nestopt.core.io import read_json
from nestopt.study.comparison import (
    gap_to_bound,
    gap_to_optimum,
    general_bound,
    grouped,
    optima,
    problem_key,
    solved,
)
from nestopt.study.statistics import wilson_interval

PATHS = Paths()
PAGE = Path(__file__).resolve().parents[2] / "docs" / "findings.md"


def said(number: int) -> list[str]:
    """The figures of a sentence, in their order, without those in names of files and methods."""
    found = re.search(rf"^{number}\. (.+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    text = re.sub(r"`[^`]*`|H100|A100", "", found.group(1)).replace("16,384", "16384")
    return re.findall(r"\d+(?:\.\d+)?", text)


def shown(*values: float) -> list[float]:
    """Values as percentages with the digits of the page's sentences are compared to."""
    return [100 * value for value in values]


def agree(number: int, found: list[float]) -> None:
    """The page rounds what is found, to the digits that it prints."""
    text = said(number)
    assert len(text) == len(found), text
    for printed, value in zip(text, found):
        digits = len(printed.partition(".")[2])
        assert abs(float(printed) - value) <= 0.5001 * 10**-digits + 1e-9, (number, printed, value)


def test_the_page_has_ten_sentences() -> None:
    assert len(re.findall(r"^\d+\. .*\(`", PAGE.read_text(encoding="utf-8"), re.MULTILINE)) == 10


def test_price_of_structure() -> None:
    found, _ = price_of_structure.prices(PATHS.read("price-of-structure"))
    exact = [price for price in found if price.exact]
    lows = [price.low for price in exact]
    mean, low, high = re.findall(r"[\d.]+", mean_by_unit(lows, [p.row for p in exact]))
    assert float(mean) == pytest.approx(100 * float(np.mean(lows)), abs=0.05)
    agree(1, [len(exact), float(mean), 95, float(low), float(high), 0, 100 * max(lows)])
    assert np.median(lows) == 0
    assert len({p.row["parameters"]["instance_seed"] for p in exact}) == 10
    by = {key: [p.low for p in exact if uneven(p.row) == key] for key in map(uneven_of, exact)}
    agree(2, shown(float(np.mean(by["H100 and A100 mixed"])), float(np.mean(by["none"]))))


def uneven_of(price: Any) -> str:
    return uneven(price.row)


def test_greedy() -> None:
    every = PATHS.read("greedy-gap")
    known = optima(every)
    rows = greedy_gap.distinct(every, read_classes(PATHS.records))
    rows = [row for row in rows if row["method"] == "greedy" and problem_key(row) in known]
    gaps = {row["instance"]["name"]: gap_to_optimum(row, known) or 0.0 for row in rows}
    share = wilson_interval(sum(gap <= 1e-6 for gap in gaps.values()), len(gaps))
    agree(
        3,
        [len(gaps), *shown(share.estimate, share.low, share.high),
         100 * float(np.mean(list(gaps.values())))],
    )  # fmt: skip
    worst = {
        name: 100 * slowdown(max(gap for key, gap in gaps.items() if key.startswith(name)))
        for name in ("all-to-all", "all-gather", "all-reduce")
    }
    agree(4, list(worst.values()))
    assert all(gaps[row["instance"]["name"]] <= 1e-6 for row in rows if uneven(row) == "none")


def test_classes_of_equal_instances() -> None:
    found = read_classes(PATHS.records)
    assert (len(found), len(set(found.values()))) == (324, 204)
    some = [name for name in sorted(found) if "random-regular:4,3" in name][:24]
    again = classes([tuple(name.split(" on ")) for name in some])  # type: ignore[misc]
    assert {(a, b) for a in some for b in some if again[a] == again[b]} == {
        (a, b) for a in some for b in some if found[a] == found[b]
    }
    assert len(set(again.values())) < len(some)


def test_at_scale() -> None:
    families = grouped(PATHS.read("scale-collective"), lambda row: row["parameters"]["family"])
    gaps = {name: [gap_to_bound(row) for row in rows] for name, rows in families.items()}
    assert max(gaps["mesh"]) == 0
    torus, mesh = max(gaps["torus"]), max(gaps["mesh, uneven"])
    agree(5, [64, 16384, *shown(torus, mesh), 64, 256])
    families = grouped(PATHS.read("scale-placement"), lambda row: row["parameters"]["family"])
    above = {
        name: [float(row["objective"]) / (general_bound(row) or np.nan) - 1 for row in rows]
        for name, rows in families.items()
    }
    leaf, tree = above["spine-leaf"], above["fat-tree"]
    ends = [min(leaf), max(leaf), min(leaf) / (1 + min(leaf)), max(leaf) / (1 + max(leaf))]
    agree(6, [64, 16384, *shown(*ends, min(tree), max(tree))])


def test_baselines() -> None:
    cells = grouped(filter(solved, PATHS.read("nest-evaluation")), nest_evaluation._cell)
    medians: dict[tuple[str, str], list[float]] = {}
    wins = {"fattree-tpuv4": 0, "h100-spineleaf": 0}
    for cell, rows in cells.items():
        network = cell[1].rpartition("-")[0]
        times = grouped(rows, lambda row: row["solver"])
        middle = {m: float(np.median([r["objective"] for r in runs])) for m, runs in times.items()}
        for method, value in middle.items():
            medians.setdefault((method, network), []).append(value / middle["dp"])
        wins[network] += middle["mcmc"] < middle["flat-dp"] * (1 - 1e-9)
    tree, leaf = wins

    def mean(method: str, network: str) -> float:
        return 100 * (float(np.exp(np.mean(np.log(medians[method, network])))) - 1)

    agree(7, [15, *(mean(m, n) for m in ("megatron", "grid") for n in (tree, leaf))])
    pairs = [mean(m, n) for n in (leaf, tree) for m in ("mcmc", "flat-dp")]
    agree(8, [wins[leaf], 15, wins[tree], 15, *pairs])


def test_rankings_and_measured_runs() -> None:
    rows = [row for row in PATHS.read("axonn-ranking") if row["method"] == "published"]
    regrets = [axonn_ranking._regret(row) for row in rows if solved(row)]
    agree(9, [float(np.median(regrets)), max(regrets), len(regrets)])
    tables = read_json(PATHS.records / "validation.json")["tables"]
    errors = [
        abs(row["error"])
        for table in tables
        if table["quantity"] == axonn_ranking.TIMES
        for row in table["rows"]
        if not row["fitted"]
    ]
    agree(10, [len(errors), 100 * float(np.mean(errors))])
