"""AxoNN's analytical communication model in three modes, and its memory.

``published``
    What the public code computes: ring volumes over measured bandwidths, no latency, full
    recomputation, bf16 tensors, fp32 gradients in the data-parallel all-reduce, blocks only. The
    activation sizes of transposed layers have their widths swapped, and sizes in GiB are divided
    by bandwidths in GB/s.
``corrected``
    The right widths; the bandwidth figures are read as GiB/s, so that the units agree.
``full``
    Bytes over bytes/s; embedding, head and norms too; latency, and the cheapest of ring, tree and
    hierarchical algorithms.

References
----------
Singh, Sating, Bhatele, arXiv 2305.13525, equations 1 to 7; Thakur, Rabenseifner, Gropp,
"Optimization of collective communication operations in MPICH" (2005), for alpha and beta of the
algorithms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nestopt.core.errors import UsageError
from nestopt.fourd.decomposition import Batch, layer_collectives
from nestopt.fourd.network import block, model_collectives, parameters

if TYPE_CHECKING:
    from nestopt.fourd.decomposition import Collective, Grid
    from nestopt.fourd.models import Machine
    from nestopt.placement.model.transformer import Transformer

__all__ = [
    "MODES",
    "Memory",
    "collectives_of",
    "memory",
    "node_members",
    "seconds",
    "seconds_by_kind",
]

MODES = ("published", "corrected", "full")
_GIB, _GB = 2.0**30, 1e9


def collectives_of(
    model: Transformer, grid: Grid, batch: int, mode: str, *, cache_weights: bool = False
) -> list[Collective]:
    """The collectives that a mode prices, with full recomputation of the blocks.

    Parameters
    ----------
    model : Transformer
    grid : Grid
    batch : int
        Global batch in sequences.
    mode : str
        One of `MODES`.

    Raises
    ------
    UsageError
        If the mode is unknown.
    """
    if mode not in MODES:
        raise UsageError(f"unknown mode {mode!r}; known: {', '.join(MODES)}")
    step = Batch(batch, model.sequence, 2, 4, recompute=True, cache_weights=cache_weights)
    if mode == "full":
        return model_collectives(model, grid, step)
    found = []
    for layer in block(model):
        # The published code takes K H as the output width of 4h -> h too.
        swapped = mode == "published" and layer.transposed
        sized = replace(layer, k=layer.n, n=layer.k) if swapped else layer
        found += layer_collectives(sized, grid, step)
    return found * model.layers


def node_members(machine: Machine, preceding: int, group: int) -> int:
    """Members of a group that share a node."""
    if machine.within_node(preceding, group):
        return group
    return max(1, machine.devices_per_node // preceding)


def seconds(collective: Collective, preceding: int, machine: Machine, mode: str) -> float:
    """Time of a collective whose groups have stride `preceding`.

    Parameters
    ----------
    collective : Collective
    preceding : int
        Product of the preceding group sizes.
    machine : Machine
    mode : str
        One of `MODES`; in the first two a size in GiB is divided by the figure in GB/s.
    """
    group = collective.group
    if group == 1:
        return 0.0
    beta = machine.bandwidth(preceding, group)
    ring = collective.wire_bytes / beta
    if mode != "full":
        return ring * _GB / _GIB
    passes = 2 if collective.kind == "all-reduce" else 1
    members = node_members(machine, preceding, group)
    nodes = group / members
    inside = machine.intranode_latency
    if nodes <= 1:
        best = passes * (group - 1) * inside + ring
        if passes == 2:
            rounds = (group - 1).bit_length()
            best = min(best, 2 * rounds * inside + 2 * collective.bytes / beta)
        return best
    outside = machine.internode_latency
    best = passes * (group - 1) * outside + ring
    if members > 1:
        local = machine.bandwidth(preceding, members)
        share = machine.internode / min(machine.devices_per_node, preceding * members)
        steps = (members - 1) * inside + (nodes - 1) * outside
        volume = (1 - 1 / members) / local + (1 - 1 / nodes) / members / share
        best = min(best, passes * (steps + collective.bytes * volume))
    if passes == 2:
        rounds = (group - 1).bit_length()
        best = min(best, 2 * rounds * outside + 2 * collective.bytes / beta)
    return best


def seconds_by_kind(
    collectives: list[Collective], grid: Grid, machine: Machine, mode: str
) -> dict[str, float]:
    """Sum of the times by axis: ``x``, ``y``, ``z``, ``data``."""
    total = dict.fromkeys(("x", "y", "z", "data"), 0.0)
    for c in collectives:
        total[c.axis] += seconds(c, grid.preceding(c.axis), machine, mode)
    return total


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on a device, part by part."""

    states: float
    activations: float
    working: float
    gathered: float
    logits: float

    @property
    def total(self) -> float:
        """All parts together."""
        return self.states + self.activations + self.working + self.gathered + self.logits


def memory(
    model: Transformer,
    grid: Grid,
    batch: int,
    *,
    cache_weights: bool = False,
    state_bytes: float = 18.0,
) -> Memory:
    """Memory of one device with full recomputation.

    Parameters
    ----------
    model : Transformer
    grid : Grid
    batch : int
        Global batch in sequences; all of a rank's samples are processed at once.
    cache_weights : bool
        Whether all blocks' gathered weights are kept.
    state_bytes : float
        Per parameter: bf16 weight 2, fp32 gradient 4, fp32 copy and two moments 12. They are
        divided over x, y and z.

    Notes
    -----
    Activations: the input of every block, 2 bytes a value, columns over x. Working set of the
    block that is recomputed: ``rows h (10/x + 24/y)`` bytes (Korthikanti et al., arXiv 2205.05198,
    equation 2, with x and y in place of 1 and t), plus the attention scores where they are kept.
    Gathered weights: those of two blocks (the one at work and the prefetched), and the whole
    gradient of one before its reduce-scatter. Logits: fp32, and their gradient.
    """
    rows = batch * model.sequence / (grid.data * grid.z)
    each = sum(layer.k * layer.n for layer in block(model))
    scores = 0 if model.flash else 5 * model.heads * model.sequence
    working = rows * (model.hidden * (10 / grid.x + 24 / grid.y) + scores / grid.y)
    blocks = model.layers if cache_weights else min(2, model.layers)
    gathered = 0.0 if grid.z == 1 else 2 * each * (blocks + 1) / (grid.x * grid.y)
    return Memory(
        states=state_bytes * parameters(model) / grid.tensor,
        activations=2 * model.layers * rows * model.hidden / grid.x,
        working=working,
        gathered=gathered,
        logits=8 * rows * model.vocabulary / grid.y,
    )
