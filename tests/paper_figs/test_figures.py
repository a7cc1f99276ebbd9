"""The figures of the paper, from synthetic records: content, captions, and equal bytes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import _folders  # noqa: F401 - makes the next ones importable
import axonn_ranking
import collect
import exact_backends
import figure_records
import figure_tools
import greedy_gap
import growth
import make_all
import nest_evaluation
import price_of_structure
import pytest
import scale
from figure_tools import NoRecordsError, Paths
from shared_work import made_once
from synthetic import record, write

from nestopt.core.errors import InputError
from nestopt.study.cells import plan_study

ROOT = Path(__file__).resolve().parents[2]
FIGURES = set(make_all.SCRIPTS)


def hashes(folder: Path) -> dict[str, str]:
    """Digests of all files of a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything built once from synthetic records."""

    def make(folder: Path) -> None:
        figure_records.write_all(folder / "records")
        arguments = ["--records", str(folder / "records"), "--output", str(folder / "output")]
        assert make_all.main(arguments) == 0

    return made_once(tmp_path_factory, "figures", make)


def test_a_figure_is_the_same_whatever_the_order_of_records(tmp_path: Path) -> None:
    rows = figure_records.growth("scale-placement", "placement", {"dp": 1.0}, 64)
    for name, order in (("one", rows), ("two", rows[::-1])):
        paths = Paths(tmp_path / name, tmp_path / name / "figures", tmp_path / name / "tables")
        paths.records.mkdir(parents=True)
        write(order, paths.records / "scale-placement.jsonl")
        scale.build(paths)
    for folder in ("figures", "tables"):
        assert hashes(tmp_path / "one" / folder) == hashes(tmp_path / "two" / folder) != {}


@pytest.mark.slow
def test_two_builds_are_equal_byte_for_byte(made: Path, tmp_path: Path) -> None:
    # In another process, with another hash seed, another day and the records in another order
    records = tmp_path / "records"
    records.mkdir()
    for path in (made / "records").iterdir():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        text = "".join(reversed(lines)) if path.suffix == ".jsonl" else "".join(lines)
        (records / path.name).write_text(text, encoding="utf-8")
    output = tmp_path / "output"
    subprocess.run(
        [sys.executable, str(ROOT / "paper_figs" / "make_all.py"), "--records", str(records),
         "--output", str(output)],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "MPLBACKEND": "svg"},
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    assert hashes(output) == hashes(made / "output")


def test_every_figure_has_its_files(made: Path) -> None:
    names = {path.name for path in (made / "output" / "figures").iterdir()}
    assert names == {f"{name}.{ending}" for name in FIGURES for ending in ("pdf", "png", "tex")}
    for name in FIGURES:
        pdf = (made / "output" / "figures" / f"{name}.pdf").read_bytes()
        assert b"/CreationDate" not in pdf
        assert b"/Type3" not in pdf
        assert b"/FontFile2" in pdf
    tables = {path.name for path in (made / "output" / "tables").iterdir()}
    assert {name for name in tables if re.fullmatch(r"[a-z0-9_]+\.tex", name)} == {
        "axonn_ranking.tex", "dp_with_4d.tex", "exact_backends.tex", "exact_backends_sizes.tex",
        "greedy_gap.tex",
        "nest_evaluation.tex", "predicted_against_measured.tex", "price_of_structure.tex",
        "scale.tex", "time_growth.tex",
    }  # fmt: skip


def test_tables_are_rectangular_latex(made: Path) -> None:
    for path in (made / "output" / "tables").glob("*.tex"):
        text = path.read_text(encoding="utf-8")
        if path.name.endswith(".caption.tex"):
            assert not re.search(r"(?<!\\)[%&_#$^]", text), path.name
            continue
        if path.name.endswith(".float.tex"):
            assert text.count("\\caption{") == text.count("\\begin{tabular}") > 0
            continue
        columns = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
        assert columns is not None
        rows = [line for line in text.splitlines() if line.endswith(r"\\")]
        assert len(rows) > 1, path.name
        for row in rows:
            assert len(re.findall(r"(?<!\\)&", row)) == len(columns.group(1)) - 1, row


def printed_width(cell: str) -> float:
    """Points of a cell in Computer Modern at 8 pt, whose 8 pt cut is 1/16 wider than its 10 pt."""
    from matplotlib import get_data_path
    from matplotlib.ft2font import FT2Font

    font = FT2Font(f"{get_data_path()}/fonts/ttf/cmr10.ttf")
    font.set_size(8, 72)
    font.set_text(re.sub(r"\\text[a-z]+\{\}", "<", cell).replace("\\", "").strip(), 0)
    return float(font.get_width_height()[0]) / 64 * 1.0625


def test_no_table_is_wider_or_longer_than_a_page(made: Path) -> None:
    seen = 0
    for folder in (made / "output" / "tables", ROOT / "paper_figs" / "tables"):
        for path in folder.glob("*.tex"):
            if path.name.endswith((".caption.tex", ".float.tex")):
                continue
            text = path.read_text(encoding="utf-8")
            rows = [line for line in text.splitlines() if line.endswith(" \\\\")]
            cells = [re.split(r"(?<!\\)&", row.removesuffix(" \\\\")) for row in rows]
            widths = [max(map(printed_width, column)) for column in zip(*cells)]
            # the text width of the class article at 12 pt; most parts keep to the 345 pt of 10 pt
            assert sum(width + 6 for width in widths) <= 390, path.name
            assert len(rows) <= 47, path.name
            seen += 1
    assert seen > 20


def test_captions_count_what_is_not_drawn(made: Path) -> None:
    def caption(name: str) -> str:
        return (made / "output" / "figures" / f"{name}.tex").read_text(encoding="utf-8")

    text = caption("price_of_structure")
    assert "of 108 instances" in text
    assert "12 instances whose general optimum was not proved" in text
    text = caption("greedy_gap")
    assert "81 of 90 instances" in text
    assert "9 runs on instances without a proved optimum" in text
    text = caption("nest_evaluation")
    assert "mcmc 10" in text
    assert "4 runs of baselines without a plan" in text
    assert "Time limit by the wall clock 60 s, threads 1" in caption("exact_backends")
    assert "the 15 runs that the time limit ended" in caption("time_growth")
    assert "3 runs of 1 table" in caption("axonn_ranking")


def test_what_lacks_records_is_named_and_not_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(figure_records.nest_evaluation(), tmp_path / "nest-evaluation.jsonl")
    arguments = ["--records", str(tmp_path), "--output", str(tmp_path / "output")]
    assert make_all.main(arguments) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("nest_evaluation (")
    for name in FIGURES - {"nest_evaluation"}:
        assert f"{name}: not drawn" in shown.err
    (tmp_path / "greedy-gap.jsonl").write_text("{}\n{}\n", encoding="utf-8")
    assert make_all.main(arguments) == 1
    assert "greedy_gap: " in capsys.readouterr().err


def test_half_of_the_records_still_give_the_figure_and_say_so(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path / "figures", tmp_path / "tables")
    rows = figure_records.growth("scale-placement", "placement", {"dp": 1.0}, 64)
    write(rows, tmp_path / "scale-placement.jsonl")
    scale.build(paths)
    text = (tmp_path / "figures" / "scale.tex").read_text(encoding="utf-8")
    assert "Missing: study scale-collective" in text
    # Three rankings and one of the two runs of dp
    write(figure_records.axonn_ranking()[:4], tmp_path / "axonn-ranking.jsonl")
    axonn_ranking.build(paths)
    text = (tmp_path / "figures" / "axonn_ranking.tex").read_text(encoding="utf-8")
    assert "runs of dp without a partner: axonn-20b-perlmutter-256-0-x by dp, 4D" in text
    assert "Missing: validation.json" in text


def test_prices_by_hand() -> None:
    def pair(seed: int, ours: float, best: float | None, bound: float, **more: Any) -> list[Any]:
        parameters = {"instance_seed": seed, "size": 4}
        return [
            record(method="dp", objective=ours, bound=ours, parameters=parameters, **more),
            record(
                method="cpsat", objective=best, bound=bound, settings={"space": "general"},
                parameters=parameters,
            ),
        ]  # fmt: skip

    rows = [*pair(0, 10, 8, 8), *pair(1, 10, 9, 5), *pair(2, 10, None, 6), *pair(3, 10, 10, 10)]
    rows[2]["stats"] = {"general_bound": 7.0}
    lone = record(method="dp", objective=5.0, bound=5.0, parameters={"instance_seed": 9})
    found, without = price_of_structure.prices([*rows, lone])
    assert [(p.low, p.high) for p in found] == [
        pytest.approx(ends) for ends in [(1 / 4, 1 / 4), (1 / 9, 3 / 7), (0, 2 / 3), (0, 0)]
    ]
    assert [p.exact for p in found] == [True, False, False, True]
    assert without == {"9 by dp (seed 0)": "general space not run"}
    none = pair(5, 1, None, 0)
    for row in none:
        row["objective"], row["termination"] = None, {"reason": "infeasible", "limit": "none"}
    name = "5-4 by dp (seed 0)"
    assert price_of_structure.prices(none) == ([], {name: "infeasible in both spaces"})
    assert price_of_structure.prices(none[:1]) == ([], {name: "without contiguous plan"})
    wrong = pair(4, 10, 11, 11)
    with pytest.raises(InputError, match="below"):
        price_of_structure.prices(wrong)


def test_growth_leaves_timeouts_out_of_the_fit() -> None:
    rows = [record(parameters={"size": n}, seconds=n**2 / 100) for n in (4, 8, 16, 32)]
    late = record(parameters={"size": 64}, objective=None)
    found = growth.exponent([*rows, late])
    assert found is not None
    assert found.exponent.estimate == pytest.approx(2)
    assert found.points == 4
    assert growth.exponent(rows[:2]) is None


def test_a_back_end_that_missed_an_instance_is_counted(tmp_path: Path) -> None:
    rows = figure_records.exact_backends("placement")
    gone = next(row for row in rows if row["method"] == "cbc")
    rows.remove(gone)
    write(rows, tmp_path / "exact-backends-placement.jsonl")
    exact_backends.build(Paths(tmp_path, tmp_path / "f", tmp_path / "t"))
    text = (tmp_path / "f" / "exact_backends.tex").read_text(encoding="utf-8")
    assert "29 instances" in text
    assert "1 not run by all and left out" in text


def test_evaluation_needs_its_reference(tmp_path: Path) -> None:
    paths = Paths(tmp_path, tmp_path / "f", tmp_path / "t")
    rows = [row for row in figure_records.nest_evaluation() if row["method"] != "dp"]
    write(rows, tmp_path / "nest-evaluation.jsonl")
    with pytest.raises(NoRecordsError, match="no plan of dp"):
        nest_evaluation.build(paths)
    write([r for r in figure_records.greedy_gap() if r["method"] == "ring"],
          tmp_path / "greedy-gap.jsonl")  # fmt: skip
    with pytest.raises(NoRecordsError, match="no run of greedy"):
        greedy_gap.build(paths)


def test_labels_of_parameters() -> None:
    row = record(
        parameters={
            "fail_npus": 2, "fail_links": 1, "heterogeneity": "lognormal:0.5",
            "degraded": "degraded:2,1/4", "fail_rates": "llama3", "days": 9.0,
        }
    )  # fmt: skip
    assert figure_tools.failures(row) == "2 devices + 1 link + llama3, 9 days"
    assert figure_tools.uneven(row) == "lognormal 0.5 + 2 parts at 1/4"
    assert figure_tools.failures(record()) == figure_tools.uneven(record()) == "none"
    assert figure_tools.in_order(["10 NPUs", "2 NPUs", "none", "2 NPUs"]) == [
        "none", "2 NPUs", "10 NPUs"
    ]  # fmt: skip
    assert figure_tools.failures(record(parameters={"fail_groups": "level0,1"})) == "1 node"
    assert figure_tools.by_name(["ring", "greedy", "dbt"]) == ["greedy", "dbt", "ring"]
    assert figure_tools.latex("a_b & 5 % {x} \\ –") == (
        "a\\_b \\& 5 \\% \\{x\\} \\textbackslash{} --"
    )


def test_collect_refuses_unfinished_studies(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "study.toml").write_text(
        'name = "s"\n[[instances]]\ncollective = "all-gather"\ntopology = "mesh2d:2x2"\n'
        '[[methods]]\nmethod = "greedy"\n[[methods]]\nmethod = "ring"\n',
        encoding="utf-8",
    )
    cell = plan_study(folder / "study.toml").cells[0]
    write([record(method=cell.label) | {"cell": cell.id}], folder / "records.jsonl")
    assert collect.main([str(folder), "--records", str(tmp_path)]) == 1
    assert "no record of {'ring': 1}" in capsys.readouterr().err
    assert not (tmp_path / "s.jsonl").exists()
    assert collect.main([str(folder), "--partial", "--records", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "s: 1 of 2 cells\n"
    paths = Paths(tmp_path)
    assert [row["cell"] for row in paths.read("s")] == [cell.id]
    assert paths.incomplete == ["Study s: only 1 of 2 cells have run."]


def test_compact_records_are_read_back(tmp_path: Path) -> None:
    rows = figure_records.axonn_ranking()
    figure_tools.compact(rows, tmp_path / "x.jsonl")
    read = Paths(tmp_path).read("x")
    assert len(read) == len(rows)
    assert all(row["trace"] == [] for row in read)
    assert [row["cell"] for row in read] == sorted(row["cell"] for row in rows)
    figure_tools.compact(rows, tmp_path / "y.jsonl", traces=True)
    line = json.loads((tmp_path / "y.jsonl").read_text().splitlines()[0])
    assert line["trace"]
