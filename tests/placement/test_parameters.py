"""Named sets of parameters: what they say, files of one's own, and where they are recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from nestopt.core.errors import InputError, NestoptError, UsageError
from nestopt.core.pricing import DEFAULT_SET, FIRST_SET, SETS
from nestopt.core.registry import named
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Hides
from nestopt.placement.pricing.parameters import current_set, parameter_set, using_set
from nestopt.placement.problem import PROBLEM

if TYPE_CHECKING:
    from pathlib import Path

NAMES = {"workload": "llama3-8b", "cluster": "dgx-h100-16"}


@pytest.mark.parametrize("name", SETS)
def test_every_figure_has_a_source(name: str) -> None:
    found = parameter_set(name)
    assert found.name == name
    for device, figures in found.devices.items():
        stated = {word.strip() for key in figures.sources for word in key.split(",")}
        expected = {"peak", "memory", "memory_bandwidth", "reserve", "efficiency", "half_flops"}
        assert expected | {"memory_fraction"} == stated, device
        assert all(text for text in figures.sources.values())
    assert all(framework.source for framework in found.frameworks.values())


def test_the_first_set_has_the_first_versions_figures() -> None:
    h100 = parameter_set(FIRST_SET).device_type("h100")
    assert (h100.efficiency, h100.half_flops, h100.memory_bandwidth) == (0.65, 8e10, 3350e9)
    now = parameter_set(DEFAULT_SET).device_type("h100")
    assert now.peak == h100.peak and now.memory == h100.memory
    assert now.efficiency < h100.efficiency and now.memory_bandwidth < h100.memory_bandwidth


def test_frameworks_hide_what_they_say() -> None:
    found = parameter_set(DEFAULT_SET)
    assert found.framework("megatron-core").hides == Hides.TENSOR | Hides.SYNC
    assert found.framework("megatron-lm").hides == Hides.NONE
    assert found.framework("axonn").overlap
    with pytest.raises(UsageError, match="did you mean 'megatron-core'"):
        found.framework("megatron-cor")


def test_an_instance_names_its_set_and_keeps_the_figures() -> None:
    new, old = (PROBLEM.from_names(NAMES, {"pricing": name}) for name in (DEFAULT_SET, FIRST_SET))
    assert isinstance(new, PlacementInstance) and isinstance(old, PlacementInstance)
    assert PROBLEM.from_names(NAMES, {}).to_json() == new.to_json()
    assert new.to_json()["pricing"] == DEFAULT_SET
    assert "pricing" not in old.to_json()
    for instance in (new, old):
        again = PlacementInstance.from_json(json.loads(json.dumps(instance.to_json())))
        assert again.pricing == instance.pricing
        assert again.to_json() == instance.to_json()
    block, first = new.workload.operators[1], old.workload.operators[1]
    assert block.flops_attn == first.flops_attn / 2
    assert block.act_full < first.act_full and block.act_shard < first.act_shard
    assert new.workload.model_flops == old.workload.model_flops


def test_a_file_of_ones_own_states_what_differs(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    data = {
        "schema": "nestopt.parameters/1",
        "name": "mine",
        "base": "nestopt-2",
        "devices": {"h100": {"efficiency": 0.4, "memory": "94 GiB"}},
    }
    path.write_text(json.dumps(data), encoding="utf-8")
    instance = PROBLEM.from_names(NAMES, {"pricing": str(path)})
    assert isinstance(instance, PlacementInstance)
    assert instance.pricing == "mine"
    (kind,) = instance.cluster.types
    base = parameter_set("nestopt-2").device("h100")
    assert (kind.efficiency, kind.memory) == (0.4, 94 * 2**30)
    assert kind.half_flops == base.half_flops
    assert parameter_set(str(path)).device("h100").fitted_on == ()
    assert current_set().name == DEFAULT_SET


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"devices": {"h100": {"efficiency": 1.5}}}, "devices.h100.efficiency"),
        ({"devices": {"h100": {"memory": "80"}}}, "80"),
        ({"devices": {"b200": {"peak": 1e15}}}, "devices.b200.memory.*is missing"),
        ({"devices": {"h100": {"eficiency": 0.5}}}, "eficiency"),
        ({"base": "nestopt-9"}, "nestopt-9"),
        ({"schema": "nestopt.parameters/9"}, "schema"),
        ({"frameworks": {"mine": {"hides": ["tensors"]}}}, "did you mean 'tensor'"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, change: dict[str, object], match: str) -> None:
    path = tmp_path / "wrong.json"
    data = {"schema": "nestopt.parameters/1", "name": "mine", "base": "nestopt-2", **change}
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(NestoptError, match=match):
        parameter_set(str(path))


def test_names_stand_for_the_set_in_force() -> None:
    with using_set(FIRST_SET):
        assert named("cluster", "tree:4").types[0].efficiency == 0.65
    assert named("cluster", "tree:4").types[0] == current_set().device_type("h100")
    with pytest.raises(UsageError, match="nestopt-1"):
        PROBLEM.from_names(NAMES, {"pricing": "nestopt-0"})
    with pytest.raises(InputError, match=r"missing.json"):
        PROBLEM.from_names(NAMES, {"pricing": "missing.json"})
