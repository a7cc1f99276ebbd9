"""Piper's problem: the exact planner against enumeration, and the published figures."""

from __future__ import annotations

import copy
import dataclasses
import math
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sampling import slow

from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import sha256_of
from nestopt.core.options import SolveOptions
from nestopt.core.result import Limit, Reason, Result
from nestopt.instances.readers.piper import parse_piper, read_piper
from nestopt.placement.partitioning.piper import (
    Layer,
    PiperProblem,
    Variant,
    check,
    solve_dp,
    solve_equal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILE = Path(__file__).parents[3] / "shared" / "peers" / "piper" / "bert32a100.json"
GIB = 2.0**30

# (devices, GiB, micro-batches): time per sample, at 25 GiB/s, by the published planner
PUBLISHED = {
    (8, 80, 1920): 0.122007269,
    (32, 80, 1920): 0.0308440482,
    (64, 8, 1920): 0.0202005503,
    (64, 2, 1920): 0.0320300812,
    (128, 8, 1920): 0.0101208803,
    (512, 8, 1920): 0.00256112785,
    (2048, 8, 512): 0.00122127995,
}
QUICK = [(8, 80, 1920), (32, 80, 1920)]


def published(devices: int, gib: int, micro_batches: int) -> PiperProblem:
    if not FILE.exists():
        pytest.skip(f"the published input {FILE.name} is not beside this checkout")
    return read_piper(
        FILE,
        devices=devices,
        memory=gib * GIB,
        bandwidth=25 * GIB,
        micro_batches=micro_batches,
    )


@pytest.mark.parametrize(
    "row", [row if row in QUICK else pytest.param(row, marks=pytest.mark.slow) for row in PUBLISHED]
)
def test_published_time_per_sample(row: tuple[int, int, int]) -> None:
    result = solve_dp(published(*row), SolveOptions())
    check(result)
    assert result.termination.reason is Reason.OPTIMAL
    assert f"{result.objective:.9g}" == f"{PUBLISHED[row]:.9g}"


def test_published_equal_split() -> None:
    result = solve_equal(published(64, 8, 1920), SolveOptions())
    check(result)
    assert f"{result.objective:.9g}" == "0.0257245478"
    assert result.termination.limit is Limit.ITERATIONS


def test_one_shape_for_all_stages_costs_more_than_degrees_per_stage() -> None:
    problem = published(64, 8, 1920)
    result = solve_dp(problem, SolveOptions(set={"uniform": "true"}))
    check(result)
    assert f"{result.objective:.9g}" == "0.0207920672"
    assert len({(s["data"], s["tensor"]) for s in result.solution_json["stages"]}) == 1


def random_problem(rng: np.random.Generator) -> PiperProblem:
    count = int(rng.integers(1, 4))
    edges = [
        (u, v, float(rng.integers(0, 5)))
        for u in range(count)
        for v in range(u + 1, count)
        if rng.random() < 0.6
    ]
    layers = []
    for i in range(count):
        time, stored, fixed = rng.integers(1, 9), rng.integers(0, 5), rng.integers(0, 4)
        variants, parameters, reshard_in, reshard_out = {}, {}, {}, {}
        for t in (1, 2):
            variants[t] = (
                Variant("plain", time / t + (t - 1) * 0.5, stored / t, fixed / t),
                Variant("recompute", 1.25 * time / t + (t - 1) * 0.5, 0.25, (fixed + 1) / t),
            )
            parameters[t] = float(rng.integers(0, 6)) / t
            reshard_in[t] = {u: (t - 1) * size for u, v, size in edges if v == i}
            reshard_out[t] = {v: (t - 1) * size / 2 for u, v, size in edges if u == i}
        layers.append(Layer(i, f"layer{i}", variants, parameters, reshard_in, reshard_out))
    return PiperProblem(
        "random",
        devices=int(rng.integers(1, 6)),
        memory=float(rng.integers(2, 9)),
        bandwidth=float(rng.integers(1, 20)),
        micro_batches=int(rng.choice([1, 2, 4, 6])),
        layers=tuple(layers),
        edges=tuple(edges),
    )


def partitions(problem: PiperProblem) -> Iterator[list[list[int]]]:
    """All rows of non-empty stages along which no edge leads back."""
    count = len(problem.layers)
    for where in product(range(count), repeat=count):
        stages = max(where) + 1
        if set(where) != set(range(stages)):
            continue
        if all(where[u] <= where[v] for u, v, _ in problem.edges):
            yield [[i for i in range(count) if where[i] == s] for s in range(stages)]


def least_time(problem: PiperProblem) -> float:
    """The optimum by enumeration of partitions, degrees and variants; inf if none."""
    shapes = [
        (t, d)
        for t in (1, 2)
        for d in range(1, problem.devices + 1)
        if problem.micro_batches % d == 0
    ]
    best = math.inf
    for stages in partitions(problem):
        for chosen in product(shapes, repeat=len(stages)):
            if sum(t * d for t, d in chosen) > problem.devices:
                continue
            if sum(d for _, d in chosen) > problem.micro_batches:
                continue
            slowest = 0.0
            for s, (layers, (t, d)) in enumerate(zip(stages, chosen)):
                ahead = math.ceil(sum(d for _, d in chosen[s:]) / d)
                slowest = max(slowest, fastest(problem, layers, t, d, ahead))
            best = min(best, slowest)
    return best


def fastest(problem: PiperProblem, layers: list[int], t: int, d: int, ahead: int) -> float:
    moved = 0.0
    for u, v, size in problem.edges:
        if u in layers and v not in layers:
            moved += 2 * size + 2 * problem.layers[u].reshard_out[t][v]
        if v in layers and u not in layers:
            moved += 2 * size + 2 * problem.layers[v].reshard_in[t][u]
    weights = sum(problem.layers[i].parameters[t] for i in layers)
    best = math.inf
    for variants in product(*(problem.layers[i].variants[t] for i in layers)):
        if sum(v.stored * ahead + v.fixed for v in variants) <= problem.memory:
            best = min(best, sum(v.time for v in variants))
    exchange = 4 * (d - 1) / d * weights / problem.bandwidth / problem.micro_batches
    return (best + moved / problem.bandwidth) / d + exchange


@pytest.mark.parametrize("seed", [*range(80), *slow(range(80, 200))])
def test_matches_enumeration(seed: int) -> None:
    problem = random_problem(np.random.default_rng(seed))
    expected = least_time(problem)
    result = solve_dp(problem, SolveOptions())
    check(result)
    if math.isinf(expected):
        assert result.termination.reason is Reason.INFEASIBLE
        assert result.infeasible_because
        return
    assert result.termination.reason is Reason.OPTIMAL
    assert result.objective == pytest.approx(expected, rel=1e-11)
    assert result.bound == pytest.approx(expected, rel=1e-11)
    uniform = solve_dp(problem, SolveOptions(set={"uniform": "true"}))
    check(uniform)
    if uniform.objective is not None:
        assert uniform.objective >= result.objective * (1 - 1e-11)
    equal = solve_equal(problem, SolveOptions())
    check(equal)
    if equal.objective is not None:
        assert equal.objective >= result.objective * (1 - 1e-11)


def test_random_problems_are_neither_all_feasible_nor_all_one_stage() -> None:
    results = [
        solve_dp(random_problem(np.random.default_rng(seed)), SolveOptions()) for seed in range(100)
    ]
    plans = [r.solution_json["stages"] for r in results if r.solution_json]
    assert 10 < len(results) - len(plans) < 75
    assert sum(len(stages) > 1 for stages in plans) > 7
    assert sum(any(s["tensor"] > 1 for s in stages) for stages in plans) > 7
    assert sum(any(s["data"] > 1 for s in stages) for stages in plans) > 7


def test_time_limit_keeps_plan_and_bound() -> None:
    result = solve_dp(published(64, 8, 1920), SolveOptions(time_limit=0.0))
    check(result)
    assert (result.termination.reason, result.termination.limit) == (Reason.FEASIBLE, Limit.TIME)
    assert result.bound <= 0.0202005503 <= result.objective


def test_json_round_trip() -> None:
    for seed in range(20):
        problem = random_problem(np.random.default_rng(seed))
        assert PiperProblem.from_json(problem.to_json()) == problem


def test_layer_that_fits_nowhere_is_named() -> None:
    layer = Layer(7, "wide", {1: (Variant("plain", 1.0, 3.0, 4.0),)}, {1: 0.0}, {1: {}}, {1: {}})
    problem = PiperProblem("tight", 4, 6.0, 1.0, 4, (layer,), ())
    result = solve_dp(problem, SolveOptions())
    check(result)
    assert result.infeasible_because == ("layer 7 (wide) needs at least 7 bytes; a device has 6",)


def file() -> dict[str, Any]:
    def tmpc(**changes: Any) -> dict[str, Any]:
        base = {
            "id": "vanilla",
            "timePerSample": 1.0,
            "parameterSize": 4.0,
            "memoryUsageA": 1.0,
            "memoryUsageB": 1.0,
            "syncTimeFw": {},
            "syncTimeBw": {},
        }
        return base | changes

    return {
        "maxDevices": 4,
        "maxMemoryPerDevice": 8.0,
        "bandwidth": 2.0,
        "mbsInBatch": 4,
        "nodes": [
            {"id": i, "TMPCs": {"1": [tmpc(), tmpc(id="recompute", timePerSample=1.5)]}}
            for i in range(2)
        ],
        "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 3.0}],
    }


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("bandwidth",), 0.0, "bandwidth"),
        (("nodes", 1, "id"), 0, r"nodes\[1\].id: id 0 is used by entries 0 and 1"),
        (("edges", 0, "destId"), 9, r"edges\[0\]: no layer has the id 9"),
        (("edges", 0, "destId"), 0, "cycle"),
        (("nodes", 0, "TMPCs", "1", 1, "parameterSize"), 5.0, r"TMPCs.1\[1\].parameterSize: 5.0"),
        (("nodes", 0, "TMPCs", "1"), [], r"nodes\[0\]"),
        (("nodes", 0, "TMPCs", "1", 0, "timePerSample"), -1.0, "timePerSample"),
    ],
)
def test_bad_files_are_refused_with_field_and_value(path, value, message) -> None:
    data = file()
    *inner, last = path
    place: Any = data
    for key in inner:
        place = place[key]
    place[last] = value
    with pytest.raises(InputError, match=message):
        parse_piper(data, "bad", file="bad.json")


