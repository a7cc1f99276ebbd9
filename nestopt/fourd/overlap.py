"""Exposed communication of one iteration under AxoNN's overlaps, as formulas.

With F a layer's forward product, dX and dW its two backward products, AG, AR, RS and AR' the
all-gather of W, the all-reduce of Y, the reduce-scatter of dW and the all-reduce of dX:

- **OAR** hides AR' behind dW: ``max(0, AR' - dW)`` stays exposed;
- **OAG** prefetches the next layer's weights: ``max(0, AG - F of the layer before)``, and the
  first AG;
- **ORS** waits for reduce-scatters at the end of the backward pass only: of those under way what
  the products before the next AR' do not hide delays it, and the last one stays;
- a **data-parallel** all-reduce follows its layer's reduce-scatter and hides like it;
- **weight caching** drops the second AG;
- **two-way over-decomposition** halves the batch, one half computing while the other
  communicates: ``max(0, (AR - F)/2) + max(0, (AR - F of the next layer)/2)``.

What is under way on the communication stream when something is needed from it delays it; the
formulas carry that backlog from layer to layer. `nestopt.fourd.simulate` plays the same iteration
event by event.

References
----------
Singh, Sating, Bhatele, arXiv 2305.13525, sections on overlapping and on over-decomposition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BlockTimes", "Exposed", "LayerTimes", "Overlap", "compute_seconds", "exposed"]


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Seconds of the parts of one layer (0 where there is nothing to do).

    Attributes
    ----------
    name : str
    forward, input_gradient, weight_gradient : float
        Products F, dX, dW, with the elementwise work before them.
    gather, gather_again : float
        All-gather of W for the forward pass, and for the recomputation or backward pass.
    reduce, reduce_gradient, scatter : float
        All-reduce of Y, all-reduce of dX, reduce-scatter of dW.
    sync : float
        Data-parallel all-reduce of dW.
    """

    name: str
    forward: float
    input_gradient: float
    weight_gradient: float
    gather: float = 0.0
    gather_again: float = 0.0
    reduce: float = 0.0
    reduce_gradient: float = 0.0
    scatter: float = 0.0
    sync: float = 0.0


@dataclass(frozen=True, slots=True)
class BlockTimes:
    """Consecutive layers that are recomputed together, or not at all."""

    layers: tuple[LayerTimes, ...]
    recompute: bool = True


@dataclass(frozen=True, slots=True)
class Overlap:
    """Which overlaps are on: OAR, ORS, OAG, data-parallel, weight caching, over-decomposition."""

    all_reduce: bool = False
    reduce_scatter: bool = False
    all_gather: bool = False
    data: bool = False
    cache_weights: bool = False
    two_way: bool = False


@dataclass(frozen=True, slots=True)
class Exposed:
    """Compute and exposed communication of an iteration, in seconds.

    Attributes
    ----------
    compute, gather, reduce, scatter, sync : float
        All compute; then exposed all-gathers, all-reduces of Y and dX, reduce-scatters, and
        data-parallel all-reduces.
    """

    compute: float
    gather: float
    reduce: float
    scatter: float
    sync: float

    @property
    def communication(self) -> float:
        """All exposed communication."""
        return self.gather + self.reduce + self.scatter + self.sync

    @property
    def total(self) -> float:
        """Iteration time."""
        return self.compute + self.communication


def compute_seconds(blocks: Sequence[BlockTimes]) -> float:
    """Time of all products, recomputation included."""
    return sum(layer.forward for block in blocks for layer in block.layers) + sum(
        _backward_compute(block) for block in blocks
    )


def exposed(blocks: Sequence[BlockTimes], overlap: Overlap) -> Exposed:
    """Exposed communication of an iteration by the formulas above.

    Parameters
    ----------
    blocks : sequence of BlockTimes
        In forward order.
    overlap : Overlap
    """
    gather, reduce, scatter = _Walk(overlap, sync=False).walk(blocks)
    sync = sum(layer.sync for block in blocks for layer in block.layers)
    if overlap.data:
        sync = sum(_Walk(overlap, sync=True).walk(blocks)) - (gather + reduce + scatter)
    return Exposed(compute_seconds(blocks), gather, reduce, scatter, sync)


