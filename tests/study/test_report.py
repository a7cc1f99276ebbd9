"""The report of a study: what it says, that it is self-contained, escaped and repeatable."""

from __future__ import annotations

import base64
import csv
import random
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from synthetic import record, write

from nestopt.core.errors import InputError
from nestopt.study import load
from nestopt.study.cells import plan_study
from nestopt.study.export import write_csv, write_figures, write_latex
from nestopt.study.report import page_of, write_report
from nestopt.study.report_pictures import (
    gap_figure,
    profile_figure,
    size_parameter,
    time_figure,
)
from nestopt.study.spec import METRICS
from nestopt.study.summary import against, by_method, summarise
from nestopt.study.tables import TEXT_WIDTH, Table

if TYPE_CHECKING:
    from pathlib import Path


def study(instances: int = 6) -> list[dict[str, Any]]:
    """dp, a heuristic of two seeds, and an exact method that stops at the limit on the largest."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(instances):
        parameters = {"family": "ab"[i % 2], "size": 2 ** (i + 1), "instance_seed": 0}
        best = float(rng.uniform(1, 2))
        rows.append(record(method="dp", objective=best, bound=best, parameters=parameters))
        for seed in range(2):
            value = best * (1 + 0.1 * seed)
            rows.append(
                record(
                    method="mcmc", objective=value, bound=0.5, seed=seed, parameters=parameters,
                    seconds=0.1 * 2**i,
                )
            )  # fmt: skip
        late = i == instances - 1
        rows.append(
            record(
                method="milp",
                objective=None if late else best,
                bound=0.25 if late else best,
                seconds=60.0 if late else 3.0**i / 10,
                parameters=parameters,
            )
        )
    return rows


class Page(HTMLParser):
    """Balance of tags, texts of cells, and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href")]
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def test_summaries_by_hand() -> None:
    table = {summary.method: summary for summary in by_method(study())}
    milp, mcmc = table["milp"], table["mcmc"]
    assert (milp.runs, milp.instances, milp.solved, milp.proved, milp.timeouts) == (6, 6, 5, 5, 1)
    assert (mcmc.runs, mcmc.instances, mcmc.solved, mcmc.proved, mcmc.timeouts) == (12, 6, 12, 0, 0)
    assert mcmc.to_optimum is not None
    assert mcmc.to_optimum.count == 12
    assert mcmc.to_optimum.largest == pytest.approx(0.1 / 1.1)
    assert mcmc.to_optimum.mean == pytest.approx(0.05 / 1.1)
    assert mcmc.to_optimum.median == pytest.approx(0.05 / 1.1)
    assert milp.to_bound is not None
    assert (milp.to_bound.count, milp.to_bound.largest) == (5, 0)
    # milp: nothing half of the time, the optimum then; nothing at all on the last
    halves = [3.0**i / 20 / 60 for i in range(5)]
    assert milp.primal_integral == pytest.approx((sum(halves) + 1) / 6)
    groups = summarise(study(), ["size"])
    assert [values for values, _ in groups][::3] == [(str(2 ** (i + 1)),) for i in range(6)]


def test_comparison_with_a_baseline() -> None:
    rows = [
        row for row in study() if not (row["method"] == "mcmc" and row["parameters"]["size"] == 2)
    ]
    table = {row.method: row for row in against(rows, "dp")}
    milp, mcmc = table["milp"], table["mcmc"]
    assert (milp.pairs, milp.better, milp.equal, milp.worse) == (6, 0, 5, 1)
    assert (milp.unsolved, milp.unpaired) == (1, 0)
    assert (mcmc.pairs, mcmc.worse, mcmc.unpaired) == (5, 5, 1)
    assert mcmc.ratio is not None
    assert mcmc.ratio.estimate == pytest.approx(1.05)
    assert mcmc.test is not None
    assert mcmc.test.p_value == pytest.approx(2 / 2**5)
    assert against(rows, "nobody") == []


