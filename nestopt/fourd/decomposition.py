"""AxoNN's 4D decomposition: rank order, shards, replicas and collectives of every layer.

A fully connected layer multiplies X (rows x k) by W (k x n). The tensor ranks form a Gx x Gy x Gz
grid; data-parallel replicas of the grid come last:

=======  ==================  ================================  ==================
tensor   rows                columns                           replicated over
=======  ==================  ================================  ==================
X, dX    data, z (samples)   contraction axis                  output axis
W, dW    contraction axis    output axis; the block flat on z  data
Y, dY    data, z (samples)   output axis                       contraction axis
=======  ==================  ================================  ==================

The contraction axis is x and the output axis y; in a *transposed* layer they are swapped, so that
the Y of an ordinary layer is laid out as the X of a transposed one and no data move between two
layers. Megatron's tensor parallelism is (1, t, 1), FSDP or ZeRO-3 is (1, 1, Gz), the
weight-stationary 2D scheme is (Gx, Gy, 1), and a 2.5D scheme is (Gx, Gy, 1) with its depth as
data parallelism.

References
----------
Singh, Sating, Bhatele, "A 4D hybrid algorithm to scale parallel training to thousands of GPUs",
arXiv 2305.13525, Algorithm 1; AxoNN's Gc is Gx here, its Gr is Gy, its Gd is Gz.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nestopt.core.errors import InputError
from nestopt.core.integers import divisors

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ORDER",
    "Batch",
    "Collective",
    "Grid",
    "Linear",
    "Norm",
    "Shard",
    "extent",
    "factorizations",
    "layer_collectives",
    "loss_collectives",
    "norm_collectives",
    "offset",
    "rank_rows",
    "ring_bytes",
    "shards",
]

ORDER = ("x", "y", "z", "pipeline", "data")
"""Axes from the fastest-varying (adjacent devices) to the slowest."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Sizes of the axes of a 4D decomposition (5D with a pipeline)."""

    x: int = 1
    y: int = 1
    z: int = 1
    data: int = 1
    pipeline: int = 1

    def __post_init__(self) -> None:
        for axis in ORDER:
            if self.size(axis) < 1:
                raise InputError(
                    f"a grid needs sizes of at least 1, found {self.size(axis)}: {axis}"
                )

    def size(self, axis: str) -> int:
        """Number of ranks of a group along `axis`."""
        return int(getattr(self, axis))

    @property
    def tensor(self) -> int:
        """Ranks that share one copy of the weights: Gx Gy Gz."""
        return self.x * self.y * self.z

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self.tensor * self.pipeline * self.data

    def preceding(self, axis: str) -> int:
        """Product of the sizes of the axes inside `axis`: the stride of its groups."""
        product = 1
        for inner in ORDER[: ORDER.index(axis)]:
            product *= self.size(inner)
        return product

    def coordinate(self, rank: int, axis: str) -> int:
        """Position of `rank` in its group along `axis`."""
        return rank // self.preceding(axis) % self.size(axis)

    def group(self, rank: int, axis: str) -> tuple[int, ...]:
        """Ranks of the group of `rank` along `axis`, in order."""
        stride = self.preceding(axis)
        first = rank - self.coordinate(rank, axis) * stride
        return tuple(first + i * stride for i in range(self.size(axis)))


