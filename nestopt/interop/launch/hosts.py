"""Which process runs on which GPU: host files, rank files and the map of ranks.

Nodes are the groups of the cluster's innermost level, ``node0``, ``node1``, ...; the user renames
them in one place. Failed devices are in no file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nestopt.interop.launch.job import Job, Rank

__all__ = ["host_files", "in_node_order", "launcher", "ranks_by_node"]


def ranks_by_node(job: Job) -> dict[int, list[Rank]]:
    """The ranks of every node in use, nodes and ranks ascending."""
    found: dict[int, list[Rank]] = {node: [] for node in job.nodes}
    for rank in job.ranks:
        found[rank.node].append(rank)
    return found


def in_node_order(job: Job) -> bool:
    """Whether a launcher that fills node after node, as many ranks on each, gets the plan's places.

    Then ``torchrun --nnodes --nproc-per-node`` is enough, with the GPUs of a node in rank order.
    """
    rows = list(ranks_by_node(job).values())
    alike = len({len(row) for row in rows}) == 1
    order = [rank.rank for row in rows for rank in row]
    return alike and order == list(range(job.world))


def host_files(job: Job) -> dict[str, str]:
    """``hostfile``, ``rankfile`` (Open MPI's form) and ``ranks.csv`` by name.

    The rank file pins rank R to a node and a slot; ``ranks.csv`` names the GPU of every rank and
    what it has of the plan, for any other launcher.
    """
    by_node = ranks_by_node(job)
    hosts = [f"node{node} slots={len(row)}" for node, row in by_node.items()]
    pins = [f"rank {rank.rank}=node{rank.node} slot={rank.gpu}" for rank in job.ranks]
    header = "rank,device,node,gpu,stage,replica,expert,context,shard,tensor"
    rows = [
        f"{r.rank},{r.device},node{r.node},{r.gpu},{r.stage},{r.replica},{r.expert},{r.context},"
        f"{r.shard},{r.tensor}"
        for r in job.ranks
    ]
    return {
        "hostfile": "\n".join(hosts) + "\n",
        "rankfile": "\n".join(pins) + "\n",
        "ranks.csv": "\n".join([header, *rows]) + "\n",
    }


def launcher(job: Job, program: str) -> str:
    """The lines of a shell script that start `program` with its arguments in ``$ARGS``."""
    if in_node_order(job):
        per_node = job.world // len(job.nodes)
        rows = ranks_by_node(job).values()
        visible = [",".join(str(rank.gpu) for rank in row) for row in rows]
        pin, before = f"CUDA_VISIBLE_DEVICES={visible[0]} ", []
        if len(set(visible)) > 1:
            # failed GPUs, or stages that deal their devices out in different orders
            pin = 'CUDA_VISIBLE_DEVICES="${GPUS[$NODE_RANK]}" '
            before = [
                "# GPUs of each node, in the order of its ranks",
                f"GPUS=({' '.join(visible)})",
            ]
        lines = [
            "# run on every node of the host file, NODE_RANK counting from 0 in its order",
            *before,
            f"{pin}torchrun --nnodes {len(job.nodes)} --nproc-per-node {per_node} \\",
            '  --node-rank "${NODE_RANK:?}" --master-port 29500 \\',
            '  --master-addr "${MASTER_ADDR:?}" \\',
            f"  {program} $ARGS",
        ]
        return "\n".join(lines) + "\n"
    return (
        "# ranks are not in the order of the nodes: the rank file places each of them\n"
        f'mpirun -n {job.world} --rankfile "$(dirname "$0")/rankfile" --bind-to none \\\n'
        '  bash -c \'here="$(dirname "$0")"; '
        "export RANK=$OMPI_COMM_WORLD_RANK WORLD_SIZE=$OMPI_COMM_WORLD_SIZE; "
        'gpu=$(awk -F, -v r="$RANK" "\\$1==r {print \\$4}" "$here/ranks.csv"); '
        "export CUDA_VISIBLE_DEVICES=$gpu LOCAL_RANK=0; "
        f'python {program} "$@"\' "$0" $ARGS\n'
    )
