"""In-process SPMD emulator of AxoNN's 4D algorithm.

All ranks live in one process as lists of numpy arrays; every exchange goes through the ring
collectives of `nestopt.fourd.collectives`, which count bytes. The emulator knows nothing of the
communication model except how a dimension is dealt over ranks, so that its counts are a test of
`nestopt.fourd.decomposition.layer_collectives`.

References
----------
arXiv 2305.13525, Algorithm 1 (forward and backward of a fully connected layer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.fourd.collectives import Communicator
from nestopt.fourd.decomposition import offset, rank_rows

if TYPE_CHECKING:
    from nestopt.fourd.collectives import Array
    from nestopt.fourd.decomposition import Grid, Linear

__all__ = ["EmulatedLinear", "EmulatedNorm", "Ranks", "gelu", "gelu_gradient", "run_mlp"]


class Ranks:
    """The ranks of a grid: how global arrays are dealt to them and put together again.

    Parameters
    ----------
    grid : Grid
    samples, tokens : int
        Samples of the batch and rows of a sample.
    """

    def __init__(self, grid: Grid, samples: int, tokens: int) -> None:
        self.grid, self.samples, self.tokens = grid, samples, tokens
        self.comm = Communicator(grid)
        self.all = range(grid.ranks)
        self.rows = [rank_rows(samples, grid, rank) for rank in self.all]

    def first_sample(self, rank: int) -> int:
        """Index of the rank's first sample."""
        grid = self.grid
        replica = grid.coordinate(rank, "data")
        begin = offset(self.samples, grid.data, replica)
        size = offset(self.samples, grid.data, replica + 1) - begin
        return begin + offset(size, grid.z, grid.coordinate(rank, "z"))

    def span(self, size: int, axis: str, unit: int, rank: int) -> slice:
        """The rank's range of a dimension split over `axis`."""
        parts, index = self.grid.size(axis), self.grid.coordinate(rank, axis)
        return slice(offset(size, parts, index, unit), offset(size, parts, index + 1, unit))

    def deal(self, array: Array, axis: str, unit: int = 1) -> list[Array]:
        """Blocks (rows, columns) of a (samples, tokens, columns) array, columns over `axis`."""
        dealt = []
        for rank in self.all:
            first = self.first_sample(rank)
            part = array[first : first + self.rows[rank]]
            columns = self.span(array.shape[2], axis, unit, rank)
            part = part[:, :, columns]
            dealt.append(part.reshape(part.shape[0] * self.tokens, part.shape[2]))
        return dealt

    def collect(self, parts: list[Array], width: int, axis: str, unit: int = 1) -> Array:
        """Inverse of `deal`; replicas must agree to rounding.

        Raises
        ------
        ArithmeticError
            If two ranks that hold the same block differ by more than 1e-9 of its size.
        """
        whole = np.full((self.samples, self.tokens, width), np.nan)
        for rank in self.all:
            first = self.first_sample(rank)
            columns = self.span(width, axis, unit, rank)
            place = whole[first : first + self.rows[rank], :, columns]
            _agree(place, parts[rank].reshape(place.shape), rank)
            place[...] = parts[rank].reshape(place.shape)
        return whole


def _agree(place: Array, part: Array, rank: int) -> None:
    known = ~np.isnan(place)
    if not np.allclose(place[known], part[known], rtol=1e-9, atol=1e-9):
        raise ArithmeticError(f"rank {rank} disagrees with another replica of its block")


