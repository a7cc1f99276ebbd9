"""`nestopt calibrate`: a user's runs, the fit, what it says of itself, and wrong files."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nestopt.core.errors import InputError
from nestopt.fourd.calibrate import calibrate, to_json
from nestopt.fourd.predict import predict
from nestopt.fourd.report import Report, Row, totals
from nestopt.fourd.user_runs import read_runs
from nestopt.placement.pricing.parameters import current_set, parameter_set, using_set

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "name,model,device,gpus,tensor,pipeline,data,batch,microbatch,seconds,recompute"
ROWS = (
    ("small", "gpt3-1.7b,batch=64", 8, 1, 1, 8, 64, 4),
    ("wide", "gpt3-7.5b,batch=32", 8, 4, 1, 2, 32, 2),
    ("deep", "gpt3-7.5b,batch=32", 8, 1, 4, 2, 32, 1),
    ("whole", "gpt3-3.6b,batch=64", 8, 8, 1, 1, 64, 8),
)


def _file(tmp_path: Path, seconds: dict[str, float]) -> Path:
    path = tmp_path / "runs.csv"
    lines = ["# mine", HEAD]
    for name, model, *counts in ROWS:
        cells = [name, f'"{model}"', "a100", *map(str, counts), repr(seconds[name]), "full"]
        lines.append(",".join(cells))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_the_fit_finds_the_figures_that_made_the_runs(tmp_path: Path) -> None:
    base = current_set()
    made = replace(base.device("a100"), efficiency=0.5, half_flops=1e11, memory_fraction=0.9)
    unknown = dict.fromkeys((row[0] for row in ROWS), 1.0)
    wanted = base.with_device("a100", made)
    runs = read_runs(_file(tmp_path, unknown))
    path = _file(tmp_path, {run.row: predict(run, wanted) for run in runs})
    (found,) = calibrate(read_runs(path))
    assert found.free == ("efficiency", "half_flops", "memory_fraction")
    assert found.mape < 1e-3
    assert found.mape_crossed is not None and found.mape_crossed < 0.05
    assert found.figures.efficiency == pytest.approx(0.5, rel=0.05)
    assert found.figures.half_flops == pytest.approx(1e11, rel=0.15)
    target = tmp_path / "mine.json"
    target.write_text(json.dumps(to_json([found], "mine", "test")), encoding="utf-8")
    again = parameter_set(str(target))
    assert again.device("a100").fitted_on == tuple(row[0] for row in ROWS)
    assert again.device("h100") == base.device("h100")
    with using_set(again):
        for run in read_runs(path):
            assert predict(run) == pytest.approx(run.seconds, rel=2e-3)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("microbatch,", "micro,", "column microbatch: is missing"),
        ("recompute", "recomputed", "unknown column 'recomputed'; did you mean 'recompute'"),
        (",8,1,1,8,64,4,", ",8,1,1,8,64,5,", "row 1: batch: 64; expected a multiple"),
        (",8,1,1,8,64,4,", ",8,1,2,8,64,4,", "row 1: gpus: 8; tensor x context x pipeline"),
        (",8,1,1,8,64,4,", ",8,x,1,8,64,4,", "row 1: tensor: 'x'; expected an integer"),
        ("1.0,full", "-1,full", "row 1: seconds: '-1'; expected a number above zero"),
        ("1.0,full", "1.0,some", "row 1: recompute: 'some'"),
        ("a100", "a101", "did you mean 'a100'"),
        ("gpt3-1.7b", "gpt3-1.6b", "gpt3-1.7b"),
        ("wide", "small", "'small' stands there twice"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, match: str) -> None:
    path = _file(tmp_path, dict.fromkeys((row[0] for row in ROWS), 1.0))
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(InputError, match=match):
        read_runs(path)


def test_totals_are_of_the_rows_only_predicted() -> None:
    rows = (Row("a", 1.0, 1.1), Row("b", 2.0, 1.8), Row("c", 3.0, 3.0), Row("d", 1.0, 9.0, True))
    other = Report("other", "GiB", (Row("e", 1.0, 5.0),))
    found = totals([Report("t", "seconds an iteration", rows), other])
    assert found is not None
    assert found.rows == 3
    assert found.mape == pytest.approx(0.2 / 3)
    assert found.bias == pytest.approx(0.0)
    assert found.spearman == pytest.approx(1.0)
    assert totals([other]) is None
