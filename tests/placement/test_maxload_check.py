"""The max-load checker rejects every single change of a valid result."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from nestopt.core.errors import CheckError
from nestopt.core.io import sha256_of
from nestopt.core.options import SolveOptions
from nestopt.core.result import Result
from nestopt.placement.partitioning.maxload import MaxLoadProblem, Operator, check, solve_dp

if TYPE_CHECKING:
    from collections.abc import Callable

PROBLEM = MaxLoadProblem(
    name="training",
    accelerators=2,
    cpus=1,
    accelerator_memory=8.0,
    operators=(
        Operator(0, 9.0, 1.0, 1.0, 0.5, colour=0, on_accelerator=False),
        Operator(1, 2.0, 50.0, 2.0, 0.5, colour=1),
        Operator(2, 2.0, 50.0, 2.0, 0.5, colour=2),
        Operator(3, 3.0, 50.0, 3.0, 0.5, colour=3),
        Operator(4, 2.0, 50.0, 1.0, 0.5, backward=True, colour=3),
        Operator(5, 2.0, 50.0, 1.0, 0.5, backward=True, colour=2),
        Operator(6, 2.0, 50.0, 1.0, 0.5, backward=True, colour=1),
        Operator(7, 0.5, 50.0, 1.0, 0.25, backward=True, colour=9),
    ),
    edges=((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (7, 4)),
)


@pytest.fixture(scope="module")
def valid() -> dict[str, Any]:
    result = solve_dp(PROBLEM, SolveOptions())
    check(result)
    data = result.to_json()
    assert [s["device"] for s in data["solution"]["stages"]] == [
        "cpu",
        "accelerator",
        "accelerator",
    ]
    return data


def stages(data: dict[str, Any]) -> list[dict[str, Any]]:
    return data["solution"]["stages"]


def move(operator: int, target: int) -> Callable[[dict[str, Any]], None]:
    def apply(data: dict[str, Any]) -> None:
        for stage in stages(data):
            if operator in stage["operators"]:
                stage["operators"].remove(operator)
        stages(data)[target]["operators"].append(operator)

    return apply


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(data: dict[str, Any]) -> None:
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value

    return apply


def rehash(data: dict[str, Any]) -> None:
    data["instance"]["sha256"] = sha256_of(data["instance"]["data"])


def with_instance(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(data: dict[str, Any]) -> None:
        _set("instance", "data", *path, value=value)(data)
        rehash(data)

    return apply


MUTATIONS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "operator missing": (lambda d: stages(d)[1]["operators"].pop(), "lies in no stage"),
    "operator twice": (lambda d: stages(d)[2]["operators"].append(1), "lies in the stages"),
    "unknown operator": (lambda d: stages(d)[2]["operators"].append(77), "not in the instance"),
    "colour torn": (move(6, 2), "colour"),
    "unsupported": (move(0, 1), "no accelerator|empty"),
    "artificial mate out of order": (move(7, 1), "has to be no later"),
    "stages swapped": (lambda d: stages(d).reverse(), "has to be no later"),
    "two CPUs": (_set("solution", "stages", 1, "device", value="cpu"), "of which 1"),
    "device unknown": (_set("solution", "stages", 1, "device", value="tpu"), "device: .*tpu"),
    "three accelerators": (with_instance("accelerators", value=1), "of which 1"),
    "empty stage": (
        lambda d: stages(d).append(
            {"device": "accelerator", "operators": [], "load": 0.0, "memory": 0.0}
        ),
        "empty",
    ),
    "memory understated": (
        _set("solution", "stages", 2, "memory", value=lambda x: 0.99 * x),
        "bytes, not",
    ),
    "memory exceeded": (with_instance("accelerator_memory", value=4.0), "an accelerator has"),
    "load off": (_set("solution", "stages", 1, "load", value=lambda x: 1.01 * x), "has the load"),
    "objective off": (_set("objective", value=lambda x: 0.99 * x), "largest load"),
    "bound above objective": (_set("bound", value=lambda x: 1.01 * x), "exceeds"),
    "optimal without proof": (_set("bound", value=lambda x: 0.99 * x), "claimed optimal"),
    "transfer dearer": (with_instance("operators", 0, "output_time", value=0.6), "has the load"),
    "instance changed": (_set("instance", "data", "cpus", value=2), "not the hash"),
    "instance missing": (_set("instance", "data", value=None), "no instance"),
    "solution missing": (_set("solution", value=None), "are missing"),
    "field missing": (lambda d: stages(d)[0].pop("load"), "load: Field required"),
    "infeasible with a CPU": (
        lambda d: d.update(
            termination={"reason": "infeasible", "limit": "none"},
            solution=None,
            objective=None,
            bound="inf",
        ),
        "one CPU",
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_mutation_is_rejected(valid: dict[str, Any], name: str) -> None:
    change, message = MUTATIONS[name]
    data = copy.deepcopy(valid)
    change(data)
    with pytest.raises(CheckError, match=message):
        check(Result.from_json(data))


def test_every_move_of_one_operator_is_rejected(valid: dict[str, Any]) -> None:
    for operator in range(8):
        for target in range(3):
            if operator in stages(valid)[target]["operators"]:
                continue
            data = copy.deepcopy(valid)
            move(operator, target)(data)
            with pytest.raises(CheckError):
                check(Result.from_json(data))
