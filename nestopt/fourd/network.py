"""Layers of a transformer as the 4D decomposition sees them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from nestopt.core.errors import InputError
from nestopt.fourd.decomposition import (
    Linear,
    Norm,
    layer_collectives,
    loss_collectives,
    norm_collectives,
)

if TYPE_CHECKING:
    from nestopt.fourd.decomposition import Batch, Collective, Grid
    from nestopt.placement.model.transformer import Transformer

__all__ = [
    "block",
    "embedding",
    "head",
    "iteration_flops",
    "mlp",
    "model_collectives",
    "norms",
    "parameters",
]


def block(model: Transformer) -> tuple[Linear, Linear, Linear, Linear]:
    """The four fully connected layers of a block: qkv, proj, fc1, fc2.

    qkv and fc1 are ordinary, proj and fc2 transposed; the attention heads (with grouped queries: a
    key head and its query heads) are split over y.

    Raises
    ------
    InputError
        If the model has experts, for which the scheme has no layout.
    """
    if model.experts:
        raise InputError("a mixture of experts has no 4D decomposition", field="experts")
    hidden, query, key = model.hidden, model.query_width, model.key_width
    shared = query // model.key_heads
    together = (query + 2 * key) // model.key_heads
    return (
        Linear("qkv", hidden, query + 2 * key, n_unit=together),
        Linear("proj", query, hidden, transposed=True, k_unit=shared),
        Linear("fc1", hidden, model.inner * (2 if model.gated else 1)),
        Linear("fc2", model.inner, hidden, transposed=True),
    )


def parameters(model: Transformer) -> int:
    """Weights of the fully connected layers, the embedding counted once if it is tied."""
    blocks = model.layers * sum(layer.k * layer.n for layer in block(model))
    return blocks + (1 if model.tied else 2) * model.vocabulary * model.hidden


def iteration_flops(model: Transformer, batch: int, *, recompute: bool) -> float:
    """FLOPs of an iteration by the usual formula for a dense transformer.

    96 B s L h^2 (1 + s/6h + V/16Lh) with full recomputation, else
    72 B s L h^2 (1 + s/6h + V/12Lh).

    References
    ----------
    Narayanan et al., arXiv 2104.04473, equation 3.
    """
    length, hidden = model.sequence, model.hidden
    passes, share = (96, 16) if recompute else (72, 12)
    factor = 1 + length / (6 * hidden) + model.vocabulary / (share * model.layers * hidden)
    return passes * batch * length * model.layers * hidden**2 * factor


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
