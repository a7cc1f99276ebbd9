"""The emulator's transformer: embedding, blocks, head and loss on all ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.fourd.emulator import EmulatedLinear, EmulatedNorm, Ranks, gelu, gelu_gradient
from nestopt.fourd.network import block, embedding, head

if TYPE_CHECKING:
    from nestopt.fourd.collectives import Array, Communicator
    from nestopt.fourd.decomposition import Grid
    from nestopt.placement.model.transformer import Transformer

    Integers = np.ndarray[Any, np.dtype[np.int64]]

__all__ = ["LanguageModelRun", "random_weights", "run_language_model"]


@dataclass(frozen=True, slots=True)
class LanguageModelRun:
    """Loss (summed over all tokens), whole gradients by name, and the counted traffic."""

    loss: float
    gradients: dict[str, Array]
    comm: Communicator


def random_weights(model: Transformer, rng: np.random.Generator) -> dict[str, Array]:
    """Weights of every layer and (scale, shift) of every norm, by name."""
    weights = {}
    layers = [embedding(model), head(model)]
    norm_names = ["norm"]
    for index in range(model.layers):
        layers += [replace(layer, name=f"{index}.{layer.name}") for layer in block(model)]
        norm_names += [f"{index}.norm1", f"{index}.norm2"]
    for layer in layers:
        weights[layer.name] = rng.normal(size=(layer.k, layer.n)) / np.sqrt(layer.k)
    for name in norm_names:
        weights[name] = rng.normal(size=(2, model.hidden))
    return weights


class _Block:
    """A pre-norm transformer block on all ranks; the heads are split over y."""

    def __init__(
        self, ranks: Ranks, model: Transformer, index: int, weights: dict[str, Array], cache: bool
    ) -> None:
        self.ranks, self.model = ranks, model
        self.linear = {
            layer.name: EmulatedLinear(
                ranks,
                replace(layer, name=f"{index}.{layer.name}"),
                weights[f"{index}.{layer.name}"],
                cache=cache,
            )
            for layer in block(model)
        }
        self.norm = {
            name: EmulatedNorm(ranks, f"{index}.{name}", *weights[f"{index}.{name}"])
            for name in ("norm1", "norm2")
        }

    def forward(self, x: list[Array], phase: str) -> tuple[list[Array], dict[str, Any]]:
        saved: dict[str, Any] = {}
        normed, saved["norm1"] = self.norm["norm1"].forward(x, phase)
        saved["qkv"] = normed
        qkv = self.linear["qkv"].forward(normed, phase)
        attended = [_attention(a, *self._shape(a, r)) for r, a in enumerate(qkv)]
        saved["attention"] = [(p, parts) for _, p, parts in attended]
        saved["proj"] = [out for out, _, _ in attended]
        projected = self.linear["proj"].forward(saved["proj"], phase)
        middle = [a + b for a, b in zip(x, projected)]
        normed, saved["norm2"] = self.norm["norm2"].forward(middle, phase)
        saved["fc1"] = normed
        saved["gelu"] = self.linear["fc1"].forward(normed, phase)
        saved["fc2"] = [gelu(a) for a in saved["gelu"]]
        out = self.linear["fc2"].forward(saved["fc2"], phase)
        return [a + b for a, b in zip(middle, out)], saved

    def release(self) -> None:
        for layer in self.linear.values():
            layer.release()

    def backward(self, saved: dict[str, Any], dy: list[Array]) -> list[Array]:
        back = self.linear["fc2"].backward(saved["fc2"], dy)
        back = [g * gelu_gradient(a) for g, a in zip(back, saved["gelu"])]
        back = self.linear["fc1"].backward(saved["fc1"], back)
        back = self.norm["norm2"].backward(saved["norm2"], back)
        middle = [a + b for a, b in zip(dy, back)]
        back = self.linear["proj"].backward(saved["proj"], middle)
        back = [_attention_gradient(g, *kept) for g, kept in zip(back, saved["attention"])]
        back = self.linear["qkv"].backward(saved["qkv"], back)
        back = self.norm["norm1"].backward(saved["norm1"], back)
        return [a + b for a, b in zip(middle, back)]

    def _shape(self, qkv: Array, rank: int) -> tuple[int, int, int, int]:
        width = self.model.hidden // self.model.heads
        return self.ranks.rows[rank], self.ranks.tokens, qkv.shape[1] // (3 * width), width


def _attention(qkv: Array, samples: int, tokens: int, heads: int, width: int) -> Any:
    """Causal attention of whole samples and heads; the output's columns are head by head."""
    q, k, v = np.moveaxis(qkv.reshape(samples, tokens, heads, 3, width), (3, 2), (0, 2))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(width)
    scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    out = np.moveaxis(p @ v, 1, 2).reshape(samples * tokens, heads * width)
    return out, p, (q, k, v)


def _attention_gradient(dout: Array, p: Array, parts: tuple[Array, Array, Array]) -> Array:
    q, k, v = parts
    samples, heads, tokens, width = q.shape
    dout = np.moveaxis(dout.reshape(samples, tokens, heads, width), 2, 1)
    dv = p.swapaxes(-1, -2) @ dout
    dp = dout @ v.swapaxes(-1, -2)
    ds = p * (dp - (dp * p).sum(axis=-1, keepdims=True)) / np.sqrt(width)
    grads = np.stack([ds @ k, ds.swapaxes(-1, -2) @ q, dv])
    return np.moveaxis(grads, (0, 2), (3, 2)).reshape(samples * tokens, heads * 3 * width)


