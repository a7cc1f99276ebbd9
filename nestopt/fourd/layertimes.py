"""Times of a transformer's layers under a 4D decomposition: products and collectives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nestopt.fourd.commmodel import collectives_of, seconds
from nestopt.fourd.network import block, head
from nestopt.fourd.overlap import BlockTimes, LayerTimes

if TYPE_CHECKING:
    from nestopt.fourd.decomposition import Grid
    from nestopt.fourd.models import Machine
    from nestopt.placement.model.cluster import DeviceType
    from nestopt.placement.model.transformer import Transformer

__all__ = ["block_times"]


def block_times(
    model: Transformer, grid: Grid, batch: int, machine: Machine, device: DeviceType
) -> tuple[BlockTimes, ...]:
    """Embedding, blocks (recomputed) and head of one iteration, in forward order.

    Parameters
    ----------
    model : Transformer
    grid : Grid
    batch : int
        Global batch in sequences.
    machine : Machine
        Prices the collectives, in the ``full`` mode.
    device : DeviceType
        A product of F FLOPs takes ``(F + half_flops)/(peak * efficiency)``; elementwise work
        takes its bytes over the memory bandwidth, and twice that in the backward pass.

    Notes
    -----
    ``half_flops`` is calibrated on whole blocks, as the placement package prices them: each of a
    block's four products takes a quarter of it, the attention core all of it.

    The attention core precedes proj's product forward and qkv's products backward, so that the
    collectives of the four products enclose it as they do in the algorithm. Its traffic, where the
    score matrix is kept, is 11 bytes a score.
    """
    times = _collective_seconds(model, grid, batch, machine)
    rows = batch * model.sequence / (grid.data * grid.z)
    speed = device.peak * device.efficiency

    def product(flops: float, share: float = 1.0) -> float:
        return (flops + share * device.half_flops) / speed

    def moved(count: float) -> float:
        return count / device.memory_bandwidth

    width = rows * model.hidden / grid.x
    scores = 0.0 if model.flash else 11 * rows * model.sequence * model.heads / grid.y
    attention = product(4 * rows * model.sequence * model.query_width / grid.y) + moved(scores)
    # Bytes: a norm and a residual addition before qkv and fc1, the activation before fc2.
    before = {"qkv": moved(11 * width), "fc1": moved(11 * width)}
    before["fc2"] = moved(6 * rows * model.inner / grid.y)
    layers = []
    for layer in block(model):
        each = product(2 * rows * layer.k * layer.n / (grid.x * grid.y), 1 / 4)
        elementwise = before.get(layer.name, 0.0)
        layers.append(
            _times(
                times,
                layer.name,
                forward=each + elementwise + (attention if layer.name == "proj" else 0.0),
                input_gradient=each
                + 2 * elementwise
                + (2 * attention if layer.name == "qkv" else 0.0),
                weight_gradient=each,
            )
        )
    logits = 2 * rows * head(model).n / grid.y
    each = product(logits * model.hidden / grid.x)
    table = moved(2 * width)
    first = _times(times, "embedding", table, 0.0, table)
    # The loss passes over the fp32 logits about three times.
    last = _times(times, "head", each + moved(6 * logits), each, each)
    body = BlockTimes(tuple(layers))
    return (BlockTimes((first,), False), *[body] * model.layers, BlockTimes((last,), False))


def _collective_seconds(
    model: Transformer, grid: Grid, batch: int, machine: Machine
) -> dict[tuple[str, str, str], float]:
    """Seconds by (layer, phase, tensor), of the layers of one block and of the ends."""
    found: dict[tuple[str, str, str], float] = {}
    owner = {"norm1": "qkv", "norm2": "fc1", "norm": "head", "loss": "head"}
    for c in collectives_of(replace(model, layers=1), grid, batch, "full"):
        name = c.layer.removeprefix("0.")
        layer = owner.get(name, name)
        tensor = c.tensor
        if layer != name:
            # Norms and loss wait where their layer does: with its Y, its dX or its dW.
            tensor = "Y" if c.phase != "backward" else "dX"
            if c.phase == "sync":
                tensor = "dW"
        phase = "backward" if c.phase == "sync" and c.axis == "z" else c.phase
        key = (layer, phase, tensor)
        found[key] = found.get(key, 0.0) + seconds(c, grid.preceding(c.axis), machine, "full")
    return found


def _times(
    times: dict[tuple[str, str, str], float],
    name: str,
    forward: float,
    input_gradient: float,
    weight_gradient: float,
) -> LayerTimes:
    def of(phase: str, tensor: str) -> float:
        return times.get((name, phase, tensor), 0.0)

    return LayerTimes(
        name,
        forward,
        input_gradient,
        weight_gradient,
        gather=of("forward", "W"),
        gather_again=of("recompute", "W"),
        reduce=of("forward", "Y"),
        reduce_gradient=of("backward", "dX"),
        scatter=of("backward", "dW"),
        sync=of("sync", "dW"),
    )
