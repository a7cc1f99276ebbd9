"""Pipelines for the tests of the simulator and of its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.judge.simulate import Pipeline

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["order_of", "pipeline", "random_pipeline"]


def pipeline(
    forward: ArrayLike,
    backward: ArrayLike,
    hop: ArrayLike | None,
    m: int,
    schedule: str = "1f1b",
    chunks: int = 1,
    sync: ArrayLike | None = None,
) -> Pipeline:
    """A pipeline; no transfers and no synchronisation if left out."""
    work = np.array(forward, float)
    idle = np.zeros(len(work))
    return Pipeline(
        work,
        np.array(backward, float),
        idle if hop is None else np.array(hop, float),
        idle if sync is None else np.array(sync, float),
        m,
        chunks,
        schedule,
    )


def order_of(pipe: Pipeline, q: int) -> list[tuple[bool, int, int]]:
    """A stage's tasks (forward?, chunk, micro-batch) in order, written out from the papers."""
    s, v, m = len(pipe.forward), pipe.chunks, pipe.microbatches
    rounds = range(0, m, s) if v > 1 else [0]
    width = s if v > 1 else m
    ups = [(True, c, r + i) for r in rounds for c in range(v) for i in range(width)]
    downs = [(False, c, r + i) for r in rounds for c in reversed(range(v)) for i in range(width)]
    ahead = s - 1 - q
    if pipe.schedule == "gpipe":
        ahead = m
    if pipe.schedule == "interleaved":
        ahead = 2 * (s - 1 - q) + (v - 1) * s
    order = ups[:ahead]
    for k, up in enumerate(ups[ahead:]):
        order += [up, downs[k]]
    return order + downs[len(ups[ahead:]) :]


def random_pipeline(rng: np.random.Generator, schedule: str) -> Pipeline:
    """One to seven stages, alike or not, many of them with nothing to do; hops short to long."""
    s = int(rng.integers(1, 8))
    v = int(rng.integers(1, 5)) if schedule == "interleaved" else 1
    m = s * int(rng.integers(1, 4)) if v > 1 else int(rng.integers(1, 13))

    def seconds() -> np.ndarray:
        draws = (
            rng.random(s),
            rng.random(s) * rng.integers(0, 2, s),
            rng.integers(0, 2, s).astype(float),
            1 + 0.3 * rng.random(s),
        )
        return draws[rng.integers(len(draws))]

    hop = seconds() * rng.choice([0, 0.1, 0.5, 1, 3])
    return pipeline(seconds(), seconds(), hop, m, schedule, v)