class _Walk:
    """Sums the exposed terms layer by layer.

    `backlog` is the communication still under way, that nothing has waited for yet, when the
    products at hand begin.
    """

    def __init__(self, overlap: Overlap, *, sync: bool) -> None:
        self.overlap, self.sync = overlap, sync
        self.gather = self.reduce = self.scatter = self.backlog = 0.0

    def walk(self, blocks: Sequence[BlockTimes]) -> tuple[float, float, float]:
        """Exposed all-gathers, all-reduces and reduce-scatters (with syncs, if asked)."""
        layers = [layer for block in blocks for layer in block.layers]
        gathers = [layer.gather for layer in layers]
        self._forward(layers, gathers)
        again = 0.0 if self.overlap.cache_weights else 1.0
        for index in reversed(range(len(blocks))):
            block = blocks[index]
            first = index == len(blocks) - 1
            ahead = 0.0
            if index > 0:
                below = blocks[index - 1]
                ahead = again * below.layers[0 if below.recompute else -1].gather_again
            layers = list(block.layers)
            gathers = [again * layer.gather_again for layer in layers]
            if block.recompute:
                self._forward(layers, gathers, first=first)
                gathers = [0.0] * len(layers)
            for layer, gather, following in zip(
                reversed(layers), reversed(gathers), reversed([ahead, *gathers[:-1]])
            ):
                if first or not self.overlap.all_gather:
                    self._block(gather)
                first = False
                self._backward(layer, following if self.overlap.all_gather else 0.0)
        return self.gather, self.reduce, self.scatter + self.backlog

    def _forward(
        self, layers: list[LayerTimes], gathers: list[float], *, first: bool = True
    ) -> None:
        """A forward pass, its last layer's backward pass next; its `first` gather is not hidden."""
        prefetch = self.overlap.all_gather
        for index, layer in enumerate(layers):
            if not prefetch or (index == 0 and first):
                self._block(gathers[index])
            queued = gathers[index + 1] if prefetch and index + 1 < len(layers) else 0.0
            self._wait(layer.forward, queued, needed=queued > 0 or layer.reduce > 0)
        if not self.overlap.two_way:
            self.reduce += sum(layer.reduce for layer in layers)
            return
        after = layers[-1].input_gradient + layers[-1].weight_gradient
        following = [*(layer.forward for layer in layers[1:]), after]
        blocking = [not prefetch and gather > 0 for gather in [*gathers[1:], 0.0]]
        for layer, product, blocked in zip(layers, following, blocking):
            self.reduce += max(0.0, layer.reduce - layer.forward) / 2
            if blocked:  # the second half's all-reduce ends before the gather begins
                product = 0.0
            self.reduce += max(0.0, layer.reduce - product) / 2

    def _block(self, gather: float) -> None:
        """A gather that nothing hides; it waits for the backlog."""
        if gather > 0:
            self.scatter += self.backlog
            self.backlog = 0.0
            self.gather += gather

    def _wait(self, product: float, queued: float, *, needed: bool) -> None:
        """A product beside the backlog and a queued gather, which must end if it is `needed`."""
        left = max(0.0, self.backlog + queued - product)
        self.backlog = 0.0 if needed else left
        if needed:
            gather = max(0.0, queued - product)
            self.gather += gather
            self.scatter += left - gather

    def _backward(self, layer: LayerTimes, queued: float) -> None:
        """The two products of a layer, with the gather that is prefetched beside them."""
        overlap = self.overlap
        products = layer.input_gradient + layer.weight_gradient
        if layer.reduce_gradient > 0:
            hidden = layer.weight_gradient if overlap.all_reduce else 0.0
            if overlap.two_way:
                hidden = products
            late = max(0.0, self.backlog + queued - layer.input_gradient)
            if overlap.two_way and layer.scatter > 0 and not overlap.reduce_scatter:
                hidden = min(products, layer.reduce_gradient) / 2  # the second half has no cover
            waited = max(0.0, layer.reduce_gradient - hidden)
            self.reduce += waited
            self.scatter += max(0.0, late + layer.reduce_gradient - hidden) - waited
            self.backlog = 0.0
        else:
            self._wait(products, queued, needed=queued > 0)
        self.backlog += layer.scatter
        if not overlap.reduce_scatter and layer.scatter > 0:
            self.scatter += self.backlog
            self.backlog = 0.0
        if self.sync:
            self.backlog += layer.sync


def _backward_compute(block: BlockTimes) -> float:
    again = 1 if block.recompute else 0
    return sum(
        again * layer.forward + layer.input_gradient + layer.weight_gradient
        for layer in block.layers
    )
