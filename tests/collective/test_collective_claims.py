"""What a collective result claims is proved by its file, named as a claim, or refused."""

import copy
import json
import math

import pytest
from collective_cases import instance

from nestopt.collective.model.instance import LATEST_PS, CollectiveInstance
from nestopt.collective.model.topology import Topology
from nestopt.collective.problem import PROBLEM
from nestopt.core.errors import CheckError, InputError, NestoptError
from nestopt.core.io import sha256_of
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method
from nestopt.core.result import Result
from nestopt.core.verdict import NotProvedError
from nestopt.core.verify import verify, verify_file


def solved(topology="mesh2d:3x3", method="greedy", **settings) -> dict:
    problem = instance(topology)
    result = get_method("collective", method)(problem, SolveOptions(seed=1, set=settings))
    return json.loads(json.dumps(result.to_json()))


@pytest.fixture(scope="module")
def optimal() -> dict:
    """Optimal by a bound whose witness is verified."""
    data = solved()
    assert data["termination"]["reason"] == "optimal"
    return data


@pytest.fixture(scope="module")
def feasible() -> dict:
    """Feasible, with a bound below the objective."""
    data = solved(method="direct", unicast="yes")
    assert data["termination"]["reason"] == "feasible" and data["bound"] < data["objective"]
    return data


def judged(data: dict, tmp_path) -> list[str]:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(data))
    return verify_file(str(path)).verified


def starts(data: dict) -> list[int]:
    return data["solution"]["sends"]["start_ps"]


def move_late(data: dict, to: int) -> None:
    column = starts(data)
    column[:] = [to if value >= 10**9 else value for value in column]
    data["solution"]["makespan_ps"] = data["objective"] = 10**9
    data["termination"] = {"reason": "feasible", "limit": "time"}
    data |= {"bound": 0, "gap": None, "witness": None}


def move_last(data: dict) -> None:
    starts(data)[-1] = 2**63 - 1


def set_size(data: dict, key: str, value: object) -> None:
    data["witness"][key] = value


def infeasible(data: dict) -> None:
    data["termination"] = {"reason": "infeasible", "limit": "none"}
    data |= {"solution": None, "objective": None, "bound": "inf", "gap": None, "witness": None}
    data["infeasible_because"] = ["because I say so"]


def no_solution(data: dict, bound: object, because: list[str]) -> None:
    data["termination"] = {"reason": "no-solution", "limit": "time"}
    data |= {"solution": None, "objective": None, "bound": bound, "gap": None, "witness": None}
    data["infeasible_because"] = because


def rehash(data: dict, change) -> None:
    change(data["instance"]["data"])
    data["instance"]["sha256"] = sha256_of(data["instance"]["data"])