def test_page_is_whole_and_self_contained(tmp_path: Path) -> None:
    in_directory(tmp_path)
    target = tmp_path / "report.html"
    write_report(tmp_path, target)
    text = target.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert len(page.addresses) == 4
    for address in page.addresses:
        head, _, data = address.partition(",")
        assert head == "data:image/svg+xml;base64"
        assert b"<svg" in base64.b64decode(data)
    assert not re.search(r"<(script|link|iframe)|@import|url\(", text)
    assert "Three &lt;methods&gt;" in text
    assert str(tmp_path) not in text
    start = page.cells.index("milp")
    assert page.cells[start : start + 7] == ["milp", "6", "6", "5", "5", "1", "0"]
    assert "Against dp" in text
    assert "By family" in text
    assert "Incomplete: 6 of 30 cells have no record (grid: 6)." in text


def in_directory(place: Path, report: str = "") -> None:
    """`study` as a directory has it, with one method that was not run."""
    (place / "study.toml").write_text(
        'name = "s"\ntitle = "Three <methods>"\n'
        '[[instances]]\nworkload = "random-chain:3,seed={seed}"\ncluster = "tree:2x2"\nseeds = 6\n'
        '[[methods]]\nmethod = "dp"\n[[methods]]\nmethod = "mcmc"\nseeds = 2\n'
        '[[methods]]\nmethod = "milp"\n[[methods]]\nmethod = "grid"\n'
        f'[report]\ngroup_by = ["family"]\nbaseline = "dp"\nx = "size"\n{report}\n'
    )
    cells = iter(c for c in plan_study(place / "study.toml").cells if c.label != "grid")
    write([row | {"cell": cell.id} for row, cell in zip(study(), cells)], place / "records.jsonl")