# --- the checker ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def valid() -> dict[str, Any]:
    """A plan with two stages, the first with two replicas."""
    layers = tuple(
        Layer(
            i,
            f"layer{i}",
            {1: (Variant("plain", 4.0 - 2 * (i == 0), 1.0, 1.0), Variant("slow", 5.0, 0.5, 1.0))},
            {1: 3.0},
            {1: {}},
            {1: {}},
        )
        for i in range(3)
    )
    problem = PiperProblem("chain", 3, 6.5, 64.0, 4, layers, ((0, 1, 2.0), (1, 2, 2.0)))
    result = solve_dp(problem, SolveOptions())
    check(result)
    data = result.to_json()
    assert [stage["data"] for stage in data["solution"]["stages"]] == [2, 1]
    return data


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(data: dict[str, Any]) -> None:
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value

    return apply


def with_instance(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(data: dict[str, Any]) -> None:
        _set("instance", "data", *path, value=value)(data)
        data["instance"]["sha256"] = sha256_of(data["instance"]["data"])

    return apply


def stage(index: int, *path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    return _set("solution", "stages", index, *path, value=value)


MUTATIONS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "layer missing": (lambda d: d["solution"]["stages"][0]["variants"].pop("0"), "in no stage"),
    "layer twice": (stage(1, "variants", "0", value=0), "lies in the stages"),
    "unknown layer": (stage(1, "variants", "9", value=0), "not in the instance"),
    "unknown variant": (stage(0, "variants", "0", value=5), "no variant 5"),
    "other variant": (stage(0, "variants", "0", value=lambda k: 1 - k), "stage 0 takes"),
    "empty stage": (stage(0, "variants", value={}), "empty"),
    "stages swapped": (lambda d: d["solution"]["stages"].reverse(), "leads from stage"),
    "data degree": (stage(0, "data", value=1), "devices, not 3|bytes"),
    "degree divides not": (stage(0, "data", value=3), "does not divide"),
    "degrees over the batch": (with_instance("micro_batches", value=2), "sum to 3, over 2"),
    "tensor degree": (stage(0, "tensor", value=2), "no variant"),
    "devices misstated": (_set("solution", "devices", value=2), "devices, not 2"),
    "devices too many": (with_instance("devices", value=2), "of which there are 2"),
    "memory understated": (stage(0, "memory", value=lambda x: 0.99 * x), "bytes a device, not"),
    "memory exceeded": (with_instance("memory", value=3.0), "a device has 3.0"),
    "time off": (stage(0, "time", value=lambda x: 1.01 * x), "s a sample, not"),
    "slower network": (with_instance("bandwidth", value=32.0), "s a sample, not"),
    "objective off": (_set("objective", value=lambda x: 0.99 * x), "slowest stage's time is"),
    "bound too high": (_set("bound", value=lambda x: 1.01 * x), "exceeds"),
    "no proof": (_set("bound", value=lambda x: 0.99 * x), "claimed optimal"),
    "instance changed": (_set("instance", "data", "devices", value=9), "not the hash"),
    "instance missing": (_set("instance", "data", value=None), "no instance"),
    "solution missing": (_set("solution", value=None), "are missing"),
    "field missing": (lambda d: d["solution"]["stages"][0].pop("time"), "time: Field required"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_rejected(valid: dict[str, Any], name: str) -> None:
    change, message = MUTATIONS[name]
    data = copy.deepcopy(valid)
    change(data)
    with pytest.raises(CheckError, match=message):
        check(Result.from_json(data))


def test_metamorphic_laws() -> None:
    for seed in range(25):
        problem = random_problem(np.random.default_rng(500 + seed))

        def optimum(**changes: Any) -> float:
            changed = dataclasses.replace(problem, **changes)  # noqa: B023
            result = solve_dp(changed, SolveOptions())
            return math.inf if result.objective is None else result.objective

        before = optimum()
        slack = 1 + 1e-11
        assert optimum(bandwidth=problem.bandwidth / 2) * slack >= before
        assert optimum(memory=problem.memory / 2) * slack >= before
        assert optimum(devices=problem.devices + 1) <= before * slack
