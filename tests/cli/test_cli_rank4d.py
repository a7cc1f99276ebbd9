"""`nestopt rank4d` from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("rank4d", "--workload", "axonn-5b", "--cluster", "perlmutter-32")


def test_json_holds_every_decomposition_the_best_first(nestopt: Callable) -> None:
    run = nestopt(*NAMES, "--json", "--rows", "2")
    data = json.loads(run.out)
    assert data["schema"] == "nestopt.rank4d/1"
    for row in data["rows"]:
        assert row["Gx"] * row["Gy"] * row["Gz"] * row["Gdata"] == data["gpus"] == 32
    times = [row["iteration_seconds"] for row in data["rows"] if row["fits"]]
    assert len(times) > 2 and times == sorted(times)
    assert not any("simulated_seconds" in row for row in data["rows"])
    layers = json.loads(nestopt(*NAMES, "--json", "--rows", "2", "--mode", "layers").out)
    assert [("simulated_seconds" in row) for row in layers["rows"][:3]] == [True, True, False]


def test_the_table_has_the_rows_asked_for(nestopt: Callable) -> None:
    run = nestopt(*NAMES, "--rows", "3")
    assert run.out.splitlines()[0] == "axonn-5b on perlmutter-32: 32 devices, batch 32, full model"
    assert [line.split()[0] for line in run.out.splitlines()[3:6]] == ["1", "2", "3"]
    assert max(len(line) for line in run.out.splitlines()) <= 80
    assert "…" not in run.out


def test_overlap_shortens_the_iteration(nestopt: Callable) -> None:
    none = json.loads(nestopt(*NAMES, "--overlap", "none", "--json").out)
    three = "all-reduce,reduce-scatter,all-gather"
    some = json.loads(nestopt(*NAMES, "--overlap", three, "--json").out)
    best = [data["rows"][0]["iteration_seconds"] for data in (some, none)]
    assert best[0] < best[1]


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (("--workload", "axonn-5"), 2, "did you mean 'axonn-5b'"),
        (("--cluster", "perlmuter-32"), 2, "did you mean 'perlmutter-"),
        (("--mode", "ful"), 2, "did you mean 'full'?"),
        (("--overlap", "allreduce"), 2, "did you mean 'all-reduce'?"),
        (("--batch", "0"), 2, "--batch 0: expected at least 1"),
        (("--rows", "0"), 2, "--rows 0: expected at least 1"),
        (("--workload", "mixtral-8x7b"), 1, "has experts"),
    ],
)
def test_wrong_words_are_told_so(
    nestopt: Callable, words: tuple[str, ...], status: int, complaint: str
) -> None:
    run = nestopt(*NAMES, *words)
    assert run.status == status
    assert complaint in run.err
