"""What the two placement models share: the families without prices, and reading solutions back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.formulations.placement.communication import PlacementCommunication
from nestopt.formulations.placement.layout import PlacementLayout
from nestopt.placement.model.plan import Plan, Stage
from nestopt.placement.pricing.cost import config_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.formulations.solvers.adapters import Outcome

__all__ = ["PlacementModel", "StageChoice"]


@dataclass(frozen=True, slots=True)
class StageChoice:
    """A stage as a model's solution has it.

    Attributes
    ----------
    position : int
        0 for the last stage.
    operators : tuple of int
    config, types : int
        Numbers of the configuration and of the type set.
    cells : tuple of int
        Cell of every role.
    devices : tuple of int
        Device of every role in the structured space, else empty.
    """

    position: int
    operators: tuple[int, ...]
    config: int
    types: int
    cells: tuple[int, ...]
    devices: tuple[int, ...]


class PlacementModel(PlacementLayout, PlacementCommunication):
    """Base of the two models.

    A subclass makes variables (`_binary`, `_whole`), sums (`sum`) and named constraints (`_add`).
    """

    def forbid_stage(self, stage: StageChoice) -> None:
        """No stage at the position with these operators, this configuration and this type set."""
        p = stage.position
        outside = [o for o in self.operators if o not in stage.operators]
        matches = self._sum(self.inside(o, p) for o in stage.operators)
        matches += self.config[p, stage.config] + self.types[p, stage.types]
        matches -= self._sum(self.inside(o, p) for o in outside)
        self.forbidden += 1
        self._add(matches <= len(stage.operators) + 1, "forbidden", self.forbidden)

    def stages(self, outcome: Outcome) -> list[StageChoice]:
        """The stages of the incumbent, first to last."""

        def chosen(table: dict[Any, Any], *start: int) -> tuple[int, ...]:
            return next(k for k, x in table.items() if k[: len(start)] == start and value(x))

        def value(variable: Any) -> bool:
            return int(outcome.value(variable)) == 1

        position_of = {
            o: sum(not value(x) for (v, _), x in self.late.items() if v == o)
            for o in range(self.data.workload.num_operators)
        }
        found = []
        for p in sorted((p for p, x in self.use.items() if value(x)), reverse=True):
            (_, c), (_, types) = chosen(self.config, p), chosen(self.types, p)
            grid = self.scenario.configs[c].grid
            devices: tuple[int, ...] = ()
            if self.place:
                place = chosen(self.place, p, grid.index)[-1]
                devices = self.scenario.places[grid.index][place].devices
            found.append(
                StageChoice(
                    p,
                    tuple(o for o, q in position_of.items() if q == p),
                    c,
                    types,
                    tuple(chosen(self.role, p, grid.index, i)[-1] for i in range(grid.roles)),
                    devices,
                )
            )
        return found

    def plan(self, stages: Sequence[StageChoice]) -> Plan:
        """The plan of stages; which of a cell's devices a role gets does not matter."""
        free = {cell.index: list(cell.devices) for cell in self.data.cells}
        scenario = self.scenario.scenario
        done = []
        for stage in stages:
            config = self.scenario.configs[stage.config]
            devices = stage.devices or [free[cell].pop(0) for cell in stage.cells]
            done.append(
                Stage(
                    stage.operators,
                    config_of(config.grid.grid, config.mode),
                    np.array(devices, dtype=np.int64).reshape(self.scenario.replicas, -1),
                )
            )
        return Plan(
            tuple(done),
            scenario.replicas,
            scenario.microbatch,
            scenario.schedule.name,
            scenario.schedule.chunks,
        )
