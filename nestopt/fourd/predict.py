"""Predicted iteration times of measured runs: the price of the run's plan, and nothing else.

A run becomes a plan on a named cluster, and `nestopt.placement.pricing.evaluate` prices it exactly
as ``nestopt solve`` prices its plans, with the same parameters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.integers import divisors
from nestopt.core.registry import named
from nestopt.fourd.runs import workload_of
from nestopt.placement.model.grid import grid_of, hidden
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.pricing.cost import StageCosts
from nestopt.placement.pricing.evaluate import evaluate
from nestopt.placement.pricing.parameters import current_set, using_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.fourd.runs import Run
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.workload import Workload
    from nestopt.placement.pricing.evaluate import Evaluation
    from nestopt.placement.pricing.parameters import ParameterSet

__all__ = ["cluster_of", "plan_of", "predict", "priced"]


def cluster_of(run: Run) -> Cluster:
    """The cluster that a run used, a DGX unless it names another."""
    cluster: Cluster = named("cluster", run.cluster or f"dgx-{run.device}-{run.gpus}")
    return cluster


def plan_of(run: Run, workload: Workload, microbatch: int, chunks: int) -> Plan:
    """The run's plan: even stages, remaining layers to the inner ones; tensor ranks adjacent.

    Devices are numbered tensor first, then context, data and pipeline, as Megatron-LM does.
    """
    count, stages = len(workload.operators) - 2, run.pipeline
    base, rest = divmod(count, stages)
    sizes = [base] * stages
    order = [*range(1, stages - 1), *([0, stages - 1] if stages > 1 else [0])]
    for stage in order[:rest]:
        sizes[stage] += 1
    ends = np.cumsum(sizes)
    config = StageConfig(
        (1, run.tensor, 1), run.context, 1, run.sequence_parallel, run.zero, run.recompute
    )
    framework = current_set().framework(run.framework)
    overlap = framework.overlap and config.t > 1
    hides = hidden(grid_of(config), run.zero, overlap, framework.hides)
    config = replace(config, overlap=overlap, hides=hides)
    width = config.width
    built = []
    for stage in range(stages):
        first = 1 + int(ends[stage]) - sizes[stage]
        operators = [*range(first, first + sizes[stage])]
        if stage == 0:
            operators = [0, *operators]
        if stage == stages - 1:
            operators.append(count + 1)
        devices = np.arange(stage * run.data * width, (stage + 1) * run.data * width)
        built.append(Stage(tuple(operators), config, devices.reshape(run.data, width)))
    schedule = "interleaved" if chunks > 1 else "1f1b"
    return Plan(tuple(built), run.data, microbatch, schedule, chunks)


def predict(run: Run, parameters: ParameterSet | None = None) -> float:
    """Predicted seconds of an iteration; unpublished choices take the fastest that fit.

    Parameters
    ----------
    run : Run
    parameters : ParameterSet, optional
        Instead of the set in force.
    """
    return priced(run, parameters)[1].iteration_time


def priced(run: Run, parameters: ParameterSet | None = None) -> tuple[Plan, Evaluation]:
    """The plan of a run and its price; see `predict`.

    Raises
    ------
    ValueError
        If the batch divides into no micro-batch.
    """
    with using_set(parameters or current_set()):
        cluster, workload = cluster_of(run), workload_of(run)
        costs = StageCosts(workload)
        found = []
        for microbatch, chunks in _choices(run):
            plan = plan_of(run, workload, microbatch, chunks)
            found.append((plan, evaluate(workload, cluster, plan, costs)))
    if not found:
        raise ValueError(f"{run.name}: the batch divides into no micro-batch")
    return min(found, key=lambda pair: (not pair[1].fits, pair[1].iteration_time))


def _choices(run: Run) -> Iterator[tuple[int, int]]:
    """Micro-batch sizes and chunks a stage: the published ones, or small and large ones."""
    samples = run.batch // run.data
    sizes = [run.microbatch] if run.microbatch else [b for b in (1, 2, 4) if samples % b == 0]
    for size in sizes:
        if run.chunks:
            yield size, run.chunks
            continue
        yield size, 1
        layers, uneven = divmod(run.model.layers, run.pipeline)
        if run.pipeline > 1 and not uneven and samples // size % run.pipeline == 0:
            possible = divisors(layers)[1:]
            yield from ((size, chunks) for chunks in {*possible[:1], *possible[-1:]})