def factorizations(ranks: int) -> Iterator[Grid]:
    """Every (Gx, Gy, Gz, Gdata) whose product is `ranks`, without a pipeline."""
    for x in divisors(ranks):
        for y in divisors(ranks // x):
            for z in divisors(ranks // x // y):
                yield Grid(x, y, z, ranks // x // y // z)


def offset(size: int, parts: int, index: int, unit: int = 1) -> int:
    """Where part `index` begins when `size` is dealt in whole units, the first parts longest."""
    units, rest = divmod(size, unit)
    if rest:
        raise InputError(f"{size} is not a whole number of units of {unit}")
    quotient, longer = divmod(units, parts)
    return unit * (quotient * index + min(index, longer))


def extent(size: int, parts: int, index: int, unit: int = 1) -> int:
    """Length of part `index` of `size`, as dealt by `offset`."""
    return offset(size, parts, index + 1, unit) - offset(size, parts, index, unit)


def ring_bytes(kind: str, elements: int, group: int, index: int, itemsize: int) -> int:
    """Bytes that member `index` sends in a ring collective on a buffer of `elements`.

    The buffer is dealt in `group` chunks; member i sends all but chunk i in a reduce-scatter and
    all but chunk i + 1 in an all-gather; an all-reduce is the one after the other.
    """
    if group == 1:
        return 0
    scatter = elements - extent(elements, group, index)
    gather = elements - extent(elements, group, (index + 1) % group)
    sent = {"reduce-scatter": scatter, "all-gather": gather, "all-reduce": scatter + gather}[kind]
    return sent * itemsize


@dataclass(frozen=True, slots=True)
class Linear:
    """A fully connected layer Y = X W.

    Attributes
    ----------
    name : str
    k, n : int
        Rows and columns of W.
    transposed : bool
        Whether k is split over y and n over x instead of the other way round.
    k_unit, n_unit : int
        Smallest piece in which k and n may be split (one attention head).
    input_gradient : bool
        False for the first layer of a network (an embedding), which needs no dX.
    """

    name: str
    k: int
    n: int
    transposed: bool = False
    k_unit: int = 1
    n_unit: int = 1
    input_gradient: bool = True

    @property
    def contraction(self) -> str:
        """Axis over which k is split and Y is all-reduced."""
        return "y" if self.transposed else "x"

    @property
    def output(self) -> str:
        """Axis over which n is split and dX is all-reduced."""
        return "x" if self.transposed else "y"


@dataclass(frozen=True, slots=True)
class Norm:
    """A layer normalisation over `width` columns, which are split over x."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Shard:
    """The block of a tensor that a rank holds, and who holds the same.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns of the block before any split over z.
    elements : int
        Elements stored on the rank.
    split, replicas : tuple of str
        Axes over which the tensor is divided, and over which its parts are repeated.
    """

    shape: tuple[int, int]
    elements: int
    split: tuple[str, ...]
    replicas: tuple[str, ...]


def rank_rows(samples: int, grid: Grid, rank: int) -> int:
    """Samples of one rank: dealt over data-parallel replicas first, then over z."""
    replica = extent(samples, grid.data, grid.coordinate(rank, "data"))
    return extent(replica, grid.z, grid.coordinate(rank, "z"))


def shards(
    layer: Linear, grid: Grid, samples: int, rank: int = 0, tokens: int = 1
) -> dict[str, Shard]:
    """What `rank` holds of X, W, Y, dX, dW and dY of a layer.

    Parameters
    ----------
    layer : Linear
    grid : Grid
    samples : int
        Samples of the whole batch; a sample is never divided.
    rank : int
    tokens : int
        Rows of one sample.
    """
    inner, outer = layer.contraction, layer.output
    rows = rank_rows(samples, grid, rank) * tokens
    k = extent(layer.k, grid.size(inner), grid.coordinate(rank, inner), layer.k_unit)
    n = extent(layer.n, grid.size(outer), grid.coordinate(rank, outer), layer.n_unit)
    x = Shard((rows, k), rows * k, ("data", "z", inner), (outer,))
    w = Shard(
        (k, n), extent(k * n, grid.z, grid.coordinate(rank, "z")), (inner, outer, "z"), ("data",)
    )
    y = Shard((rows, n), rows * n, ("data", "z", outer), (inner,))
    return {"X": x, "W": w, "Y": y, "dX": x, "dW": w, "dY": y}


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective of a layer, as every group of its axis runs it.

    Attributes
    ----------
    layer : str
    phase : str
        ``forward``, ``recompute``, ``backward`` or ``sync`` (once a batch).
    kind : str
        ``all-gather``, ``reduce-scatter`` or ``all-reduce``.
    axis : str
        Axis of the group.
    tensor : str
        What is moved.
    elements : float
        Full buffer: gathered, scattered or reduced elements of one group.
    itemsize : int
        Bytes of an element.
    group : int
        Ranks of the group.
    """

    layer: str
    phase: str
    kind: str
    axis: str
    tensor: str
    elements: float
    itemsize: int
    group: int

    @property
    def bytes(self) -> float:
        """Size of the full buffer in bytes."""
        return self.elements * self.itemsize

    @property
    def wire_bytes(self) -> float:
        """Mean bytes that a rank sends in a ring: (g - 1)/g of the buffer, twice if all-reduced."""
        passes = 2 if self.kind == "all-reduce" else 1
        return passes * (self.group - 1) / self.group * self.bytes


@dataclass(frozen=True, slots=True)
class Batch:
    """What one iteration moves.

    Attributes
    ----------
    samples : float
        Samples of the whole batch, all replicas together.
    tokens : int
        Rows of a sample.
    itemsize, gradient_itemsize : int
        Bytes of an element, and of a gradient in the data-parallel all-reduce.
    recompute : bool
        Whether the forward pass is repeated before the backward pass; the weights gathered for it
        serve the backward pass.
    cache_weights : bool
        Whether the weights gathered for the forward pass are kept.
    """

    samples: float
    tokens: int = 1
    itemsize: int = 2
    gradient_itemsize: int = 2
    recompute: bool = False
    cache_weights: bool = False


def _share(grid: Grid, axis: str, size: float, unit: int, rank: int | None) -> float:
    if rank is None:
        return size / grid.size(axis)
    return extent(int(size), grid.size(axis), grid.coordinate(rank, axis), unit)


def _rows(grid: Grid, batch: Batch, rank: int | None) -> float:
    if rank is None:
        return batch.samples * batch.tokens / (grid.data * grid.z)
    return rank_rows(int(batch.samples), grid, rank) * batch.tokens


def layer_collectives(
    layer: Linear, grid: Grid, batch: Batch, rank: int | None = None
) -> list[Collective]:
    """The collectives of one layer in one batch; groups of a single rank are left out.

    Parameters
    ----------
    layer : Linear
    grid : Grid
    batch : Batch
    rank : int, optional
        Exact sizes of this rank's groups (dimensions may divide unevenly); by default the even
        sizes, as real numbers.

    References
    ----------
    arXiv 2305.13525, Algorithm 1 and equations 1 to 5.
    """
    inner, outer = layer.contraction, layer.output
    rows = _rows(grid, batch, rank)
    k = _share(grid, inner, layer.k, layer.k_unit, rank)
    n = _share(grid, outer, layer.n, layer.n_unit, rank)
    found: list[Collective] = []

    def add(phase: str, kind: str, axis: str, tensor: str, elements: float) -> None:
        item = batch.gradient_itemsize if phase == "sync" else batch.itemsize
        found.append(
            Collective(layer.name, phase, kind, axis, tensor, elements, item, grid.size(axis))
        )

    for phase in ("forward", "recompute") if batch.recompute else ("forward",):
        if phase == "forward" or not batch.cache_weights:
            add(phase, "all-gather", "z", "W", k * n)
        add(phase, "all-reduce", inner, "Y", rows * n)
    if layer.input_gradient:
        if not batch.recompute and not batch.cache_weights:
            add("backward", "all-gather", "z", "W", k * n)
        add("backward", "all-reduce", outer, "dX", rows * k)
    add("backward", "reduce-scatter", "z", "dW", k * n)
    add("sync", "all-reduce", "data", "dW", _share(grid, "z", k * n, 1, rank))
    return [c for c in found if c.group > 1]


def norm_collectives(
    norm: Norm, grid: Grid, batch: Batch, rank: int | None = None
) -> list[Collective]:
    """Collectives of a layer normalisation whose columns are split over x.

    Two sums a row are all-reduced over x in each pass; the gradients of scale and shift, which
    are replicated over y, z and data, are all-reduced over z and data.
    """
    rows = _rows(grid, batch, rank)
    width = _share(grid, "x", norm.width, 1, rank)
    item, gradient = batch.itemsize, batch.gradient_itemsize
    phases = ["forward", *(["recompute"] if batch.recompute else []), "backward"]
    found = [
        Collective(norm.name, phase, "all-reduce", "x", "sums", 2 * rows, item, grid.x)
        for phase in phases
    ]
    found += [
        Collective(
            norm.name, "sync", "all-reduce", axis, "dW", 2 * width, gradient, grid.size(axis)
        )
        for axis in ("z", "data")
    ]
    return [c for c in found if c.group > 1]


def loss_collectives(grid: Grid, batch: Batch, rank: int | None = None) -> list[Collective]:
    """Collectives of the cross entropy over a vocabulary that is split over y.

    The row maxima, then the sum of exponentials and the target's logit, are all-reduced over y
    (Megatron-LM's vocabulary-parallel loss).
    """
    rows = _rows(grid, batch, rank)
    if grid.y == 1:
        return []
    return [
        Collective("loss", "forward", "all-reduce", "y", tensor, elements, batch.itemsize, grid.y)
        for tensor, elements in (("max", rows), ("sums", 2 * rows))
    ]
