"""The collective problem: its instance, and its entry points for the command line and studies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nestopt.collective.collective import Collective
from nestopt.collective.topology import Topology
from nestopt.errors import CheckError, InputError, NestoptError, UsageError, naming

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from nestopt.collective.schedule import Schedule
    from nestopt.collective.store import AnySchedule
    from nestopt.options import SolveOptions
    from nestopt.result import Result

__all__ = ["LATENCY_MODELS", "PROBLEM", "SCHEMA", "CollectiveInstance", "CollectiveProblem"]

SCHEMA = "nestopt.instance/1"
LATENCY_MODELS = ("blocking", "pipelined")


@dataclass(frozen=True, slots=True, eq=False)
class CollectiveInstance:
    """What a method for collectives solves.

    Attributes
    ----------
    topology : Topology
    collective : Collective
        Its NPUs are nodes of the topology that are no switches.
    latency : str
        ``"blocking"``: a send occupies its link for latency + serialization and arrives then;
        ``"pipelined"``: it occupies the link for the serialization only and arrives one latency
        later.
    """

    topology: Topology
    collective: Collective
    latency: str = "blocking"

    def __post_init__(self) -> None:
        if self.latency not in LATENCY_MODELS:
            raise InputError(
                f"{self.latency!r}; expected 'blocking' or 'pipelined'", field="latency"
            )
        for index, part in enumerate(self.collective.parts):
            last = int(part.npus[-1])
            if last >= self.topology.num_nodes:
                raise InputError(
                    f"{last} is an unknown node; {self.topology.name} has "
                    f"{self.topology.num_nodes}",
                    field=f"parts[{index}].npus",
                )
            switch = part.npus[self.topology.is_switch[part.npus]]
            if switch.size:
                raise InputError(f"{switch[0]} is a switch", field=f"parts[{index}].npus")

    @property
    def name(self) -> str:
        """The collective's and the topology's names."""
        return f"{self.collective.name} on {self.topology.name}"

    def occupancy_ps(self, size_bytes: int) -> NDArray[np.int64]:
        """How long a chunk occupies each link, int64[E], picoseconds."""
        serial = self.topology.duration_ps(size_bytes)
        return serial + self.topology.alpha_ps if self.latency == "blocking" else serial

    def transfer_ps(self, size_bytes: int) -> NDArray[np.int64]:
        """From the start of a send to its arrival, on each link, int64[E], picoseconds."""
        return self.topology.duration_ps(size_bytes) + self.topology.alpha_ps

    def to_json(self) -> dict[str, Any]:
        """The whole instance as versioned JSON."""
        return {
            "schema": SCHEMA,
            "problem": "collective",
            "name": self.name,
            "topology": self.topology.to_json(),
            "collective": self.collective.to_json(),
            "latency": self.latency,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any], *, file: str | None = None) -> CollectiveInstance:
        """Inverse of `to_json`.

        Raises
        ------
        InputError
            Naming the file, the field, the value found and what was expected.
        """
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else data
            raise InputError(f"{found!r}; expected {SCHEMA!r}", file=file, field="schema")
        if data.get("problem") != "collective":
            raise InputError(
                f"{data.get('problem')!r}; expected 'collective'", file=file, field="problem"
            )
        for key in ("topology", "collective"):
            if key not in data:
                raise InputError("is missing", file=file, field=key)
        known = {"schema", "problem", "name", "topology", "collective", "latency"}
        extra = sorted(set(data) - known)
        if extra:
            raise InputError(
                "is unknown; expected name, topology, collective, latency",
                file=file,
                field=extra[0],
            )
        topology = Topology.from_json(data["topology"], file=file)
        collective = Collective.from_json(data["collective"], file=file)
        with naming(file):
            return cls(topology, collective, data.get("latency", "blocking"))


MOST_SIMULATED = 50_000_000


class CollectiveProblem:
    """The collective problem's entry points; see `nestopt.problem.Problem`.

    Setting of an instance: ``latency``, ``blocking`` or ``pipelined``.
    """

    name = "collective"
    settings: tuple[str, ...] = ("latency",)

    def from_names(self, names: dict[str, str], settings: dict[str, str]) -> CollectiveInstance:
        """The instance of two names; a name is a library entry or a file.

        Raises
        ------
        UsageError
            If a name or setting is unknown (with a suggestion).
        InputError
            If a file or a value is wrong.
        """
        from nestopt.io import names_file, read_json
        from nestopt.registry import named

        latency = settings.get("latency", "blocking")
        if latency not in LATENCY_MODELS:
            raise UsageError(f"--set latency={latency}: expected blocking or pipelined")
        place, job = names["topology"], names["collective"]
        topology: Topology = (
            Topology.from_json(read_json(place), file=place)
            if names_file(place)
            else named("topology", place)
        )
        collective: Collective = (
            Collective.from_json(read_json(job), file=job)
            if names_file(job)
            else named("collective", job).on(topology)
        )
        return CollectiveInstance(topology, collective, latency)

    def from_json(self, data: Any, *, file: str | None = None) -> CollectiveInstance:
        """The instance of a JSON object.

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        return CollectiveInstance.from_json(data, file=file)

    def check(self, result: Result, *, directory: Path | None = None) -> list[str]:
        """Check a result independently: its schedule, its bound and what it claims.

        Raises
        ------
        CheckError
            If anything is wrong, with what and where.
        """
        from nestopt.collective.check_result import check_result

        return check_result(result, directory=directory)

    def bounds(self, instance: Any, options: SolveOptions) -> list[dict[str, Any]]:
        """Lower bounds, each ``{"name", "value", "witness"}``, the best first."""
        from nestopt.collective.bounds import all_bounds

        return all_bounds(instance, options)

    def simulate(self, result: Result, *, directory: Path | None = None) -> dict[str, Any]:
        """Event simulation of a result's schedule from the order of its sends alone."""
        from nestopt.collective.simulate import simulate_schedule

        instance = instance_of(result)
        schedule = schedule_of(result, directory)
        if schedule.num_sends > MOST_SIMULATED:
            raise NestoptError(
                f"{schedule.num_sends} sends are too many to simulate (at most {MOST_SIMULATED}); "
                "the checker has no limit"
            )
        return simulate_schedule(instance, in_columns(instance, schedule))

    def plot(self, result: Result, target: Path, *, directory: Path | None = None) -> None:
        """Draw a result's schedule: links over time, and the topology with the load of its links.

        Raises
        ------
        NestoptError
            If there is no schedule, or too large a one.
        """
        from nestopt.collective.plot import plot_schedule

        instance = instance_of(result)
        schedule = schedule_of(result, directory)
        if schedule.num_sends > MOST_SIMULATED:
            raise NestoptError(f"{schedule.num_sends} sends are too many to draw")
        plot_schedule(instance, in_columns(instance, schedule), target)

    def describe(self, result: Result, console: Console) -> None:
        """Print a result for people."""
        from nestopt.collective.describe import describe

        describe(result, console)


PROBLEM = CollectiveProblem()


def instance_of(result: Result) -> CollectiveInstance:
    """The instance that a result holds.

    Raises
    ------
    CheckError
        If it holds none.
    """
    if "data" not in result.instance:
        raise CheckError("the result does not hold its instance")
    return CollectiveInstance.from_json(result.instance["data"])


def schedule_of(result: Result, directory: Path | None) -> AnySchedule:
    """The schedule of a result, read from its side file where it has one.

    Raises
    ------
    NestoptError
        If it has no schedule, or a damaged one.
    """
    from nestopt.collective.store import load_solution

    if result.solution is None:
        raise NestoptError("the result has no schedule")
    return load_solution(result.solution, directory=directory)


def in_columns(instance: CollectiveInstance, schedule: AnySchedule) -> Schedule:
    """A schedule as columns of sends, whichever form it has."""
    from nestopt.collective.steps import StepSchedule

    if isinstance(schedule, StepSchedule):
        return schedule.to_schedule(instance.topology)
    return schedule
