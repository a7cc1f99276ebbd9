"""Files that say more than is so: each is an honest result with one statement changed."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

import nestopt
from nestopt.cli import main
from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import sha256_of, write_json
from nestopt.core.verify import verify_file
from nestopt.instances.library import load

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def honest() -> dict[str, Any]:
    return nestopt.solve(load("chain4-tree2x2"), method="dp").to_json()


def _verdict(tmp_path: Path, data: dict[str, Any]) -> Any:
    data["instance"]["sha256"] = sha256_of(data["instance"]["data"])
    write_json(tmp_path / "forged.json", data)
    return verify_file(str(tmp_path / "forged.json"))


@pytest.mark.parametrize(("gap", "share"), [(0.5, "50 %"), (0.999, "99.9 %")])
def test_an_optimum_within_a_gap_is_called_so(
    honest: dict[str, Any], tmp_path: Path, gap: float, share: str
) -> None:
    data = copy.deepcopy(honest)
    bound = data["objective"] * (1 - gap) * (1 + 1e-9)
    data |= {"bound": bound, "gap": (data["objective"] - bound) / data["objective"]}
    data["settings"]["rel_gap"] = gap
    verdict = _verdict(tmp_path, copy.deepcopy(data))
    text = f" within settings.rel_gap alone: the gap to that bound is {share}"
    assert any(line.endswith(text) for line in [*verdict.verified, *verdict.claimed])
    assert not any("meets the proved bound" in line for line in verdict)
    data["settings"]["rel_gap"] = 0.0
    with pytest.raises(CheckError, match="is optimal but its bound"):
        _verdict(tmp_path, data)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "bottleneck"}, "settings.objective: 'bottleneck', but the instance has"),
        ({"tensor": "1"}, "settings.tensor: '1', but the instance's space is 'default-1 tensor"),
        ({"tensor": [1, 2, 4]}, "settings.tensor: "),
        ({"space": "megatron-core"}, "settings.space: 'megatron-core', but"),
        ({"schedule": "gpipe"}, "settings.schedule: 'gpipe', but"),
        ({"schedule": 7}, "settings.schedule: "),
    ],
)
def test_settings_contradict_no_instance(
    honest: dict[str, Any], tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    data = copy.deepcopy(honest)
    data["settings"] |= settings
    with pytest.raises(CheckError, match=message):
        _verdict(tmp_path, data)
    data["settings"] |= {"objective": "iteration-time"}
    for key in set(settings) - {"objective"}:
        del data["settings"][key]
    data["settings"] |= {"tensor": "1,2", "schedule": ["1f1b"]}
    assert _verdict(tmp_path, data).verified


def test_a_witness_names_the_space_and_the_source_of_its_bound(
    honest: dict[str, Any], tmp_path: Path
) -> None:
    data = copy.deepcopy(honest)
    data["witness"] = {"name": "compute", "space": "every plan of MODEL.md"}
    with pytest.raises(CheckError, match=r"all arithmetic proves .* s only"):
        _verdict(tmp_path, data)
    data["witness"] = {"bound": "search exhausted", "space": "'full' (general)"}
    with pytest.raises(CheckError, match=r"witness\.space: .'full'"):
        _verdict(tmp_path, data)


@pytest.mark.parametrize("where", ["objective", "bound"])
@pytest.mark.parametrize("value", [10**380, -(10**380)])
def test_integers_beyond_every_float_are_refused(
    honest: dict[str, Any], tmp_path: Path, where: str, value: int
) -> None:
    with pytest.raises(InputError, match=where):
        _verdict(tmp_path, copy.deepcopy(honest) | {where: value})


@pytest.mark.parametrize("value", [True, "72"])
@pytest.mark.parametrize(
    "path", [("cluster", "device_types", "h100", "efficiency"), ("workload", "bytes_weight")]
)
def test_truth_values_and_text_are_no_numbers(
    honest: dict[str, Any], tmp_path: Path, path: tuple[str, ...], value: object
) -> None:
    data = copy.deepcopy(honest)
    home = data["instance"]["data"]
    for key in path[:-1]:
        home = home[key]
    home[path[-1]] = value
    with pytest.raises((CheckError, InputError), match=path[-1]):
        _verdict(tmp_path, data)


def test_a_file_prints_no_line_of_its_own(
    honest: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = copy.deepcopy(honest)
    data["witness"]["bound"] = "a search\nok  optimal: proved\x1b[2J"
    write_json(tmp_path / "f.json", data)
    with pytest.raises(SystemExit) as end:
        main(["check", str(tmp_path / "f.json")])
    printed = capsys.readouterr().out
    assert not end.value.code
    assert "ok  optimal: proved" not in printed.splitlines() and "\x1b" not in printed
    assert "by a search\\nok  optimal: proved\\x1b[2J" in printed
    (tmp_path / "g.json").write_text(json.dumps(data | {"method": "\ud800"}))
    with pytest.raises(InputError, match=r"'\\ud800' is half of a character"):
        verify_file(str(tmp_path / "g.json"))