FORGERIES = {
    "starts wrap past the end": (lambda d: move_late(d, 2**63 - 1), "starts after the end"),
    "starts past the end": (lambda d: move_late(d, 10**9 + 1), "starts after the end"),
    "the last start wraps": (move_last, "starts after the end"),
    "a makespan beyond 64 bits": (
        lambda d: d["solution"].update(makespan_ps=2**63), "expected from 0 to|objective"),
    "bound 0": (lambda d: d.update(bound=0, gap=None), "said to be optimal"),
    "bound null": (lambda d: d.update(bound=None, gap=None), "said to be optimal"),
    "bound -inf": (lambda d: d.update(bound="-inf", gap=None), "said to be optimal"),
    "bound below": (lambda d: d.update(bound=d["bound"] - 1, gap=None), "said to be optimal"),
    "witness deleted": (lambda d: d.update(witness=None), "not proved.*no witness"),
    "witness of unknown kind": (lambda d: set_size(d, "kind", "faith"), "not proved.*unknown kind"),
    "witness of another search": (
        lambda d: d.update(witness={"kind": "search", "name": "cpsat", "value": d["bound"]}),
        "its witness is a search by"),
    "search of a lesser value": (
        lambda d: d.update(witness={"kind": "search", "name": "greedy", "value": 1}), "search by"),
    "witness value as text": (lambda d: set_size(d, "value", str(d["bound"])), "witness: value"),
    "witness value a fraction": (lambda d: set_size(d, "value", d["bound"] + 0.5), "witness: valu"),
    "witness node a fraction": (lambda d: set_size(d, "nodes", [0.4]), "witness: nodes"),
    "witness node beyond": (lambda d: set_size(d, "nodes", [9]), "no nodes 9"),
    "witness node huge": (lambda d: set_size(d, "nodes", [2**70]), "witness: nodes"),
    "witness node negative": (lambda d: set_size(d, "nodes", [-1]), "witness: nodes"),
    "witness value nonsense": (lambda d: set_size(d, "value", "abc"), "witness: value"),
    "witness with an unknown key": (lambda d: set_size(d, "trust", "me"), "witness: trust"),
    "no-solution by fiat": (lambda d: no_solution(d, 0, ["because I say so"]), "causes are given"),
    "no-solution, bound inf": (lambda d: no_solution(d, "inf", []), "inf exactly if"),
    "no-solution, bound unproved": (lambda d: no_solution(d, 10**9, []), "not proved"),
    "infeasible by fiat": (infeasible, "every chunk can reach"),
    "unicast by decree": (lambda d: d["solution"].update(unicast=True), "unicast: is unknown"),
    "an unknown key of the solution": (lambda d: d["solution"].update(colour=1), "colour"),
    "an unknown column": (lambda d: d["solution"]["sends"].update(trust=[]), "trust"),
    "an unknown encoding": (lambda d: d["solution"].update(encoding="magic"), "encoding"),
    "hash removed": (lambda d: d["instance"].pop("sha256"), "sha256"),
    "hash null": (lambda d: d["instance"].update(sha256=None), "sha256"),
    "objective as float": (
        lambda d: d.update(objective=float(d["objective"]), bound=float(d["bound"])), "whole pico"),
    "another objective": (lambda d: d["settings"].update(objective="energy"), "settings.objective"),
    "another latency": (lambda d: d["settings"].update(latency="pipelined"), "settings.latency"),
    "gap": (lambda d: d.update(gap=0.5), "gap"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_claim_is_refused(name: str, optimal: dict, tmp_path) -> None:
    data = copy.deepcopy(optimal)
    assert judged(data, tmp_path)
    change, expected = FORGERIES[name]
    change(data)
    with pytest.raises(CheckError, match=expected):
        judged(data, tmp_path)


UNREADABLE = {
    "objective as text": lambda d: d.update(objective="72"),
    "bound nonsense": lambda d: d.update(bound="abc"),
    "seed as text": lambda d: d.update(seed="0"),
    "seed a fraction": lambda d: d.update(seed=0.5),
    "an unknown key": lambda d: d.update(trust="me"),
    "an unknown key of the instance": lambda d: d["instance"].update(trust="me"),
    "an unknown key of the termination": lambda d: d["termination"].update(trust="me"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_of_another_form_is_not_read(name: str, optimal: dict, tmp_path) -> None:
    data = copy.deepcopy(optimal)
    UNREADABLE[name](data)
    with pytest.raises(InputError, match=r"r\.json"):
        judged(data, tmp_path)


@pytest.mark.parametrize("value", ["9", 9.0, 72.9])
def test_counts_in_an_instance_are_whole_numbers(value, optimal: dict, tmp_path) -> None:
    data = copy.deepcopy(optimal)
    rehash(data, lambda d: d["topology"].update(nodes=value))
    with pytest.raises(CheckError, match="nodes"):
        judged(data, tmp_path)


def test_a_pass_says_what_it_covers(optimal: dict, feasible: dict) -> None:
    proved = verify(Result.from_json(optimal))
    assert "optimal: the objective meets the proved bound" in proved.verified
    assert proved.claimed == []
    unicast = verify(Result.from_json(feasible))
    assert any("travels by itself" in line for line in unicast)
    # the same schedule is refused once a message goes where nobody keeps or forwards it
    column = feasible["solution"]["sends"]
    seen: dict[tuple[int, int], int] = {}
    for send, pair in enumerate(zip(column["chunk"], column["link"])):
        seen[pair] = send
    forged = copy.deepcopy(feasible)
    send = next(iter(seen.values()))
    for name in column:
        forged["solution"]["sends"][name] = column[name] + [column[name][send]]
    ends = forged["solution"]["sends"]["start_ps"]
    ends[-1] = max(ends)
    forged["solution"]["num_sends"] += 1
    with pytest.raises(CheckError):
        verify(Result.from_json(forged))


def test_an_optimum_by_search_is_a_claim(optimal: dict) -> None:
    data = copy.deepcopy(optimal)
    data["witness"] = {"kind": "search", "name": data["method"], "value": data["bound"]}
    verdict = verify(Result.from_json(data))
    assert len(verdict.claimed) == 2 and "optimality" in verdict.claimed[1]
    assert not any("optimal:" in line or "bound's witness" in line for line in verdict.verified)
    data["witness"] = None
    with pytest.raises(NotProvedError) as caught:
        verify(Result.from_json(data))
    # the schedule itself is verified, and said to be
    assert any("postconditions hold" in line for line in caught.value.verdict.verified)


def test_no_time_is_beyond_the_range() -> None:
    for size, topology in ((10**15, "ring:8"), (2**62, "ring:2")):
        with pytest.raises(InputError, match="cannot be represented"):
            instance(topology, chunk_size=size)
    with pytest.raises(InputError, match="latency beyond"):
        Topology.from_links("far", 2, [(0, 1, 2**61 + 1, 1), (1, 0, 0, 1)])
    # what fits a link does not fit a way of four
    instance("line:2", "broadcast", chunk_size=2 * 10**15)
    with pytest.raises(InputError, match="cannot be represented"):
        instance("line:5", "broadcast", chunk_size=2 * 10**15)
    chunk = LATEST_PS // 2 // 10**12
    near = Topology.from_links("near", 2, [(0, 1, 0, 1), (1, 0, 0, 1)])
    problem = CollectiveInstance(near, instance("ring:2", chunk_size=chunk).collective)
    result = get_method("collective", "ring")(problem, SolveOptions())
    assert result.objective == chunk * 10**12 and PROBLEM.check(result)


def test_the_simulator_refuses_what_the_checker_refuses(optimal: dict) -> None:
    data = copy.deepcopy(optimal)
    move_late(data, 2**63 - 1)
    with pytest.raises(NestoptError, match="starts after the end"):
        PROBLEM.simulate(Result.from_json(data))
    assert math.isfinite(PROBLEM.simulate(Result.from_json(optimal))["simulated"])
