"""A plan in the words of training frameworks: degrees, layers a stage, and who is which rank.

Frameworks take one configuration for the whole job. `job_of` reads it from a plan, or says what of
the plan has no such words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nestopt.core.errors import NestoptError

if TYPE_CHECKING:
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.transformer import Transformer
    from nestopt.placement.model.workload import Workload

__all__ = ["CannotExpress", "Job", "Rank", "job_of"]


class CannotExpress(NestoptError):
    """A plan that a framework has no words for.

    Attributes
    ----------
    framework : str
    reasons : tuple of str
        What cannot be said, each on a line of its own.
    """

    def __init__(self, framework: str, reasons: tuple[str, ...]) -> None:
        self.framework, self.reasons = framework, reasons
        super().__init__(f"{framework} cannot run this plan: {'; '.join(reasons)}")


@dataclass(frozen=True, slots=True)
class Rank:
    """One process of the job: where it runs and which part it has.

    Attributes
    ----------
    rank : int
        Its number for the framework.
    device, node, gpu : int
        Device of the cluster, group of the innermost level, and place in that group.
    stage, replica, expert, context, shard, tensor : int
        Its coordinates in the plan (`shard` is AxoNN's Z, `tensor` its Y).
    """

    rank: int
    device: int
    node: int
    gpu: int
    stage: int
    replica: int
    expert: int
    context: int
    shard: int
    tensor: int


@dataclass(frozen=True, slots=True)
class Job:
    """One configuration for all stages, in framework terms.

    Attributes
    ----------
    name : str
        The workload's name.
    model : Transformer
    batch : int
        Global batch, sequences.
    tensor, pipeline, context, expert, shard, replicas : int
        Degrees; `shard` is the size of a group over which weights are sharded at rest (Z).
    microbatch : int
        Sequences of a micro-batch on one data-parallel rank.
    microbatches : int
        Micro-batches of an iteration.
    virtual : int
        Chunks a stage (1 unless interleaved).
    schedule : str
    sequence_parallel : bool
    zero : int
    recompute : str
    layers : tuple of int
        Transformer blocks of each stage.
    embedding_alone, head_alone : bool
        Whether the first stage holds the embedding alone, the last one the head alone.
    ranks : tuple of Rank
        In the framework's order: tensor fastest, then context, shard, expert, replica, stage.
    gpus_per_node : int
        Largest number of devices that one node has.
    """

    name: str
    model: Transformer
    batch: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    shard: int
    replicas: int
    microbatch: int
    microbatches: int
    virtual: int
    schedule: str
    sequence_parallel: bool
    zero: int
    recompute: str
    layers: tuple[int, ...]
    ranks: tuple[Rank, ...]
    gpus_per_node: int

    @property
    def data(self) -> int:
        """Data-parallel ranks as frameworks count them: every rank with samples of its own."""
        return self.replicas * self.expert * self.shard

    @property
    def world(self) -> int:
        """Processes of the job."""
        return len(self.ranks)

    @property
    def even(self) -> bool:
        """Whether every stage has the same number of blocks."""
        return len(set(self.layers)) == 1

    @property
    def nodes(self) -> tuple[int, ...]:
        """Nodes in use, ascending."""
        return tuple(sorted({rank.node for rank in self.ranks}))


def job_of(plan: Plan, workload: Workload, cluster: Cluster, model: Transformer) -> Job:
    """The job that a plan describes.

    Parameters
    ----------
    plan : Plan
    workload : Workload
        The plan's workload: embedding, blocks and (if the model has one) head, in this order.
    cluster : Cluster
    model : Transformer
        The architecture that the workload was expanded from.

    Raises
    ------
    CannotExpress
        If stages differ in their configuration, or a split is none that frameworks know.
    """
    reasons = [*_one_configuration(plan), *_a_transformer(workload, model)]
    if len(set(plan.shares)) > 1:
        reasons.append(
            f"the replicas take {min(plan.shares)} to {max(plan.shares)} micro-batches each, and "
            "frameworks give every replica as many"
        )
    if reasons:
        raise CannotExpress("no framework", tuple(reasons))
    config = plan.stages[0].config
    x, y, z = config.tensor
    if x > 1:
        raise CannotExpress(
            "no framework", (f"tensor parallelism over X (Gx = {x}) is AxoNN's alone",)
        )
    layers = tuple(_blocks(stage.operators, workload) for stage in plan.stages)
    if plan.chunks > 1 and any(count % plan.chunks for count in layers):
        raise CannotExpress(
            "no framework",
            (f"{plan.chunks} chunks a stage do not divide stages of {layers} layers",),
        )
    return Job(
        name=workload.name,
        model=model,
        batch=workload.global_batch,
        tensor=y,
        pipeline=len(plan.stages),
        context=config.context,
        expert=config.expert,
        shard=z,
        replicas=plan.replicas,
        microbatch=plan.microbatch // (config.expert * z),
        microbatches=workload.global_batch // (plan.replicas * plan.microbatch),
        virtual=plan.chunks,
        schedule=str(plan.schedule),
        sequence_parallel=config.sequence_parallel,
        zero=config.zero,
        recompute=config.recompute,
        layers=layers,
        ranks=_ranks(plan, cluster),
        gpus_per_node=_node_size(cluster),
    )


def _one_configuration(plan: Plan) -> list[str]:
    first = plan.stages[0].config
    return [
        f"stage {q} has {stage.config.label()}, stage 0 {first.label()}: one for all is needed"
        for q, stage in enumerate(plan.stages)
        if stage.config != first
    ]


def _a_transformer(workload: Workload, model: Transformer) -> list[str]:
    found = len(workload.operators)
    expected = 1 + model.layers + model.head
    if found != expected or workload.operators[0].name != "embedding":
        return [
            f"the workload has {found} operators; a transformer of {model.layers} layers has "
            f"{expected}, the embedding first"
        ]
    return []


def _blocks(operators: tuple[int, ...], workload: Workload) -> int:
    return sum("block" in workload.operators[o].name for o in operators)


def _node_size(cluster: Cluster) -> int:
    nodes = cluster.group_of[0].tolist()
    return max(nodes.count(node) for node in set(nodes))


def _ranks(plan: Plan, cluster: Cluster) -> tuple[Rank, ...]:
    """Every process, tensor fastest, then context, shard, expert, replica, stage."""
    node_of = cluster.group_of[0].tolist()
    first = {node: node_of.index(node) for node in set(node_of)}
    config = plan.stages[0].config
    _, y, z = config.tensor
    found: list[Rank] = []
    for q, stage in enumerate(plan.stages):
        for r in range(plan.replicas):
            for ie in range(config.expert):
                for iz in range(z):
                    for ic in range(config.context):
                        for iy in range(y):
                            place = (ie * config.context + ic) * config.t + iz * y + iy
                            device = int(stage.devices[r][place])
                            node = int(node_of[device])
                            found.append(
                                Rank(
                                    len(found), device, node, device - first[node],
                                    q, r, ie, ic, iz, iy,
                                )
                            )  # fmt: skip
    return tuple(found)
