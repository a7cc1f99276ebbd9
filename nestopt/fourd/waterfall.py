"""Iteration time as the overlaps are switched on one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nestopt.fourd.overlap import Overlap, exposed
from nestopt.fourd.simulate import simulate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from nestopt.fourd.overlap import BlockTimes

__all__ = ["STEPS", "Step", "gains", "step_table", "waterfall"]

STEPS: tuple[tuple[str, str], ...] = (
    ("+ OAR", "all_reduce"),
    ("+ ORS", "reduce_scatter"),
    ("+ OAG", "all_gather"),
    ("+ data-parallel", "data"),
    ("+ weight caching", "cache_weights"),
    ("+ over-decomposition", "two_way"),
)
"""What each step switches on, after none: a field of `nestopt.fourd.overlap.Overlap`."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: seconds of an iteration by the formulas and by event simulation."""

    name: str
    formula: float
    simulated: float


def waterfall(blocks: Sequence[BlockTimes], *, cache_fits: bool = True) -> tuple[Step, ...]:
    """No overlap, then AxoNN's overlaps one after the other, each kept.

    Parameters
    ----------
    blocks : sequence of BlockTimes
        In forward order.
    cache_fits : bool
        Whether the memory holds cached weights; that step is left out otherwise.
    """
    on: dict[str, bool] = {}
    found = [_step("no overlap", blocks, on)]
    for name, field in STEPS:
        if field == "cache_weights" and not cache_fits:
            continue
        on[field] = True
        found.append(_step(name, blocks, on))
    return tuple(found)


def _step(name: str, blocks: Sequence[BlockTimes], on: Mapping[str, bool]) -> Step:
    overlap = Overlap(**on)
    return Step(name, exposed(blocks, overlap).total, simulate(blocks, overlap).end)


def gains(steps: Sequence[Step]) -> list[float]:
    """Simulated time without overlap / time of each step - 1."""
    return [steps[0].simulated / step.simulated - 1 for step in steps]


def step_table(steps: Sequence[Step]) -> Table:
    """The steps for people: formula beside simulation, and the gain over no overlap."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("overlaps", no_wrap=True)
    for column in ("formula s", "simulated s", "gain"):
        table.add_column(column, justify="right", no_wrap=True)
    for step, gain in zip(steps, gains(steps)):
        table.add_row(
            step.name, f"{step.formula:.3f}", f"{step.simulated:.3f}", f"{100 * gain:.1f} %"
        )
    return table
