"""The placement problem: its entry points for the command line and studies.

Each imports its judge, bound or picture when it is asked for: an instance is built without them.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from nestopt.core.charts import rendered
from nestopt.core.errors import CheckError, InputError, NestoptError, UsageError, naming
from nestopt.core.io import names_file, read_json, write_text
from nestopt.core.pricing import DEFAULT_SET
from nestopt.core.registry import named
from nestopt.placement.model import models
from nestopt.placement.model.cluster import Cluster
from nestopt.placement.model.collective_table import CollectiveTable
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.of_result import instance_of
from nestopt.placement.model.plan import Plan
from nestopt.placement.model.space_text import SPACE_SETTINGS, parse_space
from nestopt.placement.model.workload import Workload
from nestopt.placement.pricing.parameters import using_set

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.core.verdict import Verdict
    from nestopt.placement.partitioning.maxload import MaxLoadProblem
    from nestopt.placement.partitioning.piper import PiperProblem

__all__ = ["PROBLEM", "PlacementProblem", "cluster_of"]


class PlacementProblem:
    """Placement's entry points; see `nestopt.core.problem.Problem`.

    Settings of an instance: ``batch`` (global batch, in samples), ``collectives`` (file of a table
    of collectives for the cluster), ``pricing`` (the parameter set that names stand for, or a file
    of one; `nestopt.placement.pricing.parameters`) and ``model``: ``pipeline`` (this package's
    own), ``max-load`` or ``piper``. With these two ``--workload`` is a file of the model
    and ``--cluster`` states the devices, as `models.from_file` says; for Piper,
    ``batch`` counts micro-batches and ``bandwidth`` is a setting too.
    """

    name = "placement"
    settings: tuple[str, ...] = ("batch", "model", "bandwidth", "collectives", "pricing")
    space_settings: tuple[str, ...] = SPACE_SETTINGS

    def from_names(
        self, names: dict[str, str], settings: dict[str, str]
    ) -> PlacementInstance | MaxLoadProblem | PiperProblem:
        """The instance of two names; a name is a library entry or a file.

        Raises
        ------
        UsageError
            If a name or setting is unknown (with a suggestion).
        InputError
            If a file or a value is wrong.
        """
        model = settings.get("model", "pipeline")
        workload_name, cluster_name = names["workload"], names["cluster"]
        if model in models.SCHEMAS:
            if "collectives" in settings:
                raise UsageError(f"--set collectives: model={model} has no collectives")
            return models.from_file(model, workload_name, cluster_name, settings)
        if model != "pipeline":
            known = ", ".join(("pipeline", *models.SCHEMAS))
            raise UsageError(f"--set model={model}: expected one of {known}")
        if "bandwidth" in settings:
            raise UsageError("--set bandwidth belongs to model=piper")
        return self.from_parts(workload_name, cluster_name, settings)

    def from_parts(self, job: Any, on: Any, settings: dict[str, str]) -> PlacementInstance:
        """The instance of a workload and a cluster; each an object, a library name or a file.

        Raises
        ------
        UsageError
            If a name or setting is unknown (with a suggestion), or a part is something else.
        InputError
            If a file or a value is wrong.
        """
        if settings.get("model", "pipeline") != "pipeline":
            raise UsageError("model: a published model is read from files; give two names")
        with using_set(settings.get("pricing", DEFAULT_SET)) as parameters:
            workload = job if isinstance(job, Workload) else _workload_of(_name(job, "a Workload"))
            cluster = on if isinstance(on, Cluster) else cluster_of(_name(on, "a Cluster"))
        if "batch" in settings:
            workload = workload.with_batch(models.parse_count(settings["batch"], "--set batch"))
        if "collectives" in settings:
            cluster = _with_table(cluster, settings["collectives"])
        return PlacementInstance(workload, cluster, pricing=parameters.name)

    def from_json(
        self, data: Any, *, file: str | None = None
    ) -> PlacementInstance | MaxLoadProblem | PiperProblem:
        """The instance of a JSON object, of any model's schema.

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        model = models.model_of(data)
        if model is not None:
            return models.from_json(model, data, file=file)
        return PlacementInstance.from_json(data, file=file)

    def stated(
        self,
        instance: PlacementInstance,
        objective: str | None,
        space: str | None,
        settings: dict[str, str],
    ) -> PlacementInstance:
        """The instance with another objective and space, where words ask for them.

        Parameters
        ----------
        space : str or None
            A text such as ``"megatron-core"`` or ``"full general"`` (`PlanSpace.parse`).
        settings : dict
            Pairs with keys of `space_settings`; they change that space.

        Raises
        ------
        UsageError, InputError
            If a word or a value is wrong.
        """
        chosen = instance.space if space is None else parse_space(space, instance.space)
        return instance.over(parse_space(settings, chosen), objective)

    def check(self, result: Result, *, directory: Path | None = None) -> Verdict:
        """Check a result independently: what is verified, and what is merely claimed.

        Raises
        ------
        CheckError
            If anything is wrong, with what and where.
        """
        model = _model_of(result)
        if model is not None:
            try:
                self.from_json(result.instance["data"])
            except (InputError, UsageError) as error:
                raise CheckError(f"instance.data: {error}") from error
        if model == "max-load":
            from nestopt.placement.partitioning.maxload import check as check_split

            return check_split(result)
        if model == "piper":
            from nestopt.placement.partitioning.piper import check as check_stages

            return check_stages(result)
        from nestopt.placement.judge.check import check_result

        return check_result(result)

    def bounds(self, instance: Any, options: SolveOptions) -> list[dict[str, Any]]:
        """Lower bounds, each ``{"name", "value", "witness"}``, the best first."""
        if isinstance(instance, PlacementInstance):
            from nestopt.placement.bounds.general import bounds

            found: list[dict[str, Any]] = bounds(instance, options)
            return found
        if instance.schema == models.SCHEMAS["piper"]:
            from nestopt.placement.partitioning.piper.outcome import work_bound

            value = work_bound(instance)
            relaxes = "transfers, exchange and memory; fastest variants, work divides evenly"
        else:
            from nestopt.placement.partitioning.maxload.outcome import load_bound
            from nestopt.placement.partitioning.maxload.units import make_units

            value = load_bound(instance, make_units(instance))
            relaxes = (
                "transfers, order and memory; a unit on its faster device, work divides evenly"
            )
        return [{"name": "compute", "value": float(value), "witness": {"relaxes": relaxes}}]

    def simulate(self, result: Result, *, directory: Path | None = None) -> dict[str, Any]:
        """Event simulation of a result's plan beside the closed form."""
        plan = _plan_of(result, "simulate")
        from nestopt.placement.judge.simulate import simulate

        return simulate(*plan)

    def plot(self, result: Result, target: Path, *, directory: Path | None = None) -> None:
        """Draw a result's plan: its stages on the cluster and its timeline."""
        plan = _plan_of(result, "draw")
        if target.suffix.lower() == ".html":
            from nestopt.placement.show.page import plan_page

            write_text(target, plan_page(*plan).html())
            return
        from nestopt.placement.show.plot import plot_plan

        plot_plan(*plan, target)

    def chart(
        self, result: Result, width: int, *, colour: bool = False, directory: Path | None = None
    ) -> str:
        """A result's plan in characters: stages on the devices, start and end of the pipeline."""
        plan = _plan_of(result, "draw")
        from nestopt.placement.show.chart import plan_chart

        return rendered(plan_chart(*plan, width), colour=colour)

    def describe(self, result: Result, console: Console) -> None:
        """Print a result for people."""
        from nestopt.placement.show.describe import describe, describe_maxload, describe_piper

        shown = {"max-load": describe_maxload, "piper": describe_piper}
        shown.get(_model_of(result) or "", describe)(result, console)


