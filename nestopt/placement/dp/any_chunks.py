"""A schedule that costs no more than interleaving with any of some numbers of chunks.

It closes them all at once where even it cannot beat the incumbent. It weighs as the largest number
does, crosses boundaries as often as the smallest, and cuts any stage that one of them might cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nestopt.placement.model.schedules import Interleaved, Weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

__all__ = ["AnyChunks"]


@dataclass(frozen=True, slots=True)
class AnyChunks(Interleaved):
    """Interleaving with `chunks` to `most` chunks, each figure at its best."""

    most: int = 2

    def weights(self, objective: str, microbatches: int) -> Weights:
        """Those of the most chunks: the sum of the stage times is at least the largest of them."""
        if objective == "bottleneck":
            return Weights(0.0, 1.0, 0.0)
        return Weights(1.0 / self.most, microbatches - 1.0 / self.most, 1.0)

    def in_flight(self, microbatches: int, stages_left: int, stages: int) -> float:
        """Those of the most chunks, which hold the fewest."""
        tasks = 2 * (stages_left - 1) + (self.most - 1) * stages + 1
        return min(microbatches, tasks / self.most)

    def divides(self, counts: Ints, repeated: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether each repeated kind is absent or there at least once a chunk."""
        held = counts[:, repeated]
        enough = ((held == 0) | (held >= self.chunks)).all(axis=1)
        return np.asarray(enough & (counts.sum(axis=1) >= self.chunks))
