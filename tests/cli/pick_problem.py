"""A problem so small that only the command line can be wrong: pick the least of some numbers.

It stands in for the placement problem; each method ends in a different way.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import CheckError, InputError, SolverError
from nestopt.core.io import sha256_of
from nestopt.core.registry import Method
from nestopt.core.result import Limit, Reason, Result, Termination
from nestopt.placement.model.space import PlanSpace

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from nestopt.core.options import SolveOptions

NUMBERS = (5.0, 2.0, 3.0)


@dataclass(frozen=True)
class Pick:
    numbers: tuple[float, ...]
    batch: str = "1"

    name = "pick"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": "nestopt.instance/1",
            "problem": "placement",
            "numbers": list(self.numbers),
            "batch": self.batch,
        }


class PickProblem:
    name = "placement"
    settings = ("batch",)

    def from_names(self, names: dict[str, str], settings: dict[str, str]) -> Pick:
        assert set(names) == {"workload", "cluster"}
        return Pick(NUMBERS, settings.get("batch", "1"))

    def from_json(self, data: dict[str, Any], *, file: str | None = None) -> Pick:
        if not data.get("numbers"):
            raise InputError(
                f"{data.get('numbers')!r}; expected numbers", file=file, field="numbers"
            )
        return Pick(tuple(data["numbers"]), data.get("batch", "1"))

    def stated(
        self, instance: Pick, objective: str | None, space: str | None, settings: dict[str, str]
    ) -> Pick:
        PlanSpace.parse(space or "full")
        return instance

    def check(self, result: Result, *, directory: Path | None = None) -> list[str]:
        if result.solution_json is None:
            return []
        value = result.instance["data"]["numbers"][result.solution_json["pick"]]
        if value != result.objective:
            raise CheckError(f"objective: {result.objective} stated, {value} found")
        return ["objective: as recomputed"]

    def bounds(self, instance: Pick, options: SolveOptions) -> list[dict[str, Any]]:
        least = min(instance.numbers)
        return [
            {"name": "least", "value": least, "witness": {"position": 1, "reads": "x" * 500}},
            {"name": "nothing", "value": float("inf"), "witness": {}},
        ]

    def simulate(self, result: Result, *, directory: Path | None = None) -> dict[str, Any]:
        return {
            "closed_form": result.objective,
            "simulated": result.objective,
            "relative_difference": 0.0,
            "tasks_played": 7,
        }

    def plot(self, result: Result, target: Path, *, directory: Path | None = None) -> None:
        target.write_text(f"picture of {result.objective}")

    def describe(self, result: Result, console: Console) -> None:
        console.print(f"picked number {result.solution_json['pick']}: {result.objective}")


PROBLEM = PickProblem()


def _result(
    instance: Pick,
    options: SolveOptions,
    reason: Reason,
    limit: Limit = Limit.NONE,
    **fields: Any,
) -> Result:
    data = instance.to_json()
    values: dict[str, Any] = {
        "problem": "placement",
        "instance": {"name": instance.name, "sha256": sha256_of(data), "data": data},
        "method": "fake",
        "termination": Termination(reason, limit),
        "objective": None,
        "bound": float("-inf"),
        "seconds": 0.25,
        "seed": options.seed,
        "stats": {
            "set": options.set,
            "time_limit": str(options.time_limit),
        },
    }
    return Result(**(values | fields))


def best(instance: Pick, options: SolveOptions) -> Result:
    pick = min(range(len(instance.numbers)), key=instance.numbers.__getitem__)
    value = instance.numbers[pick]
    if options.progress is not None:
        options.progress(0.1, instance.numbers[0], 0.0, "first")
        options.progress(0.2, value, value, "last")
    stats = {"set": options.set, "time_limit": str(options.time_limit)}
    if options.warm_start is not None:
        stats["started_from"] = options.warm_start.solution_json
    return _result(
        instance,
        options,
        Reason.OPTIMAL,
        objective=value,
        bound=value,
        solution_json={"pick": pick},
        stats=stats,
    )


def noisy(instance: Pick, options: SolveOptions) -> Result:
    print("printed by Python")
    os.write(1, b"written by a compiled library\n")
    return best(instance, options)


def at_limit(instance: Pick, options: SolveOptions) -> Result:
    return _result(
        instance,
        options,
        Reason.FEASIBLE,
        Limit.TIME,
        objective=instance.numbers[0],
        bound=1.0,
        solution_json={"pick": 0},
    )


def liar(instance: Pick, options: SolveOptions) -> Result:
    result = best(instance, options)
    result.objective = result.bound = 1.0
    return result


def infeasible(instance: Pick, options: SolveOptions) -> Result:
    return _result(
        instance,
        options,
        Reason.INFEASIBLE,
        bound=float("inf"),
        infeasible_because=("layer 3 needs 91.2 GB, device 17 has 80.0 GB",),
    )


def too_slow(instance: Pick, options: SolveOptions) -> Result:
    return _result(instance, options, Reason.NO_SOLUTION, Limit.TIME, bound=1.5)


def interrupted(instance: Pick, options: SolveOptions) -> Result:
    assert options.progress is not None
    options.progress(0.1, None, 1.25, "bound")
    signal.raise_signal(signal.SIGINT)
    time.sleep(10)  # what sleeps is woken
    raise AssertionError("the interrupt did not arrive")


def out_of_memory(instance: Pick, options: SolveOptions) -> Result:
    raise MemoryError


def broken(instance: Pick, options: SolveOptions) -> Result:
    raise SolverError("highs: broke down at node 7")


METHODS = {
    "dp": Method("pick_problem:best", "The least number, proved.", ("depth", "width")),
    "milp": Method("pick_problem:best", "The same by another name."),
    "noisy": Method("pick_problem:noisy", "Prints where it should not."),
    "at-limit": Method("pick_problem:at_limit", "Stops early with a solution."),
    "liar": Method("pick_problem:liar", "States an objective that is not its solution's."),
    "infeasible": Method("pick_problem:infeasible", "Proves that there is none."),
    "too-slow": Method("pick_problem:too_slow", "Finds nothing in time."),
    "interrupted": Method("pick_problem:interrupted", "Gets a Ctrl-C."),
    "out-of-memory": Method("pick_problem:out_of_memory", "Runs out of memory."),
    "broken": Method("pick_problem:broken", "Its solver breaks down."),
}
