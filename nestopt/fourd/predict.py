"""Predicted iteration times of measured runs, by the placement package's stage costs.

Nothing is modelled here: a run becomes a plan on a named cluster with a calibrated device, and
`nestopt.placement.pricing.evaluate` prices it. What a stack overlaps is taken out afterwards: the
data-parallel synchronisation altogether, of the tensor-parallel communication all but a calibrated
part.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.integers import divisors
from nestopt.core.registry import named
from nestopt.fourd.runs import workload_of
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.pricing.cost import StageCosts
from nestopt.placement.pricing.devices import calibration
from nestopt.placement.pricing.evaluate import combine, evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.fourd.runs import Run
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.workload import Workload
    from nestopt.placement.pricing.devices import Calibration

__all__ = ["calibrated", "cluster_of", "plan_of", "predict"]


def calibrated(cluster: Cluster, figures: Calibration) -> Cluster:
    """A cluster whose device types have the given efficiency curve."""
    return cluster.with_types(
        [
            replace(
                kind,
                efficiency=figures.efficiency,
                half_flops=figures.half_flops,
                memory_bandwidth=kind.memory_bandwidth * figures.memory_fraction,
            )
            for kind in cluster.types
        ]
    )


def cluster_of(run: Run, figures: Calibration | None = None) -> Cluster:
    """The DGX cluster that a run used, calibrated."""
    cluster: Cluster = named("cluster", f"dgx-{run.device}-{run.gpus}")
    return calibrated(cluster, figures or calibration(run.device))


def _without(cluster: Cluster, *, levels: int) -> Cluster:
    """The cluster with instantaneous communication inside its lowest `levels` levels."""
    kept = [
        replace(level, latency=0.0, port=_INSTANT) if index < levels else level
        for index, level in enumerate(cluster.levels)
    ]
    if levels == len(cluster.levels):
        kept = [
            level if level.uplink == float("inf") else replace(level, uplink=_INSTANT)
            for level in kept
        ]
    return replace(cluster, levels=tuple(kept))


_INSTANT = 1e30


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


def predict(run: Run, figures: Calibration | None = None) -> float:
    """Predicted seconds of an iteration; unpublished choices take the fastest that fit.

    Parameters
    ----------
    run : Run
    figures : Calibration, optional
        Instead of the data file's.
    """
    figures = figures or calibration(run.device)
    cluster = cluster_of(run, figures)
    workload = workload_of(run)
    costs = StageCosts(workload)
    best = None
    for microbatch, chunks in _choices(run):
        plan = plan_of(run, workload, microbatch, chunks)
        priced = evaluate(workload, cluster, plan, costs)
        time = priced.iteration_time
        if run.overlapped:
            free = evaluate(workload, _without(cluster, levels=1), plan, costs)
            alone = evaluate(workload, _without(cluster, levels=len(cluster.levels)), plan, costs)
            seconds = free.seconds + figures.tensor_exposed * (priced.seconds - free.seconds)
            count = run.batch // (run.data * microbatch)
            weights = plan.pipeline.weights("iteration-time", count)
            time = combine(seconds, alone.sync, weights)
        rating = (not priced.fits, time)
        if best is None or rating < best:
            best = rating
    if best is None:
        raise ValueError(f"{run.name}: the batch divides into no micro-batch")
    return best[1]


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
