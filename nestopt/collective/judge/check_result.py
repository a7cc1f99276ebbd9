"""The independent check of a result: its schedule, its bound, and what it says of both."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from nestopt.collective.judge.check import check_schedule
from nestopt.collective.judge.check_steps import check_steps
from nestopt.collective.model.of_result import instance_of, schedule_of
from nestopt.collective.model.steps import StepSchedule
from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import sha256_of
from nestopt.core.result import Reason

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.core.result import Result

__all__ = ["check_result"]


def check_result(result: Result, *, directory: Path | None = None) -> list[str]:
    """Check a result; one line for each thing verified.

    Raises
    ------
    CheckError
        If anything is wrong, with what and where.
    """
    try:
        instance = instance_of(result)
    except InputError as error:
        raise CheckError(f"instance: {error}") from error
    if "sha256" in result.instance:
        found = sha256_of(result.instance["data"])
        if found != result.instance["sha256"]:
            raise CheckError(f"instance: sha256 is {found}, not {result.instance['sha256']}")
    lines = []
    if result.solution_json is not None:
        lines += _check_solution(instance, result, directory)
    elif result.objective is not None:
        raise CheckError(f"objective {result.objective} without a schedule")
    if result.termination.reason is Reason.INFEASIBLE:
        lines.append(_check_infeasible(instance))
    elif math.isfinite(result.bound) and result.bound > 0:
        lines += _check_bound(instance, result)
    return lines


def _check_solution(
    instance: CollectiveInstance, result: Result, directory: Path | None
) -> list[str]:
    assert result.solution_json is not None
    try:
        schedule = schedule_of(result, directory)
    except InputError as error:
        raise CheckError(f"schedule: {error}") from error
    if isinstance(schedule, StepSchedule):
        lines = check_steps(instance, schedule, threads=min(os.cpu_count() or 1, 8))
    else:
        unicast = bool(result.solution_json.get("unicast", False))
        lines = check_schedule(instance, schedule, allow_redundant=unicast)
    if result.objective != schedule.makespan_ps:
        raise CheckError(
            f"objective {result.objective}; the schedule's makespan is {schedule.makespan_ps} ps"
        )
    lines.append("the objective is the makespan")
    return lines


def _check_infeasible(instance: CollectiveInstance) -> str:
    """Find a chunk that cannot reach a node where it must end, or else refuse the claim."""
    import networkx as nx

    topology = instance.topology
    graph = nx.DiGraph()
    graph.add_nodes_from(range(topology.num_nodes))
    graph.add_edges_from(zip(topology.src.tolist(), topology.dst.tolist()))
    for part in instance.collective.parts:
        pairs = dict.fromkeys(zip(part.sources().tolist(), part.destinations().tolist()))
        for source, destination in pairs:
            ends = set(part.npus.tolist()) if destination < 0 else {destination}
            for start in part.npus.tolist() if source < 0 else [source]:
                lost = ends - nx.descendants(graph, start) - {start}
                if lost:
                    names = topology.node_name(start), topology.node_name(min(lost))
                    return f"infeasible: no path leads from {names[0]} to {names[1]}"
    raise CheckError("said to be infeasible, but every chunk can reach its destination")


def _check_bound(instance: CollectiveInstance, result: Result) -> list[str]:
    if result.objective is not None and result.bound > result.objective:
        raise CheckError(f"bound {result.bound} above the objective {result.objective}")
    if result.termination.reason is Reason.OPTIMAL and result.bound != result.objective:
        raise CheckError(f"said to be optimal, with bound {result.bound} and {result.objective}")
    if result.witness is None or result.witness.get("kind") not in (
        "cut",
        "delivery",
        "distance",
        "prices",
        "trivial",
    ):
        return [f"the bound, {result.bound} ps, has no witness that can be checked"]
    from nestopt.collective.judge.witness import verify_witness

    proved = verify_witness(instance, result.witness)
    if proved < result.bound:
        raise CheckError(f"bound {result.bound}; its witness proves {proved} ps only")
    return [f"the bound's witness proves {proved} ps"]
