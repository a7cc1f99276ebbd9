"""The method `greedy`: matching on a time-expanded network that is never built.

A collective falls into up to four kinds of parts. Chunks with one source and many destinations are
matched to links (`greedy_steps` on equal links, `greedy_translate` on networks that look the same
from every node, `greedy_match` otherwise). Reductions to one NPU are the same thing backwards in
time on the reversed network. An All-Reduce is a reduction to one NPU a chunk, then a broadcast from
it. Chunks with one source and one destination are routed (`alltoall`). Where a collective has parts
of several kinds, their schedules are merged by list scheduling.

References
----------
.. [1] Won et al., "TACOS: Topology-Aware Collective Algorithm Synthesizer for Distributed Machine
   Learning", MICRO 2024: matching of links and chunks on a time-expanded network.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.collective.alltoall import route_all
from nestopt.collective.connectivity import find_separation
from nestopt.collective.greedy_bound import quick_bound
from nestopt.collective.greedy_join import retime
from nestopt.collective.greedy_match import Effort, Sends, match
from nestopt.collective.greedy_network import link_times, make_task
from nestopt.collective.greedy_steps import equal_step, match_steps
from nestopt.collective.greedy_translate import find_translation, match_translated
from nestopt.collective.problem import CollectiveInstance
from nestopt.collective.schedule import COPY, REDUCE, Schedule
from nestopt.collective.steps import StepSchedule
from nestopt.errors import UsageError
from nestopt.result import Limit, Reason, Result, Termination

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.collective.collective import Part
    from nestopt.collective.greedy_network import Task
    from nestopt.collective.store import AnySchedule
    from nestopt.collective.topology import Topology
    from nestopt.options import SolveOptions

__all__ = ["Synthesis", "schedule_result", "solve", "synthesize"]

STEPS_FROM = 100_000
EFFORT_SECONDS = 0.5
STRONG_BOUND_NODES = 64
ROUTED_BOUND_NODES = 600


@dataclass(slots=True)
class Synthesis:
    """A schedule, how it came about, and which limit cut the search short, if any."""

    schedule: AnySchedule
    stats: dict[str, Any] = field(default_factory=dict)
    limit: Limit = Limit.ITERATIONS


def solve(instance: CollectiveInstance, options: SolveOptions) -> Result:
    """Synthesize a schedule greedily; a `Result` that is optimal if the bound is reached.

    ``--set`` keys: ``policy`` (see `POLICIES`; a mix by default), ``restarts``, ``effort``
    (multiplies the time spent on restarts, 1 by default), ``store`` (directory for a schedule too
    large for JSON).
    """
    begin = time.perf_counter()
    separation = find_separation(instance)
    if separation is not None:
        return schedule_result(
            instance, options, "greedy", begin, None, infeasible=separation.message
        )
    bound = _bound(instance)
    synthesis = synthesize(instance, options, target=bound["value"], begin=begin)
    return schedule_result(instance, options, "greedy", begin, synthesis, bound=bound)


def _bound(instance: CollectiveInstance) -> dict[str, Any]:
    """A lower bound: the quick one, and better ones where they are quick too."""
    bound = quick_bound(instance)
    nodes = instance.topology.num_nodes
    routed = all(part.pattern == "all-to-all" for part in instance.collective.parts)
    if nodes <= STRONG_BOUND_NODES or (routed and nodes <= ROUTED_BOUND_NODES):
        from nestopt.collective.bounds import best_bound

        strong = best_bound(instance, time_limit=2.0 if nodes <= STRONG_BOUND_NODES else 10.0)
        bound = strong if strong["value"] > bound["value"] else bound
    return bound


def schedule_result(
    instance: CollectiveInstance,
    options: SolveOptions,
    method: str,
    begin: float,
    synthesis: Synthesis | None,
    *,
    bound: dict[str, Any] | None = None,
    infeasible: str = "",
) -> Result:
    """The `Result` of a synthesis, or of a proof that there is none (`infeasible`)."""
    from nestopt.io import sha256_of

    data = instance.to_json()
    described = {"name": instance.name, "sha256": sha256_of(data), "data": data}
    if synthesis is None:
        return Result(
            problem="collective",
            instance=described,
            method=method,
            termination=Termination(Reason.INFEASIBLE),
            objective=None,
            bound=float("inf"),
            seconds=time.perf_counter() - begin,
            seed=options.seed,
            threads=options.threads,
            infeasible_because=(infeasible,),
        )
    makespan = synthesis.schedule.makespan_ps
    value = bound["value"] if bound else 0
    if value == makespan:
        termination = Termination(Reason.OPTIMAL)
    else:
        termination = Termination(Reason.FEASIBLE, synthesis.limit)
    solution = _solution(instance, synthesis.schedule, options)
    if options.progress is not None:
        options.progress(time.perf_counter() - begin, makespan, value, method)
    return Result(
        problem="collective",
        instance=described,
        method=method,
        termination=termination,
        objective=makespan,
        bound=value,
        seconds=time.perf_counter() - begin,
        seed=options.seed,
        threads=options.threads,
        solution=solution,
        witness=bound["witness"] | {"name": bound["name"]} if bound else None,
        stats=synthesis.stats,
    )


def _solution(
    instance: CollectiveInstance, schedule: AnySchedule, options: SolveOptions
) -> dict[str, Any]:
    """JSON of a schedule; what is too large for that goes into a directory beside the result."""
    from nestopt.collective.store import INLINE_SENDS, write_store

    store = options.set.get("store")
    if store is not None:
        return write_store(store, schedule)
    if options.output is not None and schedule.num_sends > INLINE_SENDS:
        beside = Path(options.output).with_suffix(".schedule")
        return write_store(beside, schedule) | {"store": beside.name}
    if schedule.num_sends > 10 * INLINE_SENDS:
        raise UsageError(
            f"the schedule has {schedule.num_sends} sends; give --output, or --set store=DIRECTORY"
        )
    if isinstance(schedule, StepSchedule):
        schedule = schedule.to_schedule(instance.topology)
    return schedule.to_json()


def synthesize(
    instance: CollectiveInstance,
    options: SolveOptions,
    *,
    target: int = 0,
    begin: float | None = None,
) -> Synthesis:
    """The schedule of `solve`, without a result around it; the instance must be connected."""
    began = time.perf_counter() if begin is None else begin

    def late() -> bool:
        return time.perf_counter() - began > options.time_limit

    effort = Effort(
        policy=options.set.get("policy"),
        restarts=_whole(options, "restarts"),
        seconds=EFFORT_SECONDS * _positive(options, "effort", 1.0),
        seed=options.seed,
        threads=options.threads,
        target=target,
        stop=late,
    )
    kinds: dict[str, list[int]] = {}
    for index, part in enumerate(instance.collective.parts):
        if part.num_chunks and len(part.npus) > 1:
            kinds.setdefault(_kind(part), []).append(index)
    if set(kinds) == {"copy"}:
        steps = _in_steps(instance, kinds["copy"], options, effort)
        if steps is not None:
            return steps
    made, stats = [], {}
    for kind, indices in kinds.items():
        schedule, stats[kind] = _of_kind(instance, kind, indices, effort)
        made.append(schedule)
    schedule = _merge(instance, made)
    return Synthesis(schedule, stats, Limit.TIME if late() else Limit.ITERATIONS)


def _whole(options: SolveOptions, key: str) -> int | None:
    if key not in options.set:
        return None
    try:
        return int(options.set[key])
    except ValueError:
        raise UsageError(f"--set {key}={options.set[key]}: expected a whole number") from None


def _positive(options: SolveOptions, key: str, default: float) -> float:
    try:
        value = float(options.set.get(key, default))
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise UsageError(f"--set {key}={options.set[key]}: expected a positive number")
    return value


def _kind(part: Part) -> str:
    if part.pattern == "all-reduce":
        return "all-reduce"
    if part.reduction:
        return "reduce"
    return "copy" if part.pattern in ("all-gather", "broadcast") else "route"


def _in_steps(
    instance: CollectiveInstance, indices: list[int], options: SolveOptions, effort: Effort
) -> Synthesis | None:
    """A large All-Gather on equal links, by the synchronous kernel."""
    step = equal_step(instance)
    parts = instance.collective.parts
    claims = instance.topology.num_nodes * instance.collective.num_chunks
    if len(parts) > 1 or parts[0].pattern != "all-gather" or step is None or claims < STEPS_FROM:
        return None
    if effort.policy not in (None, "fifo"):
        return None
    best: StepSchedule | None = None
    tries = effort.tries(5e-8 * claims)
    count = 0
    for index in range(tries):
        if count and effort.stop():
            break
        found = match_steps(
            instance, step, seed=effort.seed * 1_000_003 + index, threads=effort.threads
        )
        count += 1
        if best is None or found.num_steps < best.num_steps:
            best = found
        if best.makespan_ps <= effort.target:
            break
    assert best is not None
    stats: dict[str, Any] = {"copy": {"kernel": "steps", "tries": count}}
    if best.makespan_ps > effort.target:
        sends, translated = _translated(instance, indices, effort)
        if sends is not None and int(translated["makespan_ps"]) < best.makespan_ps:
            schedule = _as_schedule(instance, indices, sends, int(translated["makespan_ps"]), COPY)
            return Synthesis(schedule, {"copy": translated})
    if len(parts[0].npus) < instance.topology.num_nodes:
        every = best.to_schedule(instance.topology)
        member = np.zeros((1, instance.topology.num_nodes), dtype=np.bool_)
        member[0, parts[0].npus] = True
        sends = _prune(
            instance.topology,
            Sends(every.chunk, every.link, every.start_ps),
            instance.collective.part_of,
            member,
        )
        return Synthesis(_as_schedule(instance, indices, sends, best.makespan_ps, COPY), stats)
    return Synthesis(best, stats)


def _of_kind(
    instance: CollectiveInstance, kind: str, indices: list[int], effort: Effort
) -> tuple[Schedule, dict[str, Any]]:
    topology, latency = instance.topology, instance.latency
    parts = [instance.collective.parts[index] for index in indices]
    if kind == "all-reduce":
        return _all_reduce(instance, indices, effort)
    collective = replace(instance.collective, parts=tuple(parts))
    bound = quick_bound(CollectiveInstance(topology, collective, latency))
    alone = len(parts) == len(instance.collective.parts)
    effort = replace(effort, target=max(bound["value"], effort.target if alone else 0))
    if kind == "route":
        times = link_times(topology, parts, latency)
        routed = route_all(topology, parts, times, effort)
        return (
            _as_schedule(instance, indices, routed.value, routed.makespan, COPY),
            {"kernel": "route", "tries": routed.tries},
        )
    if kind == "copy":
        sends, stats = _translated(instance, indices, effort)
        if sends is None or stats["makespan_ps"] > effort.target:
            task = make_task(topology, parts, latency, reverse=False)
            found = match(task, effort)
            if sends is None or found.makespan < stats["makespan_ps"]:
                sends = _prune(topology, found.value, task.part_of, task.member)
                stats = _stats("events", found.tries, found.makespan)
        schedule = _as_schedule(instance, indices, sends, stats["makespan_ps"], COPY)
        return _tightened(instance, schedule, indices), stats
    return _reduce(instance, indices, effort)


def _stats(kernel: str, tries: int, makespan: int) -> dict[str, Any]:
    return {"kernel": kernel, "tries": tries, "makespan_ps": makespan}


def _translated(
    instance: CollectiveInstance, indices: list[int], effort: Effort
) -> tuple[Sends | None, dict[str, Any]]:
    """One All-Gather over every node of a network that looks the same from each."""
    parts = [instance.collective.parts[index] for index in indices]
    if len(parts) > 1 or parts[0].pattern != "all-gather" or effort.policy is not None:
        return None, {}
    if len(parts[0].npus) < instance.topology.num_nodes:
        return None, {}
    return _translate(
        make_task(instance.topology, parts, instance.latency, reverse=False),
        parts[0].chunks_per_npu,
        effort,
    )


def _translate(
    task: Task, chunks_per_npu: int, effort: Effort
) -> tuple[Sends | None, dict[str, Any]]:
    translation = find_translation(task.topology)
    if translation is None:
        return None, {}
    found = match_translated(task, translation, chunks_per_npu, effort)
    if found is None:
        return None, {}
    return found.value, _stats("translation", found.tries, found.makespan)


def _reduce(
    instance: CollectiveInstance, indices: list[int], effort: Effort
) -> tuple[Schedule, dict[str, Any]]:
    """Reductions to one NPU a chunk: broadcasts on the reversed network, backwards in time."""
    parts = [instance.collective.parts[index] for index in indices]
    topology = instance.topology.reversed()
    task = make_task(topology, parts, instance.latency, reverse=True)
    sends: Sends | None = None
    stats: dict[str, Any] = {}
    scatter = len(parts) == 1 and parts[0].pattern == "reduce-scatter"
    if scatter and len(parts[0].npus) == topology.num_nodes and effort.policy is None:
        sends, stats = _translate(task, parts[0].chunks_per_npu, effort)
    if sends is None or stats["makespan_ps"] > effort.target:
        found = match(task, effort)
        if sends is None or found.makespan < stats["makespan_ps"]:
            sends = _prune(topology, found.value, task.part_of, task.member)
            stats = _stats("events", found.tries, found.makespan)
    backwards = _as_schedule(instance, indices, sends, stats["makespan_ps"], REDUCE)
    transfer = task.times.transfer
    sizes = np.searchsorted(task.times.sizes, instance.collective.chunk_sizes)
    lasts = transfer[sizes[backwards.chunk], backwards.link]
    start = backwards.makespan_ps - backwards.start_ps - lasts
    forward = Schedule.of(
        backwards.chunk, backwards.link, start, backwards.makespan_ps, backwards.phase
    )
    return _tightened(instance, forward, indices), stats


def _all_reduce(
    instance: CollectiveInstance, indices: list[int], effort: Effort
) -> tuple[Schedule, dict[str, Any]]:
    """Reduce every chunk to one NPU, then broadcast each sum from where it lies."""
    phases, stats = [], {}
    for kind, pattern in (("reduce", "reduce-scatter"), ("copy", "all-gather")):
        parts = list(instance.collective.parts)
        for index in indices:
            parts[index] = replace(parts[index], pattern=pattern)
        collective = replace(instance.collective, parts=tuple(parts))
        phase = CollectiveInstance(instance.topology, collective, instance.latency)
        schedule, stats[kind] = _of_kind(phase, kind, indices, replace(effort, target=0))
        phases.append(schedule)
    reduced, copied = phases
    both = Schedule.of(
        np.concatenate([reduced.chunk, copied.chunk]),
        np.concatenate([reduced.link, copied.link]),
        np.concatenate([reduced.start_ps, copied.start_ps + reduced.makespan_ps]),
        reduced.makespan_ps + copied.makespan_ps,
        np.concatenate([reduced.phase, copied.phase]),
    )
    return _shorter(both, retime(instance, both)), stats


def _tightened(
    instance: CollectiveInstance, schedule: Schedule, indices: Sequence[int]
) -> Schedule:
    """Close the pauses that dropped sends have left."""
    nodes = instance.topology.num_nodes
    if all(len(instance.collective.parts[index].npus) == nodes for index in indices):
        return schedule
    return _shorter(schedule, retime(instance, schedule))


def _shorter(first: Schedule, second: Schedule) -> Schedule:
    return second if second.makespan_ps < first.makespan_ps else first


def _as_schedule(
    instance: CollectiveInstance, indices: Sequence[int], sends: Sends, makespan: int, phase: int
) -> Schedule:
    """Sends whose chunks are numbered among the parts `indices`, as a schedule of the instance."""
    counts = [part.num_chunks for part in instance.collective.parts]
    first = np.concatenate([[0], np.cumsum(counts)])
    number = np.concatenate([np.arange(first[i], first[i + 1]) for i in indices])
    return Schedule.of(
        number[sends.chunk],
        sends.link,
        sends.start_ps,
        makespan,
        np.full(len(sends.chunk), phase, dtype=np.uint8),
    )


def _prune(
    topology: Topology, sends: Sends, part_of: NDArray[np.int32], member: NDArray[np.bool_]
) -> Sends:
    """Drop what reaches only nodes that neither need it nor pass it on."""
    from nestopt.collective.kernels_sends import mark_needed

    if member.all():
        return sends
    keep = mark_needed(
        sends.chunk,
        sends.link,
        topology.src,
        topology.dst,
        topology.multicast,
        part_of,
        member,
    )
    return Sends(sends.chunk[keep], sends.link[keep], sends.start_ps[keep])


def _merge(instance: CollectiveInstance, schedules: list[Schedule]) -> Schedule:
    """One schedule of all: behind each other, then interleaved by their relative starts."""
    if not schedules:
        return Schedule.of([], [], [], 0)
    if len(schedules) == 1:
        return schedules[0]
    offset, starts, relative = 0, [], []
    for each in schedules:
        starts.append(each.start_ps + offset)
        relative.append((each.start_ps / max(each.makespan_ps, 1) * 2**40).astype(np.int64))
        offset += each.makespan_ps
    columns = [
        np.concatenate([getattr(each, name) for each in schedules])
        for name in ("chunk", "link", "phase")
    ]
    behind = Schedule.of(columns[0], columns[1], np.concatenate(starts), offset, columns[2])
    # `behind` is sorted by start: its schedules lie one after the other, each in its own order
    interleaved = retime(instance, behind, np.concatenate(relative))
    return _shorter(_shorter(behind, retime(instance, behind)), interleaved)
