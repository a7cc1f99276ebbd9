"""Max-load partitioning: all methods against enumeration, and the published table."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from maxload_cases import least_load, random_problem
from sampling import slow

from nestopt.core.errors import InputError
from nestopt.core.options import SolveOptions
from nestopt.core.result import Limit, Reason, Result
from nestopt.formulations.placement.maxload_cpsat import solve as solve_cpsat
from nestopt.formulations.placement.maxload_milp import solve as solve_milp
from nestopt.instances.readers.dnn_partitioning import parse_dnn_partitioning, read_dnn_partitioning
from nestopt.placement.partitioning.maxload import MaxLoadProblem, Operator, check, solve_dp
from nestopt.placement.partitioning.maxload.dp import linear_split
from nestopt.placement.partitioning.maxload.units import make_units

PEERS = Path(__file__).parents[3] / "shared" / "peers" / "dnn-partitioning"
METHODS = {"dp": solve_dp, "milp": solve_milp, "cpsat": solve_cpsat}

# Optimal max-load, in the files' unit of time, by the published dynamic program
PUBLISHED = {
    "bert24_inference": 17.7899,
    "bert24_training": 41.7458,
    "resnet50_inference": 33.7747,
    "resnet50_training": 78.6318,
    "gnmt_inference": 32.9107,
    "bert_l-3_inference": 27.9186,
    "bert_l-3_training": 65.3031,
}
ONE_DEVICE = {
    "bert24_inference": 92.406,
    "bert24_training": 217.813,
    "resnet50_inference": 201.45,
    "gnmt_inference": 182.563,
}


def published(name: str) -> MaxLoadProblem:
    path = PEERS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"the published input {path.name} is not beside this checkout")
    return read_dnn_partitioning(path)


@pytest.mark.parametrize("seed", [*range(100), *slow(range(100, 200))])
def test_every_method_finds_the_enumerated_optimum(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed))
    expected = least_load(problem)
    for method in METHODS.values():
        result = method(problem, SolveOptions())
        check(result)
        if math.isinf(expected):
            assert result.termination.reason is Reason.INFEASIBLE
            assert result.infeasible_because
        else:
            assert result.termination.reason is Reason.OPTIMAL
            assert result.objective == pytest.approx(expected, rel=1e-9)
            assert result.bound == pytest.approx(expected, rel=1e-6)


def test_random_problems_cover_the_rules() -> None:
    problems = [random_problem(np.random.default_rng(seed)) for seed in range(200)]
    assert sum(any(o.backward for o in p.operators) for p in problems) > 50
    assert sum(math.isinf(least_load(p)) for p in problems) > 20
    assert sum(bool(make_units(p).aside) for p in problems) > 20
    fused = [p for p in problems if len(make_units(p, set_aside=False)) < _colours(p)]
    assert len(fused) > 8


def _colours(problem: MaxLoadProblem) -> int:
    return len({o.colour if o.colour is not None else -1 - o.id for o in problem.operators})


@pytest.mark.parametrize(
    ("method", "name"),
    [
        *((m, n) for m in METHODS for n in PUBLISHED if m == "dp" or "_l-3" not in n),
        *slow((m, n) for m in METHODS for n in PUBLISHED if m != "dp" and "_l-3" in n),
    ],
)
def test_published_optimum(method: str, name: str) -> None:
    result = METHODS[method](published(name), SolveOptions(time_limit=120.0))
    check(result)
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective is not None
    assert f"{result.objective * 1e3:.6g}" == f"{PUBLISHED[name]:.6g}"


@pytest.mark.parametrize("name", ONE_DEVICE)
def test_published_load_of_one_device(name: str) -> None:
    assert f"{published(name).one_accelerator_load * 1e3:.6g}" == f"{ONE_DEVICE[name]:.6g}"


def test_cbc_proves_a_published_optimum() -> None:
    result = solve_milp(published("gnmt_inference"), SolveOptions(backend="cbc", time_limit=60.0))
    check(result)
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective == pytest.approx(0.0329107, rel=1e-5)


def test_free_operators_do_not_blow_up_the_lattice() -> None:
    # 30 inputs without cost would give 2**30 ideals
    inputs = [Operator(i, 0.0, 0.0) for i in range(30)]
    work = [Operator(30 + i, 1.0, 9.0, output_time=0.25) for i in range(4)]
    edges = [(i, 30 + i % 4) for i in range(30)] + [(i, 31 + i % 3) for i in range(30)]
    edges += [(30, 31), (31, 32), (32, 33)]
    problem = MaxLoadProblem("free", 2, 0, 1.0, (*inputs, *work), tuple(dict.fromkeys(edges)))
    result = solve_dp(problem, SolveOptions())
    check(result)
    assert result.objective == 2.25
    assert result.stats["ideals"] == 5


def grid(side: int) -> MaxLoadProblem:
    """A square grid of operators; it has C(2 side, side) ideals."""
    number = {(i, j): i * side + j for i in range(side) for j in range(side)}
    operators = tuple(Operator(v, 1.0, 5.0, output_time=0.5) for v in number.values())
    edges = [
        (number[i, j], number[p])
        for i, j in number
        for p in ((i + 1, j), (i, j + 1))
        if p in number
    ]
    return MaxLoadProblem("grid", 3, 1, 0.0, operators, tuple(edges))


def test_too_many_ideals_is_a_memory_limit_with_a_split() -> None:
    result = solve_dp(grid(6), SolveOptions(set={"ideal-limit": "900"}))
    check(result)
    assert result.termination.reason is Reason.FEASIBLE
    assert result.termination.limit is Limit.MEMORY
    assert 36 / 4 <= result.bound <= result.objective


def test_time_limit_keeps_split_and_bound() -> None:
    result = solve_dp(grid(6), SolveOptions(time_limit=0.0))
    check(result)
    assert (result.termination.reason, result.termination.limit) == (Reason.FEASIBLE, Limit.TIME)
    assert 36 / 4 <= result.bound <= result.objective


@pytest.mark.parametrize("method", METHODS)
def test_progress_is_reported_in_seconds(method: str) -> None:
    reports: list[tuple[float | None, float]] = []

    def report(seconds: float, objective: float | None, bound: float, note: str) -> None:
        reports.append((objective, bound))

    result = METHODS[method](grid(4), SolveOptions(progress=report))
    assert result.objective is not None
    for objective, bound in reports:
        assert objective is not None
        assert bound <= result.objective * (1 + 1e-6) <= objective * (1 + 2e-6)
    assert reports or method == "milp"


@pytest.mark.parametrize("method", ["milp", "cpsat"])
def test_warm_start_from_the_dynamic_program(method: str) -> None:
    problem = grid(4)
    known = solve_dp(problem, SolveOptions())
    result = METHODS[method](problem, SolveOptions(warm_start=known, time_limit=60.0))
    check(result)
    assert result.objective == pytest.approx(known.objective)


@pytest.mark.parametrize("method", ["milp", "cpsat"])
def test_model_is_written_with_named_constraints(method: str, tmp_path: Path) -> None:
    target = tmp_path / ("model.lp" if method == "milp" else "model.pbtxt")
    METHODS[method](grid(3), SolveOptions(write_model=str(target)))
    text = target.read_text()
    for family in ("assignment", "order", "device_kinds", "transfers", "loads", "total_work"):
        assert f"{family}_" in text


def test_linear_split_is_an_upper_bound() -> None:
    problem = grid(5)
    _, value = linear_split(problem, make_units(problem))
    assert value >= solve_dp(problem, SolveOptions()).objective


@pytest.mark.parametrize("seed", range(20))
def test_metamorphic_laws(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    problem = random_problem(rng)

    def optimum(changed: MaxLoadProblem) -> float:
        result = solve_dp(changed, SolveOptions())
        return math.inf if result.objective is None else float(result.objective)

    def each(**factors: float) -> MaxLoadProblem:
        operators = tuple(
            dataclasses.replace(o, **{k: getattr(o, k) * f for k, f in factors.items()})
            for o in problem.operators
        )
        return dataclasses.replace(problem, operators=operators)

    before = optimum(problem)
    assert optimum(each(output_time=3.0)) >= before
    doubled = each(accelerator_time=2.0, cpu_time=2.0, output_time=2.0)
    assert optimum(doubled) == pytest.approx(2 * before)
    replace = dataclasses.replace
    assert optimum(replace(problem, accelerators=problem.accelerators + 1)) <= before
    assert optimum(replace(problem, accelerator_memory=problem.accelerator_memory / 2)) >= before
    order = rng.permutation(len(problem.operators))
    shuffled = tuple(problem.operators[i] for i in order)
    assert optimum(replace(problem, operators=shuffled)) == pytest.approx(before)


def test_json_round_trip() -> None:
    for seed in range(20):
        problem = random_problem(np.random.default_rng(seed))
        assert MaxLoadProblem.from_json(problem.to_json()) == problem
    result = solve_dp(grid(3), SolveOptions())
    assert Result.from_json(result.to_json()).to_json() == result.to_json()


def file() -> dict:
    nodes = [
        {
            "id": i,
            "supportedOnFpga": 1,
            "cpuLatency": 10.0,
            "fpgaLatency": 1.0,
            "isBackwardNode": 0,
            "size": 4.0,
        }
        for i in range(3)
    ]
    edges = [{"sourceId": 0, "destId": 1, "cost": 0.5}, {"sourceId": 0, "destId": 2, "cost": 0.5}]
    return {"maxSizePerFPGA": 8.0, "maxFPGAs": 2, "maxCPUs": 0, "nodes": nodes, "edges": edges}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("nodes", 1, "fpgaLatency"), -1.0, r"nodes\[1\].fpgaLatency"),
        (("nodes", 1, "id"), 0, r"nodes\[1\].id: id 0 is used by entries 0 and 1"),
        (("edges", 1, "destId"), 7, r"edges\[1\]: no operator has the id 7"),
        (("edges", 1, "cost"), 0.6, r"edges\[1\].cost: cost 0.6 .* other edges cost 0.5"),
        (("edges", 1), {"sourceId": 1, "destId": 0, "cost": 0.5}, "cycle"),
        (("maxFPGAs",), 0, "no device"),
        (("nodes",), [], "nodes"),
    ],
)
def test_bad_files_are_refused_with_field_and_value(path, value, message) -> None:
    data = file()
    *inner, last = path
    place = data
    for key in inner:
        place = place[key]
    place[last] = value
    with pytest.raises(InputError, match=message):
        parse_dnn_partitioning(data, "bad", file="bad.json")


def test_infeasible_names_the_operators_and_their_memory() -> None:
    data = file()
    data["nodes"][2]["size"] = 9.0
    for method in METHODS.values():
        result = method(parse_dnn_partitioning(data, "tight"), SolveOptions())
        check(result)
        assert result.termination.reason is Reason.INFEASIBLE
        assert "operators [2] stay together and need 9 bytes" in result.infeasible_because[0]
