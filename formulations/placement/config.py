"""What a stage may be: families with their classes, grids, and configurations with their prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.formulations.placement.classes import FamilyClass
    from nestopt.formulations.placement.data import PlacementData
    from nestopt.placement.pricing.cost import Grid, Mode

    Floats = NDArray[np.float64]

__all__ = [
    "AXES", "DENSE", "JOINT", "SPARSE", "TYPES", "Config", "Family", "GridChoice", "Line", "beats",
]  # fmt: skip

Line = tuple[float, float]
"""Intercept and slope."""

AXES = (0, 1, 2)
"""The families X, Y and Z (numbered as in `nestopt.placement.pricing.cost.FAMILIES`)."""

DENSE, SPARSE, TYPES, JOINT = 5, 6, -1, -2
_SLACK = 1e-12


@dataclass(frozen=True, eq=False)
class Family:
    """A family of a grid whose place matters.

    Attributes
    ----------
    index : int
        Position in `nestopt.placement.pricing.cost.FAMILIES`.
    groups : tuple of tuples of int
        Roles of every group.
    classes : tuple of FamilyClass
    """

    index: int
    groups: tuple[tuple[int, ...], ...]
    classes: tuple[FamilyClass, ...]

    @property
    def size(self) -> int:
        """Members of a group."""
        return len(self.groups[0])

    def meets(self, other: Family) -> list[tuple[int, ...]]:
        """Sets of groups of another family that meet the same groups of this one."""
        group_of = {role: n for n, group in enumerate(other.groups) for role in group}
        return list(dict.fromkeys(tuple(sorted(group_of[i] for i in g)) for g in self.groups))


@dataclass(frozen=True, eq=False)
class GridChoice:
    """Degrees that a stage may have. Its roles are 0..d w - 1: rank j of replica r is r w + j."""

    index: int
    grid: Grid
    roles: int
    families: tuple[Family, ...]


@dataclass(frozen=True, eq=False)
class Config:
    """A grid with a mode, and its prices.

    An operator costs `compute` and, for the type set and for the class of every family, an
    `excess`. With overlap, what is exposed of X, Y and Z depends on several of these at once: the
    excess of each such combination is under ``JOINT``.

    Attributes
    ----------
    compute : float array (operators,)
        Seconds of an operator on the fastest devices with the cheapest communication.
    excess : dict of int to float array (classes, operators)
        By family: seconds that a class adds to that; for ``TYPES``, that a type set adds; for
        ``JOINT``, if there, that a combination adds.
    joined : tuple of int
        ``TYPES`` and families whose choices the combinations are of, or nothing.
    combinations : tuple of tuples of int
        For each the type set and the classes, in the order of `joined`.
    table : float array (type sets, combinations of classes, operators)
        Seconds of an operator without its communication beyond X, Y and Z; these are left out too
        if no mode of the grid overlaps (then there is one combination). To compare the modes of a
        grid.
    step : float array (type sets, operators)
        Seconds of the optimizer step.
    step_shared : float array (type sets,)
        Seconds of it that shared parameters save.
    sync : dict of int to tuple, one entry a class, of lines
        Families ``DENSE`` and ``SPARSE``: the synchronisation of x parameters (all of the stage)
        takes the least of the lines at x, and nothing at x = 0.
    states, stored, working, gathered : float arrays (operators,)
        Bytes that add up over operators; the same for each micro-batch in flight; bytes of which
        the largest operator's count; a second kind of those.
    states_shared, buffers : float
        Bytes that shared parameters save; bytes per byte of the two cuts.
    allowed : bool array (operators,)
    """

    index: int
    grid: GridChoice
    mode: Mode
    compute: Floats
    excess: dict[int, Floats]
    joined: tuple[int, ...]
    combinations: tuple[tuple[int, ...], ...]
    table: Floats
    step: Floats
    step_shared: Floats
    sync: dict[int, tuple[tuple[Line, ...], ...]]
    states: Floats
    stored: Floats
    working: Floats
    gathered: Floats
    states_shared: float
    buffers: float
    allowed: NDArray[np.bool_]

    def largest_need(self, held: float, largest_cut: float) -> float:
        """A bound on the bytes that any stage of this configuration needs on a device."""
        each = float((self.states + held * self.stored).sum())
        largest = float(self.working.max() + self.gathered.max())
        return each + largest + 2 * self.buffers * largest_cut


def beats(data: PlacementData, a: Config, b: Config, ample: bool) -> bool:
    """Whether a configuration is at least as good as another of its grid, whatever the stage.

    Memory counts unless it is `ample`.
    """
    if set(a.sync) - set(b.sync):
        return False
    pairs = [
        (_with_tied(data, a.step, a.step_shared), _with_tied(data, b.step, b.step_shared)),
        (a.table, b.table),
    ]
    apart = set(a.excess) - {TYPES, JOINT}
    if a.table.shape[1] > 1:
        apart -= set(AXES)
    pairs += [(a.excess[f], b.excess[f]) for f in apart]
    if not ample:
        pairs += [
            (getattr(a, name), getattr(b, name))
            for name in ("stored", "working", "gathered", "buffers")
        ]
        pairs.append(
            (
                _with_tied(data, a.states, a.states_shared),
                _with_tied(data, b.states, b.states_shared),
            )
        )
    if not all(np.all(x <= np.asarray(y) * (1 + _SLACK)) for x, y in pairs):
        return False
    return all(
        any(x[0] <= y[0] and x[1] <= y[1] for x in mine)
        for f in a.sync
        for mine, theirs in zip(a.sync[f], b.sync[f], strict=True)
        for y in theirs
    )


def _with_tied(data: PlacementData, values: Floats, saved: Floats | float) -> Floats:
    """Figures of each operator and, appended, of the tied ones together."""
    tied = data.workload.tied
    if tied is None:
        return values
    both = values[..., [tied.first]] + values[..., [tied.second]]
    return np.concatenate([values, both - np.reshape(saved, (-1, 1)[2 - values.ndim :])], axis=-1)
