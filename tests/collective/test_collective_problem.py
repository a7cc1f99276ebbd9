"""Entry points of the collective problem: names, files, checks of results, pictures, tables."""

from __future__ import annotations

import copy
import io
import json

import numpy as np
import pytest
from collective_cases import greedy, instance

from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.of_result import in_columns, schedule_of
from nestopt.collective.problem import PROBLEM
from nestopt.collective.show.plot import draw_links, draw_schedule
from nestopt.core.errors import CheckError, InputError, NestoptError, UsageError
from nestopt.core.io import write_json
from nestopt.core.options import SolveOptions
from nestopt.core.problem import get_problem
from nestopt.core.result import Result


@pytest.fixture(scope="module")
def result() -> Result:
    return greedy(instance("mesh2d:3x4"))


@pytest.fixture(scope="module")
def reduced() -> Result:
    return greedy(instance("dgx-a100:2x4", "all-reduce"), restarts=2)


def reread(result: Result) -> Result:
    return Result.from_json(json.loads(json.dumps(result.to_json())))


def test_instances_from_names_and_files(tmp_path) -> None:
    assert get_problem("collective") is PROBLEM
    names = {"collective": "broadcast:root=2", "topology": "ring:5"}
    named = PROBLEM.from_names(names, {"latency": "pipelined"})
    assert (named.name, named.latency) == ("broadcast:root=2 on ring:5", "pipelined")
    assert named.collective.parts[0].root == 2
    write_json(tmp_path / "ring.json", named.topology.to_json())
    write_json(tmp_path / "job.json", named.collective.to_json())
    files = {"collective": str(tmp_path / "job.json"), "topology": str(tmp_path / "ring.json")}
    assert PROBLEM.from_names(files, {"latency": "pipelined"}).to_json() == named.to_json()
    with pytest.raises(UsageError, match="latency=eager: expected blocking or pipelined"):
        PROBLEM.from_names(names, {"latency": "eager"})
    with pytest.raises(UsageError, match="did you mean"):
        PROBLEM.from_names(names | {"topology": "rnig:5"}, {})


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"schema": "x"}, "schema: 'x'; expected 'nestopt.instance/1'"),
        ({"problem": "placement"}, "problem: 'placement'; expected 'collective'"),
        ({"latency": "eager"}, "latency: 'eager'"),
        ({"colour": 1}, "colour: is unknown"),
        ({"topology": None}, "schema: 'None'"),
    ],
)
def test_wrong_instance_files(change, expected) -> None:
    data = instance("ring:3").to_json() | change
    with pytest.raises(InputError, match=expected) as caught:
        PROBLEM.from_json(data, file="i.json")
    assert "i.json" in str(caught.value)
    missing = instance("ring:3").to_json()
    del missing["topology"]
    with pytest.raises(InputError, match="topology: is missing"):
        CollectiveInstance.from_json(missing)


def test_results_pass_and_their_bounds_are_proved(result: Result, reduced: Result) -> None:
    lines = PROBLEM.check(reread(result))
    assert any("the bound's witness proves" in line for line in lines)
    assert any("no two share a link" in line for line in lines)
    assert any("exactly once" in line for line in PROBLEM.check(reread(reduced)))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda r: r["solution"].update(makespan_ps=r["objective"] - 1), "the last chunk arrives"),
        (lambda r: r.update(objective=r["objective"] + 1), "objective"),
        (lambda r: r["solution"]["sends"]["link"].pop(), "values for"),
        (lambda r: r["instance"].update(sha256="0" * 64), "sha256"),
        (lambda r: r["witness"].update(value=r["bound"] + 1), "can have crossed|carry|delivered"),
        (lambda r: r["witness"].update(need=r["witness"]["need"] + 1), "must cross"),
        (lambda r: r.update(bound=r["objective"] + 1), "bound"),
        (lambda r: r["instance"].pop("data"), "does not hold its instance"),
        (lambda r: r["instance"]["data"].update(latency="slow"), "instance"),
    ],
)
def test_tampered_results_fail(result: Result, change, expected) -> None:
    data = copy.deepcopy(json.loads(json.dumps(result.to_json())))
    change(data)
    with pytest.raises(CheckError, match=expected):
        PROBLEM.check(Result.from_json(data))


