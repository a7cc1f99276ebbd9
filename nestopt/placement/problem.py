"""The placement problem: its instance, and its entry points for the command line and studies."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt.errors import CheckError, InputError, NestoptError, UsageError
from nestopt.placement.cluster import Cluster
from nestopt.placement.workload import Workload

if TYPE_CHECKING:
    from rich.console import Console

    from nestopt.options import SolveOptions
    from nestopt.placement.maxload import MaxLoadProblem
    from nestopt.placement.plan import Plan
    from nestopt.result import Result

__all__ = ["PROBLEM", "SCHEMA", "PlacementInstance", "PlacementProblem"]

SCHEMA = "nestopt.instance/1"
_MAXLOAD = "nestopt.maxload/1"


@dataclass(frozen=True, slots=True, eq=False)
class PlacementInstance:
    """What a method for placement solves.

    Attributes
    ----------
    workload : Workload
    cluster : Cluster
    name : str
        ``WORKLOAD on CLUSTER`` unless given.
    """

    workload: Workload
    cluster: Cluster
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"{self.workload.name} on {self.cluster.name}")

    def to_json(self) -> dict[str, Any]:
        """The whole instance as versioned JSON."""
        return {
            "schema": SCHEMA,
            "problem": "placement",
            "name": self.name,
            "workload": self.workload.to_json(),
            "cluster": self.cluster.to_json(),
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> PlacementInstance:
        """Inverse of `to_json`.

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else data
            raise InputError(f"{found!r}; expected {SCHEMA!r}", file=file, field="schema")
        if data.get("problem") != "placement":
            raise InputError(
                f"{data.get('problem')!r}; expected 'placement'", file=file, field="problem"
            )
        for key in ("workload", "cluster"):
            if key not in data:
                raise InputError("is missing", file=file, field=key)
        extra = sorted(set(data) - {"schema", "problem", "name", "workload", "cluster"})
        if extra:
            raise InputError(
                "is unknown; expected name, workload, cluster", file=file, field=extra[0]
            )
        name = data.get("name", "")
        if not isinstance(name, str):
            raise InputError(f"{name!r}; expected text", file=file, field="name")
        return cls(
            Workload.from_json(data["workload"], file=file),
            Cluster.from_json(data["cluster"], file=file),
            name,
        )


def _is_file(value: str) -> bool:
    return value.endswith(".json") or Path(value).is_file()


def _count(text: str, what: str) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise InputError(f"{text!r}; expected an integer", field=what) from error
    if number < 1:
        raise InputError(f"{number}; expected at least 1", field=what)
    return number


