"""Random workloads: chains and layered DAGs with chosen size, skew and memory tightness.

- ``random-chain:N[,options]``: N operators in a row;
- ``random-dag:N[,width=W][,skip=P][,options]``: layers of 1 to W operators, each fed by at least
  one operator of the layer before, further edges between neighbouring layers and over one layer
  with probability P (default 0.2).

Options: ``skew=S`` (the work and size of an operator vary by a factor exp(S * normal), default
0.5), ``batch=B`` (default 64), ``device=TYPE`` (default h100), ``devices=K`` (default 8) and
``tight=T`` (default 0.5): weights, gradients and optimizer state together take the fraction T of
the memory of K devices. ``split=yes`` (the default) lets tensors shard over 2 and 4 devices.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import unknown_name
from nestopt.instances.spec import parse_spec
from nestopt.instances.streams import stream
from nestopt.instances.trees import device_type
from nestopt.instances.workloads import by_name
from nestopt.placement.model.workload import Edge, Operator, Workload

if TYPE_CHECKING:
    from nestopt.instances.spec import Spec

__all__ = ["FAMILIES", "random_workload", "workload_by_name"]

FAMILIES = ("random-chain", "random-dag")
_BYTES_PER_PARAMETER = 2.0 + 4.0 + 12.0


def workload_by_name(name: str) -> Workload:
    """The workload of a name, random or named.

    Raises
    ------
    UsageError
        If the name is unknown (with a suggestion).
    InputError
        If its parameters are wrong.
    """
    if name.partition(":")[0] in FAMILIES:
        return random_workload(name)
    return by_name(name)


def random_workload(name: str, seed: int | None = None) -> Workload:
    """The random workload of a name; ``seed=N`` in the name unless `seed` is given.

    Raises
    ------
    UsageError
        If there is no such family.
    InputError
        If its parameters are wrong.
    """
    spec = parse_spec(name)
    if spec.family not in FAMILIES:
        raise unknown_name("random workload", spec.family, FAMILIES)
    count = spec.integer(0, "the number of operators")
    named = spec.option_integer("seed", 0, minimum=0)
    rng = stream(named if seed is None else seed, spec.family)
    layers = (
        [[i] for i in range(count)] if spec.family == "random-chain" else _layers(spec, count, rng)
    )
    skip = spec.option_number("skip", 0.2, minimum=0.0) if spec.family == "random-dag" else 0.0
    operators, batch = _operators(spec, count, rng)
    spec.finish()
    edges = _edges(layers, skip, rng)
    scale = np.exp(0.5 * rng.standard_normal(count)).tolist()
    # about 2048 tokens of hidden size 4096 in half precision
    sizes = [float(round(16 * 2**20 * factor, -3)) for factor in scale]
    return Workload(
        name if seed is None or seed == named else f"{name} (seed {seed})",
        tuple(operators),
        tuple(Edge(u, v, sizes[u]) for u, v in edges),
        batch,
        bytes_weight=2.0,
        bytes_gradient=4.0,
        bytes_optimizer=12.0,
    )


def _layers(spec: Spec, count: int, rng: np.random.Generator) -> list[list[int]]:
    width = spec.option_integer("width", 3)
    layers: list[list[int]] = []
    start = 0
    while start < count:
        size = min(count - start, int(rng.integers(1, width + 1)))
        layers.append(list(range(start, start + size)))
        start += size
    return layers


def _edges(layers: list[list[int]], skip: float, rng: np.random.Generator) -> list[tuple[int, int]]:
    edges: set[tuple[int, int]] = set()
    for depth in range(1, len(layers)):
        above = layers[depth - 1]
        for v in layers[depth]:
            edges.add((above[int(rng.integers(0, len(above)))], v))
            further = above + (layers[depth - 2] if depth > 1 else [])
            draws = rng.random(len(further)).tolist()
            edges.update((u, v) for u, draw in zip(further, draws) if draw < skip)
        for u in above:
            if all(tail != u for tail, _ in edges):
                below = layers[depth]
                edges.add((u, below[int(rng.integers(0, len(below)))]))
    return sorted(edges)


def _operators(spec: Spec, count: int, rng: np.random.Generator) -> tuple[list[Operator], int]:
    skew = spec.option_number("skew", 0.5, minimum=0.0)
    tight = spec.option_number("tight", 0.5, minimum=0.0)
    devices = spec.option_integer("devices", 8)
    batch = spec.option_integer("batch", 64)
    split = spec.flag("split", True)
    device = device_type(spec.option("device") or "h100", spec.text)
    work, size, kept = (
        [math.exp(skew * z) for z in rng.standard_normal(count).tolist()] for _ in range(3)
    )
    total = tight * devices * device.usable / _BYTES_PER_PARAMETER
    share = total / sum(size)
    operators = []
    for i in range(count):
        params = float(round(size[i] * share))
        # 2 FLOPs a parameter and token at 2048 tokens, were all operators equal
        flops = float(round(2 * 2048 * total / count * work[i]))
        stored = float(round(512 * 2**20 * kept[i], -3))
        operators.append(
            Operator(
                f"op{i}",
                flops=flops,
                bytes_full=float(round(64 * 2**20 * work[i], -3)),
                params=params,
                act_full=float(round(stored / 4)),
                act_shard=stored,
                act_input=float(16 * 2**20),
                tp_bytes=float(16 * 2**20) if split else 0.0,
                tp_fwd=1 if split else 0,
                tp_bwd=1 if split else 0,
                tensor_divides=(4,) if split else (),
            )
        )
    return operators, batch