def test_a_false_infeasibility_fails() -> None:
    from nestopt.collective.model.topology import Topology
    from nestopt.core.io import sha256_of

    split = Topology.from_links("split", 2, [(0, 1, 0, 1)])
    proved = greedy(instance(split))
    assert "infeasible" in PROBLEM.check(proved)[0]
    data = proved.to_json()
    data["instance"]["data"] = instance("ring:3").to_json()
    data["instance"]["sha256"] = sha256_of(data["instance"]["data"])
    with pytest.raises(CheckError, match="every chunk can reach its destination"):
        PROBLEM.check(Result.from_json(data))


def test_simulation_of_results(reduced: Result) -> None:
    played = PROBLEM.simulate(reduced)
    assert played["closed_form"] == played["simulated"] == reduced.objective
    none = copy.copy(reduced)
    none.solution_json = None
    with pytest.raises(NestoptError, match="no schedule"):
        PROBLEM.simulate(none)


def test_bounds_come_best_first(result: Result) -> None:
    rows = PROBLEM.bounds(instance("mesh2d:3x4"), SolveOptions())
    assert rows[0]["value"] == max(row["value"] for row in rows) == result.bound


def test_tables_fit_80_columns(result: Result, reduced: Result) -> None:
    from rich.console import Console

    for each, words in ((result, ("proved optimal", "ingress")), (reduced, ("gap to bound",))):
        text = io.StringIO()
        PROBLEM.describe(each, Console(file=text, width=200, highlight=False))
        lines = text.getvalue().splitlines()
        assert max(map(len, lines)) <= 80
        assert all(word in text.getvalue() for word in words)
        assert f"{each.objective} ps" in text.getvalue()


def test_pictures(result: Result, reduced: Result, tmp_path) -> None:
    for name, each in (("a.svg", result), ("b.svg", result), ("c.pdf", reduced)):
        PROBLEM.plot(each, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 10_000
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    with pytest.raises(UsageError, match=r"\.pdf, \.png or \.svg"):
        PROBLEM.plot(result, tmp_path / "a.gif")


def test_what_the_picture_shows(result: Result) -> None:
    problem = instance("mesh2d:3x4")
    schedule = in_columns(problem, schedule_of(result, None))
    figure = draw_schedule(problem, schedule)
    left, right = figure.axes[:2]
    assert left.get_xlabel() == "time (ms)"
    # 132 sends of 1 ms on 34 links in 6 ms
    (label,) = [text.get_text() for text in left.get_yticklabels()]
    assert label == f"34 links, 1 GB/s\nidle {100 * (1 - 132 / (34 * 6)):.0f} %"
    (bars,) = left.collections
    assert len(bars.get_paths()) == schedule.num_sends == 132
    names = [text.get_text() for text in left.child_axes[0].get_yticklabels()]
    assert names[:2] == ["npu0.0 → npu0.1", "npu0.0 → npu1.0"] and len(names) == 34
    # the colour of a chunk is one of 12 (no shade between two), and both bars lie below
    assert bars.norm.boundaries.tolist() == list(range(13))
    assert len(bars.cmap.colors) == 12
    assert [a.get_xlabel() for a in figure.axes[2:]] == ["chunk", "share of the makespan occupied"]
    (lines, *_) = right.collections
    assert {text.get_text() for text in right.texts} == {f"{a}.{b}" for a in "012" for b in "0123"}
    share = np.bincount(schedule.link, minlength=problem.topology.num_links) / 6
    assert np.allclose(lines.get_array(), share)


def test_many_sends_are_drawn_as_shares() -> None:
    from matplotlib.figure import Figure

    problem = instance("torus2d:9x9")
    schedule = in_columns(problem, schedule_of(greedy(problem), None))
    axes = Figure().subplots()
    draw_links(axes, problem, schedule)
    (image,) = axes.images
    table = image.get_array()
    assert table.shape == (324, 200)
    # every link is busy throughout: 80 chunks over 4 links in 20 steps
    assert np.allclose(table, 1)