def run_language_model(
    model: Transformer,
    weights: dict[str, Array],
    tokens: Integers,
    targets: Integers,
    grid: Grid,
    *,
    recompute: bool = False,
    cache_weights: bool = False,
) -> LanguageModelRun:
    """Forward and backward of a small language model under a 4D decomposition.

    Parameters
    ----------
    model : Transformer
    weights : dict
        As `random_weights` makes them.
    tokens, targets : ndarray of int, shape (samples, sequence)
    grid : Grid
    recompute, cache_weights : bool
        As in `nestopt.fourd.network.model_collectives`.
    """
    ranks = Ranks(grid, tokens.shape[0], model.sequence)
    embed = EmulatedLinear(ranks, embedding(model), weights["embedding"], cache=cache_weights)
    blocks = [_Block(ranks, model, i, weights, cache_weights) for i in range(model.layers)]
    norm = EmulatedNorm(ranks, "norm", *weights["norm"])
    top = EmulatedLinear(ranks, head(model), weights["head"], cache=True)

    ids = [_rank_ids(tokens, ranks, rank) for rank in ranks.all]
    state = embed.reduce_output(_look_up(embed, ids), "forward")
    embed.release()
    inputs, saved = [], []
    for layer in blocks:
        inputs.append(state)
        state, kept = layer.forward(state, "forward")
        saved.append(kept)
        layer.release()
    normed, kept_norm = norm.forward(state)
    logits = top.forward(normed)
    wanted = [_rank_ids(targets, ranks, rank) for rank in ranks.all]
    loss, back = _cross_entropy(ranks, logits, wanted, model.vocabulary)

    back = norm.backward(kept_norm, top.backward(normed, back))
    for index in reversed(range(model.layers)):
        if recompute:
            _, saved[index] = blocks[index].forward(inputs[index], "recompute")
        back = blocks[index].backward(saved[index], back)
    embed.scatter_gradient(_look_up_gradient(embed, ids, back))

    emulated: dict[str, EmulatedLinear | EmulatedNorm] = {
        "embedding": embed,
        "norm": norm,
        "head": top,
    }
    for index, layer in enumerate(blocks):
        emulated |= {f"{index}.{name}": part for name, part in layer.linear.items()}
        emulated |= {f"{index}.{name}": part for name, part in layer.norm.items()}
    for part in emulated.values():
        part.synchronize()
    gradients = {name: part.collected_gradient() for name, part in emulated.items()}
    return LanguageModelRun(loss, gradients, ranks.comm)


def _rank_ids(ids: Integers, ranks: Ranks, rank: int) -> Integers:
    first = ranks.first_sample(rank)
    return ids[first : first + ranks.rows[rank]].ravel()


def _look_up(embed: EmulatedLinear, ids: list[Integers]) -> list[Array]:
    """One-hot times table: rows of the rank's part of the vocabulary, else zero."""
    partial = []
    for (span, _), table, wanted in zip(embed.spans, embed.gathered("forward"), ids):
        rows = np.zeros((wanted.size, table.shape[1]))
        mine = (wanted >= span.start) & (wanted < span.stop)
        rows[mine] = table[wanted[mine] - span.start]
        partial.append(rows)
    return partial


def _look_up_gradient(embed: EmulatedLinear, ids: list[Integers], back: list[Array]) -> list[Array]:
    partial = []
    for (span, columns), wanted, gradient in zip(embed.spans, ids, back):
        table = np.zeros((span.stop - span.start, columns.stop - columns.start))
        mine = (wanted >= span.start) & (wanted < span.stop)
        np.add.at(table, wanted[mine] - span.start, gradient[mine])
        partial.append(table)
    return partial


def _cross_entropy(
    ranks: Ranks, logits: list[Array], targets: list[Integers], vocabulary: int
) -> tuple[float, list[Array]]:
    """Summed loss and logit gradients, the vocabulary being split over y."""
    comm = ranks.comm
    top = comm.all_reduce(
        [a.max(axis=1, initial=-np.inf) for a in logits],
        "y",
        ("loss", "forward", "max"),
        np.maximum,
    )
    exponentials = [np.exp(a - m[:, None]) for a, m in zip(logits, top)]
    local, hits = [], []
    for rank, (a, e, wanted) in enumerate(zip(logits, exponentials, targets)):
        span = ranks.span(vocabulary, "y", 1, rank)
        mine = np.flatnonzero((wanted >= span.start) & (wanted < span.stop))
        hit = np.zeros_like(a)
        hit[mine, wanted[mine] - span.start] = 1
        hits.append(hit)
        local.append(np.stack([e.sum(axis=1), (a * hit).sum(axis=1)], axis=1))
    sums = comm.all_reduce(local, "y", ("loss", "forward", "sums"))
    gradient = [e / s[:, :1] - h for e, s, h in zip(exponentials, sums, hits)]
    grid = ranks.grid
    loss = sum(
        float((np.log(s[:, 0]) + m - s[:, 1]).sum())
        for rank, (s, m) in enumerate(zip(sums, top))
        if grid.coordinate(rank, "x") == grid.coordinate(rank, "y") == 0
    )
    return loss, gradient
