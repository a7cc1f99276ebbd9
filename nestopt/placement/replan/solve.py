"""`replan`: the plan after a failure.

Candidates are the dynamic program's plan for what is left, within a time limit, and plans that keep
the old plan's form (`nestopt.placement.replan.candidates`). Each is priced on the cluster as it is
now. The one of least iteration time is taken; among equals, the one that makes least fetch. With a
horizon of N iterations the time to fetch counts too: N iterations plus the fetch of the device that
fetches most.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, NestoptError
from nestopt.core.options import SolveOptions
from nestopt.core.registry import get_method
from nestopt.core.result import Limit, Reason, Result, Termination, instance_record
from nestopt.placement.model.words import Structure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.replan.moves import Moves

__all__ = ["Candidate", "Replanned", "failed_cluster", "replan"]

_EQUAL = 1e-9
"""Relative difference below which two iteration times are equal."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan that could come next.

    Attributes
    ----------
    name : str
        Where it comes from.
    plan : Plan
    seconds : float
        Iteration time on what is left.
    moves : Moves
    fetch : float
        Seconds for the device that fetches most, at the slowest port between groups.
    """

    name: str
    plan: Plan
    seconds: float
    moves: Moves
    fetch: float


@dataclass(frozen=True, slots=True)
class Replanned:
    """The plan after a failure.

    Attributes
    ----------
    result : Result
        The chosen plan as a result for the cluster as it is now.
    chosen : Candidate
    candidates : tuple of Candidate
        All that fit, the chosen one first.
    old_seconds : float
        Iteration time of the old plan before the failure.
    """

    result: Result
    chosen: Candidate
    candidates: tuple[Candidate, ...]
    old_seconds: float


def failed_cluster(cluster: Cluster, devices: Iterable[int], nodes: Iterable[int]) -> Cluster:
    """The cluster without some devices and without all devices of some nodes.

    Parameters
    ----------
    devices : iterable of int
    nodes : iterable of int
        Groups of the innermost level, by number.

    Raises
    ------
    InputError
        If there is no such device or node.
    """
    gone = set(devices)
    for device in sorted(gone):
        if not 0 <= device < cluster.num_devices:
            raise InputError(
                f"{device}; {cluster.name} has devices 0 to {cluster.num_devices - 1}",
                field="failed device",
            )
    node_of = cluster.group_of[0].tolist()
    for node in nodes:
        members = {d for d, n in enumerate(node_of) if n == node}
        if not members:
            raise InputError(
                f"{node}; {cluster.name} has nodes 0 to {max(node_of)}", field="failed node"
            )
        gone |= members
    return cluster.fail(sorted(gone | set(cluster.failed)))


def replan(
    old: Result,
    devices: Iterable[int] = (),
    nodes: Iterable[int] = (),
    *,
    horizon: float | None = None,
    time_limit: float = 8.0,
    seed: int = 0,
    threads: int = 1,
) -> Replanned:
    """A new plan after devices or nodes have failed.

    Parameters
    ----------
    old : Result
        The placement that runs now.
    devices, nodes : iterable of int
        What has failed since, by number.
    horizon : float, optional
        Iterations over which fetching state must pay; None: iteration time first, then the fewest
        bytes.
    time_limit : float
        Seconds for the dynamic program.

    Raises
    ------
    InputError
        If a number names nothing.
    NestoptError
        If the result holds no plan, or no plan fits on what is left.
    """
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.pricing.evaluate import evaluate

    began = time.perf_counter()
    if old.problem != "placement" or old.solution_json is None or "data" not in old.instance:
        raise NestoptError("the result holds no plan to start from")
    before = PlacementInstance.from_json(old.instance["data"])
    plan = Plan.from_json(old.solution_json)
    cluster = failed_cluster(before.cluster, devices, nodes)
    now = replace(before, cluster=cluster, name=f"{before.name}, after a failure")
    found = _dp(now, time_limit, seed, threads)
    failed = set(cluster.failed) - set(before.cluster.failed)
    candidates = list(_priced(_plans(found, plan, now), plan, now, failed))
    if not candidates:
        causes = "; ".join(found.infeasible_because)
        raise NestoptError(f"no plan fits on what is left{': ' + causes if causes else ''}")
    chosen = _choose(candidates, horizon)
    ordered = (chosen, *(c for c in candidates if c is not chosen))
    was = evaluate(before.workload, before.cluster, plan).objective(str(before.objective))
    return Replanned(
        _result(now, found, chosen, time.perf_counter() - began, seed), chosen, ordered, was
    )


def _dp(instance: PlacementInstance, time_limit: float, seed: int, threads: int) -> Result:
    options = SolveOptions(time_limit=time_limit, seed=seed, threads=threads)
    found: Result = get_method("placement", "dp")(instance, options)
    return found


def _plans(found: Result, old: Plan, now: PlacementInstance) -> Iterator[tuple[str, Plan]]:
    """Every candidate by name."""
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.replan.candidates import nearby

    if found.solution_json is not None:
        proved = found.termination.reason.value
        yield f"dynamic program ({proved})", Plan.from_json(found.solution_json)
    yield from nearby(old, now.cluster, now.workload)


def _priced(
    plans: Iterable[tuple[str, Plan]], old: Plan, now: PlacementInstance, failed: set[int]
) -> Iterator[Candidate]:
    """The candidates that fit, priced, with replicas numbered for the fewest moves."""
    from nestopt.placement.pricing.cost import StageCosts
    from nestopt.placement.pricing.evaluate import evaluate
    from nestopt.placement.replan.moves import moves_between, renumbered

    costs = StageCosts(now.workload)
    port = min(level.port for level in now.cluster.levels)
    for name, candidate in plans:
        plan = renumbered(candidate, old, now.workload, failed)
        priced = evaluate(now.workload, now.cluster, plan, costs)
        if priced.fits:
            moves = moves_between(old, plan, now.workload, failed)
            seconds = priced.objective(str(now.objective))
            yield Candidate(name, plan, float(seconds), moves, moves.most / port)


def _choose(candidates: list[Candidate], horizon: float | None) -> Candidate:
    if horizon is not None:
        return min(candidates, key=lambda c: (horizon * c.seconds + c.fetch, c.moves.bytes))
    least = min(c.seconds for c in candidates)
    equal = [c for c in candidates if c.seconds <= least * (1 + _EQUAL)]
    return min(equal, key=lambda c: c.moves.bytes)


def _result(
    now: PlacementInstance, found: Result, chosen: Candidate, seconds: float, seed: int
) -> Result:
    """The chosen plan as a result; a plan that is not the dynamic program's is a general one."""
    from nestopt.placement.pricing.evaluate import reported

    moves = chosen.moves
    stats: dict[str, Any] = {
        "chosen": chosen.name,
        "moved_bytes": moves.bytes,
        "kept_bytes": moves.kept,
        "devices_that_fetch": moves.devices,
        "operators_from_checkpoint": list(moves.lost),
    }
    plan, _ = reported(now.workload, now.cluster, chosen.plan)
    # another numbering of the replicas is the same plan, but may be no structured one
    inside = now.space.admits(plan, now.cluster) is None
    if inside and chosen.name.startswith("dynamic program"):
        return replace(
            found, method="replan", solution_json=plan.to_json(), seconds=seconds,
            stats={**found.stats, **stats},
        )  # fmt: skip
    general = replace(now, space=replace(now.space, structure=Structure.GENERAL))
    witness, bound = _general_bound(general, found)
    return Result(
        problem="placement",
        instance=instance_record(general),
        method="replan",
        termination=Termination(Reason.FEASIBLE, Limit.ITERATIONS),
        objective=chosen.seconds,
        bound=bound,
        seconds=seconds,
        seed=seed,
        solution_json=plan.to_json(),
        witness=witness,
        stats=stats,
    )


def _general_bound(instance: PlacementInstance, found: Result) -> tuple[dict[str, Any], float]:
    """A bound for all plans of the instance's space, with its witness."""
    from nestopt.placement.bounds.general import compute_bound

    row = compute_bound(instance.workload, instance.cluster, str(instance.objective))
    value = float(row["value"])
    return {"name": row["name"], **row["witness"]}, value if math.isfinite(value) else -math.inf