class EmulatedLinear:
    """A fully connected layer on all ranks.

    Parameters
    ----------
    ranks : Ranks
    layer : Linear
    weight : ndarray of shape (k, n)
        The whole weight matrix; each rank keeps its shard.
    cache : bool
        Keep the gathered weights from the forward pass on.
    """

    def __init__(self, ranks: Ranks, layer: Linear, weight: Array, *, cache: bool = False) -> None:
        self.ranks, self.layer, self.cache = ranks, layer, cache
        self.spans = [
            (
                ranks.span(layer.k, layer.contraction, layer.k_unit, rank),
                ranks.span(layer.n, layer.output, layer.n_unit, rank),
            )
            for rank in ranks.all
        ]
        self.shards = [
            _chunk(weight[k, n].ravel(), ranks.grid, rank)
            for rank, (k, n) in zip(ranks.all, self.spans)
        ]
        self.gradient: list[Array] = []
        self._full: list[Array] | None = None

    def gathered(self, phase: str) -> list[Array]:
        """Weight blocks of all ranks, gathered over z unless they are still there."""
        if self._full is None:
            shapes = [(k.stop - k.start, n.stop - n.start) for k, n in self.spans]
            flat = self.ranks.comm.all_gather(
                self.shards, [a * b for a, b in shapes], "z", (self.layer.name, phase, "W")
            )
            self._full = [w.reshape(shape) for w, shape in zip(flat, shapes)]
        return self._full

    def release(self) -> None:
        """Forget the gathered weights, unless the layer caches them."""
        if not self.cache:
            self._full = None

    def reduce_output(self, partial: list[Array], phase: str) -> list[Array]:
        """All-reduce of the partial Y over the contraction axis."""
        tag = (self.layer.name, phase, "Y")
        return self.ranks.comm.all_reduce(partial, self.layer.contraction, tag)

    def forward(self, x: list[Array], phase: str = "forward") -> list[Array]:
        """Y of all ranks from X of all ranks."""
        weights = self.gathered(phase)
        return self.reduce_output([a @ w for a, w in zip(x, weights)], phase)

    def backward(self, x: list[Array], dy: list[Array]) -> list[Array]:
        """dX of all ranks; the gradient's shards stay in `gradient`."""
        weights = self.gathered("backward")
        dx = self.ranks.comm.all_reduce(
            [g @ w.T for g, w in zip(dy, weights)],
            self.layer.output,
            (self.layer.name, "backward", "dX"),
        )
        self.scatter_gradient([a.T @ g for a, g in zip(x, dy)])
        self._full = None
        return dx

    def scatter_gradient(self, partial: list[Array]) -> None:
        """Reduce-scatter of dW over z."""
        tag = (self.layer.name, "backward", "dW")
        self.gradient = self.ranks.comm.reduce_scatter(partial, "z", tag)

    def synchronize(self) -> None:
        """All-reduce of the gradient's shards over the data-parallel replicas."""
        tag = (self.layer.name, "sync", "dW")
        self.gradient = self.ranks.comm.all_reduce(self.gradient, "data", tag)

    def collected_gradient(self) -> Array:
        """The whole dW, shape (k, n); the data-parallel replicas must agree."""
        grid = self.ranks.grid
        whole = np.full((self.layer.k, self.layer.n), np.nan)
        for rank in self.ranks.all:
            if grid.coordinate(rank, "z") == 0:
                k, n = self.spans[rank]
                block = np.concatenate([self.gradient[r] for r in grid.group(rank, "z")])
                block = block.reshape(k.stop - k.start, n.stop - n.start)
                _agree(whole[k, n], block, rank)
                whole[k, n] = block
        return whole


def _chunk(flat: Array, grid: Grid, rank: int) -> Array:
    index = grid.coordinate(rank, "z")
    return flat[offset(flat.size, grid.z, index) : offset(flat.size, grid.z, index + 1)].copy()


