"""What a user runs today beside the optimum: price, memory verdict, and the flags to change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method
from nestopt.interop.launch.arguments import changes
from nestopt.interop.launch.job import CannotExpress, job_of
from nestopt.interop.launch.megatron import PARALLEL, megatron_arguments
from nestopt.interop.launch.torchtitan import write_torchtitan
from nestopt.placement.model.grid import grid_of, hidden
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.model.plan import Hides, Plan
from nestopt.placement.model.space import PlanSpace

if TYPE_CHECKING:
    from nestopt.core.result import Result
    from nestopt.interop.launch.job import Job
    from nestopt.interop.launch.launched import Launched
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.transformer import Transformer
    from nestopt.placement.model.workload import Workload

__all__ = [
    "Comparison",
    "Priced",
    "as_run",
    "best_plan",
    "compare",
    "hidden_by",
    "nearest",
    "price_plan",
]


@dataclass(frozen=True, slots=True)
class Priced:
    """A plan's price.

    Attributes
    ----------
    plan : Plan
    seconds : float
        Iteration time by the one pricing module.
    fits : bool
        Whether every stage's memory suffices.
    memory : tuple of (float, float)
        Bytes needed and usable by stage.
    """

    plan: Plan
    seconds: float
    fits: bool
    memory: tuple[tuple[float, float], ...]

    @property
    def tightest(self) -> int:
        """The stage with the least room."""
        return max(range(len(self.memory)), key=lambda q: self.memory[q][0] / self.memory[q][1])


@dataclass(frozen=True, slots=True)
class Comparison:
    """A launched job beside the best plan for the same work and cluster.

    All three prices hide behind computation what the job's framework can hide.

    Attributes
    ----------
    job : Launched
    today : Priced
    best : Result
        Of the dynamic program, whole plan space.
    uniform : Priced or None
        The best plan with one configuration, which frameworks can launch; None if none was found.
    changes : tuple of str
        Arguments of the job's framework to change to get `uniform`, or why they can't be written.
    """

    job: Launched
    today: Priced
    best: Result
    uniform: Priced | None
    changes: tuple[str, ...]


def price_plan(plan: Plan, workload: Workload, cluster: Cluster) -> Priced:
    """Price a plan and its memory."""
    from nestopt.placement.pricing.evaluate import evaluate

    priced = evaluate(workload, cluster, plan)
    rows = zip(priced.need.tolist(), priced.room.tolist())
    return Priced(plan, float(priced.iteration_time), priced.fits, tuple(rows))


def compare(
    job: Launched, cluster: Cluster, *, time_limit: float = 60.0, threads: int = 1
) -> Comparison:
    """Price a launched job, solve for the best plan, and say what to change.

    Parameters
    ----------
    time_limit : float
        Seconds for each of the two searches (whole space; one configuration for all stages).

    Raises
    ------
    InputError
        If the job does not fit the cluster.
    """
    from nestopt.interop.launch.reading import plan_of, workload_of

    workload = workload_of(job)
    hides = hidden_by(job.framework)
    today = price_plan(as_run(plan_of(job, cluster), hides), workload, cluster)
    best = best_plan(workload, cluster, hides, time_limit=time_limit, threads=threads)
    one = nearest(
        job.framework, workload, cluster, job.model, time_limit=time_limit, threads=threads
    )
    if one is None:
        return Comparison(job, today, best, None, ("no plan with one configuration was found",))
    uniform = price_plan(one, workload, cluster)
    return Comparison(job, today, best, uniform, _changes(job, uniform.plan, cluster))


def hidden_by(framework: str) -> Hides:
    """What a framework hides behind computation; every price of a comparison hides the same."""
    if framework not in _SPACES:
        return Hides.NONE
    return PlanSpace.parse(_SPACES[framework]).hides[0]


def as_run(plan: Plan, hides: Hides) -> Plan:
    """The plan with each stage hiding what it can of `hides`."""
    stages = []
    for stage in plan.stages:
        config = stage.config
        own = hidden(grid_of(config), config.zero, config.overlap, hides)
        stages.append(replace(stage, config=replace(config, hides=own)))
    return replace(plan, stages=tuple(stages))


def best_plan(
    workload: Workload,
    cluster: Cluster,
    hides: Hides = Hides.NONE,
    *,
    time_limit: float = 60.0,
    threads: int = 1,
) -> Result:
    """The dynamic program's answer over everything that the model allows, hiding `hides`."""
    space = replace(PlanSpace(), hides=(hides,))
    options = SolveOptions(time_limit=time_limit, threads=threads)
    instance = PlacementInstance(workload, cluster, space)
    result: Result = get_method("placement", "dp")(instance, options)
    return result


