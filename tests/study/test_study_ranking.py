"""The method rank4d of a study: what the first choice of a communication model costs."""

from __future__ import annotations

import pytest

from nestopt.fourd.rank import rank_table
from nestopt.placement.pricing.parameters import using_set
from nestopt.study.ranking import MODES, judge

NAMES = {"workload": "axonn-5b", "cluster": "perlmutter-64"}


@pytest.mark.parametrize("mode", MODES)
def test_the_judge_is_the_full_model(mode: str) -> None:
    found = judge(NAMES, {"mode": mode})
    full = {
        f"{r.grid.x}x{r.grid.y}x{r.grid.z}x{r.grid.data}": r.iteration
        for r in rank_table("axonn-5b", "perlmutter-64").rows
        if r.fits
    }
    assert found["bound"] == min(full.values())
    assert found["objective"] == full[found["stats"]["grid"]]
    assert full[found["stats"]["best_grid"]] == found["bound"]
    assert found["objective"] >= found["stats"]["best_of_10"] >= found["bound"]
    assert found["stats"]["fit"] == len(full)


def test_the_first_parameter_set_keeps_the_judge_of_its_records() -> None:
    with using_set("nestopt-1"):
        found = judge(NAMES, {"mode": "full"})
        rows = rank_table("axonn-5b", "perlmutter-64", mode="layers").rows
    assert found["bound"] == min(row.iteration for row in rows if row.fits)
    assert found["stats"]["simulated_best"] == pytest.approx(found["bound"], rel=0.05)


def test_the_full_model_ranks_as_it_judges() -> None:
    found = judge(NAMES, {"mode": "full"})
    assert found["objective"] == found["bound"]
    assert found["stats"]["rank_correlation"] == pytest.approx(1.0)
    assert found["stats"]["place_of_best"] == 1


def test_nothing_fits() -> None:
    found = judge({"workload": "gpt3-1t", "cluster": "perlmutter-8"}, {"batch": "8"})
    assert (found["objective"], found["bound"]) == (None, None)
    assert found["stats"]["fit"] == 0


def test_the_batch_is_a_setting() -> None:
    assert judge(NAMES, {"batch": "128"})["stats"]["batch"] == 128
    assert judge(NAMES, {})["stats"]["batch"] == 64