class EmulatedNorm:
    """A layer normalisation on all ranks, columns over x.

    Parameters
    ----------
    ranks : Ranks
    name : str
    scale, shift : ndarray of shape (width,)
    """

    epsilon = 1e-5

    def __init__(self, ranks: Ranks, name: str, scale: Array, shift: Array) -> None:
        self.ranks, self.name, self.width = ranks, name, scale.size
        spans = [ranks.span(scale.size, "x", 1, rank) for rank in ranks.all]
        self.scale = [scale[s] for s in spans]
        self.shift = [shift[s] for s in spans]
        self.gradient: list[Array] = []

    def _sums(self, first: list[Array], second: list[Array], phase: str) -> list[Array]:
        both = [np.stack([a.sum(axis=1), b.sum(axis=1)], axis=1) for a, b in zip(first, second)]
        return self.ranks.comm.all_reduce(both, "x", (self.name, phase, "sums"))

    def forward(self, x: list[Array], phase: str = "forward") -> tuple[list[Array], Any]:
        """Normalised rows of all ranks, and what the backward pass needs."""
        sums = self._sums(x, [a * a for a in x], phase)
        mean = [s[:, :1] / self.width for s in sums]
        inverse = [
            1 / np.sqrt(s[:, 1:] / self.width - m * m + self.epsilon) for s, m in zip(sums, mean)
        ]
        unit = [(a - m) * r for a, m, r in zip(x, mean, inverse)]
        y = [u * g + b for u, g, b in zip(unit, self.scale, self.shift)]
        return y, (unit, inverse)

    def backward(self, saved: Any, dy: list[Array]) -> list[Array]:
        """dX of all ranks; the gradients of scale and shift stay in `gradient`."""
        unit, inverse = saved
        scaled = [d * g for d, g in zip(dy, self.scale)]
        sums = self._sums(scaled, [d * u for d, u in zip(scaled, unit)], "backward")
        self.gradient = [np.stack([(d * u).sum(axis=0), d.sum(axis=0)]) for d, u in zip(dy, unit)]
        return [
            (d - (s[:, :1] + u * s[:, 1:]) / self.width) * r
            for d, s, u, r in zip(scaled, sums, unit, inverse)
        ]

    def synchronize(self) -> None:
        """All-reduce of the gradients over z and over the data-parallel replicas."""
        for axis in ("z", "data"):
            self.gradient = self.ranks.comm.all_reduce(
                self.gradient, axis, (self.name, "sync", "dW")
            )

    def collected_gradient(self) -> Array:
        """Gradients of scale and shift, shape (2, width); all replicas must agree."""
        whole = np.full((2, self.width), np.nan)
        for rank in self.ranks.all:
            columns = self.ranks.span(self.width, "x", 1, rank)
            _agree(whole[:, columns], self.gradient[rank], rank)
            whole[:, columns] = self.gradient[rank]
        return whole


def gelu(x: Array) -> Array:
    """The tanh form of the Gaussian error linear unit."""
    return 0.5 * x * (1 + np.tanh(_GELU * (x + 0.044715 * x**3)))


def gelu_gradient(x: Array) -> Array:
    """Derivative of `gelu`."""
    t = np.tanh(_GELU * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _GELU * (1 + 3 * 0.044715 * x * x)


_GELU = float(np.sqrt(2 / np.pi))


def run_mlp(
    layers: tuple[Linear, ...],
    weights: list[Array],
    x: Array,
    dy: Array,
    grid: Grid,
    *,
    recompute: bool = False,
    cache_weights: bool = False,
) -> tuple[Array, Array, list[Array], Communicator]:
    """Forward and backward of a multi-layer perceptron with GELU between its layers.

    Parameters
    ----------
    layers : tuple of Linear
        Alternately ordinary and transposed.
    weights : list of ndarray
        Whole weight matrices (k, n).
    x, dy : ndarray of shape (samples, k of the first), (samples, n of the last)
    grid : Grid
    recompute, cache_weights : bool
        As in `nestopt.fourd.decomposition.layer_collectives`.

    Returns
    -------
    y, dx : ndarray
        Whole output and input gradient.
    gradients : list of ndarray
        Whole dW of each layer.
    comm : Communicator
        With the bytes counted.
    """
    ranks = Ranks(grid, x.shape[0], 1)
    emulated = [
        EmulatedLinear(ranks, layer, w, cache=cache_weights) for layer, w in zip(layers, weights)
    ]

    def forward(phase: str) -> tuple[list[list[Array]], list[list[Array]]]:
        inputs, outputs = [], []
        state = ranks.deal(x[:, None, :], layers[0].contraction)
        for index, layer in enumerate(emulated):
            inputs.append(state)
            outputs.append(layer.forward(state, phase))
            if not recompute or phase == "forward":
                layer.release()
            last = index == len(emulated) - 1
            state = outputs[-1] if last else [gelu(a) for a in outputs[-1]]
        return inputs, outputs

    inputs, outputs = forward("forward")
    y = ranks.collect(outputs[-1], layers[-1].n, layers[-1].output)
    if recompute:
        inputs, outputs = forward("recompute")
    gradient = ranks.deal(dy[:, None, :], layers[-1].output)
    for index in reversed(range(len(layers))):
        if index < len(layers) - 1:
            gradient = [g * gelu_gradient(a) for g, a in zip(gradient, outputs[index])]
        gradient = emulated[index].backward(inputs[index], gradient)
    for emulated_layer in emulated:
        emulated_layer.synchronize()
    dx = ranks.collect(gradient, layers[0].k, layers[0].contraction)
    return y[:, 0], dx[:, 0], [e.collected_gradient() for e in emulated], ranks.comm
