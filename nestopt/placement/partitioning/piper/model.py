"""Piper's planning problem: its data, its plans, and what a stage costs.

A DAG of layers is cut into pipeline stages. A stage has its own data-parallel degree d and tensor
degree t and takes d * t devices; each of its layers chooses one of the variants profiled for t
(with or without recomputation, say). With B micro-batches in a batch and bandwidth W, the stage's
time per sample is

    (sum of layer times + 2/W * sum over cut edges of (bytes + resharding bytes)) / d
        + 4 (d - 1)/d * (parameter bytes) / (W B),

where a cut edge is one with exactly one end in the stage, each edge counted on its own, forward
and backward; its resharding bytes are the layer's for that edge (zero at t = 1). A device holds

    sum over layers of (stored * ceil(S / d) + fixed) bytes,

with S the sum of the data-parallel degrees of this and all later stages (1F1B in flight). Every d
divides B, S is at most B for the first stage, and the degrees need no more devices than there
are. The objective is the largest stage time: the time per sample of the full pipeline, without
filling and draining.

References
----------
Tarnawski, Narayanan, Phanishayee: Piper: Multidimensional Planner for DNN Parallelization,
NeurIPS 2021. The factors 2 and 4, the divisibility and the limit on S were found by reproducing
published figures to all their digits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

__all__ = [
    "SCHEMA",
    "Layer",
    "PiperProblem",
    "PiperStage",
    "Variant",
    "stage_memory",
    "stage_time",
]

SCHEMA = "nestopt.piper/1"


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a layer at a tensor degree.

    Attributes
    ----------
    name : str
    time : float
        Seconds per sample, forward and backward.
    stored, fixed : float
        Bytes kept for each sample in flight, and in any case.
    """

    name: str
    time: float
    stored: float
    fixed: float


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer and its variants.

    Attributes
    ----------
    id : int
    name : str
    variants : dict of int to tuple of Variant
        By tensor degree.
    parameters : dict of int to float
        Bytes of parameters on each device, by tensor degree.
    reshard_in, reshard_out : dict of int to dict of int to float
        By tensor degree, then by the id of the layer at the other end of an incoming (outgoing)
        edge: bytes moved among the t devices when that edge is cut.
    """

    id: int
    name: str
    variants: dict[int, tuple[Variant, ...]]
    parameters: dict[int, float]
    reshard_in: dict[int, dict[int, float]]
    reshard_out: dict[int, dict[int, float]]


@dataclass(frozen=True, slots=True)
class PiperProblem:
    """An instance of Piper's problem.

    Attributes
    ----------
    name : str
    devices : int
    memory : float
        Bytes of a device.
    bandwidth : float
        Bytes per second out of a device.
    micro_batches : int
        Micro-batches (of one sample) in a batch.
    layers : tuple of Layer
    edges : tuple of (int, int, float)
        (id of the producer, id of the consumer, bytes per sample).
    schema, objectives, spaces : str, tuple of str, tuple of str
        Of the class: the schema of its JSON, and what can be asked for.
    """

    schema: ClassVar[str] = SCHEMA
    objectives: ClassVar[tuple[str, ...]] = ("bottleneck",)
    spaces: ClassVar[tuple[str, ...]] = ("structured",)

    name: str
    devices: int
    memory: float
    bandwidth: float
    micro_batches: int
    layers: tuple[Layer, ...]
    edges: tuple[tuple[int, int, float], ...]

    def to_json(self) -> dict[str, Any]:
        """The whole instance as JSON."""

        def by_degree(table: dict[int, Any]) -> dict[str, Any]:
            return {str(degree): value for degree, value in table.items()}

        return {
            "schema": SCHEMA,
            "problem": "placement",
            "name": self.name,
            "devices": self.devices,
            "memory": self.memory,
            "bandwidth": self.bandwidth,
            "micro_batches": self.micro_batches,
            "layers": [
                {
                    "id": layer.id,
                    "name": layer.name,
                    "variants": {
                        str(degree): [
                            {"name": v.name, "time": v.time, "stored": v.stored, "fixed": v.fixed}
                            for v in variants
                        ]
                        for degree, variants in layer.variants.items()
                    },
                    "parameters": by_degree(layer.parameters),
                    "reshard_in": {str(t): by_degree(row) for t, row in layer.reshard_in.items()},
                    "reshard_out": {str(t): by_degree(row) for t, row in layer.reshard_out.items()},
                }
                for layer in self.layers
            ],
            "edges": [list(edge) for edge in self.edges],
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> PiperProblem:
        """Inverse of `to_json`.

        Raises
        ------
        InputError
            Naming file, field and value.
        """
        from nestopt.placement.partitioning.piper.schema import read_problem

        return read_problem(data, file=file)


@dataclass(frozen=True, slots=True)
class PiperStage:
    """A stage: its degrees, and the variant (by position) of each of its layers (by id)."""

    data: int
    tensor: int
    variants: dict[int, int]


def stage_time(problem: PiperProblem, stage: PiperStage) -> float:
    """Seconds per sample of a stage."""
    by_id = {layer.id: layer for layer in problem.layers}
    t, d = stage.tensor, stage.data
    compute = math.fsum(by_id[i].variants[t][k].time for i, k in stage.variants.items())
    moved: list[float] = []
    for u, v, size in problem.edges:
        if u not in stage.variants and v in stage.variants:
            moved += [size, by_id[v].reshard_in[t].get(u, 0.0)]
        elif u in stage.variants and v not in stage.variants:
            moved += [size, by_id[u].reshard_out[t].get(v, 0.0)]
    parameters = math.fsum(by_id[i].parameters[t] for i in stage.variants)
    exchange = 4 * (d - 1) * parameters / (problem.bandwidth * problem.micro_batches)
    return (compute + 2 * math.fsum(moved) / problem.bandwidth + exchange) / d


def stage_memory(problem: PiperProblem, stage: PiperStage, later: int) -> float:
    """Bytes on each device of a stage; `later` is the sum of the later stages' data degrees."""
    in_flight = 1 + -(-later // stage.data)
    variants = [
        layer.variants[stage.tensor][stage.variants[layer.id]]
        for layer in problem.layers
        if layer.id in stage.variants
    ]
    return math.fsum(v.stored * in_flight + v.fixed for v in variants)
