"""JSON files: whole or not at all, canonical, and refused with their name."""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from nestopt.core.errors import InputError
from nestopt.core.io import (
    canonical_json,
    read_json,
    sha256_of,
    validate_model,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from pathlib import Path

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_canonical_json_reads_back(value: object) -> None:
    assert json.loads(canonical_json(value)) == value


@given(st.dictionaries(st.text(), st.integers(), max_size=6))
def test_the_hash_does_not_depend_on_the_order_of_keys(value: dict[str, int]) -> None:
    turned = dict(reversed(list(value.items())))
    assert sha256_of(turned) == sha256_of(value)


@given(value=VALUES)
def test_what_is_written_is_read(value: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.getbasetemp() / "value.json"
    write_json(file, value)
    assert read_json(file) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": [-math.inf]}])
def test_nan_and_infinity_are_not_written(value: object, tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("old")
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(file, value)
    with pytest.raises(ValueError, match="JSON compliant"):
        sha256_of(value)
    assert file.read_text() == "old"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"a": NaN}', "NaN is not a number that a file may hold"),
        ("[-Infinity]", "-Infinity is not a number"),
        ("[1e999]", "1e999 is too large a number"),
        ('{"a": 1, "b": 2, "a": 3}', "key 'a' stands twice in one object"),
        ('{"a": 1,}', r"not JSON: .*\(line 1, column \d+\)"),
        ("", r"not JSON: .*\(line 1, column 1\)"),
        ("[" * 200_000, "nested too deeply"),
    ],
)
def test_bad_json_is_refused_with_the_file_and_the_fault(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "bad.json"
    file.write_text(text)
    with pytest.raises(InputError, match=complaint) as caught:
        read_json(file)
    assert str(caught.value).startswith(f"{file}: ")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_json(tmp_path / "none.json")
    with pytest.raises(InputError, match="cannot be read: it is a directory"):
        read_json(tmp_path)
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'"\xe9"')
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_json(latin)


def test_a_failure_while_writing_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.json"
    write_text(file, "old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match=r"cannot be written: No space left"):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_an_interrupt_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.json"
    write_text(file, "old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_text(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_written_file_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "text")
    (tmp_path / "b").write_text("text")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none/r\.json: cannot be written: No such file"):
        write_text(tmp_path / "none" / "r.json", "text")


class _Level(BaseModel):
    model_config = ConfigDict(extra="forbid")
    port: float


class _Cluster(BaseModel):
    model_config = ConfigDict(extra="forbid")
    levels: list[_Level]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"levels": [{"port": 1}, {"port": "fast"}]}, "levels[1].port: "),
        ({"levels": [{"port": 1, "prot": 2}]}, "levels[0].prot: "),
        ({}, "levels: Field required"),
        ({"levels": [{"port": "x"}, {"port": "y"}]}, "; and 1 more"),
        ([], "c.json: "),
    ],
)
def test_a_schema_error_names_file_field_and_value(data: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        validate_model(_Cluster, data, file="c.json")
    assert str(caught.value).startswith("c.json: ")
    assert message in str(caught.value)
    assert "(got " in str(caught.value)
