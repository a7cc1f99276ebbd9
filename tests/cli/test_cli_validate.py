"""`nestopt validate` from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TABLE = "narayanan2021_table1"


def test_one_table_holds_every_row_with_its_error(nestopt: Callable) -> None:
    data = json.loads(nestopt("validate", "--table", TABLE, "--json").out)
    assert data["schema"] == "nestopt.validation/1"
    (table,) = data["tables"]
    assert table["table"] == TABLE and len(table["rows"]) == 10
    for row in table["rows"]:
        assert row["error"] == (row["predicted"] - row["measured"]) / row["measured"]
    assert table["mape"] == sum(abs(row["error"]) for row in table["rows"]) / 10


def test_an_unknown_table_is_told_a_near_one(nestopt: Callable) -> None:
    run = nestopt("validate", "--table", "narayanan2021_tabel1")
    assert run.status == 2
    assert f"'{TABLE}'" in run.err
