"""Rank order, shards, and the schemes that are special cases."""

from __future__ import annotations

from itertools import pairwise
from math import prod

import pytest

from nestopt.core.errors import InputError
from nestopt.fourd.decomposition import (
    Batch,
    Grid,
    Linear,
    extent,
    factorizations,
    layer_collectives,
    offset,
    shards,
)
from nestopt.fourd.network import block, mlp, model_collectives, parameters
from nestopt.placement.model.transformer import Transformer

GPT = Transformer(layers=4, hidden=64, heads=8, sequence=32, vocabulary=256)


def volumes(grid: Grid, batch: Batch) -> dict[tuple[str, str, str], float]:
    """Bytes that a rank sends for one block, by phase, kind and axis."""
    total: dict[tuple[str, str, str], float] = {}
    for layer in block(GPT):
        for c in layer_collectives(layer, grid, batch):
            key = (c.phase, c.kind, c.axis)
            total[key] = total.get(key, 0.0) + c.wire_bytes
    return total


def test_ranks_are_ordered_x_y_z_pipeline_data() -> None:
    grid = Grid(2, 3, 2, 2, pipeline=5)
    assert grid.ranks == 120
    assert grid.group(0, "x") == (0, 1)
    assert grid.group(1, "y") == (1, 3, 5)
    assert grid.group(0, "z") == (0, 6)
    assert grid.group(0, "pipeline") == (0, 12, 24, 36, 48)
    assert grid.group(61, "data") == (1, 61)
    assert [grid.preceding(a) for a in ("x", "y", "z", "pipeline", "data")] == [1, 2, 6, 12, 60]


def test_every_rank_is_in_one_group_per_axis() -> None:
    for grid in factorizations(24):
        for axis in ("x", "y", "z", "data"):
            members = sorted(
                r for rank in range(24) if grid.coordinate(rank, axis) == 0
                for r in grid.group(rank, axis)
            )  # fmt: skip
            assert members == list(range(24))


def test_factorizations_are_all_of_them() -> None:
    found = {(g.x, g.y, g.z, g.data) for g in factorizations(12)}
    assert len(found) == len(list(factorizations(12))) == 40
    assert all(prod(sizes) == 12 for sizes in found)


def test_a_grid_needs_positive_sizes() -> None:
    with pytest.raises(InputError, match=r"z: .*found 0|found 0: z"):
        Grid(1, 1, 0)


def test_split_deals_whole_units_evenly() -> None:
    assert [extent(10, 4, i) for i in range(4)] == [3, 3, 2, 2]
    assert [offset(12, 2, i, 4) for i in range(3)] == [0, 8, 12]
    with pytest.raises(InputError, match="10 is not a whole number of units of 4"):
        offset(10, 2, 1, 4)


@pytest.mark.parametrize("grid", [Grid(2, 3, 2, 2), Grid(3, 1, 4, 1), Grid(1, 5, 1, 3)])
def test_shards_cover_every_tensor_once_per_replica(grid: Grid) -> None:
    for transposed in (False, True):
        layer = Linear("w", 17, 13, transposed)
        held = dict.fromkeys(("X", "W", "Y", "dX", "dW", "dY"), 0)
        copies = {}
        for rank in range(grid.ranks):
            for name, shard in shards(layer, grid, 19, rank, tokens=2).items():
                held[name] += shard.elements
                copies[name] = prod(grid.size(axis) for axis in shard.replicas)
        sizes = {"X": 38 * 17, "W": 17 * 13, "Y": 38 * 13}
        for name, total in held.items():
            assert total == sizes[name.removeprefix("d")] * copies[name], name


def test_output_of_a_layer_is_laid_out_as_the_input_of_the_next() -> None:
    grid = Grid(2, 3, 2, 1)
    layers = mlp((10, 11, 12, 13))
    for one, two in pairwise(layers):
        for rank in range(grid.ranks):
            y = shards(one, grid, 9, rank)["Y"]
            x = shards(two, grid, 9, rank)["X"]
            assert (y.shape, y.split, y.replicas) == (x.shape, x.split, x.replicas)


