"""A device mesh for JAX: axis names, sizes, and the devices in the order of the plan."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nestopt.interop.launch.hosts import host_files

if TYPE_CHECKING:
    from nestopt.interop.launch.job import Job

__all__ = ["write_jax_mesh"]

AXES = ("stage", "replica", "expert", "shard", "context", "tensor")

_PROGRAM = '''"""Builds the mesh of ``mesh.json``: `make_mesh(jax.devices())`."""

import json
from pathlib import Path

import numpy as np


def make_mesh(devices):
    """The mesh over `devices`, one a process and GPU in the order of ``ranks.csv``."""
    from jax.sharding import Mesh

    spec = json.loads((Path(__file__).parent / "mesh.json").read_text())
    order = {tuple(place): i for i, place in enumerate(spec["hosts"])}
    by_place = {order[d.process_index, d.local_hardware_id]: d for d in devices
                if (d.process_index, d.local_hardware_id) in order}
    chosen = np.array([by_place[i] for i in range(len(order))], dtype=object)
    return Mesh(chosen.reshape(spec["shape"]), spec["axes"])
'''


def write_jax_mesh(job: Job) -> dict[str, str]:
    """Files of a JAX mesh by name: ``mesh.json``, a program that builds it, hosts and ranks.

    Everything of a plan with one configuration has words here: the mesh says which device has which
    coordinates, and the program shards along the axes.
    """
    sizes = {
        "stage": job.pipeline,
        "replica": job.replicas,
        "expert": job.expert,
        "shard": job.shard,
        "context": job.context,
        "tensor": job.tensor,
    }
    process = {node: index for index, node in enumerate(job.nodes)}
    spec = {
        "axes": list(AXES),
        "shape": [sizes[axis] for axis in AXES],
        "devices": [rank.device for rank in job.ranks],
        "hosts": [[process[rank.node], rank.gpu] for rank in job.ranks],
        "layers": list(job.layers),
        "micro_batch": job.microbatch,
        "micro_batches": job.microbatches,
        "global_batch": job.batch,
        "schedule": job.schedule,
        "chunks": job.virtual,
        "sequence_parallel": job.sequence_parallel,
        "zero": job.zero,
        "recompute": job.recompute,
    }
    return {"mesh.json": json.dumps(spec, indent=1) + "\n", "mesh.py": _PROGRAM, **host_files(job)}
