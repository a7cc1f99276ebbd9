"""Piper's baseline: layers dealt out evenly, the same degrees and the same variant for all."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from nestopt.core.result import Limit, Reason, Termination
from nestopt.placement.model.ideals import topological_order
from nestopt.placement.partitioning.piper.model import PiperStage, stage_memory, stage_time
from nestopt.placement.partitioning.piper.outcome import make_result, work_bound

if TYPE_CHECKING:
    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.placement.partitioning.piper.model import PiperProblem

__all__ = ["equal_split", "solve_equal"]


def solve_equal(problem: PiperProblem, options: SolveOptions) -> Result:
    """The best equal split; a heuristic, so its bound is that of the work alone."""
    started = time.perf_counter()
    plan = equal_split(problem)
    if plan is None:
        ended = Termination(Reason.NO_SOLUTION, Limit.ITERATIONS)
    else:
        ended = Termination(Reason.FEASIBLE, Limit.ITERATIONS)
    seconds = time.perf_counter() - started
    return make_result(problem, options, ended, plan, work_bound(problem), seconds, method="equal")


def equal_split(problem: PiperProblem) -> list[PiperStage] | None:
    """The fastest plan whose stages differ by at most one in their number of repeated layers.

    The repeated layers are those of the most frequent name; remainders go to the last stages.
    Layers that some repeated layer depends on go to the first stage, all others to the last. All
    stages have the same degrees, all layers the same variant (by position). None if none fits.
    """
    repeated, head, tail = _parts(problem)
    best: list[PiperStage] | None = None
    least = float("inf")
    degrees = sorted(set.intersection(*(set(layer.variants) for layer in problem.layers)))
    for count in range(1, min(len(repeated), problem.devices) + 1):
        base, extra = divmod(len(repeated), count)
        sizes = [base + (i >= count - extra) for i in range(count)]
        groups: list[list[int]] = []
        for size in sizes:
            taken = sum(len(group) for group in groups)
            groups.append(repeated[taken : taken + size])
        groups[0] = head + groups[0]
        groups[-1] = groups[-1] + tail
        for t in degrees:
            variants = min(len(layer.variants[t]) for layer in problem.layers)
            for d in range(1, problem.devices // (count * t) + 1):
                if problem.micro_batches % d or count * d > problem.micro_batches:
                    continue
                for k in range(variants):
                    plan = [PiperStage(d, t, dict.fromkeys(group, k)) for group in groups]
                    value = max(stage_time(problem, stage) for stage in plan)
                    if value < least and _fits(problem, plan):
                        best, least = plan, value
    return best


def _parts(problem: PiperProblem) -> tuple[list[int], list[int], list[int]]:
    """Ids of the repeated layers in order, of what they depend on, and of the rest."""
    position = {layer.id: i for i, layer in enumerate(problem.layers)}
    before: list[list[int]] = [[] for _ in problem.layers]
    for u, v, _ in problem.edges:
        before[position[v]].append(position[u])
    ids = [problem.layers[i].id for i in topological_order(before)]
    names = Counter(layer.name for layer in problem.layers)
    common = names.most_common(1)[0][0]
    repeated = [i for i in ids if problem.layers[position[i]].name == common]
    needed = set(repeated)
    for i in reversed(ids):
        if any(u == i and v in needed for u, v, _ in problem.edges):
            needed.add(i)
    head = [i for i in ids if i in needed and i not in repeated]
    tail = [i for i in ids if i not in needed]
    return repeated, head, tail


def _fits(problem: PiperProblem, plan: list[PiperStage]) -> bool:
    later = sum(stage.data for stage in plan)
    for stage in plan:
        later -= stage.data
        if stage_memory(problem, stage, later) > problem.memory:
            return False
    return True
