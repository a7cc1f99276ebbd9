"""The placement problem's entry points: instances, checks, simulation, description."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from plan_cases import random_case, result_of, roomy, tiny_plan
from rich.console import Console

from nestopt.core.errors import CheckError, InputError, NestoptError, UsageError
from nestopt.core.io import sha256_of
from nestopt.core.problem import get_problem
from nestopt.core.result import Limit, Reason, Result, Termination
from nestopt.placement.judge.check import price
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.workload import Operator, Workload
from nestopt.placement.partitioning.maxload import MaxLoadProblem
from nestopt.placement.partitioning.maxload import Operator as LoadOperator
from nestopt.placement.problem import PROBLEM
from nestopt.placement.show.describe import mfu, name_ranges, number_ranges


def described(result: Result) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    PROBLEM.describe(result, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(len(line) for line in text.splitlines()) <= 80
    return text


# --- independence -------------------------------------------------------------------------------


# --- instances ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_instance_round_trip(seed):
    workload, cluster, plan = random_case(np.random.default_rng(seed))
    instance = PlacementInstance(workload, cluster)
    data = json.loads(json.dumps(instance.to_json()))
    again = PROBLEM.from_json(data)
    assert again.name == "random on random"
    assert sha256_of(again.to_json()) == sha256_of(instance.to_json())
    once = price(workload, cluster, plan)
    twice = price(again.workload, again.cluster, Plan.from_json(plan.to_json()))
    assert once == twice


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "nestopt.instance/3"}, "i.json: schema: 'nestopt.instance/3'; expected"),
        ({"problem": "collective"}, "i.json: problem: 'collective'; expected 'placement'"),
        ({"workload": None}, "i.json"),
        ({"cluster": {}}, "i.json: schema"),
        ({"name": 3}, "i.json: name: 3; expected text"),
        ({"devices": 3}, "i.json: devices: is unknown"),
    ],
)
def test_wrong_instances(change, message):
    workload, cluster, _ = tiny_plan()
    data = PlacementInstance(workload, cluster).to_json() | change
    with pytest.raises(InputError, match=message):
        PROBLEM.from_json(data, file="i.json")


def test_missing_parts():
    workload, cluster, _ = tiny_plan()
    for key in ("workload", "cluster"):
        data = PlacementInstance(workload, cluster).to_json()
        del data[key]
        with pytest.raises(InputError, match=f"{key}: is missing"):
            PROBLEM.from_json(data)
    with pytest.raises(InputError, match=r"expected 'nestopt\.instance/2'"):
        PROBLEM.from_json([])


def test_names_and_files(tmp_path):
    named = PROBLEM.from_names({"workload": "gpt3-175b", "cluster": "h100-spineleaf-64"}, {})
    assert named.name == "gpt3-175b on h100-spineleaf-64"
    assert named.cluster.num_devices == 64
    workload, cluster, _ = tiny_plan()
    for name, data in (("w.json", workload.to_json()), ("c.json", cluster.to_json())):
        (tmp_path / name).write_text(json.dumps(data))
    files = {"workload": str(tmp_path / "w.json"), "cluster": str(tmp_path / "c.json")}
    read = PROBLEM.from_names(files, {"batch": "16"})
    assert (read.name, read.workload.global_batch) == ("tiny on tiny", 16)
    with pytest.raises(InputError, match=r"none\.json: cannot be read"):
        PROBLEM.from_names(files | {"workload": str(tmp_path / "none.json")}, {})
    with pytest.raises(UsageError, match="did you mean 'gpt3-175b'"):
        PROBLEM.from_names(files | {"workload": "gpt3-175"}, {})
    for value in ("0", "many"):
        with pytest.raises(InputError, match="--set batch"):
            PROBLEM.from_names(files, {"batch": value})
    with pytest.raises(UsageError, match="one of pipeline, max-load, piper"):
        PROBLEM.from_names(files, {"model": "flow"})


def test_the_problem_is_found_by_name():
    assert get_problem("placement") is PROBLEM
    assert PROBLEM.name == "placement"
    assert PROBLEM.settings == ("batch", "model", "bandwidth", "collectives", "pricing")


# --- the max-load model -------------------------------------------------------------------------


def max_load() -> MaxLoadProblem:
    operators = tuple(LoadOperator(i, 1.0 + i, 9.0, memory=5.0) for i in range(3))
    return MaxLoadProblem("small", 2, 1, 10.0, operators, ((0, 1), (1, 2)))


def test_max_load_instances(tmp_path):
    problem = max_load()
    assert PROBLEM.from_json(problem.to_json()) == problem
    file = tmp_path / "split.json"
    file.write_text(json.dumps(problem.to_json()))
    model = {"model": "max-load"}
    read = PROBLEM.from_names({"workload": str(file), "cluster": "3+0"}, model)
    assert (read.accelerators, read.cpus, read.operators) == (3, 0, problem.operators)
    for names, settings, message in (
        ({"workload": str(file), "cluster": "six"}, {}, "ACCELERATORS\\+CPUS"),
        ({"workload": "bert24", "cluster": "6+1"}, {}, "it is a file"),
        ({"workload": str(file), "cluster": "6+1"}, {"batch": "3"}, "has no batch"),
    ):
        with pytest.raises(UsageError, match=message):
            PROBLEM.from_names(names, model | settings)
    with pytest.raises(InputError, match="no device"):
        PROBLEM.from_names({"workload": str(file), "cluster": "0+0"}, model)


def max_load_result() -> Result:
    data = max_load().to_json()
    rows = [
        {"device": "accelerator", "operators": [0, 1], "load": 3.0, "memory": 10.0},
        {"device": "accelerator", "operators": [2], "load": 3.0, "memory": 5.0},
    ]
    return Result(
        problem="placement",
        instance={"name": "small", "sha256": sha256_of(data), "data": data},
        method="dp",
        termination=Termination(Reason.OPTIMAL),
        objective=3.0,
        bound=3.0,
        seconds=0.1,
        solution_json={"schema": "nestopt.maxload-split/1", "stages": rows},
        settings={"model": "max-load", "objective": "bottleneck", "space": "structured"},
    )


def test_max_load_results():
    result = max_load_result()
    assert "each of the 3 operators lies in one of 2 stages" in PROBLEM.check(result)
    result.solution_json["stages"][1]["load"] = 2.0
    with pytest.raises(CheckError, match="stage 1 has the load"):
        PROBLEM.check(result)
    text = described(max_load_result())
    assert "largest load 3 s" in text
    assert text.count("accelerator") == 2
    for call in (PROBLEM.simulate, lambda r: PROBLEM.plot(r, Path("x.png"))):
        with pytest.raises(NestoptError, match="the max-load model has no timeline"):
            call(max_load_result())
    (bound,) = PROBLEM.bounds(max_load(), None)
    assert bound["name"] == "compute"
    assert bound["value"] == 3.0  # the largest operator


# --- results ------------------------------------------------------------------------------------


def test_check_simulate_plot(tmp_path):
    result = result_of(*tiny_plan())
    assert any("as claimed" in line for line in PROBLEM.check(result))
    played = PROBLEM.simulate(result)
    assert played["closed_form"] == pytest.approx(125.3)
    assert json.loads(json.dumps(played)) == played
    PROBLEM.plot(result, tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
    result.instance = {"name": "bare"}
    with pytest.raises(CheckError, match="does not hold its instance"):
        PROBLEM.simulate(result)
    result.solution_json = None
    with pytest.raises(NestoptError, match="no plan to simulate"):
        PROBLEM.simulate(result)


# --- description --------------------------------------------------------------------------------


def test_ranges():
    assert number_ranges([3, 0, 1, 2, 7, 9, 10]) == ["0-3", "7", "9-10"]
    assert number_ranges([]) == []
    names = ["embedding", *(f"block {i}" for i in range(12)), "head"]
    assert name_ranges(names) == ["embedding", "block 0-11", "head"]
    assert name_ranges(["b1", "b2", "c3", "b3", "b5"]) == ["b1-2", "c3", "b3", "b5"]
    assert name_ranges(["7", "8", "x", "9"]) == ["7-8", "x", "9"]


def test_mfu_of_a_device_that_only_computes():
    # 3 * 2 * 100 FLOPs an iteration of 2 samples in 0.6 s at 1000 FLOP/s
    cluster = Cluster.regular(
        "one", (1,), (Level("node", 0.0, 1.0),), (DeviceType("gpu", 1000.0, 1e9, 1e9),)
    )
    workload = Workload("one", (Operator("o", flops=100.0),), (), 2)
    plan = Plan((Stage((0,), StageConfig(), np.array([[0]])),), 1, 1)
    seconds = price(workload, cluster, plan).iteration_time
    assert seconds == pytest.approx(0.6)
    assert mfu(workload, cluster, plan, seconds) == pytest.approx(1.0)


def test_description_of_an_optimal_plan():
    text = described(result_of(*tiny_plan()))
    for part in (
        "case, by dp in 1.5 s",
        "OPTIMAL over space '4d' (general)",
        # 3 * 8 samples * 4 * 500 FLOPs over 125.3 s of four devices of 1000 FLOP/s
        "iteration  125.3 s, MFU 9.6 %",
        "gap to bound 0 %",
        "4 used, 0 idle",
        "8 = 2 replicas x 4 micro-batches x 1 sample\n",
        "1f1b, 2 stages",
        "t1 z0, all stages",
        "up to 448 B of 500 B",
    ):
        assert part in text
    # both stages take as long and hold two blocks: one row, memory from 434 to 448 of 500 bytes
    assert "0-1    b0-3 (2 each)  0-3      24.2 s  4.3 s    87..90" in text


def test_description_of_a_plan_with_failures_and_a_gap():
    workload, cluster, plan = tiny_plan()
    one = Stage((0, 1, 2, 3), StageConfig(), np.array([[1], [2]]))
    plan = Plan((one,), 2, 1)
    cluster = roomy(cluster).fail([3])
    ended = Termination(Reason.FEASIBLE, Limit.TIME)
    text = described(result_of(workload, cluster, plan, termination=ended, bound=10.0))
    assert "FEASIBLE over space '4d' (general), not proved optimal (time limit)" in text
    assert "2 used, 1 idle, 1 failed" in text
    assert "bound 10 s, gap to bound" in text
    unbounded = result_of(workload, cluster, plan, termination=ended, bound=-np.inf)
    assert "no bound" in described(unbounded)


def test_description_without_a_plan():
    empty = {"objective": None, "solution_json": None}
    infeasible = result_of(
        *tiny_plan(), **empty, termination=Termination(Reason.INFEASIBLE), bound=np.inf,
        infeasible_because=("layer 3 needs 91.2 GB, device 17 (h100) has 80.0 GB",),
    )  # fmt: skip
    text = described(infeasible)
    assert "INFEASIBLE over space '4d' (general): proved that no plan exists" in text
    assert "  layer 3 needs 91.2 GB, device 17 (h100) has 80.0 GB" in text
    ended = Termination(Reason.NO_SOLUTION, Limit.TIME)
    text = described(result_of(*tiny_plan(), **empty, termination=ended, bound=7.0))
    assert "NO PLAN FOUND over space '4d' (general) (time limit)" in text
    assert "bound 7 s" in text


def many_stages(stages: int, alike: bool) -> tuple[Workload, Cluster, Plan]:
    operators = [
        Operator(f"block {i}", kind="block" if alike else "", flops=1e9 * (1 if alike else i + 1))
        for i in range(stages)
    ]
    workload = Workload.chain("deep", operators, 0.0, 64)
    cluster = Cluster.regular(
        "flat", (stages,), (Level("node", 0.0, 1e9),), (DeviceType("gpu", 1e12, 1e9, 1e9),)
    )
    parts = tuple(Stage((q,), StageConfig(), np.array([[q]])) for q in range(stages))
    return workload, cluster, Plan(parts, 1, 1)


def test_equal_stages_share_a_row_and_a_long_table_is_cut():
    text = described(result_of(*many_stages(64, alike=True)))
    assert "0-63   block 0-63 (1 each)  0-63" in text
    assert len(text.splitlines()) < 18
    text = described(result_of(*many_stages(64, alike=False)))
    assert "24 rows left out" in text
    assert "block 63" in text
    assert len(text.splitlines()) < 60


@pytest.mark.parametrize("seed", range(25))
def test_descriptions_of_random_plans_fit(seed):
    workload, cluster, plan = random_case(
        np.random.default_rng(seed), ("1f1b", "gpipe", "interleaved")
    )
    text = described(result_of(workload, roomy(cluster), plan))
    assert f"{plan.schedule}, {len(plan.stages)} stage" in text
