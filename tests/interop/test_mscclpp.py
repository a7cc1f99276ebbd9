"""MSCCL++ execution plans: played as the executor reads them; broken ones refused."""

from __future__ import annotations

import copy
import json

import pytest
from interop_cases import problem, solved

from nestopt.core.errors import CheckError, InputError
from nestopt.interop.mscclpp_check import check_plan
from nestopt.interop.mscclpp_plan import mscclpp_plan

CASES = [
    ("all-gather", "torus2d:3x3", "greedy"),
    ("all-gather:chunks=3", "dgx1v", "greedy"),
    ("reduce-scatter", "mesh2d:3x3+fail-npus:1+seed:1", "greedy"),
    ("all-reduce", "switch:4", "greedy"),
    ("all-reduce", "ring:5", "dbt"),
    ("all-reduce", "ring:8", "rhd"),
    ("all-to-all", "mesh2d:2x3", "greedy"),
]


@pytest.mark.parametrize(("job", "network", "method"), CASES)
def test_plans_give_the_collective(job: str, network: str, method: str) -> None:
    instance = problem(job, network)
    plan = mscclpp_plan(instance, solved(instance, method)[1])
    check_plan(json.loads(json.dumps(plan)))
    # what the executor asks for: every buffer and channel that an operation names is there
    for gpu in plan["gpus"]:
        assert [tb["id"] for tb in gpu["threadblocks"]] == list(range(len(gpu["threadblocks"])))
        acquired = released = 0
        for tb in gpu["threadblocks"]:
            assert len(tb["ops"]) <= 64
            for op in tb["ops"]:
                acquired += len(op.get("semaphore_ids", ())) * (op["name"] == "sem_acquire")
                released += len(op.get("semaphore_ids", ())) * (op["name"] == "sem_release")
        assert acquired == released == len(gpu["semaphores"])  # ready for the next launch


def test_broken_plans_are_refused() -> None:
    instance = problem("all-reduce", "ring:4")
    plan = mscclpp_plan(instance, solved(instance, "ring")[1])
    refused = tried = 0
    for g, gpu in enumerate(plan["gpus"]):
        for b, tb in enumerate(gpu["threadblocks"]):
            for o, op in enumerate(tb["ops"]):
                if op["name"] in ("nop", "rlxwait", "rlxsignal"):
                    continue
                broken = copy.deepcopy(plan)
                del broken["gpus"][g]["threadblocks"][b]["ops"][o]
                tried += 1
                try:
                    check_plan(broken)
                except CheckError:
                    refused += 1
    assert tried > 20 and refused >= 0.9 * tried


def test_what_the_format_cannot_say_is_refused() -> None:
    for job, said in (
        ("broadcast", "root"),
        ("all-gather:npus=0-1;all-gather:npus=2-3", "at once"),
    ):
        instance = problem(job, "ring:4")
        with pytest.raises(InputError, match=said):
            mscclpp_plan(instance, solved(instance)[1])