PROBLEM = PlacementProblem()


def _name(part: Any, kind: str) -> str:
    if not isinstance(part, (str, PurePath)):
        raise UsageError(f"{part!r}; expected {kind}, a name or a file")
    return str(part)


def _workload_of(name: str) -> Workload:
    """The workload of a library name, of a file, or of a model's configuration file."""
    if names_file(name):
        data = read_json(name)
        # a configuration of a model needs settings, which the library's reader asks for
        if not (isinstance(data, dict) and "model_type" in data and "schema" not in data):
            return Workload.from_json(data, file=name)
    workload: Workload = named("workload", name)
    return workload


def cluster_of(name: str) -> Cluster:
    """The cluster of a library name, or in a file.

    Raises
    ------
    UsageError
        If the name is unknown (with a suggestion).
    InputError
        If the file or a value is wrong.
    """
    if names_file(name):
        return Cluster.from_json(read_json(name), file=name)
    cluster: Cluster = named("cluster", name)
    return cluster


def _with_table(cluster: Cluster, file: str) -> Cluster:
    table = CollectiveTable.from_json(read_json(file), file=file)
    with naming(file):
        table.check_levels(cluster.levels)
    return cluster.with_collectives(table)


def _model_of(result: Result) -> str | None:
    return models.model_of(result.instance.get("data"))


def _plan_of(result: Result, verb: str) -> tuple[Workload, Cluster, Plan]:
    model = _model_of(result)
    if model is not None:
        raise NestoptError(f"a plan of the {model} model has no timeline to {verb}")
    if result.solution_json is None:
        raise NestoptError(f"the result has no plan to {verb}")
    instance = instance_of(result)
    return instance.workload, instance.cluster, Plan.from_json(result.solution_json)
