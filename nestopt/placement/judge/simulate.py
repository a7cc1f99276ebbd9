"""Event simulation of a plan: the pipeline task by task, then synchronisation and optimizer step.

The replicas of a plan run alike, so one of them is played. Where a plan states their shares, each
one is played with its own tasks, and a stage synchronises when its last replica has ended. A stage
runs its forward and backward tasks one at a time in the fixed order of the schedule (GPipe; 1F1B;
interleaved 1F1B as in Megatron-LM). A task starts when the stage is free and its input has
arrived; after its last backward task a stage synchronises and steps, and the iteration ends with
the last stage to do so. Times come from the independent checker's pricing.

Transfers between stages are *asynchronous* by default: both stages compute on, and a link carries
one transfer at a time each way. With ``blocking`` ones the sender is busy while it sends and the
receiver while it receives, which is what the closed form assumes (a boundary occupies both its
stages), and a stage's tasks of one micro-batch then add up to its t_q.

**Against the closed form** ``sum t / v + (m - 1 / v) max t + max S``. The simulation can exceed it
for three reasons. Forward and backward tasks may be slowest on different stages: 1F1B on three
stages, forward (1, 0, 0) s and backward (0, 1, 0) s, with 2 micro-batches takes 4 s where the
closed form says 3 s; GPipe on two stages, (1, 0) and (0, 1), with 2 micro-batches 4 s instead of
3 s. Under interleaving the slowest stage may come early and late in one chain of tasks: backward
(1, 0, 0, 1) s, no forward, with 2 chunks and 8 micro-batches takes 18 s instead of 17 s. And its
closed form leaves out the transfers from the last stage back to the first between chunks, which
are played here. By how much at most is derived in ``simulate_bound`` and given by
`Pipeline.documented_excess`. It is zero for equal stages without transfers, whose time the closed
form tells exactly; under 1F1B with either kind of transfers if the stages after any stage q take
at least F + B - max t each on average, F and B being the largest forward and backward task (an
asynchronous transfer counts as a task, a blocking one belongs to those of its two stages); under
GPipe if F + B = max t.

References
----------
Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM,
SC 2021, section 2.2 (schedules). Huang et al., GPipe, NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import NestoptError
from nestopt.placement.judge.check import (
    Pricing,
    Tree,
    boundary_seconds,
    check_structure,
    contended_syncs,
    cuts,
    price,
)
from nestopt.placement.judge.simulate_bound import latest_end

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.workload import Workload

    Floats = NDArray[np.float64]

__all__ = ["Pipeline", "Timeline", "pipeline_of", "pipelines_of", "run", "simulate"]

MOST_TASKS = 50_000_000


@dataclass(frozen=True, eq=False)
class Pipeline:
    """What the simulator plays.

    Attributes
    ----------
    forward, backward : float arrays (s,)
        Seconds of one task: one micro-batch of one chunk.
    hop : float array (s,)
        Seconds of one transfer, each way, between stages q and q + 1, and from the last stage
        back to the first (used by interleaving only).
    sync : float array (s,)
        Seconds of synchronisation and optimizer step.
    microbatches, chunks : int
    schedule : str
    """

    forward: Floats
    backward: Floats
    hop: Floats
    sync: Floats
    microbatches: int
    chunks: int = 1
    schedule: str = "1f1b"

    def closed_form(self) -> float:
        """Iteration time by ``MODEL.md``, section 6."""
        v = self.chunks
        around = np.concatenate([[0.0], self.hop[:-1], [0.0]])
        seconds = v * (self.forward + self.backward + 2 * (around[1:] + around[:-1]))
        return float(
            seconds.sum() / v + (self.microbatches - 1 / v) * seconds.max() + self.sync.max()
        )

    def warmup(self) -> NDArray[np.int64]:
        """How many forward tasks each stage runs before it alternates, were there enough, (s,)."""
        s = len(self.forward)
        after = np.arange(s - 1, -1, -1)
        if self.schedule == "gpipe":
            return np.full(s, self.chunks * self.microbatches)
        if self.schedule == "interleaved":
            return 2 * after + (self.chunks - 1) * s
        return after

    def documented_excess(self, *, blocking: bool = False) -> float:
        """By how many seconds the simulation may exceed the closed form (see the module)."""
        closed = self.closed_form()
        excess = latest_end(self, blocking=blocking) - closed
        return excess if excess > 1e-12 * closed else 0.0  # less is rounding


@dataclass(frozen=True, eq=False)
class Timeline:
    """When everything happened.

    Attributes
    ----------
    forward_end, backward_end : float arrays (s, chunks, microbatches)
        Seconds at which each task ended.
    idle : float array (s,)
        Share of the time until its own last task that each stage did not work.
    sync_start, sync_end : float arrays (s,)
    seconds : float
        Iteration time.
    """

    forward_end: Floats
    backward_end: Floats
    idle: Floats
    sync_start: Floats
    sync_end: Floats
    seconds: float


def pipeline_of(workload: Workload, cluster: Cluster, plan: Plan, pricing: Pricing) -> Pipeline:
    """The tasks of a plan; where it states shares, those of the replica that is through last."""
    if pricing.replicas:
        return max(pipelines_of(workload, cluster, plan, pricing), key=Pipeline.closed_form)
    return _of_stages(workload, cluster, plan, pricing)


def _of_stages(workload: Workload, cluster: Cluster, plan: Plan, pricing: Pricing) -> Pipeline:
    v, s = plan.chunks, len(plan.stages)
    hop = np.zeros(s)
    hop[:-1] = np.array(pricing.boundaries) / (2 * v)
    if s > 1 and v > 1:
        # the plan does not say where chunks are cut: take the largest of its own cuts
        size = plan.microbatch * max(cuts(workload, plan))
        ends = plan.stages[-1].devices, plan.stages[0].devices
        hop[-1] = boundary_seconds(Tree.of(cluster), *ends, size)
    return Pipeline(
        forward=np.array([stage.forward for stage in pricing.stages]) / v,
        backward=np.array([stage.backward for stage in pricing.stages]) / v,
        hop=hop,
        sync=np.array([stage.sync for stage in pricing.stages]),
        microbatches=pricing.microbatches,
        chunks=v,
        schedule=plan.schedule,
    )


def pipelines_of(
    workload: Workload, cluster: Cluster, plan: Plan, pricing: Pricing
) -> tuple[Pipeline, ...]:
    """The tasks of every replica that differs from those before it; one if shares are equal."""
    whole = _of_stages(workload, cluster, plan, pricing)
    alike = {(r.share, r.forward, r.backward): r for r in pricing.replicas}
    if not alike:
        return (whole,)
    return tuple(
        replace(
            whole,
            forward=np.array(r.forward),
            backward=np.array(r.backward),
            microbatches=r.share,
        )
        for r in alike.values()
    )


def run(pipeline: Pipeline, *, blocking: bool = False) -> Timeline:
    """Play a pipeline task by task.

    Parameters
    ----------
    pipeline : Pipeline
    blocking : bool
        Whether transfers occupy the two stages (see the module).
    """
    from nestopt.placement.judge.simulate_kernel import play

    s, v, m = len(pipeline.forward), pipeline.chunks, pipeline.microbatches
    done, forward_end, backward_end, free = play(
        pipeline.forward,
        pipeline.backward,
        np.minimum(pipeline.warmup(), v * m),
        pipeline.hop,
        v,
        m,
        blocking,
    )
    if not done:
        raise NestoptError(f"the tasks of {s} stages and {m} micro-batches wait for each other")
    work = v * m * (pipeline.forward + pipeline.backward)
    idle = np.divide(free - work, free, out=np.zeros(s), where=free > 0)
    end = free + pipeline.sync
    return Timeline(forward_end, backward_end, idle, free, end, float(end.max()))


def simulate(workload: Workload, cluster: Cluster, plan: Plan) -> dict[str, Any]:
    """Simulate a plan and set the figures beside the closed form.

    Returns
    -------
    dict
        ``closed_form`` and ``simulated`` (asynchronous transfers) in seconds;
        ``relative_difference``, (simulated - closed form) / closed form;
        ``documented_excess``, by how much the simulated time may exceed the closed form at most;
        ``simulated_blocking`` and ``documented_excess_blocking``, the same if transfers occupy
        both stages;
        ``idle_share``, the mean share of the time that a stage waits; ``sync_closed_form`` and
        ``sync_contended``, the longest synchronisation and step alone and if all stages
        synchronise at once on the shared uplinks, and ``simulated_contended`` with the latter.

    Raises
    ------
    CheckError
        If the plan is malformed.
    NestoptError
        If it has more tasks than can be simulated.
    """
    check_structure(workload, cluster, plan)
    shares = set(plan.shares) or {workload.global_batch // (plan.replicas * plan.microbatch)}
    tasks = len(plan.stages) * plan.chunks * max(shares)
    if tasks > MOST_TASKS:
        raise NestoptError(
            f"{tasks} passes of micro-batches are too many to simulate (at most "
            f"{MOST_TASKS}); the checker has no limit"
        )
    pricing = price(workload, cluster, plan)
    pipelines = pipelines_of(workload, cluster, plan, pricing)
    timelines = [run(pipeline) for pipeline in pipelines]
    seconds = max(timeline.seconds for timeline in timelines)
    blocking = max(run(pipeline, blocking=True).seconds for pipeline in pipelines)
    started = np.max([timeline.sync_start for timeline in timelines], axis=0)
    contended = np.array(contended_syncs(workload, cluster, plan))
    closed = pricing.iteration_time
    return {
        "closed_form": closed,
        "simulated": seconds,
        "relative_difference": (seconds - closed) / closed if closed else 0.0,
        "documented_excess": _excess(pipelines, closed, blocking=False),
        "simulated_blocking": blocking,
        "documented_excess_blocking": _excess(pipelines, closed, blocking=True),
        "idle_share": float(np.mean([timeline.idle.mean() for timeline in timelines])),
        "sync_closed_form": float(pipelines[0].sync.max()),
        "sync_contended": float(contended.max()),
        "simulated_contended": float((started + contended).max()),
        "tasks": 2 * plan.chunks * pricing.microbatches * len(plan.stages),
    }


def _excess(pipelines: tuple[Pipeline, ...], closed: float, *, blocking: bool) -> float:
    """By how much the last of several pipelines may be later than the closed form of all."""
    latest = max(p.closed_form() + p.documented_excess(blocking=blocking) for p in pipelines)
    return latest - closed if latest > closed * (1 + 1e-12) else 0.0