def test_megatron_tensor_parallelism_prices_the_same() -> None:
    """Two all-reduces of b s h forward, two backward (Shoeybi et al. 2019); d-way data parallel."""
    t, d, samples = 4, 2, 8
    activation = 2 * (samples / d) * GPT.sequence * GPT.hidden
    ring = 2 * (t - 1) / t * activation
    weights = 4 * 12 * GPT.hidden**2 / t
    assert volumes(Grid(1, t, 1, d), Batch(samples, GPT.sequence, 2, 4)) == pytest.approx(
        {
            ("forward", "all-reduce", "y"): 2 * ring,
            ("backward", "all-reduce", "y"): 2 * ring,
            ("sync", "all-reduce", "data"): 2 * (d - 1) / d * weights,
        }
    )


def test_fsdp_prices_the_same() -> None:
    """Weights gathered forward and backward, gradients scattered (Rajbhandari et al. 2020)."""
    z = 8
    weights = 2 * 12 * GPT.hidden**2 * (z - 1) / z
    assert volumes(Grid(1, 1, z), Batch(16, GPT.sequence)) == pytest.approx(
        {
            ("forward", "all-gather", "z"): weights,
            ("backward", "all-gather", "z"): weights,
            ("backward", "reduce-scatter", "z"): weights,
        }
    )


def test_weight_stationary_2d_prices_the_same() -> None:
    """Feed-forward layer of Pope et al. 2022 (arXiv 2211.05102), weight-stationary 2D.

    E over x, F over y: an all-gather and a reduce-scatter of rows E / X over y, and one of each of
    rows F / Y over x; each pair is our all-reduce.
    """
    x, y, samples = 2, 4, 8
    rows = samples * GPT.sequence
    fc1, fc2 = block(GPT)[2:]
    moved = {"x": 0.0, "y": 0.0}
    for layer in (fc1, fc2):
        for c in layer_collectives(layer, Grid(x, y), Batch(samples, GPT.sequence)):
            if c.phase == "forward":
                moved[c.axis] += c.wire_bytes
    assert moved == pytest.approx(
        {
            "x": 2 * (x - 1) / x * 2 * rows * 4 * GPT.hidden / y,
            "y": 2 * (y - 1) / y * 2 * rows * GPT.hidden / x,
        }
    )


def test_depth_of_a_25d_scheme_is_data_parallelism() -> None:
    """2.5D tensor parallelism (Tesseract): q x q layers of depth d share the batch.

    Each depth layer moves what the 2D scheme moves for its part of the batch, and the weights,
    replicated over the depth, are all-reduced once.
    """
    q, depth = 2, 3
    flat = volumes(Grid(q, q), Batch(4, GPT.sequence, 2, 2))
    deep = volumes(Grid(q, q, 1, depth), Batch(4 * depth, GPT.sequence, 2, 2))
    sync = deep.pop(("sync", "all-reduce", "data"))
    assert deep == pytest.approx(flat)
    assert sync == pytest.approx(2 * (depth - 1) / depth * 2 * 12 * GPT.hidden**2 / q**2)


def test_recomputation_and_caching_change_what_is_gathered() -> None:
    grid = Grid(2, 2, 4)
    plain = volumes(grid, Batch(8, GPT.sequence))
    again = volumes(grid, Batch(8, GPT.sequence, recompute=True))
    cached = volumes(grid, Batch(8, GPT.sequence, recompute=True, cache_weights=True))
    gather = plain["forward", "all-gather", "z"]
    assert again["recompute", "all-gather", "z"] == gather
    assert ("backward", "all-gather", "z") not in again
    assert ("recompute", "all-gather", "z") not in cached
    for axis in "xy":
        reduce = plain["forward", "all-reduce", axis]
        assert again["recompute", "all-reduce", axis] == reduce
        assert cached["recompute", "all-reduce", axis] == reduce


def test_one_rank_communicates_nothing() -> None:
    assert model_collectives(GPT, Grid(), Batch(4, GPT.sequence, recompute=True)) == []


def test_grouped_queries_and_gates_keep_whole_key_heads_together() -> None:
    model = Transformer(2, 64, 8, 16, 128, kv_heads=2, ffn=96, gated=True, tied=False)
    qkv, proj, fc1, fc2 = block(model)
    assert (qkv.n, qkv.n_unit) == (64 + 2 * 16, 48)
    assert (proj.k, proj.k_unit) == (64, 32)
    assert (fc1.n, fc2.k) == (192, 96)
    assert parameters(model) == 2 * (64 * 96 + 64 * 64 + 64 * 192 + 96 * 64) + 2 * 128 * 64


def test_experts_are_refused() -> None:
    model = Transformer(2, 64, 8, 16, 128, experts=4, top_k=1)
    with pytest.raises(InputError, match="mixture of experts"):
        block(model)