class PlacementProblem:
    """Placement's entry points; see `nestopt.problem.Problem`.

    Settings of an instance: ``batch`` (global batch, in samples) and ``model``, ``pipeline`` (this
    package's own model) or ``max-load`` (the bottleneck of a split among accelerators and CPUs;
    then ``--workload`` is a max-load file and ``--cluster`` the devices, ``6+1`` for six
    accelerators and a CPU).
    """

    name = "placement"
    settings: tuple[str, ...] = ("batch", "model")

    def from_names(
        self, names: dict[str, str], settings: dict[str, str]
    ) -> PlacementInstance | MaxLoadProblem:
        """The instance of two names; a name is a library entry or a file.

        Raises
        ------
        UsageError
            If a name or setting is unknown (with a suggestion).
        InputError
            If a file or a value is wrong.
        """
        from nestopt.io import read_json
        from nestopt.registry import named

        model = settings.get("model", "pipeline")
        if model not in ("pipeline", "max-load"):
            raise UsageError(f"--set model={model}: expected pipeline or max-load")
        workload_name, cluster_name = names["workload"], names["cluster"]
        if model == "max-load":
            return _maxload(workload_name, cluster_name, settings)
        workload: Workload = (
            Workload.from_json(read_json(workload_name), file=workload_name)
            if _is_file(workload_name)
            else named("workload", workload_name)
        )
        cluster: Cluster = (
            Cluster.from_json(read_json(cluster_name), file=cluster_name)
            if _is_file(cluster_name)
            else named("cluster", cluster_name)
        )
        if "batch" in settings:
            workload = workload.with_batch(_count(settings["batch"], "--set batch"))
        return PlacementInstance(workload, cluster)

    def from_json(
        self, data: Any, *, file: str | None = None
    ) -> PlacementInstance | MaxLoadProblem:
        """The instance of a JSON object, of either schema.

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        if isinstance(data, dict) and data.get("schema") == _MAXLOAD:
            from nestopt.placement.maxload import MaxLoadProblem

            return MaxLoadProblem.from_json(data, file=file)
        return PlacementInstance.from_json(data, file=file)

    def check(self, result: Result, *, directory: Path | None = None) -> list[str]:
        """Check a result independently; one line for each thing verified.

        Raises
        ------
        CheckError
            If anything is wrong, with what and where.
        """
        from nestopt.placement.check import check_result

        if _is_maxload(result):
            from nestopt.placement.maxload import check

            return check(result)
        return check_result(result)

    def bounds(self, instance: Any, options: SolveOptions) -> list[dict[str, Any]]:
        """Lower bounds, each ``{"name", "value", "witness"}``, the best first."""
        if isinstance(instance, PlacementInstance):
            from nestopt.placement.bound import bounds

            found: list[dict[str, Any]] = bounds(instance, options)
            return found
        from nestopt.placement.maxload.outcome import load_bound
        from nestopt.placement.maxload.units import make_units

        relaxes = "transfers, order and memory; a unit on its faster device, work divides evenly"
        return [
            {
                "name": "compute",
                "value": float(load_bound(instance, make_units(instance))),
                "witness": {"relaxes": relaxes},
            }
        ]

    def simulate(self, result: Result, *, directory: Path | None = None) -> dict[str, Any]:
        """Event simulation of a result's plan beside the closed form."""
        from nestopt.placement.simulate import simulate

        return simulate(*_plan_of(result, "simulate"))

    def plot(self, result: Result, target: Path, *, directory: Path | None = None) -> None:
        """Draw a result's plan: its stages on the cluster and its timeline."""
        from nestopt.placement.plot import plot_plan

        plot_plan(*_plan_of(result, "draw"), target)

    def describe(self, result: Result, console: Console) -> None:
        """Print a result for people."""
        from nestopt.placement.describe import describe, describe_maxload

        if _is_maxload(result):
            describe_maxload(result, console)
        else:
            describe(result, console)


PROBLEM = PlacementProblem()


def _maxload(file: str, devices: str, settings: dict[str, str]) -> MaxLoadProblem:
    from nestopt.io import read_json
    from nestopt.placement.maxload import MaxLoadProblem

    if "batch" in settings:
        raise UsageError("--set batch: the max-load model has no batch")
    if not _is_file(file):
        raise UsageError(f"--workload {file}: with model=max-load it is a file ({_MAXLOAD})")
    match = re.fullmatch(r"(\d+)\+(\d+)", devices)
    if match is None:
        raise UsageError(
            f"--cluster {devices}: with model=max-load it is ACCELERATORS+CPUS, such as 6+1"
        )
    problem = MaxLoadProblem.from_json(read_json(file), file=file)
    accelerators, cpus = int(match[1]), int(match[2])
    if accelerators + cpus == 0:
        raise InputError("no device at all", field="--cluster")
    return replace(problem, accelerators=accelerators, cpus=cpus)


def _is_maxload(result: Result) -> bool:
    data = result.instance.get("data")
    return isinstance(data, dict) and data.get("schema") == _MAXLOAD


def _plan_of(result: Result, verb: str) -> tuple[Workload, Cluster, Plan]:
    from nestopt.placement.plan import Plan

    if _is_maxload(result):
        raise NestoptError(f"a max-load split has no pipeline to {verb}")
    if result.solution is None:
        raise NestoptError(f"the result has no plan to {verb}")
    if "data" not in result.instance:
        raise CheckError("the result does not hold its instance")
    instance = PlacementInstance.from_json(result.instance["data"])
    return instance.workload, instance.cluster, Plan.from_json(result.solution)
