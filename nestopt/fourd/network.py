"""Layers of a transformer as the 4D decomposition sees them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from nestopt.errors import InputError
from nestopt.fourd.decomposition import (
    Linear,
    Norm,
    layer_collectives,
    loss_collectives,
    norm_collectives,
)

if TYPE_CHECKING:
    from nestopt.fourd.decomposition import Batch, Collective, Grid

__all__ = ["Transformer", "block", "embedding", "head", "mlp", "model_collectives", "norms"]


@dataclass(frozen=True, slots=True)
class Transformer:
    """Sizes of a GPT-like transformer.

    Attributes
    ----------
    name : str
    layers, hidden, heads, sequence, vocabulary : int
    min_tensor : int
        Least Gx Gy Gz that AxoNN's launcher allows (its stand-in for a memory model).
    """

    name: str
    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    min_tensor: int = 1

    def __post_init__(self) -> None:
        if min(self.layers, self.hidden, self.heads, self.sequence, self.vocabulary) < 1:
            raise InputError(f"{self.name}: every size of a transformer must be at least 1")
        if self.hidden % self.heads:
            raise InputError(
                f"{self.name}: hidden size {self.hidden} is no multiple of {self.heads} heads"
            )

    @property
    def parameters(self) -> int:
        """Weights of the blocks and of the tied embedding: 12 L h^2 + V h."""
        return 12 * self.layers * self.hidden**2 + self.vocabulary * self.hidden

    def flops(self, batch: int, *, recompute: bool) -> float:
        """FLOPs of an iteration by the usual formula.

        96 B s L h^2 (1 + s/6h + V/16Lh) with full recomputation, else
        72 B s L h^2 (1 + s/6h + V/12Lh).

        References
        ----------
        Narayanan et al., arXiv 2104.04473, equation 3.
        """
        length, hidden = self.sequence, self.hidden
        passes, share = (96, 16) if recompute else (72, 12)
        factor = 1 + length / (6 * hidden) + self.vocabulary / (share * self.layers * hidden)
        return passes * batch * length * self.layers * hidden**2 * factor


def block(model: Transformer) -> tuple[Linear, Linear, Linear, Linear]:
    """The four fully connected layers of a block: qkv, proj, fc1, fc2.

    qkv and fc1 are ordinary, proj and fc2 transposed; the attention heads are split over y.
    """
    hidden, width = model.hidden, model.hidden // model.heads
    return (
        Linear("qkv", hidden, 3 * hidden, n_unit=3 * width),
        Linear("proj", hidden, hidden, transposed=True, k_unit=width),
        Linear("fc1", hidden, 4 * hidden),
        Linear("fc2", 4 * hidden, hidden, transposed=True),
    )


def norms(model: Transformer) -> tuple[Norm, Norm]:
    """The two layer normalisations of a block."""
    return Norm("norm1", model.hidden), Norm("norm2", model.hidden)


def embedding(model: Transformer) -> Linear:
    """The embedding: a transposed layer whose input is one-hot, vocabulary over y."""
    return Linear(
        "embedding", model.vocabulary, model.hidden, transposed=True, input_gradient=False
    )


def head(model: Transformer) -> Linear:
    """The output head: an ordinary layer, vocabulary over y."""
    return Linear("head", model.hidden, model.vocabulary)


def mlp(widths: tuple[int, ...]) -> tuple[Linear, ...]:
    """Fully connected layers between consecutive widths, every second one transposed."""
    return tuple(
        Linear(f"fc{i}", k, n, transposed=i % 2 == 1) for i, (k, n) in enumerate(pairwise(widths))
    )


def model_collectives(
    model: Transformer, grid: Grid, batch: Batch, rank: int | None = None
) -> list[Collective]:
    """Every collective of one iteration of a language model: embedding, blocks, norms, head, loss.

    Layers are named ``0.qkv``, ``0.norm1``, ...; only the blocks are recomputed, and the head
    keeps its gathered weights, since its backward pass follows at once. `rank` is as in
    `layer_collectives`; `batch.tokens` is the model's sequence.
    """
    plain = replace(batch, recompute=False)
    found = layer_collectives(embedding(model), grid, plain, rank)
    for index in range(model.layers):
        for norm in norms(model):
            named = replace(norm, name=f"{index}.{norm.name}")
            found += norm_collectives(named, grid, batch, rank)
        for layer in block(model):
            named_layer = replace(layer, name=f"{index}.{layer.name}")
            found += layer_collectives(named_layer, grid, batch, rank)
    found += norm_collectives(Norm("norm", model.hidden), grid, plain, rank)
    found += layer_collectives(head(model), grid, replace(plain, cache_weights=True), rank)
    return found + loss_collectives(grid, plain, rank)
