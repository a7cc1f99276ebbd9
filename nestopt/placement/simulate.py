"""Event simulation of a plan: the pipeline task by task, then synchronisation and optimizer step.

The replicas of a plan run alike, so one of them is played. A stage runs its forward and backward
tasks one at a time in the fixed order of the schedule (GPipe; 1F1B; interleaved 1F1B as in
Megatron-LM). A task starts when the stage is free and its input has arrived; after its last
backward task a stage synchronises and steps, and the iteration ends with the last stage to do so.
Times come from the independent checker's pricing.

Transfers between stages are *asynchronous* by default: both stages compute on, and a link carries
one transfer at a time each way. With ``blocking`` ones the sender is busy while it sends and the
receiver while it receives, which is what the closed form assumes (a boundary occupies both its
stages), and a stage's tasks of one micro-batch then add up to its t_q.

**Against the closed form** ``sum t + (m - 1) max t + max S``. Let F and B be the largest forward
and backward task (transfers included: a blocking one in the tasks of its stages, an asynchronous
one as a task of its own). Under 1F1B the longest chain of tasks is at most the closed form plus
``(s - 2) (F + B - max t)``, under GPipe plus ``(m - 1) (F + B - max t)``, where a negative excess
counts as zero: a chain may wait for the slowest forward task in the warm-up and for the slowest
backward task in the cool-down, and these may belong to different stages. If all stages divide
their time between forward and backward alike, F + B = max t and the closed form is no
underestimate. The smallest underestimates: 1F1B on three stages, forward (1, 0, 0) s and backward
(0, 1, 0) s, with 2 micro-batches takes 4 s where the closed form says 3 s; GPipe on two stages,
(1, 0) and (0, 1), with 2 micro-batches takes 4 s instead of 3 s. Interleaving has further
differences: its closed form leaves out the transfers from the last stage back to the first between
chunks, which are played here.

References
----------
Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM,
SC 2021, section 2.2 (schedules). Huang et al., GPipe, NeurIPS 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.errors import NestoptError
from nestopt.placement.check import Pricing, Tree, boundary_seconds, contended_syncs, cuts, price

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.cluster import Cluster
    from nestopt.placement.plan import Plan
    from nestopt.placement.workload import Workload

    Floats = NDArray[np.float64]

__all__ = ["Pipeline", "Timeline", "pipeline_of", "run", "simulate"]


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

    def documented_excess(self, *, blocking: bool = False) -> float:
        """How much longer than the closed form 1F1B or GPipe can be at most (see the module)."""
        around = np.concatenate([[0.0], self.hop[:-1], [0.0]])
        sides = around[1:] + around[:-1]
        busiest = float((self.forward + self.backward + 2 * sides).max())
        if blocking:
            longest = float((self.forward + sides).max() + (self.backward + sides).max())
        else:
            wire = float(around.max())
            longest = max(float(self.forward.max()), wire) + max(float(self.backward.max()), wire)
        times = self.microbatches - 1 if self.schedule == "gpipe" else len(self.forward) - 2
        return max(0, times) * max(0.0, longest - busiest)


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
    """The tasks of a plan."""
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


def run(pipeline: Pipeline, *, blocking: bool = False) -> Timeline:
    """Play a pipeline task by task.

    Parameters
    ----------
    pipeline : Pipeline
    blocking : bool
        Whether transfers occupy the two stages (see the module).
    """
    from nestopt.placement.simulate_kernel import play

    s, v, m = len(pipeline.forward), pipeline.chunks, pipeline.microbatches
    after = np.arange(s - 1, -1, -1)
    if pipeline.schedule == "gpipe":
        warmup = np.full(s, v * m)
    elif pipeline.schedule == "interleaved":
        warmup = 2 * after + (v - 1) * s
    else:
        warmup = after
    done, forward_end, backward_end, free = play(
        pipeline.forward,
        pipeline.backward,
        np.minimum(warmup, v * m).astype(np.int64),
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
        ``simulated_blocking`` (transfers occupy both stages); ``documented_excess``, by how much
        the simulated time may exceed the closed form at most (None for interleaving);
        ``idle_share``, the mean share of the time that a stage waits; ``sync_closed_form`` and
        ``sync_contended``, the longest synchronisation and step alone and if all stages
        synchronise at once on the shared uplinks, and ``simulated_contended`` with the latter.

    Raises
    ------
    CheckError
        If the plan is malformed.
    """
    pricing = price(workload, cluster, plan)
    pipeline = pipeline_of(workload, cluster, plan, pricing)
    timeline = run(pipeline)
    blocking = run(pipeline, blocking=True).seconds
    contended = np.array(contended_syncs(workload, cluster, plan))
    closed = pricing.iteration_time
    return {
        "closed_form": closed,
        "simulated": timeline.seconds,
        "relative_difference": (timeline.seconds - closed) / closed if closed else 0.0,
        "simulated_blocking": blocking,
        "documented_excess": None if plan.chunks > 1 else pipeline.documented_excess(),
        "idle_share": float(timeline.idle.mean()),
        "sync_closed_form": float(pipeline.sync.max()),
        "sync_contended": float(contended.max()),
        "simulated_contended": float((timeline.sync_start + contended).max()),
        "tasks": 2 * plan.chunks * pricing.microbatches * len(plan.stages),
    }