def _best(instance: PlacementInstance, time_limit: float, threads: int) -> Plan | None:
    """The better of the uniform grid's plan and the dynamic program's, within the time."""
    found: list[Result] = []
    # the grid has plans within seconds; the dynamic program proves
    for method, share in (("grid", 0.25), ("dp", 0.75)):
        options = SolveOptions(time_limit=share * time_limit, threads=threads)
        found.append(get_method("placement", method)(instance, options))
    solved = [result for result in found if result.objective is not None]
    if not solved:
        return None
    return _plan(min(solved, key=lambda result: result.objective or 0.0))


def _plan(result: Result) -> Plan:
    return Plan.from_json(result.solution_json)


def _changes(job: Launched, plan: Plan, cluster: Cluster) -> tuple[str, ...]:
    """Arguments to change, in the words of the job's framework."""
    from nestopt.interop.launch.reading import workload_of

    try:
        target = job_of(plan, workload_of(job), cluster, job.model)
        if job.framework == "torchtitan":
            return _torchtitan_changes(job, target)
        new = megatron_arguments(target)
    except CannotExpress as error:
        return tuple(f"the better plan has no words: {reason}" for reason in error.reasons)
    old = dict(job.arguments)
    for key in PARALLEL:
        # a degree of 1 is as good as none
        if key not in old and str(new.get(key)) == "1":
            new.pop(key)
    world = [] if target.world == job.world else [f"start {target.world} processes"]
    return (*world, *changes(old, new, PARALLEL))


def _torchtitan_changes(job: Launched, target: Job) -> tuple[str, ...]:
    import tomllib

    new = tomllib.loads(write_torchtitan(target)["job.toml"])
    rows = changes(job.arguments, new["parallelism"], list(new["parallelism"]))
    local = new["training"]["local_batch_size"]
    return (*(row.replace("--", "parallelism.") for row in rows), f"local_batch_size = {local}")


_SPACES = {
    "megatron": "megatron-core layout=inner",
    "megatron-bridge": "megatron-core layout=inner",
    "torchtitan": "torchtitan",
    "jax-mesh": "full uniform=true layout=inner",
}
"""The plans that a framework can launch, as a plan space."""

_EVEN = ("deepspeed", "nanotron")
"""Frameworks that cut a pipeline evenly."""


def nearest(
    framework: str,
    workload: Workload,
    cluster: Cluster,
    model: Transformer,
    *,
    time_limit: float = 60.0,
    threads: int = 1,
) -> Plan | None:
    """The best plan found among those that a framework can launch; None if none was found.

    Parameters
    ----------
    framework : str
        A key of `nestopt.interop.launch.FRAMEWORKS`.
    model : Transformer
        The workload's architecture.
    """
    from nestopt.interop.launch.even import best_even_plan

    if framework in _EVEN:
        found = best_even_plan(workload, cluster, model, time_limit=time_limit)
        return None if found is None else found[0]
    space = PlanSpace.parse(_SPACES[framework])
    instance = PlacementInstance(workload, cluster, space)
    return _best(instance, time_limit, threads)
