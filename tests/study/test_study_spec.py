"""A mistake in a specification is named before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nestopt.core.errors import InputError
from nestopt.study.cells import plan_study
from nestopt.study.spec import read_spec

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
name = "good"
title = "A study"
time_limit = "60 s"

[[instances]]
collective = "all-gather:chunks={chunks}"
topology = ["mesh2d:{shape}", "torus2d:{shape}"]
heterogeneity = ["none", "log-uniform:0.5,2"]
fail_npus = [0, 1]
connected = true
grid.shape = ["3x3", "3x4"]
grid.chunks = [1, 2]
seeds = 3

[[methods]]
method = "greedy"
set.restarts = 4

[[methods]]
label = "exact"
method = "cpsat"
time_limit = "2 min"
memory_limit = "2 GiB"
max.npus = 9
only.fail_npus = [0]
seeds = [4, 5]

[report]
group_by = ["topology", "fail_npus"]
baseline = "exact"
x = "npus"
metrics = ["gap-to-bound"]
"""
PLACEMENT = """
name = "p"
[[instances]]
workload = "random-chain:4,seed={seed}"
cluster = "tree:2x2"
fail_npus = [0, 1]
seeds = 2
[[methods]]
method = "dp"
set.tensor = [1, 2]
"""


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _refused(tmp_path: Path, text: str) -> str:
    path = _write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        plan_study(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    return message


def test_a_good_one(tmp_path: Path) -> None:
    plan = plan_study(_write(tmp_path, GOOD))
    # 2 topologies x 2 shapes x 2 chunk counts x (1 even and whole, 3 seeds of the 3 others)
    assert len({str(c.definition["instance"]) for c in plan.cells}) == 2 * 2 * 2 * (1 + 3 * 3)
    greedy = [cell for cell in plan.cells if cell.label == "greedy"]
    exact = [cell for cell in plan.cells if cell.label == "exact"]
    assert len(greedy) == 80
    assert all(c.parameters["npus"] == 9 and c.parameters["fail_npus"] == 0 for c in exact)
    # on 3x3: 2 topologies x 2 chunk counts x (1 + 3 seeds) x 2 of its own
    assert len(exact) == 2 * 2 * 4 * 2
    assert {c.definition["time_limit"] for c in greedy} == {60.0}
    assert {c.definition["time_limit"] for c in exact} == {120.0}
    assert {c.definition["memory_limit"] for c in exact} == {2 * 2**30}
    assert {c.definition["seed"] for c in exact} == {4, 5}
    assert greedy[0].definition["settings"] == {"restarts": "4"}


def test_parameters_and_names(tmp_path: Path) -> None:
    cell = plan_study(_write(tmp_path, GOOD)).cells[-1]
    assert cell.definition["instance"]["names"] == {
        "collective": "all-gather:chunks=2",
        "topology": "torus2d:3x4+log-uniform:0.5,2+fail-npus:1+connected+seed:2",
    }
    assert cell.parameters == {
        "family": "all-gather on torus2d",
        "collective": "all-gather:chunks=2",
        "topology": "torus2d:3x4",
        "shape": "3x4",
        "chunks": 2,
        "heterogeneity": "log-uniform:0.5,2",
        "degraded": "none",
        "fail_npus": 1,
        "fail_links": 0,
        "fail_groups": "none",
        "fail_rates": "none",
        "days": 0.0,
        "instance_seed": 2,
        "size": 12,
        "npus": 11,
    }


def test_placement_and_settings(tmp_path: Path) -> None:
    plan = plan_study(_write(tmp_path, PLACEMENT))
    assert len(plan.cells) == 4
    assert plan.cells[0].definition["settings"] == {}
    assert plan.cells[0].definition["plans"] == "full tensor=1,2"
    assert plan.cells[-1].parameters["workload"] == "random-chain:4,seed={seed}"
    assert plan.cells[-1].definition["instance"]["names"]["workload"] == "random-chain:4,seed=1"
    assert plan.cells[-1].parameters["devices"] == 3
    assert plan.cells[-1].parameters["size"] == 4


@pytest.mark.parametrize(
    ("old", "new", "field", "said"),
    [
        ('title = "A study"', 'titel = "x"', "", "unknown key 'titel'; did you mean 'title'?"),
        ("seeds = 3", "seed = 3", "instances[0]", "did you mean 'seeds'?"),
        ("max.npus", "maxx.npus", "methods[1]", "did you mean 'max'?"),
        ("[report]", "[report]\ngroupby = 1", "report", "did you mean 'group_by'?"),
        ('name = "good"', 'name = "a b"', "name", "'a b'"),
        ('name = "good"', "", "name", "required"),
        ('"60 s"', "60", "time_limit", "expected a time with a unit"),
        ('"60 s"', '"60"', "time_limit", "'60' has no unit"),
        ('"60 s"', '"-1 s"', "time_limit", "above zero"),
        ('"60 s"', '"5 GB"', "time_limit", "unknown unit 'GB'"),
        ('"2 GiB"', "1e9", "methods[1].memory_limit", "expected bytes with a unit"),
        ('"2 GiB"', '"2 s"', "methods[1].memory_limit", "unknown unit 's'"),
        ("seeds = 3", "seeds = 0", "instances[0].seeds", "positive count"),
        ("seeds = 3", "seeds = -1", "instances[0].seeds", "positive count"),
        ("seeds = 3", "seeds = [1, 1]", "instances[0].seeds", "1 stands there twice"),
        ("seeds = 3", 'seeds = "3"', "instances[0].seeds", "'3'"),
        ("fail_npus = [0, 1]", "fail_npus = [-1]", "instances[0].fail_npus", "-1"),
        ("fail_npus = [0, 1]", "fail_npus = 1.5", "instances[0].fail_npus", "1.5"),
        ("connected = true", 'connected = "yes"', "instances[0].connected", "'yes'"),
        ('grid.shape = ["3x3", "3x4"]', "grid.shape = []", "instances[0].grid", "at least 1"),
        ('grid.shape = ["3x3", "3x4"]', "grid.shape = [[1]]", "instances[0].grid", "[1]"),
        ("set.restarts = 4", "set.restarts = {a = 1}", "methods[0].set", "{'a': 1}"),
        ('label = "exact"', 'label = "greedy"', "methods[1]", "label 'greedy' is there twice"),
        ('"gap-to-bound"', '"gap"', "report.metrics", "'gap'"),
        # against the catalogue
        ('"mesh2d:{shape}"', '"mash:{shape}"', "instances[0]", "did you mean 'mesh'"),
        ('"all-gather:', '"all-gater:', "instances[0]", "did you mean 'all-gather'"),
        ('"log-uniform:0.5,2"', '"log-unifrom:0.5,2"', "instances[0]", "'log-uniform'"),
        ('"log-uniform:0.5,2"', '"log-uniform:2,0.5"', "instances[0]", "lowest factor"),
        ('["3x3", "3x4"]', '["0x3"]', "instances[0]", "0; expected at least"),
        ('["3x3", "3x4"]', '["3x"]', "instances[0]", "'3x' is no shape"),
        ("fail_npus = [0, 1]", "fail_npus = [9]", "instances[0]", "no connected network"),
        ("fail_npus = [0, 1]", "fail_npus = [10]", "instances[0]", "10 shall fail; there are 9"),
        ("grid.chunks = [1, 2]", "grid.chunks = [0]", "instances[0]", "chunks is 0"),
        ("grid.chunks = [1, 2]", "grid.chonks = [1]", "instances[0]", "'chunks'"),
        ("grid.chunks = [1, 2]", "grid.chunks = 1\ngrid.x = 1", "instances[0]", "no name has {x}"),
        ("connected = true", "days = [3]\nconnected = true", "instances[0]", "fail_rates"),
        ("connected = true", 'fail_rates = "lama3"\ndays = 1', "instances[0]", "'llama3'"),
        ("connected = true", 'set.latency = "slow"', "instances[0]", "blocking or pipelined"),
        ("connected = true", 'set.latncy = "slow"', "instances[0]", "did you mean 'latency'?"),
        ("connected = true", 'cluster = "tree:2"', "instances[0]", "expected workload and cluster"),
        ('method = "greedy"', 'method = "gready"', "methods[0]", "did you mean 'greedy'"),
        ("set.restarts = 4", "set.restart = 4", "methods[0]", "did you mean 'restarts'?"),
        ("set.restarts = 4", 'set.latency = "pipelined"', "methods[0]", "belongs to the instances"),
        ("set.restarts = 4", 'space = "general"', "methods[0]", "a collective has none"),
        ("set.restarts = 4", 'backend = "cbc"', "methods[0]", "greedy has none"),
        ("set.restarts = 4", 'objective = "makspan"', "methods[0]", "did you mean 'makespan'?"),
        ("set.restarts = 4", 'problem = "placement"', "methods[0]", "no such instances"),
        ("max.npus = 9", "max.npus = 1", "methods[1]", "'exact' applies to no instance"),
        ("max.npus = 9", "max.npu = 9", "methods[1]", "did you mean 'npus'"),
        ("max.npus = 9", "max.shape = 9", "methods[1]", "numbers"),
        ("only.fail_npus", "only.fail_npu", "methods[1]", "did you mean 'fail_npus'"),
        ('"topology", "fail_npus"', '"toplogy"', "report", "did you mean 'topology'"),
        ('baseline = "exact"', 'baseline = "exakt"', "report", "did you mean 'exact'?"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(tmp_path: Path, old: str, new: str, field: str, said: str) -> None:
    assert old in GOOD
    message = _refused(tmp_path, GOOD.replace(old, new, 1))
    assert field in message
    assert said in message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("fail_npus = [0, 1]", "fail_links = 1", "a cluster has no links"),
        ("fail_npus = [0, 1]", 'fail_groups = "nod,1"', "no level 'nod'"),
        ("tree:2x2", "tree:2y2", "'2y2' is no shape"),
        ("set.tensor = [1, 2]", 'set.tensor = "two"', "expected integers"),
        ("set.tensor = [1, 2]", 'space = "genral"', "did you mean 'general'"),
        ("set.tensor = [1, 2]", 'label = "x"\nmethod2 = 1', "unknown key 'method2'"),
        ('"dp"\nset.tensor = [1, 2]', '"rank4d"', "unknown transformer"),
        ('"dp"\nset.tensor = [1, 2]', '"rank4d"\nset.mode = "best"', "unknown mode 'best'"),
        ("seeds = 2", "seeds = 2\nset.model = 'max-lode'", "max-load"),
    ],
)
def test_a_mistake_in_a_placement_study(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in PLACEMENT
    assert said in _refused(tmp_path, PLACEMENT.replace(old, new, 1))


def test_seeds_without_anything_random(tmp_path: Path) -> None:
    text = PLACEMENT.replace(",seed={seed}", "").replace("fail_npus = [0, 1]", "")
    assert "2 seeds, but nothing depends on them" in _refused(tmp_path, text)


def test_the_same_method_twice(tmp_path: Path) -> None:
    text = GOOD + '\n[[methods]]\nlabel = "again"\nmethod = "greedy"\nset.restarts = "4"\n'
    assert "'greedy' and 'again' are the same method" in _refused(tmp_path, text)


def test_an_instance_without_a_method(tmp_path: Path) -> None:
    text = PLACEMENT + '[[instances]]\ncollective = "all-gather"\ntopology = "ring:4"\n'
    assert "instances[1]: no method applies" in _refused(tmp_path, text)


def test_a_method_of_both_problems(tmp_path: Path) -> None:
    both = PLACEMENT + '[[instances]]\ncollective = "all-gather"\ntopology = "ring:4"\n'
    both += '[[methods]]\nmethod = "cpsat"\n'
    assert "solves both problems" in _refused(tmp_path, both)
    assert plan_study(_write(tmp_path, both + 'problem = "collective"\n')).cells


def test_blocks_share_a_label_if_conditions_part_them(tmp_path: Path) -> None:
    text = GOOD.replace('label = "exact"', 'label = "greedy"').replace('baseline = "exact"', "")
    assert "label 'greedy' is there twice for one instance" in _refused(tmp_path, text)
    text = text.replace("set.restarts = 4", "set.restarts = 4\nonly.fail_npus = [1]")
    assert {cell.label for cell in plan_study(_write(tmp_path, text)).cells} == {"greedy"}


def test_blocks_may_have_an_instance_in_common(tmp_path: Path) -> None:
    block = '[[instances]]\nfamily = "{}"\ncollective = "all-gather"\ntopology = "ring:4"\n'
    text = 'name = "x"\n' + block.format("one") + block.format("two")
    text += '[[methods]]\nmethod = "greedy"\n'
    assert len(plan_study(_write(tmp_path, text)).cells) == 1
    text += '[[methods]]\nmethod = "ring"\nonly.family = "two"\n'
    cells = plan_study(_write(tmp_path, text)).cells
    assert [cell.parameters["family"] for cell in cells] == ["one", "two"]


def test_not_toml(tmp_path: Path) -> None:
    assert "not TOML" in _refused(tmp_path, "name = ")
    with pytest.raises(InputError, match="cannot be read"):
        read_spec(tmp_path / "nothing.toml")


def test_library_and_files(tmp_path: Path) -> None:
    from nestopt.core.io import write_json
    from nestopt.core.registry import library_instance

    write_json(tmp_path / "mine.json", library_instance("ag-dgx1v").to_json())
    text = (
        'name = "x"\n[[instances]]\nlibrary = "ag-dgx1v"\n[[instances]]\nfile = "mine.json"\n'
        '[[methods]]\nmethod = "greedy"\n'
    )
    plan = plan_study(_write(tmp_path, text))
    assert plan.files == {"mine.json"}
    assert [cell.parameters["npus"] for cell in plan.cells] == [8, 8]
    before = plan.cells[1].id
    data = library_instance("ag-dgx1v").to_json() | {"latency": "pipelined"}
    write_json(tmp_path / "mine.json", data)
    assert plan_study(_write(tmp_path, text)).cells[1].id != before
    for file, said in (("../mine.json", "below the study's directory"), ("no.json", "No such")):
        assert said in _refused(tmp_path, text.replace("mine.json", file))
    assert "did you mean 'ag-dgx1v'" in _refused(tmp_path, text.replace('"ag-dgx1v"', '"ag-dgx1w"'))
    assert "grid goes with names" in _refused(
        tmp_path, text.replace('file = "mine.json"', 'file = "mine.json"\ngrid.a = 1')
    )


def test_ids_are_hashes_of_what_defines_a_cell(tmp_path: Path) -> None:
    cells = plan_study(_write(tmp_path, GOOD)).cells
    assert len({cell.id for cell in cells}) == len(cells)
    same = GOOD.replace('name = "good"', 'name = "other"').replace('label = "exact"', 'label = "e"')
    same = same.replace('baseline = "exact"', 'baseline = "e"')
    assert [c.id for c in plan_study(_write(tmp_path, same)).cells] == [c.id for c in cells]
    more = plan_study(_write(tmp_path, GOOD.replace("seeds = 3", "seeds = 4"))).cells
    assert {c.id for c in cells} < {c.id for c in more}
    limit = plan_study(_write(tmp_path, GOOD.replace('"60 s"', '"61 s"'))).cells
    assert not {c.id for c in cells if c.label == "greedy"} & {c.id for c in limit}


def test_an_id_never_changes(tmp_path: Path) -> None:
    """Records of earlier versions must be found again."""
    assert plan_study(_write(tmp_path, GOOD)).cells[0].id == "32043277526a729d"