def test_metrics_choose_columns_and_pictures(tmp_path: Path) -> None:
    in_directory(tmp_path, 'metrics = ["objective", "time"]')
    write_report(tmp_path, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    head = re.findall(r"<thead><tr>(.*?)</tr>", text)[0]
    assert re.findall(r">([^<]+)</th>", head) == [
        "method", "runs", "instances", "objective, geometric mean", "CPU time, s"
    ]  # fmt: skip
    assert re.findall(r'alt="([^"]+)"', text) == [
        "performance profile of the objective",
        "performance profile of the time",
        "time against size",
    ]
    both = page_of(study(), hints={"metrics": ["gap-to-bound"]})
    assert re.findall(r'alt="([^"]+)"', both) == ["distribution of the gap to bound"]
    assert "CPU time, s</th>" not in both


def test_tables_and_pictures_as_files(tmp_path: Path) -> None:
    in_directory(tmp_path)
    written = write_latex(tmp_path, tmp_path / "tables")
    names = [path.name for path in written]
    assert {"methods.tex", "groups.tex"} <= set(names)
    heads = ""
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert text.count("\\begin{table}") == text.count("\\caption{") == 1
        heads += text
    for metric in METRICS:  # no column is lost on the way
        assert {"gap-to-bound": "gap to bound", "solved": "proved", "time": "CPU time"}.get(
            metric, metric.replace("-", " ")
        ) in heads
    write_csv(tmp_path, tmp_path / "summary.csv")
    text = (tmp_path / "summary.csv").read_text(encoding="utf-8")
    lines = list(csv.DictReader(text.splitlines()))
    assert [(line["family"], line["method"]) for line in lines] == [
        (family, method) for family in "ab" for method in ("dp", "mcmc", "milp")
    ]
    assert float(lines[1]["gap_to_best_known_mean"]) == pytest.approx(0.05 / 1.1)
    assert lines[5]["timeouts"] == "1"
    found = write_figures(tmp_path, tmp_path / "figures")
    assert len(found) == 8
    assert found[0].read_bytes().startswith(b"%PDF")


def test_no_part_of_a_table_is_wider_or_longer_than_a_page() -> None:
    head = ["family", *(f"a long name of a column {i}" for i in range(20))]
    table = Table("t", head, [[f"row {i}", *["1.234 % (5.678 %; 90)"] * 20] for i in range(100)])
    parts = table.parts()
    assert len(parts) > 6
    for part in parts:
        assert sum(part.widths()) <= TEXT_WIDTH
        assert len(part.rows) <= 46
        assert part.head[0] == "family"
    assert sum(len(part.head) - 1 for part in parts) == 20 * 3
    assert next(csv.reader([table.csv().splitlines()[1]]))[1] == "1.234 % (5.678 %; 90)"


def test_load_gives_a_row_a_run(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    in_directory(tmp_path)
    frame = load(tmp_path)
    assert len(frame) == 24
    assert set(frame["method"]) == {"dp", "mcmc", "milp"}
    slow = frame[(frame["method"] == "mcmc") & (frame["seed"] == 1)]
    assert slow["slowdown"].to_numpy() == pytest.approx([0.1] * 6)
    row = frame[frame["method"] == "dp"].iloc[0]
    assert row["gap"] == 0
    assert row["reason"] == "optimal"
    assert frame["objective"].isna().sum() == 1
    with pytest.raises(InputError, match="holds no records"):
        load(tmp_path / "nowhere")


def test_same_records_in_any_order_give_the_same_bytes() -> None:
    rows = study()
    mixed = rows[:]
    random.Random(0).shuffle(mixed)
    page = page_of(rows)
    assert page == page_of(mixed)
    assert page != page_of(rows[:-1])


def test_everything_is_escaped() -> None:
    evil = "<script>alert('&')</script>"
    rows = [
        record(
            evil,
            method=evil,
            parameters={"family": evil, "size": 3},
            reason="error",
            objective=None,
            error=evil,
            versions={evil: evil},
            machine={evil: evil},
            started=evil,
        ),
        record(method="_$x^{$", parameters={"family": "$\\frac", "size": 5}),
    ]
    text = page_of(rows, title=evil, hints={"group_by": ["family"], "baseline": evil, "x": evil})
    assert evil not in text
    assert "&lt;script&gt;" in text
    assert Page(text).open == []


def test_poor_records_still_give_a_page() -> None:
    poor = {
        "schema": "nestopt.record/1",
        "cell": "0",
        "instance": {"name": None, "sha256": None, "problem": "placement"},
        "method": "dp",
        "termination": {"reason": "error", "limit": "none"},
    }
    text = page_of([poor], hints={"baseline": "milp", "x": "size"})
    assert Page(text).open == []
    assert "The records do not allow" in text


def test_no_records_and_torn_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"records\.jsonl: holds no records"):
        write_report(tmp_path, tmp_path / "a.html")
    write(study(), tmp_path / "records.jsonl")
    with (tmp_path / "records.jsonl").open("a") as stream:
        stream.write('{"schema":')
    write_report(tmp_path, tmp_path / "a.html")
    assert "torn" in (tmp_path / "a.html").read_text(encoding="utf-8")
    write_report(tmp_path / "records.jsonl", tmp_path / "b.html")
    assert (tmp_path / "b.html").exists()


def test_pictures_have_what_they_claim() -> None:
    rows = study()
    figure = gap_figure(rows)
    assert figure is not None
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["dp (6 of 6)", "mcmc (12 of 12)", "milp (5 of 6)"]
    nothing = [
        record(method=method, parameters={"size": 99}, reason="infeasible", objective=None)
        for method in ("dp", "milp", "mcmc")
    ]
    for figure in (gap_figure([*rows, *nothing]), profile_figure([*rows, *nothing], "objective")):
        assert figure is not None
        assert "1 infeasible instances left out" in figure.axes[0].get_title(loc="left")
        assert figure.axes[0].get_lines()[0].get_ydata()[-1] == 1
    figure = profile_figure(rows, "time")
    assert figure is not None
    lines = dict(zip(labels, figure.axes[0].get_lines()))
    assert lines["milp (5 of 6)"].get_ydata()[-1] == pytest.approx(5 / 6)
    assert size_parameter(rows) == "size"
    assert size_parameter(rows, "family") == "size"
    assert size_parameter(rows[:2]) is None
    figure = time_figure(rows, "size")
    assert figure is not None
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"
    assert profile_figure([row for row in rows if row["method"] == "dp"], "time") is None
