"""An instance in the form that both exact placement models use: alike devices, and the tree."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from nestopt.formulations.placement.tree import Tree
from nestopt.placement.pricing.cost import StageCosts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import DeviceType
    from nestopt.placement.model.instance import PlacementInstance

    Floats = NDArray[np.float64]

__all__ = ["PlacementData"]


class PlacementData(Tree):
    """An instance in the form that the models use.

    Parameters
    ----------
    deadline : float
        When to give up preparing a model, as `time.perf_counter` counts.

    Attributes
    ----------
    type_sets : tuple of tuples of DeviceType
        Sets of types that a stage may contain.
    """

    def __init__(
        self,
        instance: PlacementInstance,
        deadline: float = math.inf,
    ) -> None:
        super().__init__(instance.cluster, deadline)
        workload, cluster = instance.workload, instance.cluster
        self.workload, self.space = workload, instance.space
        self.objective = instance.objective
        self.costs = StageCosts(workload)
        present = sorted({cell.type for cell in self.cells})
        self.type_sets: tuple[tuple[DeviceType, ...], ...] = tuple(
            tuple(cluster.types[i] for i in chosen)
            for size in range(1, len(present) + 1)
            for chosen in combinations(present, size)
        )
        self.kinds = self.costs.kind_of
        self.params = self._of_operators("params")
        self.params_expert = self._of_operators("params_expert")

    def _of_operators(self, field: str) -> Floats:
        return np.array([getattr(o, field) for o in self.workload.operators], dtype=np.float64)

    @cached_property
    def largest_cut(self) -> float:
        """A bound on every cut, bytes per sample."""
        largest: dict[int, float] = {}
        for edge in self.workload.edges:
            largest[edge.source] = max(largest.get(edge.source, 0.0), edge.bytes)
        return sum(largest.values())
