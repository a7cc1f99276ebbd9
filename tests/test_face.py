"""The face of the library: what a user writes, what comes back, and what is refused."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import pytest

import nestopt
from nestopt.core.registry import get_method, methods_of, unregister
from nestopt.core.settings import setting_of

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
TINY = "chain4-tree2x2"


def _python(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(folder)},
    )  # fmt: skip


# --- names and imports ---------------------------------------------------------------------------


def test_every_public_name_is_there_and_about_thirty_are() -> None:
    assert 20 <= len(nestopt.__all__) <= 35
    for name in nestopt.__all__:
        assert getattr(nestopt, name) is not None
    assert set(nestopt.__all__) <= set(dir(nestopt))
    with pytest.raises(AttributeError, match="no attribute 'sovle'"):
        nestopt.sovle  # noqa: B018


def test_import_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import nestopt, sys; print(*sorted(sys.modules))"
    loaded = set(_python("-c", code, folder=tmp_path).stdout.split())
    assert "nestopt" in loaded
    assert not loaded & {"numpy", "numba", "pydantic", "typer", "networkx", "pulp", "ortools"}


def test_the_modules_of_a_user_do_not_break_the_library(tmp_path: Path) -> None:
    for name in ("instances", "formulations"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    code = (
        "import nestopt; from nestopt.core.registry import get_method; "
        "get_method('placement', 'milp'); import nestopt.formulations.placement.milp; "
        "print(nestopt.load('mesh2d:2x2').num_nodes)"
    )
    run = _python("-c", code, folder=tmp_path)
    assert (run.returncode, run.stdout.strip()) == (0, "4"), run.stderr


def test_python_m_nestopt_is_the_command_line(tmp_path: Path) -> None:
    run = _python("-m", "nestopt", "--version", folder=tmp_path)
    assert run.returncode == 0 and run.stdout == f"nestopt {nestopt.__version__}\n"


# --- solving -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planned() -> nestopt.Result:
    return nestopt.solve(TINY)


@pytest.fixture(scope="module")
def gathered() -> nestopt.Result:
    graph = nx.cycle_graph(4)
    network = nestopt.Topology.from_networkx(graph, bandwidth="25 GB/s", latency="1 us")
    return nestopt.solve(nestopt.Collective.of("all-gather", 4, chunk_size="1 MB"), network)


def test_a_plan_is_an_object(planned: nestopt.Result) -> None:
    plan = planned.solution
    assert isinstance(plan, nestopt.Plan)
    assert [stage.operators for stage in plan] == [stage.operators for stage in plan.stages]
    again = nestopt.Plan.from_json(planned.to_json()["solution"])
    assert again == plan and hash(again) == hash(plan)
    assert nestopt.Plan((*plan.stages[:-1],), plan.replicas, plan.microbatch) != plan
    assert len(repr(plan)) < 100 and len(repr(planned)) < 100
    assert "op0" in plan.summary() and "<table>" in plan._repr_html_()
    assert planned.verified


def test_a_schedule_is_an_object(gathered: nestopt.Result) -> None:
    schedule = gathered.solution
    assert isinstance(schedule, nestopt.Schedule)
    assert gathered.objective == 82_000_000 == gathered.bound
    assert [send.chunk for send in schedule] == schedule.chunk.tolist()
    again = nestopt.Schedule.from_json(gathered.to_json()["solution"])
    assert again == schedule and hash(again) == hash(schedule)
    assert len(repr(schedule)) < 100 and "12 sends" in schedule.summary()
    assert nestopt.simulate(gathered)["simulated"] == gathered.objective


def test_a_solution_as_a_frame(planned: nestopt.Result, gathered: nestopt.Result) -> None:
    pytest.importorskip("pandas")
    for result in (planned, gathered):
        assert result.solution is not None
        assert len(result.solution.to_frame()) == len(result.solution)
    assert gathered.solution is not None
    frame = gathered.solution.to_frame()
    assert frame["arrival_ps"].max() == gathered.objective
    assert set(frame["source"]) == {"0", "1", "2", "3"}


def test_pandas_is_optional(planned: nestopt.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert planned.solution is not None
    with pytest.raises(nestopt.NestoptError, match=r"pip install 'nestopt\[frame\]'"):
        planned.solution.to_frame()


def test_solutions_draw_on_the_axes_given(
    planned: nestopt.Result, gathered: nestopt.Result
) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    for result in (planned, gathered):
        axes = Figure().subplots()
        assert result.solution is not None
        assert result.solution.plot(ax=axes) is axes
        assert axes.collections or axes.patches


def test_files_of_results_and_objects_go_together(gathered: nestopt.Result, tmp_path: Path) -> None:
    file = tmp_path / "ag.json"
    written = nestopt.solve("all-gather:size=1MB", "ring:4", output=file)
    read = nestopt.load(file)
    assert read.solution == written.solution and read.objective == written.objective
    assert nestopt.check(file) and nestopt.check(read)
    again = nestopt.solve("all-gather:size=1MB", "ring:4", method="lns", warm_start=file,
                          iterations=1)  # fmt: skip
    assert again.objective <= written.objective


def test_the_command_line_and_the_library_give_the_same(tmp_path: Path) -> None:
    from nestopt.cli import main

    target = tmp_path / "plan.json"
    with pytest.raises(SystemExit) as ended:
        main(["solve", TINY, "-q", "--set", "tensor=1,2", "--seed", "3", "-o", str(target)])
    assert ended.value.code == 0
    written, found = nestopt.load(target), nestopt.solve(TINY, tensor=(1, 2), seed=3)
    assert written.solution == found.solution
    assert (written.objective, written.instance) == (found.objective, found.instance)


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": math.nan}, "time_limit nan"),
        ({"time_limit": -1}, "time_limit -1"),
        ({"time_limit": "3 furlongs"}, "unknown unit 'furlongs'"),
        ({"threads": 0}, "threads 0: expected a whole number of at least 1"),
        ({"threads": 1.5}, "threads 1.5"),
        ({"seed": -1}, "seed -1: expected a whole number of at least 0"),
        ({"seed": True}, "seed True"),
        ({"rel_gap": 1.5}, "rel_gap 1.5: expected a number from 0 to 1"),
        ({"set": 3}, "set 3: expected a mapping"),
        ({"set": {"iterations": None}}, "setting iterations: None"),
        ({"backend": 7}, "backend 7"),
    ],
)
def test_options_are_checked_when_they_are_made(options: Any, message: str) -> None:
    with pytest.raises(nestopt.UsageError, match=message):
        nestopt.SolveOptions(**options)


def test_settings_of_python_are_those_of_the_command_line() -> None:
    options = nestopt.SolveOptions(time_limit="2 min", set={"a": True, "b": 3, "c": (1, 2)})
    assert options.time_limit == 120 and options.set == {"a": "true", "b": "3", "c": "1,2"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"space": "genral"}, "unknown plan space 'genral'; did you mean 'general'"),
        ({"objective": "botleneck"}, "objective 'botleneck'; did you mean 'bottleneck'"),
        ({"method": "dpp"}, "unknown placement method 'dpp'; did you mean 'dp'"),
        ({"tensr": 2}, "unknown setting of dp 'tensr'; did you mean 'tensor'"),
        ({"tensor": "two"}, "tensor: 'two'"),
        ({"method": "mcmc", "iterations": 0}, "iterations=0: expected a whole number"),
        ({"iterations": 5}, "unknown setting of dp 'iterations'"),
        ({"batch": 8}, "states this already"),
        ({"time_limit": 0}, "expected a positive time"),
        ({"space": 7}, "space 7: expected a PlanSpace"),
    ],
)
def test_wrong_words_are_refused(words: Any, message: str) -> None:
    with pytest.raises(nestopt.NestoptError, match=message):
        nestopt.solve(TINY, **words)


def test_a_method_refuses_settings_that_it_does_not_read() -> None:
    instance = nestopt.instance(TINY)
    with pytest.raises(nestopt.UsageError, match="dp does not read it"):
        get_method("placement", "dp")(instance, nestopt.SolveOptions(set={"tensor": 1}))


def test_parts_that_do_not_fit_are_refused() -> None:
    cluster, network = nestopt.load("tree:2x2"), nestopt.load("ring:4")
    with pytest.raises(nestopt.UsageError, match="a workload does not run on a topology"):
        nestopt.solve(nestopt.load("random-chain:3"), network)
    with pytest.raises(nestopt.UsageError, match="a collective does not run on a cluster"):
        nestopt.solve(nestopt.Collective.of("broadcast", 4), cluster)
    with pytest.raises(nestopt.UsageError, match="no whole instance"):
        nestopt.solve(cluster)
    with pytest.raises(nestopt.UsageError, match="neither a file nor a name"):
        nestopt.load("no-such-thing")


def test_plan_spaces_may_be_objects_names_or_mappings() -> None:
    wanted = nestopt.instance(TINY).over(nestopt.PlanSpace.parse("default-1 tensor=1,2"))
    for space in (wanted.space, "default-1 tensor=1,2", {"name": "default-1", "tensor": (1, 2)}):
        found = nestopt.instance("random-chain:3", "tree:2x2", space=space)
        assert found.space == wanted.space
    assert nestopt.instance("random-chain:3", "tree:2x2", objective="bottleneck").objective


# --- methods of one's own ------------------------------------------------------------------------


@pytest.fixture
def mine() -> Iterator[str]:
    def solve(instance: Any, options: nestopt.SolveOptions) -> nestopt.Result:
        result = get_method("placement", "dp")(instance, nestopt.SolveOptions())
        result.method = f"mine {options.set['depth']}"
        return result

    nestopt.register("placement.mine", solve)
    yield "mine"
    unregister("placement.mine")


def test_a_registered_function_is_a_method(mine: str) -> None:
    result = nestopt.solve(TINY, method=mine, depth=3)
    assert result.method == "mine 3" and result.verified


def test_a_registered_function_passes_the_checker_like_every_method() -> None:
    def liar(instance: Any, options: Any) -> nestopt.Result:
        result = get_method("placement", "dp")(instance, nestopt.SolveOptions())
        result.objective = result.bound = 1e-3
        return result

    nestopt.register("placement.liar", liar)
    try:
        with pytest.raises(nestopt.CheckError, match="the checker refuses what dp returned"):
            nestopt.solve(TINY, method="liar")
    finally:
        unregister("placement.liar")


@pytest.mark.parametrize("name", ["mine", "placement.", "sudoku.mine", "placement.dp"])
def test_wrong_names_of_methods_are_refused(name: str) -> None:
    with pytest.raises(nestopt.UsageError, match="method"):
        nestopt.register(name, lambda instance, options: None)  # type: ignore[arg-type]


# --- graphs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mesh2d:3x3", "dgx1v", "dgx-h100", "ring:5"])
def test_topologies_survive_networkx(name: str) -> None:
    topology = nestopt.load(name, "topology")
    assert nestopt.Topology.from_networkx(topology.to_networkx()) == topology
    assert nestopt.Topology.from_json(topology.to_json()) == topology


def test_a_graph_states_switches_latency_and_parallel_links() -> None:
    graph = nx.Graph()
    graph.add_node("s", switch=True, multicast=True)
    graph.add_edge("a", "s", bandwidth="10 GB/s", latency="2 us", count=2)
    graph.add_edge("b", "s", bandwidth=5 * 10**9, alpha_ps=7)
    found = nestopt.Topology.from_networkx(graph)
    assert found.num_links == 6 and found.is_switch.tolist() == [True, False, False]
    assert found.multicast[0] and not found.reduces[0]
    assert sorted(set(found.alpha_ps.tolist())) == [7, 2_000_000]
    assert sorted(set(found.bandwidth.tolist())) == [5 * 10**9, 10**10]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "has no bandwidth"),
        ({"bandwidth": "10 GB"}, "bandwidth"),
        ({"bandwidth": 0}, "expected a bandwidth above zero"),
        ({"bandwidth": 1.5}, "not a whole number"),
        ({"bandwidth": [1]}, "expected bytes/s"),
        ({"bandwidth": 1, "latency": -1}, "expected seconds"),
        ({"bandwidth": 1, "latency": 1, "alpha_ps": 1}, "give one"),
        ({"bandwidth": 1, "count": 0}, "count"),
    ],
)
def test_wrong_edges_are_refused_by_name(values: Any, message: str) -> None:
    graph = nx.DiGraph()
    graph.add_edge("a", "b", **values)
    with pytest.raises(nestopt.InputError, match=message) as refused:
        nestopt.Topology.from_networkx(graph)
    assert "'a' -> 'b'" in str(refused.value)


# --- texts with units ----------------------------------------------------------------------------


def test_builders_take_units() -> None:
    level = nestopt.Level("node", "1 us", "450 GB/s", "50 GB/s")
    assert (level.latency, level.port, level.uplink) == (1e-6, 450e9, 50e9)
    device = nestopt.DeviceType("x", "989 TFLOP/s", "80 GiB", "3350 GB/s")
    assert device.memory == 80 * 2**30
    rows: list[tuple[int, int, int | str, int | str]] = [(0, 1, "0.7 us", "25 GB/s")]
    network = nestopt.Topology.from_links("pair", 2, rows, bidirectional=True)
    assert network.alpha_ps.tolist() == [700_000] * 2
    assert nestopt.Collective.of("broadcast", 2, chunk_size="1 MiB").chunk_size == 2**20
    operator = nestopt.Operator("o", flops=1e12, act_input="16 MiB")
    assert operator.act_input == 16 * 2**20
    job = nestopt.Workload.chain("job", [operator, nestopt.Operator("p")], "1 MiB", 4)
    assert job.edges[0].bytes == 2**20
    with pytest.raises(nestopt.InputError, match="450 GB"):
        nestopt.Level("node", "1 us", "450 GB")


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["placement", "collective"])
def test_every_setting_has_its_row(problem: str) -> None:
    from nestopt.core.problem import get_problem

    adapter = get_problem(problem)
    keys = {(None, key) for key in (*adapter.settings, *getattr(adapter, "space_settings", ()))}
    for name, row in methods_of(problem).items():
        keys |= {(name, key) for key in row.all_settings}
    for method, key in keys:
        found = setting_of(problem, key, method)
        assert found is not None, (method, key)
        assert found.key == key and found.meaning.endswith(".") and found.form
        example_key, _, value = found.example.partition("=")
        assert example_key == key
        found.check(value)


def test_every_key_of_a_name_has_its_row_and_an_example_that_is_read() -> None:
    from dataclasses import fields

    from nestopt.instances.recipe_keys import RECIPE_KEYS

    stated = {row.key for row in RECIPE_KEYS["workload"]}
    known = {field.name for field in fields(nestopt.Transformer)} - {"sequence"}
    assert stated == known | {"batch", "seq"}
    name = "mixtral-8x7b," + ",".join(row.example for row in RECIPE_KEYS["workload"])
    assert nestopt.load(name, "workload").global_batch == 1024
    for row in RECIPE_KEYS["cluster"]:
        assert nestopt.load(f"dgx-h100-256{row.example}", "cluster").num_devices > 100
    for row in RECIPE_KEYS["topology"]:
        text = row.example if row.example.startswith("+") else f",{row.example}"
        if row.key == "+fail-group:":
            text = text.replace("node", "row")
        assert nestopt.load(f"mesh2d:20x20{text}", "topology").num_links > 1000
    for row in RECIPE_KEYS["collective"]:
        pattern = "broadcast" if row.key == "root" else "all-gather"
        found = nestopt.instance(f"{pattern}:{row.example}", "ring:8")
        assert found.collective.num_chunks


def test_failed_devices_by_number(tmp_path: Path) -> None:
    assert nestopt.load("dgx-h100-256+fail:13,200").failed == (13, 200)
    assert nestopt.load("dgx-h100-64+fail:0-3:9").failed == (0, 1, 2, 3, 9)
    network = nestopt.load("mesh2d:3x3+fail:4", "topology")
    assert network.num_nodes == 8 and "4" not in network.node_names
    for wrong, message in (("99", "99"), ("x", "expected numbers"), ("3,3", "listed twice")):
        with pytest.raises(nestopt.InputError, match=message):
            nestopt.load(f"dgx-h100-64+fail:{wrong}", "cluster")


@pytest.mark.parametrize("where", ["name", "file"])
def test_fail_of_the_command_line(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from nestopt.cli import main
    from nestopt.core.io import write_json

    place = "mesh2d:3x3"
    if where == "file":
        write_json(tmp_path / "t.json", nestopt.load(place, "topology").to_json())
        place = str(tmp_path / "t.json")
    words = ["--collective", "all-gather", "--topology", place, "--fail", "4"]
    with pytest.raises(SystemExit):
        main(["solve", *words, "-q", "-o", str(tmp_path / "r.json")])
    assert nestopt.load(tmp_path / "r.json").solution.instance.topology.num_nodes == 8
    with pytest.raises(SystemExit) as ended:
        main(["solve", TINY, "--fail", "1"])
    assert ended.value.code == 2 and "states this already" in capsys.readouterr().err


def test_the_cause_of_an_expert_degree_that_cannot_be() -> None:
    result = nestopt.solve("mixtral-8x7b", "dgx-h100-64", expert=32)
    assert "expert degree (32) divides the 8 experts" in result.infeasible_because[0]
    result = nestopt.solve("gpt3-1.7b", "dgx-h100-64", expert=2)
    assert "no operator of gpt3-1.7b has any" in result.infeasible_because[0]
    result = nestopt.solve("gpt3-1.7b", "dgx-h100-64", context=3)
    assert "context degree (3)" in result.infeasible_because[0]
