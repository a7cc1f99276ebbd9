"""The collective problem: its entry points for the command line and studies."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from nestopt.collective.model.collective import Collective
from nestopt.collective.model.instance import LATENCY_MODELS, SUM_MODELS, CollectiveInstance
from nestopt.collective.model.of_result import in_columns, instance_of, schedule_of
from nestopt.collective.model.topology import Topology
from nestopt.core.charts import rendered
from nestopt.core.errors import NestoptError, UsageError
from nestopt.core.io import names_file, read_json, write_text
from nestopt.core.registry import named

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from nestopt.collective.model.schedule import Schedule
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.core.verdict import Verdict

__all__ = ["PROBLEM", "CollectiveProblem"]

MOST_SIMULATED = 50_000_000


class CollectiveProblem:
    """The collective problem's entry points; see `nestopt.core.problem.Problem`.

    Settings of an instance: ``latency``, ``blocking`` or ``pipelined``; ``sums``, ``copied`` (a
    partial sum may be sent and kept, as libraries do) or ``moved``.
    """

    name = "collective"
    settings: tuple[str, ...] = ("latency", "sums")

    def from_names(self, names: dict[str, str], settings: dict[str, str]) -> CollectiveInstance:
        """The instance of two names; a name is a library entry or a file.

        Raises
        ------
        UsageError
            If a name or setting is unknown (with a suggestion).
        InputError
            If a file or a value is wrong.
        """
        return self.from_parts(names["collective"], names["topology"], settings)

    def from_parts(self, job: Any, on: Any, settings: dict[str, str]) -> CollectiveInstance:
        """The instance of a collective and a topology; each an object, a library name or a file.

        Raises
        ------
        UsageError
            If a name or setting is unknown (with a suggestion), or a part is something else.
        InputError
            If a file or a value is wrong.
        """
        latency = settings.get("latency", "blocking")
        if latency not in LATENCY_MODELS:
            raise UsageError(f"--set latency={latency}: expected blocking or pipelined")
        sums = settings.get("sums", "copied")
        if sums not in SUM_MODELS:
            raise UsageError(f"--set sums={sums}: expected copied or moved")
        topology = _part(Topology, "topology", on)
        collective = _part(Collective, "collective", job)
        if not isinstance(collective, Collective):
            collective = collective.on(topology)
        return CollectiveInstance(topology, collective, latency, sums)

    def from_json(self, data: Any, *, file: str | None = None) -> CollectiveInstance:
        """The instance of a JSON object.

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        return CollectiveInstance.from_json(data, file=file)

    def check(self, result: Result, *, directory: Path | None = None) -> Verdict:
        """Check a result independently: its schedule, its bound and what it claims.

        Raises
        ------
        CheckError
            If anything is wrong, with what and where.
        """
        from nestopt.collective.judge.check_result import check_result

        return check_result(result, directory=directory)

    def bounds(self, instance: Any, options: SolveOptions) -> list[dict[str, Any]]:
        """Lower bounds, each ``{"name", "value", "witness"}``, the best first."""
        from nestopt.collective.bounds import all_bounds

        return all_bounds(instance, options)

    def simulate(self, result: Result, *, directory: Path | None = None) -> dict[str, Any]:
        """Event simulation of a result's schedule from the order of its sends alone."""
        from nestopt.collective.judge.simulate import simulate_schedule

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
        instance, schedule = _drawable(result, directory)
        if target.suffix.lower() == ".html":
            from nestopt.collective.show.page import schedule_page

            write_text(target, schedule_page(instance, schedule).html())
            return
        from nestopt.collective.show.plot import plot_schedule

        plot_schedule(instance, schedule, target)

    def chart(
        self, result: Result, width: int, *, colour: bool = False, directory: Path | None = None
    ) -> str:
        """A result's schedule in characters: how busy each kind of link is over time.

        Raises
        ------
        NestoptError
            If there is no schedule, or too large a one.
        """
        from nestopt.collective.show.chart import schedule_chart

        return rendered(schedule_chart(*_drawable(result, directory), width), colour=colour)

    def describe(self, result: Result, console: Console) -> None:
        """Print a result for people."""
        from nestopt.collective.show.describe import describe

        describe(result, console)


def _part(kind: type[Any], what: str, given: Any) -> Any:
    """A topology or collective: an object, or that of a file or a library name."""
    if isinstance(given, kind):
        return given
    if not isinstance(given, (str, PurePath)):
        raise UsageError(f"{given!r}; expected a {kind.__name__}, a name or a file")
    text = str(given)
    if isinstance(given, PurePath) or names_file(text):
        return kind.from_json(read_json(text), file=text)
    return named(what, text)


PROBLEM = CollectiveProblem()


def _drawable(result: Result, directory: Path | None) -> tuple[CollectiveInstance, Schedule]:
    instance = instance_of(result)
    schedule = schedule_of(result, directory)
    if schedule.num_sends > MOST_SIMULATED:
        raise NestoptError(f"{schedule.num_sends} sends are too many to draw")
    return instance, in_columns(instance, schedule)
