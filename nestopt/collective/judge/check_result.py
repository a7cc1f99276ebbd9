"""The independent check of a result: its schedule, its bound, and what it says of both."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from nestopt.collective.judge.check import RedundantError, check_schedule, check_unicast
from nestopt.collective.judge.check_steps import check_steps
from nestopt.collective.judge.witness import KINDS, verify_witness
from nestopt.collective.judge.witness_form import refuse_malformed
from nestopt.collective.model.of_result import instance_of, schedule_of
from nestopt.collective.model.steps import StepSchedule
from nestopt.core.errors import CheckError, InputError
from nestopt.core.io import sha256_of
from nestopt.core.result import Reason
from nestopt.core.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.core.result import Result

__all__ = ["check_result"]

OBJECTIVE = "makespan"
SEARCH = "search"
"""The kind of witness of a bound that an exhausted search stands for; nobody can verify it."""


def check_result(result: Result, *, directory: Path | None = None) -> Verdict:
    """Check a result: feasibility, makespan and bound are verified, or else the claim is named.

    Raises
    ------
    CheckError
        If anything is wrong, with what and where; a `NotProvedError` for a claim without proof.
    """
    try:
        instance = instance_of(result)
    except InputError as error:
        raise CheckError(f"instance: {error}") from error
    found = sha256_of(result.instance["data"])
    if found != result.instance.get("sha256"):
        raise CheckError(f"instance: sha256 is {found}, not {result.instance.get('sha256')!r}")
    _check_settings(result, instance)
    verdict = Verdict()
    reason = result.termination.reason
    if result.solution_json is not None:
        verdict.add(_check_solution(instance, result, directory))
    elif result.objective is not None:
        raise CheckError(f"objective {result.objective} without a schedule")
    if reason is Reason.INFEASIBLE and result.method == "sccl":
        verdict.claimed.append(_claim_of_steps(result))
        return verdict
    if reason is Reason.INFEASIBLE:
        verdict.verified.append(_check_infeasible(instance))
        return verdict
    if reason is Reason.NO_SOLUTION:
        verdict.claimed.append(
            f"the method found no schedule (limit: {result.termination.limit.value})"
        )
    verdict.add(_check_bound(instance, result))
    return verdict.settle()


def _claim_of_steps(result: Result) -> str:
    """An SCCL question that is answered with no: infeasible is the question, not the instance."""
    asked = []
    for key in ("steps", "rounds"):
        value = result.settings.get(key)
        if isinstance(value, bool) or not str(value).isdecimal() or int(str(value)) < 1:
            raise CheckError(f"settings.{key}: {value!r}; expected a whole number from 1 on")
        asked.append(f"{value} {key}")
    because = "; ".join(result.infeasible_because) or "it gives no cause"
    return f"no algorithm of {' and '.join(asked)}, by exhausted search: {because}"


def _check_settings(result: Result, instance: CollectiveInstance) -> None:
    """The file states no other objective or space than the one that is judged."""
    given = result.settings.get("objective", OBJECTIVE)
    if given != OBJECTIVE:
        raise CheckError(f"settings.objective: {given!r}; a collective has {OBJECTIVE!r} alone")
    judged = {"latency": instance.latency}
    if instance.sums_matter:
        judged["sums"] = instance.sums
    for key, value in judged.items():
        stated = result.settings.get(key, value)
        if stated != value:
            raise CheckError(f"settings.{key}: {stated!r}, but the instance has {value!r}")


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
        try:
            lines = check_schedule(instance, schedule)
        except RedundantError as error:
            # The schedule decides how it is judged, not a mark in the file.
            try:
                lines = check_unicast(instance, schedule)
            except CheckError as other:
                raise CheckError(f"{error}; nor is each message sent by itself: {other}") from other
    objective = result.objective
    if isinstance(objective, bool) or not isinstance(objective, int):
        raise CheckError(f"objective {objective!r}; expected whole picoseconds")
    if objective != schedule.makespan_ps:
        raise CheckError(
            f"objective {objective}; the schedule's makespan is {schedule.makespan_ps} ps"
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


def _check_bound(instance: CollectiveInstance, result: Result) -> Verdict:
    """The bound is not above the objective, meets it if that is optimal, and is proved."""
    verdict, bound = Verdict(), result.bound
    optimal = result.termination.reason is Reason.OPTIMAL
    if result.objective is not None and bound > result.objective:
        raise CheckError(f"bound {bound} above the objective {result.objective}")
    if optimal and bound != result.objective:
        verdict.unproved.append(
            f"said to be optimal, with bound {bound} and objective {result.objective}"
        )
        return verdict
    if bound == -math.inf:
        bound = 0
    if isinstance(bound, float) and not bound.is_integer():
        raise CheckError(f"bound {bound!r}; expected whole picoseconds")
    witness, what = result.witness, f"the bound, {bound} ps"
    kind = None if witness is None else witness.get("kind")
    if kind in KINDS:
        assert witness is not None
        proved = verify_witness(instance, witness)
        if proved < bound:
            raise CheckError(f"bound {bound}; its witness proves {proved} ps only")
        verdict.verified.append(f"the bound's witness proves {proved} ps")
    elif bound <= 0:
        verdict.verified.append("the bound, at most 0 ps, needs no proof")
    elif witness is not None and kind == SEARCH:
        refuse_malformed(witness, instance)
        name, value = witness.get("name"), witness.get("value")
        if name != result.method or value != bound or isinstance(value, bool):
            raise CheckError(
                f"bound {bound} by {result.method}; its witness is a search by {name!r} for "
                f"{value!r} ps"
            )
        verdict.claimed.append(f"{what}, by a search of {name} that ended without a schedule")
        optimal_claim = f"optimality: follows from the search of {name}, which is not repeated"
        if optimal:
            verdict.claimed.append(optimal_claim)
        return verdict
    else:
        has = "no witness" if witness is None else f"a witness of unknown kind {kind!r}"
        verdict.unproved.append(f"{what}, has {has}")
        if optimal:
            verdict.unproved.append("optimality has no proof but that bound")
        return verdict
    if optimal:
        verdict.verified.append("optimal: the objective meets the proved bound")
    return verdict
