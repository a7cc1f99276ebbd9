"""Grids and modes: a stage's configuration in the form that it is priced in.

A *grid* is what decides a stage's devices and groups, a *mode* what else may be chosen.
"""

from __future__ import annotations

from typing import NamedTuple

from nestopt.placement.model.plan import Hides, StageConfig

__all__ = ["FAMILIES", "Grid", "Mode", "config_of", "grid_of", "hidden", "mode_of"]

FAMILIES = ("x", "y", "z", "context", "expert", "dense", "sparse")
"""Families of a stage (``MODEL.md``, section 4), in the order of their profiles."""


class Grid(NamedTuple):
    """Degrees of a stage: the tensor decomposition (Gx, Gy, Gz), context, expert."""

    x: int
    y: int
    z: int
    c: int
    e: int

    @property
    def t(self) -> int:
        """Tensor-parallel degree."""
        return self.x * self.y * self.z

    @property
    def width(self) -> int:
        """Devices of one replica."""
        return self.t * self.c * self.e

    @property
    def sample_parts(self) -> int:
        """Parts that the samples of a micro-batch are dealt in; must divide it."""
        return self.e * self.z

    def outer_parts(self, sequence_parallel: bool) -> int:
        """Parts in which tensor ranks hold what lies outside the tensor-parallel region."""
        return self.x * (self.y if sequence_parallel else 1)

    def family_sizes(self, replicas: int) -> tuple[int, int, int, int, int, int, int]:
        """Members of a group of each of the `FAMILIES`."""
        x, y, z, c, e = self
        return x, y, z, c, e, replicas * c * e, replicas * c


class Mode(NamedTuple):
    """The choices of a stage that do not change its devices."""

    sequence_parallel: bool
    zero: int
    recompute: str
    overlap: bool = False
    hides: Hides = Hides.NONE


def config_of(grid: Grid, mode: Mode) -> StageConfig:
    """The stage configuration of a grid and a mode."""
    x, y, z, c, e = grid
    return StageConfig((x, y, z), c, e, *mode)


def grid_of(config: StageConfig) -> Grid:
    """The grid of a stage configuration."""
    return Grid(*config.tensor, config.context, config.expert)


def mode_of(config: StageConfig) -> Mode:
    """The mode of a stage configuration."""
    return Mode(
        config.sequence_parallel, config.zero, config.recompute, config.overlap, config.hides
    )


def hidden(grid: Grid, zero: int, overlap: bool, hides: Hides) -> Hides:
    """Of what a framework hides, what a stage has to hide.

    The ring exchange is of (1, t, 1) with t > 1 and excludes AxoNN's overlaps; the gathers are of
    ZeRO 2 and 3.
    """
    if grid.y == 1 or grid.x > 1 or grid.z > 1 or overlap:
        hides &= ~Hides.TENSOR
    if zero < 2:
        hides &= ~Hides.GATHERS
    return hides
