"""The emulator computes what one rank computes, and sends what the model says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sampling import slow

from nestopt.fourd.collectives import Communicator
from nestopt.fourd.decomposition import (
    Batch,
    Collective,
    Grid,
    factorizations,
    layer_collectives,
    ring_bytes,
)
from nestopt.fourd.emulated_transformer import random_weights, run_language_model
from nestopt.fourd.emulator import run_mlp
from nestopt.fourd.network import mlp, model_collectives
from nestopt.placement.model.transformer import Transformer

MODEL = Transformer(layers=2, hidden=15, heads=3, sequence=5, vocabulary=19)
MODES = [(False, False), (True, False), (True, True), (False, True)]


def assert_traffic(comm: Communicator, predicted: dict[int, list[Collective]]) -> None:
    """Every collective of every rank: the full buffer and the bytes sent, and no other."""
    grid = comm.grid
    for rank, collectives in predicted.items():
        keys = [(c.layer, c.phase, c.kind, c.axis, c.tensor) for c in collectives]
        assert sorted(keys) == sorted(comm.sent), rank
        for key, c in zip(keys, collectives):
            assert comm.buffers[key][rank] == c.elements, key
            index = grid.coordinate(rank, c.axis)
            assert comm.sent[key][rank] == ring_bytes(
                c.kind, int(c.elements), c.group, index, c.itemsize
            ), key


def mlp_case(rng: np.random.Generator, widths: tuple[int, ...], samples: int) -> Any:
    layers = mlp(widths)
    weights = [rng.normal(size=(a.k, a.n)) / np.sqrt(a.k) for a in layers]
    return (
        layers,
        weights,
        rng.normal(size=(samples, widths[0])),
        rng.normal(size=(samples, widths[-1])),
    )


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, *slow([5, 7, *range(9, 17)])])
def test_mlp_equals_one_rank_and_model(ranks: int) -> None:
    rng = np.random.default_rng(ranks)
    case = mlp_case(rng, (17, 31, 19, 13), 21)
    y, dx, dw, _ = run_mlp(*case, Grid())
    for number, grid in enumerate(factorizations(ranks)):
        recompute, cache = MODES[number % 4]
        found = run_mlp(*case, grid, recompute=recompute, cache_weights=cache)
        for ours, theirs in zip((y, dx, *dw), (found[0], found[1], *found[2])):
            np.testing.assert_allclose(theirs, ours, rtol=1e-10, atol=1e-10)
        batch = Batch(21, 1, 8, 8, recompute, cache)
        predicted = {
            rank: [c for layer in case[0] for c in layer_collectives(layer, grid, batch, rank)]
            for rank in range(ranks)
        }
        assert_traffic(found[3], predicted)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, *slow([5, 7, *range(9, 17)])])
def test_language_model_equals_one_rank_and_model(ranks: int) -> None:
    rng = np.random.default_rng(ranks)
    weights = random_weights(MODEL, rng)
    ids = rng.integers(MODEL.vocabulary, size=(2, 5, MODEL.sequence))
    one = run_language_model(MODEL, weights, ids[0], ids[1], Grid())
    for number, grid in enumerate(factorizations(ranks)):
        recompute, cache = MODES[number % 4]
        found = run_language_model(
            MODEL, weights, ids[0], ids[1], grid, recompute=recompute, cache_weights=cache
        )
        assert found.loss == pytest.approx(one.loss, rel=1e-10)
        for name, gradient in one.gradients.items():
            np.testing.assert_allclose(
                found.gradients[name], gradient, rtol=1e-10, atol=1e-10, err_msg=f"{name} {grid}"
            )
        batch = Batch(5, MODEL.sequence, 8, 8, recompute, cache)
        predicted = {rank: model_collectives(MODEL, grid, batch, rank) for rank in range(ranks)}
        assert_traffic(found.comm, predicted)


@pytest.mark.parametrize(("recompute", "cache"), MODES)
def test_even_sizes_equal_the_closed_form(recompute: bool, cache: bool) -> None:
    """Where everything divides, every rank sends exactly the ring's (g - 1)/g share."""
    model = Transformer(layers=1, hidden=16, heads=4, sequence=4, vocabulary=32)
    rng = np.random.default_rng(0)
    weights = random_weights(model, rng)
    ids = rng.integers(model.vocabulary, size=(2, 8, model.sequence))
    grid = Grid(2, 2, 2, 2)
    comm = run_language_model(
        model, weights, ids[0], ids[1], grid, recompute=recompute, cache_weights=cache
    ).comm
    predicted = model_collectives(model, grid, Batch(8, 4, 8, 8, recompute, cache))
    assert len(predicted) == len(comm.sent)
    for c in predicted:
        sent = comm.sent[c.layer, c.phase, c.kind, c.axis, c.tensor]
        assert (sent == c.wire_bytes).all(), c


def test_gradients_are_the_derivatives_of_the_loss() -> None:
    """Central differences on one rank: the reference itself is right."""
    rng = np.random.default_rng(3)
    weights = random_weights(MODEL, rng)
    ids = rng.integers(MODEL.vocabulary, size=(2, 3, MODEL.sequence))
    run = run_language_model(MODEL, weights, ids[0], ids[1], Grid())
    step = 1e-5
    for name, value in weights.items():
        direction = rng.normal(size=value.shape)
        ends = [
            run_language_model(
                MODEL, weights | {name: value + sign * step * direction}, ids[0], ids[1], Grid()
            ).loss
            for sign in (1, -1)
        ]
        slope = (ends[0] - ends[1]) / (2 * step)
        assert slope == pytest.approx(float((run.gradients[name] * direction).sum()), rel=1e-6)


def test_mlp_gradient_is_the_derivative() -> None:
    rng = np.random.default_rng(4)
    layers, weights, x, dy = mlp_case(rng, (5, 7, 6), 3)
    _, dx, dw, _ = run_mlp(layers, weights, x, dy, Grid(2, 1, 2))
    step = 1e-6

    def loss(x: Any, weights: Any) -> float:
        return float((run_mlp(layers, weights, x, dy, Grid())[0] * dy).sum())

    turn = rng.normal(size=x.shape)
    slope = (loss(x + step * turn, weights) - loss(x - step * turn, weights)) / (2 * step)
    assert slope == pytest.approx(float((dx * turn).sum()), rel=1e-6)
    turn = rng.normal(size=weights[1].shape)
    ends = [loss(x, [weights[0], weights[1] + s * step * turn]) for s in (1, -1)]
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx(float((dw[1] * turn).sum()), rel=1e-6)


def test_replicas_that_differ_are_noticed() -> None:
    from nestopt.fourd.emulator import Ranks

    ranks = Ranks(Grid(1, 2), 2, 1)
    parts = ranks.deal(np.ones((2, 1, 4)), "x")
    parts[1] = parts[1] + 1
    with pytest.raises(ArithmeticError, match="rank 1 disagrees"):
        ranks.collect(parts, 4, "x")


def test_ring_collectives_on_uneven_arrays() -> None:
    rng = np.random.default_rng(5)
    parts = [rng.normal(size=(3, 5)) for _ in range(4)]
    comm = Communicator(Grid(data=4))
    reduced = comm.all_reduce(parts, "data", ("a", "b", "c"))
    for array in reduced:
        np.testing.assert_allclose(array, sum(parts), rtol=1e-14, atol=1e-14)
    assert comm.sent["a", "b", "all-reduce", "data", "c"].sum() == 2 * 3 * 15 * 8
    highest = comm.all_reduce(parts, "data", ("a", "b", "max"), np.maximum)
    np.testing.assert_array_equal(highest[2], np.maximum.reduce(parts))
