"""The ranking that the command line prints."""

from __future__ import annotations

import json
import math
from io import StringIO

import pytest
from rich.console import Console

from nestopt.core.errors import InputError, UsageError
from nestopt.fourd.rank import describe, rank_table
from nestopt.placement.model.transformer import Transformer


def test_table_of_named_things() -> None:
    table = rank_table("axonn-5b", "perlmutter-64", batch=256, mode="layers", simulate_rows=3)
    fitting = [row for row in table.rows if row.fits]
    assert fitting == table.rows[: len(fitting)]
    times = [row.iteration for row in fitting]
    assert times == sorted(times)
    for row, played in zip(table.rows, table.simulated, strict=False):
        assert played == pytest.approx(row.iteration, rel=1e-9)
        assert row.exposed <= row.communication
        assert row.iteration < math.inf
    assert {row.grid.ranks for row in table.rows} == {64}
    data = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert data["schema"] == "nestopt.rank4d/1"
    assert data["rows"][0]["simulated_seconds"] == table.simulated[0]
    steps = {step["name"]: step for step in data["waterfall"]}
    assert steps["+ data-parallel"]["formula"] == table.rows[0].iteration
    assert steps["no overlap"]["simulated"] > table.simulated[0]


def test_published_mode_has_no_compute_model() -> None:
    table = rank_table("axonn-80b", "perlmutter-1024", batch=256, mode="published")
    best = table.rows[0]
    assert (best.grid.y, best.grid.x, best.grid.z, best.grid.data) == (2, 8, 64, 1)
    assert best.exposed == best.communication == pytest.approx(3.27689208984375, rel=1e-9)
    assert table.to_json()["rows"][0]["iteration_seconds"] is None


@pytest.mark.parametrize("mode", ["full", "layers", "corrected"])
def test_description_fits_80_columns(mode: str) -> None:
    table = rank_table("axonn-80b", "perlmutter-1024", mode=mode, simulate_rows=2)
    stream = StringIO()
    describe(table, Console(width=80, file=stream), rows=5)
    text = stream.getvalue()
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "…" not in text
    assert "axonn-80b on perlmutter-1024: 1024 devices, batch 1024" in text
    assert ("simul." in text) == (mode == "layers")
    assert ("+ OAG" in text) == (mode == "layers")
    assert ("exposed" in text) == (mode != "corrected")


def test_another_transformer_on_another_cluster() -> None:
    model = Transformer(8, 2048, 16, 1024, 32000, flash=True)
    table = rank_table(("mine", model), "dgx-a100-16", simulate_rows=1)
    assert table.batch == 16
    assert table.rows[0].fits


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(UsageError, match="axonn-80b"):
        rank_table("axonn-8b", "perlmutter-64")
    with pytest.raises(InputError, match="batch of 6"):
        rank_table("axonn-5b", "perlmutter-11", batch=6, mode="corrected")
